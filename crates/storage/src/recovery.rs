//! Recovers a directory, after any crash, to exactly the committed transactions.
//!
//! 1. Analysis reads the log from `scan_from` to its end. It finds the transactions that did not
//!    end, and where the undo of each starts.
//! 2. Redo (module `redo`) repeats history: each page gets the changes that it lacks according to
//!    its LSN.
//! 3. Undo reverses the losers' changes, newest record of all losers first. Each undo is one record
//!    with its compensation.
//!
//! Invariants
//! 1. Recovery needs nothing from the memory of the crashed process, or of an earlier recovery. It
//!    may be killed anywhere and repeated. Redo skips changes that a page already has; a
//!    compensation in the log leads past the change that it undid.
//! 2. A page changed by redo is marked dirty at the log's end, as if it were changed there. A
//!    record follows before the first checkpoint, which therefore writes the page.
//!
//! Source: ARIES (Mohan et al., 1992), with logical undo.

use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use clearway_buffer::{FrameWaits, Pool};
use clearway_sync::canary::{self, Bug};
use clearway_types::{Lsn, PartitionId, TxnId};

use crate::attempt::retry_blocking;
use crate::error::StorageError;
use crate::record::{self, PageOp, Record, Role};
use crate::store::Store;
use crate::trees::Trees;
use crate::wal::{BackReader, WalEntry, WalError, WalReader};

mod renumber;

use renumber::Deletion;

/// How long the opening of a directory waits for a free frame. Only the opening itself and its
/// write-back hold frames meanwhile. So a frame will become free, however slow the disk is. The
/// bound of 10 minutes guards against an error in that argument: the open then fails instead of
/// hanging.
pub const OPENING_FRAME_WAITS: FrameWaits = FrameWaits {
    starved_rounds: 600_000,
    promise_rounds: 20,
    retry: Duration::from_millis(1),
    idle_retry: Duration::from_millis(20),
};

/// A transaction without an end.
#[derive(Debug, Default)]
pub(crate) struct Loser {
    /// For each of its partitions, the record to undo first, 0 if none.
    heads: Vec<(PartitionId, Lsn)>,
    /// The highest cost of an undo of one of its changes, in bytes.
    largest_undo: u64,
    /// The most pages of long values that one of its changes has written and freed.
    long_pages: u64,
}

/// What the log says about transactions.
#[derive(Debug, Default)]
pub(crate) struct Analysis {
    /// The end of the log.
    pub(crate) end: Lsn,
    /// Transactions without an end.
    pub(crate) losers: HashMap<TxnId, Loser>,
    /// The highest transaction id seen.
    pub(crate) highest_txn: u64,
}

impl Analysis {
    fn head(&mut self, txn: TxnId, partition: PartitionId, head: Lsn, undo: u64) {
        self.highest_txn = self.highest_txn.max(txn.0);
        let loser = self.losers.entry(txn).or_default();
        loser.largest_undo = loser.largest_undo.max(undo);
        match loser.heads.iter_mut().find(|(p, _)| *p == partition) {
            Some((_, place)) => *place = head,
            None => loser.heads.push((partition, head)),
        }
    }

    /// Returns an upper bound for the cost of each undo that recovery makes, in bytes.
    pub(crate) fn largest_undo(&self) -> u64 {
        self.losers.values().map(|loser| loser.largest_undo).max().unwrap_or(0)
    }

    /// Returns the most pages of long values that one undo changes: those that the change to undo
    /// has written or freed.
    pub(crate) fn long_pages(&self) -> u64 {
        self.losers.values().map(|loser| loser.long_pages).max().unwrap_or(0)
    }

    fn see(&mut self, entry: &WalEntry<'_>, partitions: u16) -> Result<(), StorageError> {
        match record::parse(entry.payload)
            .map_err(|_| StorageError::bad_record(entry.start, "it is malformed"))?
        {
            Record::Pages { partition, .. } if partition.0 >= partitions => {
                return Err(StorageError::bad_record(entry.start, "there is no such partition"));
            }
            Record::Pages { role: Role::Plain, .. } => {}
            Record::Pages { partition, role: Role::Undoable { txn, undo, .. }, ops } => {
                let long =
                    |op: &PageOp<'_>| matches!(op, PageOp::Overflow { .. } | PageOp::Free { .. });
                let pages = ops.filter(|op| op.as_ref().is_ok_and(|(_, op)| long(op))).count();
                self.head(txn, partition, entry.start, undo.cost());
                if let Some(loser) = self.losers.get_mut(&txn) {
                    loser.long_pages = loser.long_pages.max(pages as u64);
                }
            }
            Record::Pages { partition, role: Role::Compensation { txn, next }, .. } => {
                self.head(txn, partition, next, 0)
            }
            Record::Commit(txn) => {
                self.highest_txn = self.highest_txn.max(txn.0);
                self.losers.remove(&txn);
            }
            Record::AbortEnd(txn, partition) => {
                self.highest_txn = self.highest_txn.max(txn.0);
                if let Some(loser) = self.losers.get_mut(&txn) {
                    loser.heads.retain(|(p, _)| *p != partition);
                    if loser.heads.is_empty() {
                        self.losers.remove(&txn);
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads the log to its end.
    pub(crate) fn run(reader: &mut WalReader, partitions: u16) -> Result<Self, StorageError> {
        let mut analysis = Self::default();
        while let Some(entry) = reader.next()? {
            analysis.see(&entry, partitions)?;
        }
        analysis.end = reader.position();
        Ok(analysis)
    }
}

/// The context of the undo pass.
pub(crate) struct Undoing<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) back: BackReader,
    /// Reads the log forward, from the first record that undo may need.
    pub(crate) forward: &'a dyn Fn() -> Result<WalReader, WalError>,
    /// The end of the log when recovery began.
    pub(crate) end: Lsn,
    /// A transaction id that is higher than every id in the log.
    pub(crate) next_txn: TxnId,
}

/// Undoes the losers' changes, newest first. Returns the number of losers, each counted once per
/// partition.
///
/// The order matters if a later loser took something that an earlier one had released, such as the
/// number of a deleted row.
pub(crate) fn undo(
    undoing: &mut Undoing<'_>,
    stores: &mut [Store],
    losers: HashMap<TxnId, Loser>,
) -> Result<u64, StorageError> {
    let mut undone = 0;
    let all = losers
        .into_iter()
        .flat_map(|(txn, loser)| loser.heads.into_iter().map(move |(p, head)| (head, txn, p)));
    let mut heads: BinaryHeap<_> =
        all.map(|(head, txn, p)| (undo_priority(head, txn), head, txn, p)).collect();
    while let Some((_, head, txn, partition)) = heads.pop() {
        let store = stores
            .get_mut(usize::from(partition.0))
            .ok_or(StorageError::bad_record(head, "there is no such partition"))?;
        let next = match head {
            Lsn(0) => head,
            _ if canary::on(Bug::UndoneOldestFirst) => {
                undo_oldest_first(undoing, store, txn, head)?
            }
            _ => undo_record(undoing, store, txn, head)?,
        };
        if next > Lsn(0) {
            heads.push((undo_priority(next, txn), next, txn, partition));
        } else {
            store.log_abort_end(txn);
            undone += 1;
        }
    }
    Ok(undone)
}

/// Returns the undo priority; the highest is undone next.
fn undo_priority(head: Lsn, txn: TxnId) -> Lsn {
    if canary::on(Bug::LosersById) { Lsn(u64::MAX - txn.0) } else { head }
}

/// Implements the injected bug [`Bug::UndoneOldestFirst`].
fn undo_oldest_first(
    undoing: &mut Undoing<'_>,
    store: &mut Store,
    txn: TxnId,
    head: Lsn,
) -> Result<Lsn, StorageError> {
    let mut places = vec![head];
    while let Some(&place) = places.last().filter(|place| **place > Lsn(0)) {
        match record::parse(undoing.back.record(place)?.payload) {
            Ok(Record::Pages { role: Role::Undoable { prev, .. }, .. }) if prev < place => {
                places.push(prev)
            }
            _ => return Err(StorageError::bad_record(place, "a change to undo was expected")),
        }
    }
    places
        .into_iter()
        .rev()
        .skip(1)
        .try_for_each(|place| undo_record(undoing, store, txn, place).map(drop))?;
    Ok(Lsn(0))
}

fn undo_record(
    undoing: &mut Undoing<'_>,
    store: &mut Store,
    txn: TxnId,
    head: Lsn,
) -> Result<Lsn, StorageError> {
    let entry = undoing.back.record(head)?.payload.to_vec();
    match record::parse(&entry) {
        Ok(Record::Pages {
            partition, role: Role::Undoable { txn: owner, prev, undo }, ..
        }) if owner == txn && partition == store.partition() && prev < head => {
            if let Some(deletion) = Deletion::in_conflict(undoing, store, &undo, txn, head)? {
                deletion.make_way(undoing, store)?;
            }
            let next = if canary::on(Bug::UndoneTwice) { head } else { prev };
            retry_blocking(undoing.pool, || store.undo_logged(&undo, txn, next))?;
            Ok(prev)
        }
        _ => Err(StorageError::bad_record(head, "a change to undo was expected")),
    }
}
