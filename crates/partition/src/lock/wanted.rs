//! What a transaction waits for, for the views: recorded when the wait begins.

use super::Mode;
use super::scope::Place;
use super::table::{LockTable, ScopeId};
use clearway_types::{TableId, TreeId};
use std::sync::Arc;

/// The lock that a transaction waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The table or keys.
    pub place: WantedPlace,
    mode: Mode,
}

/// The place of a wanted lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedPlace {
    /// A table as a whole.
    Table(TableId),
    /// A key of a tree.
    Key(TreeId, Arc<[u8]>),
    /// The keys of a tree from one, inclusive, to another, exclusive; `None` is unbounded.
    Range(TreeId, Vec<u8>, Option<Vec<u8>>),
}

impl Wanted {
    /// Returns the lock's mode in words, for example `intent exclusive`.
    pub fn mode(&self) -> &'static str {
        let of_table = matches!(self.place, WantedPlace::Table(_));
        match self.mode {
            Mode::IntentShared => "intent shared",
            Mode::IntentExclusive => "intent exclusive",
            Mode::AccessShared => "access shared",
            Mode::AccessExclusive => "access exclusive",
            Mode::Shared if of_table => "shared",
            Mode::Exclusive if of_table => "exclusive",
            Mode::Settled if of_table => "snapshot",
            mode => row_mode_name(mode),
        }
    }
}

/// Returns a mode of keys and ranges in words.
pub(super) fn row_mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::KeyShared => "key share",
        Mode::Shared | Mode::IntentShared | Mode::AccessShared => "share",
        Mode::Increment => "increment",
        Mode::NoKeyExclusive | Mode::Behind | Mode::Settled => "no key update",
        Mode::Exclusive | Mode::IntentExclusive | Mode::AccessExclusive => "update",
    }
}

impl LockTable {
    /// Returns what the members of a line wait for.
    pub(crate) fn wanted(&self, line: u64) -> Option<Arc<Wanted>> {
        let line = self.lines.get(&line)?;
        let place = match (line.scope, &line.place) {
            (ScopeId::Table(table), _) => WantedPlace::Table(table),
            (ScopeId::Tree(tree), Place::Key(key)) => WantedPlace::Key(tree, Arc::from(&**key)),
            (ScopeId::Tree(tree), Place::Range(Some(span))) => {
                WantedPlace::Range(tree, span.from.clone(), span.to.clone())
            }
            (ScopeId::Tree(_), _) => return None,
        };
        Some(Arc::new(Wanted { place, mode: line.at.mode }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MODES, ROW_MODES};
    use super::*;

    #[test]
    fn row_modes_have_their_names() {
        let names =
            |place: WantedPlace| ROW_MODES.map(|mode| Wanted { place: place.clone(), mode }.mode());
        let rows = ["key share", "share", "increment", "no key update", "update"];
        assert_eq!(names(WantedPlace::Key(TreeId(1), Arc::default())), rows);
        assert_eq!(names(WantedPlace::Range(TreeId(1), Vec::new(), None)), rows);
        let of_table = |mode| Wanted { place: WantedPlace::Table(TableId(1)), mode }.mode();
        let names = [
            "access shared",
            "intent shared",
            "intent exclusive",
            "shared",
            "exclusive",
            "access exclusive",
        ];
        assert_eq!(MODES.map(of_table), names);
    }
}
