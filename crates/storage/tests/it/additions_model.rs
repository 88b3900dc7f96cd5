//! A model of transactions that add to the same integers concurrently, and change keys in other
//! ways when no other transaction has added to them. It crashes at any moment, also during
//! recovery.
//!
//! The holders of a key stand for row locks: a key has one holder, or several that only add.

use std::collections::{BTreeMap, BTreeSet};

use crate::additions::addends;
use crate::check::assert_sound;
use crate::common::{Model, Random, World, as_model, config};
use clearway_storage::{
    Addends, Incremented, Inserted, NodeConfig, OpenError, Prior, Trees, TxnLog, TxnMode,
};
use clearway_testkit::MemDisk;
use clearway_types::{Lsn, TreeId};

const TREE: TreeId = TreeId(1);
const TXNS: usize = 4;
const KEYS: u64 = 12;

enum ChangeKind {
    Add(Addends),
    /// The new value; `None` if the key is deleted.
    Set(Option<Vec<u8>>),
}

struct Op {
    key: Vec<u8>,
    what: ChangeKind,
}

struct Txn {
    log: TxnLog,
    ops: Vec<Op>,
    savepoints: Vec<usize>,
    /// What it has added to, and what it has changed in other ways, since it began.
    added: BTreeSet<Vec<u8>>,
    owned: BTreeSet<Vec<u8>>,
}

impl Txn {
    fn apply(&self, model: &mut Model) {
        for Op { key, what } in &self.ops {
            match what {
                ChangeKind::Set(Some(value)) => drop(model.insert(key.clone(), value.clone())),
                ChangeKind::Set(None) => drop(model.remove(key)),
                ChangeKind::Add(addends) => {
                    assert!(addends.add_to(model.get_mut(key).expect("it is there")));
                }
            }
        }
    }
}

struct Run<'r> {
    world: World,
    random: &'r Random,
    txns: Vec<Option<Txn>>,
    /// All committed states, oldest first, each with the end of its commit record.
    history: Vec<(Lsn, Model)>,
    /// True if all undo stays in memory.
    all_in_memory: bool,
}

/// Short, nearly as long as a cell, or in overflow pages; never too short for an integer at offset
/// 30.
fn value(random: &Random) -> Vec<u8> {
    let len = match random.below(6) {
        0 => 9_000 + random.below(9_000),
        1 => 1_600 + random.below(400),
        _ => 40 + random.below(60),
    };
    let salt = random.below(256) as u8;
    (0..len).map(|i| (i as u8).wrapping_mul(7) ^ salt).collect()
}

/// Integers at fixed offsets that do not overlap, and one at the end of the value.
fn draw(random: &Random, len: usize) -> Addends {
    let places = [(0, 2), (2, 8), (11, 4), (len as u16 - 8, 8)];
    let mut chosen = Vec::new();
    while chosen.is_empty() {
        chosen.extend(places.iter().filter(|_| random.below(2) == 0));
    }
    let delta = || {
        random.pick(&[1, -1, 1 << 15, i64::MAX, i64::MIN, -70_000, random.below(u64::MAX) as i64])
    };
    let all: Vec<_> = chosen.into_iter().map(|(offset, width)| (offset, width, delta())).collect();
    addends(&all)
}

impl Run<'_> {
    /// Returns what the tree must contain now.
    fn now(&self) -> Model {
        let mut model = self.history.last().map(|(_, model)| model.clone()).unwrap_or_default();
        self.txns.iter().flatten().for_each(|txn| txn.apply(&mut model));
        model
    }

    fn change(&mut self, at: usize) {
        let key = format!("key {:02}", self.random.below(KEYS)).into_bytes();
        let others = || {
            self.txns.iter().enumerate().filter(|(i, _)| *i != at).filter_map(|(_, t)| t.as_ref())
        };
        let owned = others().any(|txn| txn.owned.contains(&key));
        let shared = others().any(|txn| txn.added.contains(&key));
        let now = self.now().remove(&key);
        let mut txn = self.txns[at].take().unwrap();
        let log = &mut txn.log;
        let what = match now {
            _ if owned => None,
            Some(now) if shared || self.random.below(4) > 0 => {
                let what = draw(self.random, now.len());
                let done = self.world.run(0, |s| {
                    s.increment(log, TxnMode::Logged, TREE, &key, &mut |value| {
                        assert!(value == now, "another value than expected");
                        Some(what)
                    })
                });
                assert_eq!(done.unwrap(), Incremented::Done(what));
                txn.added.insert(key.clone());
                Some(ChangeKind::Add(what))
            }
            _ if shared => None,
            Some(_) if self.random.below(3) == 0 => {
                assert!(self.world.run(0, |s| s.delete(log, TxnMode::Logged, TREE, &key)).unwrap());
                Some(ChangeKind::Set(None))
            }
            now => {
                let new = value(self.random);
                if now.is_some() {
                    let done =
                        self.world.run(0, |s| s.update(log, TxnMode::Logged, TREE, &key, &new));
                    assert!(done.unwrap());
                } else {
                    let done =
                        self.world.run(0, |s| s.insert(log, TxnMode::Logged, TREE, &key, &new));
                    assert_eq!(done.unwrap(), Inserted::Ok);
                }
                Some(ChangeKind::Set(Some(new)))
            }
        };
        if let Some(what) = what {
            if matches!(what, ChangeKind::Set(_)) {
                txn.owned.insert(key.clone());
            }
            txn.ops.push(Op { key, what });
        }
        self.txns[at] = Some(txn);
    }

    /// Undoes all changes except the first `to`, and expects each of their additions to be reported
    /// once.
    fn rollback(&mut self, txn: &mut Txn, to: usize) {
        let mut told = Vec::new();
        let log = &mut txn.log;
        let mut undone = |tree, key: &[u8], addends: &Addends| {
            assert_eq!(tree, TREE);
            told.push((key.to_vec(), *addends));
        };
        self.world.run(0, |s| s.rollback(log, to, &mut undone)).unwrap();
        let additions = txn.ops.drain(to..).rev().filter_map(|op| match op.what {
            ChangeKind::Add(addends) => Some((op.key, addends)),
            ChangeKind::Set(_) => None,
        });
        assert_eq!(told, additions.collect::<Vec<_>>());
    }

    fn end(&mut self, at: usize) {
        let mut txn = self.txns[at].take().unwrap();
        if self.random.below(2) == 0 {
            self.rollback(&mut txn, 0);
            self.world.stores[0].aborted(txn.log);
        } else {
            let mut model = self.history.last().map(|(_, model)| model.clone()).unwrap_or_default();
            txn.apply(&mut model);
            let lsn = self.world.stores[0].commit_local(txn.log);
            if lsn > Lsn(0) {
                self.history.push((lsn, model));
            }
        }
    }

    /// Checks `images` of a transaction: its additions to keys that it has only added to, and the
    /// committed values of its other keys, which no other transaction has changed.
    fn check_images(&mut self, at: usize) {
        let (Some(txn), Some((_, committed))) = (&self.txns[at], self.history.last()) else {
            return;
        };
        let sets = |key: &[u8]| {
            txn.ops.iter().any(|op| op.key == key && matches!(op.what, ChangeKind::Set(_)))
        };
        let mut expected = BTreeMap::<_, Vec<Addends>>::new();
        for op in txn.ops.iter().rev() {
            match &op.what {
                ChangeKind::Add(addends) if !sets(&op.key) => {
                    expected.entry(op.key.clone()).or_default().push(*addends);
                }
                _ => drop(expected.insert(op.key.clone(), Vec::new())),
            }
        }
        let (mut told, mut seen) = (BTreeMap::<_, Vec<Addends>>::new(), true);
        let all = self.world.run(0, |s| {
            (told, seen) = (BTreeMap::new(), true);
            s.images(&txn.log, &mut |tree, key, prior| {
                let additions = told.entry(key.to_vec()).or_default();
                match prior {
                    Prior::Added(addends) => additions.push(*addends),
                    Prior::Value(value) => seen &= committed.get(key).map(Vec::as_slice) == value,
                }
                assert_eq!(tree, TREE);
            })
        });
        if all.unwrap() {
            assert!(seen, "another value than the committed one");
            assert_eq!(told, expected);
        } else {
            assert!(!self.all_in_memory && told.is_empty());
        }
    }

    fn step(&mut self) {
        let at = self.random.below(TXNS as u64) as usize;
        let Some(txn) = &mut self.txns[at] else {
            let log = TxnLog::new(self.world.node.alloc_txn_id());
            let (added, owned) = (BTreeSet::new(), BTreeSet::new());
            self.txns[at] =
                Some(Txn { log, ops: Vec::new(), savepoints: Vec::new(), added, owned });
            return;
        };
        match self.random.below(100) {
            0..68 => self.change(at),
            68..75 => txn.savepoints.push(txn.log.mark()),
            75..82 => {
                let mut txn = self.txns[at].take().unwrap();
                if let Some(mark) = txn.savepoints.pop() {
                    self.rollback(&mut txn, mark);
                }
                self.txns[at] = Some(txn);
            }
            82..88 => self.end(at),
            88..93 => self.check_images(at),
            93..96 => {
                let found = as_model(self.world.all(0, TREE, false));
                assert!(found == self.now(), "other rows than expected");
            }
            96 => self.world.node.checkpoint().unwrap(),
            _ => {
                let lsn = self.world.node.wal().appended();
                self.world.node.wal().wait_durable(lsn).unwrap();
            }
        }
    }
}

fn open(disk: &MemDisk, undo_memory: usize) -> Result<World, OpenError> {
    World::open_with(disk, NodeConfig { undo_memory, ..config(1, 48) })
}

/// Runs lives that end with a crash, each followed by starts that are killed.
pub fn run(seed: u64, lives: u64, most_steps: u64) {
    let random = Random::new(seed);
    let undo_memory = [1 << 20, 400, 0][seed as usize % 3];
    let mut disk = MemDisk::new();
    let mut world = open(&disk, undo_memory).unwrap();
    world.run(0, |s| s.create_tree(TREE)).unwrap();
    let lsn = world.node.wal().appended();
    world.node.wal().wait_durable(lsn).unwrap();
    let mut history = vec![(Lsn(0), Model::new())];
    for life in 0..lives {
        let txns = (0..TXNS).map(|_| None).collect();
        let all_in_memory = undo_memory == 1 << 20;
        let mut run = Run { world, random: &random, txns, history, all_in_memory };
        for _ in 0..most_steps / 2 + random.below(most_steps / 2) {
            run.step();
        }
        let durable = run.world.node.wal().durable();
        history = run.history;
        let mut after = disk.crash(seed ^ life << 32);
        drop((run.world, run.txns));
        for attempt in 0..random.below(6) {
            after.fail_after(random.below(60));
            let opened = open(&after, undo_memory);
            let crashed = after.crash(seed + attempt);
            drop(opened);
            after = crashed;
        }
        disk = after;
        world = open(&disk, undo_memory).unwrap();
        let found = as_model(world.all(0, TREE, false));
        let least = history.iter().rposition(|(lsn, _)| *lsn <= durable).unwrap();
        let at = (least..history.len()).find(|&i| history[i].1 == found);
        assert!(at.is_some(), "seed {seed}, life {life}: no committed state from {least} on");
        history = vec![(Lsn(0), found)];
        world.node.checkpoint().unwrap();
        assert_sound(&disk.crash(seed));
    }
    world.node.shutdown();
}

#[test]
fn concurrent_additions_are_undone_individually() {
    for seed in 0..30 {
        run(seed, 4, 400);
    }
}
