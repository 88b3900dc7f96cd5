//! A transaction's part in one partition: what to undo if it does not commit.
//!
//! The log has all of it, each record leading to the transaction's one before it. Memory keeps the
//! newest, within a budget; of the older changes only their number and the newest one's record. A
//! rollback that comes to them has a piece of them read back (see `log_read`), which then is in
//! memory as if it had never left.
//!
//! Invariants
//! 1. The changes in memory are in the order of their log records, and each knows its record's
//!    start: undoing change `i` leads to change `i - 1`, in memory as in the log. Those in the log
//!    only are all older.
//! 2. What is undone is popped in the same step that logs its compensation: a rollback that was
//!    interrupted goes on where it stopped.
//! 3. After a change was noted, memory holds at most the budget (and, while a rollback is under
//!    way, what was read back).
//!
//! Source: ARIES's compensation records and undo-next chains, with logical undo.

use std::sync::Arc;

use clearway_types::{Lsn, PartitionId, TreeId, TxnId};

use crate::addends::Addends;
use crate::error::{Blocked, StorageError};
use crate::log_read::{LogRead, Slot};
use crate::spare::Debt;
use crate::wal::Wal;

/// Bytes of an undoing record beside key and value: its header, its role, its page changes.
const UNDO_RECORD: u64 = 96;

/// What an undo record says was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UndoKind {
    /// A key was inserted: delete it.
    Insert,
    /// A value was changed: change its middle back.
    Update,
    /// A key was deleted: insert it with its old value.
    Delete,
    /// Something was added to integers of a value: subtract it.
    Add,
}

/// A logical undo, borrowed from a transaction's memory or from a log record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Undo<'a> {
    pub(crate) kind: UndoKind,
    pub(crate) tree: TreeId,
    pub(crate) key: &'a [u8],
    /// The bytes that the old and the new value have in common at their front and at their end
    /// (updates only). Of an addition `prefix` is how many bytes of the value its undo writes.
    pub(crate) prefix: u32,
    pub(crate) suffix: u32,
    /// The old value without these; the addends of an addition.
    pub(crate) old: &'a [u8],
}

impl Undo<'_> {
    /// At most so many bytes of log are taken by the record that undoes it; not counted are pages
    /// that have to be split for it.
    pub(crate) fn cost(&self) -> u64 {
        let written =
            if self.kind == UndoKind::Add { self.prefix as usize } else { self.old.len() };
        let bytes = (self.key.len() + written) as u64;
        // A long value is spread over pages, each with a header of its own in the record.
        (UNDO_RECORD + bytes + bytes / 128).next_multiple_of(8)
    }

    /// What was added, if it was an addition.
    pub(crate) fn addends(&self) -> Option<Addends> {
        if self.kind == UndoKind::Add { Addends::decode(self.old) } else { None }
    }

    /// The value before an update, of the value after it; `None` if that is too short.
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
    /// Where key and old value lie in `bytes`: `[start, key_end)` and
    /// `[key_end, next entry's start)`.
    start: usize,
    key_end: usize,
    /// Where the log record starts that has this undo.
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
    /// Bytes in use.
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
    /// The same undos the other way round.
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
    /// Lets go of the oldest until what stays takes no more than `keep` bytes: how many went, and
    /// the newest one's record.
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
        // A single long value may have made much more room than is needed from now on.
        self.bytes.shrink_to(2 * keep);
        self.entries.shrink_to(2 * keep / entry);
        Some((last + 1, newest))
    }
}

/// One a transaction and partition.
#[derive(Debug)]
pub struct TxnLog {
    /// The transaction.
    pub id: TxnId,
    stack: UndoStack,
    /// How many older changes are in the log only, and where the newest one's record starts (0:
    /// there are none).
    spilled: usize,
    spilled_head: Lsn,
    /// Bytes of log that undoing all of it may take.
    pub(crate) undo_cost: u64,
    /// Pages that undoing all of it may take.
    pub(crate) debt: Debt,
    /// Where the piece of log that was asked for will be.
    slot: Option<Arc<Slot>>,
    /// Whether the store counts it among the transactions that the log must be kept for.
    pub(crate) active: bool,
    /// Whether there is an undoable record of it in the log.
    pub(crate) logged: bool,
    /// Whether it has changed trees of its own, which needs no undo.
    pub(crate) redo_only: bool,
}

impl TxnLog {
    /// A transaction that has done nothing yet.
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
    /// Whether there is nothing to undo.
    pub fn is_empty(&self) -> bool {
        self.mark() == 0
    }
    /// How many changes there are to undo: to be given to `Store::rollback` later.
    pub fn mark(&self) -> usize {
        self.spilled + self.stack.len()
    }
    /// Bytes of memory that the undo information takes, about.
    pub fn size(&self) -> usize {
        self.stack.bytes.capacity() + self.stack.entries.capacity() * size_of::<Entry>()
    }
    /// The record that is to be undone first, 0 if there is none.
    pub(crate) fn head(&self) -> Lsn {
        self.stack.entries.last().map_or(self.spilled_head, |e| e.lsn)
    }
    /// Notes a change whose record starts at `lsn`. What exceeds `budget` bytes stays in the log
    /// only.
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
    /// The newest undo, and the record to undo after it. `None`: there is none, or it must be read
    /// back.
    pub(crate) fn last(&self) -> Option<(Undo<'_>, Lsn)> {
        let newest = self.stack.len().checked_sub(1)?;
        let next =
            newest.checked_sub(1).map_or(self.spilled_head, |older| self.stack.entries[older].lsn);
        self.stack.get(newest).map(|(undo, _)| (undo, next))
    }
    /// All undos, the newest first; `None` if some are in the log only.
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
    /// Takes back into memory what was read of the log, or says what is to be read. Only if nothing
    /// is in memory. No record of the transaction starts before `from`; about `budget` bytes are
    /// wanted at a time.
    pub(crate) fn refill(
        &mut self,
        wal: &Arc<Wal>,
        partition: PartitionId,
        from: Lsn,
        budget: usize,
    ) -> Result<(), Blocked> {
        debug_assert!(self.stack.is_empty());
        // One slot until it is filled: who tries again early has a second read fill it, too,
        // instead of making the first one useless.
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
