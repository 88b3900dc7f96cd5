//! Plans with learned locks: one entry per plan text, shared by all sessions' plans with that text.
//!
//! Invariants
//! 1. At most [`MOST`] texts are kept. Adding one more clears them all: existing plans keep
//!    what they have learned, unlisted, and new ones start over.
//! 2. A transaction learns only where it may write: in a block that is not READ ONLY.
//!
//! Locking: a latch, held once per plan to find its entry, and to list the entries. Nothing is
//! taken under it. A crash or a restart loses what was learned.
//!
//! Source: see [`clearway_ir::learned`].

use clearway_ir::{LearnedLock, LearnedRow};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of texts kept.
const MOST: usize = 4096;

/// An engine's plans that read, or only add.
#[derive(Debug)]
pub(crate) struct LearnedLocks {
    /// See [`crate::EngineConfig::adds_at_once`].
    adds_at_once: bool,
    by_text: BTreeMap<String, Arc<LearnedLock>>,
    numbers: u32,
}

impl LearnedLocks {
    pub(crate) fn new(adds_at_once: bool) -> Self {
        Self { adds_at_once, by_text: BTreeMap::new(), numbers: 0 }
    }

    pub(crate) fn of(&mut self, text: String, adds: bool) -> Arc<LearnedLock> {
        if let Some(known) = self.by_text.get(&text) {
            return known.clone();
        }
        if self.by_text.len() >= MOST {
            self.by_text.clear();
        }
        self.numbers = self.numbers.wrapping_add(1);
        let new = match adds && !self.adds_at_once {
            true => LearnedLock::exclusive(self.numbers, text.clone()),
            false => LearnedLock::shared(self.numbers, text.clone(), adds),
        };
        let new = Arc::new(new);
        self.by_text.insert(text, new.clone());
        new
    }

    /// Returns what plans have learned, without UPDATEs that have never added concurrently.
    pub(crate) fn rows(&self) -> Vec<LearnedRow> {
        self.by_text
            .values()
            .map(|plan| plan.row())
            .filter(|plan| !plan.adds || plan.reads > 0)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_share_an_entry_and_texts_are_bounded() {
        let mut all = LearnedLocks::new(false);
        let first = all.of("first".into(), false);
        assert!(Arc::ptr_eq(&first, &all.of("first".into(), false)));
        for n in 0..=MOST {
            let other = all.of(n.to_string(), true);
            assert_ne!(other.number, first.number);
            assert!(all.by_text.len() <= MOST);
        }
    }
}
