//! What a transaction waits for, as people are told: noted when it begins to wait, and read by who looks.

use super::Mode;
use super::scope::Place;
use super::table::{LockTable, ScopeId};
use clearway_types::{TableId, TreeId};
use std::sync::Arc;

/// What a transaction waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The table or keys.
    pub place: WantedPlace,
    mode: Mode,
}

/// Where a lock is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedPlace {
    /// A table as a whole.
    Table(TableId),
    /// A key of a tree.
    Key(TreeId, Arc<[u8]>),
    /// The keys of a tree from one up to, and without, another. `None`: all from there on.
    Range(TreeId, Vec<u8>, Option<Vec<u8>>),
}

impl Wanted {
    /// The lock's mode in words, as `intent exclusive`.
    pub fn mode(&self) -> String {
        let mut words = String::new();
        for c in format!("{:?}", self.mode).chars() {
            if c.is_uppercase() && !words.is_empty() {
                words.push(' ');
            }
            words.push(c.to_ascii_lowercase());
        }
        words
    }
}

impl LockTable {
    /// What those in a line wait for. A key is shared with the table, a range copied.
    pub(crate) fn wanted(&self, line: u64) -> Option<Arc<Wanted>> {
        let line = self.lines.get(&line)?;
        let place = match (line.scope, &line.place) {
            (ScopeId::Table(table), _) => WantedPlace::Table(table),
            (ScopeId::Tree(tree), Place::Key(key)) => WantedPlace::Key(tree, key.clone()),
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
    use super::*;

    #[test]
    fn modes_are_shown_in_words() {
        let mode = |mode| Wanted { place: WantedPlace::Table(TableId(1)), mode }.mode();
        assert_eq!((mode(Mode::Shared), mode(Mode::IntentExclusive)), ("shared".into(), "intent exclusive".into()));
    }
}
