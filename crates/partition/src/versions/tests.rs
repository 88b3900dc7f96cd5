//! Compares a store with almost no memory, a temporary file and a disk that may fail with one that
//! has unlimited memory. Random histories must look the same through every snapshot in both, except
//! that snapshots of the small store may fail if its file is insufficient.

use super::*;
use clearway_env::Disk;
use clearway_storage::{Addend, SpillFile, SpillWrite};
use clearway_testkit::{FOR_EVER, Fault, FaultPlan, FaultZone, MemDisk, Rng, Role, When};
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::time::Duration;

mod active;
mod hot;
mod random;

const TREES: [TreeId; 2] = [TreeId(7), TreeId(8)];

type Row = (TreeId, Vec<u8>);
type Value = Option<Vec<u8>>;
type KeyValue = (Vec<u8>, Vec<u8>);

/// An active transaction.
struct Writer {
    id: TxnId,
    /// The rows' values before it replaced them.
    undo: BTreeMap<Row, Value>,
    /// Its additions to rows, in order.
    added: Vec<(Row, Addends)>,
    /// Rows that it has added to, even if it has undone that: their locks stay.
    locks: BTreeSet<Row>,
}

impl Writer {
    fn subtract_own(&self, row: &Row, value: &mut [u8]) {
        let own = self.added.iter().filter(|(at, _)| at == row);
        own.for_each(|(_, addends)| {
            assert!(addends.subtract_from(value), "the row is long enough")
        });
    }

    /// Returns the images of its changes, as its undo would produce them.
    fn images(&self) -> Vec<(TxnId, TreeId, Key, Change)> {
        let image = |row: &Row, change| (self.id, row.0, Key::from(row.1.as_slice()), change);
        let replaced = self.undo.iter().map(|(row, before)| {
            let mut before = before.clone();
            before.iter_mut().for_each(|value| self.subtract_own(row, value));
            image(row, Change::Replaced(before.map(Into::into)))
        });
        let added = self.added.iter().filter(|(row, _)| !self.undo.contains_key(row));
        replaced
            .chain(added.map(|(row, addends)| image(row, Change::Added(Sum::of(addends)))))
            .collect()
    }
}

/// The capacity of the small store.
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
    /// The same without the changes of active writers.
    committed: BTreeMap<Row, Vec<u8>>,
    writers: Vec<Writer>,
    open: Vec<Open>,
    end: u64,
    next_txn: u64,
    undone: Vec<TxnId>,
    reads: u64,
    old: u64,
    spilled: u64,
    failed: u64,
    /// Failures although no step began with (nearly) all rounds in use.
    failed_early: u64,
    lacked_rounds: bool,
    /// Steps that ended with images of active transactions in the file.
    active_spilled: u64,
}

fn key(n: u64) -> Vec<u8> {
    // Some are prefixes of others.
    format!("{:03}", n / 2).into_bytes().into_iter().chain((n % 2 == 1).then_some(0)).collect()
}

struct Open {
    snapshot: crate::Snapshot,
    failed: bool,
    sees: BTreeMap<Row, Vec<u8>>,
}

/// Draws additions to some of a row's integers; two of these are adjacent.
fn random_addends(rng: &mut Rng) -> Addends {
    let mut addends = Addends::default();
    for (offset, width) in [(1, 4), (5, 2), (7, 8)] {
        if rng.below(2) == 0 {
            addends.push(Addend {
                offset,
                width,
                delta: (rng.below(1 << 31) as i64 - (1 << 30)) * 0x1_0000_0001,
            });
        }
    }
    addends
}

impl Twins {
    fn new(seed: u64, setting: Setting) -> Self {
        let (disk, dir) = (MemDisk::new(), Path::new("/db"));
        disk.create_dir_all(dir).expect("a directory");
        let zone = FaultZone::under(Role::Cache, "versions", dir);
        let zone = setting
            .faults
            .iter()
            .fold(zone, |zone, fault| zone.fault(*fault, When::OneIn(15), FOR_EVER));
        disk.set_faults(Some(Arc::new(FaultPlan::new(seed, Duration::ZERO, vec![zone]))));
        let snapshots = Arc::<Snapshots>::default();
        let mut small = Versions::new(snapshots.clone(), setting.budget, u32::MAX);
        small.spill.use_file(SpillFile::new(
            Arc::new(disk),
            dir,
            setting.slots * setting.slot as u64,
            setting.slot,
        ));
        Self {
            rng: Rng::new(seed),
            setting,
            large: Versions::new(snapshots.clone(), usize::MAX, u32::MAX),
            small,
            snapshots,
            writes: Vec::new(),
            now: BTreeMap::new(),
            committed: BTreeMap::new(),
            writers: Vec::new(),
            open: Vec::new(),
            end: 8,
            next_txn: 1,
            undone: Vec::new(),
            reads: 0,
            old: 0,
            spilled: 0,
            failed: 0,
            failed_early: 0,
            lacked_rounds: false,
            active_spilled: 0,
        }
    }

    fn both(&mut self, mut change: impl FnMut(&mut Versions)) {
        self.lacked_rounds |= self.small.spill.lacks_rounds();
        change(&mut self.large);
        change(&mut self.small);
        self.active_spilled += u64::from(self.small.spill.active_memory() > 0);
        self.writes.extend(self.small.spill.take_writes());
    }

    fn random_row(&mut self) -> Row {
        (TREES[self.rng.below(2) as usize], key(self.rng.below(self.setting.keys)))
    }

    fn random_value(&mut self) -> Value {
        let (n, len) = (self.rng.below(250) as u8, self.rng.below(40));
        // Occasionally one that does not fit in a slot.
        let len = if self.rng.below(50) == 0 { 3 * self.setting.slot as u64 } else { len };
        (self.rng.below(4) > 0).then(|| vec![n; len as usize])
    }

    /// Draws a row that no other writer has changed.
    fn free_row(&mut self, writer: Option<usize>) -> Option<Row> {
        let row = self.random_row();
        let locked = |(at, w): (usize, &Writer)| {
            Some(at) != writer && (w.undo.contains_key(&row) || w.locks.contains(&row))
        };
        (!self.writers.iter().enumerate().any(locked)).then_some(row)
    }

    fn put(&mut self, row: &Row, value: Value) {
        match value {
            Some(value) => self.now.insert(row.clone(), value),
            None => self.now.remove(row),
        };
    }

    /// Gives a row a committed value; returns the end of the commit record.
    fn commit_autocommit(&mut self, row: &Row, value: impl Into<Value>) -> Lsn {
        let value = value.into();
        self.put(row, value.clone());
        match value {
            Some(value) => self.committed.insert(row.clone(), value),
            None => self.committed.remove(row),
        };
        self.end += 8;
        Lsn(self.end)
    }

    fn change_autocommitted(&mut self) {
        let Some(row) = self.free_row(None) else { return };
        let (before, after) = (self.now.get(&row).cloned(), self.random_value());
        let commit = self.commit_autocommit(&row, after);
        self.both(|v| v.changed_autocommit(commit, row.0, &row.1, before.clone().map(Into::into)));
    }

    /// Draws an active writer, which may be new.
    fn writer(&mut self) -> Option<usize> {
        if self.writers.len() < 3 && self.rng.below(3) == 0 {
            // One that was undone may run again with its id.
            let again = self.undone.pop().filter(|_| self.next_txn.is_multiple_of(2));
            self.writers.push(Writer {
                id: again.unwrap_or(TxnId(self.next_txn)),
                undo: BTreeMap::new(),
                added: Vec::new(),
                locks: BTreeSet::new(),
            });
            self.next_txn += 1;
        }
        (!self.writers.is_empty()).then(|| self.rng.below(self.writers.len() as u64) as usize)
    }

    /// Adds to a row concurrently with others, by autocommit or as an active transaction.
    fn add(&mut self) {
        let row =
            (TREES[self.rng.below(2) as usize], key(self.rng.below(1 + self.setting.keys / 20)));
        let at = if self.rng.below(2) == 0 { None } else { self.writer() };
        let addends = random_addends(&mut self.rng);
        let mut others = self.writers.iter().enumerate().filter(|(n, _)| Some(*n) != at);
        let is_own = at.is_some_and(|at| self.writers[at].undo.contains_key(&row));
        if is_own || others.any(|(_, w)| w.undo.contains_key(&row)) {
            return;
        }
        if !self.now.get_mut(&row).is_some_and(|value| addends.add_to(value)) {
            return;
        }
        match at {
            Some(at) => {
                let id = self.writers[at].id;
                self.both(|v| v.added(id, row.0, &row.1, &addends));
                self.writers[at].locks.insert(row.clone());
                self.writers[at].added.push((row, addends));
            }
            None => {
                assert!(self.committed.get_mut(&row).is_some_and(|value| addends.add_to(value)));
                self.end += 8;
                let commit = Lsn(self.end);
                self.both(|v| v.added_autocommit(commit, row.0, &row.1, &addends));
            }
        }
    }

    /// ROLLBACK TO: undoes the newest addition, after the later replacement of the row.
    fn undo_addition(&mut self) {
        let Some(at) = self.writer() else { return };
        let Some((row, addends)) = self.writers[at].added.pop() else { return };
        if let Some(before) = self.writers[at].undo.remove(&row) {
            self.put(&row, before);
        }
        assert!(self.now.get_mut(&row).is_some_and(|value| addends.subtract_from(value)));
        let id = self.writers[at].id;
        self.both(|v| v.addition_undone(id, row.0, &row.1, &addends));
    }

    fn change(&mut self) {
        let Some(at) = self.writer() else { return };
        let Some(row) = self.free_row(Some(at)) else { return };
        let (before, mut after) = (self.now.get(&row).cloned(), self.random_value());
        if let Some(first) = self.writers[at].undo.get(&row)
            && self.rng.below(3) == 0
        {
            // As ROLLBACK TO does.
            after = first.clone();
        }
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
        let commits = self.rng.below(4) > 0;
        self.end_of(at, commits);
    }

    /// Commits a transaction, or undoes it.
    fn end_of(&mut self, at: usize, commits: bool) {
        let Writer { id, undo, added, .. } = self.writers.swap_remove(at);
        if !commits {
            undo.into_iter().for_each(|(row, before)| self.put(&row, before));
            for (row, addends) in added {
                assert!(self.now.get_mut(&row).is_some_and(|value| addends.subtract_from(value)));
            }
            self.undone.push(id);
            return self.both(|v| v.undone(id));
        }
        for (row, addends) in &added {
            assert!(self.committed.get_mut(row).is_some_and(|value| addends.add_to(value)));
        }
        for row in undo.into_keys() {
            match self.now.get(&row) {
                Some(value) => self.committed.insert(row, value.clone()),
                None => self.committed.remove(&row),
            };
        }
        self.end += 8;
        let commit = Lsn(self.end);
        self.both(|v| v.committed(id, commit));
    }

    fn open(&mut self) {
        let opening = self.snapshots.begin();
        if let Some(generation) = opening.generation() {
            let active: Vec<_> = self.writers.iter().flat_map(Writer::images).collect();
            self.both(|v| v.keep(generation, active.clone(), Vec::new()));
        }
        let end = Lsn(self.end);
        let sees = self.committed.clone();
        self.open.push(Open { snapshot: opening.open(|| end), failed: false, sees });
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            let at = self.rng.below(self.open.len() as u64) as usize;
            self.open.swap_remove(at);
            self.both(|v| v.tidy());
        }
    }

    /// Reads from the small store, and loads the blocks that it misses in between; `None` if the
    /// snapshot has failed.
    fn with_reads<R>(
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
                Err(Stop::Spilled(missing)) => {
                    self.spilled += 1;
                    let had = self.small.spill.set_aside();
                    let (read, next) = self.small.spill.read(had, missing);
                    read.run();
                    loaded = Some(next);
                }
                Err(stop) => panic!("{stop:?}"),
            }
        }
        panic!("no progress");
    }

    /// Compares what a snapshot sees in both stores.
    fn compare(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let n = self.rng.below(self.open.len() as u64) as usize;
        let mut me = TxnId(u64::MAX);
        if !self.writers.is_empty() && self.rng.below(3) == 0 {
            me = self.writers[self.rng.below(self.writers.len() as u64) as usize].id;
        }
        let as_of = AsOf { at: self.open[n].snapshot.lsn(), me, repeatable: true };
        let (row, reverse) = (self.random_row(), self.rng.below(2) == 0);
        let open = self.rng.below(2) == 0;
        let (from, to) = (self.random_bound(), self.random_bound());
        let point = |v: &Versions, now: &BTreeMap<Row, Vec<u8>>| {
            let value = v
                .value_at(row.0, &row.1, now.get(&row).map(Vec::as_slice), as_of)?
                .map(Cow::into_owned);
            Ok((value, v.since(row.0, &row.1, as_of, open)?))
        };
        let range = |v: &Versions, now: &BTreeMap<Row, Vec<u8>>| {
            scan(v, now, row.0, (&from, &to), reverse, as_of)
        };
        let expected = (
            point(&self.large, &self.now).expect("memory"),
            range(&self.large, &self.now).expect("memory"),
        );
        if me == TxnId(u64::MAX) {
            let sees = &self.open[n].sees;
            assert!(
                expected.0.0.as_ref() == sees.get(&row),
                "{as_of:?} {row:?}: {:?}",
                expected.0.0
            );
            let bounds = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
            let within = |at: &Row| {
                at.0 == row.0 && std::ops::RangeBounds::<[u8]>::contains(&bounds, at.1.as_slice())
            };
            let rows = sees
                .iter()
                .filter(|(at, _)| within(at))
                .map(|(at, value)| (at.1.clone(), value.clone()));
            let mut rows: Vec<KeyValue> = rows.collect();
            if reverse {
                rows.reverse();
            }
            assert!(expected.1 == rows, "{as_of:?} {from:?} {to:?} {reverse}");
        }
        let got = self.with_reads(as_of, point);
        let got = got.and_then(|point| Some((point, self.with_reads(as_of, range)?)));
        let failed_before = self.open[n].failed;
        match got {
            Some(got) => {
                assert!(!failed_before, "a failed snapshot stays failed");
                assert!(
                    got.0 == expected.0,
                    "{as_of:?} {row:?}: {:?} instead of {:?}",
                    got.0,
                    expected.0
                );
                assert!(got.1 == expected.1, "{as_of:?} {from:?} {to:?} {reverse}");
                self.reads += 1;
                self.old += u64::from(got.0.0.as_ref() != self.now.get(&row));
            }
            None => {
                self.failed += u64::from(!failed_before);
                self.failed_early += u64::from(!failed_before && !self.lacked_rounds);
                let at = as_of.at;
                // If images of an active transaction cannot be read, that lasts until its end.
                if self.small.kept.as_ref().is_some_and(|kept| !kept.unreadable.is_empty()) {
                    return;
                }
                self.open
                    .iter_mut()
                    .filter(|o| o.snapshot.lsn() <= at)
                    .for_each(|o| o.failed = true);
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
            6..=25 => self.change_autocommitted(),
            26..=40 => self.change(),
            41..=49 => self.add(),
            50 => self.undo_addition(),
            51..=53 => self.compare(),
            _ if !self.writes.is_empty() => {
                let at = self.rng.below(self.writes.len() as u64) as usize;
                self.writes.swap_remove(at).run();
            }
            _ => {}
        }
    }

    /// Checks that the lists of images and their sizes are those of the images.
    fn check_lists(&self) {
        for kept in [&self.small, &self.large].into_iter().filter_map(|v| v.kept.as_ref()) {
            let (mut bytes, mut stamped) = (0, 0);
            let (mut committed, mut active) = (BTreeSet::new(), kept.active.clone());
            active.values_mut().for_each(|keys| keys.sort());
            for (tree, key, chain) in kept.chains.iter().flat_map(|(tree, chains)| {
                chains.iter().map(move |(key, chain)| (*tree, key, chain))
            }) {
                assert!(!chain.is_empty());
                for image in chain {
                    let place = (tree, key.clone());
                    bytes += size_of_image(key, image);
                    if let Some(commit) = image.commit {
                        stamped += size_of_image(key, image);
                        committed.insert((commit, tree, key.clone()));
                    } else {
                        assert!(active[&image.writer].binary_search(&place).is_ok());
                    }
                }
            }
            assert_eq!((bytes, stamped), (kept.bytes, kept.stamped));
            assert!(committed == kept.committed);
        }
    }

    fn active_bytes(&self) -> usize {
        self.small.kept.as_ref().map_or(0, |kept| kept.bytes - kept.stamped)
    }
}

/// Reads the range like [`crate::versioned::Versioned::scan_at`].
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
    let within =
        |row: &Row| row.0 == tree && std::ops::RangeBounds::<[u8]>::contains(&bounds, &row.1[..]);
    let mut keys: Vec<_> = now.iter().filter(|(row, _)| within(row)).collect();
    if reverse {
        keys.reverse();
    }
    let mut images = versions.between(tree, bounds.0, bounds.1, reverse, as_of);
    for ((_, key), value) in keys {
        assert!(!images.before(Some(key), &mut visit)?);
        let value = images.value(key, value)?;
        let _ = visit(key, value.as_deref());
    }
    images.before(None, &mut visit)?;
    Ok(rows)
}

fn run(seeds: u64, setting: Setting) -> Twins {
    let mut last = None;
    let mut sums = (0, 0, 0, 0, 0);
    for seed in 1..=seeds {
        let mut twins = Twins::new(seed, setting);
        for n in 0..3000 {
            twins.step();
            if n % 10 == 0 {
                twins.check_lists();
            }
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
        sums = (
            sums.0 + twins.reads,
            sums.1 + twins.old,
            sums.2 + twins.spilled,
            sums.3 + twins.failed,
            sums.4 + twins.failed_early,
        );
        last = Some(twins);
    }
    let mut last = last.expect("a seed");
    (last.reads, last.old, last.spilled, last.failed, last.failed_early) = sums;
    last
}

const ROOMY: Setting = Setting { keys: 300, budget: 3_000, slot: 1024, slots: 10_000, faults: &[] };
