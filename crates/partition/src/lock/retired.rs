//! Retired locks: a holder of [`Mode::NoKeyExclusive`] that has probably written a row for the last
//! time lets others continue with the uncommitted value.
//!
//! The retired holders of a key are its *chain*, in the order of their changes. A request in
//! [`Mode::Behind`] is granted despite the chain: its transaction is *behind* all of it, and is the
//! only holder that is not retired. Its commit, and every reply that could depend on what the chain
//! has written, waits until the transactions ahead have ended ([`LockTable::settle`]). If one of
//! them is undone, all behind it are undone first.
//!
//! Invariants
//! 1. For all modes except [`Mode::Behind`], a retired holder is a holder.
//! 2. Being behind is acyclic: a request is not granted behind a transaction that is behind the
//!    requester, directly or through others. So changes can always be undone in some order: a
//!    transaction with none behind it first.
//! 3. A chain has at most [`super::holders::CHAIN`] members, and at most [`CASCADE`] transactions
//!    of the partition are behind others; beyond that newcomers wait. So no rollback undoes more
//!    than [`CASCADE`] transactions here.
//! 4. While a transaction and those behind it are being undone, they are *barred*: nobody goes
//!    behind them. Otherwise each undo would let the next waiter in, only to undo it, too.
//! 5. A wait in [`LockTable::settle`] is a line of its own that names the transactions ahead, so it
//!    is an ordinary edge of the waits-for graph. No transaction waits for such a line.
//!
//! [`Heat`] decides whether to retire. A key is warm while transactions wait for it or go behind
//! others on it, and stays warm for [`WARM`] more retirements. It is cold for [`COLD`]
//! opportunities after a transaction behind was undone because the retired transaction returned to
//! the row, or met those behind it elsewhere.
//!
//! Source: Guo et al., Releasing Locks As Early As You Can: Reducing Contention of Hotspots by
//! Violating Two-Phase Locking, SIGMOD 2021 (Bamboo). Interactive transactions, settling before a
//! reply, and heat are our own, see docs/decisions/early-retire.md.

use super::holders::Holders;
use super::key::LockKey;
use super::line::InLine;
use super::scope::Place;
use super::spans::Keys;
use super::table::{LockTable, Request, ScopeId};
use super::{Mode, Target};
use clearway_types::hash::{FNV1A_EMPTY, fnv1a};
use clearway_types::{TreeId, TxnId};
use std::collections::BTreeSet;

/// Maximum number of transactions that are behind others at a partition, over all keys: twice a
/// full chain. A newcomer beyond it waits for a member of its own chain.
const CASCADE: usize = 128;
/// Number of retirements for which a key stays warm after the last wait for it.
const WARM: u32 = 32;
/// Number of opportunities to retire that are skipped after a harmful one.
const COLD: u32 = 1024;
/// Number of keys whose heat is recorded, indexed by hash. A key with a colliding hash replaces the
/// previous one.
const PLACES: usize = 256;

/// Records which keys are contended.
#[derive(Debug, Default)]
pub(super) struct Heat {
    /// The key's hash, how warm it is, and how long it stays cold regardless. Empty before the
    /// first wait.
    places: Vec<(u64, u32, u32)>,
}

impl Heat {
    fn place(&mut self, tree: TreeId, key: &[u8]) -> &mut (u64, u32, u32) {
        // Any hash would do.
        let hash = fnv1a(fnv1a(FNV1A_EMPTY, &tree.0.to_le_bytes()), key);
        self.places.resize(PLACES, (0, 0, 0));
        let place = &mut self.places[hash as usize % PLACES];
        if place.0 != hash {
            *place = (hash, 0, 0);
        }
        place
    }

    /// Records that a transaction waits for the key, or goes behind others on it.
    pub(super) fn warm(&mut self, tree: TreeId, key: &[u8]) {
        self.place(tree, key).1 = WARM;
    }

    /// Records that retiring there was harmful.
    fn cool(&mut self, tree: TreeId, key: &[u8]) {
        self.place(tree, key).2 = COLD;
    }

    /// Returns true if it is worth retiring there now.
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
    /// Returns true if any lock is retired here.
    #[inline]
    pub(crate) fn has_retired(&self) -> bool {
        self.retired > 0
    }

    fn chain(&self, tree: TreeId, key: &[u8]) -> Option<&Holders> {
        self.scopes.get(&ScopeId::Tree(tree))?.holders_of(key).filter(|holders| holders.has_chain())
    }

    /// Returns true if the transaction is retired on the key.
    pub(crate) fn is_retired(&self, txn: TxnId, tree: TreeId, key: &[u8]) -> bool {
        self.retired > 0 && self.chain(tree, key).is_some_and(|holders| holders.is_retired(txn))
    }

    /// Returns a key of the tree on which the transaction is retired.
    pub(crate) fn first_retired(&self, txn: TxnId, tree: TreeId) -> Option<&[u8]> {
        if self.retired == 0 {
            return None;
        }
        let retired = &self.owners.get(&txn)?.retired;
        retired.iter().find(|(of, _)| *of == tree).map(|(_, key)| &**key)
    }

    /// Retires the transaction's lock on the key, if the key is contended or `always` is set.
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

    /// Makes the transaction an ordinary holder of the key again. No transaction may be behind it
    /// any more.
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

    /// Returns the transactions directly behind this one.
    fn behind(&self, txn: TxnId) -> impl Iterator<Item = TxnId> + '_ {
        let keys = self.owners.get(&txn).into_iter().flat_map(|owner| &owner.retired);
        keys.filter_map(|(tree, key)| self.chain(*tree, key))
            .flat_map(move |holders| holders.behind(txn))
    }

    /// Returns the transactions directly ahead of this one.
    fn ahead(&self, txn: TxnId) -> impl Iterator<Item = TxnId> + '_ {
        let keys = self.owners.get(&txn).into_iter().flat_map(|owner| &owner.behind);
        keys.filter_map(|(tree, key)| self.chain(*tree, key))
            .flat_map(move |holders| holders.ahead_of(txn))
    }

    /// Returns all transactions behind this one, directly or through others.
    fn all_behind(&self, txn: TxnId) -> BTreeSet<TxnId> {
        let (mut all, mut next) = (BTreeSet::new(), vec![txn]);
        while let Some(txn) = next.pop() {
            next.extend(self.behind(txn).filter(|behind| all.insert(*behind)));
        }
        all
    }

    /// Returns true if one of `those` is behind the transaction.
    pub(crate) fn is_ahead_of(&self, txn: TxnId, those: &[TxnId]) -> bool {
        self.retired > 0 && {
            let behind = self.all_behind(txn);
            those.iter().any(|other| behind.contains(other))
        }
    }

    /// Returns a transaction that is behind this one and has none behind it (invariant 2).
    pub(crate) fn last_behind(&self, txn: TxnId) -> Option<TxnId> {
        let first = self.behind(txn).next()?;
        std::iter::successors(Some(first), |at| self.behind(*at).next()).last()
    }

    /// Returns true if the transaction is behind another one.
    #[inline]
    pub(crate) fn is_behind_others(&self, txn: TxnId) -> bool {
        self.retired > 0 && self.ahead(txn).next().is_some()
    }

    /// Records that retiring was harmful on the keys where this transaction went behind others.
    pub(crate) fn cool(&mut self, txn: TxnId) {
        let keys = self.owners.get(&txn).map(|owner| owner.behind.clone()).unwrap_or_default();
        keys.iter().for_each(|(tree, key)| self.heat.cool(*tree, key));
    }

    /// Returns the holders of a key with a chain, in the order of their changes, starting after the
    /// reader's own change. Returns `None` if the key has no chain.
    pub(crate) fn after(&self, reader: TxnId, tree: TreeId, key: &[u8]) -> Option<Vec<TxnId>> {
        let all: Vec<TxnId> = self.chain(tree, key)?.in_order().collect();
        let own = all.iter().position(|txn| *txn == reader);
        Some(all[own.map_or(0, |own| own + 1)..].to_vec())
    }

    /// Returns true if the request must not be granted behind a chain, because its transaction's
    /// keys are packed, because too many transactions are behind others (invariant 3), or because a
    /// member of the chain is behind its transaction (invariant 2).
    pub(super) fn must_not_join(&self, txn: TxnId, scope: ScopeId, keys: &Keys<'_>) -> bool {
        let (ScopeId::Tree(tree), Keys::One(key)) = (scope, keys) else { return false };
        let owner = self.owners.get(&txn);
        if self.followers >= CASCADE && owner.is_none_or(|owner| owner.behind.is_empty()) {
            return true;
        }
        let Some(owner) = owner else { return false };
        // A packed key cannot be in a chain.
        if owner.packs(self.many) || owner.retired.is_empty() {
            return owner.packs(self.many);
        }
        let Some(holders) = self.chain(tree, key) else { return false };
        let behind = self.all_behind(txn);
        holders.in_order().any(|other| behind.contains(&other))
    }

    /// Forbids newcomers to go behind this transaction and those behind it: all those will be
    /// undone.
    pub(crate) fn bar(&mut self, txn: TxnId) {
        self.barred = &self.barred | &self.all_behind(txn);
        self.barred.insert(txn);
    }

    /// Allows newcomers to go behind the transaction again: none is behind it any more.
    pub(crate) fn unbar(&mut self, txn: TxnId) {
        self.barred.remove(&txn);
        if let Some(owner) = self.owners.get(&txn) {
            let watched = owner.watched.clone();
            self.serve_all(txn, &watched);
        }
    }

    /// Returns the other members of the key's chain that are barred, in the order of their changes.
    pub(super) fn barred_ahead(&self, r: &Request<'_>) -> impl Iterator<Item = TxnId> {
        let chain = match (r.scope, &r.keys) {
            (ScopeId::Tree(tree), Keys::One(key)) => self.chain(tree, key),
            _ => None,
        };
        let txn = r.txn;
        let members = chain.into_iter().flat_map(Holders::in_order);
        members.filter(move |other| *other != txn && self.barred.contains(other))
    }

    /// Waits for one of the transactions ahead of this one; `None` if there is none.
    pub(crate) fn settle(&mut self, txn: TxnId) -> Option<(InLine, TreeId, LockKey)> {
        while let Some((tree, key)) = self.owners.get(&txn)?.behind.last().cloned() {
            let on: Vec<TxnId> = self
                .chain(tree, &key)
                .map(|h| h.ahead_of(txn).take(super::line::NAMED).collect())
                .unwrap_or_default();
            if on.is_empty() {
                let owner = self.owners.get_mut(&txn)?;
                owner.behind.pop();
                self.followers -= usize::from(owner.behind.is_empty());
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

    /// Returns the transactions that block a request to settle.
    pub(super) fn unsettled(&self, r: &Request<'_>) -> Vec<TxnId> {
        let (ScopeId::Tree(tree), Keys::One(key)) = (r.scope, &r.keys) else {
            return self.large_ones(r);
        };
        self.chain(tree, key)
            .map(|h| h.ahead_of(r.txn).take(super::line::NAMED).collect())
            .unwrap_or_default()
    }

    /// Records that a transaction goes behind others on the key, if some are retired there.
    pub(super) fn note_join(&mut self, target: Target<'_>) {
        if let Target::Key(tree, key) = target
            && self.chain(tree, key).is_some()
        {
            self.heat.warm(tree, key);
        }
    }

    /// Records that a transaction waits for the key.
    pub(super) fn note_wait(&mut self, target: Target<'_>, mode: Mode) {
        if let (Target::Key(tree, key), Mode::Behind) = (target, mode) {
            self.heat.warm(tree, key);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn keys_stay_warm_and_cold_for_a_while() {
        let (mut heat, tree, key) = (Heat::default(), TreeId(1), b"key".as_slice());
        assert!(!heat.is_warm(tree, key), "nobody has waited");
        heat.warm(tree, key);
        assert!((0..WARM).all(|_| heat.is_warm(tree, key)));
        assert!(!heat.is_warm(tree, key), "no further wait");
        heat.warm(tree, key);
        heat.cool(tree, key);
        assert!((0..COLD).all(|_| !heat.is_warm(tree, key)), "retiring was harmful");
        assert!(heat.is_warm(tree, key), "it is tried again");
    }
}
