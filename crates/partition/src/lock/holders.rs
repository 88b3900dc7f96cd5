//! The transactions that hold one key, and their modes.
//!
//! Invariant: either all of `txns` hold [`Mode::Shared`], or all hold [`Mode::Increment`], or at
//! most one of them is not in `chain`; that one holds `mode`. In addition, any transactions may
//! hold [`Mode::KeyShared`] unless `mode` is [`Mode::Exclusive`]. No transaction is in both sets.
//! If `chain` is not empty, `mode` is [`Mode::NoKeyExclusive`], and `txns` contains the chain.

use super::Mode;
use super::few::Few;
use super::increment::Spread;
use clearway_sync::canary::{self, Bug};
use clearway_types::TxnId;
use std::collections::BTreeSet;

#[derive(Debug)]
pub(super) struct Holders {
    /// The mode of `txns`.
    mode: Mode,
    /// Whether the holder only adds to the row, and locked it exclusively because that was learned.
    /// For the views only; no decision depends on it.
    learned: bool,
    txns: Few<TxnId>,
    /// That of all additions to the row since `txns` was last empty.
    spread: Spread,
    rare: Option<Box<Rare>>,
}

/// The state that few keys have. It is boxed because a scope's map moves its keys when others come
/// and go: in line it would be moved with each.
#[derive(Debug, Default)]
struct Rare {
    /// Transactions that hold only [`Mode::KeyShared`].
    key_shared: BTreeSet<TxnId>,
    /// The retired members of `txns`, in the order of their changes ([`super::retired`]).
    chain: Vec<TxnId>,
}

impl Default for Holders {
    fn default() -> Self {
        Self {
            mode: Mode::Shared,
            learned: false,
            txns: Few::default(),
            spread: Spread::default(),
            rare: None,
        }
    }
}

impl Holders {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.txns.is_empty() && self.key_shared().next().is_none()
    }

    #[inline]
    fn key_shared(&self) -> impl Iterator<Item = TxnId> {
        self.rare.iter().flat_map(|rare| rare.key_shared.iter().copied())
    }

    #[inline]
    fn chain(&self) -> &[TxnId] {
        self.rare.as_ref().map_or(&[], |rare| &rare.chain)
    }

    /// Returns the mode in which the transaction holds the key.
    #[inline]
    pub(super) fn mode_of(&self, txn: TxnId) -> Option<Mode> {
        if self.txns.contains(&txn) {
            return Some(self.mode);
        }
        let rare = self.rare.as_ref()?;
        rare.key_shared.contains(&txn).then_some(Mode::KeyShared)
    }

    /// Returns true if `is` holds for any transaction that holds the key in a mode that conflicts
    /// with `mode`.
    #[inline]
    pub(super) fn any_against(&self, mode: Mode, mut is: impl FnMut(TxnId) -> bool) -> bool {
        if mode == Mode::Behind && self.has_chain() {
            return self.against_newcomer().any(is);
        }
        let shared = self.mode == Mode::Increment && canary::on(Bug::SharedIncrement);
        if mode.conflicts() & self.mode.bit() != 0
            && !shared
            && self.txns.iter().any(|txn| is(*txn))
        {
            return true;
        }
        mode.conflicts() & Mode::KeyShared.bit() != 0
            && !canary::on(Bug::ForgottenKeyShare)
            && self.key_shared().any(is)
    }

    /// Returns the maximum change of the row's integers by the time all holders of
    /// [`Mode::Increment`] have ended, however they end.
    #[inline]
    pub(super) fn spread(&self) -> Spread {
        self.spread
    }

    /// Records that a holder of [`Mode::Increment`] has made additions of this spread.
    #[inline]
    pub(super) fn widen(&mut self, by: Spread) {
        self.spread.widen(by);
    }

    /// Returns the number of holders in any mode.
    pub(super) fn len(&self) -> usize {
        self.txns.len() + self.rare.as_ref().map_or(0, |rare| rare.key_shared.len())
    }

    /// Returns the strongest mode in which the key is held.
    pub(super) fn mode(&self) -> Option<Mode> {
        if self.txns.is_empty() {
            return self.key_shared().next().map(|_| Mode::KeyShared);
        }
        Some(self.mode)
    }

    /// Records that the holder only adds to the row, and has learned not to share it.
    pub(super) fn set_learned(&mut self) {
        self.learned = true;
    }

    /// Same as [`super::HotRow::learned`].
    pub(super) fn is_learned(&self) -> bool {
        self.learned
    }

    /// Returns the number of holders of [`Mode::Increment`].
    pub(super) fn incrementers(&self) -> usize {
        if self.mode == Mode::Increment { self.txns.len() } else { 0 }
    }

    /// Adds a lock that conflicts with no other holder; returns true if the transaction held none
    /// before.
    #[inline]
    pub(super) fn insert(&mut self, txn: TxnId, mode: Mode) -> bool {
        if mode == Mode::KeyShared {
            let held = self.txns.contains(&txn);
            return !held && self.rare.get_or_insert_default().key_shared.insert(txn);
        }
        if self.txns.is_empty() || mode.rank() > self.mode.rank() {
            self.mode = if mode == Mode::Behind { Mode::NoKeyExclusive } else { mode };
        }
        let had_key = self.rare.as_mut().is_some_and(|rare| rare.key_shared.remove(&txn));
        self.txns.insert(txn) && !had_key
    }

    #[inline]
    pub(super) fn remove(&mut self, txn: TxnId) {
        self.txns.remove(&txn);
        if let Some(rare) = &mut self.rare {
            rare.key_shared.remove(&txn);
            self.unretire(txn);
        }
        if self.txns.is_empty() {
            (self.spread, self.learned) = (Spread::default(), false);
        }
    }
}

/// Maximum number of retired transactions on one key.
pub(super) const CHAIN: usize = 64;

/// Retired holders.
impl Holders {
    /// Retires a holder; returns false if it cannot be retired.
    pub(super) fn retire(&mut self, txn: TxnId) -> bool {
        let may = self.mode == Mode::NoKeyExclusive
            && self.txns.contains(&txn)
            && self.chain().len() < CHAIN;
        if !may || self.is_retired(txn) {
            return false;
        }
        self.rare.get_or_insert_default().chain.push(txn);
        true
    }

    pub(super) fn unretire(&mut self, txn: TxnId) {
        if let Some(rare) = &mut self.rare {
            rare.chain.retain(|retired| *retired != txn);
        }
    }

    pub(super) fn is_retired(&self, txn: TxnId) -> bool {
        self.chain().contains(&txn)
    }

    #[inline]
    pub(super) fn has_chain(&self) -> bool {
        !self.chain().is_empty()
    }

    /// Returns the transactions that prevent a newcomer from going behind the chain: the holder
    /// that is not retired, and the whole chain if it is full.
    fn against_newcomer(&self) -> impl Iterator<Item = TxnId> {
        let full = self.chain().len() >= CHAIN;
        let chain = if full { self.chain() } else { &[] };
        chain.iter().copied().chain(self.last())
    }

    /// Returns the holder that is not retired.
    fn last(&self) -> Option<TxnId> {
        self.txns.iter().find(|txn| !self.chain().contains(txn)).copied()
    }

    /// Returns all exclusive holders of the row, in the order of their changes.
    pub(super) fn in_order(&self) -> impl Iterator<Item = TxnId> {
        self.chain().iter().copied().chain(self.last())
    }

    /// Returns the holders that this one is behind.
    pub(super) fn ahead_of(&self, txn: TxnId) -> impl Iterator<Item = TxnId> {
        self.chain().iter().copied().take_while(move |retired| *retired != txn)
    }

    /// Returns the holders behind a retired one.
    pub(super) fn behind(&self, txn: TxnId) -> impl Iterator<Item = TxnId> {
        let retired = self.is_retired(txn);
        self.in_order().skip_while(move |other| *other != txn).skip(1).filter(move |_| retired)
    }
}
