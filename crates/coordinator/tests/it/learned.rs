//! The lock of a read, or of an addition, is learned from what transactions then do with the row.

use crate::common::{Bank, Worker, open_config, open_with};
use clearway_coordinator::{Engine, Limits, Outcome, Step};
use clearway_ir::statement::{Isolation, Statement, TxnOptions};
use clearway_ir::{LearnedRow, Plan};
use clearway_testkit::MemDisk;
use clearway_types::{SqlResult, SqlState};
use std::sync::Arc;

/// The row that both sessions use.
const ROW: i32 = 3;
/// Pairs of transactions: more than enough to learn or to unlearn.
const MANY: u32 = 40;

/// An engine with one partition and two sessions.
struct Scene {
    engine: Arc<Engine>,
    bank: Bank,
    workers: [Worker; 2],
    committed: u32,
}

/// What a transaction does with the row that it has added to.
type Second = fn(&Bank, &mut Worker, i32) -> Arc<Plan>;

fn is_pending(step: &Step) -> bool {
    matches!(step, Step::Pending)
}

impl Scene {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        Self::on(open_with(&MemDisk::new(), 1, 2, limits))
    }

    /// Additions share their rows' locks from the first on.
    fn adding_at_once() -> Self {
        Self::on(open_config(&MemDisk::new(), 1, 2, |config| config.adds_at_once = true))
    }

    fn on(engine: Arc<Engine>) -> Self {
        let mut workers = [0, 1].map(|worker| Worker::new(&engine, worker));
        let bank = Bank::create(&mut workers[0], 10, 0);
        Self { engine, bank, workers, committed: 0 }
    }

    /// Returns what is known of the plan that reads a balance.
    fn learned(&self) -> LearnedRow {
        let mut all = self.engine.plans();
        assert_eq!(all.len(), 1, "plans share their text: {all:?}");
        all.remove(0)
    }

    fn reading(&mut self) -> Arc<Plan> {
        self.bank.reading(&mut self.workers[0], ROW)
    }

    fn update_and_commit(&mut self, worker: usize) {
        self.bank.add(&mut self.workers[worker], ROW, 1).unwrap();
        self.workers[worker].commit().unwrap();
        self.committed += 1;
    }

    /// Both sessions read the row before either updates it, unless the second one waits at its
    /// read. Returns true if that ends in a deadlock.
    fn read_and_update(&mut self) -> bool {
        self.workers.iter_mut().for_each(Worker::begin);
        let read = self.reading();
        self.workers[0].run(&read).unwrap();
        let step = self.workers[1].start(&read);
        if is_pending(&step) {
            self.update_and_commit(0);
            self.workers[1].end(step).unwrap();
            self.update_and_commit(1);
            return false;
        }
        self.workers[1].end(step).unwrap();
        let update = self.bank.adding(&mut self.workers[0], ROW, 1);
        let steps = self.workers.each_mut().map(|worker| worker.start(&update));
        self.end_deadlock(steps);
        true
    }

    /// Both sessions add to the row concurrently, unless the second one waits at its addition, and
    /// then run a second statement. Returns true if that ends in a deadlock.
    fn add_and(&mut self, isolation: Isolation, second: Second) -> bool {
        let options = TxnOptions { isolation: Some(isolation), ..TxnOptions::default() };
        for worker in &mut self.workers {
            worker.plain(Statement::Begin(options)).unwrap();
        }
        let add = self.bank.adding_beside(&mut self.workers[0], ROW, 1);
        let then = second(&self.bank, &mut self.workers[0], ROW);
        self.workers[0].run(&add).unwrap();
        let step = self.workers[1].start(&add);
        if is_pending(&step) {
            self.workers[0].run(&then).unwrap();
            self.workers[0].commit().unwrap();
            self.workers[1].end(step).unwrap();
            self.workers[1].run(&then).unwrap();
            self.workers[1].commit().unwrap();
            self.committed += 2;
            return false;
        }
        self.workers[1].end(step).unwrap();
        let steps = self.workers.each_mut().map(|worker| worker.start(&then));
        if steps.iter().any(is_pending) {
            self.end_deadlock(steps);
            return true;
        }
        let [first, second] = steps;
        for (worker, step) in self.workers.iter_mut().zip([first, second]) {
            worker.end(step).unwrap();
            worker.commit().unwrap();
        }
        self.committed += 2;
        false
    }

    /// One of the sessions fails and the other continues.
    fn end_deadlock(&mut self, mut steps: [Step; 2]) {
        while steps.iter().all(is_pending) {
            for (step, worker) in steps.iter_mut().zip(&mut self.workers) {
                worker.port.poll(&mut Vec::new());
                *step = worker.resume();
            }
        }
        let [first, second] = steps;
        let (victim, failed, other) =
            if is_pending(&first) { (1, second, first) } else { (0, first, second) };
        let failed: SqlResult<Outcome> = self.workers[victim].end(failed);
        assert_eq!(failed.unwrap_err().state(), SqlState::DEADLOCK);
        self.workers[victim].rollback();
        let survivor = 1 - victim;
        self.workers[survivor].end(other).unwrap();
        self.workers[survivor].commit().unwrap();
        self.committed += 1;
    }

    /// Both sessions read the row in blocks at the same time. Returns true if the second one waits
    /// for the first.
    fn read_only(&mut self, options: TxnOptions) -> bool {
        for worker in &mut self.workers {
            worker.plain(Statement::Begin(options)).unwrap();
        }
        let read = self.reading();
        self.workers[0].run(&read).unwrap();
        let step = self.workers[1].start(&read);
        let waits = is_pending(&step);
        self.workers[0].commit().unwrap();
        self.workers[1].end(step).unwrap();
        self.workers[1].commit().unwrap();
        waits
    }

    fn learn(&mut self) {
        for _ in 0..MANY {
            self.read_and_update();
        }
        assert!(self.learned().is_exclusive);
    }

    fn end(mut self) {
        assert_eq!(self.bank.total(&mut self.workers[0]), i64::from(self.committed));
        self.workers.into_iter().for_each(Worker::close);
        self.engine.shutdown().unwrap();
    }
}

#[test]
fn twins_deadlock_while_nothing_is_learned() {
    let mut scene = Scene::with(Limits { learn_after: 0, ..Limits::default() });
    assert!((0..MANY).all(|_| scene.read_and_update()));
    assert!(!scene.learned().is_exclusive);
    scene.end();
}

#[test]
fn twins_that_read_and_update_stop_deadlocking() {
    let mut scene = Scene::new();
    let deadlocks = (0..MANY).filter(|_| scene.read_and_update()).count();
    assert!((1..=16).contains(&deadlocks), "{deadlocks}");
    assert!((0..MANY).all(|_| !scene.read_and_update()), "the learned lock stays");
    let learned = scene.learned();
    assert_eq!(&*learned.text, "SELECT balance FROM accounts WHERE id = ?");
    assert!(learned.is_exclusive && learned.switches == 1, "{learned:?}");
    assert!(learned.exclusive > 0 && learned.exclusive < learned.reads, "{learned:?}");
    assert!(learned.changed > learned.reads * 9 / 10, "{learned:?}");
    scene.end();
}

#[test]
fn rows_that_are_only_read_stay_shared() {
    let mut scene = Scene::new();
    assert!((0..MANY).all(|_| !scene.read_only(TxnOptions::default())));
    let learned = scene.learned();
    assert_eq!(
        (learned.is_exclusive, learned.switches, learned.changed, learned.exclusive),
        (false, 0, 0, 0)
    );
    assert!(learned.reads >= u64::from(MANY), "{learned:?}");
    scene.end();
}

#[test]
fn plan_unlearns_when_its_use_changes() {
    let mut scene = Scene::new();
    scene.learn();
    let waited = (0..MANY).filter(|_| scene.read_only(TxnOptions::default())).count();
    assert!((1..=32).contains(&waited), "{waited}");
    assert!(!scene.read_only(TxnOptions::default()) && !scene.learned().is_exclusive);
    scene.learn();
    assert_eq!(scene.learned().switches, 3);
    scene.end();
}

/// Such reads neither take the stronger lock nor count as evidence against it.
#[test]
fn reads_without_a_possible_update_share() {
    let mut scene = Scene::new();
    scene.learn();
    let before = scene.learned();
    let read_only = TxnOptions { read_only: Some(true), ..TxnOptions::default() };
    assert!((0..MANY).all(|_| !scene.read_only(read_only)));
    let read = scene.reading();
    for _ in 0..MANY {
        scene.workers[0].plain(Statement::Begin(read_only)).unwrap();
        scene.workers[0].run(&read).unwrap();
        let step = scene.workers[1].start(&read);
        assert!(!is_pending(&step), "a single statement");
        scene.workers[1].end(step).unwrap();
        scene.workers[0].commit().unwrap();
    }
    assert_eq!(scene.learned(), before);
    scene.end();
}

/// A transaction that shares a row, or its table, keeps the shared lock: upgrading it for a read
/// could deadlock where the read alone would not.
#[test]
fn read_does_not_upgrade_a_shared_lock() {
    let mut scene = Scene::new();
    scene.learn();
    let read = scene.reading();
    for whole in [false, true] {
        let shares = |scene: &mut Scene, worker: usize| {
            scene.workers[worker].begin();
            if whole {
                scene.bank.total(&mut scene.workers[worker]);
            } else {
                let step = scene.bank.sharing(&mut scene.workers[worker], ROW);
                scene.workers[worker].run(&step).unwrap();
            }
        };
        shares(&mut scene, 0);
        shares(&mut scene, 1);
        for worker in [0, 1] {
            let step = scene.workers[worker].start(&read);
            assert!(!is_pending(&step), "whole table: {whole}");
            scene.workers[worker].end(step).unwrap();
        }
        scene.workers.iter_mut().for_each(Worker::rollback);
    }
    scene.end();
}

/// FOR UPDATE names the lock it wants: it is neither learned nor counted.
#[test]
fn for_update_learns_nothing() {
    let mut scene = Scene::new();
    let lock = scene.bank.locking(&mut scene.workers[0], ROW);
    for _ in 0..MANY {
        scene.workers[0].begin();
        scene.workers[0].run(&lock).unwrap();
        scene.update_and_commit(0);
    }
    assert_eq!(scene.engine.plans(), []);
    scene.end();
}

/// Statements that deadlock with their twin after an addition, with the isolation level.
const SECONDS: [(Isolation, Second); 7] = [
    (Isolation::ReadCommitted, Bank::reading),
    (Isolation::ReadCommitted, |bank, worker, id| bank.reading(worker, id + 1)),
    (Isolation::ReadCommitted, Bank::locking),
    (Isolation::ReadCommitted, Bank::sharing),
    (Isolation::ReadCommitted, changing),
    (Isolation::Serializable, Bank::locking),
    (Isolation::Serializable, Bank::reading),
];

/// Returns an UPDATE that is not an addition.
fn changing(bank: &Bank, worker: &mut Worker, id: i32) -> Arc<Plan> {
    bank.adding(worker, id, 0)
}

/// Returns what is known of the plan that adds.
fn adding(scene: &Scene) -> LearnedRow {
    scene.engine.plans().into_iter().find(|plan| plan.adds).unwrap()
}

#[test]
fn twins_that_add_and_read_deadlock_if_nothing_is_learned() {
    for (isolation, second) in SECONDS {
        let mut scene = Scene::with(Limits { learn_after: 0, ..Limits::default() });
        assert!((0..MANY).all(|_| scene.add_and(isolation, second)), "{isolation:?}");
        scene.end();
    }
}

#[test]
fn twins_that_add_and_read_stop_deadlocking() {
    for (isolation, second) in SECONDS {
        let mut scene = Scene::adding_at_once();
        let deadlocks = (0..MANY).filter(|_| scene.add_and(isolation, second)).count();
        assert!((1..=16).contains(&deadlocks), "{deadlocks}");
        assert!((0..MANY).all(|_| !scene.add_and(isolation, second)), "the learned lock stays");
        let learned = adding(&scene);
        assert_eq!(&*learned.text, "UPDATE accounts SET balance = (balance + ?) WHERE id = ?");
        assert!(learned.is_exclusive && learned.switches == 1, "{learned:?}");
        assert!(learned.exclusive > 0 && learned.changed > learned.reads * 9 / 10, "{learned:?}");
        scene.end();
    }
}

#[test]
fn twins_that_add_and_read_never_deadlock_by_default() {
    for (isolation, second) in SECONDS {
        let mut scene = Scene::new();
        assert!((0..MANY).all(|_| !scene.add_and(isolation, second)), "{isolation:?}");
        let learned = adding(&scene);
        assert!(learned.is_exclusive && learned.switches == 0, "{learned:?}");
        scene.end();
    }
}

#[test]
fn additions_become_concurrent_once_nothing_is_read_afterwards() {
    let mut scene = Scene::new();
    for _ in 0..2 * MANY {
        assert!(!scene.add_and(Isolation::ReadCommitted, adding_again));
    }
    let learned = adding(&scene);
    assert!(!learned.is_exclusive && learned.switches == 1, "{learned:?}");
    scene.end();
}

/// Returns a second addition.
fn adding_again(bank: &Bank, worker: &mut Worker, id: i32) -> Arc<Plan> {
    bank.adding_beside(worker, id, 0)
}

/// A second addition, or a read of another row under a lock, is no reason to wait.
#[test]
fn additions_alone_stay_concurrent() {
    let seconds: [(Isolation, Second); 2] = [
        (Isolation::ReadCommitted, adding_again),
        (Isolation::Serializable, |bank, worker, id| bank.reading(worker, id + 1)),
    ];
    for (isolation, second) in seconds {
        let mut scene = Scene::adding_at_once();
        assert!((0..MANY).all(|_| !scene.add_and(isolation, second)), "{isolation:?}");
        let learned = adding(&scene);
        assert!(learned.reads >= u64::from(MANY), "{learned:?}");
        assert_eq!(
            (learned.is_exclusive, learned.changed, learned.exclusive),
            (false, 0, 0),
            "{learned:?}"
        );
        scene.end();
    }
}

/// One addition per pair waits until the plan is unlearned.
#[test]
fn additions_alone_unlearn_the_exclusive_lock() {
    let mut scene = Scene::adding_at_once();
    for _ in 0..MANY {
        scene.add_and(Isolation::ReadCommitted, Bank::locking);
    }
    assert!(adding(&scene).is_exclusive);
    for _ in 0..2 * MANY {
        scene.add_and(Isolation::ReadCommitted, adding_again);
    }
    let learned = adding(&scene);
    assert!(!learned.is_exclusive && learned.switches == 2, "{learned:?}");
    scene.end();
}
