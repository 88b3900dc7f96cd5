//! READ ONLY transactions read snapshots.

use crate::check::{checked, findings};
use crate::common::{Bank, Worker, open, open_config, transfers};
use clearway_coordinator::{Characteristics, Engine, RunOptions, Step};
use clearway_ir::Statement;
use clearway_ir::statement::{Isolation, Query, Source, TxnOptions};
use clearway_testkit::MemDisk;
use clearway_types::{Datum, Lsn, SqlState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const ACCOUNTS: i32 = 20;
const BALANCE: i32 = 1000;
const TOTAL: i64 = (ACCOUNTS * BALANCE) as i64;

fn begin(worker: &mut Worker, isolation: Isolation) {
    let options =
        TxnOptions { isolation: Some(isolation), read_only: Some(true), ..TxnOptions::default() };
    worker.plain(Statement::Begin(options)).unwrap();
}

fn reads_at(worker: &mut Worker) -> Option<Lsn> {
    worker.client().reads_at()
}

fn workers<const N: usize>(engine: &Arc<Engine>) -> [Worker; N] {
    std::array::from_fn(|n| Worker::new(engine, n as u16))
}

#[test]
fn snapshot_is_per_transaction_or_per_query() {
    let engine = open(&MemDisk::new(), 4, 3);
    let [mut writer, mut reader, mut fresh] = workers(&engine);
    let bank = Bank::create(&mut writer, ACCOUNTS, BALANCE);
    writer.begin();
    bank.add(&mut writer, 3, 5).unwrap();
    begin(&mut reader, Isolation::RepeatableRead);
    begin(&mut fresh, Isolation::ReadCommitted);
    assert_eq!(reads_at(&mut reader), None);
    assert_eq!((bank.total(&mut reader), bank.total(&mut fresh)), (TOTAL, TOTAL), "no wait");
    writer.commit().unwrap();
    assert_eq!((bank.total(&mut reader), bank.total(&mut fresh)), (TOTAL, TOTAL + 5));
    // Writers do not wait for them either.
    bank.add(&mut writer, 3, 2).unwrap();
    bank.add_to_all(&mut writer, 1).unwrap();
    bank.insert(&mut writer, ACCOUNTS, 7).unwrap();
    assert_eq!(
        (bank.balance(&mut reader, 3), bank.balance(&mut fresh, 3)),
        (Some(BALANCE), Some(BALANCE + 8))
    );
    assert_eq!(
        (bank.balance(&mut reader, ACCOUNTS), bank.balance(&mut fresh, ACCOUNTS)),
        (None, Some(7))
    );
    let at = reads_at(&mut reader);
    assert!(at.is_some() && at < reads_at(&mut fresh));
    reader.commit().unwrap();
    fresh.rollback();
    assert_eq!(bank.total(&mut reader), TOTAL + 5 + 2 + i64::from(ACCOUNTS) + 7);
    engine.shutdown().unwrap();
}

/// The undo of a large transaction is only in the log. Its old versions are not available, so
/// readers wait for its locks.
#[test]
fn reader_beside_a_large_transaction_uses_locks() {
    let engine = open(&MemDisk::new(), 4, 2);
    let [mut writer, mut reader] = workers(&engine);
    let bank = Bank::create(&mut writer, ACCOUNTS, BALANCE);
    writer.begin();
    for amount in 1..=3 {
        bank.add_to_all(&mut writer, amount).unwrap();
    }
    begin(&mut reader, Isolation::RepeatableRead);
    let statement = bank.reading(&mut reader, 3);
    let step = reader.start(&statement);
    assert!(matches!(step, Step::Pending) && reads_at(&mut reader).is_none());
    writer.commit().unwrap();
    reader.end(step).unwrap();
    assert_eq!(bank.balance(&mut reader, 3), Some(BALANCE + 6));
    reader.commit().unwrap();
    engine.shutdown().unwrap();
}

/// TRUNCATE and snapshot readers do not wait for each other. A snapshot with the old rows keeps
/// finding them while it is open.
#[test]
fn snapshot_keeps_the_rows_of_a_truncated_table() {
    for ends in [true, false] {
        let disk = MemDisk::new();
        let engine = open(&disk, 4, 4);
        let [mut writer, mut reader, mut changer, mut other] = workers(&engine);
        let bank = Bank::create(&mut writer, ACCOUNTS, BALANCE);
        begin(&mut reader, Isolation::RepeatableRead);
        let options =
            TxnOptions { isolation: Some(Isolation::RepeatableRead), ..TxnOptions::default() };
        changer.plain(Statement::Begin(options)).unwrap();
        assert_eq!((bank.total(&mut reader), bank.total(&mut changer)), (TOTAL, TOTAL));
        writer.begin();
        bank.truncate(&mut writer);
        assert_eq!(
            (bank.total(&mut reader), bank.total(&mut other)),
            (TOTAL, TOTAL),
            "it is not committed"
        );
        assert_eq!(bank.balance(&mut other, 3), Some(BALANCE));
        writer.commit().unwrap();
        bank.insert(&mut writer, 3, 7).unwrap();
        assert_eq!((bank.total(&mut reader), bank.total(&mut other)), (TOTAL, 7));
        assert_eq!(
            (bank.balance(&mut reader, 3), bank.balance(&mut other, 3)),
            (Some(BALANCE), Some(7))
        );
        let refused = bank.add(&mut changer, 3, 1).unwrap_err();
        assert_eq!(refused.state(), SqlState::SERIALIZATION_FAILURE);
        if ends {
            reader.commit().unwrap();
            assert_eq!(bank.total(&mut reader), 7);
        }
        changer.rollback();
        engine.shutdown().unwrap();
        drop((writer, reader, changer, other, engine));
        let left = findings(&checked(&disk))
            .into_iter()
            .filter(|what| what.contains("belongs to no table"))
            .count();
        assert_eq!(left, if ends { 0 } else { 4 }, "one tree at each partition");
        let engine = open(&disk, 4, 1);
        assert_eq!(bank.total(&mut Worker::new(&engine, 0)), 7);
        engine.shutdown().unwrap();
        drop(engine);
        assert_eq!(findings(&checked(&disk)), Vec::<String>::new());
    }
}

/// The trees that TRUNCATE removes are newer than the snapshot, except for the first.
#[test]
fn trees_newer_than_the_open_snapshots_are_dropped_at_once() {
    let disk = MemDisk::new();
    let engine = open(&disk, 4, 2);
    let [mut writer, mut reader] = workers(&engine);
    let bank = Bank::create(&mut writer, ACCOUNTS, BALANCE);
    begin(&mut reader, Isolation::RepeatableRead);
    assert_eq!(bank.total(&mut reader), TOTAL);
    for id in 0..3 {
        bank.truncate(&mut writer);
        bank.insert(&mut writer, id, 7).unwrap();
    }
    assert_eq!((bank.total(&mut reader), bank.total(&mut writer)), (TOTAL, 7));
    engine.shutdown().unwrap();
    drop((writer, reader, engine));
    let left = findings(&checked(&disk));
    assert_eq!(left.len(), 4, "one tree at each partition: {left:?}");
}

/// The importer sends no message to a partition, so it has no id and sends no end.
#[test]
fn end_of_an_importer_drops_trees_that_only_it_saw() {
    let disk = MemDisk::new();
    let engine = open(&disk, 4, 3);
    let [mut writer, mut exporter, mut importer] = workers(&engine);
    let bank = Bank::create(&mut writer, ACCOUNTS, BALANCE);
    begin(&mut exporter, Isolation::RepeatableRead);
    let export = Query { once: None, source: Source::ExportSnapshot, finish: Vec::new() };
    let rows = exporter.plain(Statement::Query(export)).unwrap().rows;
    let Datum::Text(id) = rows.get(0).get(0).unwrap().to_owned() else { panic!("no id") };
    begin(&mut importer, Isolation::RepeatableRead);
    importer.plain(Statement::SetSnapshot(id.to_string())).unwrap();
    bank.truncate(&mut writer);
    exporter.commit().unwrap();
    assert!(importer.client().snapshot().is_some());
    importer.commit().unwrap();
    engine.shutdown().unwrap();
    drop((writer, exporter, importer, engine));
    assert_eq!(findings(&checked(&disk)), Vec::<String>::new());
}

/// A transaction never reads by snapshot what it has read under locks or written.
#[test]
fn read_only_transaction_sees_its_earlier_changes() {
    let engine = open(&MemDisk::new(), 4, 1);
    let [mut worker] = workers(&engine);
    let bank = Bank::create(&mut worker, ACCOUNTS, BALANCE);
    worker.begin();
    bank.add(&mut worker, 3, 5).unwrap();
    let options = TxnOptions { read_only: Some(true), ..TxnOptions::default() };
    worker.plain(Statement::SetTransaction { options, session: false }).unwrap();
    assert_eq!((bank.total(&mut worker), reads_at(&mut worker)), (TOTAL + 5, None));
    worker.commit().unwrap();
    engine.shutdown().unwrap();
}

/// READ ONLY that was set after a savepoint ends with it, so the transaction reads under locks: two
/// that each read both accounts and change one of them cannot both commit.
#[test]
fn serializable_transactions_that_may_write_later_read_under_locks() {
    let engine = open(&MemDisk::new(), 4, 2);
    let [mut first, mut second] = workers(&engine);
    let bank = Bank::create(&mut first, ACCOUNTS, BALANCE);
    for worker in [&mut first, &mut second] {
        let serializable =
            TxnOptions { isolation: Some(Isolation::Serializable), ..TxnOptions::default() };
        worker.plain(Statement::Begin(serializable)).unwrap();
        worker.savepoint("s");
        let read_only = TxnOptions { read_only: Some(true), ..TxnOptions::default() };
        worker.plain(Statement::SetTransaction { options: read_only, session: false }).unwrap();
        assert_eq!((bank.total(worker), reads_at(worker)), (TOTAL, None));
        worker.plain(Statement::Release("s".into())).unwrap();
    }
    first.rollback();
    bank.add(&mut second, 1, 5).unwrap();
    second.commit().unwrap();
    assert_eq!(bank.total(&mut first), TOTAL + 5);
    engine.shutdown().unwrap();
}

/// Transfers across partitions while others read the total: no snapshot has half of one.
#[test]
fn no_snapshot_sees_half_a_transfer() {
    // Beside a transaction whose undo is only in the log, readers use locks, and may deadlock.
    let engine = open_config(&MemDisk::new(), 4, 4, |config| config.node.undo_memory = 1 << 20);
    let bank = Arc::new(Bank::create(&mut Worker::new(&engine, 0), ACCOUNTS, BALANCE));
    let writers = AtomicU64::new(2);
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let (engine, bank, writers) = (&engine, &bank, &writers);
            scope.spawn(move || {
                transfers(engine, bank, worker, 4, 200);
                writers.fetch_sub(1, Ordering::Relaxed);
            });
        }
        for isolation in [Isolation::ReadCommitted, Isolation::Serializable] {
            let (engine, bank, writers) = (&engine, &bank, &writers);
            let id = 2 + u16::from(isolation == Isolation::Serializable);
            scope.spawn(move || {
                let mut worker = Worker::new(engine, id);
                let mut snapshots = 0;
                while writers.load(Ordering::Relaxed) > 0 || snapshots < 10 {
                    begin(&mut worker, isolation);
                    for _ in 0..2 {
                        assert_eq!(bank.total(&mut worker), TOTAL);
                        assert!(reads_at(&mut worker).is_some());
                        snapshots += 1;
                    }
                    worker.commit().unwrap();
                }
            });
        }
    });
    engine.shutdown().unwrap();
}

/// Two statements each insert the sum of all rows, at every level: one of them sees the other's
/// row.
#[test]
fn single_insert_select_statements_are_serializable() {
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable]
    {
        let engine = open(&MemDisk::new(), 4, 3);
        let [mut holder, first, second] = workers(&engine);
        let bank = Bank::create(&mut holder, ACCOUNTS, BALANCE);
        let ids = [100, 101];
        holder.begin();
        for id in ids {
            bank.insert(&mut holder, id, 1).unwrap();
        }
        let characteristics = Characteristics { isolation, ..Characteristics::default() };
        let mut running = [first, second].map(|worker| (worker, Step::Pending));
        for ((worker, step), id) in running.iter_mut().zip(ids) {
            let insert = bank.inserting_total(worker, id);
            *step =
                worker.start_with(&insert, RunOptions { characteristics, ..RunOptions::default() });
            assert!(matches!(step, Step::Pending), "the holder has inserted this key");
        }
        holder.rollback();
        while running.iter().any(|(_, step)| matches!(step, Step::Pending)) {
            for (worker, step) in
                running.iter_mut().filter(|(_, step)| matches!(step, Step::Pending))
            {
                worker.port.poll(&mut Vec::new());
                *step = worker.resume();
            }
        }
        assert!(running.iter().all(|(_, step)| matches!(step, Step::Done(Ok(_)))), "{isolation:?}");
        let mut sums = ids.map(|id| bank.balance(&mut holder, id).map(i64::from));
        sums.sort_unstable();
        assert_eq!(sums, [Some(TOTAL), Some(2 * TOTAL)], "{isolation:?}");
        engine.shutdown().unwrap();
    }
}
