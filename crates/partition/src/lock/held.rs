//! The sets of keys that one transaction holds in a tree, by mode: ranges and packed keys.

use super::packed::PackedKeys;
use super::spans::{Keys, Span, Spans};
use super::{Mode, ROW_MODES};

/// Keys that are locked in one mode.
pub(super) trait KeySet {
    fn is_empty(&self) -> bool;
    /// Returns true if the set contains some of these keys.
    fn meets(&self, keys: &Keys<'_>) -> bool;
    /// Returns true if the set contains all of these keys.
    fn covers(&self, keys: &Keys<'_>) -> bool;
}

impl KeySet for Spans {
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn meets(&self, keys: &Keys<'_>) -> bool {
        match keys {
            Keys::One(key) => self.contains(key),
            Keys::Span(span) => self.overlaps(span),
            Keys::None => false,
        }
    }

    fn covers(&self, keys: &Keys<'_>) -> bool {
        match keys {
            Keys::One(key) => self.contains(key),
            Keys::Span(span) => self.covers(span),
            Keys::None => false,
        }
    }
}

impl KeySet for PackedKeys {
    fn is_empty(&self) -> bool {
        self.is_empty()
    }

    fn meets(&self, keys: &Keys<'_>) -> bool {
        match keys {
            Keys::One(key) => self.contains(key),
            Keys::Span(span) => self.overlaps(span),
            Keys::None => false,
        }
    }

    fn covers(&self, keys: &Keys<'_>) -> bool {
        matches!(keys, Keys::One(key) if self.contains(key))
    }
}

/// One set for each of [`ROW_MODES`].
#[derive(Debug, Default)]
pub(super) struct Held<S>([S; ROW_MODES.len()]);

impl<S: KeySet> Held<S> {
    pub(super) fn by_mode(&self) -> impl Iterator<Item = (Mode, &S)> {
        ROW_MODES.into_iter().zip(&self.0).filter(|(_, set)| !set.is_empty())
    }

    pub(super) fn of(&self, mode: Mode) -> &S {
        &self.0[mode.rank()]
    }

    pub(super) fn of_mut(&mut self, mode: Mode) -> &mut S {
        &mut self.0[mode.rank()]
    }

    /// Returns true if a lock of this mode on these keys conflicts with a set.
    pub(super) fn clash(&self, keys: &Keys<'_>, mode: Mode) -> bool {
        self.by_mode().any(|(held, set)| held.bit() & mode.conflicts() != 0 && set.meets(keys))
    }

    /// Returns true if the set of one of these modes covers the keys.
    pub(super) fn cover(&self, keys: &Keys<'_>, modes: u16) -> bool {
        self.by_mode().any(|(held, set)| held.bit() & modes != 0 && set.covers(keys))
    }
}

/// A transaction's ranges.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    pub held: Held<Spans>,
    /// Where the search for the next gap to join starts.
    gap: Vec<u8>,
}

impl Ranges {
    /// Returns the keys between two neighbouring ranges of this mode. Each call returns the next
    /// gap and wraps around at the end.
    pub(super) fn next_gap(&mut self, mode: Mode) -> Option<Span> {
        let set = self.held.of(mode);
        let (gap, joined) = set.gap_from(&self.gap).or_else(|| set.gap_from(&[]))?;
        self.gap = joined;
        Some(gap)
    }
}
