//! Reads a transaction's changes back from the log for a rollback, on a thread that may block on
//! the disk.
//!
//! Invariants
//! 1. A piece is complete: it is put into its slot only after all of it was read and checked.
//! 2. A transaction's records are in the log's files while it is active (`store`, invariant 3). A
//!    record counts only once the log is durable beyond it, so the reader waits for records that
//!    are still in the ring.
//!
//! Locking: the slot's latch, held briefly. A crash leaves nothing of this state: recovery reads
//! the same records.

use std::fmt;
use std::sync::Arc;

use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_types::{Lsn, PartitionId, TxnId};

use crate::error::StorageError;
use crate::record::{self, Record, Role};
use crate::undo::UndoStack;
use crate::wal::{Wal, WalError};

/// Undos, oldest first, and the record to undo after them.
pub(crate) type Piece = Result<(UndoStack, Lsn), StorageError>;

static LOG_READ: Class = Class::new("storage.log_read");

/// Receives what was read for a transaction.
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

/// A part of the log that a rollback needs. Have [`LogRead::run`] called, then try again.
pub struct LogRead {
    pub(crate) wal: Arc<Wal>,
    pub(crate) txn: TxnId,
    pub(crate) partition: PartitionId,
    /// The newest record to read. `changes` counts the transaction's records from there back.
    pub(crate) head: Lsn,
    pub(crate) changes: usize,
    /// None of them starts before this LSN.
    pub(crate) from: Lsn,
    /// The read stops once it has this much undo information, in bytes.
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
    /// Reads the records. Blocks on the disk, so it runs on an I/O thread. Leaves an error for the
    /// rollback, which then fails with it.
    pub fn run(self) {
        self.slot.put(self.read());
    }

    fn read(&self) -> Piece {
        // A durable LSN is the end of a record. If it is above a record's start, the whole record
        // is durable.
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
