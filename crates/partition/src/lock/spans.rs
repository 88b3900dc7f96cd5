//! A set of keys as ranges: what a transaction has locked in a tree in one mode.
//!
//! Invariant: spans are not empty, and between any two there is a key that is in neither. So the
//! representation of a set is unique, and one span answers a query about a key or a range.
//!
//! A span is half open. Keys are byte strings, and the first key after `k` is `k` followed by a
//! zero byte, so every pair of bounds is such a span.

use super::work::look;
use std::collections::BTreeMap;
use std::ops::Bound::{self, Excluded, Included, Unbounded};

/// The keys from `from`, inclusive, to `to`, exclusive; `None` is unbounded. Not empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub from: Vec<u8>,
    pub to: Option<Vec<u8>>,
}

impl Span {
    /// Returns the keys between the bounds; `None` if there can be none.
    pub(super) fn of(lo: Bound<&[u8]>, hi: Bound<&[u8]>) -> Option<Self> {
        let from = match lo {
            Unbounded => Vec::new(),
            Included(k) => k.to_vec(),
            Excluded(k) => behind(k),
        };
        let to = match hi {
            Unbounded => None,
            Included(k) => Some(behind(k)),
            Excluded(k) => Some(k.to_vec()),
        };
        ends_behind(&to, &from).then_some(Self { from, to })
    }

    /// Returns the span of one key.
    pub(super) fn of_key(key: &[u8]) -> Self {
        Self { from: key.to_vec(), to: Some(behind(key)) }
    }

    /// Returns true if it has keys after the end of the other span.
    pub(super) fn ends_behind(&self, other: &Span) -> bool {
        other.to.as_ref().is_some_and(|end| ends_behind(&self.to, end))
    }
}

/// The keys of a request, as used in queries on sets of ranges.
pub(super) enum Keys<'a> {
    One(&'a [u8]),
    Span(Span),
    None,
}

impl Keys<'_> {
    /// Returns true if some of the keys are before the span's end.
    pub(super) fn begin_before(&self, span: &Span) -> bool {
        match self {
            Self::One(key) => ends_behind(&span.to, key),
            Self::Span(own) => ends_behind(&span.to, &own.from),
            Self::None => false,
        }
    }

    /// Returns true if some of the keys are at or after `key`.
    pub(super) fn end_behind(&self, key: &[u8]) -> bool {
        match self {
            Self::One(own) => *own >= key,
            Self::Span(own) => ends_behind(&own.to, key),
            Self::None => false,
        }
    }

    pub(super) fn has(&self, key: &[u8]) -> bool {
        match self {
            Self::One(own) => *own == key,
            Self::Span(own) => own.from.as_slice() <= key && ends_behind(&own.to, key),
            Self::None => false,
        }
    }
}

/// Returns the first key after this one.
fn behind(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}

fn ends_behind(to: &Option<Vec<u8>>, key: &[u8]) -> bool {
    to.as_ref().is_none_or(|to| to.as_slice() > key)
}

/// A set of keys; see the module.
#[derive(Debug, Default)]
pub(super) struct Spans {
    /// Maps the begin of each span to its end.
    spans: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl Spans {
    /// Returns the number of separate ranges.
    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns the last span that begins before this bound.
    fn last(&self, before: Bound<&[u8]>) -> Option<(&Vec<u8>, &Option<Vec<u8>>)> {
        look();
        self.spans.range::<[u8], _>((Unbounded, before)).next_back()
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.last(Included(key)).is_some_and(|(_, to)| ends_behind(to, key))
    }

    /// Returns true if the set contains all keys of the span.
    pub(super) fn covers(&self, span: &Span) -> bool {
        let covers_end = |to: &Option<Vec<u8>>| match (to, &span.to) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(to), Some(end)) => to >= end,
        };
        self.last(Included(&span.from)).is_some_and(|(_, to)| covers_end(to))
    }

    /// Returns true if the set may contain a key of the span.
    pub(super) fn overlaps(&self, span: &Span) -> bool {
        let before = span.to.as_deref().map_or(Unbounded, Excluded);
        self.last(before).is_some_and(|(_, to)| ends_behind(to, &span.from))
    }

    /// Adds the keys of the span and merges it with all spans that it meets or touches, whose
    /// begins it passes to `gone`. Returns the merged span.
    pub(super) fn insert(&mut self, span: Span, mut gone: impl FnMut(&[u8])) -> Span {
        let Span { mut from, mut to } = span;
        loop {
            let near = self.last(to.as_deref().map_or(Unbounded, Included));
            let touches = |end: &Option<Vec<u8>>| end.as_ref().is_none_or(|end| *end >= from);
            let Some(begin) = near.filter(|(_, end)| touches(end)).map(|(begin, _)| begin.clone())
            else {
                break;
            };
            let end = self.spans.remove(&begin).flatten();
            gone(&begin);
            from = from.min(begin);
            to = to.zip(end).map(|(a, b)| a.max(b));
        }
        self.spans.insert(from.clone(), to.clone());
        Span { from, to }
    }

    /// Returns the gap after the first span that begins at or after `begin`, and the begin of the
    /// next span.
    pub(super) fn gap_from(&self, begin: &[u8]) -> Option<(Span, Vec<u8>)> {
        let mut spans = self.spans.range::<[u8], _>((Included(begin), Unbounded));
        let (from, (to, _)) = (spans.next()?.1.clone()?, spans.next()?);
        Some((Span { from, to: Some(to.clone()) }, to.clone()))
    }

    pub(super) fn spans(&self) -> impl Iterator<Item = Span> {
        self.spans.iter().map(|(from, to)| Span { from: from.clone(), to: to.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sorted keys of up to two bytes out of 0, 1 and 2, including the empty key and neighbours
    /// that differ by a zero byte.
    fn keys() -> Vec<Vec<u8>> {
        let mut keys = vec![Vec::new()];
        for a in 0..3 {
            keys.push(vec![a]);
            keys.extend((0..3).map(|b| vec![a, b]));
        }
        keys.sort();
        keys
    }

    fn inside(lo: Bound<&[u8]>, hi: Bound<&[u8]>, key: &[u8]) -> bool {
        let above = match lo {
            Unbounded => true,
            Included(k) => key >= k,
            Excluded(k) => key > k,
        };
        let below = match hi {
            Unbounded => true,
            Included(k) => key <= k,
            Excluded(k) => key < k,
        };
        above && below
    }

    /// Compares sets of up to three ranges, drawn from a fixed sequence, with a list of the ranges.
    #[test]
    fn sets_agree_with_lists_of_ranges() {
        let keys = keys();
        let mut state = 1_u64;
        let mut below = |n: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % n
        };
        for _ in 0..2_000 {
            let mut bound = || match below(5) {
                0 => Unbounded,
                1 | 2 => Included(keys[below(keys.len())].as_slice()),
                _ => Excluded(keys[below(keys.len())].as_slice()),
            };
            let ranges: Vec<_> = (0..3).map(|_| (bound(), bound())).collect();
            let asked = (bound(), bound());
            let mut set = Spans::default();
            ranges
                .iter()
                .filter_map(|(lo, hi)| Span::of(*lo, *hi))
                .for_each(|span| drop(set.insert(span, |_| ())));
            let listed = |key: &[u8]| ranges.iter().any(|(lo, hi)| inside(*lo, *hi, key));
            for key in &keys {
                assert_eq!(set.contains(key), listed(key), "{ranges:?} {key:?}");
            }
            let Some(span) = Span::of(asked.0, asked.1) else { continue };
            // Longer keys are between those of the list: they decide where no key of the list does.
            let mut probes: Vec<Vec<u8>> = keys
                .iter()
                .flat_map(|k| [k.clone(), behind(k), [k, &[0, 0][..]].concat()])
                .collect();
            probes.retain(|key| inside(asked.0, asked.1, key));
            assert_eq!(
                set.overlaps(&span),
                probes.iter().any(|key| listed(key)),
                "{ranges:?} {asked:?}"
            );
            assert_eq!(
                set.covers(&span),
                probes.iter().all(|key| listed(key)),
                "{ranges:?} {asked:?}"
            );
        }
    }

    #[test]
    fn touching_ranges_are_merged() {
        let mut set = Spans::default();
        let mut add = |lo, hi| {
            set.insert(Span::of(lo, hi).unwrap(), |_| ());
            set.len()
        };
        assert_eq!(add(Included(&b"a"[..]), Excluded(&b"b"[..])), 1);
        assert_eq!(add(Included(&b"c"[..]), Included(&b"d"[..])), 2);
        assert_eq!(
            add(Excluded(&b"d"[..]), Excluded(&b"e"[..])),
            2,
            "the range after d starts where d ends"
        );
        assert_eq!(add(Included(&b"b"[..]), Excluded(&b"c"[..])), 1);
        assert_eq!(add(Included(&b"x"[..]), Unbounded), 2);
        assert_eq!(add(Unbounded, Unbounded), 1);
    }
}
