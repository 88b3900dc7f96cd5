//! Snapshots at a partition: keeps the versions that they need, and waits for the outcome of
//! commits.

use super::Partition;
use crate::exec::{Stop, reads_freely, table_of};
use crate::lock::{Mode, Target, Wait, class};
use crate::message::Reply;
use crate::txn::Txn;
use crate::versions::{AsOf, Change, Sum};
use clearway_ir::{Path, Program};
use clearway_storage::{Blocked, Prior, Trees, UndoLog};
use clearway_sync::canary::{self, Bug};
use clearway_types::{Lsn, TableId, TxnId};
use std::panic::Location;

/// Number of page misses by the images of active transactions after which the snapshot is refused.
const MISSES: u32 = 16;

impl<T: Trees> Partition<T> {
    /// Starts keeping versions, on behalf of this transaction. The images of all changes by active
    /// transactions, including its own, are created in one step, or none are.
    pub(super) fn keep_versions(
        &mut self,
        own: (TxnId, &Txn<T::Log>),
        generation: u64,
        misses: &mut u32,
    ) -> Result<Reply, Stop> {
        let refused = Ok(Reply::default());
        let kept = Ok(Reply { count: 1, ..Reply::default() });
        if self.trees.versions.generation() == generation {
            return kept;
        }
        // The undo of a retired change refers to the value at that time, which may have changed
        // since; so does that of a detached one.
        if self.locks.has_retired() || self.blocking.chain.has_detached() {
            return refused;
        }
        let (mut images, mut made, mut moved) = (Vec::new(), Vec::new(), Vec::new());
        // Sort: a hash map's order is arbitrary, and determines which pages are missed.
        let others = self.txns.iter().map(|(id, txn)| (*id, &**txn));
        let mut txns: Vec<_> = others.chain([own]).collect();
        txns.sort_unstable_by_key(|(id, _)| *id);
        for (id, txn) in txns {
            moved.extend(txn.moved.iter().map(|(tree, key)| (id, *tree, &**key)));
            made.extend(txn.created.iter().map(|tree| (*tree, id)));
            let mut each = |tree, key: &[u8], prior: Prior<'_>| {
                let change = match prior {
                    Prior::Value(before) => Change::Replaced(before.map(Into::into)),
                    Prior::Added(addends) => Change::Added(Sum::of(addends)),
                };
                images.push((id, tree, key.into(), change));
            };
            match self.trees.images(&txn.log, &mut each) {
                Ok(true) => {}
                Ok(false) => return refused,
                Err(Blocked::MissingPage(_)) if *misses >= MISSES => return refused,
                Err(Blocked::Failed(error)) => {
                    tracing::debug!(partition = %self.id, txn = %id, %error, "no images");
                    return refused;
                }
                Err(blocked) => {
                    *misses += 1;
                    return Err(blocked.into());
                }
            }
        }
        if canary::on(Bug::LateImage) {
            images.clear();
        }
        self.trees.versions.keep(generation, images, made);
        moved
            .into_iter()
            .for_each(|(writer, tree, key)| self.trees.versions.moves(writer, tree, key));
        kept
    }

    /// Waits for the end of large transactions that use a table. A reader of the whole table would
    /// otherwise wait for them with a lock request before which no other writer passes. Those that
    /// cannot be rolled back are not waited for.
    pub(super) fn await_large(
        &mut self,
        (own, txn): (TxnId, &Txn<T::Log>),
        table: TableId,
        waited: &mut bool,
    ) -> Result<Reply, Stop> {
        let large = self.txns.iter().filter(|(_, txn)| !txn.log.is_in_memory());
        let mut large: Vec<TxnId> = large.map(|(txn, _)| *txn).collect();
        // Sort: a hash map's order is arbitrary, and determines which one is waited for first.
        large.sort_unstable();
        let (on, others): (Vec<TxnId>, _) = large.into_iter().partition(|txn| {
            self.locks.uses(*txn, table) && self.stranded.error_of(*txn).is_none()
        });
        if on.is_empty() {
            let count = u64::from(*waited && others.is_empty());
            return Ok(Reply { count, ..Reply::default() });
        }
        let line = self.locks.await_ends(own, table, on, !txn.log.is_in_memory());
        let class = class(Target::Table(table), Mode::Settled);
        class.request();
        *waited = true;
        Err(Stop::Wait(Wait { line, class, caller: Location::caller() }))
    }

    /// Checks that a statement can see its table as of a snapshot. Returns true if the program's
    /// index or global index lacks rows; see [`crate::exec::Cx::by_table`]. A read takes no lock:
    /// it continues with the trees that it was planned with even if the table changes meanwhile.
    pub(super) fn check_table(
        &mut self,
        id: TxnId,
        program: &Program,
        as_of: AsOf,
    ) -> Result<bool, Stop> {
        let table = table_of(program);
        // Whether the snapshot sees the change is unknown until its outcome arrives.
        if let Some(changer) = self.tables.changer(table.id).filter(|changer| *changer != id)
            && self.trees.versions.is_undecided(changer)
        {
            return Err(Stop::Commit(changer));
        }
        // The trees of a stale plan reveal nothing about the table. A statement that changes or
        // locks rows does so in the newest trees.
        self.check_plan(program, reads_freely(program).then_some(as_of.at))?;
        let versions = &self.trees.versions;
        versions.check(as_of)?;
        match program {
            Program::Scan { access, .. }
            | Program::Update { access, .. }
            | Program::Delete { access, .. } => match &access.path {
                Path::Range { index: Some(index), .. } => {
                    let index = table.indexes.get(*index);
                    index.map_or(Ok(false), |index| {
                        versions.is_complete(index.tree, as_of).map(|all| !all)
                    })
                }
                _ => Ok(false),
            },
            // The global index of a new table has entries for all rows that the reader sees in the
            // table: its own.
            Program::GlobalIndex { key, .. } => match table.global_index(*key) {
                Some(global_index) if versions.is_complete(table.tree, as_of)? => {
                    versions.is_complete(global_index.tree, as_of).map(|all| !all)
                }
                _ => Ok(false),
            },
            _ => Ok(false),
        }
    }

    /// Records that the transaction has committed, with a record that ends at `commit`.
    pub(super) fn committed(&mut self, id: TxnId, commit: Lsn) {
        self.trees.versions.committed(id, commit);
        self.ready.extend(self.undecided.remove(&id).into_iter().flatten());
    }
}
