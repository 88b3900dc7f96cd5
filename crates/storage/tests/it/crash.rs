//! Crashes at random moments, on a disk that loses any of the unsynced sectors. Durable data is
//! there, committed transactions are complete, all others are gone. This also holds if recovery is
//! killed repeatedly.

use std::collections::BTreeMap;

use crate::check::assert_sound;
use crate::common::{Model, Random, World, as_model, config};
use clearway_storage::{
    Addend, Addends, Incremented, Inserted, NodeConfig, OpenError, Trees, TxnLog, TxnMode,
};
use clearway_testkit::MemDisk;
use clearway_types::{Lsn, TreeId};

const PARTITIONS: u16 = 2;
const FRAMES: u32 = 48;
const SPACE: u64 = 600;
/// Each running transaction changes only keys whose last byte is its slot, as row locks would
/// ensure.
const SLOTS: usize = 4;

type State = BTreeMap<(usize, u32), Model>;
/// Partition, tree, key, and the change of its value.
type Change = (usize, u32, Vec<u8>, NewValue);

#[derive(Clone)]
enum NewValue {
    Value(Option<Vec<u8>>),
    Added(Addends),
}

/// Keys that all transactions add to, and that nobody changes otherwise. Some of their values have
/// overflow pages.
const COUNTERS: u64 = 4;

fn counter(n: u64) -> (Vec<u8>, Vec<u8>) {
    (vec![b'c', n as u8, SLOTS as u8 + 1], vec![n as u8; 30 + 3000 * n as usize])
}

fn random_addends(random: &Random) -> Addends {
    let mut addends = Addends::default();
    for (offset, width) in [(0, 2), (3, 4), (7, 8), (22, 8)] {
        if random.below(2) == 0 {
            let delta = random.below(u64::MAX) as i64;
            // As an integer of that width would store it.
            let delta = delta << (64 - 8 * width) >> (64 - 8 * width);
            assert!(addends.push(Addend { offset, width: width as u8, delta }));
        }
    }
    addends
}

/// A key that belongs to `slot`; slot `SLOTS` is for changes that commit by themselves.
fn key_of(random: &Random, slot: usize) -> Vec<u8> {
    let mut key = random.key(SPACE);
    key.push(slot as u8);
    key
}

struct Running {
    logs: Vec<TxnLog>,
    /// What it has changed so far.
    changes: Vec<Change>,
    /// For each savepoint: marks in the logs, and the number of changes.
    savepoints: Vec<(Vec<usize>, usize)>,
}

struct Run {
    world: World,
    random: Random,
    /// All committed states, oldest first, each with the end of its commit record.
    history: Vec<(Lsn, State)>,
    running: Vec<Option<Running>>,
    long: bool,
    /// A tree that is created and dropped, so that its pages are reused.
    scratch: Option<TreeId>,
    next_tree: u32,
}

fn apply(state: &mut State, changes: &[Change]) {
    for (partition, tree, key, value) in changes {
        let model = state.entry((*partition, *tree)).or_default();
        match value {
            NewValue::Value(Some(value)) => drop(model.insert(key.clone(), value.clone())),
            NewValue::Value(None) => drop(model.remove(key)),
            NewValue::Added(addends) => {
                assert!(model.get_mut(key).is_some_and(|value| addends.add_to(value)))
            }
        }
    }
}

impl Run {
    fn commit(&mut self, lsn: Lsn, changes: &[Change]) {
        let mut state = self.history.last().map(|(_, state)| state.clone()).unwrap_or_default();
        apply(&mut state, changes);
        self.history.push((lsn, state));
    }

    fn current(&self, slot: usize, partition: usize, tree: u32, key: &[u8]) -> Option<Vec<u8>> {
        let mut state = self.history.last().map(|(_, state)| state.clone()).unwrap_or_default();
        apply(&mut state, &self.running[slot].as_ref().unwrap().changes);
        state.get(&(partition, tree)).and_then(|m| m.get(key)).cloned()
    }

    fn change(&mut self, slot: usize) {
        let (partition, tree) =
            (self.random.below(PARTITIONS.into()) as usize, 1 + self.random.below(2) as u32);
        let key = key_of(&self.random, slot);
        let now = self.current(slot, partition, tree, &key);
        let value = (self.random.below(3) > 0).then(|| self.random.value(9000));
        let mut running = self.running[slot].take().unwrap();
        let (log, id) = (&mut running.logs[partition], TreeId(tree));
        let world = &mut self.world;
        match &value {
            Some(value) if now.is_none() => {
                let done = world
                    .run(partition, |s| s.insert(log, TxnMode::Logged, id, &key, value))
                    .unwrap();
                assert_eq!(done, Inserted::Ok);
            }
            Some(value) => {
                assert!(
                    world
                        .run(partition, |s| s.update(log, TxnMode::Logged, id, &key, value))
                        .unwrap()
                );
            }
            None => {
                let done =
                    world.run(partition, |s| s.delete(log, TxnMode::Logged, id, &key)).unwrap();
                assert_eq!(done, now.is_some());
            }
        }
        running.changes.push((partition, tree, key, NewValue::Value(value)));
        self.running[slot] = Some(running);
    }

    /// Adds to a counter, regardless of additions by others. With `alone`: by a transaction of one
    /// record.
    fn add(&mut self, slot: usize, alone: bool) {
        let (partition, tree) =
            (self.random.below(PARTITIONS.into()) as usize, 1 + self.random.below(2) as u32);
        let ((key, _), addends) =
            (counter(self.random.below(COUNTERS)), random_addends(&self.random));
        let id = TreeId(tree);
        let change = (partition, tree, key.clone(), NewValue::Added(addends));
        let world = &mut self.world;
        if alone {
            let mut value = Vec::new();
            assert!(
                world
                    .run(partition, |s| {
                        value.clear();
                        s.get(id, &key, &mut |now| value.extend_from_slice(now))
                    })
                    .unwrap()
            );
            assert!(addends.add_to(&mut value));
            let lsn = world
                .run(partition, |s| s.update_autocommit(id, &key, &value))
                .unwrap()
                .expect("it is there");
            return self.commit(lsn, &[change]);
        }
        let Some(running) = &mut self.running[slot] else { return };
        let log = &mut running.logs[partition];
        let done = world.run(partition, |s| {
            s.increment(log, TxnMode::Logged, id, &key, &mut |_| Some(addends))
        });
        assert_eq!(done.unwrap(), Incremented::Done(addends));
        running.changes.push(change);
    }

    fn rollback(&mut self, running: &mut Running, marks: &[usize]) {
        for (partition, log) in running.logs.iter_mut().enumerate() {
            self.world
                .run(partition, |s| s.rollback(log, marks[partition], &mut |_, _, _| {}))
                .unwrap();
        }
    }

    fn end(&mut self, slot: usize) {
        let mut running = self.running[slot].take().unwrap();
        if self.random.below(3) == 0 {
            self.rollback(&mut running, &[0; PARTITIONS as usize]);
            for (store, log) in self.world.stores.iter_mut().zip(running.logs) {
                store.aborted(log);
            }
            return;
        }
        let involved = running.logs.iter().filter(|log| !log.is_empty()).count();
        let id = running.logs[0].id;
        let several = (involved > 1).then(|| self.world.node.commit(id));
        let mut lsn = several;
        for (store, log) in self.world.stores.iter_mut().zip(running.logs) {
            match several {
                Some(_) => store.committed(log),
                None if !log.is_empty() => lsn = Some(store.commit_local(log)),
                // Nothing to undo, but perhaps something was undone.
                None => store.aborted(log),
            }
        }
        if let Some(lsn) = lsn {
            self.commit(lsn, &running.changes);
        }
    }

    fn autocommit(&mut self) {
        let (partition, tree) =
            (self.random.below(PARTITIONS.into()) as usize, 1 + self.random.below(2) as u32);
        let (key, value) = (key_of(&self.random, SLOTS), self.random.value(5000));
        let id = TreeId(tree);
        let lsn =
            match self.world.run(partition, |s| s.update_autocommit(id, &key, &value)).unwrap() {
                Some(lsn) => lsn,
                None => self
                    .world
                    .run(partition, |s| s.insert_autocommit(id, &key, &value))
                    .unwrap()
                    .unwrap(),
            };
        self.commit(lsn, &[(partition, tree, key, NewValue::Value(Some(value)))]);
    }

    fn scratch(&mut self) {
        let Some(tree) = self.scratch else {
            let tree = TreeId(self.next_tree);
            self.next_tree += 1;
            self.world.run(0, |s| s.create_tree(tree)).unwrap();
            self.scratch = Some(tree);
            return;
        };
        if self.random.below(3) == 0 {
            for _ in 0..1 + self.random.below(3) {
                if self.world.run(0, |s| s.drop_tree(tree)).unwrap() {
                    self.scratch = None;
                    return;
                }
            }
        }
        for _ in 0..if self.world.stores[0].has_tree(tree) { 40 } else { 0 } {
            let (key, value) = (self.random.key(SPACE), self.random.value(9000));
            self.world.run(0, |s| s.insert_autocommit(tree, &key, &value)).unwrap();
        }
    }

    fn step(&mut self) {
        let slot = self.random.below(SLOTS as u64) as usize;
        let choice = self.random.below(100);
        if choice < 10 {
            return match choice {
                0 | 1 => self.scratch(),
                2 | 3 => self.add(slot, true),
                _ => self.autocommit(),
            };
        }
        let Some(running) = &mut self.running[slot] else {
            let id = self.world.node.alloc_txn_id();
            let logs = (0..PARTITIONS).map(|_| TxnLog::new(id)).collect();
            self.running[slot] =
                Some(Running { logs, changes: Vec::new(), savepoints: Vec::new() });
            return;
        };
        match choice {
            10..60 => self.change(slot),
            60..75 => self.add(slot, false),
            75..82 => {
                let marks = running.logs.iter().map(TxnLog::mark).collect();
                running.savepoints.push((marks, running.changes.len()));
            }
            82..88 => {
                let mut running = self.running[slot].take().unwrap();
                if let Some((marks, changes)) = running.savepoints.pop() {
                    self.rollback(&mut running, &marks);
                    running.changes.truncate(changes);
                }
                self.running[slot] = Some(running);
            }
            // In some runs transactions are long, so that their undo does not fit in the pool.
            88..97 if self.long && self.random.below(10) > 0 => self.change(slot),
            88..97 => self.end(slot),
            97 => self.world.node.checkpoint().unwrap(),
            _ => {
                let lsn = self.world.node.wal().appended();
                self.world.node.wal().wait_durable(lsn).unwrap();
            }
        }
    }
}

fn state_of(world: &mut World) -> State {
    let mut state = State::new();
    for partition in 0..PARTITIONS as usize {
        for tree in 1..=2 {
            let model = as_model(world.all(partition, TreeId(tree), false));
            assert_eq!(as_model(world.all(partition, TreeId(tree), true)), model);
            if !model.is_empty() {
                state.insert((partition, tree), model);
            }
        }
    }
    state
}

/// In two of three runs transactions keep little or nothing of their undo in memory.
fn open(disk: &MemDisk, seed: u64) -> Result<World, OpenError> {
    let undo_memory = [1 << 20, 2000, 0][seed as usize % 3];
    World::open_with(disk, NodeConfig { undo_memory, ..config(PARTITIONS, FRAMES) })
}

/// How a run ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// The machine loses power.
    Crash,
    /// The process is killed: its writes are in the operating system's cache.
    Kill,
}

/// Returns the disk after the end of the world; `seed` decides the crash.
fn end(disk: &MemDisk, world: impl Sized, how: Ends, seed: u64) -> MemDisk {
    match how {
        Ends::Crash => disk.crash(seed),
        Ends::Kill => {
            disk.fail_after(0);
            drop(world);
            disk.fail_after(u64::MAX);
            disk.clone()
        }
    }
}

/// In `kills` of 100 runs, and of recovery attempts, the process is killed; the others end with a
/// crash.
fn crash_run(seed: u64, kills: u64) {
    let random = Random::new(seed);
    let how = || if random.below(100) < kills { Ends::Kill } else { Ends::Crash };
    let mut disk = MemDisk::new();
    let mut world = open(&disk, seed).unwrap();
    for partition in 0..PARTITIONS as usize {
        for tree in 1..=2 {
            world.run(partition, |s| s.create_tree(TreeId(tree))).unwrap();
        }
    }
    let mut start = State::new();
    for (partition, tree, n) in (0..PARTITIONS as usize)
        .flat_map(|p| (1..=2).map(move |t| (p, t)))
        .flat_map(|(p, t)| (0..COUNTERS).map(move |n| (p, t, n)))
    {
        let (key, value) = counter(n);
        world.run(partition, |s| s.insert_autocommit(TreeId(tree), &key, &value)).unwrap().unwrap();
        start.entry((partition, tree)).or_default().insert(key, value);
    }
    let lsn = world.node.wal().appended();
    world.node.wal().wait_durable(lsn).unwrap();
    let mut history = vec![(Lsn(0), start)];
    for crash in 0..6u64 {
        let steps = 1 + random.below(500);
        let running = (0..SLOTS).map(|_| None).collect();
        let mut run = Run {
            world,
            random: Random::new(seed * 100 + crash),
            history,
            running,
            long: seed % 2 == 1,
            scratch: None,
            next_tree: 3,
        };
        for _ in 0..steps {
            run.step();
        }
        // What is durable before the crash must be there after it.
        let durable = run.world.node.wal().durable();
        history = run.history;
        let mut after = end(&disk, (run.world, run.running), how(), seed ^ crash << 32);
        for attempt in 0..random.below(6) {
            after.fail_after(random.below(45));
            let opened = open(&after, seed);
            after = end(&after, opened, how(), seed + attempt);
        }
        disk = after;
        world = open(&disk, seed).unwrap();
        for tree in world.stores[0].trees().into_iter().filter(|tree| tree.0 > 2) {
            while !world.run(0, |s| s.drop_tree(tree)).unwrap() {}
        }
        let found = state_of(&mut world);
        history.iter_mut().for_each(|(_, state)| state.retain(|_, model| !model.is_empty()));
        let least = history.iter().rposition(|(lsn, _)| *lsn <= durable).unwrap();
        let at = (least..history.len()).find(|&i| history[i].1 == found);
        assert!(
            at.is_some(),
            "seed {seed}, crash {crash}: no committed state from {least} on of {}",
            history.len()
        );
        history = vec![(Lsn(0), found)];
        world.node.checkpoint().unwrap();
        assert_sound(&disk.crash(seed));
    }
    world.node.shutdown();
}

#[test]
fn crash_keeps_exactly_committed_transactions() {
    for seed in 0..30 {
        crash_run(seed, 0);
    }
}

/// What a start has found in the cache, and shown, is there after a later crash.
#[test]
fn crash_after_a_kill_keeps_what_was_recovered() {
    for seed in 100..140 {
        crash_run(seed, 50);
    }
}
