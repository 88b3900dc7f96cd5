//! Recovery of records and lock words, in memory that the test has written.

use super::recovery::owners;
use crate::mode::READER;
use crate::recovery::{HeldLock, Outcomes, rebuild};
use crate::{Buckets, LeaseWatch, LogLayout, Mode, Owner, RowId, StartTimestamp, Table};
use clearway_fabric::sim::{Network, SimConfig};
use clearway_fabric::{Fabric, FabricNode, Region, RegionKey, WorkerAddr};

/// Invariants 1, 2 and 4 of recovery, in memory that a dead worker has left.
#[test]
fn a_record_changes_only_rows_its_transaction_holds() {
    // A one-round word may count a reader that will back out beside its holder.
    for (mode, beside) in [(Mode::PUBLISHED[1], 0), (Mode::ONE_ROUND, READER)] {
        complete_held_rows(mode, beside);
    }
}

fn complete_held_rows(mode: Mode, beside: u64) {
    let network = Network::new(1, SimConfig::default());
    let nodes = [network.add_node(), network.add_node()];
    let log = LogLayout { workers: 1, transactions: 2, rows: 3 };
    let mut table = Table {
        mode,
        payload_words: 1,
        rows: 4,
        buckets: Buckets::default(),
        log,
        owners: Vec::new(),
    };
    let regions = [0, 1].map(|node| nodes[node].register(table.words()).unwrap());
    table.owners = owners(&regions, &nodes);
    let (ended, half) = (StartTimestamp::new(5, 0), StartTimestamp::new(6, 0));
    let row = |index| RowId { owner: 0, index };
    let store =
        |index, word, value| regions[0].store(table.word(row(index), word).word as usize, value);
    let record = |slot, start: StartTimestamp, owners, changes: [(u64, u64); 2]| {
        let words = [start.0, owners, 0b11, changes[0].0, changes[0].1, changes[1].0, changes[1].1];
        (table.record(0, slot)..)
            .zip(words)
            .for_each(|(word, value)| regions[0].store(word, value));
    };
    // Slot 0 has committed at its only owner and has released row 1, which has a new value since
    // then. Slot 1 lacks a record at owner 1.
    record(0, ended, 0b01, [(0, 70), (1, 71)]);
    record(1, half, 0b11, [(2, 80), (3, 81)]);
    let exclusive = |start| mode.exclusive_word(start, true);
    for (index, word, value) in
        [(0, exclusive(ended) + beside, 1), (1, 0, 9), (2, exclusive(half), 2), (3, 6, 3)]
    {
        store(index, 0, word);
        store(index, 1, value);
    }
    // Row 3 has 3 readers, of which one survives.
    let reader = HeldLock {
        row: row(3),
        holder: StartTimestamp::new(7, 1),
        exclusive: false,
        slot: None,
        place: 0,
    };
    let outcomes = rebuild(&table, &[Some(&regions[0]), Some(&regions[1])], &[reader]);
    assert!(outcomes.has_committed(ended) && !outcomes.has_committed(half));
    assert_eq!((outcomes.rows_completed, outcomes.exclusive_freed), (1, 2));
    let load = |index, word| regions[0].load(table.word(row(index), word).word as usize);
    assert_eq!(
        [0, 1, 2, 3].map(|index| (load(index, 0), load(index, 1))),
        [(0, 70), (0, 9), (0, 2), (2, 3)]
    );
    // A second recovery finds nothing to complete or to free.
    let again = rebuild(&table, &[Some(&regions[0]), Some(&regions[1])], &[reader]);
    assert_eq!((again.rows_completed, again.exclusive_freed, load(3, 0)), (0, 0, 2));
}

/// Invariants 5 and 6 of recovery: the records at the remaining owners decide.
#[test]
fn records_of_a_lost_owner_are_not_required() {
    let mode = Mode::PUBLISHED[0];
    let network = Network::new(1, SimConfig::default());
    let nodes = [network.add_node(), network.add_node(), network.add_node()];
    let log = LogLayout { workers: 1, transactions: 3, rows: 1 };
    let mut table = Table {
        mode,
        payload_words: 1,
        rows: 3,
        buckets: Buckets::default(),
        log,
        owners: Vec::new(),
    };
    let regions = [0, 1, 2].map(|node| nodes[node].register(table.words()).unwrap());
    table.owners = owners(&regions, &nodes);
    let word = |index, word| table.word(RowId { owner: 0, index }, word).word as usize;
    // Transaction 0 has records at owner 0, which remains, and perhaps at owner 1, which is lost.
    // Transaction 1 lacks the one at owner 2, which remains. Transaction 2 has the same records as
    // transaction 0, and ended long ago.
    for (slot, owners) in [(0_u64, 0b011), (1, 0b101), (2, 0b011)] {
        let start = StartTimestamp::new(5 + slot, 0);
        let record = [start.0, owners, 0b1, slot, 70 + slot];
        (table.record(0, slot as usize)..)
            .zip(record)
            .for_each(|(word, value)| regions[0].store(word, value));
        regions[0].store(word(slot as u32, 0), if slot == 2 { 0 } else { start.0 });
        regions[0].store(word(slot as u32, 1), 1);
    }
    let outcomes = rebuild(&table, &[Some(&regions[0]), None, Some(&regions[2])], &[]);
    assert_eq!((outcomes.rows_completed, outcomes.exclusive_freed), (1, 2));
    assert!(
        outcomes.has_committed(StartTimestamp::new(5, 0))
            && !outcomes.has_committed(StartTimestamp::new(6, 0))
    );
    let rows =
        [0, 1, 2].map(|index| (regions[0].load(word(index, 0)), regions[0].load(word(index, 1))));
    assert_eq!(rows, [(0, 70), (0, 1), (0, 1)]);
}

/// Invariants 1 and 2 of leases.
#[test]
fn leases_expire_by_the_time_between_checks() {
    let network = Network::new(1, SimConfig::default());
    let node = network.add_node();
    let log = LogLayout { workers: 3, transactions: 1, rows: 1 };
    let (mode, buckets) = (Mode::PUBLISHED[0], Buckets::default());
    let table = Table { mode, payload_words: 1, rows: 1, buckets, log, owners: Vec::new() };
    let region = node.register(table.words()).unwrap();
    let mut watch = LeaseWatch::new(&table, 100);
    let renew = |worker, count| region.store(table.lease(worker), count);
    renew(1, 1);
    renew(2, 1);
    for now_ns in (0..100).step_by(25) {
        assert!(watch.look(now_ns, &region).is_empty(), "at {now_ns}");
    }
    // Worker 0 never had a lease. Worker 2 renews in time.
    renew(2, 2);
    assert_eq!(watch.look(100, &region), [1]);
    renew(2, 0);
    assert_eq!(watch.look(150, &region), [1]);
    watch.clear(1, &region);
    assert!(watch.look(200, &region).is_empty());
    // An owner that was suspended restarts all leases.
    renew(1, 7);
    for (now_ns, dead) in
        [(210, vec![]), (900, vec![]), (950, vec![]), (999, vec![]), (1000, vec![1])]
    {
        assert_eq!(watch.look(now_ns, &region), dead, "at {now_ns}");
    }
}

#[test]
fn locks_and_outcomes_round_trip_as_words() {
    let (mode, region) = (Mode::PUBLISHED[3], RegionKey { key: 0, base: 0 });
    let owner = Owner { address: WorkerAddr { node: FabricNode(0), port: 0 }, region };
    let (buckets, log) = (Buckets::default(), LogLayout::default());
    let table = Table { mode, payload_words: 1, rows: 4, buckets, log, owners: vec![owner; 3] };
    let (row, holder) = (RowId { owner: 2, index: 3 }, StartTimestamp::new(1 << 40, 9));
    for (exclusive, slot) in [(true, None), (true, Some(0)), (false, Some(3))] {
        let lock = HeldLock { row, holder, exclusive, slot, place: 5 };
        assert_eq!(HeldLock::from_words(lock.to_words(), &table), Some(lock));
        // A non-existent owner, row, holder or slot.
        let [place, start, kind] = lock.to_words();
        for bad in [
            [place + (1 << 32), start, kind],
            [place + 1, start, kind],
            [place, 0, kind],
            [place, start, 5 << 1],
        ] {
            assert_eq!(HeldLock::from_words(bad, &table), None);
        }
    }
    let outcomes = Outcomes::from_words(&[holder.0, 5]);
    assert!(outcomes.has_committed(holder) && !outcomes.has_committed(StartTimestamp(6)));
    assert_eq!(Outcomes::from_words(&outcomes.to_words()), outcomes);
}
