//! A cancel request that finds no call to end: all calls have been answered, and the statement has
//! not sent the next ones yet. It ends the statement all the same.

use crate::common::{Bank, Worker, int, open_config, plan};
use crate::users::{Users, Who};
use clearway_coordinator::{Engine, Step};
use clearway_ir::statement::{Isolation, Query, Route, Source, TxnOptions};
use clearway_ir::{
    Access, Distribution, LockWait, Path, Plan, Program, RowLock, RowLocking, Statement,
};
use clearway_testkit::MemDisk;
use clearway_types::{PartitionId, SqlError, SqlState};
use std::sync::Arc;

const PARTITIONS: u16 = 2;
const CHUNK: usize = 4;
const ROWS: i32 = 10;

/// Runs `f` while another thread has all partitions.
fn while_busy<R>(engine: &Engine, f: impl FnOnce() -> R) -> R {
    engine.while_busy(PartitionId(0), || engine.while_busy(PartitionId(1), f))
}

/// Runs the statement in a block, and cancels it once all calls of this turn have been answered.
/// Returns whether that ended it; `None` if it has fewer turns.
fn is_cancelled_at(
    engine: &Engine,
    worker: &mut Worker,
    (name, isolation, plan): (&str, Isolation, &Arc<Plan>),
    turn: usize,
) -> Option<bool> {
    let options = TxnOptions { isolation: Some(isolation), ..TxnOptions::default() };
    worker.plain(Statement::Begin(options)).unwrap();
    let error = SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request");
    let mut turns = 0;
    let mut step = while_busy(engine, || worker.start(plan));
    let result = loop {
        match step {
            Step::Done(result) => break result,
            Step::Pending => {}
            Step::Rows(_) | Step::Replan => panic!("few rows, and no catalog change"),
        }
        worker.port.poll(&mut Vec::new());
        if turns == turn {
            worker.cancel(&error);
            worker.port.poll(&mut Vec::new());
        }
        turns += 1;
        step = while_busy(engine, || worker.resume());
    };
    worker.port.poll(&mut Vec::new());
    worker.rollback();
    match &result {
        Err(refusal) => assert_eq!(refusal.error.state(), SqlState::QUERY_CANCELED, "{name}"),
        Ok(_) => assert!(turns <= turn + 1, "{name} has gone on after turn {turn}"),
    }
    (turn < turns).then_some(result.is_err())
}

/// Returns the statement that locks all accounts that it can.
fn skipping(bank: &Bank, worker: &mut Worker) -> Arc<Plan> {
    let locking = RowLocking { wait: LockWait::Skip, ..RowLocking::of(RowLock::Update) };
    let access = Access { lock: Some(locking), ..bank.access(worker, Path::Full) };
    let project = vec![clearway_ir::Expr::Column(0)];
    let program = Program::Scan { access, group: None, project, limit: Some(int(2 * ROWS)) };
    let source = Source::Table { program: Arc::new(program), route: Route::All };
    plan(Statement::Query(Query { once: None, source, finish: Vec::new() }))
}

#[test]
fn statements_of_several_rounds_are_cancelled_at_each_turn() {
    let engine = open_config(&MemDisk::new(), PARTITIONS, 1, |c| c.chunk_rows = CHUNK);
    let mut worker = Worker::new(&engine, 0);
    let bank = Bank::create(&mut worker, ROWS, 1);
    let users = Users::create(&mut worker, Distribution::Hash(vec![0]));
    worker.run(&users.insert_series(0, ROWS, 100)).unwrap();
    let new: Vec<(i32, i32)> = (ROWS..3 * ROWS).map(|id| (id, 1)).collect();
    let new_user = (ROWS, Some(7), 0);
    let strict = Isolation::Serializable;
    let statements = [
        ("SELECT by a snapshot", Isolation::RepeatableRead, bank.totalling(&mut worker)),
        ("SELECT FOR UPDATE SKIP LOCKED", strict, skipping(&bank, &mut worker)),
        ("SELECT by a global index", strict, users.select(Who::Email(103))),
        ("INSERT of many rows", strict, bank.inserting(&mut worker, &new)),
        ("INSERT SELECT", strict, bank.inserting_total(&mut worker, ROWS)),
        ("INSERT of series", strict, users.insert_series(ROWS, ROWS, 200)),
        ("INSERT of keys", strict, users.insert(&[new_user], false)),
        ("INSERT ON CONFLICT", strict, users.insert(&[new_user, (1, None, 0)], true)),
        ("UPDATE of keys", strict, users.add_to_email(Who::All, 1000)),
        ("UPDATE that moves a row", strict, users.set_id(Who::Email(103), 3 * ROWS)),
        ("DELETE of keys", strict, users.delete(Who::All)),
        ("TRUNCATE", strict, plan(Statement::Truncate { names: vec!["accounts".into()] })),
    ];
    for (name, isolation, plan) in &statements {
        let ended: Vec<bool> = (0..)
            .map_while(|turn| is_cancelled_at(&engine, &mut worker, (name, *isolation, plan), turn))
            .collect();
        assert!(ended[0], "{name} has several rounds");
    }
    assert_eq!(bank.total(&mut worker), i64::from(ROWS), "nothing was changed");
    worker.close();
    engine.shutdown().unwrap();
}
