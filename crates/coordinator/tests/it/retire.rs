//! COMMIT of transactions that have changed rows whose last change was not committed.

use crate::common::{Bank, Worker, open_with};
use clearway_coordinator::{Engine, Limits, Step, TxnStatus};
use clearway_env::MemDisk;
use clearway_plan::statement::{Isolation, Statement, TxnOptions};
use clearway_types::{SqlError, SqlState};
use std::sync::Arc;

/// Two partitions, and two sessions in blocks at READ COMMITTED.
struct Scene {
    engine: Arc<Engine>,
    bank: Bank,
    workers: [Worker; 2],
    /// Accounts of different partitions, with 100 each.
    ids: [i32; 2],
}

impl Scene {
    fn new() -> Self {
        let limits = Limits { retire: true, retire_cold: true, increments: false, ..Limits::default() };
        let engine = open_with(&MemDisk::new(), 2, 2, limits);
        let mut workers = [0, 1].map(|worker| Worker::new(&engine, worker));
        let bank = Bank::create(&mut workers[0], 10, 100);
        let other = (1..10).find(|id| Bank::home(*id, 2) != Bank::home(0, 2)).unwrap();
        let options = TxnOptions { isolation: Some(Isolation::ReadCommitted), ..TxnOptions::default() };
        for worker in &mut workers {
            worker.plain(Statement::Begin(options)).unwrap();
        }
        Self { engine, bank, workers, ids: [0, other] }
    }

    /// A session adds to an account, beside what others have not committed.
    fn add(&mut self, worker: usize, account: usize, amount: i32) {
        let worker = &mut self.workers[worker];
        let plan = self.bank.adding_beside(worker, self.ids[account], amount);
        assert!(worker.run(&plan).is_ok(), "it waits for nobody");
    }

    fn start_commit(&mut self, worker: usize) -> Step {
        self.workers[worker].start(&crate::common::plan(Statement::Commit))
    }

    fn balances(&mut self) -> [Option<i32>; 2] {
        self.ids.map(|id| self.bank.balance(&mut self.workers[0], id))
    }

    fn close(self) {
        self.workers.into_iter().for_each(Worker::close);
        self.engine.shutdown().unwrap();
    }
}

#[test]
fn a_commit_waits_for_the_transaction_ahead() {
    let mut s = Scene::new();
    s.add(0, 0, 1);
    s.add(1, 0, 10);
    let step = s.start_commit(1);
    assert!(matches!(step, Step::Pending));
    s.workers[0].commit().unwrap();
    let ahead = s.workers[0].wait;
    s.workers[1].end(step).unwrap();
    assert!(ahead < s.workers[1].wait, "its record is behind");
    assert_eq!(s.balances(), [Some(111), Some(100)]);
    s.close();
}

#[test]
fn a_rollback_ahead_refuses_the_commit() {
    let mut s = Scene::new();
    s.add(0, 0, 1);
    s.add(1, 1, 5);
    s.add(1, 0, 10);
    let step = s.start_commit(1);
    s.workers[0].rollback();
    assert_eq!(s.workers[1].end(step).unwrap_err().state(), SqlState::SERIALIZATION_FAILURE);
    assert_eq!(s.workers[1].status(), TxnStatus::Idle);
    assert_eq!(s.balances(), [Some(100), Some(100)]);
    s.close();
}

/// Each is behind the other, at different partitions. A COMMIT that is given up is not run again:
/// its block is gone.
#[test]
fn one_of_two_commits_in_a_deadlock_is_refused() {
    let mut s = Scene::new();
    for (worker, account, amount) in [(0, 0, 1), (1, 1, 1), (1, 0, 10), (0, 1, 10)] {
        s.add(worker, account, amount);
    }
    let mut steps = [0, 1].map(|worker| s.start_commit(worker));
    // The victim has a turn, too: the other one waits for its undo.
    while steps.iter().any(|step| matches!(step, Step::Pending)) {
        for (worker, step) in s.workers.iter_mut().zip(&mut steps) {
            worker.port.poll(&mut Vec::new());
            if matches!(step, Step::Pending) {
                *step = worker.resume();
            }
        }
        std::thread::yield_now();
    }
    let mut states = Vec::new();
    for (worker, step) in s.workers.iter_mut().zip(steps) {
        states.push(worker.end(step).err().map(|error| error.state()));
        assert_eq!(worker.status(), TxnStatus::Idle);
    }
    let refused: Vec<SqlState> = states.iter().flatten().copied().collect();
    assert!(refused.contains(&SqlState::DEADLOCK), "{states:?}");
    let sums = [[Some(101), Some(110)], [Some(110), Some(101)]];
    let committed = states.iter().position(Option::is_none);
    assert_eq!(s.balances(), committed.map_or([Some(100); 2], |worker| sums[worker]));
    s.close();
}

/// A snapshot that leaves out the transaction ahead would show what that has done to one row, and
/// not to the other.
#[test]
fn a_snapshot_waits_for_the_transaction_ahead() {
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

/// A wait that fails leaves the block behind the transaction ahead, and ROLLBACK TO brings it back.
#[test]
fn a_failed_wait_leaves_the_block_behind() {
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
    assert!(matches!(step, Step::Pending), "it is still behind");
    s.workers[0].commit().unwrap();
    s.workers[1].end(step).unwrap();
    assert_eq!(s.balances(), [Some(111), Some(100)]);
    s.close();
}
