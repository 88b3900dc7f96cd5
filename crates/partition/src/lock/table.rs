//! Who holds and waits for what, over all scopes.

use super::scope::{Place, Scope, Spot};
use super::{Mode, Target, class};
use clearway_types::{TableId, TreeId, TxnId};
use hashbrown::HashMap;
use std::collections::VecDeque;
use std::sync::Arc;

/// What a request led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// It is held.
    Granted,
    /// It waits for these, and for nobody else.
    Waits(Vec<TxnId>),
}

/// Locks conflict within a scope only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ScopeId {
    Table(TableId),
    Tree(TreeId),
}

impl ScopeId {
    fn of(target: Target<'_>) -> Self {
        match target {
            Target::Table(t) => Self::Table(t),
            Target::Key(t, _) | Target::Range(t, ..) => Self::Tree(t),
        }
    }
}

#[derive(Debug, Default)]
struct Owner {
    tables: Vec<TableId>,
    keys: Vec<(TreeId, Arc<[u8]>)>,
    /// Trees with range locks of it.
    ranges: Vec<TreeId>,
    waits: Option<ScopeId>,
}

impl Owner {
    fn note(&mut self, id: ScopeId, place: &Place) {
        match (id, place) {
            (ScopeId::Table(t), _) => self.tables.push(t),
            (ScopeId::Tree(t), Place::Key(key)) => self.keys.push((t, key.clone())),
            (ScopeId::Tree(t), _) => self.ranges.push(t),
        }
    }
}

/// The lock table.
#[derive(Debug)]
pub(crate) struct LockTable {
    /// Locks of one transaction, as in [`crate::Limits::escalate_at`].
    escalate_at: usize,
    scopes: HashMap<ScopeId, Scope>,
    owners: HashMap<TxnId, Owner>,
}

impl LockTable {
    /// An empty one, in which a transaction takes a table instead of the next key or range when it has so many.
    pub(crate) fn new(escalate_at: usize) -> Self {
        Self { escalate_at, scopes: HashMap::new(), owners: HashMap::new() }
    }

    /// Whether nothing is held or waited for.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Whether a request could be granted at once; nothing is noted.
    pub(crate) fn free(&self, txn: TxnId, target: Target<'_>, mode: Mode) -> bool {
        self.scopes.get(&ScopeId::of(target)).is_none_or(|s| s.free(txn, Spot::of(target), mode))
    }

    /// Whether the transaction holds as much already.
    pub(crate) fn covered(&self, txn: TxnId, target: Target<'_>, mode: Mode) -> bool {
        self.scopes.get(&ScopeId::of(target)).is_some_and(|s| s.covered(txn, Spot::of(target), mode))
    }

    /// Takes a lock, or its place in line for it. What the transaction has already is no request.
    pub(crate) fn acquire(&mut self, txn: TxnId, target: Target<'_>, mode: Mode) -> Acquired {
        let (id, spot) = (ScopeId::of(target), Spot::of(target));
        let scope = self.scopes.entry(id).or_default();
        if scope.covered(txn, spot, mode) {
            return Acquired::Granted;
        }
        class(target, mode).request();
        let owner = self.owners.entry(txn).or_default();
        assert!(owner.waits.is_none(), "invariant 4: {txn} waits already");
        if scope.free(txn, spot, mode) {
            let place = Place::of(target);
            if scope.grant(txn, place.clone(), mode) {
                owner.note(id, &place);
            }
            return Acquired::Granted;
        }
        let on = scope.wait(txn, Place::of(target), mode);
        owner.waits = Some(id);
        Acquired::Waits(on)
    }

    /// Takes the lock of a key or a range unless the table's lock covers it; the table's intent is held. Who has many takes the table's instead, if
    /// nobody is in the way.
    pub(crate) fn acquire_in(&mut self, txn: TxnId, table: TableId, target: Target<'_>, mode: Mode) -> Acquired {
        let whole = Target::Table(table);
        if self.covered(txn, whole, mode) {
            return Acquired::Granted;
        }
        if self.held(txn, target) >= self.escalate_at && self.free(txn, whole, mode) {
            return self.acquire(txn, whole, mode);
        }
        self.acquire(txn, target, mode)
    }

    /// How many locks the transaction has that are like this one: of keys, or of ranges of this tree.
    fn held(&self, txn: TxnId, target: Target<'_>) -> usize {
        match target {
            Target::Range(..) => self.scopes.get(&ScopeId::of(target)).map_or(0, |s| s.ranges_of(txn)),
            _ => self.owners.get(&txn).map_or(0, |o| o.keys.len()),
        }
    }

    /// Whether the transaction waits here.
    pub(crate) fn waits(&self, txn: TxnId) -> bool {
        self.owners.get(&txn).is_some_and(|o| o.waits.is_some())
    }

    /// Who waits for a lock of the transaction, directly or through others.
    pub(crate) fn waiters_of(&self, txn: TxnId) -> Vec<TxnId> {
        let mut waiters: Vec<TxnId> = self.scopes.values().flat_map(|scope| scope.waiters_of(txn)).collect();
        // The order of a hash map is nobody's.
        waiters.sort_unstable();
        waiters
    }

    /// Ends a wait; those that its end lets through are appended to `granted`.
    pub(crate) fn stop_waiting(&mut self, txn: TxnId, granted: &mut VecDeque<TxnId>) {
        let Some(id) = self.owners.get_mut(&txn).and_then(|o| o.waits.take()) else { return };
        if let Some(scope) = self.scopes.get_mut(&id) {
            scope.stop_waiting(txn);
        }
        self.serve(id, granted);
        if self.owners.get(&txn).is_some_and(|o| o.tables.is_empty() && o.keys.is_empty() && o.ranges.is_empty()) {
            self.owners.remove(&txn);
        }
    }

    /// Lets go of everything, a wait included; those that this lets through are appended to `granted`.
    pub(crate) fn release(&mut self, txn: TxnId, granted: &mut VecDeque<TxnId>) {
        self.stop_waiting(txn, granted);
        let Some(owner) = self.owners.remove(&txn) else { return };
        let mut touched = Vec::new();
        let mut touch = |id| {
            if !touched.contains(&id) {
                touched.push(id);
            }
        };
        for (tree, key) in owner.keys {
            let id = ScopeId::Tree(tree);
            if let Some(scope) = self.scopes.get_mut(&id) {
                scope.release_key(txn, &key);
            }
            touch(id);
        }
        for tree in owner.ranges {
            let id = ScopeId::Tree(tree);
            if let Some(scope) = self.scopes.get_mut(&id) {
                scope.release_ranges(txn);
            }
            touch(id);
        }
        for table in owner.tables {
            let id = ScopeId::Table(table);
            if let Some(scope) = self.scopes.get_mut(&id) {
                scope.release_whole(txn);
            }
            touch(id);
        }
        for id in touched {
            self.serve(id, granted);
        }
    }

    fn serve(&mut self, id: ScopeId, granted: &mut VecDeque<TxnId>) {
        let Some(scope) = self.scopes.get_mut(&id) else { return };
        let owners = &mut self.owners;
        scope.grant_waiters(|txn, place, new| {
            let owner = owners.entry(txn).or_default();
            owner.waits = None;
            if new {
                owner.note(id, place);
            }
            granted.push_back(txn);
        });
        if scope.is_empty() {
            self.scopes.remove(&id);
        }
    }
}
