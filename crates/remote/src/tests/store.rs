//! The store: histories with inserts and deletes, its traps, and single cases of stale locations.

use super::all_modes;
use super::runner::{Found, Setup};
use super::store_runner::run;
use crate::traps::Trap;
use crate::{
    Mode, Owner, RowClient, RowWorker, StoreAnswer, StoreContents, StoreEvent, StoreKey,
    StoreLayout, StoreStats, StoreWorker,
};
use clearway_fabric::sim::{Network, SimConfig, SimRegion, SimWorker};
use clearway_fabric::{Fabric, Region, WorkerAddr};

const SEEDS: u64 = 20;
const COMMITS: u64 = 300;

fn assert_clean(setup: Setup, found: &Found) {
    let broken = &found.broken;
    assert!(
        found.is_clean(),
        "SEED={} {:?}: {broken:?}\n{}",
        setup.seed,
        setup.mode,
        found.checked
    );
}

#[test]
fn stores_of_every_mode_are_strictly_serializable() {
    let given = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    for mode in all_modes() {
        let (mut cached, mut stale, mut peeked) = (0, 0, 0);
        for seed in given.map_or(0..SEEDS, |seed| seed..seed + 1) {
            let setup = Setup::new(seed, mode, COMMITS);
            let (found, stats) = run(setup);
            assert_clean(setup, &found);
            assert!(found.checked.counts.committed >= COMMITS, "SEED={seed}: {}", found.checked);
            (cached, stale, peeked) =
                (cached + stats.cached, stale + stats.stale, peeked + stats.peeked);
        }
        println!("{mode:?}: locations cached {cached}, stale {stale}, peeked {peeked}");
        assert!(
            given.is_some() || (cached > 100 && stale > 100 && peeked > 100),
            "{cached} {stale} {peeked}"
        );
    }
}

fn assert_caught(trap: Trap) {
    for mode in Mode::PUBLISHED {
        let setup = |seed, trap| Setup { trap, ..Setup::new(seed, mode, 200) };
        let caught = (0..20).find(|seed| !run(setup(*seed, Some(trap))).0.is_clean());
        let seed =
            caught.unwrap_or_else(|| panic!("no seed below 20 catches {trap:?} in {mode:?}"));
        println!("{trap:?}, {mode:?}: SEED={seed}");
        assert_clean(setup(seed, None), &run(setup(seed, None)).0);
    }
}

#[test]
fn trusted_location_is_caught() {
    assert_caught(Trap::TrustLocation);
}

#[test]
fn trusted_bucket_is_caught() {
    assert_caught(Trap::TrustBucket);
}

/// Two workers of one store, used in turn.
struct Pair {
    layout: StoreLayout,
    network: Network,
    region: SimRegion,
    stores: Vec<StoreWorker<RowWorker<'static, SimWorker>>>,
}

impl Pair {
    fn new(mode: Mode, buckets: u32, entries: u32) -> Self {
        let layout = StoreLayout { mode, value_words: 1, buckets, entries };
        let network = Network::new(1, SimConfig::default());
        let (owner, user) = (network.add_node(), network.add_node());
        let region = owner.register(layout.region_words()).unwrap();
        let address = WorkerAddr { node: owner.node(), port: 0 };
        let table = layout.table(vec![Owner { address, region: region.key() }]);
        let limits = layout.limits(1, 4);
        let store = |number: u16| {
            let fabric =
                user.worker(number.into(), limits.scratch_words(table.longest_payload())).unwrap();
            StoreWorker::new(
                RowWorker::new(fabric, table.clone(), number, limits, None).unwrap(),
                layout,
                16,
            )
        };
        Self { stores: vec![store(0), store(1)], network, region, layout }
    }

    fn wait(&mut self, store: usize) -> StoreEvent {
        let mut events = Vec::new();
        loop {
            self.stores[store].poll(&mut events).unwrap();
            if let Some(event) = events.pop() {
                return event;
            }
            if !self.stores[store].is_ready() {
                self.network.advance().unwrap();
            }
        }
    }

    /// Runs one operation in its own transaction. Returns its answer and the value found.
    fn one(&mut self, store: usize, key: u64, operation: &str) -> (StoreAnswer, u64) {
        let key = StoreKey::new(key).unwrap();
        let txn = self.stores[store].begin().unwrap();
        let started = match operation {
            "get" => self.stores[store].get(txn, key, false),
            "insert" => self.stores[store].insert(txn, key, &[100 + key.get()]),
            "delete" => self.stores[store].delete(txn, key),
            _ => self.stores[store].put(txn, key, &[200 + key.get()]),
        };
        started.unwrap();
        let StoreEvent::Done(_, _, answer) = self.wait(store) else {
            panic!("the transaction was aborted")
        };
        let mut value = [0];
        self.stores[store].value(txn, key, &mut value);
        self.stores[store].commit(txn).unwrap();
        assert_eq!(self.wait(store), StoreEvent::Committed(txn));
        (answer, value[0])
    }

    fn stats(&self, store: usize) -> StoreStats {
        *self.stores[store].stats()
    }
}

/// Invariant 3 of the store.
#[test]
fn a_reused_row_does_not_answer_for_its_old_key() {
    for mode in Mode::PUBLISHED {
        let mut pair = Pair::new(mode, 1, 1);
        assert_eq!(pair.one(0, 1, "insert"), (StoreAnswer::Absent, 101));
        assert_eq!(pair.one(1, 1, "get"), (StoreAnswer::Present, 101));
        assert_eq!(pair.one(0, 1, "delete").0, StoreAnswer::Present);
        assert_eq!(pair.one(1, 1, "get"), (StoreAnswer::Absent, 0), "a deleted key");
        assert_eq!((pair.stats(1).stale, pair.stats(1).cached), (1, 0));
        // The row of key 1 now belongs to key 2; worker 1 has cached key 1 there again.
        pair.one(0, 1, "insert");
        pair.one(1, 1, "get");
        pair.one(0, 1, "delete");
        assert_eq!(pair.one(0, 2, "insert"), (StoreAnswer::Absent, 102));
        assert_eq!(pair.one(1, 1, "put"), (StoreAnswer::Absent, 0));
        assert_eq!(pair.stats(1).stale, 2);
        assert_eq!(pair.one(1, 2, "get"), (StoreAnswer::Present, 102));
        assert_eq!(pair.one(1, 2, "put"), (StoreAnswer::Present, 202));
        assert_eq!(pair.one(0, 2, "get"), (StoreAnswer::Present, 202));
    }
}

/// Invariant 2 of the store.
#[test]
fn full_buckets_overflow_into_the_next() {
    let mut pair = Pair::new(Mode::PUBLISHED[1], 5, 2);
    let keys: Vec<u64> = (1..200).filter(|key| home(*key, 5) == 3).take(9).collect();
    for key in &keys[..8] {
        assert_eq!(pair.one(0, *key, "insert").0, StoreAnswer::Absent);
        assert_eq!(pair.one(0, *key, "insert").0, StoreAnswer::Present);
    }
    assert_eq!(pair.one(0, keys[8], "insert").0, StoreAnswer::NoRoom);
    for key in &keys[..8] {
        assert_eq!(pair.one(1, *key, "get"), (StoreAnswer::Present, 100 + key));
    }
    // Room in the first bucket does not hide keys in later ones.
    assert_eq!(pair.one(1, keys[0], "delete").0, StoreAnswer::Present);
    assert_eq!(pair.one(0, keys[7], "insert").0, StoreAnswer::Present);
    assert_eq!(pair.one(0, keys[8], "insert").0, StoreAnswer::Absent);
    assert_eq!(pair.one(1, keys[0], "get").0, StoreAnswer::Absent);
    assert_eq!(pair.one(1, keys[8], "get").0, StoreAnswer::Present);
}

fn home(key: u64, buckets: u32) -> u32 {
    let layout = StoreLayout { mode: Mode::ONE_ROUND, value_words: 1, buckets, entries: 1 };
    layout.bucket(StoreKey::new(key).unwrap(), 0, 1).number
}

#[test]
fn cached_location_saves_the_index() {
    let mut pair = Pair::new(Mode::ONE_ROUND, 4, 4);
    pair.one(0, 7, "insert");
    let mut lock_verbs = || {
        let before = pair.stores[1].rows().stats().phase(crate::Phase::Lock);
        pair.one(1, 7, "get");
        let after = pair.stores[1].rows().stats().phase(crate::Phase::Lock);
        (after.verbs - before.verbs, after.rounds - before.rounds)
    };
    // READ of the bucket, then FAA and READ of the row. With a cached location there is no first
    // READ.
    assert_eq!((lock_verbs(), lock_verbs()), ((3, 2), (2, 1)));
}

#[test]
fn transaction_sees_its_own_inserts_and_deletes() {
    let mut pair = Pair::new(Mode::PUBLISHED[3], 1, 2);
    pair.one(0, 1, "insert");
    let key = |key| StoreKey::new(key).unwrap();
    let txn = pair.stores[0].begin().unwrap();
    let expect = |pair: &mut Pair, number, answer| {
        assert_eq!(pair.wait(0), StoreEvent::Done(txn, key(number), answer));
    };
    pair.stores[0].delete(txn, key(1)).unwrap();
    expect(&mut pair, 1, StoreAnswer::Present);
    pair.stores[0].get(txn, key(1), true).unwrap();
    expect(&mut pair, 1, StoreAnswer::Absent);
    pair.stores[0].insert(txn, key(1), &[5]).unwrap();
    expect(&mut pair, 1, StoreAnswer::Absent);
    pair.stores[0].get(txn, key(1), false).unwrap();
    expect(&mut pair, 1, StoreAnswer::Present);
    pair.stores[0].abort(txn).unwrap();
    assert!(matches!(pair.wait(0), StoreEvent::Aborted(..)));
    assert_eq!(pair.one(0, 1, "get"), (StoreAnswer::Present, 101));
}

/// A mutual lock acquired for reading serves an update; a shared one becomes exclusive.
#[test]
fn key_that_was_read_can_be_put() {
    for mode in Mode::PUBLISHED.into_iter().chain(Mode::ADAPTIVE).chain([Mode::ONE_ROUND]) {
        let mut pair = Pair::new(mode, 1, 1);
        pair.one(0, 1, "insert");
        let key = StoreKey::new(1).unwrap();
        let txn = pair.stores[0].begin().unwrap();
        pair.stores[0].get(txn, key, false).unwrap();
        assert_eq!(pair.wait(0), StoreEvent::Done(txn, key, StoreAnswer::Present));
        pair.stores[0].put(txn, key, &[9]).unwrap();
        assert_eq!(pair.wait(0), StoreEvent::Done(txn, key, StoreAnswer::Present));
        pair.stores[0].commit(txn).unwrap();
        assert_eq!(pair.wait(0), StoreEvent::Committed(txn));
        assert_eq!(pair.one(1, 1, "get"), (StoreAnswer::Present, 9));
    }
}

/// Keys hash to 3 buckets of 2 entries, so that buckets overflow and the last keys find no room.
#[test]
fn contents_are_where_inserts_put_them() {
    let new = || Pair::new(Mode::PUBLISHED[0], 3, 2);
    let (mut inserted, mut filled) = (new(), new());
    let table = filled.stores[0].rows().table().clone();
    let mut contents = StoreContents::new(filled.layout, 1);
    let mut places = Vec::new();
    for number in 1..=8 {
        let key = StoreKey::new(number).unwrap();
        let place = contents.add(key);
        let expected = if place.is_some() { StoreAnswer::Absent } else { StoreAnswer::NoRoom };
        assert_eq!((inserted.one(0, number, "insert").0, contents.owner(key)), (expected, 0));
        places.extend(place.map(|row| (key, row)));
    }
    assert_eq!(places.len(), 6);
    for (row, payload) in contents.payloads(0) {
        table.write_payload(&filled.region, row, &payload);
    }
    for row in 0..table.rows {
        let key = |pair: &Pair| table.read_row(&pair.region, row).1[0];
        assert_eq!(key(&inserted), key(&filled), "row {row}");
    }
    places.iter().for_each(|(key, row)| filled.stores[0].learn(*key, *row));
    for number in 1..=8 {
        let found = [0, 1].map(|store| filled.one(store, number, "get"));
        let expected = inserted.one(1, number, "get").0;
        assert_eq!(found, [(expected, 0); 2], "key {number}");
    }
    assert_eq!((filled.stats(0).cached, filled.stats(0).stale), (6, 0));
    assert_eq!(filled.one(0, 1, "delete").0, StoreAnswer::Present);
    assert_eq!(filled.one(1, 1, "insert"), (StoreAnswer::Absent, 101));
}
