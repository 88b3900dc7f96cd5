//! A transaction's undo information in one partition.
//!
//! The log has all of it: each record refers to the transaction's previous one. Memory keeps the
//! newest changes, within a budget. Of older changes it keeps only their number and the newest
//! one's record. A rollback that reaches them has a part of them read back into memory (see
//! `log_read`).
//!
//! Invariants
//! 1. The changes in memory are in the order of their log records, and each knows its record's
//!    start. Undoing change `i` leads to change `i - 1`, in memory as in the log. Changes that are
//!    only in the log are all older.
//! 2. An undone change is popped in the same step that logs its compensation. An interrupted
//!    rollback continues where it stopped.
//! 3. After a change was recorded, memory holds at most the budget (plus, during a rollback, what
//!    was read back).
//!
//! Source: ARIES's compensation records and undo-next chains, with logical undo.

use std::sync::Arc;

use clearway_types::{Lsn, PartitionId, TxnId};

use crate::attempt::Blocked;
use crate::error::StorageError;
use crate::log_read::{LogRead, Slot};
use crate::spare::UndoPages;
use crate::undo::{Undo, UndoStack};
use crate::wal::Wal;

/// The undo information of one transaction in one partition.
#[derive(Debug)]
pub struct TxnLog {
    /// The transaction.
    pub id: TxnId,
    stack: UndoStack,
    /// Number of older changes that are only in the log, and the start of the newest one's record
    /// (0 if there are none).
    spilled: usize,
    spilled_head: Lsn,
    /// The start of its first undoable record, 0 before there is one.
    first: Lsn,
    /// Bytes of log that undoing everything may need, except for [`UndoPages::log`].
    undo_cost: u64,
    /// Pages that undoing everything may need.
    pub(crate) undo_pages: UndoPages,
    /// Receives the part of the log that was requested.
    slot: Option<Arc<Slot>>,
    /// True if the store counts it among the transactions for which the log must be kept.
    pub(crate) active: bool,
    /// True if an undoable record of it is in the log.
    pub(crate) logged: bool,
    /// True if it has changed its own new trees, which needs no undo.
    pub(crate) redo_only: bool,
}

impl TxnLog {
    /// Creates the log of a transaction that has not done anything.
    pub fn new(id: TxnId) -> Self {
        Self {
            id,
            stack: UndoStack::default(),
            spilled: 0,
            spilled_head: Lsn(0),
            first: Lsn(0),
            undo_cost: 0,
            undo_pages: UndoPages::default(),
            slot: None,
            active: false,
            logged: false,
            redo_only: false,
        }
    }
    /// Gives the transaction, which has no undo yet, memory for it.
    pub(crate) fn use_memory(&mut self, spare: &mut UndoStack) {
        debug_assert!(self.stack.is_empty() && spare.is_empty());
        std::mem::swap(&mut self.stack, spare);
    }
    /// Returns the memory of its undo. The transaction has ended.
    pub(crate) fn into_memory(mut self) -> UndoStack {
        self.stack.clear();
        self.stack
    }
    /// Returns true if there is nothing to undo.
    pub fn is_empty(&self) -> bool {
        self.mark() == 0
    }
    /// Returns the number of changes to undo, for a later call of [`crate::Trees::rollback`].
    pub fn mark(&self) -> usize {
        self.spilled + self.stack.len()
    }
    /// Returns true if none of the changes to undo are only in the log.
    pub fn is_in_memory(&self) -> bool {
        self.spilled == 0
    }
    /// Returns the approximate memory used by the undo information, in bytes.
    pub fn size(&self) -> usize {
        self.stack.allocated()
    }
    /// Returns the bytes of log that undoing everything may need.
    pub(crate) fn undo_log(&self) -> u64 {
        self.undo_cost + self.undo_pages.log()
    }
    /// Returns the record to undo first, 0 if there is none.
    pub(crate) fn head(&self) -> Lsn {
        self.stack.newest_lsn().unwrap_or(self.spilled_head)
    }
    /// Records a change whose record starts at `lsn`. Changes beyond `budget` bytes stay only in
    /// the log.
    pub(crate) fn push(&mut self, undo: &Undo<'_>, lsn: Lsn, budget: usize) {
        if !self.logged {
            self.first = lsn;
        }
        self.logged = true;
        self.undo_cost += undo.cost();
        self.stack.push(undo, lsn);
        if self.stack.size() > budget
            && let Some((count, newest)) = self.stack.drop_oldest(budget / 2)
        {
            self.spilled += count;
            self.spilled_head = newest;
        }
    }
    /// Returns the newest undo, and the record to undo after it. `None` if there is none, or it
    /// must be read back.
    pub(crate) fn last(&self) -> Option<(Undo<'_>, Lsn)> {
        let newest = self.stack.len().checked_sub(1)?;
        let next =
            newest.checked_sub(1).map_or(self.spilled_head, |older| self.stack.lsn_at(older));
        self.stack.get(newest).map(|(undo, _)| (undo, next))
    }
    /// Returns all undos, newest first. `None` if some are only in the log.
    pub(crate) fn newest_first(&self) -> Option<impl Iterator<Item = Undo<'_>>> {
        let all =
            (0..self.stack.len()).rev().filter_map(|at| self.stack.get(at).map(|(undo, _)| undo));
        self.is_in_memory().then_some(all)
    }
    pub(crate) fn pop(&mut self) {
        let cost = self.last().map_or(0, |(undo, _)| undo.cost());
        self.undo_cost = self.undo_cost.saturating_sub(cost);
        self.stack.pop();
    }
    /// Loads what was read from the log into memory, or returns what must be read. Call it only if
    /// no undo is in memory. About `budget` bytes are read at a time.
    pub(crate) fn refill(
        &mut self,
        wal: &Arc<Wal>,
        partition: PartitionId,
        budget: usize,
    ) -> Result<(), Blocked> {
        debug_assert!(self.stack.is_empty());
        // Keep the slot until it is filled. If the caller retries early, a second read fills the
        // same slot; a new slot would waste the first read.
        let slot = self.slot.get_or_insert_default().clone();
        if let Some(piece) = slot.take() {
            self.slot = None;
            let (stack, next) = piece?;
            let left = self
                .spilled
                .checked_sub(stack.len())
                .filter(|left| (*left == 0) == (next == Lsn(0)));
            let what = "a transaction's records are not as many as its changes";
            self.spilled = left.ok_or(StorageError::BadRecord { lsn: self.spilled_head, what })?;
            self.spilled_head = next;
            self.stack = stack;
            return Ok(());
        }
        let (wal, head, changes) = (wal.clone(), self.spilled_head, self.spilled);
        Err(Blocked::Log(LogRead {
            wal,
            txn: self.id,
            partition,
            head,
            // Not what the store has published: log before the first record may be gone.
            from: self.first,
            changes,
            budget,
            slot,
        }))
    }
}
