//! Transfers between accounts over several partitions, by several workers, with deadlocks, aborts and a crash: money is neither made nor lost.

mod common;

use clearway_coordinator::TxnStatus;
use clearway_env::MemDisk;
use clearway_types::SqlState;
use common::{Bank, Worker, open};
use std::sync::Arc;

const ACCOUNTS: i32 = 20;
const BALANCE: i32 = 1000;

#[test]
fn what_is_committed_is_read_back_by_point_and_by_scan() {
    let engine = open(&MemDisk::new(), 4, 1);
    let mut worker = Worker::new(&engine, 0);
    let bank = Bank::create(&mut worker, ACCOUNTS, BALANCE);
    assert_eq!(bank.balance(&mut worker, 3), Some(BALANCE));
    assert_eq!(bank.total(&mut worker), i64::from(ACCOUNTS * BALANCE));
    bank.add(&mut worker, 3, 7).unwrap();
    assert_eq!(bank.balance(&mut worker, 3), Some(BALANCE + 7));
    assert_eq!(bank.balance(&mut worker, ACCOUNTS + 1), None);
    engine.shutdown();
}

#[test]
fn a_rolled_back_block_leaves_nothing_and_a_failed_one_refuses_statements() {
    let engine = open(&MemDisk::new(), 4, 1);
    let mut worker = Worker::new(&engine, 0);
    let bank = Bank::create(&mut worker, ACCOUNTS, BALANCE);
    worker.begin();
    for account in 0..ACCOUNTS {
        bank.add(&mut worker, account, 1).unwrap();
    }
    assert_eq!(bank.total(&mut worker), i64::from(ACCOUNTS * (BALANCE + 1)), "a block sees its own writes");
    worker.rollback();
    assert_eq!(bank.total(&mut worker), i64::from(ACCOUNTS * BALANCE));

    worker.begin();
    let duplicate = bank.insert(&mut worker, 1, 0).unwrap_err();
    assert_eq!(duplicate.state(), SqlState::UNIQUE_VIOLATION);
    assert_eq!(worker.status(), TxnStatus::Failed);
    assert_eq!(bank.add(&mut worker, 1, 1).unwrap_err().state(), SqlState::IN_FAILED_TRANSACTION);
    worker.rollback();
    assert_eq!(worker.status(), TxnStatus::Idle);
    engine.shutdown();
}

#[test]
fn a_savepoint_takes_back_what_came_after_it_at_every_partition() {
    let engine = open(&MemDisk::new(), 4, 1);
    let mut worker = Worker::new(&engine, 0);
    let bank = Bank::create(&mut worker, ACCOUNTS, BALANCE);
    worker.begin();
    bank.add(&mut worker, 0, 5).unwrap();
    worker.savepoint("s");
    for account in 0..ACCOUNTS {
        bank.add(&mut worker, account, 100).unwrap();
    }
    worker.rollback_to("s");
    bank.add(&mut worker, 1, 3).unwrap();
    worker.commit().unwrap();
    assert_eq!(bank.total(&mut worker), i64::from(ACCOUNTS * BALANCE) + 8);
    engine.shutdown();
}

#[test]
fn truncate_in_a_block_can_be_taken_back_and_rows_survive_a_new_primary_key() {
    let engine = open(&MemDisk::new(), 4, 1);
    let mut worker = Worker::new(&engine, 0);
    let bank = Bank::create(&mut worker, ACCOUNTS, BALANCE);
    worker.begin();
    bank.truncate(&mut worker);
    assert_eq!(bank.total(&mut worker), 0);
    worker.rollback();
    assert_eq!(bank.total(&mut worker), i64::from(ACCOUNTS * BALANCE));

    let keyless = Bank::create_without_key(&mut worker, "keyless", 3000, 1);
    keyless.add_primary_key(&mut worker);
    assert_eq!(keyless.total(&mut worker), 3000);
    assert_eq!(keyless.balance(&mut worker, 2999), Some(1));
    engine.shutdown();
}

#[test]
fn transfers_by_two_workers_keep_the_total_and_a_crash_keeps_what_was_durable() {
    let disk = MemDisk::new();
    let engine = open(&disk, 4, 2);
    let bank = Arc::new({
        let mut worker = Worker::new(&engine, 0);
        let bank = Bank::create(&mut worker, ACCOUNTS, BALANCE);
        worker.close();
        bank
    });
    let committed: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|id| {
                let (engine, bank) = (engine.clone(), bank.clone());
                scope.spawn(move || common::transfers(&engine, &bank, id, 8, 150))
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(committed.iter().sum::<u64>() > 0, "some transfers commit");
    let mut worker = Worker::new(&engine, 0);
    assert_eq!(bank.total(&mut worker), i64::from(ACCOUNTS * BALANCE));
    worker.begin();
    bank.add(&mut worker, 0, 1_000_000).unwrap();

    // The power goes with that block open: it must not be there afterwards.
    let crashed = disk.crash(7);
    let engine = open(&crashed, 4, 1);
    let mut worker = Worker::new(&engine, 0);
    let bank = Bank::find(&engine);
    assert_eq!(bank.total(&mut worker), i64::from(ACCOUNTS * BALANCE));
    engine.shutdown();
}
