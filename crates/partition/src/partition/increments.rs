//! Increment locks before reads without locks.
//!
//! Below REPEATABLE READ, a read takes no lock. Under an exclusive lock on the row that a
//! transaction has changed, its later reads would see everything that earlier holders have
//! committed, and no later holder could have read anything yet. Programs rely on that: they update
//! a counter and then read it, or update one row to have the others to themselves. The increment
//! lock is compatible with itself, so it does not give this.
//!
//! Invariant: when a transaction reads without locks, it holds no increment lock at any partition.
//! Each has been converted to an exclusive one, which waits for the other holders. The coordinator
//! sends [`crate::Body::ConvertIncrements`] to the other partitions first.
//!
//! Two transactions that both convert the lock of one row deadlock. So such a read is evidence for
//! the plan that added ([`crate::reads`]): a plan adds concurrently only once its transactions have
//! been seen not to read afterwards.

use super::Partition;
use crate::exec::{Stop, granted};
use crate::lock::{Mode, Target};
use crate::txn::Txn;
use clearway_storage::Trees;
use clearway_sync::canary::{self, Bug};
use clearway_types::TxnId;

impl<T: Trees> Partition<T> {
    /// Converts the transaction's increment locks here. A stop waits for one of them; call it again
    /// afterwards.
    pub(super) fn convert_increments(
        &mut self,
        id: TxnId,
        txn: &mut Txn<T::Log>,
    ) -> Result<(), Stop> {
        if !txn.adds {
            return Ok(());
        }
        self.gathering.reads_freely(&mut txn.reads);
        if !canary::on(Bug::UnconvertedIncrement) {
            for (tree, key) in self.locks.increments_of(id) {
                let (row, mode) = (Target::Key(tree, &key), Mode::NoKeyExclusive);
                granted(self.locks.acquire(id, row, mode), row, mode)?;
            }
        }
        txn.adds = false;
        Ok(())
    }
}
