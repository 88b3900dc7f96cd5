//! Rows that are given to the next transaction before the one that has changed them has ended.

use crate::driver::{Driver, state_of};
use crate::snapshots::{close, open, read_in};
use crate::sql::{Find, ROWS, Row, Stmt, plain_table, rows_of};
use crate::trees::{MemTrees, Paging};
use crate::units::{D, abort, make_trees, select};
use clearway_env::{Entropy, SeededEntropy};
use clearway_ir::TableDef;
use clearway_ir::program::Env;
use clearway_partition::{Batch, Body, COMMITTED, Limits, Partition};
use clearway_types::{SqlState, TxnId};
use std::sync::Arc;

const CASCADED: Option<SqlState> = Some(SqlState::SERIALIZATION_FAILURE);

fn table() -> Arc<TableDef> {
    Arc::new(plain_table())
}

/// Rows 1 to 3, with 100 each.
fn driver(paging: Option<Paging>) -> D {
    let mut d = Driver::new(MemTrees::new(None), ());
    let limits = Limits { retire: true, increments: false, ..Limits::default() };
    d.partition = Partition::new(MemTrees::new(paging), limits, d.snapshots.clone());
    make_trees(&mut d, &[ROWS]);
    let rows: Vec<Row> = (1..=3).map(|id| (id, Some(100), id)).collect();
    let txn = d.txn();
    d.call(txn, Stmt::Insert { rows, ignore: false }.one_shot(&table())).expect("rows");
    d
}

/// A statement at READ COMMITTED.
fn body(stmt: &Stmt) -> Body {
    let (program, env) = (Arc::new(stmt.program(&table())), Arc::new(Env::default()));
    Body::StatementAt {
        at: COMMITTED,
        repeatable: false,
        program,
        env,
        rows: None,
        batch: Batch::ALL,
    }
}

fn bump(id: i32, by: i32) -> Body {
    bump_from(id, by, false)
}

/// `seen`: it finds the row as it is committed, as REPEATABLE READ does.
fn bump_from(id: i32, by: i32, seen: bool) -> Body {
    match body(&Stmt::Bump { id, column: 1, by }) {
        Body::StatementAt { program, env, rows, batch, .. } if !seen => Body::Statement {
            program,
            env,
            rows,
            batch,
            fresh: false,
            learns: false,
            goes_behind: true,
        },
        body => body,
    }
}

fn finish(d: &mut D, txn: TxnId) {
    let lsn = d.append_commit(txn);
    d.call(txn, Body::Finish { commit: Some(lsn) }).expect("commit");
}

fn commit(d: &mut D, txn: TxnId) {
    d.call(txn, Body::Settle).expect("nobody is ahead");
    finish(d, txn);
}

/// What READ COMMITTED reads of the row.
fn a(d: &mut D, id: i32) -> Option<i32> {
    let reader = d.txn();
    let seq = d.send(reader, body(&select(Find::Point(id))));
    d.settle();
    let rows = d.take(seq).expect("it waits for nobody").expect("a row");
    abort(d, reader);
    rows_of(&rows)[0].1
}

/// Somebody waits for the row, so that it is given away from now on.
fn warm(d: &mut D, id: i32) {
    let (first, second) = (d.txn(), d.txn());
    d.call(first, bump(id, 0)).expect("nobody has the row");
    let waits = d.send(second, bump(id, 0));
    assert_eq!((d.take(waits), d.in_way_of(second)), (None, &[first][..]));
    abort(d, first);
    d.settle();
    d.take(waits).expect("its turn").expect("a change");
    abort(d, second);
}

/// Transactions that have changed row 1 by these, one behind the other.
fn chain<const N: usize>(d: &mut D, by: [i32; N]) -> [TxnId; N] {
    warm(d, 1);
    by.map(|by| {
        let txn = d.txn();
        assert_eq!(d.call(txn, bump(1, by)).expect("it waits for nobody").count, 1);
        txn
    })
}

#[test]
fn a_row_that_nobody_wants_is_not_given_away() {
    let mut d = driver(None);
    let (first, second) = (d.txn(), d.txn());
    d.call(first, bump(1, 1)).expect("a change");
    let waits = d.send(second, bump(1, 10));
    assert_eq!(d.take(waits), None);
    commit(&mut d, first);
    let reply = d.take(waits).expect("its turn").expect("a change");
    assert_eq!(reply.behind, None);
    commit(&mut d, second);
    assert_eq!(a(&mut d, 1), Some(111));
    assert!(d.owes_nothing() && d.partition.active() == 0);
}

#[test]
fn a_commit_waits_for_those_ahead_of_it() {
    for versions in [false, true] {
        let mut d = driver(None);
        let held = versions.then(|| open(&mut d));
        let [first, second, third] = chain(&mut d, [1, 10, 100]);
        let answers = [third, second].map(|txn| d.send(txn, Body::Settle));
        assert_eq!(answers.map(|seq| d.take(seq)), [None, None]);
        assert_eq!((d.in_way_of(third), d.in_way_of(second)), (&[first, second][..], &[first][..]));
        if versions {
            assert_eq!(a(&mut d, 1), Some(100));
        }
        commit(&mut d, first);
        assert!(d.take(answers[1]).is_some_and(|answer| answer.is_ok()));
        assert_eq!(d.take(answers[0]), None);
        if versions {
            assert_eq!(a(&mut d, 1), Some(101));
        }
        finish(&mut d, second);
        assert!(d.take(answers[0]).is_some_and(|answer| answer.is_ok()));
        assert_eq!(a(&mut d, 1), Some(111));
        finish(&mut d, third);
        assert_eq!(a(&mut d, 1), Some(211));
        held.into_iter().for_each(|held| close(&mut d, held));
        assert!(d.owes_nothing() && d.partition.active() == 0);
    }
}

#[test]
fn a_rollback_undoes_those_behind_it_first() {
    for versions in [false, true] {
        let mut d = driver(Some(Paging { pages: 8, frames: 2 }));
        let held = versions.then(|| open(&mut d));
        let [first, second, third] = chain(&mut d, [1, 10, 100]);
        d.call(third, bump(2, 5)).expect("a change");
        let waits = d.send(third, Body::Settle);
        assert_eq!(d.take(waits), None);
        abort(&mut d, first);
        assert_eq!(state_of(&d.take(waits).expect("an answer")), CASCADED);
        assert_eq!(d.undone, [second], "the third has its answer");
        assert_eq!((a(&mut d, 1), a(&mut d, 2)), (Some(100), Some(100)));
        for doomed in [second, third] {
            assert_eq!(state_of(&d.call(doomed, bump(3, 1))), CASCADED);
            assert_eq!(state_of(&d.call(doomed, Body::Settle)), CASCADED);
            abort(&mut d, doomed);
        }
        assert_eq!(a(&mut d, 3), Some(100));
        held.into_iter().for_each(|held| close(&mut d, held));
        assert!(d.owes_nothing() && d.partition.active() == 0);
    }
}

/// Invariant 1: 22003 depends on a value that may be undone.
#[test]
fn an_error_waits_for_those_ahead_of_it() {
    for committed in [false, true] {
        let mut d = driver(None);
        let [first] = chain(&mut d, [i32::MAX - 100]);
        let second = d.txn();
        let answer = d.send(second, bump(1, 1));
        assert_eq!(d.take(answer), None);
        let expected = if committed {
            commit(&mut d, first);
            Some(SqlState::OUT_OF_RANGE)
        } else {
            abort(&mut d, first);
            CASCADED
        };
        assert_eq!(state_of(&d.take(answer).expect("an answer")), expected);
        abort(&mut d, second);
        assert!(d.owes_nothing() && d.partition.active() == 0);
    }
}

/// Invariant 1: whatever shows rows waits, too.
#[test]
fn a_read_waits_for_those_ahead_of_it() {
    let mut d = driver(None);
    let [first, second] = chain(&mut d, [1, 10]);
    let read = d.send(second, body(&select(Find::Point(1))));
    assert_eq!(d.take(read), None);
    commit(&mut d, first);
    assert_eq!(rows_of(&d.take(read).expect("its turn").expect("a row"))[0].1, Some(111));
    commit(&mut d, second);
    assert!(d.owes_nothing() && d.partition.active() == 0);
}

#[test]
fn an_owner_that_comes_back_undoes_those_behind_it() {
    for writes in [false, true] {
        let mut d = driver(None);
        let [first, second, third] = chain(&mut d, [1, 10, 100]);
        if writes {
            d.call(first, bump(1, 1000)).expect("its own row");
        } else {
            let rows = d.call(first, body(&select(Find::Point(1)))).expect("its own row");
            assert_eq!(rows_of(&rows)[0].1, Some(101));
        }
        for doomed in [second, third] {
            assert_eq!(state_of(&d.call(doomed, Body::Settle)), CASCADED);
            abort(&mut d, doomed);
        }
        commit(&mut d, first);
        assert_eq!(a(&mut d, 1), Some(if writes { 1101 } else { 101 }));
        assert!(d.owes_nothing() && d.partition.active() == 0);
    }
}

/// Invariant 4: who changes two rows in the other order is undone, and not waited for.
#[test]
fn nobody_waits_for_those_behind_it() {
    let mut d = driver(None);
    warm(&mut d, 2);
    let [first, second] = chain(&mut d, [1, 10]);
    d.call(second, bump(2, 10)).expect("a change");
    assert_eq!(d.call(first, bump(2, 1)).expect("it waits for nobody").count, 1);
    assert_eq!(state_of(&d.call(second, Body::Settle)), CASCADED);
    abort(&mut d, second);
    commit(&mut d, first);
    assert_eq!((a(&mut d, 1), a(&mut d, 2), d.deadlocks), (Some(101), Some(101), 0));
    assert!(d.owes_nothing() && d.partition.active() == 0);
}

/// One-shots, blocks with savepoints and REPEATABLE READ wait as ever, as do changes that show
/// something.
#[test]
fn others_wait_as_if_nobody_had_retired() {
    let mut d = driver(None);
    let snapshot = open(&mut d);
    let [first] = chain(&mut d, [1]);
    let (marked, deleter, one_shot, strict) = (d.txn(), d.txn(), d.txn(), d.txn());
    d.call(marked, Body::Savepoint(1)).expect("a savepoint");
    let Body::StatementAt { program, env, .. } = bump_from(1, 1, true) else {
        panic!("a statement")
    };
    let at = snapshot.1.lsn();
    let repeatable =
        Body::StatementAt { at, repeatable: true, program, env, rows: None, batch: Batch::ALL };
    let mut serializable = bump(1, 1);
    if let Body::Statement { learns, goes_behind, .. } = &mut serializable {
        (*learns, *goes_behind) = (true, false);
    }
    let calls = [
        (marked, bump(1, 10)),
        (deleter, body(&Stmt::Delete(Find::Point(1)))),
        (one_shot, Stmt::Bump { id: 1, column: 1, by: 1 }.one_shot(&table())),
        (snapshot.0, repeatable),
        (strict, serializable),
    ];
    let seqs = calls.map(|(txn, body)| d.send(txn, body));
    assert_eq!(seqs.map(|seq| d.take(seq)), [None, None, None, None, None]);
    abort(&mut d, first);
    d.settle();
    assert!(d.take(seqs[0]).is_some_and(|answer| answer.is_ok()));
    abort(&mut d, marked);
    d.settle();
    abort(&mut d, deleter);
    d.settle();
    assert!(d.take(seqs[1]).is_some_and(|answer| answer.is_ok()));
    assert!(d.take(seqs[2]).is_some_and(|answer| answer.is_ok()));
    assert!(d.take(seqs[3]).is_some());
    close(&mut d, snapshot);
    d.settle();
    assert!(d.take(seqs[4]).is_some_and(|answer| answer.is_ok()));
    abort(&mut d, strict);
    assert!(d.owes_nothing() && d.partition.active() == 0);
}

/// What one session of the history does.
#[derive(Default)]
struct Session {
    txn: Option<TxnId>,
    /// What it has added to each row.
    added: [i32; 3],
    /// Its call, and what that adds to which row if it succeeds; none: it is about to commit.
    call: Option<(u32, Option<(usize, i32)>)>,
}

struct History {
    d: D,
    random: SeededEntropy,
    sessions: Vec<Session>,
    committed: [i32; 3],
    ends: [u32; 3],
}

impl History {
    fn below(&self, n: u64) -> usize {
        (self.random.u64() % n) as usize
    }

    /// Takes answers, and ends who cannot go on or has nobody ahead.
    fn collect(&mut self) {
        self.d.settle();
        for at in 0..self.sessions.len() {
            let Some((seq, adds)) = self.sessions[at].call else { continue };
            let Some(answer) = self.d.take(seq) else { continue };
            self.sessions[at].call = None;
            let txn = self.sessions[at].txn.expect("a transaction");
            match (answer, adds) {
                (Ok(reply), Some((row, by))) => {
                    assert_eq!(reply.count, 1);
                    self.sessions[at].added[row] += by;
                }
                (Ok(_), None) => {
                    finish(&mut self.d, txn);
                    let added = std::mem::take(&mut self.sessions[at]).added;
                    self.committed.iter_mut().zip(added).for_each(|(sum, by)| *sum += by);
                    self.ends[0] += 1;
                }
                (answer, _) => {
                    let state = state_of(&answer).expect("an error of SQL");
                    assert!(
                        [SqlState::SERIALIZATION_FAILURE, SqlState::DEADLOCK].contains(&state),
                        "{state:?}"
                    );
                    self.ends[1] += u32::from(state == SqlState::SERIALIZATION_FAILURE);
                    self.roll_back(at);
                }
            }
        }
    }

    fn roll_back(&mut self, at: usize) {
        if let Some(txn) = std::mem::take(&mut self.sessions[at]).txn {
            abort(&mut self.d, txn);
        }
    }

    fn step(&mut self) {
        let at = self.below(self.sessions.len() as u64);
        if self.sessions[at].call.is_none() {
            let txn = *self.sessions[at].txn.get_or_insert_with(|| self.d.txn());
            match self.below(16) {
                0 => {
                    self.roll_back(at);
                    self.ends[2] += 1;
                }
                1..5 => self.sessions[at].call = Some((self.d.send(txn, Body::Settle), None)),
                _ => {
                    let (row, by) = (self.below(3), 1 + self.below(1000) as i32);
                    let seen = self.below(2) == 0;
                    let seq = self.d.send(txn, bump_from(row as i32 + 1, by, seen));
                    self.sessions[at].call = Some((seq, Some((row, by))));
                }
            }
        }
        self.collect();
        self.collect();
    }

    /// What everybody may see.
    fn check(&mut self, held: Option<&(TxnId, clearway_partition::Snapshot)>) {
        if let Some(held) = held {
            let rows = self
                .d
                .call(held.0, read_in(&table(), held, Find::All { a_less: None }))
                .expect("rows");
            assert!(
                rows_of(&rows).iter().all(|row| row.1 == Some(100)),
                "the snapshot stays as it was"
            );
            let rows: Vec<_> = (1..=3).map(|id| a(&mut self.d, id)).collect();
            assert_eq!(rows, self.committed.map(Some));
        }
    }
}

/// Sessions that change three rows in any order and end in any way. Whatever becomes of them, the
/// rows hold what was committed.
#[test]
fn rows_hold_what_was_committed() {
    let mut ends = [0; 3];
    for seed in 0..60 {
        let paging = (seed % 3 == 0).then_some(Paging { pages: 8, frames: 3 });
        let sessions = (0..6).map(|_| Session::default()).collect();
        let (d, random) = (driver(paging), SeededEntropy::new(seed));
        let mut h = History { d, random, sessions, committed: [100; 3], ends: [0; 3] };
        let held = (seed % 2 == 0).then(|| open(&mut h.d));
        for _ in 0..150 {
            h.step();
            h.check(held.as_ref());
        }
        (0..h.sessions.len()).for_each(|at| h.roll_back(at));
        h.d.settle();
        held.into_iter().for_each(|held| close(&mut h.d, held));
        let rows: Vec<_> = (1..=3).map(|id| a(&mut h.d, id)).collect();
        assert_eq!(rows, h.committed.map(Some), "seed {seed}");
        h.d.answers.clear();
        assert!(h.d.owes_nothing() && h.d.partition.active() == 0, "seed {seed}");
        ends.iter_mut().zip(h.ends).for_each(|(sum, n)| *sum += n);
    }
    assert!(ends.iter().all(|n| *n > 100), "commits, cascades and rollbacks: {ends:?}");
}
