//! What a hit touches: a policy says so, to have it prefetched before the policy's latch is taken.
//!
//! These are addresses only. Nothing is read through them, so that it does no harm if what they
//! lead to changes, moves or is freed. Links are read as the atomics they are, and followed to
//! further addresses only.
//!
//! # Source
//! The prefetching of BP-Wrapper (Ding, Jiang, Zhang, ICDE 2009), which reads the list neighbours
//! of each queued node and of the end that it moves to.

use super::list::{Links, ListId, Lists};
use super::uses::Uses;
use clearway_latch::prefetch;
use std::sync::Arc;

/// What a hit on a frame touches. The default is nothing.
#[derive(Default)]
pub struct Footprint {
    /// Address and size of the first element of arrays with an element a frame.
    arrays: Vec<(usize, usize)>,
    /// And the ends of lists that a hit moves to.
    links: Vec<(Arc<Links>, Vec<u32>)>,
}

impl Footprint {
    /// Adds the frame's element of this array, which has one for each frame.
    pub fn array<T>(mut self, elements: &[T]) -> Self {
        self.arrays.push((elements.as_ptr().addr(), size_of::<T>()));
        self
    }

    /// Adds the frame's count.
    pub(super) fn uses(mut self, uses: &dyn Uses) -> Self {
        self.arrays.push(uses.place());
        self
    }

    /// Adds the links of the frame in these lists, whose first nodes are the frames, and those of
    /// its neighbours; also those of the ends of the lists `to` whose front it may move, and of the
    /// nodes there.
    pub fn lists(mut self, lists: &Lists, to: impl IntoIterator<Item = ListId>) -> Self {
        let links = lists.links();
        let ends = to.into_iter().map(|list| links.end(list)).collect();
        self.links.push((links, ends));
        self
    }

    /// Prefetches each frame's own elements and links, then those of its neighbours: by then the
    /// first have had time to arrive.
    pub fn prefetch(&self, frames: impl Iterator<Item = u32> + Clone) {
        self.visit(frames, prefetch);
    }

    fn visit(&self, frames: impl Iterator<Item = u32> + Clone, mut touch: impl FnMut(usize)) {
        for frame in frames.clone() {
            for (first, size) in &self.arrays {
                touch(first.wrapping_add(size.wrapping_mul(frame as usize)));
            }
            for (links, _) in &self.links {
                links.places(frame).into_iter().for_each(&mut touch);
            }
        }
        for (links, ends) in &self.links {
            ends.iter().flat_map(|end| links.places(*end)).for_each(&mut touch);
            let neighbours = frames.clone().flat_map(|frame| links.neighbours(frame)).flatten();
            let fronts = ends.iter().filter_map(|end| links.neighbours(*end)[0]);
            neighbours.chain(fronts).flat_map(|node| links.places(node)).for_each(&mut touch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::queues::Queues;
    use super::*;
    use std::collections::BTreeSet;

    const FROM: ListId = ListId(0);
    const TO: ListId = ListId(1);

    #[test]
    fn all_links_that_a_move_to_the_front_changes_are_told() {
        const NODES: u32 = 5;
        for (in_from, in_to) in (0..NODES).flat_map(|n| (0..NODES - n).map(move |m| (n + 1, m))) {
            for moved in 0..in_from {
                let mut queues = Queues::new(NODES + 1, 3);
                (0..in_from).for_each(|node| queues.push_front(FROM, node));
                (in_from..in_from + in_to).for_each(|node| queues.push_front(TO, node));
                let mut told = BTreeSet::new();
                queues
                    .footprint([TO])
                    .visit(std::iter::once(moved), |address| _ = told.insert(address));
                let links = queues.links();
                let all = || {
                    (0..NODES + 4)
                        .flat_map(|at| links.places(at).into_iter().zip(links.neighbours(at)))
                };
                let before: Vec<_> = all().collect();
                queues.move_to_front(TO, moved);
                let changed: Vec<_> = before
                    .into_iter()
                    .zip(all())
                    .filter(|(before, after)| before != after)
                    .collect();
                assert!(
                    changed.len() >= 6
                        && changed.iter().all(|((address, _), _)| told.contains(address))
                );
            }
        }
    }
}
