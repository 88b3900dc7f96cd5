//! Changes of the partitions' schemes at run time, beside running statements.

use crate::common::{Bank, Worker, int, open_config, plan};
use crate::partitions::reports;
use clearway_coordinator::{Engine, Limits, PartitionReport, SchemeKind, Stall, Step};
use clearway_ir::statement::{Query, Source, TxnOptions};
use clearway_ir::{Expr, Plan, Statement};
use clearway_testkit::{MemDisk, Rng};
use clearway_types::{PartitionId, SqlError, SqlState};
use std::sync::Arc;

const ACCOUNTS: i32 = 12;
const PARTITIONS: u16 = 3;
const WORKERS: usize = 6;

/// Opens an engine in which a statement on several partitions waits for two turns before its
/// decision, and no undo waits for another thread to read the log.
fn open(scheme: SchemeKind) -> Arc<Engine> {
    open_config(&MemDisk::new(), PARTITIONS, WORKERS, |config| {
        config.partition = Limits { scheme, ..Limits::default() };
        config.stall = Stall::Turns(2);
        config.node.undo_memory = 1 << 20;
    })
}

fn workers(engine: &Arc<Engine>) -> Vec<Worker> {
    (0..WORKERS).map(|n| Worker::new(engine, n as u16)).collect()
}

/// Returns the statement that changes the scheme of a partition, or of all.
fn setting(partition: Option<i32>, scheme: &str) -> Arc<Plan> {
    let (partition, scheme) = (partition.map(int), Expr::Literal(scheme.into()));
    let source = Source::SetScheme { partition, scheme };
    plan(Statement::Query(Query { once: None, source, finish: Vec::new() }))
}

fn set(worker: &mut Worker, partition: Option<i32>, scheme: SchemeKind) {
    worker.run(&setting(partition, &scheme.to_string())).unwrap();
}

/// Returns the nth account of this partition.
fn account(partition: u16, nth: usize) -> i32 {
    let here = |id: &i32| Bank::home(*id, PARTITIONS) == PartitionId(partition);
    (0..ACCOUNTS).filter(here).nth(nth).expect("enough accounts")
}

fn schemes(engine: &Engine, workers: &mut [Worker]) -> Vec<SchemeKind> {
    reports(engine, workers).iter().map(|report| report.scheme).collect()
}

fn close(engine: &Engine, workers: Vec<Worker>) {
    assert_eq!(engine.lock_waits(), []);
    workers.into_iter().for_each(Worker::close);
    engine.shutdown().unwrap();
}

fn waits(worker: &mut Worker) {
    for _ in 0..10 {
        worker.port.poll(&mut Vec::new());
        let step = worker.resume();
        assert!(matches!(step, Step::Pending), "{step:?}");
    }
}

#[test]
fn schemes_are_set_by_partition_or_for_all() {
    use SchemeKind::{Blocking, Hybrid, Locking, Speculative};
    let engine = open(Hybrid);
    let mut workers = workers(&engine);
    set(&mut workers[0], Some(1), Locking);
    assert_eq!(schemes(&engine, &mut workers), [Hybrid, Locking, Hybrid]);
    set(&mut workers[1], None, Speculative);
    set(&mut workers[2], Some(2), Blocking);
    assert_eq!(schemes(&engine, &mut workers), [Speculative, Speculative, Blocking]);
    close(&engine, workers);
}

#[test]
fn wrong_arguments_and_blocks_are_refused() {
    let engine = open(SchemeKind::Hybrid);
    let mut workers = workers(&engine);
    let mut refused = |plan: &Arc<Plan>| workers[0].run(plan).unwrap_err();
    for partition in [-1, 3, i32::MAX] {
        let error = refused(&setting(Some(partition), "locking"));
        assert_eq!(error.state(), SqlState::INVALID_PARAMETER);
        assert_eq!(error.message(), format!("partition {partition} does not exist"));
        assert_eq!(error.get_hint(), Some("The partitions are 0 to 2."));
    }
    let error = refused(&setting(None, "serial"));
    assert_eq!(error.message(), "scheme \"serial\" does not exist");
    assert!(error.get_hint().is_some_and(|hint| hint.contains("hybrid, blocking")));
    let null =
        Source::SetScheme { partition: None, scheme: Expr::Literal(clearway_types::Datum::Null) };
    let query = Query { once: None, source: null, finish: Vec::new() };
    let error = refused(&plan(Statement::Query(query)));
    assert_eq!(error.state(), SqlState(*b"22004"));
    workers[0].begin();
    let error = workers[0].run(&setting(None, "locking")).unwrap_err();
    assert_eq!(error.state(), SqlState::ACTIVE_TRANSACTION);
    workers[0].rollback();
    assert_eq!(schemes(&engine, &mut workers), [SchemeKind::Hybrid; 3]);
    close(&engine, workers);
}

#[test]
fn changes_wait_for_running_statements_and_can_be_canceled() {
    let engine = open(SchemeKind::Blocking);
    let mut workers = workers(&engine);
    let bank = Bank::create(&mut workers[0], ACCOUNTS, 100);
    let all = bank.adding_to_all(&mut workers[0], 1);
    assert!(matches!(workers[0].start(&all), Step::Pending));
    for (worker, scheme) in [(1, "locking"), (2, "speculative")] {
        assert!(matches!(workers[worker].start(&setting(None, scheme)), Step::Pending));
        waits(&mut workers[worker]);
    }
    let one = bank.adding(&mut workers[3], account(1, 0), 10);
    assert!(matches!(workers[3].start(&one), Step::Pending), "it waits in line");
    let before = reports(&engine, &mut workers);
    let queues: Vec<usize> = before.iter().map(|report| report.queue).collect();
    assert_eq!(queues, [2, 3, 2], "two changes each, and a statement");
    workers[2].cancel(&SqlError::new(SqlState::QUERY_CANCELED, "enough"));
    let canceled = workers[2].end(Step::Pending).unwrap_err();
    assert_eq!(canceled.state(), SqlState::QUERY_CANCELED);
    workers[0].end(Step::Pending).unwrap();
    for worker in [1, 3] {
        workers[worker].end(Step::Pending).unwrap();
    }
    assert_eq!(schemes(&engine, &mut workers), [SchemeKind::Locking; 3]);
    assert_eq!(bank.balance(&mut workers[0], account(1, 0)), Some(111));
    close(&engine, workers);
}

#[test]
fn idle_transactions_do_not_delay_changes() {
    for from in SchemeKind::ALL {
        let engine = open(from);
        let mut workers = workers(&engine);
        let bank = Bank::create(&mut workers[0], ACCOUNTS, 100);
        workers[0].begin();
        for partition in 0..PARTITIONS {
            bank.add(&mut workers[0], account(partition, 0), 1).unwrap();
        }
        for to in SchemeKind::ALL {
            set(&mut workers[1], None, to);
            assert_eq!(schemes(&engine, &mut workers), [to; 3], "{from}");
            bank.add(&mut workers[0], account(1, 1), 1).unwrap();
        }
        let added = i64::from(PARTITIONS) + SchemeKind::ALL.len() as i64;
        workers[0].commit().unwrap();
        assert_eq!(bank.total(&mut workers[2]), 100 * i64::from(ACCOUNTS) + added, "{from}");
        close(&engine, workers);
    }
}

/// A statement that had one partition to itself and waited for a lock at another could wait for a
/// transaction in the first one's line.
#[test]
fn statements_lock_at_all_partitions_if_one_locks() {
    for (scheme, alone) in [(SchemeKind::Speculative, true), (SchemeKind::Locking, false)] {
        let engine = open(SchemeKind::Blocking);
        let mut workers = workers(&engine);
        let bank = Bank::create(&mut workers[0], ACCOUNTS, 100);
        set(&mut workers[0], Some(2), scheme);
        let before = reports(&engine, &mut workers);
        let all = bank.adding_to_all(&mut workers[0], 1);
        assert!(matches!(workers[0].start(&all), Step::Pending));
        workers[0].end(Step::Pending).unwrap();
        let after = reports(&engine, &mut workers);
        let stalled = |(before, after): (&PartitionReport, &PartitionReport)| {
            after.times.stall > before.times.stall
        };
        let stalls: Vec<bool> = before.iter().zip(&after).map(stalled).collect();
        assert_eq!(stalls, [alone; 3], "{scheme}");
        close(&engine, workers);
    }
}

/// What a session's running statement does.
#[derive(Clone, Copy, Debug)]
enum Work {
    Change,
    /// Adds this in total.
    Add(i64),
    Begin,
    End {
        commits: bool,
    },
}

/// A session of the load.
#[derive(Default)]
struct Session {
    running: Option<Work>,
    /// What its open block has added, if it is in one.
    block: Option<i64>,
    failed: bool,
}

/// Sessions that run statements on one and on all partitions, and blocks, while schemes change. One
/// thread runs them, so a seed determines everything.
struct Load {
    engine: Arc<Engine>,
    bank: Bank,
    workers: Vec<Worker>,
    sessions: Vec<Session>,
    rng: Rng,
    sum: i64,
    /// Changes, additions and blocks that have succeeded.
    done: [u64; 3],
}

impl Load {
    fn new(seed: u64) -> Self {
        let engine = open(SchemeKind::ALL[seed as usize % SchemeKind::ALL.len()]);
        let mut workers = workers(&engine);
        let bank = Bank::create(&mut workers[0], ACCOUNTS, 100);
        let sessions = (0..WORKERS).map(|_| Session::default()).collect();
        let sum = 100 * i64::from(ACCOUNTS);
        Self { engine, bank, workers, sessions, rng: Rng::new(seed), sum, done: [0; 3] }
    }

    /// Lets a session run. If it is idle, it starts a statement, or only ends its block.
    fn turn(&mut self, at: usize, starts: bool) {
        let mut step = if self.sessions[at].running.is_some() {
            self.workers[at].port.poll(&mut Vec::new());
            self.workers[at].resume()
        } else if starts || self.sessions[at].block.is_some() {
            self.start(at, starts)
        } else {
            // Its mail may concern others.
            return self.workers[at].port.poll(&mut Vec::new());
        };
        while let Step::Rows(_) = step {
            step = self.workers[at].resume();
        }
        match step {
            Step::Pending => {}
            Step::Done(result) => {
                let result = result.map(drop).map_err(|refusal| SqlError::from(refusal).state());
                self.end(at, result);
            }
            step => panic!("{step:?}"),
        }
    }

    fn start(&mut self, at: usize, starts: bool) -> Step {
        let (rng, worker, session) = (&mut self.rng, &mut self.workers[at], &mut self.sessions[at]);
        let amount = 1 + rng.below(5) as i32;
        let id = rng.below(ACCOUNTS as u64) as i32;
        let ends = session.block.is_some() && (!starts || session.failed || rng.permille(300));
        let (work, plan) = if ends {
            let commits = !session.failed && rng.permille(800);
            let statement = if commits { Statement::Commit } else { Statement::Rollback };
            (Work::End { commits }, plan(statement))
        } else if session.block.is_some() {
            (Work::Add(amount.into()), self.bank.adding(worker, id, amount))
        } else {
            match rng.below(10) {
                0 => {
                    let scheme = SchemeKind::ALL[rng.below(SchemeKind::ALL.len() as u64) as usize];
                    let partition = rng.below(u64::from(PARTITIONS) + 1) as i32;
                    let partition = (partition < i32::from(PARTITIONS)).then_some(partition);
                    (Work::Change, setting(partition, &scheme.to_string()))
                }
                1 => (Work::Begin, plan(Statement::Begin(TxnOptions::default()))),
                2..5 => {
                    let total = i64::from(amount * ACCOUNTS);
                    (Work::Add(total), self.bank.adding_to_all(worker, amount))
                }
                _ => (Work::Add(amount.into()), self.bank.adding(worker, id, amount)),
            }
        };
        session.running = Some(work);
        worker.start(&plan)
    }

    fn end(&mut self, at: usize, result: Result<(), SqlState>) {
        let session = &mut self.sessions[at];
        let work = session.running.take().expect("a statement");
        match (work, result) {
            (Work::Change, Ok(())) => self.done[0] += 1,
            (Work::Begin, Ok(())) => session.block = Some(0),
            (Work::Add(amount), Ok(())) => match &mut session.block {
                Some(added) => *added += amount,
                None => {
                    self.sum += amount;
                    self.done[1] += 1;
                }
            },
            (Work::End { commits }, Ok(())) => {
                let added = session.block.take().unwrap_or(0);
                session.failed = false;
                if commits {
                    self.sum += added;
                    self.done[2] += 1;
                }
            }
            (Work::Add(_), Err(SqlState::DEADLOCK)) => session.failed = session.block.is_some(),
            (work, result) => panic!("{work:?}: {result:?}"),
        }
    }

    /// Ends everything: no statement may wait forever.
    fn drain(&mut self) {
        let is_idle = |session: &Session| session.running.is_none() && session.block.is_none();
        for _ in 0..10_000 {
            (0..WORKERS).for_each(|at| self.turn(at, false));
            if self.sessions.iter().all(is_idle) {
                return;
            }
        }
        let running: Vec<_> = self.sessions.iter().map(|s| (s.running, s.block)).collect();
        panic!("statements never end: {running:?}, {:?}", self.engine.lock_waits());
    }
}

#[test]
fn schemes_change_under_load() {
    let mut done = [0; 3];
    for seed in 0..12 {
        let mut load = Load::new(seed);
        for _ in 0..3_000 {
            let at = load.rng.below(WORKERS as u64) as usize;
            load.turn(at, true);
        }
        load.drain();
        let Load { engine, bank, mut workers, sum, .. } = load;
        assert_eq!(bank.total(&mut workers[0]), sum, "seed {seed}");
        for PartitionReport { active, queue, .. } in reports(&engine, &mut workers) {
            assert_eq!((active, queue), (0, 0), "seed {seed}");
        }
        close(&engine, workers);
        done.iter_mut().zip(load.done).for_each(|(all, n)| *all += n);
    }
    assert!(done[0] > 200 && done[1] > 1_000 && done[2] > 50, "{done:?}");
}
