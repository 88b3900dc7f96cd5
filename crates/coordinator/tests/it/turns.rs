//! Statements over many rows: other sessions of their worker run after each chunk, and all workers
//! take part.

use crate::common::{Bank, Worker, open, open_woken, plan};
use clearway_coordinator::{Limits, Step, Waker};
use clearway_ir::program::{AggFunc, Aggregate};
use clearway_ir::statement::{Finish, Query, SortKey, Source};
use clearway_ir::{Expr, Statement};
use clearway_testkit::MemDisk;
use clearway_types::{Datum, SqlType};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Rows of each statement: several chunks of the default length.
const ROWS: i64 = 20_000;
const CHUNKS: usize = 20;

fn series(finish: Vec<Finish>) -> Statement {
    let number = |n: i64| Expr::Literal(Datum::Int8(n));
    let source =
        Source::Series { start: number(1), stop: number(ROWS), step: number(1), ty: SqlType::Int8 };
    Statement::Query(Query { once: None, source, finish })
}

/// Returns how many times the statement yields, and how many rows it returns.
fn turns(worker: &mut Worker, statement: Statement) -> (usize, usize) {
    let mut step = worker.start(&plan(statement));
    let mut turns = 0;
    loop {
        match step {
            Step::Done(result) => return (turns, result.unwrap().rows.len()),
            Step::Pending => turns += 1,
            Step::Rows(_) | Step::Replan => panic!("few rows, and no catalog change"),
        }
        worker.port.poll(&mut Vec::new());
        step = worker.resume();
    }
}

#[test]
fn each_finishing_step_yields() {
    let engine = open(&MemDisk::new(), 2, 1);
    let mut worker = Worker::new(&engine, 0);
    let column = || Expr::Column(0);
    let count = Aggregate { func: AggFunc::Count, arg: None, distinct: false, ty: SqlType::Int8 };
    let sort =
        || Finish::Sort(vec![SortKey { expr: column(), descending: true, nulls_first: false }]);
    let (made, rows) = turns(&mut worker, series(Vec::new()));
    assert!(made >= CHUNKS && rows == ROWS as usize, "{made} turns");
    let offset = Finish::Limit { limit: None, offset: Some(Expr::Literal(Datum::Int8(1))) };
    for (name, steps, least) in [
        ("sort", vec![sort()], 2 * (CHUNKS - 1)),
        ("distinct", vec![Finish::Distinct], CHUNKS - 1),
        (
            "groups",
            vec![Finish::Aggregate { keys: vec![column()], aggregates: vec![count] }],
            2 * (CHUNKS - 1),
        ),
        ("offset", vec![Finish::Distinct, offset], 2 * (CHUNKS - 1)),
        (
            "filter",
            vec![Finish::Distinct, Finish::Filter(Expr::Literal(Datum::Bool(true)))],
            2 * (CHUNKS - 1),
        ),
        ("project", vec![Finish::Distinct, Finish::Project(vec![column()])], 2 * (CHUNKS - 1)),
    ] {
        let (taken, rows) = turns(&mut worker, series(steps));
        assert!(taken >= made + least, "{name}: {taken} turns, {made} of them for the series");
        assert!(rows >= ROWS as usize - 1, "{name}: {rows} rows");
    }
    worker.close();
    engine.shutdown().unwrap();
}

/// One worker has started the scan, and another one does the rest, one slice per turn.
#[test]
fn any_worker_continues_a_long_scan() {
    const ACCOUNTS: i32 = 400;
    const SLICE: usize = 10;
    const PARTITIONS: u16 = 4;
    let rung: Arc<[AtomicU32; 2]> = Arc::default();
    let ringing = |worker: usize| {
        let rung = rung.clone();
        let ring = move || {
            rung[worker].fetch_add(1, Ordering::Relaxed);
        };
        Arc::new(ring) as Waker
    };
    let limits = Limits { slice_rows: SLICE, ..Limits::default() };
    let disk = MemDisk::new();
    let engine = open_woken(&disk, PARTITIONS, vec![ringing(0), ringing(1)], |config| {
        config.partition = limits
    });
    let mut asker = Worker::new(&engine, 0);
    let bank = Bank::create(&mut asker, ACCOUNTS, 2);
    let mut other = engine.port(1);
    other.poll(&mut Vec::new());
    let before = rung[1].load(Ordering::Relaxed);
    let total = bank.totalling(&mut asker);
    assert!(matches!(asker.start(&total), Step::Pending), "each partition has had one slice");
    assert_eq!(
        rung[1].load(Ordering::Relaxed),
        before + 1,
        "more slices than one worker can run at once"
    );
    let mut turns = 0;
    while other.has_work() {
        other.poll(&mut Vec::new());
        turns += 1;
    }
    let slices = ACCOUNTS as usize / SLICE;
    let least = slices - usize::from(PARTITIONS);
    assert!(
        (least..=slices + usize::from(PARTITIONS)).contains(&turns),
        "{turns} turns for {slices} slices"
    );
    asker.port.poll(&mut Vec::new());
    let Step::Done(Ok(outcome)) = asker.resume() else { panic!("all partitions have answered") };
    assert_eq!(
        outcome.rows.get(0).get(0).unwrap().to_owned(),
        Datum::Int8(i64::from(ACCOUNTS) * 2)
    );
    asker.close();
    engine.shutdown().unwrap();
}
