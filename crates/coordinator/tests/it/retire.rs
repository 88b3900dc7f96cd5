//! Transactions that have changed rows with uncommitted changes: COMMIT, and what happens when
//! those ahead roll back (`src/replay.rs`).

use crate::common::{Bank, Worker, int, open_config};
use clearway_coordinator::{Engine, Event, Limits, Outcome, Step, TxnStatus};
use clearway_ir::expr::{BinaryOp, Func};
use clearway_ir::statement::{Isolation, Statement, TxnOptions};
use clearway_ir::{Expr, Plan};
use clearway_testkit::MemDisk;
use clearway_types::{Datum, SqlError, SqlResult, SqlState, SqlType};
use std::sync::Arc;

/// Two partitions, and three sessions in blocks at READ COMMITTED.
struct Scene {
    engine: Arc<Engine>,
    bank: Bank,
    workers: [Worker; 3],
    /// Accounts of different partitions, with a balance of 100 each.
    ids: [i32; 2],
}

impl Scene {
    fn new() -> Self {
        Self::with_replays(8)
    }

    fn with_replays(replays: u32) -> Self {
        let limits =
            Limits { retire: true, retire_cold: true, increments: false, ..Limits::default() };
        let engine = open_config(&MemDisk::new(), 2, 3, |config| {
            (config.partition, config.replays) = (limits, replays);
        });
        let mut workers = [0, 1, 2].map(|worker| Worker::new(&engine, worker));
        let bank = Bank::create(&mut workers[0], 10, 100);
        let other = (1..10).find(|id| Bank::home(*id, 2) != Bank::home(0, 2)).unwrap();
        workers.iter_mut().for_each(begin);
        Self { engine, bank, workers, ids: [0, other] }
    }

    fn replays(&self) -> u64 {
        self.engine.activity().replays
    }

    fn read(&mut self, worker: usize, account: usize) -> Option<i32> {
        self.bank.balance(&mut self.workers[worker], self.ids[account])
    }

    fn insert(&mut self, worker: usize, id: i32) {
        self.bank.insert(&mut self.workers[worker], id, 1).unwrap();
    }

    /// Adds to an account in a session, behind the uncommitted changes of others.
    fn add(&mut self, worker: usize, account: usize, amount: i32) {
        let worker = &mut self.workers[worker];
        let plan = self.bank.adding_beside(worker, self.ids[account], amount);
        assert!(worker.run(&plan).is_ok(), "no wait");
    }

    fn start_commit(&mut self, worker: usize) -> Step {
        self.workers[worker].start(&crate::common::plan(Statement::Commit))
    }

    /// Reads the balances in the first session, whose block has ended.
    fn balances(&mut self) -> [Option<i32>; 2] {
        [0, 1].map(|account| self.read(0, account))
    }

    fn close(self) {
        self.workers.into_iter().for_each(Worker::close);
        self.engine.shutdown().unwrap();
    }
}

fn begin(worker: &mut Worker) {
    let options = TxnOptions { isolation: Some(Isolation::ReadCommitted), ..TxnOptions::default() };
    worker.plain(Statement::Begin(options)).unwrap();
}

#[test]
fn commit_waits_for_the_transaction_ahead() {
    let mut s = Scene::new();
    s.add(0, 0, 1);
    s.add(1, 0, 10);
    let step = s.start_commit(1);
    assert!(matches!(step, Step::Pending));
    s.workers[0].commit().unwrap();
    let ahead = s.workers[0].wait;
    s.workers[1].end(step).unwrap();
    assert!(ahead < s.workers[1].wait, "its commit record comes later");
    assert_eq!(s.balances(), [Some(111), Some(100)]);
    s.close();
}

#[test]
fn rollback_ahead_replays_the_block() {
    let mut s = Scene::new();
    s.add(0, 0, 1);
    s.add(1, 1, 5);
    assert_eq!(s.read(1, 1), Some(105));
    s.insert(1, 100);
    s.add(1, 0, 10);
    let step = s.start_commit(1);
    s.workers[0].rollback();
    s.workers[1].end(step).unwrap();
    assert_eq!(s.workers[1].status(), TxnStatus::Idle);
    assert_eq!((s.balances(), s.replays()), ([Some(110), Some(105)], 1));
    assert_eq!(s.bank.balance(&mut s.workers[0], 100), Some(1));
    s.close();
}

/// The rows of its INSERT have numbers of random(), which the client knows.
#[test]
fn replay_draws_the_same_numbers() {
    let mut s = Scene::new();
    s.add(0, 0, 1);
    let numbered = vec![int(1), Expr::Literal(Datum::Bool(true))];
    let random = Box::new(Expr::Func(Func::Random, numbered));
    let billion = Box::new(Expr::Literal(Datum::Float8(1e9)));
    let number = Box::new(Expr::Binary(BinaryOp::Mul, random, billion));
    let number = Expr::Cast { expr: number, to: SqlType::Int4, explicit: true };
    let rows = [100, 101].map(|id| vec![int(id), number.clone()]).to_vec();
    let plan = s.bank.inserting_values(&mut s.workers[1], rows);
    s.workers[1].run(&plan).unwrap();
    let drawn = |s: &mut Scene, by: usize| {
        [100, 101].map(|id| s.bank.balance(&mut s.workers[by], id).unwrap())
    };
    let first = drawn(&mut s, 1);
    assert_ne!(first[0], first[1]);
    s.add(1, 0, 10);
    let step = s.start_commit(1);
    s.workers[0].rollback();
    s.workers[1].end(step).unwrap();
    assert_eq!((drawn(&mut s, 0), s.replays()), (first, 1));
    s.close();
}

#[test]
fn next_statement_replays_the_block() {
    let mut s = Scene::new();
    s.add(0, 0, 1);
    s.add(1, 0, 10);
    s.workers[0].rollback();
    s.add(1, 0, 20);
    assert_eq!((s.read(1, 0), s.replays()), (Some(130), 1));
    s.workers[1].commit().unwrap();
    assert_eq!(s.balances(), [Some(130), Some(100)]);
    s.close();
}

/// Invariant 3 of `replay`.
#[test]
fn different_answer_fails_the_block() {
    for read in [true, false] {
        let mut s = Scene::new();
        s.add(0, 0, 1);
        if read {
            assert_eq!(s.read(1, 1), Some(100));
        } else {
            s.insert(1, 100);
        }
        s.add(1, 0, 10);
        let plan = s.bank.adding(&mut s.workers[2], s.ids[1], 7);
        s.workers[2].run(&plan).unwrap();
        s.workers[2].commit().unwrap();
        s.workers[0].rollback();
        if !read {
            // The block's row is gone, too.
            s.insert(0, 100);
        }
        let refused = s.workers[1].commit().unwrap_err();
        assert_eq!(refused.state(), SqlState::SERIALIZATION_FAILURE);
        assert_eq!(s.workers[1].status(), TxnStatus::Idle);
        assert_eq!((s.balances(), s.replays()), ([Some(100), Some(107)], 1));
        s.close();
    }
}

/// The block leaves nothing before its client ends it.
#[test]
fn different_answer_fails_the_next_statement() {
    let mut s = Scene::new();
    s.add(0, 0, 1);
    assert_eq!(s.read(1, 1), Some(100));
    s.add(1, 0, 10);
    s.add(2, 1, 7);
    s.workers[2].commit().unwrap();
    s.workers[0].rollback();
    let plan = s.bank.adding_beside(&mut s.workers[1], s.ids[0], 1);
    assert_eq!(s.workers[1].run(&plan).unwrap_err().state(), SqlState::SERIALIZATION_FAILURE);
    assert_eq!(s.workers[1].status(), TxnStatus::Failed);
    assert_eq!(s.balances(), [Some(100), Some(107)]);
    s.workers[1].rollback();
    s.close();
}

/// Invariant 1 of `replay`.
#[test]
fn unrepeatable_statement_fails_the_block() {
    let many = |s: &mut Scene| (0..64).for_each(|_| assert_eq!(s.read(1, 1), Some(100)));
    let savepoint = |s: &mut Scene| {
        s.workers[1].savepoint("s");
        s.workers[1].rollback_to("s");
        s.workers[1].plain(Statement::Release("s".into())).unwrap();
    };
    let explain = |s: &mut Scene| drop(s.workers[1].plain(Statement::Explain(Vec::new())).unwrap());
    let cases: [fn(&mut Scene); 3] = [many, savepoint, explain];
    for case in cases {
        let mut s = Scene::new();
        s.add(0, 0, 1);
        case(&mut s);
        s.add(1, 0, 10);
        s.workers[0].rollback();
        assert_eq!(s.workers[1].commit().unwrap_err().state(), SqlState::SERIALIZATION_FAILURE);
        assert_eq!((s.balances(), s.replays()), ([Some(100), Some(100)], 0));
        s.close();
    }
}

/// A released savepoint neither prevents that the block goes behind others, nor its replay.
#[test]
fn block_with_released_savepoint_is_replayed() {
    let mut s = Scene::new();
    s.add(0, 0, 1);
    s.insert(1, 100);
    s.workers[1].savepoint("s");
    assert_eq!(s.read(1, 1), Some(100));
    s.workers[1].plain(Statement::Release("s".into())).unwrap();
    s.add(1, 0, 10);
    s.workers[0].rollback();
    s.add(1, 0, 20);
    s.workers[1].commit().unwrap();
    assert_eq!((s.balances(), s.replays()), ([Some(130), Some(100)], 1));
    s.close();
}

/// Invariant 4 of `replay`, for a client that sends nothing.
#[test]
fn undone_session_releases_its_locks() {
    let mut s = Scene::new();
    s.add(0, 0, 1);
    s.add(1, 1, 5);
    s.add(1, 0, 10);
    let plan = s.bank.adding(&mut s.workers[2], s.ids[1], 7);
    let waits = s.workers[2].start(&plan);
    assert!(matches!(waits, Step::Pending));
    s.workers[0].rollback();
    let mut events = Vec::new();
    s.workers[1].port.poll(&mut events);
    assert!(events.contains(&Event::Continue { session: 0 }), "{events:?}");
    assert!(matches!(s.workers[1].resume(), Step::Pending));
    s.workers[2].end(waits).unwrap();
    s.workers[2].commit().unwrap();
    s.workers[1].commit().unwrap();
    assert_eq!((s.balances(), s.replays()), ([Some(110), Some(112)], 1));
    s.close();
}

/// For every way in which an undone session without locks can end.
#[test]
fn undone_session_can_end_in_any_way() {
    for end in 0..3 {
        let mut s = Scene::new();
        s.add(0, 0, 1);
        s.add(1, 1, 5);
        s.add(1, 0, 10);
        if end == 1 {
            s.workers[1].savepoint("s");
        }
        s.workers[0].rollback();
        s.workers[1].port.poll(&mut Vec::new());
        assert!(matches!(s.workers[1].resume(), Step::Pending));
        match end {
            0 => s.workers[1].rollback(),
            1 => {
                let back = s.workers[1].plain(Statement::RollbackTo("s".into()));
                assert_eq!(back.unwrap_err().state(), SqlState::SERIALIZATION_FAILURE);
                assert_eq!(s.workers[1].status(), TxnStatus::Failed);
                s.workers[1].rollback();
            }
            _ => {
                let gone = std::mem::replace(&mut s.workers[1], Worker::new(&s.engine, 1));
                gone.close();
            }
        }
        assert_eq!(s.workers[1].status(), TxnStatus::Idle);
        assert_eq!((s.balances(), s.replays()), ([Some(100), Some(100)], 0));
        s.close();
    }
}

/// The statement waits for a lock that its owner has not released.
#[test]
fn waiting_statement_is_ended_by_the_undo() {
    let mut s = Scene::new();
    s.add(0, 0, 1);
    s.add(1, 0, 10);
    let plan = s.bank.adding(&mut s.workers[2], s.ids[1], 7);
    s.workers[2].run(&plan).unwrap();
    let plan = s.bank.adding_beside(&mut s.workers[1], s.ids[1], 5);
    let step = s.workers[1].start(&plan);
    assert!(matches!(step, Step::Pending));
    s.workers[0].rollback();
    s.workers[1].port.poll(&mut Vec::new());
    assert!(matches!(s.workers[1].resume(), Step::Pending));
    assert_eq!(s.replays(), 1, "it waits again, in a new transaction");
    s.workers[2].commit().unwrap();
    s.workers[1].end(step).unwrap();
    s.workers[1].commit().unwrap();
    assert_eq!(s.balances(), [Some(110), Some(112)]);
    s.close();
}

/// Invariant 5 of `replay`.
#[test]
fn number_of_replays_is_bounded() {
    for replays in [1, 2] {
        let mut s = Scene::with_replays(replays);
        s.add(0, 0, 1);
        s.add(1, 0, 10);
        let step = s.start_commit(1);
        s.workers[0].rollback();
        s.add(2, 0, 100);
        // It is behind the third session now.
        s.workers[1].port.poll(&mut Vec::new());
        assert!(matches!((step, s.workers[1].resume()), (Step::Pending, Step::Pending)));
        s.workers[2].rollback();
        let end = s.workers[1].end(Step::Pending);
        assert_eq!(end.is_ok(), replays == 2, "{end:?}");
        let left = if replays == 2 { 110 } else { 100 };
        assert_eq!((s.balances(), s.replays()), ([Some(left), Some(100)], replays.into()));
        s.close();
    }
}

#[test]
fn cancelled_block_is_not_replayed() {
    let mut s = Scene::new();
    s.add(0, 0, 1);
    s.add(1, 0, 10);
    let step = s.start_commit(1);
    assert!(matches!(step, Step::Pending));
    s.workers[0].rollback();
    s.workers[1].cancel(&SqlError::new(SqlState::QUERY_CANCELED, "enough"));
    assert_eq!(s.workers[1].end(step).unwrap_err().state(), SqlState::QUERY_CANCELED);
    assert_eq!((s.balances(), s.replays()), ([Some(100), Some(100)], 0));
    s.close();
}

/// Runs the steps of the first two sessions to their ends, and commits the first one as soon as its
/// step has ended if `commits` is set. A victim must run, too: the other one waits for its undo.
fn end_both(s: &mut Scene, steps: [Step; 2], commits: bool) -> [SqlResult<Outcome>; 2] {
    let mut steps = steps.map(Some);
    let mut ends = [None, None];
    while ends.iter().any(Option::is_none) {
        for (at, worker) in s.workers[..2].iter_mut().enumerate() {
            worker.port.poll(&mut Vec::new());
            match steps[at].take() {
                Some(Step::Pending) => steps[at] = Some(worker.resume()),
                Some(step) => {
                    ends[at] = Some(worker.end(step));
                    if commits && at == 0 {
                        worker.commit().unwrap();
                    }
                }
                None => {}
            }
        }
        std::thread::yield_now();
    }
    ends.map(Option::unwrap)
}

fn states(ends: [SqlResult<Outcome>; 2]) -> [Option<SqlState>; 2] {
    ends.map(|end| end.err().map(|error| error.state()))
}

/// Both sessions update the accounts in the same order. The second goes behind the first,
/// overtakes it, and runs `last`, which waits for the first, while the first waits for the second
/// account.
fn overtake(s: &mut Scene, last: &Arc<Plan>) -> [Step; 2] {
    s.add(0, 0, 1);
    s.add(1, 0, 10);
    let plan = s.bank.adding(&mut s.workers[1], s.ids[1], 10);
    s.workers[1].run(&plan).unwrap();
    let last = s.workers[1].start(last);
    assert!(matches!(last, Step::Pending));
    let plan = s.bank.adding(&mut s.workers[0], s.ids[1], 1);
    [s.workers[0].start(&plan), last]
}

#[test]
fn deadlock_of_a_waiting_commit_is_hidden() {
    let mut s = Scene::new();
    let steps = overtake(&mut s, &crate::common::plan(Statement::Commit));
    assert_eq!(states(end_both(&mut s, steps, true)), [None, None]);
    assert_eq!((s.balances(), s.replays()), ([Some(111), Some(111)], 1));
    s.close();
}

/// Invariant 5 of `replay`: without replays, the victim has the smallest stake. Its undo undoes the
/// other block, too.
#[test]
fn deadlock_of_a_block_without_replays_is_an_error() {
    let mut s = Scene::with_replays(0);
    let steps = overtake(&mut s, &crate::common::plan(Statement::Commit));
    let ends = states(end_both(&mut s, steps, false));
    assert_eq!(ends, [Some(SqlState::DEADLOCK), Some(SqlState::SERIALIZATION_FAILURE)]);
    s.close();
}

/// The statement that has to wait before it reads is run again after the replay.
#[test]
fn deadlock_of_a_waiting_read_is_hidden() {
    let mut s = Scene::new();
    let total = s.bank.totalling(&mut s.workers[1]);
    let steps = overtake(&mut s, &total);
    let [update, read] = end_both(&mut s, steps, true);
    let rows = (update.and(read)).expect("both have been answered").rows;
    assert_eq!(rows.get(0).get(0).unwrap().to_owned().as_i64(), Some(1022));
    s.workers[1].commit().unwrap();
    assert_eq!((s.balances(), s.replays()), ([Some(111), Some(111)], 1));
    s.close();
}

/// Each is behind the other, at different partitions. Both are undone and replayed, which is
/// another deadlock. It is hidden, too: invariant 6 of `replay`.
#[test]
fn deadlock_of_two_commits_is_hidden() {
    let mut s = Scene::new();
    for (worker, account, amount) in [(0, 0, 1), (1, 1, 1), (1, 0, 10), (0, 1, 10)] {
        s.add(worker, account, amount);
    }
    let steps = [0, 1].map(|worker| s.start_commit(worker));
    assert_eq!(states(end_both(&mut s, steps, false)), [None, None]);
    assert_eq!(s.balances(), [Some(111), Some(111)]);
    assert!((2..=4).contains(&s.replays()), "{}", s.replays());
    s.close();
}

/// A snapshot without the transaction ahead would show that transaction's change to one row but not
/// to the other.
#[test]
fn snapshot_waits_for_the_transaction_ahead() {
    let mut s = Scene::new();
    s.add(0, 0, 1);
    s.add(0, 1, 10);
    s.add(1, 0, 100);
    let total = s.bank.totalling(&mut s.workers[1]);
    let step = s.workers[1].start(&total);
    assert!(matches!(step, Step::Pending));
    s.workers[0].commit().unwrap();
    let rows = s.workers[1].end(step).unwrap().rows;
    assert_eq!(rows.get(0).get(0).unwrap().to_owned().as_i64(), Some(1111));
    s.workers[1].commit().unwrap();
    s.close();
}

/// A failed wait leaves the block behind the transaction ahead, and ROLLBACK TO restores the block.
#[test]
fn failed_wait_leaves_the_block_behind() {
    let mut s = Scene::new();
    s.add(0, 0, 1);
    s.add(1, 0, 10);
    s.workers[1].savepoint("s");
    let total = s.bank.totalling(&mut s.workers[1]);
    let step = s.workers[1].start(&total);
    assert!(matches!(step, Step::Pending));
    s.workers[1].cancel(&SqlError::new(SqlState::QUERY_CANCELED, "enough"));
    assert_eq!(s.workers[1].end(step).unwrap_err().state(), SqlState::QUERY_CANCELED);
    s.workers[1].rollback_to("s");
    let step = s.start_commit(1);
    assert!(matches!(step, Step::Pending), "the block is still behind");
    s.workers[0].commit().unwrap();
    s.workers[1].end(step).unwrap();
    assert_eq!(s.balances(), [Some(111), Some(100)]);
    s.close();
}
