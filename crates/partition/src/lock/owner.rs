//! The lock table's state for one transaction.

use super::Mode;
use super::few::Few;
use super::holders::Holders;
use super::key::LockKey;
use super::line::Waiting;
use super::scope::{Place, Scope};
use super::table::ScopeId;
use clearway_types::{TableId, TreeId, TxnId};
use smallvec::SmallVec;
use std::collections::BTreeSet;

#[derive(Debug, Default)]
pub(super) struct Owner {
    pub tables: SmallVec<[TableId; 4]>,
    pub keys: Few<(TreeId, LockKey)>,
    /// Trees in which it has ranges or packed keys; a tree may occur twice.
    pub sets: Vec<TreeId>,
    pub waits: Option<Waiting>,
    /// The lines that watch it.
    pub watched: BTreeSet<u64>,
    /// Keys whose lock it got behind retired holders ([`super::retired`]).
    pub behind: Vec<(TreeId, LockKey)>,
    /// Keys on which it is retired.
    pub retired: Vec<(TreeId, LockKey)>,
}

impl Owner {
    /// Records a lock, here and in its scope. After `many` keys, further keys are packed.
    pub(super) fn take(
        &mut self,
        scope: &mut Scope,
        txn: TxnId,
        id: ScopeId,
        place: &Place,
        mode: Mode,
        many: usize,
    ) {
        if mode == Mode::Settled {
            return;
        }
        if let (Mode::Behind, ScopeId::Tree(tree), Place::Key(key)) = (mode, id, place)
            && scope.holders_of(key).is_some_and(Holders::has_chain)
        {
            self.behind.push((tree, key.clone()));
        }
        let new = match place {
            Place::Key(key) if self.packs(many) => {
                if let (true, ScopeId::Tree(tree)) = (scope.grant_packed(txn, key, mode), id) {
                    self.sets.push(tree);
                }
                return;
            }
            _ => scope.grant(txn, place, mode),
        };
        if new {
            self.note(id, place);
        }
    }

    fn note(&mut self, id: ScopeId, place: &Place) {
        match (id, place) {
            (ScopeId::Table(t), _) => self.tables.push(t),
            (ScopeId::Tree(t), Place::Key(key)) => drop(self.keys.insert((t, key.clone()))),
            (ScopeId::Tree(t), _) => self.sets.push(t),
        }
    }

    /// Returns true if further keys are packed.
    #[inline]
    pub(super) fn packs(&self, many: usize) -> bool {
        self.keys.len() >= many
    }

    /// Returns true if it holds anything in that scope.
    pub(super) fn holds_in(&self, scope: ScopeId) -> bool {
        match scope {
            ScopeId::Table(table) => self.tables.contains(&table),
            ScopeId::Tree(tree) => {
                let first = (tree, LockKey::from(&[][..]));
                self.sets.contains(&tree)
                    || self.keys.stretch(&first, &|(t, _)| *t == tree).next().is_some()
            }
        }
    }

    pub(super) fn holds_nothing(&self) -> bool {
        self.tables.is_empty() && self.keys.is_empty() && self.sets.is_empty()
    }
}
