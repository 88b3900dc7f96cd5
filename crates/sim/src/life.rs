//! One seed: creates the database, runs sessions on it, loses the disk or the process, recovers,
//! checks the result, and repeats this for several lives. `aftermath` has what happens after a
//! life.

mod aftermath;
mod flip_log;
mod rot;

pub use rot::Rotten;

use crate::answers;
use crate::chronicle::Chronicle;
use crate::disk::TracedDisk;
use crate::execution::{self, Outcome, Report};
use crate::generate::Script;
use crate::generate::counters::Additions;
use crate::history::{Found, compare};
use crate::model::{Answer, Model, show};
use crate::rng::Rng;
use crate::schedule::Signals;
use crate::session::{Mailboxes, Session, Shared};
use crate::sql::{A, COLUMNS, K, Pred, U};
use crate::trace::Trace;
use crate::worker::{Crew, Doorbell, Reader, doorbells, work};
use crate::world::{self, FaultProfile, World};
use clearway_buffer::FrameWaits;
use clearway_coordinator::{CheckOptions, CheckReport, Engine, EngineConfig, OpenError};
use clearway_env::{Disk, Open};
use clearway_sync::{thread, virtual_time};
use clearway_testkit::{MemDisk, Operation};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Steps of all threads after which a seed counts as endless.
const MOST_STEPS: u64 = 400_000_000;
/// Virtual time without any answer after which the engine counts as hung.
const PATIENCE: Duration = Duration::from_secs(300);
/// Virtual time for the sessions of a failed engine to finish. Not all can: a rollback that cannot
/// read its pages keeps its locks.
const GRACE: Duration = Duration::from_secs(10);
/// The same limit in steps. When dirty pages can no longer be written and few frames are left,
/// threads can take pages from each other forever, and then no time passes.
const GRACE_STEPS: u64 = 1_000_000;

/// Directory of the database.
const DIR: &str = "/db";

/// Runs a seed. An error is a finding.
pub fn run(world: &World, trace: &Trace) -> Result<Report, String> {
    let (seed, pace) = (world.seed, world.pace);
    let (world, trace) = (world.clone(), trace.clone());
    execution::run(seed, pace, move |signals| execution(&world, &trace, signals))
}

fn execution(world: &World, trace: &Trace, signals: &Arc<Signals>) -> Outcome {
    let watch = Arc::new(Watch::default());
    let mut watching = Watching {
        watch: watch.clone(),
        seen: 0,
        since: Duration::ZERO,
        signals: signals.clone(),
        stopping_since: None,
    };
    let keeper = execution::keep_time(world.seed, signals, MOST_STEPS, move || watching.look())?;
    let mut story = Story {
        world,
        trace: trace.clone(),
        watch: watch.clone(),
        rng: Rng::new(world.seed, "story"),
        model: Model::default(),
        chronicle: Chronicle::default(),
        additions: Arc::default(),
        signals: signals.clone(),
        report: Report::default(),
        leaks: false,
        undecided: false,
    };
    story.run()?;
    signals.over.store(true, Ordering::Relaxed);
    keeper.join().map_err(|_| "the clock's thread panicked")?;
    story.report.trace = trace.hash();
    Ok((story.report, story.leaks))
}

/// State that the clock's thread watches. Relaxed throughout: there is one OS thread.
#[derive(Default)]
struct Watch {
    progress: Arc<AtomicU64>,
    /// A full disk, and the time from which it has space again.
    full: Mutex<Option<(MemDisk, Duration)>>,
    /// The engine and its workers. When the engine has failed, the workers must be stopped, as the
    /// server's main thread does.
    working: Mutex<Option<(Arc<Engine>, Arc<Crew>)>>,
}

impl Watch {
    fn set_working(&self, working: Option<(Arc<Engine>, Arc<Crew>)>) {
        *self.working.lock().unwrap_or_else(PoisonError::into_inner) = working;
    }
    fn doing(&self) -> String {
        let Some((engine, crew)) = self.working() else { return "no worker runs".into() };
        let doing = crew.shared.doing.lock().unwrap_or_else(PoisonError::into_inner);
        let text: Vec<String> =
            doing.iter().map(|(session, what)| format!("\n  session {session} {what}")).collect();
        format!("failed: {:?}{}", engine.failed(), text.concat())
    }
    fn set_full(&self, full: Option<(MemDisk, Duration)>) {
        *self.full.lock().unwrap_or_else(PoisonError::into_inner) = full;
    }
    /// Frees space when it is time.
    fn relieve(&self) {
        let full = self.full.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((disk, until)) = &*full
            && virtual_time::now() >= *until
        {
            disk.set_capacity(u64::MAX);
        }
    }
    fn working(&self) -> Option<(Arc<Engine>, Arc<Crew>)> {
        self.working.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Additional checks of the clock's thread.
struct Watching {
    watch: Arc<Watch>,
    /// The progress at the last check, and when it was first seen.
    seen: u64,
    since: Duration,
    signals: Arc<Signals>,
    /// When the failure of the engine was first seen, in time and in steps.
    stopping_since: Option<(Duration, u64)>,
}

impl Watching {
    fn look(&mut self) {
        let watch = &self.watch;
        if let Some((engine, crew)) = watch.working()
            && engine.failed().is_some()
        {
            crew.stop();
            let (now, steps) = (virtual_time::now(), self.signals.steps.load(Ordering::Relaxed));
            let (stopped, steps_then) = *self.stopping_since.get_or_insert((now, steps));
            if now - stopped > GRACE || steps - steps_then > GRACE_STEPS {
                crew.kill();
            }
        } else {
            self.stopping_since = None;
        }
        watch.relieve();
        let progress = watch.progress.load(Ordering::Relaxed);
        if progress != self.seen {
            (self.seen, self.since) = (progress, virtual_time::now());
        }
        let waited = virtual_time::now() - self.since;
        assert!(waited < PATIENCE, "nothing has been answered for {PATIENCE:?}: {}", watch.doing());
    }
}

struct Story<'w> {
    world: &'w World,
    trace: Trace,
    watch: Arc<Watch>,
    rng: Rng,
    model: Model,
    chronicle: Chronicle,
    /// The additions to counters of all lives.
    additions: Arc<Additions>,
    signals: Arc<Signals>,
    report: Report,
    /// Whether threads of killed processes are left, which wait forever.
    leaks: bool,
    /// Whether the model cannot continue: the last life ended during a commit that may be in the
    /// log without an answer, or has left damage.
    undecided: bool,
}

impl Story<'_> {
    fn run(&mut self) -> Result<(), String> {
        let lived = self.live_all();
        let (checked, counts) = self.chronicle.check();
        self.report.count("transactions in histories", counts);
        match (lived, checked) {
            (Err(found), Err(too)) => Err(format!("{found}\n{too}")),
            (lived, checked) => lived.and(checked),
        }
    }

    fn live_all(&mut self) -> Result<(), String> {
        let mut disk = MemDisk::new();
        disk.create_dir_all(Path::new(world::SECOND_LEVEL)).map_err(|e| e.to_string())?;
        disk.sync_dir(Path::new("/")).map_err(|e| e.to_string())?;
        disk.tear_blocks(self.world.tears_blocks);
        for life in 0..self.world.lives {
            disk = self.live(life, disk).map_err(|why| format!("life {life}: {why}"))?;
            if self.undecided {
                break;
            }
        }
        Ok(())
    }

    fn note(&self, text: &str) {
        self.trace.event("story", text.as_bytes(), || text.to_owned());
    }

    /// Opens the database on the disk with one worker, to inspect it. It has all settings of the
    /// world except the short time-outs, which would refuse some reads.
    fn open(&self, disk: &MemDisk) -> Result<(Arc<Engine>, Vec<Arc<Doorbell>>), OpenError> {
        self.open_at(disk, DIR)
    }

    fn open_at(
        &self,
        disk: &MemDisk,
        dir: &str,
    ) -> Result<(Arc<Engine>, Vec<Arc<Doorbell>>), OpenError> {
        let mut config = self.world.engine.clone();
        config.node.frame_waits = FrameWaits::default();
        if dir != DIR {
            config.node.second_level = None;
        }
        self.open_with(disk, dir, 1, config)
    }

    fn open_with(
        &self,
        disk: &MemDisk,
        dir: &str,
        workers: u16,
        config: EngineConfig,
    ) -> Result<(Arc<Engine>, Vec<Arc<Doorbell>>), OpenError> {
        self.watch.progress.fetch_add(1, Ordering::Relaxed);
        let (bells, wakers) = doorbells(workers);
        let traced = Arc::new(TracedDisk::new(disk.clone(), self.trace.clone()));
        let opened = Engine::open(traced.clone(), Path::new(dir), config, wakers);
        let running = traced.running();
        assert!(
            opened.is_ok() || running == 0,
            "{running} operations are under way after an open that failed"
        );
        let engine = opened?;
        self.watch.progress.fetch_add(1, Ordering::Relaxed);
        Ok((engine, bells))
    }

    /// Runs until the sessions are done or the disk is gone, then checks what is left. Returns the
    /// disk for the next life.
    fn live(&mut self, life: u32, disk: MemDisk) -> Result<MemDisk, String> {
        let (engine, bells) = self
            .open_with(&disk, DIR, self.world.workers, self.world.engine.clone())
            .map_err(|e| format!("an intact directory cannot be opened: {e}"))?;
        let crashes = self.rng.percent(80);
        if crashes {
            let after = self.rng.pick(&[10, 60, 300, 1500]);
            let after = self.rng.below(after);
            self.note(&format!("the disk will stop after {after} operations"));
            disk.fail_after(after);
        }
        let flips = if life + 1 == self.world.lives { self.world.flips } else { 0 };
        let mut rng = Rng::new(self.world.seed, &format!("second level in life {life}"));
        let has_cache = self.world.engine.node.second_level.is_some();
        let mut caches = Vec::from_iter(
            (has_cache && rng.percent(50)).then(|| world::bad_second_level(&mut rng)),
        );
        let mut rng = Rng::new(self.world.seed, &format!("versions in life {life}"));
        caches
            .extend((self.world.spills && rng.percent(33)).then(|| world::bad_versions(&mut rng)));
        let plan =
            self.world.faults.plan(&mut self.rng, self.world.denials, flips, caches).map(Arc::new);
        if plan.is_some() {
            disk.set_faults(plan.clone());
            let hook = |operation: Operation<'_>| {
                if !operation.delay.is_zero() {
                    virtual_time::sleep(operation.delay);
                }
            };
            disk.set_hook(Some(Arc::new(hook)));
        }
        if self.world.faults == FaultProfile::Full {
            disk.set_capacity(disk.used() + self.rng.below(60_000));
            let until = virtual_time::now() + Duration::from_millis(self.rng.below(3_000));
            self.watch.set_full(Some((disk.clone(), until)));
        }
        let faulty = crashes || self.world.faults != FaultProfile::None;
        let shared = Arc::new(Shared {
            history: Default::default(),
            signals: self.signals.clone(),
            trace: self.trace.clone(),
            stopping: AtomicBool::new(false),
            progress: self.watch.progress.clone(),
            parts: AtomicU64::new(0),
            fetches: AtomicU64::new(0),
            hang_ups: AtomicU64::new(0),
            interrupted: AtomicU64::new(0),
            mailboxes: Arc::new(Mailboxes::new(bells.clone(), self.world.sessions)),
            replays: AtomicU64::new(0),
            doing: Mutex::default(),
            backups: Mutex::default(),
            exports: Mutex::default(),
            faults: AtomicBool::new(faulty),
            plan,
        });
        let busy = AtomicU32::new(self.world.workers.into());
        let crew =
            Arc::new(Crew { bells, busy, killed: AtomicBool::new(false), shared: shared.clone() });
        self.watch.set_working(Some((engine.clone(), crew.clone())));
        self.work(life, &engine, &crew)?;
        self.watch.set_working(None);
        if crashes && self.rng.percent(50) {
            self.note("killed");
            disk.fail_after(0);
        }
        if crew.killed.load(Ordering::Relaxed) {
            self.note("the process is killed");
            disk.fail_after(0);
            self.leaks = true;
        }
        self.report.count("parts of results", shared.parts.load(Ordering::Relaxed));
        self.report.count("further cursor fetches", shared.fetches.load(Ordering::Relaxed));
        self.report.count("connections that ended", shared.hang_ups.load(Ordering::Relaxed));
        let interrupted = shared.interrupted.load(Ordering::Relaxed);
        self.report.count("statements that others cancelled", interrupted);
        self.report.count("blocks that were run again", shared.replays.load(Ordering::Relaxed));
        // A killed thread may hold the latch.
        let plans = if self.leaks { Vec::new() } else { engine.plans() };
        for plan in plans {
            let [all, exclusive, switches] = if plan.adds {
                ["learned additions", "exclusive additions", "switches of an addition's lock"]
            } else {
                ["learned reads", "exclusive reads", "switches of a read lock"]
            };
            self.report.count(all, plan.reads);
            self.report.count(exclusive, plan.exclusive);
            self.report.count(switches, plan.switches);
        }
        let (written, read) = engine.version_blocks();
        self.report.count("blocks of versions written", written);
        self.report.count("blocks of versions read", read);
        let ended = engine.shutdown();
        self.watch.set_full(None);
        disk.set_capacity(u64::MAX);
        if let Err(e) = ended
            && !faulty
            && !shared.has_lost_a_write(&e.to_string())
        {
            return Err(format!("an orderly shutdown failed: {e}"));
        }
        let gone = Arc::downgrade(&engine);
        drop(engine);
        // Delayed reads keep the engine alive until they end. Wait for them here: after the
        // execution's end no time passes.
        while !self.leaks && gone.strong_count() > 0 {
            virtual_time::sleep(Duration::from_millis(1));
        }
        shared
            .history
            .counts()
            .into_iter()
            .for_each(|(what, times)| self.report.count(what, times));
        if self.world.mix.unique > 0 {
            self.chronicle.add(&shared.history.transactions(), shared.now())?;
        }
        // After a failed sync, the pages in the system's cache may still be lost later, whatever
        // the next process does. So no promise covers them.
        let mut kills = Rng::new(self.world.seed, &format!("end of life {life}"));
        let killed = self.world.kills
            && flips == 0
            && self.world.faults != FaultProfile::Breaking
            && kills.percent(50);
        let kills = killed.then_some(kills);
        if self.world.histories {
            self.only_look(&disk, kills)
        } else {
            self.afterwards(&shared, &disk, kills)
        }
    }

    fn work(&mut self, life: u32, engine: &Arc<Engine>, crew: &Arc<Crew>) -> Result<(), String> {
        let world = self.world;
        let mut threads = Vec::new();
        for worker in 0..world.workers {
            let (engine, crew, additions) = (engine.clone(), crew.clone(), self.additions.clone());
            let (seed, mix, sessions, statements) =
                (world.seed, world.mix.clone(), world.sessions, world.statements);
            let run = move || {
                let make = |port: &mut clearway_coordinator::Port| {
                    let one = |number: u32| {
                        let name = format!("{life}_{worker}_{number}");
                        let script = Script::new(seed, &name, mix.clone(), additions.clone());
                        let pid = crew.shared.mailboxes.pid(worker, number);
                        Session::new(
                            port,
                            (number, pid),
                            name,
                            script,
                            crew.shared.clone(),
                            statements,
                        )
                    };
                    (0..sessions).map(one).collect::<Vec<_>>()
                };
                work(&engine, worker, &crew, make)
            };
            let spawned = thread::Builder::new().name(format!("worker-{worker}")).spawn(run);
            threads.push(spawned.map_err(|e| e.to_string())?);
        }
        for thread in threads {
            thread.join().map_err(|_| {
                format!("a worker panicked: {}", crate::panics::take().unwrap_or_default())
            })??;
        }
        Ok(())
    }

    /// Runs `clearway check` and returns its report.
    fn report(&self, disk: &MemDisk) -> Result<CheckReport, String> {
        let scratch =
            MemDisk::new().open(Path::new("scratch"), Open::Create).map_err(|e| e.to_string())?;
        // Few frames, but enough to undo the longest change.
        let of_engine = self.world.engine.node.frames;
        let frames = if of_engine > 256 { of_engine } else { 64 };
        let options = CheckOptions {
            scratch,
            frames,
            log_buffer: self.world.engine.node.wal_buffer_size,
            memory: 1 << 16,
        };
        let report =
            clearway_coordinator::check(Arc::new(disk.copy()), Path::new("/db"), options, &mut ());
        self.watch.progress.fetch_add(1, Ordering::Relaxed);
        report.map_err(|e| format!("check: {e}"))
    }

    /// Fails unless every page, tree, free list and index is sound.
    fn check(&self, disk: &MemDisk) -> Result<(), String> {
        let report = self.report(disk)?;
        if report.storage.is_sound() && report.not_compared == 0 {
            return Ok(());
        }
        let found: Vec<String> =
            report.storage.findings.iter().take(5).map(|f| format!("{f:?}")).collect();
        Err(format!("check: {}", found.join("; ")))
    }

    /// Fails unless the contents match the model and all access paths agree.
    fn judge(&self, engine: &Arc<Engine>, bells: &[Arc<Doorbell>]) -> Result<(), String> {
        self.judge_by(&self.model, engine, bells)
    }

    fn read_all(&self, reader: &mut Reader) -> Result<Found, String> {
        let mut names: Vec<String> =
            reader.client().catalog().tables.keys().map(|n| n.to_string()).collect();
        names.sort_unstable();
        let mut found = Found::new();
        for name in names {
            let rows = answers::rows(&reader.run(&format!("SELECT d, k, a, u, v FROM {name}"))?)?;
            self.watch.progress.fetch_add(1, Ordering::Relaxed);
            found.insert(name, rows);
        }
        Ok(found)
    }

    /// Reads all lists, registers and counters, for the checker of histories.
    fn chronicle_state(
        &mut self,
        engine: &Arc<Engine>,
        bells: &[Arc<Doorbell>],
    ) -> Result<(), String> {
        if self.world.mix.unique == 0 {
            return Ok(());
        }
        let mut reader = Reader::new(engine, bells[0].clone());
        let found = self.read_all(&mut reader)?;
        reader.close();
        // Relaxed: there is one OS thread.
        self.chronicle.look(&found, self.signals.steps.load(Ordering::Relaxed))
    }

    fn judge_by(
        &self,
        model: &Model,
        engine: &Arc<Engine>,
        bells: &[Arc<Doorbell>],
    ) -> Result<(), String> {
        let mut reader = Reader::new(engine, bells[0].clone());
        compare(&self.read_all(&mut reader)?, model)?;
        for (name, table) in &model.tables {
            let mut preds: Vec<Pred> = (0..=9).map(|a| Pred::Equal(vec![(A, a)])).collect();
            preds.push(Pred::Between(K, 0, self.world.mix.keys / 2));
            preds.push(Pred::Between(U, self.world.mix.keys / 2, i32::MAX));
            for row in table.rows.iter().map(|known| &known.row) {
                for key in table.kind.uniques() {
                    let value: Option<Vec<_>> =
                        key.iter().map(|c| row.n[*c].map(|n| (*c, n))).collect();
                    preds.extend(value.map(Pred::Equal));
                }
            }
            for pred in preds {
                let sql = format!("SELECT {}, v FROM {name}{pred}", COLUMNS.join(", "));
                let rows = answers::rows(&reader.run(&sql)?)?;
                if rows != table.select(&pred) {
                    let differ = crate::model::difference(&rows, &table.select(&pred));
                    return Err(format!("the scan of {name} is right, but {sql}: {differ}"));
                }
                self.watch.progress.fetch_add(1, Ordering::Relaxed);
            }
            let sums: Answer = answers::sums(
                &reader.run(&format!("SELECT count(*), count(a), sum(a) FROM {name}"))?,
            )?;
            let expected = crate::model::sum(&table.select(&Pred::All));
            if sums != expected {
                return Err(format!("{name}: sums {} instead of {}", show(&sums), show(&expected)));
            }
            let catalog = reader.client().catalog();
            let indexes: Vec<&str> =
                catalog.tables[name.as_str()].indexes.iter().map(|i| i.name.as_str()).collect();
            if let Some(missing) = table.indexes.iter().find(|i| !indexes.contains(&i.as_str())) {
                return Err(format!("{name}: index {missing} is gone"));
            }
        }
        reader.close();
        Ok(())
    }
}
