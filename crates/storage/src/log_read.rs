//! Reading back, for a rollback, what a transaction has changed: from the log, on a thread that may
//! wait for the disk.
//!
//! Invariants
//! 1. A piece is whole: it is put into its slot after all of it was read and checked.
//! 2. A transaction's records are in the log's files as long as it is active (`store`, invariant
//!    3), and a record counts only when the log is durable beyond it: what is still in the ring is
//!    waited for.
//!
//! Locking: the slot's latch, for moments. A crash leaves nothing of it: recovery reads the same
//! records.

use std::fmt;
use std::sync::Arc;

use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_types::{Lsn, PartitionId, TxnId};

use crate::error::StorageError;
use crate::record::{self, Record, Role};
use crate::txn::UndoStack;
use crate::wal::{Wal, WalError};

/// Undos, oldest first, and the record that is to be undone after them.
pub(crate) type Piece = Result<(UndoStack, Lsn), StorageError>;

static LOG_READ: Class = Class::new("storage.log_read");

/// Where a transaction finds what was read for it.
#[derive(Debug)]
pub(crate) struct Slot(Latch<Option<Piece>>);

impl Default for Slot {
    fn default() -> Self {
        Self(Latch::new(&LOG_READ, None))
    }
}

impl Slot {
    pub(crate) fn take(&self) -> Option<Piece> {
        self.0.lock().take()
    }
    fn put(&self, piece: Piece) {
        *self.0.lock() = Some(piece);
    }
}

/// A piece of the log that a rollback needs: have [`LogRead::run`] called, then try again.
pub struct LogRead {
    pub(crate) wal: Arc<Wal>,
    pub(crate) txn: TxnId,
    pub(crate) partition: PartitionId,
    /// The newest record wanted, and how many the transaction has from there back.
    pub(crate) head: Lsn,
    pub(crate) changes: usize,
    /// None of them starts before this.
    pub(crate) from: Lsn,
    /// Bytes of undo that are enough.
    pub(crate) budget: usize,
    pub(crate) slot: Arc<Slot>,
}

impl fmt::Debug for LogRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogRead")
            .field("txn", &self.txn)
            .field("head", &self.head)
            .finish_non_exhaustive()
    }
}

impl LogRead {
    /// Reads. Blocks for the disk: for I/O threads. An error is left for the rollback, which ends
    /// with it.
    pub fn run(self) {
        self.slot.put(self.read());
    }

    fn read(&self) -> Piece {
        // A durable place is the end of a record: beyond a record's start it is beyond the record.
        self.wal.wait_durable(Lsn(self.head.0 + 8)).map_err(WalError::Io)?;
        let mut reader = self.wal.read_back(self.from);
        let (mut newest_first, mut at) = (UndoStack::default(), self.head);
        while newest_first.len() < self.changes
            && (newest_first.is_empty() || newest_first.size() < self.budget)
        {
            let entry = reader.record(at)?;
            match record::parse(entry.payload) {
                Ok(Record::Pages {
                    partition, role: Role::Undoable { txn, prev, undo }, ..
                }) if txn == self.txn && partition == self.partition && prev < at => {
                    newest_first.push(&undo, at);
                    at = prev;
                }
                _ => {
                    return Err(StorageError::BadRecord {
                        lsn: at,
                        what: "a change to undo was expected",
                    });
                }
            }
        }
        Ok((newest_first.reversed(), at))
    }
}
