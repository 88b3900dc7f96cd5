//! Many threads on a tiny pool with data of eight times its size: contents, the write-ahead rule,
//! checkpoints.

use crate::common::*;
use clearway_buffer::*;
use clearway_env::{DirectDisk, Disk, Entropy, IoPool, OsDisk, SeededEntropy};
use clearway_replacement::{
    MultilistKind, PolicyKind, ReplacementKind, UseCountedKind, WrapperKind,
};
use clearway_testkit::MemDisk;
use clearway_types::Lsn;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, RwLock};

pub const FRAMES: u32 = 64;
const PAGES: u32 = FRAMES * 8 / PARTITIONS as u32;

/// Held shared from reading the log's end, with which a page is marked, until the change is logged.
type Changing = RwLock<()>;

/// The thread of one partition: random reads and writes, compared with a model in memory.
fn partition(fixture: &Fixture, changing: &Changing, number: u16, seed: u64, ops: u64) -> Vec<u64> {
    let random = SeededEntropy::new(seed);
    let mut model = vec![0_u64; PAGES as usize];
    for op in 1..=ops {
        // Some pages are hot, so that pages are changed during their write-back.
        let no = if random.below(3) == 0 { random.below(4) } else { random.below(u64::from(PAGES)) }
            as u32;
        let id = page(number, no);
        let _changing = changing.read().unwrap();
        match random.u64() % 8 {
            0..3 => assert_eq!(get(fixture, id), model[no as usize], "{id}"),
            3 => assert_eq!(read_optimistic(fixture, id), model[no as usize], "{id}"),
            4..7 => {
                put(fixture, id, op);
                model[no as usize] = op;
            }
            _ => {
                // A split: several pages at once, one of them newly created.
                let other = page(number, (no + 1) % PAGES);
                with(&fixture.pool, |pool| {
                    let mut reserved = pool.reserve_frames(2)?;
                    let mut left = pool.write(id)?;
                    let mut right = pool.create_in(&mut reserved, other);
                    stamp(&mut left, &fixture.wal, op);
                    stamp(&mut right, &fixture.wal, op + 1);
                    Ok(())
                });
                model[no as usize] = op;
                model[(no as usize + 1) % PAGES as usize] = op + 1;
            }
        }
    }
    model
}

fn run(kind: ReplacementKind, ops: u64) {
    let fixture = pool_on(&MemDisk::new(), FRAMES, kind);
    let models = work(&fixture, kind, ops);
    // Everything that the flush has synced survives a crash.
    let after = pool_on(&fixture.disk.crash(7), FRAMES, kind);
    after.wal.continue_after(&fixture.wal);
    compare(&after, kind, &models);
}

/// Writes, reads, evicts and flushes everything. Returns the expected contents of the pages.
pub fn work(fixture: &Fixture, kind: ReplacementKind, ops: u64) -> Vec<Vec<u64>> {
    let (done, changing) = (AtomicBool::new(false), &Changing::default());
    let models: Vec<_> = std::thread::scope(|scope| {
        let checkpointer = scope.spawn(|| {
            while !done.load(SeqCst) {
                // The flush may miss a page that is marked with an older end of the log if its
                // change is logged after the target. There is none: each change is already logged,
                // or marks its page with an end at or after the target.
                let nobody_changes = changing.write().unwrap();
                let target = fixture.wal.appended();
                drop(nobody_changes);
                fixture.pool.flush_before(target).unwrap();
                assert!(
                    fixture.pool.min_rec_lsn().is_none_or(|lsn| lsn >= target),
                    "{kind}: a change was not written"
                );
                std::thread::yield_now();
            }
        });
        let partitions: Vec<_> = (0..PARTITIONS)
            .map(|p| scope.spawn(move || partition(fixture, changing, p, 1 + u64::from(p), ops)))
            .collect();
        let models = partitions.into_iter().map(|t| t.join().unwrap()).collect();
        done.store(true, SeqCst);
        checkpointer.join().unwrap();
        models
    });
    fixture.pool.flush_before(Lsn(u64::MAX)).unwrap();
    assert_eq!(fixture.pool.min_rec_lsn(), None);
    let stats = fixture.pool.stats();
    assert!(
        stats.evictions > u64::from(FRAMES) && stats.writes > u64::from(FRAMES),
        "{kind}: {stats:?}"
    );
    assert_eq!(
        fixture.io.violations.load(SeqCst),
        0,
        "{kind}: written before its log, or a torn page"
    );
    models
}

pub fn compare(after: &Fixture, kind: ReplacementKind, models: &[Vec<u64>]) {
    for (p, model) in models.iter().enumerate() {
        for (no, &value) in model.iter().enumerate() {
            assert_eq!(
                get(after, page(p as u16, no as u32)),
                value,
                "{kind}: partition {p} page {no} after the crash"
            );
        }
    }
}

/// Readers of pages that others change, evict and load: each sees complete versions, and never an
/// older one than before.
#[test]
fn optimistic_readers_see_complete_growing_versions() {
    let fixture = pool(FRAMES);
    let (pages, looking, stop) = (FRAMES + 8, AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let readers = [0, 1].map(|seed| {
            let (fixture, looking, stop) = (&fixture, &looking, &stop);
            scope.spawn(move || {
                let (random, mut seen) = (SeededEntropy::new(seed), vec![0; pages as usize]);
                while !stop.load(SeqCst) {
                    let no = random.below(u64::from(pages)) as u32;
                    let found = read_optimistic(fixture, page(0, no));
                    assert!(
                        found % u64::from(pages) == u64::from(no) || found == 0,
                        "page {no} has {found}"
                    );
                    assert!(found >= seen[no as usize], "page {no} went back to {found}");
                    seen[no as usize] = found;
                    looking.fetch_add(1, SeqCst);
                }
            })
        });
        for round in 1..200_u64 {
            // So that the readers run between the changes, however threads are scheduled.
            let before = looking.load(SeqCst);
            while looking.load(SeqCst) < before + 2
                && !readers.iter().all(|reader| reader.is_finished())
            {
                std::thread::yield_now();
            }
            for no in 0..pages {
                put(&fixture, page(0, no), round * u64::from(pages) + u64::from(no));
            }
        }
        stop.store(true, SeqCst);
    });
}

#[test]
fn clock_sweep_loses_no_page() {
    run(ReplacementKind::ClockSweep, 4_000);
}

#[test]
fn no_policy_loses_a_page() {
    PolicyKind::ALL
        .iter()
        .for_each(|policy| run(ReplacementKind::Wrapped(*policy, WrapperKind::default()), 1_000));
}

#[test]
fn no_wrapper_loses_a_page() {
    WrapperKind::ALL
        .iter()
        .for_each(|wrapper| run(ReplacementKind::Wrapped(PolicyKind::Lru, *wrapper), 2_000));
    MultilistKind::ALL.iter().for_each(|kind| run(ReplacementKind::Multilist(*kind), 2_000));
    UseCountedKind::ALL.iter().for_each(|kind| run(ReplacementKind::UseCounted(*kind), 2_000));
}

#[test]
fn smallest_pool_makes_progress_with_many_threads() {
    let fixture = pool_on(&MemDisk::new(), 1, ReplacementKind::ClockSweep);
    std::thread::scope(|scope| {
        for p in 0..PARTITIONS {
            let fixture = &fixture;
            scope.spawn(move || {
                partition(fixture, &Changing::default(), p, 100 + u64::from(p), 500)
            });
        }
    });
    assert_eq!(fixture.io.violations.load(SeqCst), 0);
}

/// A temporary directory on a real disk, removed at the end of the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("stress-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Reports a test that was not run. Writes directly to stderr, which the test harness does not
/// capture.
fn skipped(what: &str, why: impl std::fmt::Display) {
    writeln!(std::io::stderr(), "SKIPPED {what}: {why}").expect("stderr is writable");
}

/// Runs the stress test above on a real file system. Another pool checks the result. There is a
/// second level beside the files if the name says so.
fn run_on_files(name: &str, disk: &dyn Disk, io_pool: &dyn Fn() -> std::io::Result<IoPool>) {
    if let Err(error) = io_pool() {
        return skipped(name, error);
    }
    let scratch = Scratch::new(name);
    let kind = ReplacementKind::ClockSweep;
    let open = || {
        let io_pool = Arc::new(io_pool().unwrap());
        let files = Files::open(disk, &scratch.0, PARTITIONS).unwrap();
        let second = name.ends_with("second").then(|| second_level(disk, &scratch.0, 320).unwrap());
        let config = PoolConfig { replacement: kind, ..unhurried(FRAMES) };
        let fixture = pool_of(files, io_pool.clone(), config, second);
        let registered = io_pool.registered();
        match registered.refused {
            Some(error) => skipped(name, error),
            None if name.starts_with("registered") => {
                assert!(registered.bytes > FRAMES as usize * PAGE_SIZE)
            }
            None => assert_eq!(registered.wanted, 0),
        }
        fixture
    };
    let before = open();
    let models = work(&before, kind, 1_000);
    let wal = before.wal.clone();
    drop(before);
    let after = open();
    after.wal.continue_after(&wal);
    compare(&after, kind, &models);
}

fn threads() -> std::io::Result<IoPool> {
    IoPool::new(2, "test-io")
}

fn ring() -> std::io::Result<IoPool> {
    IoPool::with_ring(1, "test-io")
}

fn registered() -> std::io::Result<IoPool> {
    Ok(ring()?.with_registered_buffers())
}

#[test]
fn threads_on_buffered_files_lose_no_page() {
    run_on_files("threads-buffered", &OsDisk, &threads);
}

#[test]
fn threads_on_direct_files_lose_no_page() {
    run_on_direct_files("threads-direct", &threads);
}

#[test]
fn io_uring_on_buffered_files_loses_no_page() {
    run_on_files("ring-buffered", &OsDisk, &ring);
}

#[test]
fn io_uring_on_direct_files_loses_no_page() {
    run_on_direct_files("ring-direct", &ring);
}

#[test]
fn io_uring_with_registered_buffers_loses_no_page() {
    run_on_files("registered-buffered", &OsDisk, &registered);
    run_on_direct_files("registered-direct", &registered);
}

#[test]
fn second_level_on_real_files_loses_no_page() {
    run_on_files("threads-buffered-second", &OsDisk, &threads);
    run_on_direct_files("ring-direct-second", &ring);
    run_on_direct_files("registered-direct-second", &registered);
}

fn run_on_direct_files(name: &str, io_pool: &dyn Fn() -> std::io::Result<IoPool>) {
    let disk = DirectDisk::new(false);
    run_on_files(name, &disk, io_pool);
    if disk.refused() {
        skipped(name, "the file system does not support direct I/O; buffered files were tested");
    }
}
