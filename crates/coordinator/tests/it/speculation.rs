//! Statements that run behind undecided ones on several partitions, under the speculative scheme.

use crate::common::{Bank, Worker, end_all, open_config};
use clearway_coordinator::{Engine, Limits, SchemeKind, Stall, Step};
use clearway_testkit::MemDisk;
use clearway_types::{PartitionId, SqlError, SqlState};
use std::sync::Arc;

const ACCOUNTS: i32 = 20;
const PARTITIONS: u16 = 3;

/// Opens an engine in which a statement on several partitions waits for a turn before its decision.
fn open(scheme: SchemeKind) -> Arc<Engine> {
    open_config(&MemDisk::new(), PARTITIONS, 4, |config| {
        config.partition = Limits { scheme, ..Limits::default() };
        config.stall = Stall::Turns(1);
    })
}

/// Four sessions of an engine of three partitions.
pub struct Scene {
    pub engine: Arc<Engine>,
    pub bank: Bank,
    pub workers: [Worker; 4],
}

impl Scene {
    fn new() -> Self {
        Self::under(SchemeKind::Speculative)
    }

    pub fn under(scheme: SchemeKind) -> Self {
        let engine = open(scheme);
        let mut workers = [0, 1, 2, 3].map(|worker| Worker::new(&engine, worker));
        let bank = Bank::create(&mut workers[0], ACCOUNTS, 100);
        Self { engine, bank, workers }
    }

    pub fn starts_adding_to_all(&mut self, worker: usize, amount: i32) {
        let plan = self.bank.adding_to_all(&mut self.workers[worker], amount);
        self.starts(worker, &plan);
    }

    pub fn starts_adding(&mut self, worker: usize, id: i32, amount: i32) {
        let plan = self.bank.adding(&mut self.workers[worker], id, amount);
        self.starts(worker, &plan);
    }

    pub fn starts_inserting(&mut self, worker: usize, ids: &[i32]) {
        let rows: Vec<(i32, i32)> = ids.iter().map(|id| (*id, 1)).collect();
        let plan = self.bank.inserting(&mut self.workers[worker], &rows);
        self.starts(worker, &plan);
    }

    pub fn starts(&mut self, worker: usize, plan: &Arc<clearway_ir::Plan>) {
        let step = self.workers[worker].start(plan);
        assert!(matches!(step, Step::Pending), "{worker}: {step:?}");
    }

    /// Lets a session run. Checks that its statement cannot end.
    pub fn waits(&mut self, worker: usize) {
        for _ in 0..10 {
            self.workers[worker].port.poll(&mut Vec::new());
            let step = self.workers[worker].resume();
            assert!(matches!(step, Step::Pending), "{worker}: {step:?}");
        }
    }

    pub fn ends(&mut self, worker: usize) -> Result<(), SqlState> {
        self.workers[worker].end(Step::Pending).map(drop).map_err(|error| error.state())
    }

    pub fn cancels(&mut self, worker: usize) {
        self.workers[worker].cancel(&SqlError::new(SqlState::QUERY_CANCELED, "enough"));
        assert_eq!(self.ends(worker), Err(SqlState::QUERY_CANCELED));
    }

    /// Returns the numbers of transactions that ran behind others or optimistically, and that were
    /// undone.
    pub fn counts(&self) -> (u64, u64) {
        let all = (0..PARTITIONS).map(|at| self.engine.scheme_counts(PartitionId(at)));
        all.fold((0, 0), |(ran, undone), of| {
            (ran + of.speculated + of.validated, undone + of.discarded)
        })
    }

    pub fn balance(&mut self, id: i32) -> Option<i32> {
        self.bank.balance(&mut self.workers[0], id)
    }

    pub fn close(self) {
        assert_eq!(self.engine.lock_waits(), []);
        self.workers.into_iter().for_each(Worker::close);
        self.engine.shutdown().unwrap();
    }
}

/// Returns an id of this partition that no account has.
pub fn unused(partition: u16, nth: usize) -> i32 {
    let here = |id: &i32| Bank::home(*id, PARTITIONS) == PartitionId(partition);
    (1000..).filter(here).nth(nth).unwrap()
}

/// The second statement is undone at a partition that it has been granted and has not used yet,
/// while it still requests another.
#[test]
fn aborts_reach_statements_that_request_partitions() {
    let mut s = Scene::new();
    let [a, b, c, d, e, f] =
        [(0, 0), (2, 0), (0, 1), (1, 0), (0, 2), (1, 1)].map(|(at, nth)| unused(at, nth));
    s.starts_inserting(0, &[a, b]);
    let engine = s.engine.clone();
    engine.while_busy(PartitionId(1), || {
        s.starts_inserting(1, &[c, d]);
        s.cancels(0);
        s.starts_inserting(2, &[e, f]);
    });
    for _ in 0..1000 {
        for worker in 1..3 {
            s.workers[worker].port.poll(&mut Vec::new());
            if s.workers[worker].client().is_running() {
                let step = s.workers[worker].resume();
                assert!(!matches!(step, Step::Done(Err(_)) | Step::Replan), "{step:?}");
            }
        }
        std::thread::yield_now();
    }
    let runs = [1, 2].map(|worker| s.workers[worker].client().is_running());
    assert_eq!(runs, [false; 2], "they wait for each other");
    assert_eq!([c, d, e, f].map(|id| s.balance(id)), [Some(1); 4]);
    s.close();
}

#[test]
fn statements_commit_after_those_they_are_behind() {
    let mut s = Scene::new();
    s.starts_adding_to_all(0, 1);
    s.starts_adding_to_all(1, 10);
    s.starts_adding(2, 3, 100);
    s.starts_adding_to_all(3, 1000);
    [3, 2, 1].into_iter().for_each(|worker| s.waits(worker));
    // Two at each partition, and one at one.
    assert_eq!(s.counts(), (7, 0));
    assert_eq!(s.ends(0), Ok(()));
    s.waits(3);
    assert_eq!(s.ends(1), Ok(()));
    assert_eq!((s.ends(2), s.ends(3)), (Ok(()), Ok(())));
    assert_eq!([3, 4].map(|id| s.balance(id)), [Some(1211), Some(1111)]);
    s.close();
}

#[test]
fn statements_behind_an_aborted_one_run_again() {
    let mut s = Scene::new();
    s.starts_adding_to_all(0, 1);
    s.starts_adding_to_all(1, 10);
    s.starts_adding(2, 3, 100);
    s.starts_adding_to_all(3, 1000);
    s.waits(3);
    assert_eq!(s.counts(), (7, 0));
    s.cancels(0);
    end_all(&mut s.workers[1..]);
    assert_eq!([3, 4].map(|id| s.balance(id)), [Some(1210), Some(1110)]);
    assert_eq!(s.counts().1, 7);
    s.close();
}

/// The second is behind the first at one partition; the third is behind it at another.
#[test]
fn an_abort_reaches_partitions_that_it_has_not_used() {
    let mut s = Scene::new();
    let [a, b, c, d] = [(0, 0), (1, 0), (1, 1), (2, 0)].map(|(at, nth)| unused(at, nth));
    s.starts_inserting(0, &[a, b]);
    s.starts_inserting(1, &[c, d]);
    let read = s.bank.reading(&mut s.workers[2], d);
    s.starts(2, &read);
    s.waits(2);
    s.waits(1);
    s.cancels(0);
    let rows = |step: Step, worker: &mut Worker| worker.end(step).unwrap().rows.len();
    // Now the second one starts over.
    s.workers[1].port.poll(&mut Vec::new());
    let step = s.workers[1].resume();
    assert_eq!(rows(Step::Pending, &mut s.workers[2]), 0, "it read an insertion that was undone");
    s.workers[1].end(step).unwrap();
    assert_eq!([a, b, c, d].map(|id| s.balance(id)), [None, None, Some(1), Some(1)]);
    s.close();
}

#[test]
fn errors_wait_for_what_they_show() {
    for commits in [true, false] {
        let mut s = Scene::new();
        let [a, b, c] = [(0, 0), (1, 0), (2, 0)].map(|(at, nth)| unused(at, nth));
        s.starts_inserting(0, &[a, b]);
        s.starts_inserting(1, &[b, c]);
        s.starts_inserting(2, &[a]);
        [1, 2].into_iter().for_each(|worker| s.waits(worker));
        let expected = if commits {
            assert_eq!(s.ends(0), Ok(()));
            Err(SqlState::UNIQUE_VIOLATION)
        } else {
            s.cancels(0);
            Ok(())
        };
        assert_eq!((s.ends(1), s.ends(2)), (expected, expected));
        assert_eq!(s.balance(a), Some(1));
        assert_eq!(s.balance(c), (!commits).then_some(1));
        s.close();
    }
}

#[test]
fn a_statement_behind_another_can_be_canceled() {
    let mut s = Scene::new();
    s.starts_adding_to_all(0, 1);
    s.starts_adding_to_all(1, 10);
    s.starts_adding(2, 3, 100);
    s.waits(1);
    s.cancels(1);
    assert_eq!((s.ends(0), s.ends(2)), (Ok(()), Ok(())));
    assert_eq!([3, 4].map(|id| s.balance(id)), [Some(201), Some(101)]);
    s.close();
}

/// Its client hangs up while its commit waits, and then the one of the transaction ahead.
#[test]
fn clients_may_leave_speculative_statements() {
    let mut s = Scene::new();
    s.starts_adding_to_all(0, 1);
    s.starts_adding_to_all(1, 10);
    s.starts_adding(2, 3, 100);
    s.waits(1);
    let Scene { engine, bank, workers: [first, second, third, mut last] } = s;
    let mut ports = [third, second, first].map(Worker::leave);
    while ports.iter().any(clearway_coordinator::Port::has_orphans) {
        ports.iter_mut().for_each(|port| port.poll(&mut Vec::new()));
    }
    bank.add_to_all(&mut last, 5).unwrap();
    let total = bank.total(&mut last);
    assert!(total == i64::from(ACCOUNTS * 105) || total == i64::from(ACCOUNTS * 105 + 100));
    last.close();
    drop(ports);
    engine.shutdown().unwrap();
}

/// An interactive transaction takes locks, and waits for statements that have not been decided.
#[test]
fn interactive_transactions_see_only_decided_changes() {
    let mut s = Scene::new();
    s.starts_adding_to_all(0, 1);
    s.workers[1].begin();
    s.starts_adding(1, 3, 10);
    s.starts_adding(2, 3, 100);
    s.cancels(0);
    assert_eq!(s.ends(1), Ok(()));
    s.waits(2);
    s.workers[1].commit().unwrap();
    assert_eq!(s.ends(2), Ok(()));
    assert_eq!(s.balance(3), Some(210));
    s.close();
}
