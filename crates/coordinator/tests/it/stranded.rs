//! Rollbacks that cannot read a page that they need, while others are behind them.

use crate::common::{Bank, Worker, open_config};
use clearway_coordinator::{Engine, Limits, Step};
use clearway_ir::statement::{Isolation, Statement, TxnOptions};
use clearway_testkit::{FOR_EVER, Fault, FaultPlan, FaultZone, MemDisk, Role, When};
use clearway_types::{SqlResult, SqlState};
use std::sync::Arc;
use std::time::Duration;

/// Many times the pages of the pool.
const ACCOUNTS: i32 = 40_000;
/// The account that all sessions change.
const HOT: i32 = 7;

fn open(disk: &MemDisk) -> (Arc<Engine>, [Worker; 4]) {
    let limits = Limits { retire: true, retire_cold: true, increments: false, ..Limits::default() };
    let engine = open_config(disk, 1, 4, |config| {
        config.partition = limits;
        config.node.frames = 32;
        config.node.replacement = "clock-sweep".parse().unwrap();
    });
    let workers = [0, 1, 2, 3].map(|worker| Worker::new(&engine, worker));
    (engine, workers)
}

fn state<T>(result: &SqlResult<T>) -> Option<SqlState> {
    result.as_ref().err().map(|error| error.state())
}

/// Evicts the page of the account.
fn evict(bank: &Bank, worker: &mut Worker) {
    for _ in 0..4 {
        for id in (ACCOUNTS / 2..ACCOUNTS).step_by(100) {
            assert_eq!(bank.balance(worker, id), Some(100));
        }
    }
}

/// The first session's rollback has to undo the third session's change first, and cannot.
#[test]
fn unreadable_page_strands_all_until_the_next_start() {
    let disk = MemDisk::new();
    let (engine, mut workers) = open(&disk);
    let bank = Bank::create(&mut workers[0], ACCOUNTS, 100);
    for (worker, amount) in workers[..3].iter_mut().zip([1, 10, 1000]) {
        let level = Some(Isolation::ReadCommitted);
        let begin = Statement::Begin(TxnOptions { isolation: level, ..TxnOptions::default() });
        worker.plain(begin).unwrap();
        let change = bank.adding_beside(worker, HOT, amount);
        assert!(worker.run(&change).is_ok(), "no wait");
    }
    evict(&bank, &mut workers[3]);
    let zone = FaultZone::under(Role::Pages, "pages", "/data/data/p0000.data").fault(
        Fault::FailedRead,
        When::After(0),
        FOR_EVER,
    );
    let plan = Arc::new(FaultPlan::new(1, Duration::ZERO, vec![zone]));
    disk.set_faults(Some(plan.clone()));
    let second = workers[1].start(&crate::common::plan(Statement::Commit));
    assert!(matches!(second, Step::Pending), "it waits for the first one");
    let rollback = workers[0].plain(Statement::Rollback);
    assert_eq!(state(&rollback), Some(SqlState::IO));
    assert!(!plan.injected().is_empty());
    assert_eq!(state(&workers[1].end(second)), Some(SqlState::IO));
    assert_eq!(state(&workers[2].commit()), Some(SqlState::IO));
    let change = bank.adding_beside(&mut workers[3], HOT, 1);
    assert_eq!(state(&workers[3].run(&change)), Some(SqlState::IO), "its rows stay locked");
    // The pages are readable again, but only a start retries.
    disk.set_faults(None);
    assert_eq!(state(&workers[3].run(&change)), Some(SqlState::IO));
    bank.add(&mut workers[3], ACCOUNTS - 1, 5).expect("all other rows are unaffected");
    let after = disk.crash(3);
    workers.into_iter().for_each(Worker::close);
    drop(engine);

    let (engine, mut workers) = open(&after);
    assert_eq!(bank.balance(&mut workers[0], HOT), Some(100));
    assert_eq!(bank.balance(&mut workers[0], ACCOUNTS - 1), Some(105));
    bank.add(&mut workers[0], HOT, 1).expect("it is not locked any more");
    assert_eq!(bank.total(&mut workers[0]), i64::from(ACCOUNTS) * 100 + 6);
    workers.into_iter().for_each(Worker::close);
    engine.shutdown().unwrap();
}

/// One sector is unreadable. A snapshot of any table needs the images of all uncommitted changes,
/// one of which is on that sector's page.
#[test]
fn unreadable_page_fails_no_reader_of_other_tables() {
    let disk = MemDisk::new();
    let (engine, [mut writer, mut reader, ..]) = open(&disk);
    let bank = Bank::create(&mut writer, ACCOUNTS, 100);
    let other = Bank::create_without_key(&mut writer, "others", 10, 1);
    writer.begin();
    bank.add(&mut writer, HOT, 1).unwrap();
    evict(&bank, &mut reader);
    let zone = FaultZone::under(Role::Pages, "pages", "/data/data/p0000.data").fault(
        Fault::UnreadableSector,
        When::After(0),
        1,
    );
    let plan = Arc::new(FaultPlan::new(1, Duration::ZERO, vec![zone]));
    disk.set_faults(Some(plan.clone()));
    let rollback = writer.plain(Statement::Rollback);
    assert_eq!(state(&rollback), Some(SqlState::IO));
    assert_eq!(plan.injected().len(), 1);
    for level in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        let options = TxnOptions { isolation: Some(level), ..TxnOptions::default() };
        reader.plain(Statement::Begin(options)).unwrap();
        assert_eq!(other.total(&mut reader), 10, "{level:?}");
        reader.commit().unwrap();
    }
    let total = bank.totalling(&mut reader);
    assert_eq!(state(&reader.run(&total)), Some(SqlState::IO), "it reads the page");
    writer.close();
    reader.close();
    drop(engine);
}
