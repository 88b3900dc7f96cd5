//! A set that usually has one element, which is then stored inline: most locks have one holder, and
//! many transactions hold one key.

use std::collections::BTreeSet;

#[derive(Debug)]
pub(super) struct Few<T> {
    first: Option<T>,
    /// Empty unless `first` is set; does not contain `first`, which is outside its order.
    more: BTreeSet<T>,
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self { first: None, more: BTreeSet::new() }
    }
}

impl<T: Ord> Few<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn len(&self) -> usize {
        self.first.iter().len() + self.more.len()
    }

    /// Iterates over the element inserted first, then over the others in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.more)
    }

    pub(super) fn contains(&self, element: &T) -> bool {
        self.first.as_ref() == Some(element) || self.more.contains(element)
    }

    /// Iterates over the elements from `from` while they are `within`, which must hold for one
    /// contiguous part of the order.
    pub(super) fn stretch<'a>(
        &'a self,
        from: &'a T,
        within: &'a dyn Fn(&T) -> bool,
    ) -> impl Iterator<Item = &'a T> {
        let first = self.first.iter().filter(move |first| *first >= from && within(first));
        first.chain(self.more.range(from..).take_while(move |element| within(element)))
    }

    /// Returns true if the element was not in the set.
    pub(super) fn insert(&mut self, element: T) -> bool {
        match &self.first {
            None => {
                self.first = Some(element);
                true
            }
            Some(first) => *first != element && self.more.insert(element),
        }
    }

    pub(super) fn remove(&mut self, element: &T) {
        if self.first.as_ref() == Some(element) {
            self.first = self.more.pop_first();
        } else {
            self.more.remove(element);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_env::{Entropy, SeededEntropy};

    /// Random operations give the same results as the standard library's set.
    #[test]
    fn it_behaves_like_a_btree_set() {
        for seed in 0..50 {
            let random = SeededEntropy::new(seed);
            let (mut few, mut set) = (Few::default(), BTreeSet::new());
            for _ in 0..200 {
                let element = random.u64() % 6;
                if random.u64().is_multiple_of(2) {
                    assert_eq!(few.insert(element), set.insert(element));
                } else {
                    few.remove(&element);
                    set.remove(&element);
                }
                assert_eq!((few.is_empty(), few.len()), (set.is_empty(), set.len()));
                assert_eq!(few.iter().copied().collect::<BTreeSet<_>>(), set);
                assert!((0..6).all(|element| few.contains(&element) == set.contains(&element)));
                let stretch: BTreeSet<u64> =
                    few.stretch(&2, &|element| *element < 5).copied().collect();
                assert_eq!(stretch, set.range(2..5).copied().collect());
            }
        }
    }
}
