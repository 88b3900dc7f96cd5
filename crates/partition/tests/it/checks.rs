//! CHECK constraints: what an UPDATE tests, and additions near their bounds.

use crate::driver::{Driver, state_of};
use crate::sql::{Find, ROWS, Row, Stmt, int, plain_table, rows_of, statement};
use crate::trees::MemTrees;
use crate::units::{D, abort, make_trees, select};
use clearway_ir::expr::BinaryOp;
use clearway_ir::program::{Access, Path};
use clearway_ir::{CheckConstraint, Expr, Program, RowLock, RowLocking, TableDef};
use clearway_partition::Body;
use clearway_types::{Datum, SqlState, TxnId};
use std::sync::Arc;

const A: usize = 1;
const B: usize = 2;

fn compared(column: usize, op: BinaryOp, other: Expr) -> Expr {
    Expr::Binary(op, Box::new(Expr::Column(column)), Box::new(other))
}

/// A table whose rows satisfy all of these.
fn checked(conditions: &[Expr]) -> Arc<TableDef> {
    let check = |(n, condition): (usize, &Expr)| CheckConstraint {
        name: format!("check{n}"),
        condition: condition.clone(),
    };
    Arc::new(TableDef {
        checks: conditions.iter().enumerate().map(check).collect(),
        ..plain_table()
    })
}

/// `a >= 0 AND a <= most`.
fn within(most: i32) -> Expr {
    let low = compared(A, BinaryOp::Ge, int(0));
    let high = compared(A, BinaryOp::Le, int(most));
    Expr::Binary(BinaryOp::And, Box::new(low), Box::new(high))
}

struct Scene {
    d: D,
    table: Arc<TableDef>,
}

impl Scene {
    fn new(conditions: &[Expr], rows: &[Row]) -> Self {
        let mut d = Driver::new(MemTrees::new(None), ());
        make_trees(&mut d, &[ROWS]);
        let table = checked(conditions);
        let txn = d.txn();
        let insert = Stmt::Insert { rows: rows.to_vec(), ignore: false };
        d.call(txn, insert.one_shot(&table)).expect("it completes immediately");
        Self { d, table }
    }

    fn adds(&self, by: i32) -> Body {
        Stmt::Bump { id: 1, column: A, by }.statement(&self.table)
    }

    /// Adds in a new transaction; returns it, and its answer unless it waits.
    fn open(&mut self, by: i32) -> (TxnId, Option<Result<u64, SqlState>>) {
        let txn = self.d.txn();
        let body = self.adds(by);
        let answer = self.d.send(txn, body);
        let answer = self.d.take(answer).map(|answer| match answer {
            Ok(reply) => Ok(reply.count),
            failed => Err(state_of(&failed).expect("an error")),
        });
        (txn, answer)
    }

    fn end(&mut self, txn: TxnId, commits: bool) {
        if commits {
            let lsn = self.d.append_commit(txn);
            self.d.call(txn, Body::Finish { commit: Some(lsn) }).expect("commit");
        } else {
            abort(&mut self.d, txn);
        }
    }

    fn row(&mut self) -> Row {
        let txn = self.d.txn();
        let body = select(Find::Point(1)).one_shot(&self.table);
        rows_of(&self.d.call(txn, body).expect("nobody holds a lock"))[0]
    }
}

/// All amounts, ends and orders of ends of three transactions: the first additions never wait, and
/// whatever runs concurrently stays within the bounds.
#[test]
fn no_outcome_of_open_additions_violates_a_check() {
    const MOST: i32 = 10;
    const ORDERS: [[usize; 3]; 6] =
        [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let mut shared = 0;
    for amounts in [[3, -4, 5], [-5, -3, 6], [-2, -2, -1], [5, -9, 4], [-4, 5, 4], [2, 2, 1]] {
        for ends in 0..8_u32 {
            for order in ORDERS {
                let mut scene = Scene::new(&[within(MOST)], &[(1, Some(5), 1)]);
                let mut open = Vec::new();
                for by in amounts {
                    let (txn, answer) = scene.open(by);
                    match answer {
                        Some(Ok(1)) => open.push((txn, by)),
                        // It waits for the exclusive lock, and gives up.
                        None => abort(&mut scene.d, txn),
                        other => panic!("{other:?}"),
                    }
                }
                assert!(!open.is_empty(), "the first one never waits");
                shared += usize::from(open.len() == 3);
                let mut value = 5;
                for at in order.into_iter().filter(|at| *at < open.len()) {
                    let (txn, by) = open[at];
                    let commits = ends & (1 << at) != 0;
                    scene.end(txn, commits);
                    value += if commits { by } else { 0 };
                }
                assert!((0..=MOST).contains(&value), "{amounts:?} {ends:b} {order:?}: {value}");
                assert_eq!(scene.row(), (1, Some(value), 1));
                assert!(scene.d.nothing_pending());
            }
        }
    }
    assert_eq!(shared, 2 * 8 * ORDERS.len(), "only [-2, -2, -1] and [2, 2, 1] fit together");
}

/// The bound is exact: a subtraction waits only if others decide whether it is permitted.
#[test]
fn subtractions_share_a_row_down_to_the_bound() {
    for commits in [true, false] {
        let mut scene = Scene::new(&[compared(A, BinaryOp::Ge, int(0))], &[(1, Some(5), 1)]);
        let (first, answer) = scene.open(-3);
        assert_eq!(answer, Some(Ok(1)));
        let (second, answer) = scene.open(-2);
        assert_eq!(answer, Some(Ok(1)), "0 is permitted even if both commit");
        let third = scene.d.txn();
        let body = scene.adds(-1);
        let answer = scene.d.send(third, body);
        assert_eq!((scene.d.take(answer), scene.d.waiting()), (None, 1));
        scene.end(second, true);
        assert_eq!(scene.d.take(answer), None);
        scene.end(first, commits);
        let answer = scene.d.take(answer).expect("its turn");
        if commits {
            assert_eq!(state_of(&answer), Some(SqlState::CHECK_VIOLATION));
        } else {
            assert_eq!(answer.expect("there is room").count, 1);
        }
        scene.end(third, true);
        assert_eq!(scene.row(), (1, Some(if commits { 0 } else { 2 }), 1));
        assert!(scene.d.nothing_pending());
    }
}

/// What another transaction has added may be undone, so that it must not be spent.
#[test]
pub fn uncommitted_additions_are_not_spent() {
    for one_shot in [false, true] {
        for commits in [false, true] {
            let mut scene = Scene::new(&[compared(A, BinaryOp::Gt, int(-1))], &[(1, Some(5), 1)]);
            let (first, _) = scene.open(10);
            let (second, _) = scene.open(-5);
            let third = scene.d.txn();
            let stmt = Stmt::Bump { id: 1, column: A, by: -6 };
            let body =
                if one_shot { stmt.one_shot(&scene.table) } else { stmt.statement(&scene.table) };
            let answer = scene.d.send(third, body);
            assert_eq!(scene.d.take(answer), None);
            scene.end(first, commits);
            scene.end(second, false);
            let answer = scene.d.take(answer).expect("its turn");
            match commits {
                true => assert_eq!(answer.expect("there is room").count, 1),
                false => assert_eq!(state_of(&answer), Some(SqlState::CHECK_VIOLATION)),
            }
            if !one_shot {
                scene.end(third, true);
            }
            assert_eq!(scene.row(), (1, Some(if commits { 9 } else { 5 }), 1));
            assert!(scene.d.nothing_pending());
        }
    }
}

/// One-shots commit at once: what they add can be spent, what they subtract is gone.
#[test]
fn one_shots_beside_additions_keep_the_bound() {
    let mut scene = Scene::new(&[within(20)], &[(1, Some(5), 1)]);
    let (first, _) = scene.open(-2);
    let alone = |scene: &mut Scene, by| {
        let txn = scene.d.txn();
        let body = Stmt::Bump { id: 1, column: A, by }.one_shot(&scene.table);
        let answer = scene.d.send(txn, body);
        scene.d.take(answer).map(|answer| answer.expect("it is permitted").count)
    };
    assert_eq!(alone(&mut scene, -3), Some(1));
    assert_eq!(alone(&mut scene, 18), Some(1));
    assert_eq!(alone(&mut scene, 1), None, "20 with the rollback of -2");
    scene.end(first, true);
    assert_eq!(scene.row(), (1, Some(19), 1));
    assert!(scene.d.nothing_pending());
}

/// ROLLBACK TO keeps what may be undone, and a transaction's own additions count, too.
#[test]
fn own_additions_may_be_undone() {
    let mut scene = Scene::new(&[within(10)], &[(1, Some(5), 1)]);
    let (first, _) = scene.open(4);
    let (second, answer) = scene.open(1);
    assert_eq!(answer, Some(Ok(1)));
    // ROLLBACK TO between these may leave -1.
    let body = scene.adds(-6);
    let answer = scene.d.send(first, body);
    assert_eq!(scene.d.take(answer), None);
    scene.end(second, false);
    assert_eq!(scene.d.take(answer).expect("its turn").expect("there is room").count, 1);
    scene.end(first, true);
    assert_eq!(scene.row(), (1, Some(3), 1));
}

/// Conditions that no interval of one column describes: additions take the exclusive lock.
#[test]
fn other_conditions_lock_exclusively() {
    let or = |a, b| Expr::Binary(BinaryOp::Or, Box::new(a), Box::new(b));
    for condition in [
        compared(A, BinaryOp::Ne, int(3)),
        compared(A, BinaryOp::Lt, Expr::Column(B)),
        or(compared(A, BinaryOp::Lt, int(3)), compared(A, BinaryOp::Gt, int(4))),
    ] {
        let mut scene = Scene::new(std::slice::from_ref(&condition), &[(1, Some(5), 9)]);
        let (first, answer) = scene.open(1);
        assert_eq!(answer, Some(Ok(1)));
        let (second, answer) = scene.open(1);
        assert_eq!(answer, None, "{condition:?}");
        scene.end(first, true);
        scene.end(second, true);
        assert_eq!(scene.row(), (1, Some(7), 9));
    }
}

/// Both columns have bounds; the row's other constraint does not concern them.
#[test]
fn several_columns_have_their_own_bounds() {
    let conditions =
        [within(100), compared(B, BinaryOp::Ge, int(0)), compared(0, BinaryOp::Ne, int(7))];
    let mut scene = Scene::new(&conditions, &[(1, Some(50), 12)]);
    let both = |scene: &Scene, a, b| {
        let lock = Some(RowLocking::of(RowLock::NoKeyUpdate));
        let (table, path) = (scene.table.clone(), Path::Point(vec![int(1)]));
        let access = Access { table, path, filter: None, lock, learned: Default::default() };
        let plus = |column, by| {
            let by = Expr::Literal(Datum::Int4(by));
            (column, Expr::Binary(BinaryOp::Add, Box::new(Expr::Column(column)), Box::new(by)))
        };
        let set = vec![plus(B, b), plus(A, a)];
        statement(Arc::new(Program::update(access, set, Vec::new(), false)), None)
    };
    let (first, second, third) = (scene.d.txn(), scene.d.txn(), scene.d.txn());
    for (txn, a, b) in [(first, 1, -4), (second, 1, -5)] {
        let body = both(&scene, a, b);
        assert_eq!(scene.d.call(txn, body).expect("it does not wait").count, 1);
    }
    let body = both(&scene, 1, -1);
    let answer = scene.d.send(third, body);
    assert_eq!(scene.d.take(answer), None, "what was added to `a` counts for `b`, too");
    scene.end(second, false);
    scene.end(first, true);
    assert_eq!(scene.d.take(answer).expect("its turn").expect("there is room").count, 1);
    scene.end(third, true);
    assert_eq!(scene.row(), (1, Some(52), 7));
}
