//! Tests of single rules of the partition's contract.

use crate::driver::{Answer, Driver, state_of};
use crate::sql::{
    BY_A, BY_B, Find, ROWS, Row, Stmt, all_columns, as_expected, batch, int, plain_table, rows_of,
    table,
};
use crate::trees::{MemTrees, Paging};
use clearway_ir::program::{Access, AggFunc, Aggregate, Env, Group, Path};
use clearway_ir::{Expr, Program, RowLock, TableDef};
use clearway_partition::{Batch, Body, Failure, Limits, RawOp, Reply};
use clearway_types::{Datum, Lsn, RowBatch, SqlError, SqlState, SqlType, TableId, TreeId, TxnId};
use std::sync::Arc;

pub type D = Driver<MemTrees>;

pub fn driver(rows: &[Row]) -> D {
    let mut d = Driver::new(MemTrees::new(None), ());
    make_trees(&mut d, &[ROWS, BY_A, BY_B]);
    one(&mut d, &Stmt::Insert { rows: rows.to_vec(), ignore: false }).expect("rows");
    d
}

pub fn make_trees(d: &mut D, trees: &[TreeId]) {
    let ddl = d.txn();
    d.call(ddl, Body::CreateTrees(trees.to_vec())).expect("trees");
    d.call(ddl, Body::Finish { commit: Some(Lsn(1)) }).expect("commit");
}

pub fn one(d: &mut D, stmt: &Stmt) -> Answer {
    d.alone(|one_shot| if one_shot { stmt.one_shot(&table()) } else { stmt.statement(&table()) })
}

pub fn select(find: Find) -> Stmt {
    Stmt::Select { find, limit: None, lock: None }
}

/// Returns a read that waits for locks.
pub fn share(find: Find) -> Stmt {
    Stmt::Select { find, limit: None, lock: Some(RowLock::Share) }
}

pub fn add(id: i32) -> Stmt {
    Stmt::Add { find: Find::Point(id), column: 1, by: 1 }
}

fn statement(program: Program, rows: Option<RowBatch>, fresh: bool) -> Body {
    Body::Statement {
        program: Arc::new(program),
        env: Arc::new(Env::default()),
        rows,
        batch: Batch::ALL,
        fresh,
        learns: false,
        may_use_retired: false,
        may_add: true,
        optimistic: false,
    }
}

fn one_program(d: &mut D, program: Program) -> Answer {
    let txn = d.txn();
    d.call(
        txn,
        Body::OneShot { program: Arc::new(program), env: Arc::new(Env::default()), rows: None },
    )
}

pub fn abort(d: &mut D, txn: TxnId) {
    d.call(txn, Body::Finish { commit: None }).expect("abort");
}

fn full(table: &Arc<TableDef>) -> Access {
    Access {
        table: table.clone(),
        path: Path::Full,
        filter: None,
        lock: None,
        learned: Default::default(),
    }
}

pub fn numbers(n: i32) -> Vec<Row> {
    (0..n).map(|i| (i, Some(i % 10), 1000 + i)).collect()
}

#[test]
fn point_updates_autocommit_and_readers_depend_on_them() {
    let mut d = driver(&[(1, Some(1), 1)]);
    let update = Stmt::Add { find: Find::Point(1), column: 1, by: 5 };
    let plain = Arc::new(TableDef { indexes: Vec::new(), ..plain_table() });
    let txn = d.txn();
    let reply = d.call(txn, update.one_shot(&plain)).unwrap();
    let lsn = reply.commit.expect("a commit record");
    assert_eq!((reply.count, rows_of(&reply)), (1, vec![(1, Some(6), 1)]));
    one(&mut d, &select(Find::Point(1))).unwrap();
    assert_eq!(d.depends_on, lsn);
    assert_eq!(d.partition.active(), 0);
    let nothing = Stmt::Add { find: Find::Point(9), column: 1, by: 5 };
    let txn = d.txn();
    assert_eq!(d.call(txn, nothing.one_shot(&plain)).unwrap().commit, None);
}

/// An existing key, a deleted row, an unchanged row: each reveals a commit.
#[test]
fn errors_and_empty_replies_depend_on_what_they_reveal() {
    let mut d = driver(&[(1, Some(1), 1)]);
    let plain = Arc::new(TableDef { indexes: Vec::new(), ..plain_table() });
    let mut call = |stmt: &Stmt| {
        let txn = d.txn();
        (d.call(txn, stmt.one_shot(&plain)), d.depends_on)
    };
    let insert = Stmt::Insert { rows: vec![(2, None, 2)], ignore: false };
    let inserted = call(&insert).0.unwrap().commit.expect("a commit record");
    let (twice, depends_on) = call(&insert);
    assert_eq!((state_of(&twice), depends_on), (Some(SqlState::UNIQUE_VIOLATION), inserted));
    let deleted = call(&Stmt::Delete(Find::Point(2))).0.unwrap().commit.expect("a commit record");
    let (none, depends_on) = call(&select(Find::Point(2)));
    assert_eq!((none.unwrap().count, depends_on), (0, deleted));
    let (nothing, depends_on) = call(&add(2));
    assert_eq!((nothing.unwrap().count, depends_on), (0, deleted));
}

#[test]
fn only_commits_with_changes_are_dependencies() {
    let mut d = driver(&[(1, Some(1), 1)]);
    let before = d.depends_on;
    let (reader, undone) = (d.txn(), d.txn());
    d.call(reader, select(Find::Point(1)).statement(&table())).unwrap();
    d.call(reader, Body::Finish { commit: Some(Lsn(700)) }).unwrap();
    d.call(undone, Body::Savepoint(0)).unwrap();
    d.call(undone, add(1).statement(&table())).unwrap();
    d.call(undone, Body::RollbackTo(0)).unwrap();
    d.call(undone, Body::Finish { commit: Some(Lsn(800)) }).unwrap();
    one(&mut d, &select(Find::Point(1))).unwrap();
    assert_eq!(d.depends_on, before);
    let changes = [
        add(1).statement(&table()),
        Body::CreateTrees(vec![TreeId(99)]),
        Body::DropTreesAtCommit(vec![BY_A]),
        Body::TableChanged { table: TableId(5), version: 2 },
    ];
    for (change, commit) in changes.into_iter().zip([900, 1000, 1100, 1200]) {
        let writer = d.txn();
        d.call(writer, change).unwrap();
        d.call(writer, Body::Finish { commit: Some(Lsn(commit)) }).unwrap();
        drop(one(&mut d, &select(Find::Point(1))));
        assert_eq!(d.depends_on, Lsn(commit));
    }
}

#[test]
fn unknown_transactions_are_finished_and_ignored() {
    let mut d = driver(&[]);
    let txn = d.txn();
    let reply = d.call(txn, Body::Finish { commit: Some(Lsn(77)) }).unwrap();
    assert_eq!(reply, Reply::default());
    assert!(d.depends_on < Lsn(77), "it changed nothing here");
    abort(&mut d, txn);
    d.send(txn, Body::Cancel(SqlError::internal("x")));
    d.send(txn, Body::Resume(Vec::new()));
    assert!(d.nothing_pending() && d.answers.is_empty());
}

#[test]
fn waits_are_in_order_and_end_with_the_holder() {
    let mut d = driver(&[(1, Some(1), 1)]);
    let (t1, t2, t3) = (d.txn(), d.txn(), d.txn());
    d.call(t1, add(1).statement(&table())).unwrap();
    let s2 = d.send(t2, add(1).statement(&table()));
    let s3 = d.send(t3, share(Find::Point(1)).one_shot(&table()));
    assert_eq!(d.blockers_of(t2), [t1]);
    assert_eq!(d.blockers_of(t3), [t2, t1]);
    assert!(
        rows_of(&one(&mut d, &select(Find::Point(2))).unwrap()).is_empty(),
        "another key is free"
    );
    abort(&mut d, t1);
    assert_eq!(as_expected(&d.take(s2).unwrap()), Ok(vec![(1, Some(2), 1)]));
    assert!(d.take(s3).is_none());
    d.call(t2, Body::Finish { commit: Some(Lsn(500)) }).unwrap();
    let last = d.take(s3).unwrap().unwrap();
    assert_eq!((rows_of(&last), d.depends_on), (vec![(1, Some(2), 1)], Lsn(500)));
    assert!(d.nothing_pending() && d.partition.active() == 0);
}

/// A hot row: the end of one transaction lets hundreds continue, a few at a time.
#[test]
fn a_message_resumes_a_bounded_number_of_waiters() {
    const WAITERS: usize = 300;
    let turns = Limits::default().turns;
    let mut d = driver(&[(1, Some(0), 1)]);
    let holder = d.txn();
    d.call(holder, add(1).statement(&table())).unwrap();
    let mut calls: Vec<u32> = Vec::new();
    for _ in 0..WAITERS {
        let txn = d.txn();
        calls.push(d.send(txn, add(1).one_shot(&table())));
    }
    assert_eq!(d.waiting(), WAITERS);
    d.send(holder, Body::Finish { commit: Some(Lsn(500)) });
    let mut messages = 1;
    while d.answers.len() <= WAITERS {
        assert!(
            d.answers.len() <= messages * turns + 1,
            "{} answers to {messages} messages",
            d.answers.len()
        );
        assert_eq!(d.suspended.len(), 1, "the partition asks for one turn, not for several");
        d.resume(0);
        messages += 1;
    }
    assert!(calls.iter().all(|seq| d.take(*seq).unwrap().is_ok()));
    d.settle();
    assert_eq!(
        rows_of(&one(&mut d, &select(Find::Point(1))).unwrap()),
        [(1, Some(1 + WAITERS as i32), 1)]
    );
}

/// A transaction that has its lock and waits for its turn can still be cancelled, and leaves
/// nothing behind.
#[test]
fn a_waiter_is_cancelled_between_its_lock_and_its_turn() {
    let mut d = driver(&[(1, Some(0), 1)]);
    let holder = d.txn();
    d.call(holder, add(1).statement(&table())).unwrap();
    let waiters: Vec<TxnId> = (0..100).map(|_| d.txn()).collect();
    let read = select(Find::Point(1));
    let calls: Vec<u32> =
        waiters.iter().map(|txn| d.send(*txn, read.statement(&table()))).collect();
    d.send(holder, Body::Finish { commit: Some(Lsn(500)) });
    assert_eq!(d.waiting(), 0, "all have their locks");
    let (last, unanswered) = (waiters[99], calls[99]);
    assert!(d.answers.iter().all(|(seq, _)| *seq != unanswered));
    d.send(
        last,
        Body::Cancel(SqlError::new(
            SqlState::QUERY_CANCELED,
            "canceling statement due to user request",
        )),
    );
    assert_eq!(state_of(&d.take(unanswered).unwrap()), Some(SqlState::QUERY_CANCELED));
    d.settle();
    assert_eq!(d.answers.len(), 1 + 99, "the holder's end and the others");
    waiters.iter().for_each(|txn| abort(&mut d, *txn));
    assert!(d.nothing_pending() && d.partition.active() == 0);
}

#[test]
fn upgrades_by_two_readers_deadlock() {
    let mut d = driver(&[(1, Some(1), 1)]);
    let (t1, t2) = (d.txn(), d.txn());
    d.call(t1, select(Find::Point(1)).statement(&table())).unwrap();
    d.call(t2, select(Find::Point(1)).statement(&table())).unwrap();
    let s1 = d.send(t1, add(1).statement(&table()));
    let s2 = d.send(t2, add(1).statement(&table()));
    assert_eq!(state_of(&d.take(s2).unwrap()), Some(SqlState::DEADLOCK));
    assert!(d.take(s1).is_none());
    abort(&mut d, t2);
    d.take(s1).unwrap().unwrap();
    abort(&mut d, t1);
}

#[test]
fn absent_keys_and_ranges_are_locked_against_phantoms() {
    let mut d = driver(&[(1, Some(1), 1)]);
    let insert = |id: i32| Stmt::Insert { rows: vec![(id, Some(4), 100 + id)], ignore: false };
    for (read, hit, miss) in [
        (Find::Point(5), 5, Some(6)),
        (Find::Ids { low: Some(4), high: Some(8), reverse: false }, 8, Some(9)),
        (Find::ByA { low: Some(3), high: Some(4), reverse: false }, 20, None),
        (Find::All { a_less: None }, 30, None),
    ] {
        let (reader, other, writer) = (d.txn(), d.txn(), d.txn());
        let before = rows_of(&d.call(reader, select(read.clone()).statement(&table())).unwrap());
        if let Some(miss) = miss {
            d.call(other, insert(miss).one_shot(&table())).unwrap();
        }
        let s = d.send(writer, insert(hit).one_shot(&table()));
        assert_eq!(d.blockers_of(writer), [reader], "{read:?}");
        assert_eq!(rows_of(&d.call(reader, select(read).statement(&table())).unwrap()), before);
        abort(&mut d, reader);
        d.take(s).unwrap().unwrap();
    }
}

#[test]
fn failed_statements_are_undone_and_savepoints_kept() {
    let mut d = driver(&[(1, Some(1), 1)]);
    let t = d.txn();
    d.call(t, Stmt::Insert { rows: vec![(2, None, 2)], ignore: false }.statement(&table()))
        .unwrap();
    d.call(t, Body::Savepoint(0)).unwrap();
    let clash = Stmt::Insert { rows: vec![(3, None, 3), (4, None, 1)], ignore: false };
    let Err(Failure::Sql(e)) = d.call(t, clash.statement(&table())) else { panic!("a violation") };
    assert_eq!(e.state(), SqlState::UNIQUE_VIOLATION);
    assert_eq!(e.message(), "duplicate key value violates unique constraint \"t_b_key\"");
    assert_eq!(e.get_detail(), Some("Key (b)=(1) already exists."));
    let all = select(Find::All { a_less: None });
    let now = |d: &mut D| rows_of(&d.call(t, all.statement(&table())).unwrap());
    assert_eq!(now(&mut d), [(1, Some(1), 1), (2, None, 2)]);
    d.call(t, Stmt::Delete(Find::All { a_less: None }).statement(&table())).unwrap();
    d.call(t, Body::RollbackTo(0)).unwrap();
    assert_eq!(now(&mut d), [(1, Some(1), 1), (2, None, 2)]);
    abort(&mut d, t);
    assert_eq!(rows_of(&one(&mut d, &all).unwrap()), [(1, Some(1), 1)]);
}

#[test]
fn null_in_a_not_null_column_is_rejected() {
    let mut d = driver(&[(1, Some(1), 1)]);
    let table = table();
    let access = Access { path: Path::Point(vec![int(1)]), ..full(&table) };
    let set = vec![(2, Expr::Literal(Datum::Null))];
    let answer = one_program(&mut d, Program::update(access, set, vec![], false));
    let Err(Failure::Sql(e)) = answer else { panic!("a violation") };
    assert_eq!(e.state(), SqlState::NOT_NULL_VIOLATION);
    assert_eq!(e.get_detail(), Some("Failing row contains (1, 1, null)."));
    assert_eq!(rows_of(&one(&mut d, &select(Find::Point(1))).unwrap()), [(1, Some(1), 1)]);
}

#[test]
fn moves_delete_the_row_and_return_the_new_one() {
    let mut d = driver(&[(1, Some(1), 1), (2, None, 2)]);
    let access = Access { path: Path::Point(vec![int(1)]), ..full(&table()) };
    let program = Program::update(access, vec![(0, int(9))], vec![], true);
    assert_eq!(as_expected(&one_program(&mut d, program)), Ok(vec![(9, Some(1), 1)]));
    assert_eq!(rows_of(&one(&mut d, &select(Find::All { a_less: None })).unwrap()), [(2, None, 2)]);
    assert!(rows_of(&one(&mut d, &select(Find::ByB(1))).unwrap()).is_empty());
}

#[test]
fn plans_with_dropped_trees_or_changed_tables_are_stale() {
    let mut d = driver(&[(1, Some(1), 1)]);
    let t = d.txn();
    d.call(t, Body::LockTable { table: TableId(5), requester: None }).unwrap();
    d.call(t, Body::TableChanged { table: TableId(5), version: 2 }).unwrap();
    d.call(t, Body::DropTreesAtCommit(vec![BY_A])).unwrap();
    assert_eq!(
        rows_of(&one(&mut d, &select(Find::Point(1))).expect("a row")),
        [(1, Some(1), 1)],
        "a read does not wait"
    );
    let waiting = d.txn();
    let s = d.send(waiting, add(1).one_shot(&table()));
    assert_eq!(d.blockers_of(waiting), [t]);
    d.call(t, Body::Finish { commit: Some(Lsn(9)) }).unwrap();
    assert_eq!(
        d.take(s),
        Some(Err(Failure::StalePlan)),
        "statements that waited for the change plan again"
    );
    assert_eq!(one(&mut d, &select(Find::Point(1))), Err(Failure::StalePlan));
    let newer = Arc::new(TableDef { version: 2, ..(*table()).clone() });
    let txn = d.txn();
    d.call(txn, select(Find::Point(1)).one_shot(&newer)).unwrap();
    let txn = d.txn();
    assert_eq!(
        d.call(txn, add(1).one_shot(&newer)),
        Err(Failure::StalePlan),
        "an index's tree is gone"
    );
}

#[test]
fn trees_of_aborted_transactions_are_dropped() {
    let mut d = Driver::new(MemTrees::new(None), ());
    let t = d.txn();
    d.call(t, Body::CreateTrees(vec![ROWS, BY_A, BY_B])).unwrap();
    let insert = Stmt::Insert { rows: numbers(100), ignore: false };
    let program = insert.program(&table());
    d.call(t, statement(program, Some(batch(&numbers(100))), true)).unwrap();
    assert_eq!(d.partition.trees().trees[&BY_A].len(), 100);
    abort(&mut d, t);
    assert!(d.partition.trees().trees.is_empty());
}

#[test]
fn fresh_tables_have_undo_after_a_savepoint() {
    let mut d = Driver::new(MemTrees::new(None), ());
    let t = d.txn();
    d.call(t, Body::CreateTrees(vec![ROWS, BY_A, BY_B])).unwrap();
    let insert = |row: Row| {
        let stmt = Stmt::Insert { rows: vec![row], ignore: false };
        statement(stmt.program(&table()), Some(batch(&[row])), true)
    };
    d.call(t, insert((1, None, 1))).unwrap();
    d.call(t, Body::Savepoint(0)).unwrap();
    d.call(t, insert((2, None, 2))).unwrap();
    d.call(t, Body::RollbackTo(0)).unwrap();
    d.call(t, Body::Finish { commit: Some(Lsn(1)) }).unwrap();
    assert_eq!(rows_of(&one(&mut d, &select(Find::All { a_less: None })).unwrap()), [(1, None, 1)]);
}

#[test]
fn long_scans_and_changes_run_in_slices() {
    let mut d = driver(&[]);
    let rows = numbers(5000);
    let txn = d.txn();
    let s = d.send(txn, Stmt::Insert { rows: rows.clone(), ignore: false }.one_shot(&table()));
    assert!(d.take(s).is_none() && !d.suspended.is_empty(), "others have a turn");
    let other = d.txn();
    let blocked = d.send(other, share(Find::Point(1)).one_shot(&table()));
    assert_eq!(
        d.blockers_of(other),
        [txn],
        "its changes without locks are protected by the table's lock"
    );
    d.settle();
    assert_eq!(d.take(s).unwrap().unwrap().count, 5000);
    d.take(blocked).unwrap().unwrap();
    assert_eq!(one(&mut d, &select(Find::All { a_less: None })).unwrap().count, 5000);
    let up = Stmt::Add {
        find: Find::ByA { low: Some(0), high: None, reverse: false },
        column: 1,
        by: 100,
    };
    assert_eq!(one(&mut d, &up).unwrap().count, 5000, "no row twice");
    assert_eq!(one(&mut d, &Stmt::Delete(Find::All { a_less: Some(105) })).unwrap().count, 2500);
    assert_eq!(
        one(&mut d, &select(Find::ByA { low: None, high: None, reverse: true })).unwrap().count,
        2500
    );
}

#[test]
fn cancels_end_waits_and_suspensions() {
    let mut d = driver(&numbers(5000));
    let error =
        || SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request");
    let t1 = d.txn();
    d.call(t1, add(1).statement(&table())).unwrap();
    let (t2, t3) = (d.txn(), d.txn());
    let s2 = d.send(t2, add(1).one_shot(&table()));
    let s3 = d.send(t3, share(Find::Point(1)).one_shot(&table()));
    d.send(t2, Body::Cancel(error()));
    assert_eq!(state_of(&d.take(s2).unwrap()), Some(SqlState::QUERY_CANCELED));
    abort(&mut d, t1);
    d.take(s3).unwrap().unwrap();
    let txn = d.txn();
    let s = d.send(txn, Stmt::Delete(Find::All { a_less: None }).one_shot(&table()));
    assert!(!d.suspended.is_empty());
    d.send(txn, Body::Cancel(error()));
    assert_eq!(state_of(&d.take(s).unwrap()), Some(SqlState::QUERY_CANCELED));
    d.settle();
    assert_eq!(one(&mut d, &select(Find::All { a_less: None })).unwrap().count, 5000);
    assert_eq!(d.partition.active(), 0);
}

#[test]
fn groups_are_partial_and_empty_groupings_have_one() {
    let mut d = driver(&numbers(40));
    let aggregate = |func, arg: Option<usize>| Aggregate {
        func,
        arg: arg.map(Expr::Column),
        distinct: false,
        ty: SqlType::Int8,
    };
    let aggregates = vec![aggregate(AggFunc::Count, None), aggregate(AggFunc::Sum, Some(0))];
    let scan = |keys, filter| Program::Scan {
        access: Access { filter, ..full(&table()) },
        group: Some(Group { keys, aggregates: aggregates.clone() }),
        project: vec![],
        limit: None,
    };
    let reply = one_program(&mut d, scan(vec![Expr::Column(1)], None)).unwrap();
    assert_eq!(reply.rows.len(), 10);
    let never = Some(Expr::Literal(Datum::Bool(false)));
    let reply = one_program(&mut d, scan(vec![], never)).unwrap();
    assert_eq!(reply.rows.get(0).to_datums().unwrap(), [Datum::Int8(0), Datum::Null]);
}

#[test]
fn limits_stop_scans_early() {
    let mut d = Driver::new(MemTrees::new(Some(Paging { pages: 1 << 20, frames: 4000 })), ());
    make_trees(&mut d, &[ROWS, BY_A, BY_B]);
    one(&mut d, &Stmt::Insert { rows: numbers(300), ignore: false }).unwrap();
    let mut d2 = Driver::new(MemTrees::new(Some(Paging { pages: 1 << 20, frames: 10 })), ());
    std::mem::swap(&mut d2.partition.trees().trees, &mut d.partition.trees().trees);
    let find = Find::Ids { low: None, high: None, reverse: true };
    let reply = one(&mut d2, &Stmt::Select { find, limit: Some(3), lock: None }).unwrap();
    assert_eq!(rows_of(&reply).iter().map(|r| r.0).collect::<Vec<_>>(), [299, 298, 297]);
    assert!(*d2.partition.trees().misses.borrow() < 8);
}

#[test]
fn index_builds_use_existing_rows_and_reject_duplicates() {
    let mut d = driver(&numbers(700));
    let mut with = (*table()).clone();
    let (good, bad) = (TreeId(30), TreeId(31));
    let index = |name: &str, tree, columns, unique| clearway_ir::IndexDef {
        name: String::from(name),
        tree,
        columns,
        unique,
        constraint: Some(unique),
        global_index: None,
    };
    with.indexes.push(index("t_ab", good, vec![1, 0], true));
    with.indexes.push(index("t_a_key", bad, vec![1], true));
    let with = Arc::new(with);
    let t = d.txn();
    d.call(t, Body::LockTable { table: with.id, requester: None }).unwrap();
    d.call(t, Body::CreateTrees(vec![good, bad])).unwrap();
    let build = |index| statement(Program::BuildIndex { table: with.clone(), index }, None, true);
    d.call(t, build(2)).unwrap();
    assert_eq!(d.partition.trees().trees[&good].len(), 700);
    let Err(Failure::Sql(e)) = d.call(t, build(3)) else { panic!("a duplicate") };
    assert_eq!(e.message(), "could not create unique index \"t_a_key\"");
    assert!(e.get_detail().unwrap().ends_with(") is duplicated."), "{e:?}");
    abort(&mut d, t);
    assert_eq!(d.partition.trees().trees.len(), 3);
}

#[test]
fn tables_without_a_primary_key_accept_equal_rows() {
    let mut d = Driver::new(MemTrees::new(None), ());
    make_trees(&mut d, &[ROWS]);
    let heap = Arc::new(TableDef { primary_key: vec![], ..plain_table() });
    let insert = Stmt::Insert { rows: vec![(1, None, 1)], ignore: false };
    let (t1, t2, t3) = (d.txn(), d.txn(), d.txn());
    d.call(t1, insert.statement(&heap)).unwrap();
    d.call(t2, insert.statement(&heap)).unwrap();
    d.call(t3, insert.one_shot(&heap)).unwrap();
    abort(&mut d, t1);
    d.call(t2, Body::Finish { commit: Some(Lsn(3)) }).unwrap();
    let program =
        Program::Scan { access: full(&heap), group: None, project: all_columns(), limit: None };
    assert_eq!(rows_of(&one_program(&mut d, program).unwrap()).len(), 2);
}

#[test]
fn raw_rows_are_locked_and_undone() {
    let mut d = Driver::new(MemTrees::new(None), ());
    let tree = TreeId(1);
    make_trees(&mut d, &[tree]);
    let put =
        |k: &[u8], v: &[u8]| Body::Raw(RawOp::Put { tree, key: k.to_vec(), value: v.to_vec() });
    let get = |k: &[u8]| Body::Raw(RawOp::Get { tree, key: k.to_vec() });
    let t = d.txn();
    d.call(t, put(b"a", b"1")).unwrap();
    d.call(t, put(b"b", b"2")).unwrap();
    d.call(t, Body::Finish { commit: Some(Lsn(5)) }).unwrap();
    let (t1, t2) = (d.txn(), d.txn());
    d.call(t1, put(b"a", b"3")).unwrap();
    d.call(t1, Body::Raw(RawOp::Delete { tree, key: b"b".to_vec() })).unwrap();
    assert_eq!(d.call(t1, get(b"b")).unwrap().count, 0);
    let s = d.send(t2, Body::Raw(RawOp::Scan { tree }));
    assert_eq!(d.blockers_of(t2), [t1]);
    abort(&mut d, t1);
    let rows = d.take(s).unwrap().unwrap().rows;
    assert_eq!(rows.iter().map(|r| r.bytes().to_vec()).collect::<Vec<_>>(), [b"1", b"2"]);
    abort(&mut d, t2);
}
