//! Logical undos, and a stack of them in memory.

use clearway_types::{Lsn, TreeId};

use crate::addends::Addends;
use crate::page::{CELL_HEAD, MAX_CELL, REFERENCE, SLOT};

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
    /// Returns the undo of the same key without its old bytes, which may be in a page that changes.
    pub(crate) fn without_old<'k>(&self, key: &'k [u8]) -> Undo<'k> {
        let Undo { kind, tree, prefix, suffix, .. } = *self;
        Undo { kind, tree, prefix, suffix, key, old: &[] }
    }

    /// Returns the bytes of log that the record that undoes it is expected to need. Pages that it
    /// frees are not counted (`spare` does that), nor is a split of a leaf that others have filled.
    pub(crate) fn cost(&self) -> u64 {
        let written =
            if self.kind == UndoKind::Add { self.prefix as usize } else { self.old.len() };
        let bytes = (self.key.len() + written) as u64;
        // Keys that come back in another order split leaves in the middle. Such a split logs half a
        // page, and happens after at most as many bytes of new cells.
        let split = if self.kind == UndoKind::Delete { self.cell() as u64 } else { 0 };
        // A long value is spread over pages, each with its own header in the record.
        (UNDO_RECORD + bytes + bytes / 128 + split).next_multiple_of(8)
    }

    /// Returns the bytes in a leaf of the cell that undoing a deletion inserts.
    fn cell(&self) -> usize {
        let bytes = CELL_HEAD + self.key.len() + self.old.len();
        SLOT + if bytes <= MAX_CELL { bytes } else { CELL_HEAD + self.key.len() + REFERENCE }
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
    /// Drops all undos, but keeps their memory.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.bytes.clear();
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
    pub(crate) fn get(&self, at: usize) -> Option<(Undo<'_>, Lsn)> {
        let e = self.entries.get(at)?;
        let end = self.entries.get(at + 1).map_or(self.bytes.len(), |next| next.start);
        let (key, old) = (&self.bytes[e.start..e.key_end], &self.bytes[e.key_end..end]);
        Some((
            Undo { kind: e.kind, tree: e.tree, prefix: e.prefix, suffix: e.suffix, key, old },
            e.lsn,
        ))
    }
    pub(crate) fn pop(&mut self) {
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
    pub(crate) fn drop_oldest(&mut self, keep: usize) -> Option<(usize, Lsn)> {
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
    /// Returns the approximate memory that it occupies, in bytes.
    pub(crate) fn allocated(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<Entry>()
    }
    /// Returns the start of the record of the newest undo.
    pub(crate) fn newest_lsn(&self) -> Option<Lsn> {
        self.entries.last().map(|entry| entry.lsn)
    }
    /// Returns the start of the record of an undo.
    ///
    /// # Panics
    /// If there are at most `at` undos.
    pub(crate) fn lsn_at(&self, at: usize) -> Lsn {
        self.entries[at].lsn
    }
}
