//! [`Mode::Increment`]: the effective mode of a request, and how far a row's integers may still
//! move.
//!
//! Invariants
//! 1. No transaction holds both [`Mode::Increment`] and [`Mode::Shared`] on a key, and no packed
//!    key is held in [`Mode::Increment`]. A request that would violate this becomes
//!    [`Mode::NoKeyExclusive`] before it is checked for conflicts.
//! 2. A key's [`Spread`] covers everything added to its row under [`Mode::Increment`] since the key
//!    was last free of that mode. However its holders end, no integer of the row moves further from
//!    its current value. The spread does not decrease while there is a holder. But newcomers wait
//!    behind a transaction that falls back to the exclusive lock, so it soon returns to 0.

use super::holders::Holders;
use super::key::LockKey;
use super::table::{LockTable, ScopeId};
use super::{Mode, Target};
use clearway_types::{TreeId, TxnId};

/// How far integers may move from their current values if additions to them are undone. It is one
/// for all integers of a row: the sum over all of them covers each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spread {
    /// How far they may fall: the sum of what was added.
    pub fall: u64,
    /// How far they may rise: the sum of what was subtracted.
    pub rise: u64,
}

impl Spread {
    /// Returns the spread of one addition.
    #[inline]
    pub(crate) fn of(delta: i64) -> Self {
        let size = delta.unsigned_abs();
        if delta < 0 { Self { fall: 0, rise: size } } else { Self { fall: size, rise: 0 } }
    }

    /// Adds the spread of other additions.
    #[inline]
    pub(crate) fn widen(&mut self, by: Self) {
        self.fall = self.fall.saturating_add(by.fall);
        self.rise = self.rise.saturating_add(by.rise);
    }
}

impl LockTable {
    /// Returns the effective mode of a request, given what the transaction holds.
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
        match (self.held(txn, tree, key), mode) {
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

    /// Returns the mode in which the transaction holds the key, unless it is packed.
    fn held(&self, txn: TxnId, tree: TreeId, key: &[u8]) -> Option<Mode> {
        self.holders(tree, key)?.mode_of(txn)
    }

    /// Returns how far a row's integers may be from their current values after the transactions
    /// that add to it have ended (invariant 2).
    #[inline]
    pub(crate) fn spread(&self, tree: TreeId, key: &[u8]) -> Spread {
        self.holders(tree, key).map_or(Spread::default(), Holders::spread)
    }

    /// Records that a holder of [`Mode::Increment`] has made additions of this spread to the row's
    /// integers.
    pub(crate) fn widen(&mut self, tree: TreeId, key: &[u8], by: Spread) {
        let scope = self.scopes.get_mut(&ScopeId::Tree(tree));
        if let Some(holders) = scope.and_then(|scope| scope.holders_of_mut(key)) {
            holders.widen(by);
        }
    }

    /// Records that the key's holder only adds to its row, and has the exclusive lock because that
    /// was learned.
    pub(crate) fn set_learned(&mut self, tree: TreeId, key: &[u8]) {
        let scope = self.scopes.get_mut(&ScopeId::Tree(tree));
        if let Some(holders) = scope.and_then(|scope| scope.holders_of_mut(key)) {
            holders.set_learned();
        }
    }

    /// Returns true if the transaction holds nothing on the key, unless a lock on a range or the
    /// table covers it.
    pub(crate) fn holds_nothing_on(&self, txn: TxnId, tree: TreeId, key: &[u8]) -> bool {
        self.held(txn, tree, key).is_none()
    }

    /// Releases a key that the transaction holds in [`Mode::Increment`]. It must have added nothing
    /// to the row, and have held nothing on the key before.
    pub(crate) fn release_increment(&mut self, txn: TxnId, tree: TreeId, key: &[u8]) {
        let held = self.held(txn, tree, key);
        let Some(owner) = self.owners.get_mut(&txn).filter(|_| held == Some(Mode::Increment))
        else {
            return;
        };
        let (key, watched) = ((tree, LockKey::from(key)), owner.watched.clone());
        owner.keys.remove(&key);
        self.in_scope(ScopeId::Tree(tree), |scope| scope.release_key(txn, &key.1));
        self.serve_all(txn, &watched);
    }

    /// Returns the keys that the transaction holds in [`Mode::Increment`]. A lock on a range or the
    /// table may cover them in a stronger mode.
    pub(crate) fn increments_of(&self, txn: TxnId) -> Vec<(TreeId, LockKey)> {
        let holds =
            |(tree, key): &&(TreeId, LockKey)| self.held(txn, *tree, key) == Some(Mode::Increment);
        let owner = self.owners.get(&txn);
        owner.into_iter().flat_map(|owner| owner.keys.iter()).filter(holds).cloned().collect()
    }

    /// Like [`LockTable::spread`], but `None` if no transaction holds the key in
    /// [`Mode::Increment`].
    pub(crate) fn open_spread(&self, tree: TreeId, key: &[u8]) -> Option<Spread> {
        self.holders(tree, key).filter(|holders| holders.incrementers() > 0).map(Holders::spread)
    }
}
