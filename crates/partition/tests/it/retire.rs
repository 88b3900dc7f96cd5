//! Early retirement: rows whose lock passes to the next transaction before the one that has changed
//! them has ended.

use crate::driver::{Driver, state_of};
use crate::snapshots::{close, open, read_in};
use crate::sql::{Find, ROWS, Row, Stmt, plain_table, rows_of};
use crate::trees::{MemTrees, Paging};
use crate::units::{D, abort, make_trees, select};
use clearway_buffer::MissingPage;
use clearway_env::{Entropy, SeededEntropy};
use clearway_ir::TableDef;
use clearway_ir::program::Env;
use clearway_partition::{Batch, Body, COMMITTED, Limits, Partition};
use clearway_types::{PageId, PartitionId, SqlError, SqlState, TxnId};
use std::sync::Arc;

pub const CASCADED: Option<SqlState> = Some(SqlState::SERIALIZATION_FAILURE);

fn table() -> Arc<TableDef> {
    Arc::new(plain_table())
}

/// Creates a driver with rows 1 to 3, with 100 each.
pub fn driver(paging: Option<Paging>) -> D {
    let mut d = Driver::new(MemTrees::new(None), ());
    let limits = Limits { retire: true, increments: false, ..Limits::default() };
    d.partition = Partition::new(MemTrees::new(paging), limits, d.snapshots.clone());
    make_trees(&mut d, &[ROWS]);
    let rows: Vec<Row> = (1..=3).map(|id| (id, Some(100), id)).collect();
    let txn = d.txn();
    d.call(txn, Stmt::Insert { rows, ignore: false }.one_shot(&table())).expect("rows");
    d
}

/// Returns a statement at READ COMMITTED.
pub fn body(stmt: &Stmt) -> Body {
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

pub fn bump(id: i32, by: i32) -> Body {
    bump_from(id, by, false)
}

/// With `seen`, it finds the row as committed, as REPEATABLE READ does.
fn bump_from(id: i32, by: i32, seen: bool) -> Body {
    match body(&Stmt::Bump { id, column: 1, by }) {
        Body::StatementAt { program, env, rows, batch, .. } if !seen => Body::Statement {
            program,
            env,
            rows,
            batch,
            fresh: false,
            learns: false,
            may_use_retired: true,
            may_add: true,
            optimistic: false,
        },
        body => body,
    }
}

fn finish(d: &mut D, txn: TxnId) {
    let lsn = d.append_commit(txn);
    d.call(txn, Body::Finish { commit: Some(lsn) }).expect("commit");
}

pub fn commit(d: &mut D, txn: TxnId) {
    d.call(txn, Body::Settle).expect("no transaction is ahead");
    finish(d, txn);
}

/// Reads the row at READ COMMITTED.
pub fn a(d: &mut D, id: i32) -> Option<i32> {
    let reader = d.txn();
    let seq = d.send(reader, body(&select(Find::Point(id))));
    d.settle();
    let rows = d.take(seq).expect("it does not wait").expect("a row");
    abort(d, reader);
    rows_of(&rows)[0].1
}

/// Makes a transaction wait for the row, so that its lock is retired from now on.
pub fn warm(d: &mut D, id: i32) {
    let (first, second) = (d.txn(), d.txn());
    d.call(first, bump(id, 0)).expect("the row is unlocked");
    let waits = d.send(second, bump(id, 0));
    assert_eq!((d.take(waits), d.blockers_of(second)), (None, &[first][..]));
    abort(d, first);
    d.settle();
    d.take(waits).expect("its turn").expect("a change");
    abort(d, second);
}

/// Starts transactions that change row 1 by these amounts, each behind the previous one.
pub fn chain<const N: usize>(d: &mut D, by: [i32; N]) -> [TxnId; N] {
    warm(d, 1);
    by.map(|by| {
        let txn = d.txn();
        assert_eq!(d.call(txn, bump(1, by)).expect("it does not wait").count, 1);
        txn
    })
}

#[test]
fn uncontended_rows_are_not_retired() {
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
    assert!(d.nothing_pending() && d.partition.active() == 0);
}

#[test]
fn commits_wait_for_transactions_ahead() {
    for versions in [false, true] {
        let mut d = driver(None);
        let held = versions.then(|| open(&mut d));
        let [first, second, third] = chain(&mut d, [1, 10, 100]);
        let answers = [third, second].map(|txn| d.send(txn, Body::Settle));
        assert_eq!(answers.map(|seq| d.take(seq)), [None, None]);
        assert_eq!(
            (d.blockers_of(third), d.blockers_of(second)),
            (&[first, second][..], &[first][..])
        );
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
        assert!(d.nothing_pending() && d.partition.active() == 0);
    }
}

#[test]
fn rollbacks_first_undo_transactions_behind() {
    for versions in [false, true] {
        let mut d = driver(Some(Paging { pages: 8, frames: 2 }));
        let held = versions.then(|| open(&mut d));
        let [first, second, third] = chain(&mut d, [1, 10, 100]);
        d.call(third, bump(2, 5)).expect("a change");
        let waits = d.send(third, Body::Settle);
        assert_eq!(d.take(waits), None);
        abort(&mut d, first);
        assert_eq!(state_of(&d.take(waits).expect("a reply")), CASCADED);
        assert_eq!(d.undone, [second], "the third has its answer");
        assert_eq!((a(&mut d, 1), a(&mut d, 2)), (Some(100), Some(100)));
        for doomed in [second, third] {
            assert_eq!(state_of(&d.call(doomed, bump(3, 1))), CASCADED);
            assert_eq!(state_of(&d.call(doomed, Body::Settle)), CASCADED);
            abort(&mut d, doomed);
        }
        assert_eq!(a(&mut d, 3), Some(100));
        held.into_iter().for_each(|held| close(&mut d, held));
        assert!(d.nothing_pending() && d.partition.active() == 0);
    }
}

/// Its end needs the page that it has requested, also if another transaction has the partition when
/// the page arrives.
#[test]
fn resumptions_of_cascaded_transactions_are_kept() {
    let mut d = driver(Some(Paging { pages: 8, frames: 2 }));
    let [first, second] = chain(&mut d, [1, 10]);
    let page = |n: u32| MissingPage::Page(PageId::new(PartitionId(0), 99_000 + n));
    d.partition.trees().pin(&[page(0), page(1)]);
    d.partition.trees().unpin();
    let ends = [first, second].map(|txn| d.send(txn, Body::Finish { commit: None }));
    assert_eq!(d.suspended.len(), 2);
    d.resume(0);
    assert!(d.take(ends[0]).expect("the page is there").is_ok());
    let next = d.txn();
    let block = d.send(next, Body::Block { one_round: false });
    assert_eq!(d.take(block).expect("a reply").expect("no error").count, 1);
    d.settle();
    abort(&mut d, next);
    d.settle();
    assert!(d.take(ends[1]).expect("its end is answered").is_ok());
    assert!(d.nothing_pending() && d.partition.active() == 0);
}

/// A cancellation ends it at each turn: while it runs, is undone, and waits with its error.
#[test]
fn failed_statements_behind_others_can_be_cancelled_anywhere() {
    for turns in 0.. {
        // Every access misses a page.
        let mut d = driver(Some(Paging { pages: 8, frames: 0 }));
        let [first, second] = chain(&mut d, [1, 10]);
        let rows = [4, 5, 2].map(|id| (id, Some(100), id)).to_vec();
        let insert = Stmt::Insert { rows, ignore: false };
        let fails = d.send(second, insert.statement(&table()));
        (0..turns).for_each(|_| d.resume(0));
        let is_undone = d.suspended.is_empty();
        let cancelled = SqlError::new(SqlState::QUERY_CANCELED, "canceling statement");
        d.send(second, Body::Cancel(cancelled));
        d.settle();
        let answer = d.take(fails).unwrap_or_else(|| panic!("no reply after {turns} turns"));
        assert_eq!(state_of(&answer), Some(SqlState::QUERY_CANCELED));
        commit(&mut d, first);
        commit(&mut d, second);
        assert_eq!(a(&mut d, 1), Some(111));
        assert!(d.nothing_pending() && d.partition.active() == 0);
        if is_undone {
            assert!(turns > 3, "the statement has changed something, and its undo misses pages");
            break;
        }
    }
}

/// Invariant 1: 22003 depends on a value that may be undone.
#[test]
fn errors_wait_for_transactions_ahead() {
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
        assert_eq!(state_of(&d.take(answer).expect("a reply")), expected);
        abort(&mut d, second);
        assert!(d.nothing_pending() && d.partition.active() == 0);
    }
}

/// A cancelled statement does not wait for the client of the transaction ahead.
#[test]
fn cancellations_do_not_wait_for_transactions_ahead() {
    for state in [
        SqlState::QUERY_CANCELED,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CONNECTION_FAILURE,
    ] {
        let mut d = driver(None);
        let third = d.txn();
        d.call(third, bump(2, 1)).expect("a change");
        let [first, second] = chain(&mut d, [1, 10]);
        let waits = d.send(second, bump(2, 1));
        assert_eq!(d.take(waits), None);
        d.send(second, Body::Cancel(SqlError::new(state, "enough")));
        assert_eq!(state_of(&d.take(waits).expect("an end")), Some(state));
        [second, first, third].into_iter().for_each(|txn| abort(&mut d, txn));
        assert_eq!([1, 2].map(|id| a(&mut d, id)), [Some(100); 2], "{state:?}");
        assert!(d.nothing_pending() && d.partition.active() == 0);
    }
}

/// Invariant 1: a read waits, too.
#[test]
fn reads_wait_for_transactions_ahead() {
    let mut d = driver(None);
    let [first, second] = chain(&mut d, [1, 10]);
    let read = d.send(second, body(&select(Find::Point(1))));
    assert_eq!(d.take(read), None);
    commit(&mut d, first);
    assert_eq!(rows_of(&d.take(read).expect("its turn").expect("a row"))[0].1, Some(111));
    commit(&mut d, second);
    assert!(d.nothing_pending() && d.partition.active() == 0);
}

#[test]
fn reusing_a_retired_row_undoes_transactions_behind() {
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
        assert!(d.nothing_pending() && d.partition.active() == 0);
    }
}

/// A transaction that waits for one that is undone is not undone itself. It does not go behind
/// those that still have to be undone.
#[test]
fn undo_spares_transactions_that_wait() {
    for returns in [false, true] {
        let mut d = driver(None);
        let [first, second, third] = chain(&mut d, [1, 10, 100]);
        // After this undo the row is cold, so no further lock is retired.
        abort(&mut d, second);
        abort(&mut d, third);
        let last = d.txn();
        d.call(last, bump(1, 10)).expect("it does not wait");
        let waiting = [(); 3].map(|()| {
            let txn = d.txn();
            (txn, d.send(txn, bump(1, 1000)))
        });
        assert_eq!(waiting.map(|(_, waits)| d.take(waits)), [None, None, None]);
        if returns {
            d.call(first, bump(1, 1)).expect("its own row");
            d.settle();
            assert_eq!(waiting.map(|(_, waits)| d.take(waits)), [None, None, None]);
            commit(&mut d, first);
        } else {
            abort(&mut d, first);
        }
        assert_eq!(state_of(&d.call(last, Body::Settle)), CASCADED);
        abort(&mut d, last);
        for (txn, waits) in waiting {
            d.settle();
            d.take(waits).expect("its turn").expect("a change");
            commit(&mut d, txn);
        }
        assert_eq!(a(&mut d, 1), Some(if returns { 3102 } else { 3100 }));
        assert!(d.nothing_pending() && d.partition.active() == 0);
    }
}

/// A block whose savepoints are all released goes behind others and retires its locks.
#[test]
fn released_savepoints_do_not_prevent_retirement() {
    for released in [1, 2] {
        let mut d = driver(None);
        let [first] = chain(&mut d, [1]);
        let (second, third) = (d.txn(), d.txn());
        for savepoint in [1, 2] {
            d.call(second, Body::Savepoint(savepoint)).expect("a savepoint");
        }
        d.send(second, Body::Release(released));
        let change = d.send(second, bump(1, 10));
        assert_eq!(d.take(change).is_some(), released == 1, "the first savepoint remains");
        if released == 2 {
            abort(&mut d, first);
            abort(&mut d, second);
            continue;
        }
        assert_eq!(d.call(third, bump(1, 100)).expect("it is behind").count, 1);
        for txn in [first, second, third] {
            commit(&mut d, txn);
        }
        assert_eq!(a(&mut d, 1), Some(211));
        assert!(d.nothing_pending() && d.partition.active() == 0);
    }
}

/// Invariant 4: a transaction that changes two rows in the other order is undone, not waited for.
#[test]
fn no_transaction_waits_for_one_behind_it() {
    let mut d = driver(None);
    warm(&mut d, 2);
    let [first, second] = chain(&mut d, [1, 10]);
    d.call(second, bump(2, 10)).expect("a change");
    assert_eq!(d.call(first, bump(2, 1)).expect("it does not wait").count, 1);
    assert_eq!(state_of(&d.call(second, Body::Settle)), CASCADED);
    abort(&mut d, second);
    commit(&mut d, first);
    assert_eq!((a(&mut d, 1), a(&mut d, 2), d.deadlocks), (Some(101), Some(101), 0));
    assert!(d.nothing_pending() && d.partition.active() == 0);
}

/// One-shots, blocks with savepoints and REPEATABLE READ wait as usual, and so do changes that
/// return rows.
#[test]
fn other_statements_wait_as_if_none_were_retired() {
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
    if let Body::Statement { learns, may_use_retired, .. } = &mut serializable {
        (*learns, *may_use_retired) = (true, false);
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
    assert!(d.nothing_pending() && d.partition.active() == 0);
}

/// A session of the history.
#[derive(Default)]
struct Session {
    txn: Option<TxnId>,
    /// The sum of its additions to each row.
    added: [i32; 3],
    /// Its pending call.
    call: Option<Call>,
}

struct Call {
    seq: u32,
    /// What it adds if it succeeds; none if it precedes the commit.
    adds: Option<Addition>,
}

struct Addition {
    row: usize,
    by: i32,
}

/// How transactions ended.
#[derive(Debug, Default)]
struct Ends {
    commits: u32,
    cascades: u32,
    rollbacks: u32,
}

struct History {
    d: D,
    random: SeededEntropy,
    sessions: Vec<Session>,
    committed: [i32; 3],
    ends: Ends,
}

impl History {
    fn below(&self, n: u64) -> usize {
        (self.random.u64() % n) as usize
    }

    /// Processes replies; ends sessions that failed or have no transaction ahead.
    fn collect(&mut self) {
        self.d.settle();
        for at in 0..self.sessions.len() {
            let Some(Call { seq, .. }) = self.sessions[at].call else { continue };
            let Some(answer) = self.d.take(seq) else { continue };
            let adds = self.sessions[at].call.take().and_then(|call| call.adds);
            let txn = self.sessions[at].txn.expect("a transaction");
            match (answer, adds) {
                (Ok(reply), Some(Addition { row, by })) => {
                    assert_eq!(reply.count, 1);
                    self.sessions[at].added[row] += by;
                }
                (Ok(_), None) => {
                    finish(&mut self.d, txn);
                    let added = std::mem::take(&mut self.sessions[at]).added;
                    self.committed.iter_mut().zip(added).for_each(|(sum, by)| *sum += by);
                    self.ends.commits += 1;
                }
                (answer, _) => {
                    let state = state_of(&answer).expect("an error of SQL");
                    assert!(
                        [SqlState::SERIALIZATION_FAILURE, SqlState::DEADLOCK].contains(&state),
                        "{state:?}"
                    );
                    self.ends.cascades += u32::from(state == SqlState::SERIALIZATION_FAILURE);
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
                    self.ends.rollbacks += 1;
                }
                1..5 => {
                    let seq = self.d.send(txn, Body::Settle);
                    self.sessions[at].call = Some(Call { seq, adds: None });
                }
                _ => {
                    let (row, by) = (self.below(3), 1 + self.below(1000) as i32);
                    let seen = self.below(2) == 0;
                    let seq = self.d.send(txn, bump_from(row as i32 + 1, by, seen));
                    self.sessions[at].call = Some(Call { seq, adds: Some(Addition { row, by }) });
                }
            }
        }
        self.collect();
        self.collect();
    }

    /// Checks what everyone may see.
    fn check(&mut self, held: Option<&(TxnId, clearway_partition::Snapshot)>) {
        if let Some(held) = held {
            let rows = self
                .d
                .call(held.0, read_in(&table(), held, Find::All { a_less: None }))
                .expect("rows");
            assert!(
                rows_of(&rows).iter().all(|row| row.1 == Some(100)),
                "the snapshot is unchanged"
            );
            let rows: Vec<_> = (1..=3).map(|id| a(&mut self.d, id)).collect();
            assert_eq!(rows, self.committed.map(Some));
        }
    }
}

/// Sessions that change three rows in any order and end in any way. In all cases the rows contain
/// what was committed.
#[test]
fn rows_contain_exactly_what_was_committed() {
    let mut ends = Ends::default();
    for seed in 0..60 {
        let paging = (seed % 3 == 0).then_some(Paging { pages: 8, frames: 3 });
        let sessions = (0..6).map(|_| Session::default()).collect();
        let (d, random) = (driver(paging), SeededEntropy::new(seed));
        let mut h = History { d, random, sessions, committed: [100; 3], ends: Ends::default() };
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
        assert!(h.d.nothing_pending() && h.d.partition.active() == 0, "seed {seed}");
        ends.commits += h.ends.commits;
        ends.cascades += h.ends.cascades;
        ends.rollbacks += h.ends.rollbacks;
    }
    assert!(ends.commits > 100 && ends.cascades > 100 && ends.rollbacks > 100, "{ends:?}");
}
