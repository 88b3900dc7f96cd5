//! One seed of the buffer pool alone: a few threads on a pool of a few frames, over files that may
//! fail and a log that only counts.
//!
//! The simulation of the whole engine includes the pool, but rarely hits its races, and sees only
//! the effects that reach a row. Here threads do little else than race, and every read is judged.
//!
//! # What is judged
//! 1. A page under a latch has its id and the newest content that a holder of its exclusive latch
//!    has left, and does not change while the latch is held. An optimistic read returns one whole
//!    version that was the newest at some moment during the read.
//! 2. A page is never read twice at once, and there are no more reads than pages that arrive, fail,
//!    or are superseded by a creation; the same for the second level. What the second level's file
//!    holds or loses is invisible.
//! 3. A page is in one frame: at the end, the number of resident pages is the number of used
//!    frames.
//! 4. Write-ahead logging, at each write and in the state that a crash at any moment leaves. No two
//!    batches are written at once, and no older version after a newer one.
//! 5. What `flush_before` or `min_rec_lsn` has reported as on disk is there after a crash at any
//!    later moment. Every page there is whole, or repaired, and a version that was written.
//! 6. A pinned page can be read; when nothing is pinned every frame can be allocated.
//! 7. Every fetch gets one answer. An error has a cause: a failed read, a pool that has failed or
//!    was shut down, or frames that are all in use.
//! 8. The replacement hears once that a page arrives and once that it leaves, while the page is
//!    there, and its policy hears the same (`witness`).
//! 9. The cooler frees frames before a thread must wait for one, and a thread that must wait wakes
//!    it (`quiet`).

mod model;
mod quiet;
mod watched;
mod witness;
mod work;
mod world;

pub use world::{FaultProfile, World};

use crate::disk::TracedDisk;
use crate::execution::{self, Outcome, Report};
use crate::rng::Rng;
use crate::schedule::Signals;
use crate::trace::Trace;
use crate::world::SECOND_LEVEL;
use clearway_buffer::WalBarrier as _;
use clearway_buffer::{
    Files, MissingPage, PAGE_SIZE, PageError, PageIo, Pin, Pool, PoolConfig, SecondLevel,
};
use clearway_env::{Disk, IoPool};
use clearway_sync::atomic::AtomicU32;
use clearway_sync::{thread, virtual_time};
use clearway_testkit::{Duty, FaultPlan, MemDisk, Operation};
use clearway_types::{Lsn, PageId};
use model::Model;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use watched::{Log, WatchedIo};
use witness::{View, witnessed};
use work::Worker;

/// Steps of all threads after which a seed counts as endless. The longest of 20,000 took 64
/// million: threads that pinned nearly all frames starved the others until the cooler gave up,
/// repeatedly.
const MOST_STEPS: u64 = 200_000_000;
/// Maximum virtual time to an answer when all threads are idle.
const PATIENCE: Duration = Duration::from_secs(300);
const DIR: &str = "/db";

/// Runs a seed. An error is a finding.
pub fn run(world: &World, trace: &Trace) -> Result<Report, String> {
    let (seed, pace) = (world.seed, world.pace);
    let (world, trace) = (world.clone(), trace.clone());
    execution::run(seed, pace, move |signals| execution(&world, &trace, signals))
}

/// State shared by all threads. Its own atomics and mutexes are the standard library's: no thread
/// switch happens at them, and none while one is held. Relaxed throughout: there is one OS thread.
struct Stage {
    world: World,
    pool: Arc<Pool>,
    io: Arc<WatchedIo>,
    log: Arc<Log>,
    disk: MemDisk,
    model: Arc<Model>,
    view: Arc<View>,
    /// Pages fetched for scans: the policy may not know them.
    scanned: Mutex<BTreeSet<PageId>>,
    /// Pins that no thread holds.
    inbox: Mutex<Vec<(PageId, Pin)>>,
    asked: AtomicU64,
    answered: AtomicU64,
    /// Failed writes that refused space for a page, which the pool survives.
    not_extended: AtomicU64,
    created: AtomicU64,
    crashes: AtomicU64,
    closing: AtomicBool,
    /// Accessed to make a scheduling point.
    touched: AtomicU32,
}

impl Stage {
    /// Lets the scheduler switch threads.
    fn step(&self) {
        self.touched.load(Ordering::Relaxed);
    }

    fn inbox(&self) -> MutexGuard<'_, Vec<(PageId, Pin)>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that this page is about to be fetched.
    fn ask(&self, want: MissingPage) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if let MissingPage::Scan(id) = want {
            self.scanned.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        }
    }

    fn was_scanned(&self, id: PageId) -> bool {
        self.scanned.lock().unwrap_or_else(PoisonError::into_inner).contains(&id)
    }

    fn empty_inbox(&self) {
        let kept = std::mem::take(&mut *self.inbox());
        drop(kept);
    }

    fn is_over(&self) -> bool {
        self.closing.load(Ordering::Relaxed) || self.pool.failed().is_some()
    }

    fn log_end(&self) -> Lsn {
        self.log.appended()
    }

    fn fetch(&self, want: MissingPage) -> Result<Pin, PageError> {
        self.ask(want);
        let result = self.pool.fetch_blocking(want);
        self.answered.fetch_add(1, Ordering::Relaxed);
        result.inspect_err(|error| self.excuse(want, error))
    }

    /// Requests without waiting; passes the pin to `keep`.
    fn ask_for(self: &Arc<Self>, want: MissingPage, keep: impl FnOnce(Pin) + Send + 'static) {
        self.ask(want);
        let stage = self.clone();
        let done = move |result: Result<Pin, PageError>| {
            stage.answered.fetch_add(1, Ordering::Relaxed);
            match result {
                Ok(kept) => keep(kept),
                Err(error) => stage.excuse(want, &error),
            }
        };
        self.pool.fetch(want, Box::new(done));
    }

    fn all_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed) >= self.asked.load(Ordering::Relaxed)
    }

    /// Fails unless the error has a cause.
    fn excuse(&self, want: MissingPage, error: &PageError) {
        let failed = self.pool.failed().is_some();
        let excused = match error {
            PageError::NoFrames => self.world.may_starve(),
            PageError::Closed => self.closing.load(Ordering::Relaxed),
            PageError::Io { action: "read", .. } => self.world.faults == FaultProfile::FailingReads,
            // The page is not created, so nothing is lost.
            PageError::Io { action: "extend", .. } => {
                self.not_extended.fetch_add(1, Ordering::Relaxed);
                failed || self.world.faults == FaultProfile::Breaking
            }
            PageError::Io { .. } | PageError::Log(_) => failed,
            _ => false,
        };
        assert!(excused, "{want:?} got an error without a cause: {error}");
    }

    /// Writes all changes so far; then what the pool reports must hold.
    fn flush(&self) {
        let target = self.log_end();
        match self.pool.flush_before(target) {
            Ok(()) => self.model.raise_floor(target),
            Err(error) => {
                assert!(self.pool.failed().is_some(), "{error}, and the pool has not failed")
            }
        }
    }

    /// Checks the claim of `min_rec_lsn`: that everything before it is on disk.
    fn look_at_rec_lsn(&self) {
        let target = self.log_end();
        let least = self.pool.min_rec_lsn();
        self.model.raise_floor(least.map_or(target, |least| least.min(target)));
    }

    fn checkpoint(&self) {
        self.flush();
        self.look_at_rec_lsn();
    }
}

/// Checks the state that a crash at this moment would leave.
fn crash(stage: &Stage, seed: u64) {
    // There is no scheduling point between these three.
    let (floor, durable) = (stage.model.floor(), stage.log.durable_now());
    let disk = stage.disk.crash(seed);
    stage.crashes.fetch_add(1, Ordering::Relaxed);
    let look = || -> Result<(), PageError> {
        let files = Files::open(&disk, Path::new(DIR), stage.world.partitions)?;
        files.restore_torn()?;
        for id in stage.world.all_pages() {
            let mut page = [0; PAGE_SIZE];
            files.read_run(id, &mut page)?;
            let judged = stage.model.number(id, &page);
            let judged =
                judged.and_then(|number| stage.model.judge_disk(id, number, floor, durable));
            judged.unwrap_or_else(|wrong| panic!("after a crash: {wrong}"));
        }
        Ok(())
    };
    look().unwrap_or_else(|error| panic!("after a crash: {error}"));
}

fn open(
    world: &World,
    trace: &Trace,
    rng: &mut Rng,
) -> Result<(Stage, Option<Arc<FaultPlan>>), String> {
    let disk = MemDisk::new();
    for dir in [DIR, SECOND_LEVEL] {
        disk.create_dir_all(Path::new(dir)).map_err(|e| e.to_string())?;
    }
    disk.sync_dir(Path::new("/")).map_err(|e| e.to_string())?;
    let traced = TracedDisk::new(disk.clone(), trace.clone());
    let io_pool = Arc::new(IoPool::new(world.io_threads, "page-io").map_err(|e| e.to_string())?);
    let files =
        Files::open(&traced, Path::new(DIR), world.partitions).map_err(|e| e.to_string())?;
    let syncs = if world.faults == FaultProfile::BrokenLog { rng.below(20) } else { u64::MAX };
    let (log, model) = (Arc::new(Log::new(syncs)), Arc::new(Model::default()));
    let io = Arc::new(WatchedIo::new(
        files.with_io_pool(io_pool.clone()),
        log.clone(),
        model.clone(),
        world,
    ));
    let view = Arc::new(View::default());
    let config = PoolConfig { replacement: witnessed(world.pool.replacement, &view), ..world.pool };
    let second =
        world.second_level.as_ref().map(|config| SecondLevel::open(&traced, config)).transpose();
    let second = second.map_err(|e| e.to_string())?;
    let pool = Pool::with_second_level(config, io.clone(), log.clone(), io_pool, second)
        .map_err(|e| e.to_string())?;
    view.watch(&pool);
    let plan = world.plan(rng).map(Arc::new);
    disk.set_faults(plan.clone());
    disk.set_hook(Some(Arc::new(|operation: Operation<'_>| {
        if !operation.delay.is_zero() {
            virtual_time::sleep(operation.delay);
        }
    })));
    let stage = Stage {
        world: world.clone(),
        pool,
        io,
        log,
        disk,
        model,
        view,
        scanned: Mutex::default(),
        inbox: Mutex::default(),
        asked: AtomicU64::new(0),
        answered: AtomicU64::new(0),
        not_extended: AtomicU64::new(0),
        created: AtomicU64::new(0),
        crashes: AtomicU64::new(0),
        closing: AtomicBool::new(false),
        touched: AtomicU32::new(0),
    };
    Ok((stage, plan))
}

fn execution(world: &World, trace: &Trace, signals: &Arc<Signals>) -> Outcome {
    let keeper = execution::keep_time(world.seed, signals, MOST_STEPS, || {})?;
    let mut rng = Rng::new(world.seed, "pool's story");
    let (stage, plan) = open(world, trace, &mut rng)?;
    let stage = Arc::new(stage);
    let working = Arc::new(AtomicBool::new(true));
    let spawn = |name: String, run: Box<dyn FnOnce() + Send>| {
        thread::Builder::new().name(name).spawn(run).map_err(|e| e.to_string())
    };
    let checkpointer = {
        let (stage, working, mut rng) =
            (stage.clone(), working.clone(), Rng::new(world.seed, "checkpoints"));
        let run = move || {
            while working.load(Ordering::Relaxed) && !stage.is_over() {
                stage.checkpoint();
                virtual_time::sleep(Duration::from_micros(1 + rng.below(20_000)));
            }
        };
        spawn("checkpoints".into(), Box::new(run))?
    };
    let threads = (0..world.threads).map(|number| {
        let name = format!("worker-{number}");
        let worker = Worker::new(&stage, &name);
        spawn(name, Box::new(move || worker.work()))
    });
    let threads = threads.collect::<Result<Vec<_>, _>>()?;
    if world.closes {
        virtual_time::sleep(Duration::from_micros(rng.below(20_000)));
        stage.closing.store(true, Ordering::Relaxed);
        stage.pool.shutdown();
    }
    for thread in threads {
        thread.join().map_err(|_| "a worker panicked")?;
    }
    working.store(false, Ordering::Relaxed);
    checkpointer.join().map_err(|_| "the checkpointer panicked")?;
    end(&stage, &mut rng)?;
    let injected = plan
        .iter()
        .flat_map(|plan| plan.injected())
        .filter(|injected| injected.duty == Duty::Stops)
        .count();
    if injected as u64 > stage.not_extended.load(Ordering::Relaxed) && stage.pool.failed().is_none()
    {
        return Err("the disk has failed for good, and the pool does not know it".into());
    }
    let mut report = report(&stage);
    report.trace = trace.hash();
    drop(stage);
    signals.over.store(true, Ordering::Relaxed);
    keeper.join().map_err(|_| "the clock's thread panicked")?;
    Ok((report, false))
}

fn report(stage: &Stage) -> Report {
    let stats = stage.pool.stats();
    let mut report = Report::default();
    report.count("fetches", stage.asked.load(Ordering::Relaxed));
    report.count("pages read", stats.reads);
    report.count("of the second level", stats.second_level.hits);
    report.count("bad copies", stats.second_level.dropped);
    report.count("written", stats.writes);
    report.count("evicted", stats.evictions);
    report.count("crashes", stage.crashes.load(Ordering::Relaxed));
    report.count("failed pools", u64::from(stage.pool.failed().is_some()));
    report
}

/// Checks the pool when all threads are done.
fn end(stage: &Arc<Stage>, rng: &mut Rng) -> Result<(), String> {
    let began = virtual_time::now();
    while !stage.all_answered() {
        if virtual_time::now() - began > PATIENCE {
            return Err("a fetch was never answered".into());
        }
        virtual_time::sleep(Duration::from_millis(1));
    }
    stage.empty_inbox();
    crash(stage, rng.u64());
    stage.flush();
    if stage.pool.failed().is_none() {
        let (dirty, least) = (stage.pool.stats().dirty, stage.pool.min_rec_lsn());
        if dirty > 0 || least.is_some() {
            return Err(format!("{dirty} pages are dirty after a flush, {least:?}"));
        }
    }
    crash(stage, rng.u64());
    quiet::look_at_all_pages(stage)?;
    quiet::starve(stage)?;
    if !stage.is_over() {
        quiet::take_all_frames(stage)?;
    }
    stage.closing.store(true, Ordering::Relaxed);
    stage.pool.shutdown();
    count_frames(stage)
}

fn count_frames(stage: &Stage) -> Result<(), String> {
    let stats = stage.pool.stats();
    let resident = stage.world.all_pages().filter(|id| stage.pool.is_resident(*id)).count() as u64;
    let used = u64::from(stats.frames - stats.free);
    if used != resident {
        return Err(format!("{resident} pages are in {used} frames"));
    }
    let most = stats.evictions
        + resident
        + stage.io.failed_reads()
        + stage.created.load(Ordering::Relaxed);
    let reads = stats.reads + stats.second_level.hits;
    if reads > most {
        return Err(format!("{reads} reads, but only {most} had a reason"));
    }
    Ok(())
}
