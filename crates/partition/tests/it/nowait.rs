//! NOWAIT, SKIP LOCKED, and which row locks block whom.

use crate::driver::{Answer, state_of};
use crate::snapshots::{close, open};
use crate::sql::{Find, Stmt, rows_of, statement, table};
use crate::units::{D, add, driver, numbers, select};
use clearway_ir::expr::BinaryOp;
use clearway_ir::program::Env;
use clearway_ir::{Expr, LockWait, Program, RowLock, RowLocking, TableDef};
use clearway_partition::{Batch, Body, Reply};
use clearway_types::{Datum, DatumRef, Lsn, RowView, SqlError, SqlState, TxnId};
use std::sync::Arc;

/// A query of ids, or of whole rows, with a locking clause.
#[derive(Clone)]
struct Query {
    find: Find,
    lock: RowLock,
    wait: LockWait,
    only_ids: bool,
    limit: Option<i32>,
    a_at_most: Option<i32>,
}

impl Query {
    fn new(find: Find, lock: RowLock, wait: LockWait) -> Self {
        Self { find, lock, wait, only_ids: lock == RowLock::KeyShare, limit: None, a_at_most: None }
    }

    fn program(&self) -> Arc<Program> {
        let stmt =
            Stmt::Select { find: self.find.clone(), limit: self.limit, lock: Some(self.lock) };
        let mut program = stmt.program(&table());
        if let Program::Scan { access, project, .. } = &mut program {
            access.lock = Some(RowLocking { wait: self.wait, ..RowLocking::of(self.lock) });
            let most = |a| Box::new(Expr::Literal(Datum::Int4(a)));
            access.filter = self
                .a_at_most
                .map(|a| Expr::Binary(BinaryOp::Le, Box::new(Expr::Column(1)), most(a)));
            if self.only_ids {
                project.truncate(1);
            }
        }
        Arc::new(program)
    }

    fn statement(&self) -> Body {
        statement(self.program(), None)
    }

    fn one_shot(&self) -> Body {
        Body::OneShot { program: self.program(), env: Arc::new(Env::default()), rows: None }
    }
}

fn ids(answer: Answer) -> Vec<i32> {
    let reply: Reply = answer.expect("rows");
    let id = |row: RowView<'_>| match row.get(0) {
        Ok(DatumRef::Int4(id)) => id,
        other => panic!("{other:?}"),
    };
    reply.rows.iter().map(id).collect()
}

fn end(d: &mut D, txn: TxnId) {
    d.call(txn, Body::Finish { commit: Some(Lsn(9)) }).expect("the end");
}

/// Runs the query as a one-shot, and in a block, which is then ended.
fn both(d: &mut D, query: &Query) -> [Answer; 2] {
    let (alone, block) = (d.txn(), d.txn());
    let first = d.call(alone, query.one_shot());
    let second = d.call(block, query.statement());
    end(d, block);
    [first, second]
}

const POINT: Find = Find::Point(2);

/// Holders that block row 2, and the statements that take their locks.
fn holders() -> Vec<(&'static str, Vec<Body>)> {
    let table = table();
    let range = |lock| {
        Query::new(Find::Ids { low: Some(1), high: Some(3), reverse: false }, lock, LockWait::Wait)
    };
    vec![
        ("a row", vec![add(2).statement(&table)]),
        ("a range", vec![range(RowLock::Update).statement()]),
        ("all rows", vec![Stmt::Delete(Find::All { a_less: Some(-1) }).statement(&table)]),
        (
            "the whole table",
            vec![
                Query::new(Find::All { a_less: None }, RowLock::Update, LockWait::Wait).statement(),
            ],
        ),
        ("an absent row", vec![Stmt::Delete(POINT).statement(&table)]),
    ]
}

/// Ways to find row 2.
fn all_finds() -> [Find; 5] {
    let only_2 = Find::Ids { low: Some(2), high: Some(2), reverse: false };
    [POINT, Find::Points(vec![2]), only_2, Find::ByB(1002), Find::All { a_less: None }]
}

#[test]
fn nowait_and_skip_locked_never_wait_for_row_locks() {
    for (what, bodies) in holders() {
        let mut d = driver(&numbers(5));
        let holder = d.txn();
        for body in bodies {
            d.call(holder, body).expect(what);
        }
        for find in all_finds() {
            for lock in [RowLock::Share, RowLock::NoKeyUpdate, RowLock::Update] {
                for answer in both(&mut d, &Query::new(find.clone(), lock, LockWait::Fail)) {
                    assert_eq!(
                        state_of(&answer),
                        Some(SqlState::LOCK_NOT_AVAILABLE),
                        "{what} {find:?} {lock:?}"
                    );
                }
                for answer in both(&mut d, &Query::new(find.clone(), lock, LockWait::Skip)) {
                    assert!(!ids(answer).contains(&2), "{what} {find:?} {lock:?}");
                }
            }
        }
        end(&mut d, holder);
        assert!(d.nothing_pending(), "{what}");
    }
}

/// They avoid waits for row locks only, as in PostgreSQL.
#[test]
fn nowait_and_skip_locked_wait_for_ddl() {
    for (find, wait) in
        all_finds().into_iter().flat_map(|f| [(f.clone(), LockWait::Fail), (f, LockWait::Skip)])
    {
        let mut d = driver(&numbers(5));
        let changer = d.txn();
        d.call(changer, Body::LockTable { table: table().id, requester: None }).expect("DDL");
        let query = Query::new(find.clone(), RowLock::Update, wait);
        let (alone, block) = (d.txn(), d.txn());
        let waiting = [d.send(alone, query.one_shot()), d.send(block, query.statement())];
        assert_eq!(
            [d.blockers_of(alone), d.blockers_of(block)],
            [[changer]; 2],
            "{find:?} {wait:?}"
        );
        end(&mut d, changer);
        for answer in waiting {
            assert!(ids(d.take(answer).expect("its turn")).contains(&2), "{find:?} {wait:?}");
        }
        end(&mut d, block);
        assert!(d.nothing_pending());
    }
}

/// A transaction that has skipped all rows has still used the table, whose definition stays until
/// the transaction ends.
#[test]
fn skipping_all_rows_still_locks_the_table() {
    for find in all_finds() {
        let mut d = driver(&numbers(5));
        let (holder, reader, changer) = (d.txn(), d.txn(), d.txn());
        let all = Query::new(Find::All { a_less: None }, RowLock::Update, LockWait::Wait);
        d.call(holder, all.statement()).expect("all rows");
        let skips = Query::new(find.clone(), RowLock::Update, LockWait::Skip);
        assert_eq!(ids(d.call(reader, skips.statement())), [], "{find:?}");
        end(&mut d, holder);
        let waits = d.send(changer, Body::LockTable { table: table().id, requester: None });
        assert_eq!(d.blockers_of(changer), [reader], "{find:?}");
        end(&mut d, reader);
        assert!(d.take(waits).expect("its turn").is_ok());
        end(&mut d, changer);
        assert!(d.nothing_pending());
    }
}

/// No one holds what the newcomer requests, but an earlier request waits for it.
#[test]
fn nowait_does_not_join_or_pass_a_line() {
    let mut d = driver(&numbers(5));
    let (reader, writer) = (d.txn(), d.txn());
    d.call(reader, select(POINT).statement(&table())).expect("a reader");
    let waits = d.send(writer, add(2).statement(&table()));
    assert_eq!(d.blockers_of(writer), [reader]);
    for answer in both(&mut d, &Query::new(POINT, RowLock::Share, LockWait::Fail)) {
        assert_eq!(state_of(&answer), Some(SqlState::LOCK_NOT_AVAILABLE));
    }
    for answer in both(&mut d, &Query::new(POINT, RowLock::Share, LockWait::Skip)) {
        assert_eq!(ids(answer), []);
    }
    // Its own lock does not block it, nor do transactions that wait for it.
    assert_eq!(
        ids(d.call(reader, Query::new(POINT, RowLock::Share, LockWait::Fail).statement())),
        [2]
    );
    assert_eq!(
        ids(d.call(reader, Query::new(POINT, RowLock::Update, LockWait::Skip).statement())),
        [2]
    );
    end(&mut d, reader);
    assert!(d.take(waits).expect("its turn").is_ok());
    end(&mut d, writer);
    assert!(d.nothing_pending());
}

/// A queue: each transaction takes the first free entries.
#[test]
fn skip_locked_locks_only_the_rows_it_returns() {
    for find in [
        Find::All { a_less: None },
        Find::Ids { low: Some(0), high: None, reverse: false },
        Find::ByA { low: Some(0), high: None, reverse: false },
        Find::Points((0..9).collect()),
    ] {
        let mut d = driver(&numbers(9));
        let take = Query {
            limit: Some(2),
            a_at_most: Some(6),
            ..Query::new(find, RowLock::Update, LockWait::Skip)
        };
        let txns: Vec<TxnId> = (0..5).map(|_| d.txn()).collect();
        for (n, txn) in (0..).zip(&txns) {
            let taken: Vec<i32> = (0..7).skip(2 * n).take(2).collect();
            assert_eq!(ids(d.call(*txn, take.statement())), taken);
        }
        // Neither rows that do not satisfy the filter nor the keys between are locked.
        let other = d.txn();
        d.call(other, add(8).statement(&table())).expect("free");
        let insert = Stmt::Insert { rows: vec![(100, Some(0), 0)], ignore: false };
        d.call(other, insert.statement(&table())).expect("free");
        end(&mut d, txns[0]);
        assert_eq!(ids(d.call(txns[4], take.statement())), [0, 1]);
        txns[1..].iter().for_each(|txn| end(&mut d, *txn));
        end(&mut d, other);
        assert!(d.nothing_pending());
    }
}

/// Between two turns of the reader, one row leaves the index range, and another is deleted.
#[test]
fn skip_locked_rechecks_rows_found_through_an_index() {
    let mut d = driver(&numbers(3000));
    let find = Find::ByA { low: Some(0), high: Some(9), reverse: false };
    let query = Query { a_at_most: Some(9), ..Query::new(find, RowLock::Update, LockWait::Skip) };
    let (reader, writer) = (d.txn(), d.txn());
    let seq = d.send(reader, query.statement());
    assert_eq!(d.suspended.len(), 1, "its turn is over");
    // The index leads to them after 2,058 others: their keys have been read, the rows have not.
    let (leaves, goes) = (2586, 2596);
    let leave = Stmt::Add { find: Find::Point(leaves), column: 1, by: 1000 };
    d.send(writer, leave.statement(&table()));
    d.send(writer, Stmt::Delete(Find::Point(goes)).statement(&table()));
    d.send(writer, Body::Finish { commit: Some(Lsn(9)) });
    assert_eq!(d.waiting(), 0);
    d.settle();
    let found = ids(d.take(seq).expect("a reply"));
    assert_eq!(found.len(), 2998);
    assert!(!found.contains(&leaves) && !found.contains(&goes));
    end(&mut d, reader);
}

/// Between two turns of the reader a row moves ahead in the index: one that it is about to read,
/// and one whose key it has locked.
#[test]
fn skip_locked_returns_a_moving_row_once() {
    for (lock, moves, by) in [(RowLock::Update, 2586, 2), (RowLock::KeyShare, 10, 8)] {
        let mut d = driver(&numbers(3000));
        let find = Find::ByA { low: Some(0), high: Some(9), reverse: false };
        let (reader, writer) = (d.txn(), d.txn());
        let seq = d.send(reader, Query::new(find, lock, LockWait::Skip).statement());
        assert_eq!(d.suspended.len(), 1, "its turn is over");
        d.send(writer, Stmt::Add { find: Find::Point(moves), column: 1, by }.statement(&table()));
        d.send(writer, Body::Finish { commit: Some(Lsn(9)) });
        assert_eq!(d.waiting(), 0);
        d.settle();
        let mut found = ids(d.take(seq).expect("a reply"));
        found.sort_unstable();
        assert!(found.iter().copied().eq(0..3000), "{lock:?}: {} rows", found.len());
        end(&mut d, reader);
    }
}

/// A foreign key check: parents can be updated concurrently, but neither deleted nor given another
/// key.
#[test]
fn key_share_blocks_only_deletes_and_key_changes() {
    for find in [
        POINT,
        Find::Ids { low: Some(1), high: Some(3), reverse: false },
        Find::All { a_less: None },
    ] {
        let mut d = driver(&numbers(5));
        let check = d.txn();
        let query = Query::new(find.clone(), RowLock::KeyShare, LockWait::Wait);
        d.call(check, query.statement()).expect("a check");
        let add = |column| Stmt::Add { find: POINT, column, by: 100 };
        // As a one-shot and in a block.
        let (alone, block) = (d.txn(), d.txn());
        d.call(alone, add(1).one_shot(&table())).expect("no key");
        d.call(block, add(1).statement(&table())).expect("no key");
        assert_eq!(ids(d.call(check, query.statement())).iter().filter(|id| **id == 2).count(), 1);
        // It conflicts with a read of what is being changed.
        let reader = d.txn();
        let whole = Query::new(find.clone(), RowLock::Share, LockWait::Fail);
        assert_eq!(
            state_of(&d.call(reader, whole.statement())),
            Some(SqlState::LOCK_NOT_AVAILABLE)
        );
        end(&mut d, block);
        end(&mut d, reader);
        for stmt in [add(0), add(2), Stmt::Delete(POINT)] {
            let writer = d.txn();
            let seq = d.send(writer, stmt.one_shot(&table()));
            assert_eq!(d.blockers_of(writer), [check], "{find:?} {stmt:?}");
            d.send(writer, Body::Cancel(SqlError::new(SqlState::QUERY_CANCELED, "enough")));
            assert_eq!(state_of(&d.take(seq).expect("a reply")), Some(SqlState::QUERY_CANCELED));
        }
        end(&mut d, check);
        assert!(d.nothing_pending());
    }
}

#[test]
fn keyless_tables_are_locked_against_phantoms() {
    let keyless =
        Arc::new(TableDef { primary_key: Vec::new(), indexes: Vec::new(), ..(*table()).clone() });
    let all = Find::All { a_less: None };
    let select = |lock| Stmt::Select { find: all.clone(), limit: None, lock: Some(lock) };
    let locks = [RowLock::KeyShare, RowLock::Share, RowLock::NoKeyUpdate, RowLock::Update];
    let mut stmts: Vec<Stmt> = locks.into_iter().map(select).collect();
    stmts.extend([Stmt::Add { find: all.clone(), column: 1, by: 100 }, Stmt::Delete(all.clone())]);
    for stmt in stmts {
        let mut d = driver(&[]);
        let (holder, writer) = (d.txn(), d.txn());
        d.call(holder, stmt.statement(&keyless)).expect("all rows");
        let insert = Stmt::Insert { rows: vec![(1, Some(1), 1)], ignore: false };
        let seq = d.send(writer, insert.one_shot(&keyless));
        assert_eq!(d.blockers_of(writer), [holder], "{stmt:?}");
        end(&mut d, holder);
        d.take(seq).expect("its turn").expect("a row");
        assert!(d.nothing_pending());
    }
}

/// A new row is locked although no one else knows its hidden number.
#[test]
fn skip_locked_skips_uncommitted_rows_without_a_key() {
    let keyless =
        Arc::new(TableDef { primary_key: Vec::new(), indexes: Vec::new(), ..(*table()).clone() });
    for wait in [LockWait::Skip, LockWait::Fail] {
        let mut d = driver(&[]);
        let (writer, reader) = (d.txn(), d.txn());
        let insert = Stmt::Insert { rows: vec![(1, Some(1), 1)], ignore: false };
        d.call(writer, insert.statement(&keyless)).expect("a row");
        let mut program =
            Stmt::Select { find: Find::All { a_less: None }, limit: None, lock: None }
                .program(&keyless);
        let Program::Scan { access, .. } = &mut program else { panic!("a scan") };
        access.lock = Some(RowLocking { wait, ..RowLocking::of(RowLock::Update) });
        let answer = d.call(reader, statement(Arc::new(program), None));
        match wait {
            LockWait::Skip => assert!(rows_of(&answer.expect("nothing")).is_empty()),
            _ => assert_eq!(state_of(&answer), Some(SqlState::LOCK_NOT_AVAILABLE)),
        }
        end(&mut d, reader);
        end(&mut d, writer);
        assert!(d.nothing_pending());
    }
}

/// Both hold the key. The first to change the row continues; the first to delete it waits for the
/// other.
#[test]
fn holders_of_key_share_can_upgrade() {
    let mut d = driver(&numbers(5));
    let (one, other, third) = (d.txn(), d.txn(), d.txn());
    for txn in [one, other] {
        d.call(txn, Query::new(POINT, RowLock::KeyShare, LockWait::Wait).statement())
            .expect("a check");
    }
    let waits = d.send(third, Stmt::Delete(POINT).statement(&table()));
    d.call(one, add(2).statement(&table())).expect("it passes the line");
    let delete = d.send(one, Stmt::Delete(POINT).statement(&table()));
    assert_eq!(d.blockers_of(one), [other]);
    end(&mut d, other);
    assert_eq!(rows_of(&d.take(delete).expect("its turn").expect("a row")).len(), 1);
    end(&mut d, one);
    assert!(rows_of(&d.take(waits).expect("its turn").expect("no row")).is_empty());
    end(&mut d, third);
    assert!(d.nothing_pending());
}

/// An open UPDATE of other columns admits FOR KEY SHARE, and has committed nothing.
#[test]
fn key_share_of_a_repeatable_snapshot_ignores_open_updates() {
    let mut d = driver(&numbers(5));
    let reader = open(&mut d);
    let writer = d.txn();
    d.call(writer, add(2).statement(&table())).expect("a change");
    let query = Query::new(POINT, RowLock::KeyShare, LockWait::Wait);
    let check = Body::StatementAt {
        at: reader.1.lsn(),
        repeatable: true,
        program: query.program(),
        env: Arc::new(Env::default()),
        rows: None,
        batch: Batch::ALL,
    };
    assert_eq!(ids(d.call(reader.0, check)), [2]);
    end(&mut d, writer);
    close(&mut d, reader);
    assert!(d.nothing_pending());
}
