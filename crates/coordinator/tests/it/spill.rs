//! Snapshots whose row versions do not fit in memory.

use crate::common::{Bank, Worker, open_config};
use clearway_coordinator::Engine;
use clearway_env::Disk;
use clearway_ir::Statement;
use clearway_ir::statement::{Isolation, TxnOptions};
use clearway_testkit::MemDisk;
use clearway_types::SqlState;
use std::path::Path;
use std::sync::Arc;

const ACCOUNTS: i32 = 5_000;
const BALANCE: i32 = 1000;
const TOTAL: i64 = ACCOUNTS as i64 * BALANCE as i64;
const MEMORY: usize = 40_000;
/// Size of a block of the file.
const SLOT: usize = 8192;
const FILE: &str = "/data/versions.tmp";

fn open(disk: &MemDisk, file: u64) -> Arc<Engine> {
    open_config(disk, 2, 2, |config| {
        config.partition.version_memory = MEMORY;
        (config.node.version_spill, config.node.version_slot) = (file, SLOT);
        // Old versions of a large active transaction's rows can be reconstructed.
        config.node.undo_memory = 1 << 20;
    })
}

/// Waits for another thread to write blocks.
fn until(mut done: impl FnMut() -> bool) {
    while !done() {
        std::thread::yield_now();
    }
}

fn begin(worker: &mut Worker) {
    let isolation = Some(Isolation::RepeatableRead);
    worker
        .plain(Statement::Begin(TxnOptions {
            isolation,
            read_only: Some(true),
            ..Default::default()
        }))
        .unwrap();
}

#[test]
fn snapshot_larger_than_memory_reads_correctly() {
    let disk = MemDisk::new();
    let engine = open(&disk, 1 << 30);
    let [mut writer, mut reader] = [0, 1].map(|n| Worker::new(&engine, n));
    let bank = Bank::create(&mut writer, ACCOUNTS, BALANCE);
    begin(&mut reader);
    assert_eq!(bank.total(&mut reader), TOTAL);
    // One transaction on all rows, and many on one row each.
    bank.add_to_all(&mut writer, 1).unwrap();
    for id in 0..ACCOUNTS {
        bank.add_lazily(&mut writer, id, id);
    }
    // A version takes about 190 bytes in memory and 50 in the file.
    assert!(
        ACCOUNTS as usize * 190 > 10 * 2 * MEMORY
            && engine.version_file_bytes() > ACCOUNTS as u64 * 40
    );
    until(|| disk.exists(Path::new(FILE)).unwrap());
    assert_eq!(bank.total(&mut reader), TOTAL);
    for id in (0..ACCOUNTS).step_by(97) {
        assert_eq!(bank.balance(&mut reader, id), Some(BALANCE));
    }
    let added = i64::from(ACCOUNTS) + (0..i64::from(ACCOUNTS)).sum::<i64>();
    assert_eq!(bank.total(&mut writer), TOTAL + added);
    reader.commit().unwrap();
    // The partitions notice with their next message.
    bank.add_to_all(&mut writer, 1).unwrap();
    assert_eq!(engine.version_bytes(), 0);
    until(|| engine.version_file_bytes() == 0);
    engine.shutdown().unwrap();
    assert!(!disk.exists(Path::new(FILE)).unwrap(), "the process removes it");
}

/// The images of a transaction that is still active go to the file, too. Beside it, an old
/// snapshot, a new one and the transaction itself read what they should, also after ROLLBACK TO.
#[test]
fn images_of_a_large_transaction_leave_the_memory() {
    let added = i64::from(ACCOUNTS);
    for commits in [true, false] {
        let disk = MemDisk::new();
        let engine = open(&disk, 1 << 30);
        let [mut writer, mut reader, mut other] = [0, 1, 1].map(|n| Worker::new(&engine, n));
        let bank = Bank::create(&mut writer, ACCOUNTS, BALANCE);
        begin(&mut reader);
        assert_eq!(bank.total(&mut reader), TOTAL);
        let repeatable =
            TxnOptions { isolation: Some(Isolation::RepeatableRead), ..TxnOptions::default() };
        writer.plain(Statement::Begin(repeatable)).unwrap();
        bank.add_to_all(&mut writer, 1).unwrap();
        writer.savepoint("a");
        bank.add_to_all(&mut writer, 5).unwrap();
        assert_eq!(bank.total(&mut writer), TOTAL + 6 * added);
        // It takes less memory than a quarter of the images, as soon as the blocks are written.
        until(|| {
            assert_eq!(bank.total(&mut other), TOTAL);
            engine.version_bytes() < ACCOUNTS as u64 * 190 / 4
        });
        assert!(engine.version_file_bytes() > ACCOUNTS as u64 * 40);
        writer.rollback_to("a");
        assert_eq!(bank.total(&mut writer), TOTAL + added);
        assert_eq!(bank.total(&mut reader), TOTAL);
        for id in (0..ACCOUNTS).step_by(97) {
            assert_eq!(bank.balance(&mut reader, id), Some(BALANCE));
            assert_eq!(bank.balance(&mut writer, id), Some(BALANCE + 1));
        }
        if commits {
            writer.commit().unwrap();
        } else {
            writer.rollback();
        }
        assert_eq!(bank.total(&mut reader), TOTAL);
        let now = TOTAL + if commits { added } else { 0 };
        assert_eq!(bank.total(&mut other), now);
        reader.commit().unwrap();
        // The partitions notice with their next message.
        bank.add_to_all(&mut writer, 1).unwrap();
        assert_eq!(engine.version_bytes(), 0);
        until(|| engine.version_file_bytes() == 0);
        engine.shutdown().unwrap();
    }
}

/// Without a file, or with one that is too small, snapshots fail and writers do not. The next start
/// removes the file of a killed process.
#[test]
fn snapshots_fail_when_the_spill_file_is_full() {
    let disk = MemDisk::new();
    for file in [0, 3 * SLOT as u64, 1 << 30] {
        let engine = open(&disk, file);
        assert!(!disk.exists(Path::new(FILE)).unwrap());
        let [mut writer, mut reader] = [0, 1].map(|n| Worker::new(&engine, n));
        let bank = if engine.catalog().table("accounts").is_some() {
            Bank::find(&engine)
        } else {
            Bank::create(&mut writer, ACCOUNTS, BALANCE)
        };
        begin(&mut reader);
        let before = bank.total(&mut reader);
        (0..ACCOUNTS).for_each(|id| bank.add_lazily(&mut writer, id, 1));
        let plan = bank.reading(&mut reader, 1);
        let answer = reader.run(&plan);
        if file < 1 << 30 {
            assert_eq!(answer.err().map(|e| e.state()), Some(SqlState::SNAPSHOT_TOO_OLD));
            reader.rollback();
        } else {
            answer.unwrap();
            assert_eq!(bank.total(&mut reader), before);
            reader.commit().unwrap();
        }
        assert_eq!(bank.total(&mut writer), before + i64::from(ACCOUNTS));
        [writer, reader].into_iter().for_each(Worker::close);
        if file < 1 << 30 {
            engine.shutdown().unwrap();
            continue;
        }
        until(|| disk.exists(Path::new(FILE)).unwrap());
        let killed = disk.kill();
        let next = open(&killed, file);
        assert!(!killed.exists(Path::new(FILE)).unwrap());
        next.shutdown().unwrap();
    }
}
