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

use clearway_types::{Lsn, PartitionId, TreeId, TxnId};

use crate::addends::Addends;
use crate::error::{Blocked, StorageError};
use crate::log_read::{LogRead, Slot};
use crate::spare::Debt;
use crate::wal::Wal;

/// Bytes of an undoing record besides key and value: its header, its role, its page changes.
const UNDO_RECORD: u64 = 96;

/// The kind of change, as an undo record describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UndoKind {
    /// A key was inserted: delete it.
    Insert,
    /// A value was changed: restore its middle.
    Update,
    /// A key was deleted: insert it with its old value.
    Delete,
    /// An amount was added to integers of a value: subtract it.
    Add,
}

/// A logical undo, borrowed from a transaction's memory or from a log record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Undo<'a> {
    pub(crate) kind: UndoKind,
    pub(crate) tree: TreeId,
    pub(crate) key: &'a [u8],
    /// The lengths of the common prefix and suffix of the old and the new value (updates only). For
    /// an addition, `prefix` is the number of value bytes that its undo writes.
    pub(crate) prefix: u32,
    pub(crate) suffix: u32,
    /// The old value without prefix and suffix, or the addends of an addition.
    pub(crate) old: &'a [u8],
}

impl Undo<'_> {
    /// Returns an upper bound for the bytes of log of the record that undoes it. Pages that must be
    /// split for it are not counted.
    pub(crate) fn cost(&self) -> u64 {
        let written =
            if self.kind == UndoKind::Add { self.prefix as usize } else { self.old.len() };
        let bytes = (self.key.len() + written) as u64;
        // A long value is spread over pages, each with its own header in the record.
        (UNDO_RECORD + bytes + bytes / 128).next_multiple_of(8)
    }

    /// Returns the amounts added, if it was an addition.
    pub(crate) fn addends(&self) -> Option<Addends> {
        if self.kind == UndoKind::Add { Addends::decode(self.old) } else { None }
    }

    /// Returns the value before an update, given the value after it. Returns `None` if that is too
    /// short.
    pub(crate) fn old_value(&self, now: &[u8]) -> Option<Vec<u8>> {
        let (prefix, suffix) = (self.prefix as usize, self.suffix as usize);
        let (front, end) = (now.get(..prefix)?, now.len().checked_sub(suffix)?);
        Some([front, self.old, now.get(end.max(prefix)..)?].concat())
    }
}

#[derive(Debug)]
struct Entry {
    kind: UndoKind,
    tree: TreeId,
    prefix: u32,
    suffix: u32,
    /// Key and old value are `bytes[start..key_end]` and `bytes[key_end..]` up to the next entry's
    /// start.
    start: usize,
    key_end: usize,
    /// The start of the log record that has this undo.
    lsn: Lsn,
}

/// Undos in memory, oldest first.
#[derive(Debug, Default)]
pub(crate) struct UndoStack {
    entries: Vec<Entry>,
    bytes: Vec<u8>,
}

impl UndoStack {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
    /// Returns the bytes in use.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len() + self.entries.len() * size_of::<Entry>()
    }
    pub(crate) fn push(&mut self, undo: &Undo<'_>, lsn: Lsn) {
        let start = self.bytes.len();
        self.bytes.reserve(undo.key.len() + undo.old.len());
        self.bytes.extend_from_slice(undo.key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(undo.old);
        let Undo { kind, tree, prefix, suffix, .. } = *undo;
        self.entries.push(Entry { kind, tree, prefix, suffix, start, key_end, lsn });
    }
    fn get(&self, at: usize) -> Option<(Undo<'_>, Lsn)> {
        let e = self.entries.get(at)?;
        let end = self.entries.get(at + 1).map_or(self.bytes.len(), |next| next.start);
        let (key, old) = (&self.bytes[e.start..e.key_end], &self.bytes[e.key_end..end]);
        Some((
            Undo { kind: e.kind, tree: e.tree, prefix: e.prefix, suffix: e.suffix, key, old },
            e.lsn,
        ))
    }
    fn pop(&mut self) {
        if let Some(e) = self.entries.pop() {
            self.bytes.truncate(e.start);
        }
    }
    /// Returns the undos in reverse order.
    pub(crate) fn reversed(&self) -> Self {
        let mut out = Self {
            entries: Vec::with_capacity(self.len()),
            bytes: Vec::with_capacity(self.bytes.len()),
        };
        for (undo, lsn) in (0..self.len()).rev().filter_map(|at| self.get(at)) {
            out.push(&undo, lsn);
        }
        out
    }
    /// Drops the oldest undos until the rest uses at most `keep` bytes. Returns the number dropped,
    /// and the record of the newest one dropped.
    fn drop_oldest(&mut self, keep: usize) -> Option<(usize, Lsn)> {
        let (all, entry) = (self.bytes.len(), size_of::<Entry>());
        let goes =
            |(i, e): &(usize, &Entry)| all - e.start + (self.entries.len() - i) * entry > keep;
        let (last, newest) =
            self.entries.iter().enumerate().take_while(goes).last().map(|(i, e)| (i, e.lsn))?;
        let cut = self.entries.get(last + 1).map_or(all, |e| e.start);
        self.entries.drain(..=last);
        self.bytes.drain(..cut);
        for e in &mut self.entries {
            e.start -= cut;
            e.key_end -= cut;
        }
        // A single long value may have allocated much more memory than is needed from now on.
        self.bytes.shrink_to(2 * keep);
        self.entries.shrink_to(2 * keep / entry);
        Some((last + 1, newest))
    }
}

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
    /// Bytes of log that undoing everything may need.
    pub(crate) undo_cost: u64,
    /// Pages that undoing everything may need.
    pub(crate) debt: Debt,
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
            undo_cost: 0,
            debt: Debt::default(),
            slot: None,
            active: false,
            logged: false,
            redo_only: false,
        }
    }
    /// Returns true if there is nothing to undo.
    pub fn is_empty(&self) -> bool {
        self.mark() == 0
    }
    /// Returns the number of changes to undo, for a later call of [`crate::Trees::rollback`].
    pub fn mark(&self) -> usize {
        self.spilled + self.stack.len()
    }
    /// Returns the approximate memory used by the undo information, in bytes.
    pub fn size(&self) -> usize {
        self.stack.bytes.capacity() + self.stack.entries.capacity() * size_of::<Entry>()
    }
    /// Returns the record to undo first, 0 if there is none.
    pub(crate) fn head(&self) -> Lsn {
        self.stack.entries.last().map_or(self.spilled_head, |e| e.lsn)
    }
    /// Records a change whose record starts at `lsn`. Changes beyond `budget` bytes stay only in
    /// the log.
    pub(crate) fn push(&mut self, undo: &Undo<'_>, lsn: Lsn, budget: usize) {
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
            newest.checked_sub(1).map_or(self.spilled_head, |older| self.stack.entries[older].lsn);
        self.stack.get(newest).map(|(undo, _)| (undo, next))
    }
    /// Returns all undos, newest first. `None` if some are only in the log.
    pub(crate) fn newest_first(&self) -> Option<impl Iterator<Item = Undo<'_>>> {
        let all =
            (0..self.stack.len()).rev().filter_map(|at| self.stack.get(at).map(|(undo, _)| undo));
        (self.spilled == 0).then_some(all)
    }
    pub(crate) fn pop(&mut self) {
        let cost = self.last().map_or(0, |(undo, _)| undo.cost());
        self.undo_cost = self.undo_cost.saturating_sub(cost);
        self.stack.pop();
    }
    /// Loads what was read from the log into memory, or returns what must be read. Call it only if
    /// no undo is in memory. No record of the transaction starts before `from`. About `budget`
    /// bytes are read at a time.
    pub(crate) fn refill(
        &mut self,
        wal: &Arc<Wal>,
        partition: PartitionId,
        from: Lsn,
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
            from,
            changes,
            budget,
            slot,
        }))
    }
}
