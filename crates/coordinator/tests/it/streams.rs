//! Results sent to the session in parts: all rows once, bounded rounds, locks until the end, and
//! what a statement leaves that does not reach its end.

use crate::common::{Bank, Worker, int, open_config, plan};
use clearway_coordinator::{Engine, Outcome, Step, Tag, TxnStatus};
use clearway_ir::expr::BinaryOp;
use clearway_ir::statement::{Finish, Isolation, Query, Route, Source, TxnOptions};
use clearway_ir::{Access, Expr, Path, Plan, Program, Statement, TableDef};
use clearway_testkit::MemDisk;
use clearway_types::{RowBatch, SqlError, SqlState, SqlType};
use std::sync::Arc;

const ROWS: i32 = 1_000;
const PARTITIONS: u16 = 3;
/// Bytes of a round: about 20 rows.
const ROUND: u32 = 500;

fn setup() -> (Arc<Engine>, Worker, Worker, Bank) {
    let engine = open_config(&MemDisk::new(), PARTITIONS, 2, |config| {
        config.stream_bytes = ROUND;
        config.partition.one_shot_bytes = ROUND;
    });
    let mut reader = Worker::new(&engine, 0);
    let bank = Bank::create(&mut reader, ROWS, 7);
    let writer = Worker::new(&engine, 1);
    (engine, reader, writer, bank)
}

fn end(engine: &Arc<Engine>, workers: [Worker; 2]) {
    workers.into_iter().for_each(Worker::close);
    engine.shutdown().unwrap();
}

fn table(worker: &mut Worker) -> Arc<TableDef> {
    worker.client().catalog().table("accounts").unwrap().clone()
}

/// Returns `select project from accounts` with these finishing steps.
fn select(worker: &mut Worker, project: Expr, finish: Vec<Finish>) -> Arc<Plan> {
    select_where(worker, None, project, finish)
}

fn select_where(
    worker: &mut Worker,
    filter: Option<Expr>,
    project: Expr,
    finish: Vec<Finish>,
) -> Arc<Plan> {
    let access = Access {
        table: table(worker),
        path: Path::Full,
        filter,
        lock: None,
        learned: Default::default(),
    };
    let program = Program::Scan { access, group: None, project: vec![project], limit: None };
    let source = Source::Table { program: Arc::new(program), route: Route::All };
    plan(Statement::Query(Query { once: None, source, finish }))
}

fn ids(worker: &mut Worker) -> Arc<Plan> {
    select(worker, Expr::Column(0), Vec::new())
}

fn limit(limit: i32, offset: i32) -> Finish {
    Finish::Limit { limit: Some(int(limit)), offset: Some(int(offset)) }
}

/// Waits until the statement has rows or ends.
fn wait(worker: &mut Worker, mut step: Step) -> Step {
    while let Step::Pending = step {
        worker.port.poll(&mut Vec::new());
        std::thread::yield_now();
        step = worker.resume();
    }
    step
}

/// Returns the rows of a part. Panics if the step is not one.
fn part(step: Step) -> RowBatch {
    match step {
        Step::Rows(part) => part.rows,
        other => panic!("no part: {other:?}"),
    }
}

fn numbers(rows: &RowBatch) -> Vec<i64> {
    rows.iter().map(|row| row.get(0).unwrap().to_owned().as_i64().unwrap()).collect()
}

fn sorted(outcome: &Outcome) -> Vec<i64> {
    let mut all = numbers(&outcome.rows);
    all.sort_unstable();
    all
}

#[test]
fn large_result_is_sent_in_bounded_parts() {
    let (engine, mut reader, writer, _) = setup();
    let plan = ids(&mut reader);
    let mut step = reader.start(&plan);
    let (mut all, mut parts) = (Vec::new(), 0);
    let tag = loop {
        match wait(&mut reader, step) {
            Step::Rows(part) => {
                assert!(
                    part.rows.memory() <= ROUND as usize / usize::from(PARTITIONS) + 50
                        && !part.rows.is_empty()
                );
                all.extend(numbers(&part.rows));
                parts += 1;
            }
            Step::Done(result) => {
                let outcome = result.unwrap();
                all.extend(numbers(&outcome.rows));
                break outcome.tag;
            }
            other => panic!("{other:?}"),
        }
        step = reader.resume();
    };
    all.sort_unstable();
    assert_eq!(all, (0..i64::from(ROWS)).collect::<Vec<_>>());
    assert_eq!(tag, Tag::Select(ROWS as u64));
    assert!(parts > 20, "{parts} parts");
    end(&engine, [reader, writer]);
}

/// What a one-shot or a statement in a block reads from one partition.
#[test]
fn large_single_partition_result_is_sent_in_parts() {
    let (engine, mut reader, writer, _) = setup();
    let path = Path::Full;
    let access = Access {
        table: table(&mut reader),
        path,
        filter: None,
        lock: None,
        learned: Default::default(),
    };
    let program = Arc::new(Program::Scan {
        access,
        group: None,
        project: vec![Expr::Column(0)],
        limit: None,
    });
    let source = Source::Table { program, route: Route::Hash(vec![int(5)]) };
    let plan = plan(Statement::Query(Query { once: None, source, finish: Vec::new() }));
    let home = Bank::home(5, PARTITIONS);
    let expected: Vec<i64> =
        (0..ROWS).filter(|id| Bank::home(*id, PARTITIONS) == home).map(i64::from).collect();
    for block in [false, true] {
        if block {
            reader.begin();
        }
        let step = reader.start(&plan);
        let mut all = numbers(&part(wait(&mut reader, step)));
        let step = reader.resume();
        let outcome = reader.end(step).unwrap();
        all.extend(numbers(&outcome.rows));
        assert_eq!(outcome.tag, Tag::Select(expected.len() as u64));
        all.sort_unstable();
        assert_eq!(all, expected);
    }
    reader.commit().unwrap();
    end(&engine, [reader, writer]);
}

#[test]
fn limit_applies_across_parts() {
    let (engine, mut reader, mut writer, bank) = setup();
    for (steps, expected) in [
        (vec![limit(300, 0)], 300),
        (vec![limit(300, 900)], 100),
        (vec![limit(0, 0)], 0),
        (vec![limit(5_000, 1)], 999),
        (
            vec![
                Finish::Filter(Expr::Binary(
                    BinaryOp::Lt,
                    Box::new(Expr::Column(0)),
                    Box::new(int(400)),
                )),
                limit(350, 100),
            ],
            300,
        ),
    ] {
        let plan = select(&mut reader, Expr::Column(0), steps.clone());
        let outcome = reader.run(&plan).unwrap();
        let found = sorted(&outcome);
        assert!(
            found.len() == expected && found.windows(2).all(|w| w[0] < w[1]),
            "{steps:?}: {}",
            found.len()
        );
        assert_eq!(outcome.tag, Tag::Select(expected as u64));
        let source =
            Source::Series { start: int(0), stop: int(ROWS - 1), step: int(1), ty: SqlType::Int4 };
        let series = Statement::Query(Query { once: None, source, finish: steps });
        assert_eq!(sorted(&reader.plain(series).unwrap()).len(), expected);
        assert!(bank.add(&mut writer, 1, 1).is_ok(), "no lock is left");
    }
    end(&engine, [reader, writer]);
}

#[test]
fn result_in_parts_is_one_consistent_state() {
    let (engine, mut reader, mut writer, bank) = setup();
    let plan = select(&mut reader, Expr::Column(1), Vec::new());
    let step = reader.start(&plan);
    let mut balances = numbers(&part(wait(&mut reader, step)));
    bank.add_to_all(&mut writer, 1).expect("the reader has no lock of rows");
    assert_eq!(reader.status(), TxnStatus::Idle);
    let step = reader.resume();
    balances.extend(numbers(&reader.end(step).unwrap().rows));
    assert_eq!(balances, vec![7; ROWS as usize]);
    let step = reader.start(&plan);
    let mut after = numbers(&part(wait(&mut reader, step)));
    let step = reader.resume();
    after.extend(numbers(&reader.end(step).unwrap().rows));
    assert_eq!(after, vec![8; ROWS as usize]);
    end(&engine, [reader, writer]);
}

#[test]
fn ending_between_parts_leaves_no_lock() {
    let (engine, mut reader, mut writer, bank) = setup();
    let plan = ids(&mut reader);
    let step = reader.start(&plan);
    part(wait(&mut reader, step));
    let error = SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request");
    reader.cancel(&error);
    let step = reader.resume();
    assert_eq!(reader.end(step).unwrap_err(), error);
    bank.add_to_all(&mut writer, 1).unwrap();

    // An error in the middle: one row divides by zero.
    let divisor = Expr::Binary(BinaryOp::Sub, Box::new(Expr::Column(0)), Box::new(int(900)));
    let quotient = Expr::Binary(BinaryOp::Div, Box::new(int(1)), Box::new(divisor));
    let failing = select(&mut reader, quotient, Vec::new());
    let step = reader.start(&failing);
    part(wait(&mut reader, step));
    let step = reader.resume();
    assert_eq!(reader.end(step).unwrap_err().state(), SqlState::DIVISION_BY_ZERO);
    bank.add_to_all(&mut writer, 1).unwrap();

    let mut gone = Worker::new(&engine, 0);
    let step = gone.start(&plan);
    part(wait(&mut gone, step));
    gone.close();
    bank.add_to_all(&mut writer, 1).unwrap();
    end(&engine, [reader, writer]);
}

#[test]
fn suspended_statement_continues_beside_others() {
    let (engine, mut reader, mut writer, bank) = setup();
    let plan = ids(&mut reader);
    reader.begin();
    let step = reader.start(&plan);
    let mut first = numbers(&part(wait(&mut reader, step)));
    let suspended = reader.client().suspend().unwrap();
    let step = reader.start(&plan);
    let mut second = numbers(&part(wait(&mut reader, step)));
    let other = reader.client().suspend().unwrap();
    let step = reader.start(&plan);
    part(wait(&mut reader, step));
    drop(reader.client().suspend().unwrap());
    assert_eq!(bank.total(&mut reader), i64::from(7 * ROWS));
    assert_eq!(reader.status(), TxnStatus::InBlock);
    let step = reader.resume_suspended(suspended);
    first.extend(numbers(&reader.end(step).unwrap().rows));
    let step = reader.resume_suspended(other);
    second.extend(numbers(&reader.end(step).unwrap().rows));
    assert_eq!((first.len(), second.len()), (ROWS as usize, ROWS as usize));
    reader.commit().unwrap();
    bank.add_to_all(&mut writer, 1).unwrap();
    end(&engine, [reader, writer]);
}

/// A single statement that is suspended keeps its snapshot until the implicit transaction ends, and
/// no one waits for it.
#[test]
fn suspended_single_statement_opens_implicit_block() {
    let (engine, mut reader, mut writer, bank) = setup();
    for drops in [false, true] {
        let plan = ids(&mut reader);
        let step = reader.start(&plan);
        let all = numbers(&part(wait(&mut reader, step)));
        let suspended = reader.client().suspend().unwrap();
        bank.add_to_all(&mut writer, 1).expect("the reader blocks no one");
        if drops {
            drop(suspended);
        } else {
            let step = reader.resume_suspended(suspended);
            let rest = reader.end(step).unwrap();
            assert_eq!(
                (all.len() + rest.rows.len(), rest.tag),
                (ROWS as usize, Tag::Select(ROWS as u64))
            );
        }
        assert!(reader.client().snapshot().is_some(), "the snapshot lasts until Sync");
        reader.end_implicit(true).unwrap();
        assert!(reader.client().snapshot().is_none());
    }
    end(&engine, [reader, writer]);
}

/// The answers have arrived but the session has not looked at them: no client is left to take the
/// next part.
#[test]
fn client_closed_before_taking_a_part_leaves_nothing() {
    let engine = open_config(&MemDisk::new(), PARTITIONS, 2, |config| {
        config.stream_bytes = 1;
        config.partition.slice_rows = 1;
    });
    let mut reader = Worker::new(&engine, 0);
    let bank = Bank::create(&mut reader, 200, 7);
    let binary = |op, l, r| Expr::Binary(op, Box::new(l), Box::new(r));
    let seventh = binary(BinaryOp::Eq, binary(BinaryOp::Mod, Expr::Column(0), int(7)), int(0));
    let plan = select_where(&mut reader, Some(seventh), Expr::Column(0), Vec::new());
    let step = reader.start(&plan);
    drop(part(wait(&mut reader, step)));
    let pending = |reader: &mut Worker| match reader.resume() {
        Step::Rows(_) => false,
        Step::Pending => true,
        other => panic!("{other:?}"),
    };
    while !pending(&mut reader) {}
    let mut events = Vec::new();
    while reader.port.has_work() {
        reader.port.poll(&mut events);
    }
    let mut writer = Worker::new(&engine, 1);
    let mut port = reader.leave();
    for _ in 0..10 {
        port.poll(&mut events);
    }
    assert!(!port.has_orphans(), "its transaction has ended");
    bank.add_to_all(&mut writer, 1).unwrap();
    writer.close();
    engine.shutdown().unwrap();
}

/// Also as a task, at a partition that does not know the block's savepoint yet: it reports which
/// version of its row it read.
#[test]
fn single_row_read_is_one_reply() {
    let engine = open_config(&MemDisk::new(), 1, 1, |config| config.stream_bytes = 1);
    let mut worker = Worker::new(&engine, 0);
    let bank = Bank::create(&mut worker, 10, 100);
    let options = TxnOptions { isolation: Some(Isolation::ReadCommitted), ..TxnOptions::default() };
    worker.plain(Statement::Begin(options)).unwrap();
    worker.savepoint("s");
    let read = bank.reading(&mut worker, 1);
    let step = worker.start(&read);
    assert!(matches!(&step, Step::Done(Ok(outcome)) if outcome.rows.len() == 1), "{step:?}");
    worker.commit().unwrap();
    worker.close();
    engine.shutdown().unwrap();
}
