//! Transactions that add to one row concurrently.

use crate::driver::{Driver, state_of};
use crate::snapshots::{close, open, read_in};
use crate::sql::{Find, ROWS, Row, Stmt, int, plain_table, rows_of, statement};
use crate::trees::MemTrees;
use crate::units::{D, abort, make_trees, select, share};
use clearway_ir::expr::BinaryOp;
use clearway_ir::program::{Access, Env, Path};
use clearway_ir::{Expr, Program, RowLock, RowLocking, TableDef};
use clearway_partition::{Batch, Body, COMMITTED, Limits, Partition};
use clearway_types::{Datum, Lsn, SqlState, TxnId};
use std::sync::Arc;

fn table() -> Arc<TableDef> {
    Arc::new(plain_table())
}

fn driver(rows: &[Row]) -> D {
    let mut d = Driver::new(MemTrees::new(None), ());
    make_trees(&mut d, &[ROWS]);
    one(&mut d, &Stmt::Insert { rows: rows.to_vec(), ignore: false });
    d
}

fn one(d: &mut D, stmt: &Stmt) -> Vec<Row> {
    let txn = d.txn();
    rows_of(&d.call(txn, stmt.one_shot(&table())).expect("it completes immediately"))
}

fn bump(by: i32) -> Stmt {
    Stmt::Bump { id: 1, column: 1, by }
}

fn adds(d: &mut D, txn: TxnId, by: i32) {
    assert_eq!(d.call(txn, bump(by).statement(&table())).expect("it does not wait").count, 1);
}

fn commit(d: &mut D, txn: TxnId) {
    let lsn = d.append_commit(txn);
    d.call(txn, Body::Finish { commit: Some(lsn) }).expect("commit");
}

/// A read of a row by its key at READ COMMITTED.
fn reads(id: i32) -> Body {
    let (program, env) =
        (Arc::new(select(Find::Point(id)).program(&table())), Arc::new(Env::default()));
    let (at, repeatable, rows, batch) = (COMMITTED, false, None, Batch::ALL);
    Body::StatementAt { at, repeatable, program, env, rows, batch }
}

/// Reads the row by its key at READ COMMITTED.
fn committed_for(d: &mut D, reader: TxnId) -> Option<i32> {
    rows_of(&d.call(reader, reads(1)).expect("it does not wait"))[0].1
}

fn a(d: &mut D) -> Option<i32> {
    let reader = d.txn();
    let a = committed_for(d, reader);
    abort(d, reader);
    a
}

/// Each order of two ends, each of which is a commit or an abort, with and without versions.
#[test]
fn concurrent_additions_end_in_any_order() {
    for case in 0..16 {
        let mut d = driver(&[(1, Some(100), 1)]);
        let held = (case & 8 != 0).then(|| open(&mut d));
        let txns = [d.txn(), d.txn()];
        for (txn, by) in [(0, 1), (1, 10), (0, 2), (1, -40)] {
            adds(&mut d, txns[txn], by);
        }
        assert_eq!((a(&mut d), d.waiting()), (Some(100), 0));
        let mut expected = 100;
        for n in [case & 1, 1 - (case & 1)] {
            if case & (2 << n) != 0 {
                commit(&mut d, txns[n]);
                expected += [3, -30][n];
            } else {
                abort(&mut d, txns[n]);
            }
            assert_eq!(a(&mut d), Some(expected), "case {case}");
        }
        assert_eq!(one(&mut d, &select(Find::Point(1))), [(1, Some(expected), 1)]);
        held.into_iter().for_each(|held| close(&mut d, held));
        assert!(d.nothing_pending() && d.partition.active() == 0);
    }
}

/// A read here, or the coordinator's request before a read elsewhere.
#[test]
fn increment_locks_are_converted_before_reads_without_locks() {
    for case in 0..16 {
        let [versions, here, commits, other_row] = [1, 2, 4, 8].map(|bit| case & bit != 0);
        let mut d = driver(&[(1, Some(100), 1), (2, Some(200), 2)]);
        let held = versions.then(|| open(&mut d));
        let (first, second, third) = (d.txn(), d.txn(), d.txn());
        adds(&mut d, first, 1);
        adds(&mut d, second, 10);
        let row = if other_row { 2 } else { 1 };
        let body = if here { reads(row) } else { Body::ConvertIncrements };
        let read = d.send(first, body);
        assert_eq!((d.take(read), d.waiting()), (None, 1), "case {case}");
        let expected = if commits {
            commit(&mut d, second);
            111
        } else {
            abort(&mut d, second);
            101
        };
        let reply = d.take(read).expect("its turn").expect("it succeeds");
        if here {
            let found = if other_row { 200 } else { expected };
            assert_eq!(rows_of(&reply), [(row, Some(found), row)], "case {case}");
        }
        assert_eq!(committed_for(&mut d, first), Some(expected), "case {case}");
        // Nobody else adds to the row before the transaction ends.
        let waits = d.send(third, bump(1000).statement(&table()));
        assert_eq!((d.take(waits), d.waiting()), (None, 1), "case {case}");
        adds(&mut d, first, 5);
        assert_eq!(committed_for(&mut d, first), Some(expected + 5), "case {case}");
        commit(&mut d, first);
        d.take(waits).expect("its turn").expect("it adds");
        commit(&mut d, third);
        assert_eq!(a(&mut d), Some(expected + 1005), "case {case}");
        held.into_iter().for_each(|held| close(&mut d, held));
        assert!(d.nothing_pending() && d.partition.active() == 0);
    }
}

#[test]
fn rollback_to_undoes_additions_and_keeps_the_lock() {
    for versions in [false, true] {
        let mut d = driver(&[(1, Some(100), 1)]);
        let held = versions.then(|| open(&mut d));
        let (first, second) = (d.txn(), d.txn());
        adds(&mut d, first, 1);
        d.call(first, Body::Savepoint(7)).expect("a savepoint");
        adds(&mut d, first, 10);
        adds(&mut d, second, 1000);
        adds(&mut d, first, 20);
        d.call(first, Body::RollbackTo(7)).expect("rolled back");
        assert_eq!(a(&mut d), Some(100));
        let reader = d.txn();
        let waits = d.send(reader, share(Find::Point(1)).statement(&table()));
        commit(&mut d, second);
        assert_eq!((d.take(waits), d.waiting()), (None, 1), "the lock is kept");
        commit(&mut d, first);
        assert_eq!(
            rows_of(&d.take(waits).expect("its turn").expect("a row")),
            [(1, Some(1101), 1)]
        );
        abort(&mut d, reader);
        held.into_iter().for_each(|held| close(&mut d, held));
        assert!(d.nothing_pending());
    }
}

/// A snapshot's reads are repeatable, whenever others add.
#[test]
fn snapshots_see_only_earlier_committed_additions() {
    for early in [false, true] {
        let mut d = driver(&[(1, Some(100), 1)]);
        let mut held = Vec::new();
        let (first, second) = (d.txn(), d.txn());
        let mut expected = 100;
        for step in 0..6 {
            if early || step >= 2 {
                held.push((open(&mut d), expected));
            }
            match step {
                0 => adds(&mut d, first, 1),
                1 => adds(&mut d, second, 10),
                2 => {
                    one(&mut d, &bump(1000));
                    expected += 1000;
                }
                3 => {
                    commit(&mut d, second);
                    expected += 10;
                }
                4 => adds(&mut d, first, 1),
                _ => {
                    commit(&mut d, first);
                    expected += 2;
                }
            }
            for (reader, sees) in &held {
                for find in [
                    Find::Point(1),
                    Find::All { a_less: None },
                    Find::Ids { low: None, high: None, reverse: true },
                ] {
                    let rows =
                        rows_of(&d.call(reader.0, read_in(&table(), reader, find)).expect("rows"));
                    assert_eq!(rows, [(1, Some(*sees), 1)], "step {step}");
                }
            }
        }
        assert_eq!(a(&mut d), Some(1112));
        held.into_iter().for_each(|(held, _)| close(&mut d, held));
        assert!(d.nothing_pending());
    }
}

/// REPEATABLE READ must not change a row to which others have added since the snapshot.
#[test]
fn additions_since_the_snapshot_are_changes() {
    let mut d = driver(&[(1, Some(100), 1), (2, Some(0), 2)]);
    let (adder, reader) = (d.txn(), open(&mut d));
    adds(&mut d, adder, 1);
    let change = |d: &mut D| {
        let (program, env) = (Arc::new(bump(5).program(&table())), Arc::new(Env::default()));
        let at = reader.1.lsn();
        d.send(
            reader.0,
            Body::StatementAt { at, repeatable: true, program, env, rows: None, batch: Batch::ALL },
        )
    };
    let answer = change(&mut d);
    assert_eq!(
        (d.take(answer), d.blockers_of(reader.0)),
        (None, &[adder][..]),
        "it takes the exclusive lock"
    );
    commit(&mut d, adder);
    let answer = d.take(answer).expect("its turn");
    assert_eq!(state_of(&answer), Some(SqlState::SERIALIZATION_FAILURE));
    close(&mut d, reader);
    // A transaction that has undone its addition has not changed the row.
    let (adder, reader) = (d.txn(), open(&mut d));
    d.call(adder, Body::Savepoint(1)).expect("a savepoint");
    adds(&mut d, adder, 1);
    d.call(adder, Body::RollbackTo(1)).expect("rolled back");
    commit(&mut d, adder);
    let (program, env) = (Arc::new(bump(5).program(&table())), Arc::new(Env::default()));
    let at = reader.1.lsn();
    let body =
        Body::StatementAt { at, repeatable: true, program, env, rows: None, batch: Batch::ALL };
    assert_eq!(d.call(reader.0, body).expect("it is unchanged").count, 1);
    close(&mut d, reader);
    assert_eq!(a(&mut d), Some(106));
}

/// It waits for the others; then its result is exact, and so is the value after a rollback.
#[test]
fn changes_after_an_addition_wait_for_other_additions() {
    for versions in [false, true] {
        let mut d = driver(&[(1, Some(100), 1)]);
        let held = versions.then(|| open(&mut d));
        let (first, second) = (d.txn(), d.txn());
        adds(&mut d, first, 1);
        d.call(first, Body::Savepoint(1)).expect("a savepoint");
        adds(&mut d, second, 10);
        let change = Stmt::Add { find: Find::Point(1), column: 1, by: 5 };
        let answer = d.send(first, change.statement(&table()));
        assert_eq!((d.take(answer), d.blockers_of(first)), (None, &[second][..]));
        commit(&mut d, second);
        assert_eq!(
            rows_of(&d.take(answer).expect("its turn").expect("a row")),
            [(1, Some(116), 1)]
        );
        adds(&mut d, first, 1);
        assert_eq!((committed_for(&mut d, first), a(&mut d)), (Some(117), Some(110)));
        d.call(first, Body::RollbackTo(1)).expect("rolled back");
        assert_eq!((committed_for(&mut d, first), a(&mut d)), (Some(111), Some(110)));
        let late = open(&mut d);
        let rows =
            rows_of(&d.call(late.0, read_in(&table(), &late, Find::Point(1))).expect("rows"));
        assert_eq!(rows, [(1, Some(110), 1)]);
        close(&mut d, late);
        commit(&mut d, first);
        assert_eq!(a(&mut d), Some(111));
        held.into_iter().for_each(|held| {
            let rows =
                rows_of(&d.call(held.0, read_in(&table(), &held, Find::Point(1))).expect("rows"));
            assert_eq!(rows, [(1, Some(100), 1)]);
            close(&mut d, held);
        });
        assert!(d.nothing_pending());
    }
}

#[test]
fn reads_after_concurrent_additions_deadlock() {
    let mut d = driver(&[(1, Some(100), 1)]);
    let txns = [d.txn(), d.txn()];
    txns.iter().for_each(|txn| adds(&mut d, *txn, 1));
    let answers = txns.map(|txn| d.send(txn, share(Find::Point(1)).statement(&table())));
    assert_eq!(d.deadlocks, 1);
    let failed = answers.map(|answer| {
        d.take(answer).is_some_and(|answer| state_of(&answer) == Some(SqlState::DEADLOCK))
    });
    let victim = failed.iter().position(|failed| *failed).expect("a victim");
    abort(&mut d, txns[victim]);
    let row = d.take(answers[1 - victim]).expect("its turn").expect("a row");
    assert_eq!(rows_of(&row), [(1, Some(101), 1)]);
    commit(&mut d, txns[1 - victim]);
    assert!(d.nothing_pending());
}

const MAX: i32 = i32::MAX;

/// Near the bound an addition waits for the others, because their outcomes determine whether it
/// fits.
#[test]
fn no_abort_makes_a_sum_overflow() {
    for one_shot in [false, true] {
        let mut d = driver(&[(1, Some(MAX - 10), 1)]);
        let (first, second) = (d.txn(), d.txn());
        adds(&mut d, first, -8);
        // If the first one aborts there is room for 10, but not for 12.
        let body =
            if one_shot { bump(12).one_shot(&table()) } else { bump(12).statement(&table()) };
        let answer = d.send(second, body);
        assert_eq!((d.take(answer), d.blockers_of(second)), (None, &[first][..]));
        let third = d.txn();
        let behind = d.send(third, bump(1).statement(&table()));
        assert_eq!(d.take(behind), None, "newcomers wait behind it");
        abort(&mut d, first);
        let answer = d.take(answer).expect("its turn");
        assert_eq!(state_of(&answer), Some(SqlState::OUT_OF_RANGE));
        if !one_shot {
            abort(&mut d, second);
        }
        assert_eq!(d.take(behind).expect("its turn").expect("there is room").count, 1);
        commit(&mut d, third);
        assert_eq!(a(&mut d), Some(MAX - 9));
        assert!(d.nothing_pending());
    }
}

/// The same, but the first one commits.
#[test]
pub fn additions_near_the_bound_wait_and_are_exact() {
    let mut d = driver(&[(1, Some(MAX - 10), 1)]);
    let (first, second) = (d.txn(), d.txn());
    adds(&mut d, first, -8);
    let answer = d.send(second, bump(11).statement(&table()));
    assert_eq!(d.take(answer), None);
    commit(&mut d, first);
    assert_eq!(d.take(answer).expect("its turn").expect("there is room").count, 1);
    commit(&mut d, second);
    assert_eq!(a(&mut d), Some(MAX - 7));
    // Only what others have subtracted can raise the sum.
    let (first, second) = (d.txn(), d.txn());
    adds(&mut d, first, 3);
    adds(&mut d, second, 4);
    abort(&mut d, first);
    abort(&mut d, second);
    // Far from the bound no one waits: the spread has ended with its holders.
    let (first, second) = (d.txn(), d.txn());
    adds(&mut d, first, -MAX / 4);
    adds(&mut d, second, -MAX / 4);
    abort(&mut d, first);
    commit(&mut d, second);
    assert_eq!(a(&mut d), Some(MAX - 7 - MAX / 4));
}

/// A transaction whose first addition to a row waits for the others holds nothing on the row. So
/// the others may use it once more.
#[test]
fn refused_newcomers_do_not_deadlock_with_the_holders() {
    // Alone, and as one of two that got the lock when an exclusive one ended.
    for after_a_wait in [false, true] {
        let mut d = driver(&[(1, Some(MAX - 10), 1)]);
        let (owner, first, second) = (d.txn(), d.txn(), d.txn());
        let blocker =
            after_a_wait.then(|| d.send(owner, share(Find::Point(1)).statement(&table())));
        let adds = d.send(first, bump(8).statement(&table()));
        let waits = d.send(second, bump(5).statement(&table()));
        if let Some(blocker) = blocker {
            assert_eq!((d.take(adds), d.take(waits)), (None, None));
            d.take(blocker).expect("it does not wait").expect("a row");
            abort(&mut d, owner);
        }
        assert_eq!(d.take(adds).expect("it adds").expect("there is room").count, 1);
        assert_eq!((d.take(waits), d.blockers_of(second)), (None, &[first][..]));
        let read = d.send(first, share(Find::Point(1)).statement(&table()));
        let row = d.take(read).expect("it does not wait").expect("a row");
        assert_eq!((rows_of(&row), d.deadlocks), (vec![(1, Some(MAX - 2), 1)], 0));
        commit(&mut d, first);
        let answer = d.take(waits).expect("its turn");
        assert_eq!(state_of(&answer), Some(SqlState::OUT_OF_RANGE));
        abort(&mut d, second);
        assert!(d.nothing_pending() && d.partition.active() == 0);
    }
}

/// One-shots add while transactions are open, and one-shots that do anything else wait.
#[test]
fn one_shots_add_concurrently_with_transactions() {
    for versions in [false, true] {
        let mut d = driver(&[(1, Some(100), 1)]);
        let held = versions.then(|| open(&mut d));
        let (first, second) = (d.txn(), d.txn());
        adds(&mut d, first, 1);
        one(&mut d, &bump(1000));
        adds(&mut d, second, 10);
        one(&mut d, &bump(1000));
        assert_eq!((a(&mut d), d.waiting()), (Some(2100), 0));
        assert_eq!(one(&mut d, &select(Find::Point(1))), [(1, Some(2100), 1)]);
        let (waiter, change) = (d.txn(), Stmt::Add { find: Find::Point(1), column: 1, by: 1 });
        let answer = d.send(waiter, change.one_shot(&table()));
        assert_eq!(d.take(answer), None);
        abort(&mut d, first);
        commit(&mut d, second);
        assert_eq!(
            rows_of(&d.take(answer).expect("its turn").expect("a row")),
            [(1, Some(2111), 1)]
        );
        held.into_iter().for_each(|held| {
            let rows =
                rows_of(&d.call(held.0, read_in(&table(), &held, Find::Point(1))).expect("rows"));
            assert_eq!(rows, [(1, Some(100), 1)]);
            close(&mut d, held);
        });
        assert!(d.nothing_pending());
    }
}

/// Returns a statement that adds to both columns; NULL is a possible addend.
fn both(first: i32, second: Option<i32>) -> Body {
    let path = Path::Point(vec![int(1)]);
    let lock = Some(RowLocking::of(RowLock::NoKeyUpdate));
    let access = Access { table: table(), path, filter: None, lock, learned: Default::default() };
    let plus = |column, by| {
        Expr::Binary(BinaryOp::Add, Box::new(Expr::Column(column)), Box::new(Expr::Literal(by)))
    };
    let second = second.map_or(Datum::Null, Datum::Int4);
    let set = vec![(1, plus(1, Datum::Int4(first))), (2, plus(2, second))];
    let program = Program::update(access, set, Vec::new(), false);
    assert!(matches!(program, Program::Update { adds: Some(_), .. }));
    statement(Arc::new(program), None)
}

#[test]
fn several_columns_are_incremented_and_null_stays_null() {
    for (value, sum) in [(Some(5), Some(8)), (None, None)] {
        let mut d = driver(&[(1, value, 20)]);
        let txns = [d.txn(), d.txn(), d.txn()];
        for (txn, by) in txns.into_iter().zip([1, 2, 4]) {
            assert_eq!(d.call(txn, both(by, Some(10 * by))).expect("it does not wait").count, 1);
        }
        abort(&mut d, txns[2]);
        commit(&mut d, txns[1]);
        commit(&mut d, txns[0]);
        assert_eq!(one(&mut d, &select(Find::Point(1))), [(1, sum, 50)]);
    }
}

/// It does not count as an addition: it gets the exclusive lock, and PostgreSQL's error.
#[test]
fn adding_null_takes_the_exclusive_lock() {
    let mut d = driver(&[(1, Some(5), 20)]);
    let (first, second) = (d.txn(), d.txn());
    d.call(first, both(1, Some(1))).expect("it does not wait");
    let answer = d.send(second, both(1, None));
    assert_eq!(d.take(answer), None);
    commit(&mut d, first);
    assert_eq!(state_of(&d.take(answer).expect("its turn")), Some(SqlState::NOT_NULL_VIOLATION));
    abort(&mut d, second);
    assert_eq!(one(&mut d, &select(Find::Point(1))), [(1, Some(6), 21)]);
}

#[test]
fn absent_rows_are_locked_for_increments() {
    let mut d = driver(&[(2, Some(5), 20)]);
    let (adder, other) = (d.txn(), d.txn());
    assert_eq!(d.call(adder, bump(1).statement(&table())).expect("nothing to do").count, 0);
    let insert = Stmt::Insert { rows: vec![(1, Some(1), 1)], ignore: false };
    let answer = d.send(other, insert.statement(&table()));
    assert_eq!((d.take(answer), d.blockers_of(other)), (None, &[adder][..]));
    abort(&mut d, adder);
    assert_eq!(d.take(answer).expect("its turn").expect("a row").count, 1);
    commit(&mut d, other);
}

/// If increments are off, or keys are packed, it behaves like any other UPDATE.
#[test]
fn unshared_additions_wait_for_each_other() {
    for limits in [
        Limits { increments: false, ..Limits::default() },
        Limits { many_locks: 0, ..Limits::default() },
    ] {
        let mut d = driver(&[]);
        d.partition = Partition::new(MemTrees::new(None), limits, d.snapshots.clone());
        make_trees(&mut d, &[ROWS]);
        one(&mut d, &Stmt::Insert { rows: vec![(1, Some(100), 1)], ignore: false });
        let (first, second) = (d.txn(), d.txn());
        adds(&mut d, first, 1);
        let answer = d.send(second, bump(10).statement(&table()));
        assert_eq!((d.take(answer), d.blockers_of(second)), (None, &[first][..]));
        let alone = d.txn();
        let behind = d.send(alone, bump(1000).one_shot(&table()));
        abort(&mut d, first);
        assert_eq!(d.take(answer).expect("its turn").expect("a change").count, 1);
        assert_eq!(d.take(behind), None);
        commit(&mut d, second);
        assert_eq!(d.take(behind).expect("its turn").expect("a change").count, 1);
        assert_eq!(a(&mut d), Some(1110));
        assert!(d.nothing_pending());
    }
}

/// Of several open additions, the reader waits for the one that is committing.
#[test]
fn readers_wait_for_the_outcome_of_an_addition() {
    for versions in [false, true] {
        let mut d = driver(&[(1, Some(100), 1)]);
        let held = versions.then(|| open(&mut d));
        let (first, second, reader) = (d.txn(), d.txn(), d.txn());
        adds(&mut d, first, 1);
        adds(&mut d, second, 10);
        let committing = d.snapshots.commit(second);
        let lsn = d.append_commit(second);
        let (program, env) =
            (Arc::new(select(Find::Point(1)).program(&table())), Arc::new(Env::default()));
        let body = Body::StatementAt {
            at: COMMITTED,
            repeatable: false,
            program,
            env,
            rows: None,
            batch: Batch::ALL,
        };
        let answer = d.send(reader, body);
        assert_eq!(d.take(answer), None);
        d.call(second, Body::Finish { commit: Some(lsn) }).expect("commit");
        drop(committing);
        assert_eq!(
            rows_of(&d.take(answer).expect("the outcome has arrived").expect("a row")),
            [(1, Some(110), 1)]
        );
        abort(&mut d, reader);
        abort(&mut d, first);
        held.into_iter().for_each(|held| close(&mut d, held));
        assert!(d.nothing_pending());
    }
}

/// A row with continuous additions costs one version per snapshot, and one per adding transaction.
#[test]
fn hot_rows_cost_one_version_per_snapshot() {
    let mut d = driver(&[(1, Some(0), 1)]);
    let slow = d.txn();
    adds(&mut d, slow, 1);
    let mut held = Vec::new();
    let mut bytes = Vec::new();
    for n in 0..4 {
        held.push((open(&mut d), 100 * n));
        for _ in 0..50 {
            let txn = d.txn();
            adds(&mut d, txn, 1);
            one(&mut d, &bump(1));
            commit(&mut d, txn);
        }
        bytes.push(d.partition.version_memory());
    }
    assert!(bytes[3] - bytes[0] <= 3 * bytes[0] && bytes[0] < 1000, "{bytes:?}");
    for (reader, sees) in held {
        let rows =
            rows_of(&d.call(reader.0, read_in(&table(), &reader, Find::Point(1))).expect("rows"));
        assert_eq!(rows, [(1, Some(sees), 1)]);
        close(&mut d, reader);
    }
    abort(&mut d, slow);
    assert_eq!((a(&mut d), d.partition.version_memory()), (Some(400), 0));
    d.call(slow, Body::Finish { commit: Some(Lsn(0)) }).expect("nothing");
}
