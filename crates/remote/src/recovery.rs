//! Recovery of locks and rows when a worker dies.
//!
//! A table with a [`LogLayout`](crate::LogLayout) survives the death of workers at any moment.
//! Before a transaction writes a row it records what it will write in the log of each owner of such
//! a row. The record is valid once an atomic has set its mark to the transaction's start timestamp;
//! the transaction has committed once the records at all owners are valid. Only then are rows
//! written and locks released.
//!
//! When a worker is taken for dead, rightly or not ([`LeaseWatch`](crate::LeaseWatch) does so when
//! its lease has run out):
//!
//! 1. The owners fence their regions ([`Region::fence`]). No verb of anybody has an effect from now
//!    on.
//! 2. The survivors stop, let all verbs under way end
//!    ([`RowWorker::drain`](crate::RowWorker::drain)), and tell which locks they surely hold
//!    ([`RowWorker::pause`](crate::RowWorker::pause)).
//! 3. [`rebuild`] completes the transactions that have committed, and makes the lock words anew of
//!    what survivors hold. Whatever else is locked comes free, once: the dead's locks, and those
//!    that somebody was taking or releasing.
//! 4. The survivors learn the new keys and go on ([`RowWorker::resume`](crate::RowWorker::resume)).
//!    Interrupted calls are repeated, commits that recovery has completed have ended.
//!
//! A worker that was taken for dead and lives gets an error for each verb, and starts anew with
//! another number.
//!
//! # Invariants
//! 1. A transaction that has written a row is recorded at all of its owners. So nothing needs to be
//!    undone.
//! 2. A record is carried out only on rows that its transaction still holds exclusively: the lock
//!    word says so. What was released has been written, and may have been changed by others since.
//! 3. A start timestamp commits once, and a record is overwritten only after its transaction has
//!    ended. So an old record names no holder of anything.
//! 4. Counted readers have no name in the word: the count is that of the survivors that tell of a
//!    lock. In one-round locks the word may count readers beside an exclusive holder, too, which
//!    will back out: its name is above them.
//!
//! In a line the word names the last, so that a second word names the holder: it is set as the lock
//! is taken or handed over, and cleared after the payload has landed. Lines end at a recovery:
//! survivors tell the locks that they have, get mailboxes that nobody else knows
//! ([`RowWorker::replace_mailbox`](crate::RowWorker::replace_mailbox)), and stand in line again. So
//! what the dead, or anybody before the fence, writes to an old mailbox reaches nobody.
//!
//! The words of a worker that is no survivor are nowhere asked for.
//!
//! # When an owner's node dies
//! Its rows are lost: they have no copies. The verbs of every worker that uses them, renewals of
//! leases included, fail with [`VerbError::PeerDead`](clearway_fabric::VerbError::PeerDead), which
//! ends the worker; its locks stay at the other owners. There [`rebuild`] makes the rows whole and
//! free, without the lost region and without survivors; then new workers use a new table. A
//! transaction is completed if its records at all owners that are left are valid. So its changes
//! there are made all or not at all, and a commit that was reported is kept. Invariants:
//!
//! 5. A transaction has written a row only after its records were valid everywhere, so also at the
//!    owners that are left.
//! 6. What had records at the lost owner alone changes nothing elsewhere.

use crate::mailbox::{MAX_PLACES, Stand};
use crate::mode::{READER, is_exclusive};
use crate::table::RECORD_HEADER;
use crate::traps::{Planted, Trap};
use crate::{RowId, StartTimestamp, Table};
use clearway_fabric::Region;
use std::collections::{BTreeMap, BTreeSet};

/// Bits of a told lock's last word below the place.
const PLACE_SHIFT: u32 = 8;

/// A lock that a survivor holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLock {
    pub(crate) row: RowId,
    pub(crate) holder: StartTimestamp,
    pub(crate) exclusive: bool,
    /// The holder's place in the array, if it is entered there.
    pub(crate) slot: Option<usize>,
    /// The holder's place in its worker's mailbox.
    pub(crate) place: usize,
}

impl HeldLock {
    /// The lock as words, for a message to who rebuilds.
    pub fn to_words(&self) -> [u64; 3] {
        let slot = self.slot.map_or(0, |slot| slot as u64 + 1);
        let row = u64::from(self.row.owner) << 32 | u64::from(self.row.index);
        [
            row,
            self.holder.0,
            u64::from(self.exclusive) | slot << 1 | (self.place as u64) << PLACE_SHIFT,
        ]
    }

    /// The lock in such words; none if they are not one of this table's.
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

/// Which transactions have committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    committed: BTreeSet<StartTimestamp>,
    /// Rows whose payload was written from a record.
    pub rows_completed: u64,
    /// Exclusive locks that nobody told of.
    pub exclusive_freed: u64,
}

impl Outcomes {
    /// Whether a transaction whose commit was under way has committed. Of those whose commit had
    /// ended before the fence this says nothing.
    pub fn has_committed(&self, start: StartTimestamp) -> bool {
        self.committed.contains(&start)
    }

    /// The start timestamps of the committed transactions, for a message to the survivors.
    pub fn to_words(&self) -> Vec<u64> {
        self.committed.iter().map(|start| start.0).collect()
    }

    /// The outcomes in such words, without counts.
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
    /// Row and payload.
    changes: Vec<(RowId, Vec<u64>)>,
}

/// Rebuilds the locks of all owners from what the survivors hold, and completes the commits that
/// were under way.
///
/// `regions` are those of the table's owners, in their order, all of them fenced; none for an owner
/// whose node is dead. Nobody else accesses them.
///
/// # Panics
/// If the number of regions is not that of the owners, or the table has no log.
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
        // Invariant 3: what comes after knows no record from before.
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

/// Whether a lock word says that somebody holds the row exclusively.
fn is_held_alone(table: &Table, word: u64) -> bool {
    if table.mode.shares() { is_exclusive(word) } else { word != 0 }
}

/// Makes an owner's lock words and arrays anew. Returns how many rows were held exclusively by
/// nobody who survives.
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
                    true => Stand::new(lock.holder, lock.place).0,
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
