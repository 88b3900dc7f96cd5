//! Tables and indexes that are newer than the reader's snapshot.

use crate::driver::{Answer, Driver, state_of};
use crate::snapshots::{close, open, read_in};
use crate::sql::{BY_A, BY_B, Find, ROWS, Row, Stmt, as_expected, batch, rows_of, table};
use crate::trees::MemTrees;
use crate::units::{D, add, driver, make_trees, numbers, one, select};
use clearway_ir::program::Env;
use clearway_ir::{Program, RowLock, TableDef};
use clearway_partition::{Batch, Body, Failure, Limits, Partition, Snapshot};
use clearway_types::{Lsn, SqlState, TreeId, TxnId};
use std::sync::Arc;

type Reader = (TxnId, Snapshot);

fn moved(tree: TreeId) -> TreeId {
    TreeId(tree.0 + 100)
}

/// Returns the table after TRUNCATE: it has new trees.
fn truncated() -> Arc<TableDef> {
    let mut truncated = TableDef { tree: moved(ROWS), version: 2, ..(*table()).clone() };
    truncated.indexes.iter_mut().for_each(|index| index.tree = moved(index.tree));
    Arc::new(truncated)
}

fn fill(d: &mut D, changer: TxnId, table: &Arc<TableDef>, rows: &[Row]) {
    let program = Arc::new(Stmt::Insert { rows: rows.to_vec(), ignore: false }.program(table));
    let (env, rows) = (Arc::new(Env::default()), Some(batch(rows)));
    d.call(
        changer,
        Body::Statement {
            program,
            env,
            rows,
            batch: Batch::ALL,
            fresh: true,
            learns: false,
            may_use_retired: false,
            may_add: true,
            optimistic: false,
        },
    )
    .expect("rows");
}

fn commit(d: &mut D, txn: TxnId) {
    let commit = d.append_commit(txn);
    d.call(txn, Body::Finish { commit: Some(commit) }).expect("commit");
}

/// Empties the table and inserts these rows, in one transaction.
fn refill(d: &mut D, rows: &[Row]) {
    let changer = d.txn();
    d.call(changer, Body::LockTable { table: table().id, requester: None })
        .expect("the table is unlocked");
    d.call(changer, Body::CreateTrees([ROWS, BY_A, BY_B].map(moved).to_vec())).expect("trees");
    fill(d, changer, &truncated(), rows);
    commit(d, changer);
}

fn run_at(
    d: &mut D,
    table: &Arc<TableDef>,
    (txn, snapshot): &Reader,
    stmt: &Stmt,
    repeatable: bool,
) -> Answer {
    let (program, env) = (Arc::new(stmt.program(table)), Arc::new(Env::default()));
    let at = snapshot.lsn();
    d.call(*txn, Body::StatementAt { at, repeatable, program, env, rows: None, batch: Batch::ALL })
}

fn finds(low: i32, high: i32) -> [Find; 6] {
    let by_a = |reverse| Find::ByA { low: Some(low), high: Some(high), reverse };
    let all = Find::All { a_less: Some(high + 1) };
    let ids = Find::Ids { low: None, high: None, reverse: true };
    [all, ids, by_a(false), by_a(true), Find::ByB(1007), Find::Points(vec![6, 7, 8])]
}

/// It is empty, except for the reader's own changes.
#[test]
fn older_snapshots_see_a_new_table_as_empty() {
    let mut d = driver(&numbers(3));
    let older = open(&mut d);
    let rows = [(6, Some(6), 1006), (7, Some(7), 1007)];
    refill(&mut d, &rows);
    let truncated = truncated();
    // Changes of the new rows leave images, and so does a row that is deleted again.
    for stmt in [
        Stmt::Add { find: Find::Point(6), column: 1, by: 1 },
        Stmt::Insert { rows: vec![(5, Some(5), 5)], ignore: false },
        Stmt::Delete(Find::Point(5)),
    ] {
        let txn = d.txn();
        d.call(txn, stmt.one_shot(&truncated)).expect("a change");
    }
    for find in finds(0, 9) {
        let reply = d.call(older.0, read_in(&truncated, &older, find.clone()));
        assert_eq!(rows_of(&reply.expect("no row")), [], "{find:?}");
        let find = |lock| Stmt::Select { find: find.clone(), limit: None, lock: Some(lock) };
        let locked = run_at(&mut d, &truncated, &older, &find(RowLock::Update), true);
        assert_eq!(locked.expect("no row").count, 0);
    }
    let changed = run_at(&mut d, &truncated, &older, &add(7), true);
    assert_eq!(changed.expect("no row").count, 0);

    d.call(older.0, Body::Savepoint(1)).expect("a savepoint");
    let own = Stmt::Insert { rows: vec![(8, Some(8), 1007 + 1)], ignore: false };
    d.call(older.0, own.statement(&truncated)).expect("its own row");
    let added =
        Stmt::Add { find: Find::ByA { low: None, high: None, reverse: false }, column: 1, by: 1 };
    assert_eq!(run_at(&mut d, &truncated, &older, &added, true).expect("its own row").count, 1);
    let seen = |d: &mut D, find| {
        d.call(older.0, read_in(&truncated, &older, find)).map(|reply| rows_of(&reply))
    };
    for (find, rows) in finds(0, 9).into_iter().zip([1, 1, 1, 1, 0, 1]) {
        assert_eq!(seen(&mut d, find), Ok(vec![(8, Some(9), 1008); rows]));
    }
    d.call(older.0, Body::RollbackTo(1)).expect("rolled back");
    for find in finds(0, 9) {
        assert_eq!(seen(&mut d, find), Ok(Vec::new()));
    }
    let newer = open(&mut d);
    let reply = d.call(newer.0, read_in(&truncated, &newer, Find::All { a_less: None }));
    assert_eq!(rows_of(&reply.expect("rows")), [(6, Some(7), 1006), (7, Some(7), 1007)]);
    close(&mut d, newer);
    close(&mut d, older);
    assert!(d.nothing_pending());
}

/// This also holds for a snapshot opened before images were kept: the trees of active transactions
/// have recorded creators.
#[test]
fn the_first_snapshot_sees_an_uncommitted_table_as_empty() {
    let mut d = driver(&numbers(3));
    let changer = d.txn();
    d.call(changer, Body::CreateTrees([ROWS, BY_A, BY_B].map(moved).to_vec())).expect("trees");
    fill(&mut d, changer, &truncated(), &numbers(2));
    let older = open(&mut d);
    let committing = d.snapshots.commit(changer);
    let lsn = d.append_commit(changer);
    let newer = open(&mut d);
    let truncated = truncated();
    let all = Find::All { a_less: None };
    let answers =
        [&older, &newer].map(|reader| d.send(reader.0, read_in(&truncated, reader, all.clone())));
    assert_eq!(
        answers.map(|answer| d.take(answer)),
        [None, None],
        "they wait for the outcome of the commit"
    );
    d.call(changer, Body::Finish { commit: Some(lsn) }).expect("commit");
    drop(committing);
    let rows = answers
        .map(|answer| rows_of(&d.take(answer).expect("the outcome has arrived").expect("rows")));
    assert_eq!(rows, [Vec::new(), numbers(2)]);
    close(&mut d, older);
    close(&mut d, newer);
}

/// It continues with the table's old trees, and so does a paused statement.
#[test]
fn readers_and_ddl_do_not_wait_for_each_other() {
    let mut d = driver(&numbers(3));
    let (reader, all) = (open(&mut d), Find::All { a_less: None });
    let values = |answer: Answer| answer.map(|reply| rows_of(&reply));
    let (program, env) =
        (Arc::new(select(all.clone()).program(&table())), Arc::new(Env::default()));
    let (at, batch) = (reader.1.lsn(), Batch { id: 1, rows: 1, bytes: u32::MAX });
    let first = Body::StatementAt { at, repeatable: true, program, env, rows: None, batch };
    assert_eq!(values(d.call(reader.0, first)), Ok(vec![numbers(3)[0]]));

    let changer = d.txn();
    d.call(changer, Body::LockTable { table: table().id, requester: None })
        .expect("the table is unlocked");
    d.call(changer, Body::CreateTrees([ROWS, BY_A, BY_B].map(moved).to_vec())).expect("trees");
    fill(&mut d, changer, &truncated(), &[(1, None, 7)]);
    d.call(changer, Body::TableChanged { table: table().id, version: 2 }).expect("announced");
    let other = open(&mut d);
    assert_eq!(values(d.call(other.0, read_in(&table(), &other, all.clone()))), Ok(numbers(3)));
    let point = |d: &mut D, table: &Arc<TableDef>| {
        let txn = d.txn();
        values(d.call(txn, select(Find::Point(1)).one_shot(table)))
    };
    assert_eq!(point(&mut d, &table()), Ok(vec![numbers(3)[1]]), "it is not committed");

    let committing = d.snapshots.commit(changer);
    let lsn = d.append_commit(changer);
    let after = open(&mut d);
    let answers = [&other, &after].map(|who| d.send(who.0, read_in(&table(), who, all.clone())));
    assert_eq!(
        answers.map(|answer| d.take(answer)),
        [None, None],
        "they wait for the outcome of the commit"
    );
    d.call(changer, Body::Finish { commit: Some(lsn) }).expect("commit");
    drop(committing);
    let answers = answers.map(|answer| values(d.take(answer).expect("the outcome has arrived")));
    assert_eq!(answers, [Ok(numbers(3)), Err(Failure::StalePlan)]);

    assert_eq!(values(d.call(reader.0, Body::Next(1))), Ok(vec![numbers(3)[1]]));
    assert_eq!(
        values(d.call(other.0, read_in(&table(), &other, Find::ByB(1002)))),
        Ok(vec![numbers(3)[2]])
    );
    let stale = run_at(&mut d, &table(), &other, &add(1), true);
    assert_eq!(stale, Err(Failure::StalePlan), "the old trees must not be changed");
    assert_eq!(values(d.call(after.0, read_in(&truncated(), &after, all))), Ok(vec![(1, None, 7)]));
    assert_eq!(
        (point(&mut d, &table()), point(&mut d, &truncated())),
        (Err(Failure::StalePlan), Ok(vec![(1, None, 7)]))
    );
    for who in [reader, other, after] {
        close(&mut d, who);
    }
    assert!(d.nothing_pending());
}

/// Builds an index on (a) and returns the table with it.
fn build_index(d: &mut D, maker: TxnId) -> Arc<TableDef> {
    let mut indexed = (*table()).clone();
    indexed.indexes[0].tree = moved(BY_A);
    let indexed = Arc::new(indexed);
    d.call(maker, Body::LockTable { table: table().id, requester: None })
        .expect("the table is unlocked");
    d.call(maker, Body::CreateTrees(vec![moved(BY_A)])).expect("a tree");
    let (program, env) = (
        Arc::new(Program::BuildIndex { table: indexed.clone(), index: 0 }),
        Arc::new(Env::default()),
    );
    d.call(
        maker,
        Body::Statement {
            program,
            env,
            rows: None,
            batch: Batch::ALL,
            fresh: true,
            learns: false,
            may_use_retired: false,
            may_add: true,
            optimistic: false,
        },
    )
    .expect("rows");
    indexed
}

/// Creates a driver with many small turns: the search in the table resumes after each.
fn in_small_turns(rows: &[Row]) -> D {
    let mut d = Driver::new(MemTrees::new(None), ());
    let limits = Limits { slice_rows: 2, collect: 2, index_ahead: 2, ..Limits::default() };
    d.partition = Partition::new(MemTrees::new(None), limits, d.snapshots.clone());
    make_trees(&mut d, &[ROWS, BY_A, BY_B]);
    one(&mut d, &Stmt::Insert { rows: rows.to_vec(), ignore: false }).expect("rows");
    d
}

/// The index has no entries for rows deleted before it was built, and different ones for changed
/// rows.
#[test]
fn older_snapshots_do_not_use_a_new_index() {
    for own in [false, true] {
        let mut d = in_small_turns(&numbers(12));
        let older = open(&mut d);
        one(&mut d, &Stmt::Delete(Find::Point(3))).expect("a change");
        one(&mut d, &Stmt::Add { find: Find::Point(4), column: 1, by: 100 }).expect("a change");
        one(&mut d, &Stmt::Insert { rows: vec![(20, Some(5), 1020)], ignore: false })
            .expect("a change");
        let maker = if own { older.0 } else { d.txn() };
        let indexed = build_index(&mut d, maker);
        if !own {
            commit(&mut d, maker);
        }
        let by_a = |reverse| Find::ByA { low: Some(1), high: Some(5), reverse };
        let read = |d: &mut D, find| as_expected(&d.call(older.0, read_in(&indexed, &older, find)));
        let mut expected: Vec<Row> =
            numbers(12).into_iter().filter(|row| (1..=5).contains(&row.0)).collect();
        expected.push((11, Some(1), 1011));
        expected.sort_by_key(|row| (row.1, row.0));
        assert_eq!(read(&mut d, by_a(false)), Ok(expected.clone()));
        expected.reverse();
        assert_eq!(read(&mut d, by_a(true)), Ok(expected.clone()));
        if own {
            d.call(older.0, Body::Finish { commit: None }).expect("the end");
            continue;
        }
        // Unchanged rows can be changed and locked, others cannot.
        let find = Find::ByA { low: Some(5), high: Some(9), reverse: false };
        let added = Stmt::Add { find, column: 1, by: -4 };
        assert_eq!(run_at(&mut d, &indexed, &older, &added, true).expect("changes").count, 5);
        let of = |row: &Row| {
            if (5..10).contains(&row.0) { (row.0, row.1.map(|a| a - 4), row.2) } else { *row }
        };
        let mut expected: Vec<Row> =
            numbers(12).iter().map(of).filter(|row| row.1 <= Some(5)).collect();
        expected.retain(|row| row.1 >= Some(1));
        expected.sort_by_key(|row| (row.1, row.0));
        assert_eq!(read(&mut d, by_a(false)), Ok(expected));
        for low in [3, 4] {
            let find = Find::ByA { low: Some(low), high: Some(low), reverse: false };
            let lock = Stmt::Select { find, limit: None, lock: Some(RowLock::Update) };
            let refused = run_at(&mut d, &indexed, &older, &lock, true);
            assert_eq!(state_of(&refused), Some(SqlState::SERIALIZATION_FAILURE), "{low}");
        }
        let newer = open(&mut d);
        let rows = rows_of(&d.call(newer.0, read_in(&indexed, &newer, by_a(false))).expect("rows"));
        assert_eq!(rows.iter().map(|row| row.0).collect::<Vec<_>>(), [1, 11, 2, 5, 20]);
        d.call(older.0, Body::Finish { commit: None }).expect("the end");
        d.call(newer.0, Body::Finish { commit: Some(Lsn(0)) }).expect("the end");
    }
}
