//! A transaction's part in one partition: what to undo if it does not commit.
//!
//! Invariants
//! 1. `entries` are in the order of their log records, and each knows its record's start: undoing entry `i` leads to entry
//!    `i - 1`, in memory as in the log.
//! 2. What is undone is popped in the same step that logs its compensation: a rollback that was interrupted goes on where
//!    it stopped.
//!
//! Source: ARIES's compensation records and undo-next chains, with logical undo.

use clearway_types::{Lsn, TreeId, TxnId};

/// What an undo record says was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UndoKind {
    /// A key was inserted: delete it.
    Insert,
    /// A value was changed: change its middle back.
    Update,
    /// A key was deleted: insert it with its old value.
    Delete,
}

/// A logical undo, borrowed from a transaction's memory or from a log record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Undo<'a> {
    pub(crate) kind: UndoKind,
    pub(crate) tree: TreeId,
    pub(crate) key: &'a [u8],
    /// The bytes that the old and the new value have in common at their front and at their end (updates only).
    pub(crate) prefix: u32,
    pub(crate) suffix: u32,
    /// The old value without these.
    pub(crate) old: &'a [u8],
}

#[derive(Debug)]
struct UndoEntry {
    kind: UndoKind,
    tree: TreeId,
    prefix: u32,
    suffix: u32,
    /// Where key and old value lie in `bytes`: `[start, key_end)` and `[key_end, next entry's start)`.
    start: usize,
    key_end: usize,
    /// Where the log record starts that has this undo.
    lsn: Lsn,
}

/// One a transaction and partition.
#[derive(Debug)]
pub struct TxnLog {
    /// The transaction.
    pub id: TxnId,
    entries: Vec<UndoEntry>,
    bytes: Vec<u8>,
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
        Self { id, entries: Vec::new(), bytes: Vec::new(), active: false, logged: false, redo_only: false }
    }
    /// Whether there is nothing to undo.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
    /// How many changes there are to undo: to be given to `Store::rollback` later.
    pub fn mark(&self) -> usize {
        self.entries.len()
    }
    /// Bytes of memory that the undo information takes, about.
    pub fn size(&self) -> usize {
        self.bytes.len() + self.entries.len() * size_of::<UndoEntry>()
    }
    /// The record that is to be undone first, 0 if there is none.
    pub(crate) fn head(&self) -> Lsn {
        self.entries.last().map_or(Lsn(0), |e| e.lsn)
    }
    pub(crate) fn push(&mut self, undo: &Undo<'_>, lsn: Lsn) {
        self.logged = true;
        let start = self.bytes.len();
        self.bytes.extend_from_slice(undo.key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(undo.old);
        let Undo { kind, tree, prefix, suffix, .. } = *undo;
        self.entries.push(UndoEntry { kind, tree, prefix, suffix, start, key_end, lsn });
    }
    /// The newest undo, and the record to undo after it.
    pub(crate) fn last(&self) -> Option<(Undo<'_>, Lsn)> {
        let (e, older) = self.entries.split_last()?;
        let undo = Undo {
            kind: e.kind,
            tree: e.tree,
            prefix: e.prefix,
            suffix: e.suffix,
            key: &self.bytes[e.start..e.key_end],
            old: &self.bytes[e.key_end..],
        };
        Some((undo, older.last().map_or(Lsn(0), |e| e.lsn)))
    }
    pub(crate) fn pop(&mut self) {
        if let Some(e) = self.entries.pop() {
            self.bytes.truncate(e.start);
        }
    }
}
