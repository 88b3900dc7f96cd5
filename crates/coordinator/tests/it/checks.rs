//! CHECK constraints of tables with rows: they are added under the table's lock, survive a crash,
//! and bound additions that share a row.

use crate::common::{Bank, Worker, int, open_config, plan};
use clearway_coordinator::{Engine, Step};
use clearway_ir::expr::BinaryOp;
use clearway_ir::{CheckConstraint, Expr, Statement};
use clearway_testkit::MemDisk;
use clearway_types::{SqlError, SqlState};
use std::sync::Arc;

const ROW: i32 = 3;

fn engine(disk: &MemDisk) -> Arc<Engine> {
    open_config(disk, 4, 3, |config| config.adds_at_once = true)
}

/// Returns the statement that adds `balance >= low`.
fn at_least(engine: &Engine, low: i32) -> Statement {
    let table = engine.catalog().table("accounts").unwrap().clone();
    let (balance, low) = (Box::new(Expr::Column(1)), Box::new(int(low)));
    let condition = Expr::Binary(BinaryOp::Ge, balance, low);
    Statement::AddCheck { table, check: CheckConstraint { name: "low".into(), condition } }
}

#[track_caller]
fn violates(error: &SqlError) {
    assert_eq!(error.state(), SqlState::CHECK_VIOLATION, "{error}");
    let object = error.object();
    assert_eq!((&*object.table, &*object.constraint), ("accounts", "low"));
}

fn is_pending(step: &Step) -> bool {
    matches!(step, Step::Pending)
}

#[test]
fn constraint_is_added_if_all_rows_satisfy_it() {
    let disk = MemDisk::new();
    let engine = engine(&disk);
    let mut worker = Worker::new(&engine, 0);
    let bank = Bank::create(&mut worker, 20, 5);
    bank.add(&mut worker, ROW, -3).unwrap();
    violates(&worker.plain(at_least(&engine, 3)).unwrap_err());
    assert_eq!(bank.insert(&mut worker, 50, -9).unwrap().rows.len(), 0, "nothing was added");
    violates(&worker.plain(at_least(&engine, 2)).unwrap_err());
    worker.begin();
    bank.add(&mut worker, 50, 12).unwrap();
    worker.plain(at_least(&engine, 2)).unwrap();
    violates(&bank.add(&mut worker, ROW, -1).unwrap_err());
    worker.rollback();
    bank.add(&mut worker, 50, 20).unwrap();
    worker.plain(at_least(&engine, 2)).unwrap();
    let add = bank.adding_beside(&mut worker, ROW, -1);
    violates(&worker.run(&add).unwrap_err());
    violates(&bank.insert(&mut worker, 51, 1).unwrap_err());
    violates(&bank.insert_rows(&mut worker, &[(51, 2), (52, 1)]).unwrap_err());
    assert_eq!(bank.balance(&mut worker, 51), None);
    worker.close();
    drop(engine);
    let recovered = crate::checks::engine(&disk.crash(7));
    let mut worker = Worker::new(&recovered, 0);
    let bank = Bank::find(&recovered);
    let add = bank.adding_beside(&mut worker, ROW, -1);
    violates(&worker.run(&add).unwrap_err());
    assert_eq!(bank.balance(&mut worker, ROW), Some(2));
    worker.close();
}

/// The definition for which it was planned has changed while it waited for the table.
#[test]
fn stale_constraint_is_planned_again() {
    let engine = engine(&MemDisk::new());
    let [mut one, mut two] = [0, 1].map(|worker| Worker::new(&engine, worker));
    Bank::create(&mut one, 5, 5);
    one.begin();
    one.plain(at_least(&engine, 1)).unwrap();
    let planned = plan(at_least(&engine, 0));
    let mut step = two.start(&planned);
    assert!(is_pending(&step));
    one.commit().unwrap();
    while is_pending(&step) {
        one.port.poll(&mut Vec::new());
        two.port.poll(&mut Vec::new());
        step = two.resume();
    }
    assert!(matches!(step, Step::Replan));
}

#[test]
fn sessions_share_a_row_down_to_its_bound() {
    for commits in [true, false] {
        let engine = engine(&MemDisk::new());
        let mut workers = [0, 1, 2].map(|worker| Worker::new(&engine, worker));
        let bank = Bank::create(&mut workers[0], 20, 5);
        workers[0].plain(at_least(&engine, 0)).unwrap();
        let [add, take, one] = [2, -5, -1].map(|by| bank.adding_beside(&mut workers[0], ROW, by));
        for (worker, stmt) in workers.iter_mut().zip([&add, &take]) {
            worker.begin();
            worker.run(stmt).unwrap();
        }
        // 2 are left, but they are not committed.
        workers[2].begin();
        let step = workers[2].start(&one);
        assert!(is_pending(&step));
        if commits {
            workers[0].commit().unwrap();
        } else {
            workers[0].rollback();
        }
        workers[1].commit().unwrap();
        let answer = workers[2].end(step);
        if commits {
            answer.unwrap();
            workers[2].commit().unwrap();
        } else {
            violates(&answer.unwrap_err());
            workers[2].rollback();
        }
        let left = bank.balance(&mut workers[0], ROW);
        assert_eq!(left, Some(if commits { 1 } else { 0 }));
    }
}
