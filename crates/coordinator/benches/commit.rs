//! Measures how many commits share a log sync, and the commit rate relative to the bare rate of the
//! disk, in a real directory.
//!
//! `cargo bench -p clearway-coordinator --bench commit [-- --quick]`
//!
//! Committers are sessions, spread over one worker thread per core as in the server. Each updates a
//! row of its own by primary key in a transaction of its own, waits until it is durable, and starts
//! again. This covers the whole path except for SQL and the network. The bare rate is that of one
//! thread that repeatedly appends 4096 bytes to a preallocated file and syncs it. All variants are
//! measured in turn, in several rounds, and each one's figures are summed.
//!
//! Then one session runs without waiting, alternating between lockstat on and off. This measures
//! the cost of counting where there is no other wait. The median of the rounds' ratios is compared
//! with its bar.

use clearway_coordinator::{Client, Engine, EngineConfig, Event, Port, RunOptions, Step, Waker};
use clearway_env::{Disk, Open, OsDisk};
use clearway_ir::expr::BinaryOp;
use clearway_ir::program::Env;
use clearway_ir::statement::{Insert, Query, Route, Source, unnumbered_table};
use clearway_ir::{Access, Column, Distribution, Expr, OnConflict, Path, Plan, Program, Statement};
use clearway_latch::lockstat;
use clearway_storage::NodeConfig;
use clearway_types::{Datum, Lsn, SqlType};
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

const COMMITTERS: [usize; 3] = [1, 16, 100];
const BAR_SHARED: f64 = 20.0;
const BAR_RATIO: f64 = 10.0;
/// For updates that cost a microsecond each, without network or disk. Counting costs 10 to 30 ns of
/// that.
const BAR_COUNTED: f64 = 0.95;
const BLOCK: usize = 4096;
const FILE: u64 = 64 << 20;

/// A directory below the build directory, removed at the end.
struct Dir(PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {error}", self.0.display());
        }
    }
}

/// Lets a worker sleep until it is woken.
#[derive(Default)]
struct Bell(Mutex<bool>, Condvar);

impl Bell {
    fn ring(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.1.notify_one();
    }
    fn wait(&self) {
        let rung = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *self.1.wait_while(rung, |rung| !*rung).unwrap_or_else(PoisonError::into_inner) = false;
    }
}

fn int(v: i32) -> Expr {
    Expr::Literal(Datum::Int4(v))
}

fn plan(statement: Statement) -> Arc<Plan> {
    Arc::new(Plan { params: Vec::new(), columns: Vec::new(), statement, catalog: None })
}

/// A session that runs only one statement.
struct Session {
    client: Client,
    update: Arc<Plan>,
    /// The LSN it waits for after a commit.
    waits: Option<Lsn>,
}

/// Runs a statement to its end, alone at the worker.
fn run_alone(port: &mut Port, statement: Statement) {
    let mut client = Client::new(port, 0);
    let mut step = client.start(&plan(statement), &Arc::new(Env::default()), RunOptions::default());
    while let Step::Pending = step {
        port.poll(&mut Vec::new());
        std::thread::yield_now();
        step = client.resume();
    }
    let Step::Done(result) = step else { panic!("no other session changes the table") };
    result.expect("the statement succeeds");
    client.close();
}

/// Creates a table `(id int primary key, balance int)` with a row for each committer.
fn make_table(engine: &Arc<Engine>) {
    let mut port = engine.port(0);
    let column =
        |name: &str| Column { name: name.into(), ty: SqlType::Int4, not_null: true, default: None };
    let columns = vec![column("id"), column("balance")];
    let table = unnumbered_table("accounts", columns, vec![0], Distribution::Hash(vec![0]));
    run_alone(&mut port, Statement::CreateTable { table, if_not_exists: false });
    let table = engine.catalog().table("accounts").expect("the table").clone();
    let program = Arc::new(Program::Insert {
        table: table.clone(),
        returning: Vec::new(),
        on_conflict: OnConflict::Fail,
    });
    let rows =
        (0..COMMITTERS[COMMITTERS.len() - 1]).map(|id| vec![int(id as i32), int(0)]).collect();
    let source = Query { once: None, source: Source::Rows(rows), finish: Vec::new() };
    run_alone(&mut port, Statement::Insert(Insert { table, source, program }));
}

fn update(engine: &Engine, id: i32) -> Arc<Plan> {
    let table = engine.catalog().table("accounts").expect("the table").clone();
    let access = Access {
        table,
        path: Path::Point(vec![int(id)]),
        filter: None,
        lock: None,
        learned: Default::default(),
    };
    let sum = Expr::Binary(BinaryOp::Add, Box::new(Expr::Column(1)), Box::new(int(1)));
    let program = Arc::new(Program::update(access, vec![(1, sum)], Vec::new(), false));
    plan(Statement::Modify { program, route: Route::Hash(vec![int(id)]) })
}

/// Runs one worker with its share of the sessions until `over`. Returns how many commits became
/// durable.
fn work(
    engine: &Arc<Engine>,
    worker: u16,
    ids: Vec<i32>,
    bell: &Bell,
    start: &Barrier,
    over: &AtomicBool,
) -> u64 {
    let mut port = engine.port(worker);
    let session = |(at, id): (usize, &i32)| {
        let client = Client::new(&mut port, at as u32);
        Session { client, update: update(engine, *id), waits: None }
    };
    let mut sessions: Vec<Session> = ids.iter().enumerate().map(session).collect();
    let (env, mut events, mut commits) = (Arc::new(Env::default()), Vec::new(), 0);
    start.wait();
    loop {
        // Relaxed: pairs with no other access; a short delay does not matter.
        let stop = over.load(Ordering::Relaxed);
        let durable = engine.durable();
        for session in &mut sessions {
            if session.waits.is_some_and(|lsn| lsn <= durable) {
                session.waits = None;
                commits += 1;
            }
            if session.waits.is_none() && !session.client.is_running() && !stop {
                let step = session.client.start(&session.update, &env, RunOptions::default());
                session.waits = committed(step);
            }
        }
        events.clear();
        port.poll(&mut events);
        for event in &events {
            if let Event::Continue { session } = event {
                let session = &mut sessions[*session as usize];
                if session.client.is_running() {
                    session.waits = committed(session.client.resume());
                }
            }
        }
        match sessions.iter().filter_map(|s| s.waits).max() {
            Some(lsn) if lsn > engine.durable() => {
                port.want_durable(lsn);
                bell.wait();
            }
            None if stop => break,
            _ => {}
        }
    }
    sessions.into_iter().for_each(|s| s.client.close());
    commits
}

fn committed(step: Step) -> Option<Lsn> {
    match step {
        Step::Done(outcome) => Some(outcome.expect("an update").wait),
        Step::Pending => None,
        Step::Rows(_) | Step::Replan => panic!("no other session changes the table"),
    }
}

/// Commits with this many sessions. Returns commits, syncs and seconds.
fn commits(
    engine: &Arc<Engine>,
    bells: &[Arc<Bell>],
    committers: usize,
    time: Duration,
) -> (u64, u64, f64) {
    let workers = bells.len().min(committers);
    let (start, over) = (Barrier::new(workers + 1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (start, over) = (&start, &over);
        let mut threads = Vec::new();
        for (worker, bell) in bells.iter().enumerate().take(workers) {
            let ids = (worker..committers).step_by(workers).map(|id| id as i32).collect();
            threads.push(scope.spawn(move || work(engine, worker as u16, ids, bell, start, over)));
        }
        let syncs = engine.log_syncs();
        start.wait();
        let began = Instant::now();
        std::thread::park_timeout(time);
        over.store(true, Ordering::Relaxed);
        bells.iter().for_each(|bell| bell.ring());
        let done = threads.into_iter().map(|thread| thread.join().expect("a worker")).sum();
        (done, engine.log_syncs() - syncs, began.elapsed().as_secs_f64())
    })
}

/// Returns the updates per second of one session that waits for nothing.
fn alone(engine: &Arc<Engine>, time: Duration) -> f64 {
    let mut port = engine.port(0);
    let mut client = Client::new(&mut port, 0);
    let (update, env) = (update(engine, 7), Arc::new(Env::default()));
    let (began, mut done) = (Instant::now(), 0_u64);
    while began.elapsed() < time {
        for _ in 0..100 {
            let mut step = client.start(&update, &env, RunOptions::default());
            // Occasionally the log buffer is full.
            while let Step::Pending = step {
                port.poll(&mut Vec::new());
                step = client.resume();
            }
            committed(step);
            done += 1;
        }
    }
    let rate = done as f64 / began.elapsed().as_secs_f64();
    client.close();
    rate
}

/// Returns the updates per second with lockstat, and their ratio to those without: the median over
/// rounds.
fn counted(engine: &Arc<Engine>, rounds: usize, time: Duration) -> (f64, f64) {
    let mut ratios = Vec::new();
    let mut best = 0.0_f64;
    for _ in 0..rounds {
        let [on, off] = [true, false].map(|on| {
            lockstat::set_counting(on);
            alone(engine, time)
        });
        ratios.push(on / off);
        best = best.max(on);
    }
    lockstat::set_counting(true);
    ratios.sort_by(f64::total_cmp);
    (best, ratios[ratios.len() / 2])
}

/// Returns an appending writer's syncs, and seconds.
fn bare(dir: &FilePath, time: Duration) -> (u64, f64) {
    let file = OsDisk.open(&dir.join("bare"), Open::OpenOrCreate).expect("a file");
    if file.len().expect("a length") < FILE {
        for at in (0..FILE).step_by(1 << 20) {
            file.write_all_at(&vec![0; 1 << 20], at).expect("room");
        }
        file.sync_data().expect("a sync");
    }
    let (began, mut syncs) = (Instant::now(), 0);
    while began.elapsed() < time {
        file.write_all_at(&[syncs as u8; BLOCK], syncs * BLOCK as u64 % FILE).expect("a write");
        file.sync_data().expect("a sync");
        syncs += 1;
    }
    (syncs, began.elapsed().as_secs_f64())
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    // Also under `cargo test --benches`.
    let quick = args.iter().any(|arg| arg == "--quick") || !args.iter().any(|arg| arg == "--bench");
    let (rounds, time) =
        if quick { (1, Duration::from_millis(50)) } else { (6, Duration::from_millis(1000)) };
    let dir = Dir(FilePath::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("bench-commit-{}", std::process::id())));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let bells: Vec<Arc<Bell>> = (0..cores).map(|_| Arc::default()).collect();
    let waker = |bell: &Arc<Bell>| {
        let bell = bell.clone();
        Arc::new(move || bell.ring()) as Waker
    };
    let config = EngineConfig {
        node: NodeConfig { partitions: Some(8 * cores as u16), ..NodeConfig::default() },
        checkpoint_interval: Duration::from_secs(3600),
        ..EngineConfig::default()
    };
    let wakers = bells.iter().map(waker).collect();
    let engine =
        Engine::open(Arc::new(OsDisk), &dir.0.join("db"), config, wakers).expect("an engine");
    make_table(&engine);
    let mut plain = (0, 0.0);
    let mut totals = [(0, 0, 0.0); COMMITTERS.len()];
    for _ in 0..rounds {
        let (syncs, seconds) = bare(&dir.0, time);
        plain = (plain.0 + syncs, plain.1 + seconds);
        for (total, committers) in totals.iter_mut().zip(COMMITTERS) {
            let (done, syncs, seconds) = commits(&engine, &bells, committers, time);
            *total = (total.0 + done, total.1 + syncs, total.2 + seconds);
        }
    }
    let rate = plain.0 as f64 / plain.1;
    println!("{cores} cores; bare append and fdatasync of {BLOCK} bytes: {rate:.0} a second");
    println!(
        "{:>10} {:>12} {:>14} {:>10} {:>12}",
        "committers", "commits/s", "commits/sync", "syncs/s", "x bare"
    );
    for ((done, syncs, seconds), committers) in totals.into_iter().zip(COMMITTERS) {
        let (a_second, shared) = (done as f64 / seconds, done as f64 / syncs as f64);
        let (ratio, syncs) = (a_second / rate, syncs as f64 / seconds);
        println!("{committers:>10} {a_second:>12.0} {shared:>14.1} {syncs:>10.0} {ratio:>12.2}");
        if committers == COMMITTERS[COMMITTERS.len() - 1] {
            let ok = |yes| if yes { "ok" } else { "short" };
            println!("at least {BAR_SHARED} commits a sync: {}", ok(shared >= BAR_SHARED));
            println!("at least {BAR_RATIO} times the bare rate: {}", ok(ratio >= BAR_RATIO));
        }
    }
    let (best, ratio) = counted(&engine, if quick { 3 } else { 41 }, time / 10);
    let ok = if ratio >= BAR_COUNTED { "ok" } else { "short" };
    println!("one session, without waiting: {best:.0} updates/s, {ratio:.3} of the uncounted rate");
    println!("at least {BAR_COUNTED} of it: {ok}");
    engine.shutdown().expect("a clean end");
}
