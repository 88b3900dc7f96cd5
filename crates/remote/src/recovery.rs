//! Recovery of locks and rows when a worker dies.
//!
//! A table with a [`LogLayout`](crate::LogLayout) survives the death of workers at any moment.
//! Before a transaction writes a row, it records its changes in the log of each owner of a changed
//! row. A record becomes valid when an atomic sets its mark to the transaction's start timestamp.
//! The transaction has committed once the records at all owners are valid. Only then are rows
//! written and locks released.
//!
//! Recovery begins when a worker is considered dead, rightly or not.
//! [`LeaseWatch`](crate::LeaseWatch) considers a worker dead when its lease expires.
//!
//! 1. The owners fence their regions ([`Region::fence`]). No verb of any worker has an effect from
//!    now on. On shared memory this holds only if the dead worker's process has ended: kill it
//!    first, because it may only be suspended.
//! 2. The survivors stop, let all verbs in flight finish
//!    ([`RowWorker::drain`](crate::RowWorker::drain)), and announce which locks they certainly hold
//!    ([`RowWorker::pause`](crate::RowWorker::pause)).
//! 3. [`rebuild`] completes the transactions that have committed, and rebuilds the lock words from
//!    the survivors' locks. Every other lock is freed, once: the locks of the dead worker, and
//!    those that a survivor was acquiring or releasing.
//! 4. The survivors learn the new keys and continue
//!    ([`RowWorker::resume`](crate::RowWorker::resume)). They repeat interrupted calls. Commits
//!    that recovery has completed are reported as committed.
//!
//! A survivor's verbs may fail before it is told to stop: because of the fence, or because it hands
//! a lock over to a worker that died with its node. It must then go on to poll and to renew its
//! leases until it is told.
//!
//! A live worker that was considered dead gets an error for each verb, and must restart with
//! another number.
//!
//! # Invariants
//! 1. A transaction that has written a row has valid records at all of its owners. So nothing needs
//!    to be undone.
//! 2. A record is applied only to rows that its transaction still holds exclusively according to
//!    the lock word. A released row has been written, and others may have changed it since.
//! 3. A start timestamp commits once, and a record is overwritten only after its transaction has
//!    ended. So an old record names no current holder.
//! 4. A count of readers names no holder. The new count is the number of survivors that announce a
//!    shared lock. A one-round word may also count readers beside an exclusive holder, which will
//!    back out: the holder's timestamp is above that count.
//!
//! In a line the lock word names the last transaction, so a second word names the holder. It is set
//! when the lock is acquired or handed over, and cleared after the payload has landed. Recovery
//! dissolves the lines: survivors announce the locks that they hold, get mailboxes that no other
//! worker knows ([`RowWorker::replace_mailbox`](crate::RowWorker::replace_mailbox)), and queue
//! again. So a WRITE to an old mailbox, by a dead worker or from before the fence, reaches nobody.
//!
//! Words of a worker that is not a survivor are never used.
//!
//! # When an owner's node dies
//! Its rows are lost, because they have no copies. The verbs of every worker that uses them,
//! including renewals of leases, fail with
//! [`VerbError::PeerDead`](clearway_fabric::VerbError::PeerDead). That ends the worker; its locks
//! stay at the other owners. There, [`rebuild`] makes the rows whole and frees their locks, without
//! the lost region and without survivors. Then new workers use a new table. A transaction is
//! completed if its records at all remaining owners are valid. So its changes there are applied
//! completely or not at all, and a reported commit is kept. Invariants:
//!
//! 5. A transaction has written a row only after its records were valid at all owners, including
//!    the remaining ones.
//! 6. A transaction with records only at the lost owner changes nothing elsewhere.

use crate::mailbox::{LinePlace, MAX_PLACES};
use crate::mode::{READER, is_exclusive};
use crate::table::RECORD_HEADER;
use crate::traps::{Planted, Trap};
use crate::{RowId, StartTimestamp, Table};
use clearway_fabric::Region;
use std::collections::{BTreeMap, BTreeSet};

/// Bits below the place in the last word of an announced lock.
const PLACE_SHIFT: u32 = 8;

/// A lock that a survivor holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLock {
    pub(crate) row: RowId,
    pub(crate) holder: StartTimestamp,
    pub(crate) exclusive: bool,
    /// The holder's slot in the array, if it is entered there.
    pub(crate) slot: Option<usize>,
    /// The holder's place in its worker's mailbox.
    pub(crate) place: usize,
}

impl HeldLock {
    /// Encodes the lock as words, for a message to the process that rebuilds.
    pub fn to_words(&self) -> [u64; 3] {
        let slot = self.slot.map_or(0, |slot| slot as u64 + 1);
        let row = u64::from(self.row.owner) << 32 | u64::from(self.row.index);
        [
            row,
            self.holder.0,
            u64::from(self.exclusive) | slot << 1 | (self.place as u64) << PLACE_SHIFT,
        ]
    }

    /// Decodes a lock. Returns `None` if the words do not describe a lock of this table.
    pub fn from_words([row, holder, kind]: [u64; 3], table: &Table) -> Option<Self> {
        let row = RowId { owner: (row >> 32) as u32, index: row as u32 };
        let known = (row.owner as usize) < table.owners.len()
            && row.index < table.rows + table.buckets.rows;
        let slot = ((kind as usize % (1 << PLACE_SHIFT)) >> 1).checked_sub(1);
        let place =
            usize::try_from(kind >> PLACE_SHIFT).ok().filter(|place| *place < MAX_PLACES)?;
        let fits = slot.is_none_or(|slot| 1 + slot < table.mode.header_words());
        let exclusive = kind & 1 == 1;
        (known && fits && holder != 0).then_some(Self {
            row,
            holder: StartTimestamp(holder),
            exclusive,
            slot,
            place,
        })
    }
}

/// The transactions that have committed, and what recovery did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    committed: BTreeSet<StartTimestamp>,
    /// Rows whose payload was written from a record.
    pub rows_completed: u64,
    /// Exclusive locks that no survivor announced.
    pub exclusive_freed: u64,
}

impl Outcomes {
    /// Returns true if a transaction whose commit was in flight has committed. The result says
    /// nothing about transactions whose commit had finished before the fence.
    pub fn has_committed(&self, start: StartTimestamp) -> bool {
        self.committed.contains(&start)
    }

    /// Encodes the start timestamps of the committed transactions, for a message to the survivors.
    pub fn to_words(&self) -> Vec<u64> {
        self.committed.iter().map(|start| start.0).collect()
    }

    /// Decodes outcomes, without the counts.
    pub fn from_words(words: &[u64]) -> Self {
        Self {
            committed: words.iter().map(|word| StartTimestamp(*word)).collect(),
            ..Self::default()
        }
    }
}

/// A valid record of one owner.
struct Record {
    owners: u64,
    /// Row and payload of each change.
    changes: Vec<(RowId, Vec<u64>)>,
}

/// Rebuilds the locks of all owners from the survivors' locks, and completes the commits in flight.
///
/// `regions` are those of the table's owners, in their order, and `None` for an owner whose node is
/// dead. All regions must be fenced, and no other thread may access them.
///
/// # Panics
/// Panics if the number of regions differs from that of the owners, or if the table has no log.
pub fn rebuild(table: &Table, regions: &[Option<&dyn Region>], survivors: &[HeldLock]) -> Outcomes {
    rebuild_with(table, regions, survivors, Planted::default())
}

pub(crate) fn rebuild_with(
    table: &Table,
    regions: &[Option<&dyn Region>],
    survivors: &[HeldLock],
    planted: Planted,
) -> Outcomes {
    assert!(table.is_logged() && regions.len() == table.owners.len());
    let mut records: BTreeMap<StartTimestamp, BTreeMap<u32, Record>> = BTreeMap::new();
    let left = || (0..).zip(regions).filter_map(|(owner, region)| Some((owner, (*region)?)));
    let lost = (0..regions.len())
        .filter(|owner| regions[*owner].is_none())
        .fold(0, |lost, owner| lost | 1 << owner);
    for (owner, region) in left() {
        for (start, record) in records_of(table, owner, region) {
            records.entry(start).or_default().insert(owner, record);
        }
    }
    let mut outcomes = Outcomes::default();
    for (start, of_owners) in &records {
        let has = of_owners.keys().fold(lost, |has, owner| has | 1 << owner);
        if of_owners.values().any(|record| record.owners & !has != 0) {
            continue;
        }
        outcomes.committed.insert(*start);
        for (row, payload) in of_owners.values().flat_map(|record| &record.changes) {
            let Some(region) = regions[row.owner as usize] else { continue };
            let word = table.word(*row, 0).word as usize;
            let found = region.load(word);
            let any = planted.has(Trap::AnyHolder) && is_held_alone(table, found);
            let holds = match table.mode.has_line() {
                true => region.load(word + 1) == start.0,
                false => table.says_exclusive(found, *start),
            };
            if holds || any {
                outcomes.rows_completed += 1;
                let first = word + table.mode.header_words();
                (first..).zip(payload).for_each(|(word, value)| region.store(word, *value));
            }
        }
    }
    let kept = survivors.iter().filter(|lock| !outcomes.has_committed(lock.holder));
    outcomes.exclusive_freed =
        left().map(|(owner, region)| set_words(table, owner, region, kept.clone())).sum();
    outcomes
}

fn records_of(table: &Table, owner: u32, region: &dyn Region) -> Vec<(StartTimestamp, Record)> {
    let mut found = Vec::new();
    let places = (0..table.log.workers as u16)
        .flat_map(|w| (0..table.log.transactions as usize).map(move |s| (w, s)));
    for (worker, slot) in places {
        let first = table.record(worker, slot);
        let mark = region.load(first);
        if mark == 0 {
            continue;
        }
        // Invariant 3: later recoveries must not find earlier records.
        region.store(first, 0);
        let (owners, entries) = (region.load(first + 1), region.load(first + 2));
        let entry = |entry: usize| {
            let at = first + RECORD_HEADER + entry * table.entry_words();
            let index = u32::try_from(region.load(at))
                .ok()
                .filter(|row| *row < table.rows + table.buckets.rows)?;
            let row = RowId { owner, index };
            let payload =
                (1..=table.payload_words_of(row)).map(|word| region.load(at + word)).collect();
            Some((row, payload))
        };
        let changes = (0..table.log.rows as usize)
            .filter(|bit| entries >> bit & 1 == 1)
            .filter_map(entry)
            .collect();
        found.push((StartTimestamp(mark), Record { owners, changes }));
    }
    found
}

/// Returns true if a lock word has an exclusive holder.
fn is_held_alone(table: &Table, word: u64) -> bool {
    if table.mode.shares() { is_exclusive(word) } else { word != 0 }
}

/// Rebuilds an owner's lock words and arrays. Returns the number of rows whose exclusive holder is
/// not a survivor.
fn set_words<'l>(
    table: &Table,
    owner: u32,
    region: &dyn Region,
    locks: impl Iterator<Item = &'l HeldLock> + Clone,
) -> u64 {
    let mut freed = 0;
    let header = table.mode.header_words();
    for index in 0..table.rows + table.buckets.rows {
        let row = RowId { owner, index };
        let first = table.word(row, 0).word as usize;
        let mut words = vec![0; header];
        let mut kept = false;
        for lock in locks.clone().filter(|lock| lock.row == row) {
            if lock.exclusive {
                kept = true;
                assert_eq!(words[0], 0, "two survivors hold {row:?}");
                words[0] = match table.mode.has_line() {
                    true => LinePlace::new(lock.holder, lock.place).0,
                    false => table.exclusive_word(lock.holder),
                };
            } else {
                words[0] += READER;
            }
            if let Some(slot) = lock.slot {
                words[1 + slot] = lock.holder.0;
            }
        }
        freed += u64::from(is_held_alone(table, region.load(first)) && !kept);
        (first..).zip(words).for_each(|(word, value)| region.store(word, value));
    }
    freed
}
