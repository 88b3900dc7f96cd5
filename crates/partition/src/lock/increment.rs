//! [`Mode::Increment`]: which mode a request comes to, and how far the integers of a row may still move.
//!
//! Invariants
//! 1. Nobody holds [`Mode::Increment`] and [`Mode::Shared`] on a key, or either of them packed
//!    beside [`Mode::Increment`]: the request for the second comes to [`Mode::NoKeyExclusive`],
//!    before anybody looks whether it conflicts.
//! 2. A key's *spread* is the sum of what was added to its row under [`Mode::Increment`], without
//!    signs, since nobody held it in that mode. However its holders end, no integer of the row
//!    moves further than that from where it is. It never falls while there is a holder: newcomers
//!    wait behind who falls back to the exclusive lock, so it comes back to 0 soon.

use super::holders::Holders;
use super::table::{LockTable, ScopeId};
use super::{Mode, Target};
use clearway_types::{TreeId, TxnId};

impl LockTable {
    /// The mode that a request comes to, with what the transaction holds.
    #[inline]
    pub(super) fn joined(&self, txn: TxnId, target: Target<'_>, mode: Mode) -> Mode {
        match (target, mode) {
            (Target::Key(tree, key), Mode::Shared | Mode::Increment) => {
                self.joined_at(txn, tree, key, mode)
            }
            _ => mode,
        }
    }

    fn joined_at(&self, txn: TxnId, tree: TreeId, key: &[u8], mode: Mode) -> Mode {
        let Some(owner) = self.owners.get(&txn) else { return mode };
        match (self.holders(tree, key).and_then(|holders| holders.mode_of(txn)), mode) {
            (Some(Mode::Shared), Mode::Increment) | (Some(Mode::Increment), Mode::Shared) => {
                Mode::NoKeyExclusive
            }
            (None | Some(Mode::KeyShared), Mode::Increment) if owner.packs(self.many) => {
                Mode::NoKeyExclusive
            }
            _ => mode,
        }
    }

    fn holders(&self, tree: TreeId, key: &[u8]) -> Option<&Holders> {
        self.scopes.get(&ScopeId::Tree(tree))?.holders_of(key)
    }

    /// How far the integers of a row may be from where they are when those that add to it have
    /// ended (invariant 2).
    #[inline]
    pub(crate) fn spread(&self, tree: TreeId, key: &[u8]) -> u64 {
        self.holders(tree, key).map_or(0, Holders::spread)
    }

    /// A holder of [`Mode::Increment`] has added this to integers of the row, without signs.
    pub(crate) fn widen(&mut self, tree: TreeId, key: &[u8], by: u64) {
        let scope = self.scopes.get_mut(&ScopeId::Tree(tree));
        if let Some(holders) = scope.and_then(|scope| scope.holders_of_mut(key)) {
            holders.widen(by);
        }
    }

    /// The key's holder only adds to its row, and has the exclusive lock because that was learned.
    pub(crate) fn set_learned(&mut self, tree: TreeId, key: &[u8]) {
        let scope = self.scopes.get_mut(&ScopeId::Tree(tree));
        if let Some(holders) = scope.and_then(|scope| scope.holders_of_mut(key)) {
            holders.set_learned();
        }
    }

    /// As [`LockTable::spread`]; `None`: no transaction holds the key in [`Mode::Increment`].
    pub(crate) fn open_spread(&self, tree: TreeId, key: &[u8]) -> Option<u64> {
        self.holders(tree, key).filter(|holders| holders.incrementers() > 0).map(Holders::spread)
    }
}
