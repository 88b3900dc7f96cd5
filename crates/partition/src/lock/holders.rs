//! Who holds one key, and how.
//!
//! Invariant: of those in `txns` either all hold [`Mode::Shared`], or all hold [`Mode::Increment`], or there is one, with `mode`. Beside them anybody may hold [`Mode::KeyShared`] unless
//! `mode` is [`Mode::Exclusive`]. Nobody is in both sets.

use super::Mode;
use super::few::Few;
use clearway_sync::canary::{self, Bug};
use clearway_types::TxnId;
use std::collections::BTreeSet;

#[derive(Debug)]
pub(super) struct Holders {
    /// Of those in `txns`.
    mode: Mode,
    txns: Few<TxnId>,
    /// Those that hold no more than [`Mode::KeyShared`]: few keys have any.
    key_shared: BTreeSet<TxnId>,
    /// What was added to the row's integers, without signs, since `txns` was empty.
    spread: u64,
}

impl Default for Holders {
    fn default() -> Self {
        Self { mode: Mode::Shared, txns: Few::default(), key_shared: BTreeSet::new(), spread: 0 }
    }
}

impl Holders {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.txns.is_empty() && self.key_shared.is_empty()
    }

    /// How the transaction holds the key.
    #[inline]
    pub(super) fn mode_of(&self, txn: TxnId) -> Option<Mode> {
        if self.txns.contains(&txn) {
            return Some(self.mode);
        }
        self.key_shared.contains(&txn).then_some(Mode::KeyShared)
    }

    /// Whether `is` is true of one of those that hold it in a mode that conflicts with this one.
    #[inline]
    pub(super) fn any_against(&self, mode: Mode, mut is: impl FnMut(TxnId) -> bool) -> bool {
        let shared = self.mode == Mode::Increment && canary::on(Bug::SharedIncrement);
        if mode.conflicts() & self.mode.bit() != 0 && !shared && self.txns.iter().any(|txn| is(*txn)) {
            return true;
        }
        mode.conflicts() & Mode::KeyShared.bit() != 0
            && !canary::on(Bug::ForgottenKeyShare)
            && self.key_shared.iter().any(|txn| is(*txn))
    }

    /// How far the row's integers may be from what they are now when those that hold [`Mode::Increment`] have ended, however they end.
    #[inline]
    pub(super) fn spread(&self) -> u64 {
        self.spread
    }

    /// A holder of [`Mode::Increment`] has added this to an integer, without its sign.
    #[inline]
    pub(super) fn widen(&mut self, by: u64) {
        self.spread = self.spread.saturating_add(by);
    }

    /// Those that hold [`Mode::Increment`].
    pub(super) fn incrementers(&self) -> usize {
        if self.mode == Mode::Increment { self.txns.len() } else { 0 }
    }

    /// Notes a lock that conflicts with nobody's; true if the transaction had none before.
    #[inline]
    pub(super) fn insert(&mut self, txn: TxnId, mode: Mode) -> bool {
        if mode == Mode::KeyShared {
            return !self.txns.contains(&txn) && self.key_shared.insert(txn);
        }
        if self.txns.is_empty() || mode.rank() > self.mode.rank() {
            self.mode = mode;
        }
        let had_key = self.key_shared.remove(&txn);
        self.txns.insert(txn) && !had_key
    }

    #[inline]
    pub(super) fn remove(&mut self, txn: TxnId) {
        self.txns.remove(&txn);
        self.key_shared.remove(&txn);
        if self.txns.is_empty() {
            self.spread = 0;
        }
    }
}
