//! Transfers between accounts on several partitions by several workers, with deadlocks, aborts and
//! a crash: the total must not change.

use crate::common::{self, Bank, Worker, open};
use clearway_coordinator::TxnStatus;
use clearway_env::Disk;
use clearway_testkit::MemDisk;
use clearway_types::SqlState;
use std::path::Path as FilePath;
use std::sync::Arc;

const ACCOUNTS: i32 = 20;
const BALANCE: i32 = 1000;

#[test]
fn committed_rows_are_read_by_point_and_by_scan() {
    let engine = open(&MemDisk::new(), 4, 1);
    let mut worker = Worker::new(&engine, 0);
    let bank = Bank::create(&mut worker, ACCOUNTS, BALANCE);
    assert_eq!(bank.balance(&mut worker, 3), Some(BALANCE));
    assert_eq!(bank.total(&mut worker), i64::from(ACCOUNTS * BALANCE));
    bank.add(&mut worker, 3, 7).unwrap();
    assert_eq!(bank.balance(&mut worker, 3), Some(BALANCE + 7));
    assert_eq!(bank.balance(&mut worker, ACCOUNTS + 1), None);
    engine.shutdown().unwrap();
}

/// No one requests a checkpoint and its interval has not elapsed: log growth alone triggers it, and
/// recovery is short.
#[test]
fn log_growth_triggers_a_checkpoint() {
    let disk = MemDisk::new();
    let engine = open(&disk, 1, 1);
    let mut worker = Worker::new(&engine, 0);
    let bank = Bank::create(&mut worker, ACCOUNTS, BALANCE);
    // A segment written long after the first checkpoint, which the next one releases.
    let later = FilePath::new("/data/wal/0000000001000000.wal");
    let (mut came, mut added) = (false, 0);
    while !came || disk.exists(later).unwrap() {
        came |= disk.exists(later).unwrap();
        for _ in 0..1000 {
            bank.add_lazily(&mut worker, 3, 1);
        }
        added += 1000;
        assert!(added < 10_000_000, "no checkpoint");
    }
    drop(worker);
    let crashed = disk.crash(1);
    let again = open(&crashed, 1, 1);
    // At least the log whose growth triggered the checkpoint is not read again.
    let (read, end) = (again.report().log_bytes, again.durable().0);
    assert!(read + (8 << 20) <= end, "{read} bytes of log read of {end}");
    let mut worker = Worker::new(&again, 0);
    assert!(bank.balance(&mut worker, 3) >= Some(BALANCE));
    drop(engine);
    again.shutdown().unwrap();
}

#[test]
fn rollback_leaves_nothing_and_failed_block_refuses() {
    let engine = open(&MemDisk::new(), 4, 1);
    let mut worker = Worker::new(&engine, 0);
    let bank = Bank::create(&mut worker, ACCOUNTS, BALANCE);
    worker.begin();
    for account in 0..ACCOUNTS {
        bank.add(&mut worker, account, 1).unwrap();
    }
    assert_eq!(
        bank.total(&mut worker),
        i64::from(ACCOUNTS * (BALANCE + 1)),
        "a block sees its own writes"
    );
    worker.rollback();
    assert_eq!(bank.total(&mut worker), i64::from(ACCOUNTS * BALANCE));

    worker.begin();
    let duplicate = bank.insert(&mut worker, 1, 0).unwrap_err();
    assert_eq!(duplicate.state(), SqlState::UNIQUE_VIOLATION);
    assert_eq!(worker.status(), TxnStatus::Failed);
    assert_eq!(bank.add(&mut worker, 1, 1).unwrap_err().state(), SqlState::IN_FAILED_TRANSACTION);
    worker.rollback();
    assert_eq!(worker.status(), TxnStatus::Idle);
    engine.shutdown().unwrap();
}

#[test]
fn rollback_to_undoes_later_changes_at_every_partition() {
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
    engine.shutdown().unwrap();
}

#[test]
fn truncate_rolls_back_and_rows_survive_new_primary_key() {
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
    engine.shutdown().unwrap();
}

#[test]
fn multi_partition_statements_are_atomic() {
    const ROUNDS: i32 = 60;
    const EXTRA: i32 = 6;
    let engine = open(&MemDisk::new(), 4, 4);
    let bank = Arc::new({
        let mut worker = Worker::new(&engine, 0);
        let bank = Bank::create(&mut worker, ACCOUNTS, BALANCE);
        worker.close();
        bank
    });
    let accounts = i64::from(ACCOUNTS);
    let by = |id: u16| {
        let (engine, bank) = (engine.clone(), bank.clone());
        move || {
            let mut worker = Worker::new(&engine, id);
            for round in 0..ROUNDS {
                // Where these meet locks instead of free partitions they may deadlock. Then they
                // are retried internally.
                bank.add_to_all(&mut worker, 1).unwrap();
                // Six rows that sum to zero, inserted with each addition. A failed insert of them
                // leaves nothing.
                let first = ACCOUNTS + i32::from(id) * 10_000 + round * EXTRA;
                let rows: Vec<_> =
                    (0..EXTRA).map(|i| (first + i, if i % 2 == 0 { 5 } else { -5 })).collect();
                if round == 0 {
                    let clash: Vec<_> = rows.iter().copied().chain([(1, 7)]).collect();
                    let error = bank.insert_rows(&mut worker, &clash).unwrap_err();
                    assert_eq!(error.state(), SqlState::UNIQUE_VIOLATION);
                }
                bank.insert_rows(&mut worker, &rows[..]).unwrap();
                let total = bank.total(&mut worker);
                assert_eq!(total % i64::from(EXTRA / 3), 0, "half of a statement: {total}");
            }
            worker.close();
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|id| scope.spawn(by(id))).collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
    });
    let mut worker = Worker::new(&engine, 0);
    for account in 0..ACCOUNTS {
        assert_eq!(bank.balance(&mut worker, account), Some(BALANCE + 4 * ROUNDS));
    }
    let total = accounts * i64::from(BALANCE + 4 * ROUNDS);
    let extras = bank.total(&mut worker) - total;
    assert_eq!(extras % 2, 0, "an addition saw half of an insert: {extras}");
    engine.shutdown().unwrap();
}

#[test]
fn transfers_keep_the_total_and_survive_a_crash() {
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

    // The crash happens with that block open; its changes must not survive.
    let crashed = disk.crash(7);
    let engine = open(&crashed, 4, 1);
    let mut worker = Worker::new(&engine, 0);
    let bank = Bank::find(&engine);
    assert_eq!(bank.total(&mut worker), i64::from(ACCOUNTS * BALANCE));
    engine.shutdown().unwrap();
}
