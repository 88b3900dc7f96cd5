//! A store with next to no memory, a temporary file and a disk that may fail, beside one with all
//! the memory: random histories must look the same through every snapshot in both, except that
//! those of the small one may fail where its file does not do.

use super::*;
use crate::rng::Rng;
use clearway_env::{Disk, FOR_EVER, Fault, FaultPlan, MemDisk, Role, When, Zone};
use clearway_storage::{SpillFile, SpillWrite};
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::time::Duration;

const TREES: [TreeId; 2] = [TreeId(7), TreeId(8)];

type Row = (TreeId, Vec<u8>);
type Value = Option<Vec<u8>>;
type KeyValue = (Vec<u8>, Vec<u8>);

/// A transaction that is active: what its rows were before.
struct Writer {
    id: TxnId,
    undo: BTreeMap<Row, Value>,
}

/// How much room the small store has.
#[derive(Clone, Copy)]
struct Setting {
    keys: u64,
    budget: usize,
    slot: usize,
    slots: u64,
    faults: &'static [Fault],
}

struct Twins {
    rng: Rng,
    setting: Setting,
    snapshots: Arc<Snapshots>,
    small: Versions,
    large: Versions,
    writes: Vec<SpillWrite>,
    now: BTreeMap<Row, Vec<u8>>,
    writers: Vec<Writer>,
    open: Vec<(crate::Snapshot, bool)>,
    end: u64,
    next_txn: u64,
    reads: u64,
    old: u64,
    spilled: u64,
    failed: u64,
}

fn key(n: u64) -> Vec<u8> {
    // Some are prefixes of others.
    format!("{:03}", n / 2).into_bytes().into_iter().chain((n % 2 == 1).then_some(0)).collect()
}

impl Twins {
    fn new(seed: u64, setting: Setting) -> Self {
        let (disk, dir) = (MemDisk::new(), Path::new("/db"));
        disk.create_dir_all(dir).expect("a directory");
        let zone = Zone::under(Role::Cache, "versions", dir);
        let zone = setting.faults.iter().fold(zone, |zone, fault| zone.fault(*fault, When::OneIn(15), FOR_EVER));
        disk.set_faults(Some(Arc::new(FaultPlan::new(seed, Duration::ZERO, vec![zone]))));
        let snapshots = Arc::<Snapshots>::default();
        let mut small = Versions::new(snapshots.clone(), setting.budget, u32::MAX);
        small.spill.use_file(SpillFile::new(Arc::new(disk), dir, setting.slots * setting.slot as u64, setting.slot));
        Self {
            rng: Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            setting,
            large: Versions::new(snapshots.clone(), usize::MAX, u32::MAX),
            small,
            snapshots,
            writes: Vec::new(),
            now: BTreeMap::new(),
            writers: Vec::new(),
            open: Vec::new(),
            end: 8,
            next_txn: 1,
            reads: 0,
            old: 0,
            spilled: 0,
            failed: 0,
        }
    }

    fn both(&mut self, mut change: impl FnMut(&mut Versions)) {
        change(&mut self.large);
        change(&mut self.small);
        self.writes.extend(self.small.spill.take_writes());
    }

    fn random_row(&mut self) -> Row {
        (TREES[self.rng.below(2) as usize], key(self.rng.below(self.setting.keys)))
    }

    fn random_value(&mut self) -> Value {
        let (n, len) = (self.rng.below(250) as u8, self.rng.below(40));
        // Now and then one that does not fit in a slot.
        let len = if self.rng.below(50) == 0 { 3 * self.setting.slot as u64 } else { len };
        (self.rng.below(4) > 0).then(|| vec![n; len as usize])
    }

    /// A row that no writer but this one has changed.
    fn free_row(&mut self, writer: Option<usize>) -> Option<Row> {
        let row = self.random_row();
        let locked = |(at, w): (usize, &Writer)| Some(at) != writer && w.undo.contains_key(&row);
        (!self.writers.iter().enumerate().any(locked)).then_some(row)
    }

    fn put(&mut self, row: &Row, value: Value) {
        match value {
            Some(value) => self.now.insert(row.clone(), value),
            None => self.now.remove(row),
        };
    }

    fn change_alone(&mut self) {
        let Some(row) = self.free_row(None) else { return };
        let (before, after) = (self.now.get(&row).cloned(), self.random_value());
        self.put(&row, after);
        self.end += 8;
        let commit = Lsn(self.end);
        self.both(|v| v.changed_for_good(commit, row.0, &row.1, before.clone().map(Into::into)));
    }

    fn change(&mut self) {
        if self.writers.len() < 3 && self.rng.below(3) == 0 {
            self.writers.push(Writer { id: TxnId(self.next_txn), undo: BTreeMap::new() });
            self.next_txn += 1;
        }
        if self.writers.is_empty() {
            return;
        }
        let at = self.rng.below(self.writers.len() as u64) as usize;
        let Some(row) = self.free_row(Some(at)) else { return };
        let (before, after) = (self.now.get(&row).cloned(), self.random_value());
        let (id, moves) = (self.writers[at].id, after.is_none() && self.rng.below(2) == 0);
        self.both(|v| {
            if v.keeps() && !v.has(row.0, &row.1, id) {
                v.changed(id, row.0, &row.1, before.clone().map(Into::into));
            }
            if moves {
                v.moves(id, row.0, &row.1);
            }
        });
        self.writers[at].undo.entry(row.clone()).or_insert(before);
        self.put(&row, after);
    }

    fn finish(&mut self) {
        if self.writers.is_empty() {
            return;
        }
        let at = self.rng.below(self.writers.len() as u64) as usize;
        let Writer { id, undo } = self.writers.swap_remove(at);
        if self.rng.below(4) == 0 {
            undo.into_iter().for_each(|(row, before)| self.put(&row, before));
            return self.both(|v| v.undone(id));
        }
        self.end += 8;
        let commit = Lsn(self.end);
        self.both(|v| v.committed(id, commit));
    }

    fn open(&mut self) {
        let opening = self.snapshots.begin();
        if let Some(generation) = opening.generation() {
            let mut active = Vec::new();
            for writer in &self.writers {
                let image = |(row, before): (&Row, &Value)| {
                    (writer.id, row.0, Key::from(row.1.as_slice()), before.clone().map(Into::into))
                };
                active.extend(writer.undo.iter().map(image));
            }
            self.both(|v| v.keep(generation, active.clone(), Vec::new()));
        }
        let end = Lsn(self.end);
        self.open.push((opening.open(|| end), false));
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            let at = self.rng.below(self.open.len() as u64) as usize;
            self.open.swap_remove(at);
            self.both(|v| v.tidy());
        }
    }

    /// What the small store shows, with what it lacks read in between; `None`: the snapshot has
    /// failed.
    fn patiently<R>(
        &mut self,
        as_of: AsOf,
        look: impl Fn(&Versions, &BTreeMap<Row, Vec<u8>>) -> Result<R, Stop>,
    ) -> Option<R> {
        let mut loaded = None;
        for _ in 0..1000 {
            self.small.lend(loaded.take());
            if self.small.check(as_of).is_err() {
                return None;
            }
            match look(&self.small, &self.now) {
                Ok(result) => return Some(result),
                Err(Stop::Spilled(lacking)) => {
                    self.spilled += 1;
                    let had = self.small.spill.set_aside();
                    let (read, next) = self.small.spill.read(had, lacking);
                    read.run();
                    loaded = Some(next);
                }
                Err(stop) => panic!("{stop:?}"),
            }
        }
        panic!("no progress");
    }

    /// Holds what a snapshot sees in both stores against each other.
    fn compare(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let n = self.rng.below(self.open.len() as u64) as usize;
        let mut me = TxnId(u64::MAX);
        if !self.writers.is_empty() && self.rng.below(3) == 0 {
            me = self.writers[self.rng.below(self.writers.len() as u64) as usize].id;
        }
        let as_of = AsOf { at: self.open[n].0.lsn(), me, repeatable: true };
        let (row, reverse) = (self.random_row(), self.rng.below(2) == 0);
        let (from, to) = (self.random_bound(), self.random_bound());
        let point = |v: &Versions, now: &BTreeMap<Row, Vec<u8>>| {
            let value = v.value_at(row.0, &row.1, now.get(&row).map(Vec::as_slice), as_of)?.map(<[u8]>::to_vec);
            Ok((value, v.since(row.0, &row.1, as_of)?))
        };
        let range = |v: &Versions, now: &BTreeMap<Row, Vec<u8>>| scan(v, now, row.0, (&from, &to), reverse, as_of);
        let expected = (point(&self.large, &self.now).expect("memory"), range(&self.large, &self.now).expect("memory"));
        let got = self.patiently(as_of, point);
        let got = got.and_then(|point| Some((point, self.patiently(as_of, range)?)));
        let failed_before = self.open[n].1;
        match got {
            Some(got) => {
                assert!(!failed_before, "a snapshot that has failed stays so");
                assert!(got.0 == expected.0, "{as_of:?} {row:?}: {:?} instead of {:?}", got.0, expected.0);
                assert!(got.1 == expected.1, "{as_of:?} {from:?} {to:?} {reverse}");
                self.reads += 1;
                self.old += u64::from(got.0.0.as_ref() != self.now.get(&row));
            }
            None => {
                self.failed += u64::from(!failed_before);
                let at = as_of.at;
                self.open.iter_mut().filter(|(s, _)| s.lsn() <= at).for_each(|(_, failed)| *failed = true);
            }
        }
    }

    fn random_bound(&mut self) -> Bound<Vec<u8>> {
        let key = key(self.rng.below(self.setting.keys));
        match self.rng.below(4) {
            0 => Bound::Included(key),
            1 => Bound::Excluded(key),
            _ => Bound::Unbounded,
        }
    }

    fn step(&mut self) {
        match self.rng.below(60) {
            0 | 1 if self.open.len() < 4 => self.open(),
            2 => self.close(),
            3..=5 => self.finish(),
            6..=25 => self.change_alone(),
            26..=50 => self.change(),
            51..=53 => self.compare(),
            _ if !self.writes.is_empty() => {
                let at = self.rng.below(self.writes.len() as u64) as usize;
                self.writes.swap_remove(at).run();
            }
            _ => {}
        }
    }

    fn active_bytes(&self) -> usize {
        self.small.kept.as_ref().map_or(0, |kept| kept.bytes - kept.stamped)
    }
}

/// The range as [`crate::versioned::Versioned::scan_at`] reads it.
fn scan(
    versions: &Versions,
    now: &BTreeMap<Row, Vec<u8>>,
    tree: TreeId,
    (from, to): (&Bound<Vec<u8>>, &Bound<Vec<u8>>),
    reverse: bool,
    as_of: AsOf,
) -> Result<Vec<KeyValue>, Stop> {
    let bounds = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
    let mut rows = Vec::new();
    let mut visit = |key: &[u8], value: Option<&[u8]>| {
        rows.extend(value.map(|value| (key.to_vec(), value.to_vec())));
        ControlFlow::Continue(())
    };
    let within = |row: &Row| row.0 == tree && std::ops::RangeBounds::<[u8]>::contains(&bounds, &row.1[..]);
    let mut keys: Vec<_> = now.iter().filter(|(row, _)| within(row)).collect();
    if reverse {
        keys.reverse();
    }
    let mut images = versions.between(tree, bounds.0, bounds.1, reverse, as_of);
    for ((_, key), value) in keys {
        assert!(!images.before(Some(key), &mut visit)?);
        let value = images.value(key, value)?;
        let _ = visit(key, value);
    }
    images.before(None, &mut visit)?;
    Ok(rows)
}

fn run(seeds: u64, setting: Setting) -> Twins {
    let mut last = None;
    let mut sums = (0, 0, 0, 0);
    for seed in 1..=seeds {
        let mut twins = Twins::new(seed, setting);
        for _ in 0..3000 {
            twins.step();
        }
        twins.writes.drain(..).for_each(SpillWrite::run);
        (0..100).for_each(|_| twins.small.tidy());
        let file = twins.small.spill.block_bytes().unwrap_or(0);
        let most = setting.budget.max(64 << 10) + 4 * file + twins.active_bytes();
        assert!(twins.small.bytes() <= most, "{} of {most}", twins.small.bytes());
        (0..30).for_each(|_| twins.compare());
        twins.open.clear();
        twins.both(|v| v.tidy());
        twins.writers.clear();
        sums = (sums.0 + twins.reads, sums.1 + twins.old, sums.2 + twins.spilled, sums.3 + twins.failed);
        last = Some(twins);
    }
    let mut last = last.expect("a seed");
    (last.reads, last.old, last.spilled, last.failed) = sums;
    last
}

const ROOMY: Setting = Setting { keys: 300, budget: 3_000, slot: 1024, slots: 10_000, faults: &[] };

#[test]
fn spilled_images_are_seen_as_those_in_memory() {
    let seen = run(30, ROOMY);
    assert_eq!(seen.failed, 0, "there is room for all");
    assert!(seen.reads > 1500 && seen.old > 150 && seen.spilled > 1500, "{} {} {}", seen.reads, seen.old, seen.spilled);
}

/// Invariant 4: where the file does not do, snapshots fail, and those that do not see what they
/// should.
#[test]
fn a_full_file_fails_the_oldest_snapshots_only() {
    let seen = run(30, Setting { slots: 8, ..ROOMY });
    assert!(
        seen.reads > 500 && seen.spilled > 150 && seen.failed > 15,
        "{} {} {}",
        seen.reads,
        seen.spilled,
        seen.failed
    );
    let without = run(20, Setting { slots: 0, ..ROOMY });
    assert!(without.reads > 100 && without.spilled == 0 && without.failed > 10, "{} {}", without.reads, without.failed);
}

#[test]
fn a_disk_that_fails_fails_snapshots_only() {
    for faults in [
        &[Fault::FailedWrite][..],
        &[Fault::FailedRead],
        &[Fault::LostWrite, Fault::MisledWrite, Fault::FlippedBit],
        &[Fault::FailedOpen],
    ] {
        let seen = run(10, Setting { faults, ..ROOMY });
        assert!(seen.reads > 50 && seen.failed > 0, "{faults:?}: {} {}", seen.reads, seen.failed);
    }
}

fn kept_lost(versions: &Versions) -> Lsn {
    versions.kept.as_ref().expect("images are kept").lost
}

/// Invariant 3: a row that is changed all the time has one image for each snapshot, wherever it is.
#[test]
fn a_hot_row_leaves_one_image_for_each_snapshot() {
    let mut twins = Twins::new(1, Setting { keys: 100_000, budget: 200_000, ..ROOMY });
    let hot = (TREES[0], b"hot".to_vec());
    for snapshots in 1..=2 {
        twins.open();
        for _ in 0..4000 {
            for row in [hot.clone(), twins.random_row()] {
                twins.end += 8;
                let commit = Lsn(twins.end);
                let before = twins.now.get(&row).cloned();
                twins.put(&row, Some(commit.0.to_le_bytes().to_vec()));
                twins.both(|v| v.changed_for_good(commit, row.0, &row.1, before.clone().map(Into::into)));
            }
            twins.writes.drain(..).for_each(SpillWrite::run);
        }
        let images = |v: &Versions| {
            let kept = v.kept.as_ref().expect("images are kept");
            kept.chains.get(&hot.0).and_then(|chains| Some(chains.get(&hot.1[..])?.len())).unwrap_or(0)
        };
        assert_eq!((images(&twins.large), kept_lost(&twins.small)), (snapshots, Lsn(0)));
        assert!(twins.small.spill.bytes() > 0 && images(&twins.small) <= snapshots);
        let at = twins.open.last().expect("it is open").0.lsn();
        let as_of = AsOf { at, me: TxnId(u64::MAX), repeatable: true };
        let (tree, key) = hot.clone();
        let spilled = twins.patiently(as_of, move |v, _| Ok(v.spill.before(tree, &key, at)?.is_some()));
        // What the newest snapshot needs is in memory alone.
        assert_eq!(spilled, Some(false));
    }
}

/// A failed write takes room in memory, no more.
#[test]
fn everything_is_let_go_when_the_last_snapshot_closes() {
    for faults in [&[][..], &[Fault::FailedWrite]] {
        let mut twins = run(3, Setting { faults, ..ROOMY });
        twins.snapshots.retire();
        twins.both(|v| v.tidy());
        assert_eq!((twins.small.bytes(), twins.large.bytes()), (0, 0));
        assert!(twins.small.kept.is_none() && twins.small.spill.is_empty());
    }
}
