//! The bytes of this crate's log records; `docs/format.md` specifies them.
//!
//! A record of page changes is one mini-transaction. It has atomic changes of pages of one
//! partition, and at most one logical undo or compensation. Redo applies each change to its page
//! unless the page's LSN shows that the page already has it. Normal operation applies the same
//! changes with the same code; debug builds check that the bytes encode them.

use std::ops::Range;

use clearway_types::{Lsn, PartitionId, TreeId, TxnId};

use crate::page::{Cell, OVERFLOW};
use crate::undo::{Undo, UndoKind};

const PAGES: u8 = 1;
const COMMIT: u8 = 2;
const ABORT_END: u8 = 3;

const PLAIN: u8 = 0;
const WITH_UNDO: u8 = 1;
const COMPENSATION: u8 = 2;

/// A change of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageOp<'a> {
    /// The page becomes an empty node.
    InitNode { level: u8 },
    /// Inserts a cell as slot `slot`.
    Insert { slot: u16, cell: Cell<'a> },
    /// Removes slot `slot`.
    Remove { slot: u16 },
    /// Replaces the middle of a value.
    Patch { slot: u16, prefix: u16, suffix: u16, middle: &'a [u8] },
    /// Replaces a whole value.
    Replace { slot: u16, overflow: bool, value: &'a [u8] },
    /// Keeps only the first `keep` slots.
    Truncate { keep: u16 },
    /// Appends cells after the last slot; `cells` has their bytes back to back.
    Cells { cells: &'a [u8] },
    /// The page becomes a part of a long value.
    Overflow { next: u32, part: &'a [u8] },
    /// Adds the page to the free list.
    Free { next: u32 },
    /// Page 0: free list and size of the file.
    Meta { free_head: u32, page_count: u32 },
}

/// A log record.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Record<'a> {
    /// Page changes; see the module documentation.
    Pages { partition: PartitionId, role: Role<'a>, ops: Ops<'a> },
    /// The transaction is committed in all its partitions.
    Commit(TxnId),
    /// The transaction's changes in this partition are all undone.
    AbortEnd(TxnId, PartitionId),
}

/// The role of page changes in a transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role<'a> {
    /// Never undone.
    Plain,
    /// Undone by `undo` if the transaction does not commit. The record to undo after it starts at
    /// `prev`, 0 if there is none.
    Undoable { txn: TxnId, prev: Lsn, undo: Undo<'a> },
    /// An undo. The next record to undo is at `next`, 0 if there is none.
    Compensation { txn: TxnId, next: Lsn },
}

/// Starts a record of page changes. Returns the place of its undo's old bytes, empty if it has no
/// undo.
pub(crate) fn start_pages(
    out: &mut Vec<u8>,
    partition: PartitionId,
    role: &Role<'_>,
) -> Range<usize> {
    out.clear();
    let kind = match role {
        Role::Plain => PLAIN,
        Role::Undoable { .. } => WITH_UNDO,
        Role::Compensation { .. } => COMPENSATION,
    };
    out.extend_from_slice(&[PAGES, kind]);
    out.extend_from_slice(&partition.0.to_le_bytes());
    let mut old = 0;
    match role {
        Role::Plain => {}
        Role::Undoable { txn, prev, undo } => {
            old = undo.old.len();
            out.extend_from_slice(&txn.0.to_le_bytes());
            out.extend_from_slice(&prev.0.to_le_bytes());
            out.push(undo.kind as u8);
            for word in [
                undo.tree.0,
                undo.prefix,
                undo.suffix,
                undo.key.len() as u32,
                undo.old.len() as u32,
            ] {
                out.extend_from_slice(&word.to_le_bytes());
            }
            out.extend_from_slice(undo.key);
            out.extend_from_slice(undo.old);
        }
        Role::Compensation { txn, next } => {
            out.extend_from_slice(&txn.0.to_le_bytes());
            out.extend_from_slice(&next.0.to_le_bytes());
        }
    }
    out.len() - old..out.len()
}

pub(crate) fn push_op(out: &mut Vec<u8>, page: u32, op: &PageOp<'_>) {
    let mut head = |kind: u8, fields: &[u16]| {
        out.push(kind);
        out.extend_from_slice(&page.to_le_bytes());
        for f in fields {
            out.extend_from_slice(&f.to_le_bytes());
        }
    };
    match *op {
        PageOp::InitNode { level } => head(1, &[u16::from(level)]),
        PageOp::Insert { slot, cell } => {
            head(2, &[slot]);
            cell.write(out);
        }
        PageOp::Remove { slot } => head(3, &[slot]),
        PageOp::Patch { slot, prefix, suffix, middle } => {
            head(4, &[slot, prefix, suffix, middle.len() as u16]);
            out.extend_from_slice(middle);
        }
        PageOp::Replace { slot, overflow, value } => {
            head(5, &[slot, value.len() as u16 | if overflow { OVERFLOW } else { 0 }]);
            out.extend_from_slice(value);
        }
        PageOp::Truncate { keep } => head(6, &[keep]),
        PageOp::Cells { cells } => {
            head(7, &[cells.len() as u16]);
            out.extend_from_slice(cells);
        }
        PageOp::Overflow { next, part } => {
            head(8, &[next as u16, (next >> 16) as u16, part.len() as u16]);
            out.extend_from_slice(part);
        }
        PageOp::Free { next } => head(9, &[next as u16, (next >> 16) as u16]),
        PageOp::Meta { free_head, page_count } => {
            head(
                10,
                &[
                    free_head as u16,
                    (free_head >> 16) as u16,
                    page_count as u16,
                    (page_count >> 16) as u16,
                ],
            );
        }
    }
}

pub(crate) fn commit(txn: TxnId) -> [u8; 9] {
    let mut out = [COMMIT; 9];
    out[1..].copy_from_slice(&txn.0.to_le_bytes());
    out
}

pub(crate) fn abort_end(txn: TxnId, partition: PartitionId) -> [u8; 11] {
    let mut out = [ABORT_END; 11];
    out[1..9].copy_from_slice(&txn.0.to_le_bytes());
    out[9..].copy_from_slice(&partition.0.to_le_bytes());
    out
}

/// Reads fields from the front of a byte slice.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }
    fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[b]| b)
    }
    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
    fn txn(&mut self) -> Option<TxnId> {
        self.u64().map(TxnId)
    }
    fn undo(&mut self) -> Option<Undo<'a>> {
        let kind = match self.u8()? {
            0 => UndoKind::Insert,
            1 => UndoKind::Update,
            2 => UndoKind::Delete,
            3 => UndoKind::Add,
            _ => return None,
        };
        let (tree, prefix, suffix) = (TreeId(self.u32()?), self.u32()?, self.u32()?);
        let (key_len, old_len) = (self.u32()? as usize, self.u32()? as usize);
        let (key, old) = (self.bytes(key_len)?, self.bytes(old_len)?);
        let undo = Undo { kind, tree, prefix, suffix, key, old };
        (kind != UndoKind::Add || undo.addends().is_some()).then_some(undo)
    }
    fn op(&mut self) -> Option<(u32, PageOp<'a>)> {
        let (kind, page) = (self.u8()?, self.u32()?);
        let op = match kind {
            1 => PageOp::InitNode { level: u8::try_from(self.u16()?).ok()? },
            2 => {
                let slot = self.u16()?;
                let (cell, rest) = Cell::read(self.0)?;
                self.0 = rest;
                PageOp::Insert { slot, cell }
            }
            3 => PageOp::Remove { slot: self.u16()? },
            4 => {
                let (slot, prefix, suffix, len) =
                    (self.u16()?, self.u16()?, self.u16()?, self.u16()?);
                PageOp::Patch { slot, prefix, suffix, middle: self.bytes(len.into())? }
            }
            5 => {
                let (slot, len) = (self.u16()?, self.u16()?);
                let value = self.bytes((len & !OVERFLOW).into())?;
                PageOp::Replace { slot, overflow: len & OVERFLOW != 0, value }
            }
            6 => PageOp::Truncate { keep: self.u16()? },
            7 => {
                let len = self.u16()?;
                PageOp::Cells { cells: self.bytes(len.into())? }
            }
            8 => {
                let (next, len) = (self.u32()?, self.u16()?);
                PageOp::Overflow { next, part: self.bytes(len.into())? }
            }
            9 => PageOp::Free { next: self.u32()? },
            10 => PageOp::Meta { free_head: self.u32()?, page_count: self.u32()? },
            _ => return None,
        };
        Some((page, op))
    }
}

/// The page changes of a record in order. If the bytes are damaged, yields `Err` once and then
/// ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ops<'a>(&'a [u8]);

/// The bytes are not a valid record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadRecord;

impl<'a> Ops<'a> {
    /// Returns the remaining changes as bytes.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.0
    }
}

/// Parses the change at the front of the bytes.
pub(crate) fn op(bytes: &[u8]) -> Result<PageOp<'_>, BadRecord> {
    Reader(bytes).op().map(|(_, op)| op).ok_or(BadRecord)
}

impl<'a> Iterator for Ops<'a> {
    type Item = Result<(u32, PageOp<'a>), BadRecord>;
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let mut reader = Reader(self.0);
        let op = reader.op().ok_or(BadRecord);
        self.0 = if op.is_ok() { reader.0 } else { &[] };
        Some(op)
    }
}

/// Returns the changes of a record that this process has encoded.
///
/// # Panics
/// If it is not a record of page changes.
pub(crate) fn changes(payload: &[u8]) -> impl Iterator<Item = (u32, PageOp<'_>)> + Clone {
    let Ok(Record::Pages { ops, .. }) = parse(payload) else {
        panic!("a malformed record of our own")
    };
    ops.map(|op| op.unwrap_or_else(|_| panic!("a malformed page change of our own")))
}

pub(crate) fn parse(payload: &[u8]) -> Result<Record<'_>, BadRecord> {
    parse_inner(&mut Reader(payload)).ok_or(BadRecord)
}

fn parse_inner<'a>(r: &mut Reader<'a>) -> Option<Record<'a>> {
    let record = match r.u8()? {
        PAGES => {
            let kind = r.u8()?;
            let partition = PartitionId(r.u16()?);
            let role = match kind {
                PLAIN => Role::Plain,
                WITH_UNDO => Role::Undoable { txn: r.txn()?, prev: Lsn(r.u64()?), undo: r.undo()? },
                COMPENSATION => Role::Compensation { txn: r.txn()?, next: Lsn(r.u64()?) },
                _ => return None,
            };
            return Some(Record::Pages { partition, role, ops: Ops(r.0) });
        }
        COMMIT => Record::Commit(r.txn()?),
        ABORT_END => Record::AbortEnd(r.txn()?, PartitionId(r.u16()?)),
        _ => return None,
    };
    r.0.is_empty().then_some(record)
}
