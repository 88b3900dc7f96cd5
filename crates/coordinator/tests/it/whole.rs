//! Transactions that arrive whole: they have exclusive access to their partitions, and give it up
//! where others would have to wait.

use crate::common::{Bank, Worker, open, open_with};
use crate::contention::{is_alone, requests};
use clearway_coordinator::{
    Characteristics, Engine, Limits, LockWaitView, RunOptions, Step, TxnStatus, Whole, reach,
};
use clearway_ir::expr::Func;
use clearway_ir::program::Env;
use clearway_ir::statement::{Isolation, TxnOptions};
use clearway_ir::{Backends, Expr, Plan, SessionEnv, Signal, Statement};
use clearway_testkit::MemDisk;
use clearway_types::{Datum, PartitionId, SqlError, SqlState, SqlType};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const ACCOUNTS: i32 = 20;

/// Returns accounts that live at this partition, of two.
fn at(partition: u16) -> Vec<i32> {
    (0..ACCOUNTS).filter(|id| Bank::home(*id, 2) == PartitionId(partition)).collect()
}

/// Begins a transaction that consists of these statements.
fn begin(worker: &mut Worker, engine: &Engine, statements: &[&Arc<Plan>]) {
    begin_at(worker, engine, statements, Isolation::Serializable);
}

fn begin_at(worker: &mut Worker, engine: &Engine, statements: &[&Arc<Plan>], isolation: Isolation) {
    let mut whole = Whole::new();
    for statement in statements {
        assert!(reach(&mut whole, engine, statement, &Env::default()));
    }
    worker.client().announce(Some(whole));
    let characteristics = Characteristics { isolation, ..Characteristics::default() };
    let plan = crate::common::plan(Statement::Begin(TxnOptions::default()));
    let step = worker.start_with(&plan, RunOptions { characteristics, ..RunOptions::default() });
    worker.end(step).unwrap();
}

/// Returns the number of requests for locks of keys, ranges and tables, including those that may
/// wait for a partition.
fn row_locks() -> u64 {
    requests("lock.") - requests("lock.partition")
}

fn is_pending(step: &Step) -> bool {
    matches!(step, Step::Pending)
}

fn waits(engine: &Engine) -> Vec<String> {
    engine.lock_waits().iter().map(LockWaitView::what).collect()
}

#[test]
fn whole_transactions_take_no_locks() {
    if !is_alone("whole::whole_transactions_take_no_locks") {
        return;
    }
    let engine = open(&MemDisk::new(), 2, 1);
    let mut worker = Worker::new(&engine, 0);
    let bank = Bank::create(&mut worker, ACCOUNTS, 100);
    let (here, there) = (at(0), at(1));
    for ids in [[here[0], here[1]], [here[0], there[0]]] {
        for isolation in
            [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable]
        {
            let statements =
                [bank.adding(&mut worker, ids[0], 1), bank.reading(&mut worker, ids[1])];
            let insert = bank.inserting(&mut worker, &[(1000, 1)]);
            let before = row_locks();
            begin_at(&mut worker, &engine, &[&statements[0], &statements[1], &insert], isolation);
            for statement in statements.iter().chain([&insert]) {
                worker.run(statement).unwrap();
            }
            worker.rollback();
            assert_eq!(row_locks(), before, "{ids:?} {isolation:?}");
            // The same one statement at a time, with locks, to verify the counter.
            worker.begin();
            worker.run(&statements[0]).unwrap();
            worker.commit().unwrap();
            assert!(row_locks() > before);
        }
    }
    worker.close();
    engine.shutdown().unwrap();
}

#[test]
fn others_wait_until_the_transaction_ends() {
    let engine = open(&MemDisk::new(), 2, 3);
    let [mut whole, mut other, mut second] = [0, 1, 2].map(|worker| Worker::new(&engine, worker));
    let bank = Bank::create(&mut whole, ACCOUNTS, 100);
    let (here, there) = (at(0), at(1));
    let statements = [bank.adding(&mut whole, there[0], 1), bank.adding(&mut whole, here[0], -1)];
    begin(&mut whole, &engine, &[&statements[0], &statements[1]]);
    whole.run(&statements[0]).unwrap();
    let update = bank.adding(&mut other, here[1], 5);
    assert!(is_pending(&other.start(&update)));
    // Another one that needs both waits behind it in line.
    let again = [bank.adding(&mut second, here[0], 2), bank.adding(&mut second, there[0], 2)];
    begin(&mut second, &engine, &[&again[0], &again[1]]);
    assert!(is_pending(&second.start(&again[0])));
    assert_eq!(waits(&engine), ["partition 0", "partition 0"]);
    whole.run(&statements[1]).unwrap();
    whole.commit().unwrap();
    other.end(Step::Pending).unwrap();
    second.end(Step::Pending).unwrap();
    second.run(&again[1]).unwrap();
    second.commit().unwrap();
    let left = [here[0], here[1], there[0]].map(|id| bank.balance(&mut whole, id).unwrap());
    assert_eq!(left, [101, 105, 103]);
    [whole, other, second].into_iter().for_each(Worker::close);
    engine.shutdown().unwrap();
}

#[test]
fn failing_statement_undoes_earlier_ones() {
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable]
    {
        let engine = open(&MemDisk::new(), 2, 2);
        let [mut whole, mut other] = [0, 1].map(|worker| Worker::new(&engine, worker));
        let bank = Bank::create(&mut whole, ACCOUNTS, 100);
        let (here, there) = (at(0), at(1));
        let statements =
            [bank.adding(&mut whole, there[0], 1), bank.adding(&mut whole, here[0], -1)];
        let twice = bank.inserting(&mut whole, &[(here[1], 0)]);
        begin_at(&mut whole, &engine, &[&statements[0], &statements[1], &twice], isolation);
        whole.run(&statements[0]).unwrap();
        whole.run(&statements[1]).unwrap();
        assert_eq!(whole.run(&twice).unwrap_err().state(), SqlState::UNIQUE_VIOLATION);
        assert_eq!(whole.status(), TxnStatus::Failed);
        // Everything is undone, and the partitions are free, before the block's end.
        bank.add(&mut other, here[0], 10).unwrap();
        let left = [here[0], there[0]].map(|id| bank.balance(&mut other, id).unwrap());
        assert_eq!(left, [110, 100]);
        whole.rollback();
        [whole, other].into_iter().for_each(Worker::close);
        engine.shutdown().unwrap();
    }
}

#[test]
fn savepoints_work_without_locks() {
    let engine = open(&MemDisk::new(), 2, 1);
    let mut worker = Worker::new(&engine, 0);
    let bank = Bank::create(&mut worker, ACCOUNTS, 100);
    let (here, there) = (at(0), at(1));
    let statements = [bank.adding(&mut worker, there[0], 1), bank.adding(&mut worker, here[0], -1)];
    begin(&mut worker, &engine, &[&statements[0], &statements[1]]);
    worker.run(&statements[0]).unwrap();
    worker.savepoint("s");
    worker.run(&statements[1]).unwrap();
    assert!(bank.insert(&mut worker, here[0], 1).is_err());
    worker.rollback_to("s");
    worker.run(&statements[0]).unwrap();
    worker.commit().unwrap();
    let left = [here[0], there[0]].map(|id| bank.balance(&mut worker, id).unwrap());
    assert_eq!(left, [100, 102]);
    worker.close();
    engine.shutdown().unwrap();
}

#[test]
fn early_savepoint_is_known_at_every_partition() {
    let engine = open(&MemDisk::new(), 2, 1);
    let mut worker = Worker::new(&engine, 0);
    let bank = Bank::create(&mut worker, ACCOUNTS, 100);
    let (here, there) = (at(0), at(1));
    let statements = [bank.adding(&mut worker, there[0], 1), bank.adding(&mut worker, here[0], -1)];
    begin(&mut worker, &engine, &[&statements[0], &statements[1]]);
    worker.savepoint("s");
    worker.run(&statements[0]).unwrap();
    worker.rollback_to("s");
    worker.run(&statements[1]).unwrap();
    worker.commit().unwrap();
    let left = [here[0], there[0]].map(|id| bank.balance(&mut worker, id).unwrap());
    assert_eq!(left, [99, 100]);
    worker.close();
    engine.shutdown().unwrap();
}

#[test]
fn waiting_for_the_client_keeps_only_row_locks() {
    let engine = open(&MemDisk::new(), 2, 2);
    let [mut whole, mut other] = [0, 1].map(|worker| Worker::new(&engine, worker));
    let bank = Bank::create(&mut whole, ACCOUNTS, 100);
    let unrelated = Bank::create_without_key(&mut whole, "others", 0, 0);
    let (here, there) = (at(0), at(1));
    let statements = [bank.adding(&mut whole, there[0], 1), bank.adding(&mut whole, here[0], -1)];
    begin(&mut whole, &engine, &[&statements[0], &statements[1]]);
    whole.run(&statements[0]).unwrap();
    whole.release_exclusive();
    // Nothing else in this partition or in that table has been used.
    bank.add(&mut other, here[1], 5).unwrap();
    unrelated.insert(&mut other, 1, 1).unwrap();
    let update = bank.adding(&mut other, there[0], 7);
    assert!(is_pending(&other.start(&update)));
    whole.run(&statements[1]).unwrap();
    whole.commit().unwrap();
    other.end(Step::Pending).unwrap();
    assert_eq!([here[0], there[0]].map(|id| bank.balance(&mut whole, id).unwrap()), [99, 108]);
    [whole, other].into_iter().for_each(Worker::close);
    engine.shutdown().unwrap();
}

#[test]
fn statement_at_another_partition_gives_up_partitions() {
    let engine = open(&MemDisk::new(), 2, 2);
    let [mut whole, mut other] = [0, 1].map(|worker| Worker::new(&engine, worker));
    let bank = Bank::create(&mut whole, ACCOUNTS, 100);
    let (here, there) = (at(0), at(1));
    let statements = [bank.adding(&mut whole, here[0], 1), bank.adding(&mut whole, there[0], -1)];
    begin(&mut whole, &engine, &[&statements[0]]);
    whole.run(&statements[0]).unwrap();
    whole.run(&statements[1]).unwrap();
    // In the second partition only the row is locked, in the first the table.
    bank.add(&mut other, there[1], 5).unwrap();
    let update = bank.adding(&mut other, here[1], 7);
    assert!(is_pending(&other.start(&update)));
    whole.commit().unwrap();
    other.end(Step::Pending).unwrap();
    [whole, other].into_iter().for_each(Worker::close);
    engine.shutdown().unwrap();
}

#[test]
fn refused_transaction_uses_locks() {
    let engine = open(&MemDisk::new(), 2, 3);
    let [mut holder, mut whole, mut other] = [0, 1, 2].map(|worker| Worker::new(&engine, worker));
    let bank = Bank::create(&mut holder, ACCOUNTS, 100);
    let (here, there) = (at(0), at(1));
    holder.begin();
    bank.add(&mut holder, there[0], 1).unwrap();
    // The second partition refuses it. It gives up the first and waits for nothing.
    let statements = [bank.adding(&mut whole, here[0], 1), bank.adding(&mut whole, there[1], 1)];
    begin(&mut whole, &engine, &[&statements[0], &statements[1]]);
    whole.run(&statements[0]).unwrap();
    whole.run(&statements[1]).unwrap();
    bank.add(&mut other, here[1], 1).unwrap();
    bank.add(&mut other, there[2], 1).unwrap();
    whole.commit().unwrap();
    // It waits for the locked row, and can be cancelled.
    let statements = [bank.adding(&mut whole, here[0], 1), bank.adding(&mut whole, there[0], 1)];
    begin(&mut whole, &engine, &[&statements[0], &statements[1]]);
    whole.run(&statements[0]).unwrap();
    assert!(is_pending(&whole.start(&statements[1])));
    assert_eq!(waits(&engine).len(), 1);
    whole.cancel(&SqlError::new(SqlState::QUERY_CANCELED, "enough"));
    assert_eq!(whole.end(Step::Pending).unwrap_err().state(), SqlState::QUERY_CANCELED);
    whole.rollback();
    holder.commit().unwrap();
    assert_eq!([here[0], there[0]].map(|id| bank.balance(&mut whole, id).unwrap()), [101, 101]);
    [holder, whole, other].into_iter().for_each(Worker::close);
    engine.shutdown().unwrap();
}

/// Starts a transaction that requested the first partition but has used up its slice there: it has
/// locks, and continues when polled.
fn stopped(engine: &Engine, worker: &mut Worker, bank: &Bank) {
    let ids = at(0);
    let many = bank.adding_to(worker, &ids[..4], ids[0], 1);
    begin(worker, engine, &[&many]);
    assert!(is_pending(&worker.start(&many)), "a slice is one row");
}

fn one_row_a_slice() -> Limits {
    Limits { slice_rows: 1, ..Limits::default() }
}

#[test]
fn waits_for_a_stalled_transaction_to_end() {
    let engine = open_with(&MemDisk::new(), 2, 3, one_row_a_slice());
    let [mut first, mut second, mut third] = [0, 1, 2].map(|worker| Worker::new(&engine, worker));
    let bank = Bank::create(&mut first, ACCOUNTS, 100);
    stopped(&engine, &mut first, &bank);
    let (here, there) = (at(0), at(1));
    let update = bank.adding(&mut second, here[0], 1);
    begin(&mut second, &engine, &[&update]);
    assert!(is_pending(&second.start(&update)));
    let more = bank.adding(&mut third, there[0], 1);
    begin(&mut third, &engine, &[&update, &more]);
    assert!(is_pending(&third.start(&update)));
    assert_eq!(waits(&engine), ["partition 0", "partition 0"]);
    // A cancelled one stops waiting.
    third.cancel(&SqlError::new(SqlState::QUERY_CANCELED, "enough"));
    assert_eq!(third.end(Step::Pending).unwrap_err().state(), SqlState::QUERY_CANCELED);
    third.rollback();
    first.end(Step::Pending).unwrap();
    assert!(is_pending(&second.resume()), "the first still has its locks");
    first.commit().unwrap();
    second.end(Step::Pending).unwrap();
    second.commit().unwrap();
    assert_eq!(bank.balance(&mut first, here[0]), Some(102));
    assert_eq!(engine.lock_waits(), []);
    [first, second, third].into_iter().for_each(Worker::close);
    engine.shutdown().unwrap();
}

#[test]
fn does_not_wait_for_an_interactive_transaction() {
    let engine = open_with(&MemDisk::new(), 2, 3, one_row_a_slice());
    let [mut first, mut second, mut holder] = [0, 1, 2].map(|worker| Worker::new(&engine, worker));
    let bank = Bank::create(&mut first, ACCOUNTS, 100);
    let there = at(1);
    holder.begin();
    bank.add(&mut holder, there[0], 1).unwrap();
    stopped(&engine, &mut first, &bank);
    first.end(Step::Pending).unwrap();
    // The first still has locks, since its client's whole message is being executed.
    let row = at(0)[5];
    let update = bank.adding(&mut second, row, 1);
    begin(&mut second, &engine, &[&update]);
    assert!(is_pending(&second.start(&update)));
    assert_eq!(waits(&engine), ["partition 0"]);
    // It now waits for an interactive one, so no other should wait for it.
    let locked = bank.adding(&mut first, there[0], 1);
    assert!(is_pending(&first.start(&locked)));
    first.port.poll(&mut Vec::new());
    assert!(is_pending(&first.resume()));
    second.port.poll(&mut Vec::new());
    assert!(is_pending(&second.resume()), "the table is locked, as it was the first's partition");
    assert!(!waits(&engine).contains(&"partition 0".to_owned()), "{:?}", waits(&engine));
    holder.commit().unwrap();
    first.end(Step::Pending).unwrap();
    first.commit().unwrap();
    second.end(Step::Pending).unwrap();
    second.commit().unwrap();
    assert_eq!(bank.balance(&mut first, row), Some(101));
    [first, second, holder].into_iter().for_each(Worker::close);
    engine.shutdown().unwrap();
}

#[test]
fn closed_client_leaves_nothing() {
    let engine = open(&MemDisk::new(), 2, 3);
    let [mut whole, mut asks, mut other] = [0, 1, 2].map(|worker| Worker::new(&engine, worker));
    let bank = Bank::create(&mut whole, ACCOUNTS, 100);
    let (here, there) = (at(0), at(1));
    let statements = [bank.adding(&mut whole, here[0], 1), bank.adding(&mut whole, there[0], 1)];
    begin(&mut whole, &engine, &[&statements[0], &statements[1]]);
    whole.run(&statements[0]).unwrap();
    begin(&mut asks, &engine, &[&statements[0], &statements[1]]);
    assert!(is_pending(&asks.start(&statements[0])));
    // First the one that waits, then the one that it waits for.
    let mut ports = [asks.leave(), whole.leave()];
    ports.iter_mut().for_each(|port| port.poll(&mut Vec::new()));
    bank.add(&mut other, here[0], 5).unwrap();
    bank.add(&mut other, there[0], 5).unwrap();
    assert_eq!([here[0], there[0]].map(|id| bank.balance(&mut other, id).unwrap()), [105, 105]);
    assert_eq!(engine.lock_waits(), []);
    other.close();
    engine.shutdown().unwrap();
}

/// Some transactions announce their work, some do not, some announce too little. None waits
/// forever, and the sum stays the same.
#[test]
fn whole_and_interactive_transactions_all_end() {
    let engine = open_with(&MemDisk::new(), 4, 4, Limits { slice_rows: 2, ..Limits::default() });
    let mut worker = Worker::new(&engine, 0);
    let bank = Bank::create(&mut worker, ACCOUNTS, 100);
    worker.close();
    std::thread::scope(|scope| {
        for number in 0..4u16 {
            let (engine, bank) = (&engine, &bank);
            scope.spawn(move || {
                let mut worker = Worker::new(engine, number);
                worker.lazy = true;
                for round in 0..150 {
                    let from = (round * 7 + i32::from(number) * 3) % ACCOUNTS;
                    let to = (from + 1 + round % 5) % ACCOUNTS;
                    let statements =
                        [bank.adding(&mut worker, from, -1), bank.adding(&mut worker, to, 1)];
                    match (round + i32::from(number)) % 4 {
                        0 => worker.begin(),
                        1 => begin(&mut worker, engine, &[&statements[0]]),
                        _ => begin(&mut worker, engine, &[&statements[1], &statements[0]]),
                    }
                    let done =
                        statements.iter().try_for_each(|statement| worker.run(statement).map(drop));
                    match done {
                        Ok(()) => drop(worker.commit().unwrap()),
                        Err(e) => {
                            assert_eq!(e.state(), SqlState::DEADLOCK, "{e}");
                            worker.rollback();
                        }
                    }
                }
                worker.close();
            });
        }
    });
    let mut worker = Worker::new(&engine, 0);
    assert_eq!(bank.total(&mut worker), i64::from(ACCOUNTS) * 100);
    worker.close();
    engine.shutdown().unwrap();
}

#[test]
fn unknown_partitions_are_not_whole() {
    let engine = open(&MemDisk::new(), 2, 1);
    let mut worker = Worker::new(&engine, 0);
    let bank = Bank::create(&mut worker, ACCOUNTS, 100);
    let reaches = |plan: &Arc<Plan>| {
        let mut whole = Whole::new();
        reach(&mut whole, &engine, plan, &Env::default()).then_some(whole)
    };
    let point = bank.adding(&mut worker, 1, 1);
    let home = vec![Bank::home(1, 2)];
    assert_eq!(
        reaches(&point),
        Some(Whole { partitions: home.clone(), writes: true, points: true })
    );
    let read = bank.reading(&mut worker, 1);
    assert_eq!(reaches(&read), Some(Whole { partitions: home, writes: false, points: true }));
    let all = bank.totalling(&mut worker);
    let both = vec![PartitionId(0), PartitionId(1)];
    assert_eq!(reaches(&all), Some(Whole { partitions: both, writes: false, points: false }));
    let select_into = bank.inserting_total(&mut worker, 100);
    let truncate = crate::common::plan(Statement::Truncate { names: vec!["accounts".into()] });
    assert_eq!((reaches(&select_into), reaches(&truncate)), (None, None));
    worker.close();
    engine.shutdown().unwrap();
}

/// Counts the signals that expressions send.
#[derive(Debug, Default)]
struct Signalled(AtomicUsize);

impl Backends for Signalled {
    fn signal(&self, _pid: i32, _signal: Signal) -> bool {
        // Relaxed: only the test's thread uses it.
        self.0.fetch_add(1, Ordering::Relaxed);
        true
    }
}

#[test]
fn looking_ahead_evaluates_only_constant_keys() {
    let engine = open(&MemDisk::new(), 2, 1);
    let mut worker = Worker::new(&engine, 0);
    let bank = Bank::create(&mut worker, ACCOUNTS, 100);
    let signalled = Arc::new(Signalled::default());
    let session = SessionEnv { backends: Some(signalled.clone()), ..SessionEnv::default() };
    let env = Env { session: Some(Arc::new(session)), ..Env::default() };
    let int = |n: i32| Expr::Literal(Datum::Int4(n));
    let signal = || Expr::Cast {
        expr: Box::new(Expr::Func(Func::PgCancelBackend, vec![int(1)])),
        to: SqlType::Int4,
        explicit: true,
    };
    let mut reaches = |row: Vec<Expr>| {
        let plan = bank.inserting_values(&mut worker, vec![row]);
        let mut whole = Whole::new();
        reach(&mut whole, &engine, &plan, &env).then_some(whole.partitions)
    };
    assert_eq!(reaches(vec![int(1000), signal()]), Some(vec![Bank::home(1000, 2)]));
    assert_eq!(reaches(vec![signal(), int(1)]), None);
    assert_eq!(signalled.0.load(Ordering::Relaxed), 0);
    worker.close();
    engine.shutdown().unwrap();
}
