//! Retired locks: a holder of [`Mode::NoKeyExclusive`] that has written a row for the last time, as
//! far as anyone knows, lets others go on with the uncommitted value.
//!
//! The retired holders of a key are its *chain*, in the order of their changes. A request of
//! [`Mode::Behind`] is granted beside the chain: its transaction is *behind* all of it, and the
//! only holder that is not retired. Its commit, and every answer that could rest on what they have
//! written, waits until those ahead of it have ended ([`LockTable::settle`]). If one of them is
//! undone, all behind it are undone before.
//!
//! Invariants
//! 1. To all modes but [`Mode::Behind`] a retired holder is a holder.
//! 2. Being behind has no circle: a request is not granted behind a transaction that is behind the
//!    requester, directly or through others. So there is an order in which changes can be undone:
//!    whoever has nobody behind it first.
//! 3. A chain has at most [`super::holders::CHAIN`] members. Beyond that newcomers wait.
//! 4. A wait of [`LockTable::settle`] is a line of its own that names the transactions ahead, so it
//!    is an edge of the waits-for graph like any other. Nobody waits for such a line.
//!
//! Whether to retire is decided by [`Heat`]: a key is warm while transactions wait for it or go
//! behind others on it, and stays warm for [`WARM`] more retirements. It is cold for [`COLD`]
//! chances after somebody behind it had to be undone because the retired transaction came back to
//! the row, or met those behind it elsewhere.
//!
//! Source: Guo et al., Releasing Locks As Early As You Can: Reducing Contention of Hotspots by
//! Violating Two-Phase Locking, SIGMOD 2021 (Bamboo). Interactive transactions, settling before an
//! answer, and heat: ours, docs/decisions/early-retire.md.

use super::holders::Holders;
use super::line::InLine;
use super::scope::Place;
use super::spans::Keys;
use super::table::{LockTable, Request, ScopeId};
use super::{Mode, Target};
use clearway_types::{TreeId, TxnId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Retirements for which a key stays warm after the last wait for it.
const WARM: u32 = 32;
/// Chances to retire that are passed over after one that did harm.
const COLD: u32 = 1024;
/// Keys of which the heat is known, by their hashes. Others that fall on the same place displace
/// them.
const PLACES: usize = 256;

/// Which keys are contended.
#[derive(Debug, Default)]
pub(super) struct Heat {
    /// The key's hash, how warm it is, and how long it stays cold whatever happens. Empty before
    /// the first wait.
    places: Vec<(u64, u32, u32)>,
}

impl Heat {
    fn place(&mut self, tree: TreeId, key: &[u8]) -> &mut (u64, u32, u32) {
        // FNV-1a: any spread will do.
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = tree.0.to_le_bytes().iter().chain(key).fold(0xcbf2_9ce4_8422_2325, step);
        self.places.resize(PLACES, (0, 0, 0));
        let place = &mut self.places[hash as usize % PLACES];
        if place.0 != hash {
            *place = (hash, 0, 0);
        }
        place
    }

    /// Somebody waits for the key, or goes behind others on it.
    pub(super) fn warm(&mut self, tree: TreeId, key: &[u8]) {
        self.place(tree, key).1 = WARM;
    }

    /// To retire there did harm.
    fn cool(&mut self, tree: TreeId, key: &[u8]) {
        self.place(tree, key).2 = COLD;
    }

    /// Whether to retire there now.
    fn is_warm(&mut self, tree: TreeId, key: &[u8]) -> bool {
        if self.places.is_empty() {
            return false;
        }
        let place = self.place(tree, key);
        if place.2 > 0 {
            place.2 -= 1;
            return false;
        }
        let warm = place.1 > 0;
        place.1 = place.1.saturating_sub(1);
        warm
    }
}

impl LockTable {
    /// Whether anybody is retired here.
    #[inline]
    pub(crate) fn has_retired(&self) -> bool {
        self.retired > 0
    }

    fn chain(&self, tree: TreeId, key: &[u8]) -> Option<&Holders> {
        self.scopes.get(&ScopeId::Tree(tree))?.holders_of(key).filter(|holders| holders.has_chain())
    }

    /// Whether the transaction is retired on the key.
    pub(crate) fn is_retired(&self, txn: TxnId, tree: TreeId, key: &[u8]) -> bool {
        self.retired > 0 && self.chain(tree, key).is_some_and(|holders| holders.is_retired(txn))
    }

    /// Retires the transaction's lock of the key, if that is contended or `always`.
    pub(crate) fn retire(&mut self, txn: TxnId, tree: TreeId, key: &[u8], always: bool) {
        if !always && !self.heat.is_warm(tree, key) {
            return;
        }
        let holders =
            self.scopes.get_mut(&ScopeId::Tree(tree)).and_then(|scope| scope.holders_of_mut(key));
        let Some(owner) = self.owners.get_mut(&txn) else { return };
        if !holders.is_some_and(|holders| holders.retire(txn)) {
            return;
        }
        owner.retired.push((tree, key.into()));
        self.retired += 1;
        let watched = owner.watched.clone();
        self.serve_all(txn, &watched);
    }

    /// The transaction, which has nobody behind it any more, holds the key as if it had never
    /// retired there.
    pub(crate) fn reclaim(&mut self, txn: TxnId, tree: TreeId, key: &[u8]) {
        let Some(owner) = self.owners.get_mut(&txn) else { return };
        let before = owner.retired.len();
        owner.retired.retain(|(t, k)| (*t, &**k) != (tree, key));
        self.retired -= before - owner.retired.len();
        if let Some(holders) =
            self.scopes.get_mut(&ScopeId::Tree(tree)).and_then(|s| s.holders_of_mut(key))
        {
            holders.unretire(txn);
        }
        self.heat.cool(tree, key);
    }

    /// Those directly behind the transaction.
    fn behind(&self, txn: TxnId) -> impl Iterator<Item = TxnId> + '_ {
        let keys = self.owners.get(&txn).into_iter().flat_map(|owner| &owner.retired);
        keys.filter_map(|(tree, key)| self.chain(*tree, key))
            .flat_map(move |holders| holders.behind(txn))
    }

    /// Those directly ahead of the transaction.
    fn ahead(&self, txn: TxnId) -> impl Iterator<Item = TxnId> + '_ {
        let keys = self.owners.get(&txn).into_iter().flat_map(|owner| &owner.behind);
        keys.filter_map(|(tree, key)| self.chain(*tree, key))
            .flat_map(move |holders| holders.ahead_of(txn))
    }

    /// All that are behind the transaction, directly or through others.
    fn all_behind(&self, txn: TxnId) -> BTreeSet<TxnId> {
        let (mut all, mut next) = (BTreeSet::new(), vec![txn]);
        while let Some(txn) = next.pop() {
            next.extend(self.behind(txn).filter(|behind| all.insert(*behind)));
        }
        all
    }

    /// Whether one of these is behind the transaction.
    pub(crate) fn is_ahead_of(&self, txn: TxnId, those: &[TxnId]) -> bool {
        self.retired > 0 && {
            let behind = self.all_behind(txn);
            those.iter().any(|other| behind.contains(other))
        }
    }

    /// One that is behind the transaction, and has nobody behind it (invariant 2).
    pub(crate) fn last_behind(&self, txn: TxnId) -> Option<TxnId> {
        let first = self.behind(txn).next()?;
        std::iter::successors(Some(first), |at| self.behind(*at).next()).last()
    }

    /// Whether somebody is ahead of the transaction.
    #[inline]
    pub(crate) fn rests(&self, txn: TxnId) -> bool {
        self.retired > 0 && self.ahead(txn).next().is_some()
    }

    /// To retire where this transaction went behind others did harm.
    pub(crate) fn cool(&mut self, txn: TxnId) {
        let keys = self.owners.get(&txn).map(|owner| owner.behind.clone()).unwrap_or_default();
        keys.iter().for_each(|(tree, key)| self.heat.cool(*tree, key));
    }

    /// Those that hold a key with a chain, in the order of their changes, as far as they come after
    /// the reader's own.
    pub(crate) fn after(&self, reader: TxnId, tree: TreeId, key: &[u8]) -> Option<Vec<TxnId>> {
        let all: Vec<TxnId> = self.chain(tree, key)?.in_order().collect();
        let own = all.iter().position(|txn| *txn == reader);
        Some(all[own.map_or(0, |own| own + 1)..].to_vec())
    }

    /// Invariant 2: whether the request must not be granted behind a chain: one of that is behind
    /// its own transaction.
    pub(super) fn must_not_join(&self, txn: TxnId, scope: ScopeId, keys: &Keys<'_>) -> bool {
        let (ScopeId::Tree(tree), Keys::One(key)) = (scope, keys) else { return false };
        let Some(owner) = self.owners.get(&txn) else { return false };
        // A packed key has no place in the chain.
        if owner.packs(self.many) || owner.retired.is_empty() {
            return owner.packs(self.many);
        }
        let Some(holders) = self.chain(tree, key) else { return false };
        let behind = self.all_behind(txn);
        holders.in_order().any(|other| behind.contains(&other))
    }

    /// Waits for one of those ahead of the transaction; `None`: there is nobody.
    pub(crate) fn settle(&mut self, txn: TxnId) -> Option<(InLine, TreeId, Arc<[u8]>)> {
        while let Some((tree, key)) = self.owners.get(&txn)?.behind.last().cloned() {
            let on: Vec<TxnId> = self
                .chain(tree, &key)
                .map(|h| h.ahead_of(txn).take(super::line::NAMED).collect())
                .unwrap_or_default();
            if on.is_empty() {
                self.owners.get_mut(&txn)?.behind.pop();
                continue;
            }
            let line = self.open(
                txn,
                ScopeId::Tree(tree),
                Place::Key(key.clone()),
                Mode::Settled,
                true,
                on,
            );
            return Some((line, tree, key));
        }
        None
    }

    /// What is in the way of a request to settle.
    pub(super) fn unsettled(&self, r: &Request<'_>) -> Vec<TxnId> {
        let (ScopeId::Tree(tree), Keys::One(key)) = (r.scope, &r.keys) else { return Vec::new() };
        self.chain(tree, key)
            .map(|h| h.ahead_of(r.txn).take(super::line::NAMED).collect())
            .unwrap_or_default()
    }

    /// Somebody goes behind others on the key, if they have retired.
    pub(super) fn is_joined(&mut self, target: Target<'_>) {
        if let Target::Key(tree, key) = target
            && self.chain(tree, key).is_some()
        {
            self.heat.warm(tree, key);
        }
    }

    /// Somebody waits for the key.
    pub(super) fn is_wanted(&mut self, target: Target<'_>, mode: Mode) {
        if let (Target::Key(tree, key), Mode::Behind) = (target, mode) {
            self.heat.warm(tree, key);
        }
    }
}
