//! Readers beside a large transaction, whose undo is only in the log, when no versions were kept
//! before it began.

use crate::common::{Bank, Worker, open};
use crate::users::{Users, Who};
use clearway_coordinator::{Engine, Step};
use clearway_ir::statement::{Isolation, TxnOptions};
use clearway_ir::{Distribution, Statement};
use clearway_testkit::MemDisk;
use clearway_types::{Lsn, SqlError, SqlState};
use std::sync::Arc;

const ACCOUNTS: i32 = 20;
const BALANCE: i32 = 1000;
const TOTAL: i64 = ACCOUNTS as i64 * BALANCE as i64;

/// An engine with accounts, and these workers, of which the first has a large transaction that has
/// added to all accounts.
fn scene<const N: usize>() -> (Arc<Engine>, Bank, [Worker; N]) {
    let engine = open(&MemDisk::new(), 4, N);
    let mut workers: [Worker; N] = std::array::from_fn(|n| Worker::new(&engine, n as u16));
    let bank = Bank::create(&mut workers[0], ACCOUNTS, BALANCE);
    workers[0].begin();
    for id in 0..ACCOUNTS {
        bank.add(&mut workers[0], id, 3).unwrap();
        bank.add(&mut workers[0], id, 4).unwrap();
    }
    (engine, bank, workers)
}

fn begin(worker: &mut Worker, isolation: Isolation) {
    let options = TxnOptions { isolation: Some(isolation), ..TxnOptions::default() };
    worker.plain(Statement::Begin(options)).unwrap();
}

fn reads_at(worker: &mut Worker) -> Option<Lsn> {
    worker.client().reads_at()
}

fn sum(worker: &mut Worker, step: Step) -> i64 {
    let rows = worker.end(step).unwrap().rows;
    rows.get(0).get(0).unwrap().to_owned().as_i64().unwrap()
}

/// A reader of the whole table waits, and sees the transaction's end. Others do not wait behind it.
#[test]
fn reader_of_a_whole_table_waits_without_a_lock() {
    for commits in [true, false] {
        let (engine, bank, [mut large, mut reader, mut second, mut other]) = scene();
        begin(&mut reader, Isolation::RepeatableRead);
        let totalling = bank.totalling(&mut reader);
        let (first, single) = (reader.start(&totalling), second.start(&totalling));
        assert!(matches!((&first, &single), (Step::Pending, Step::Pending)));
        bank.insert(&mut other, 100, 7).unwrap();
        assert_eq!(bank.balance(&mut other, 100), Some(7));
        if commits {
            large.commit().unwrap();
        } else {
            large.rollback();
        }
        let total = TOTAL + 7 + if commits { i64::from(7 * ACCOUNTS) } else { 0 };
        assert_eq!((sum(&mut reader, first), sum(&mut second, single)), (total, total));
        assert!(reads_at(&mut reader).is_some(), "it has a snapshot");
        bank.insert(&mut other, 101, 5).unwrap();
        assert_eq!(bank.total(&mut reader), total);
        reader.commit().unwrap();
        assert_eq!(bank.total(&mut reader), total + 5);
        engine.shutdown().unwrap();
    }
}

#[test]
fn reader_of_another_table_does_not_wait() {
    let (engine, _, [large, mut reader]) = scene();
    let users = Users::create(&mut reader, Distribution::Hash(vec![0]));
    reader.run(&users.insert(&[(1, Some(1), 1)], false)).unwrap();
    begin(&mut reader, Isolation::ReadCommitted);
    assert_eq!(reader.run(&users.select(Who::All)).unwrap().rows.len(), 1);
    assert_eq!(reads_at(&mut reader), None, "it reads under locks");
    reader.commit().unwrap();
    large.close();
    engine.shutdown().unwrap();
}

/// The large transaction waits for the reader's row lock, and the reader for its end.
#[test]
fn deadlock_with_a_waiting_reader_is_detected() {
    let (engine, bank, [mut large, mut reader]) = scene();
    begin(&mut reader, Isolation::ReadCommitted);
    bank.insert(&mut reader, 100, 7).unwrap();
    let inserting = bank.inserting(&mut large, &[(100, 1)]);
    let waits = large.start(&inserting);
    assert!(matches!(waits, Step::Pending));
    let totalling = bank.totalling(&mut reader);
    let closes = reader.start(&totalling);
    let refused = reader.end(closes).unwrap_err();
    assert_eq!(refused.state(), SqlState::DEADLOCK);
    let waits_for = "waits for snapshot lock on table accounts";
    assert!(format!("{refused:?}").contains(waits_for), "{refused:?}");
    reader.rollback();
    large.end(waits).unwrap();
    large.commit().unwrap();
    assert_eq!(bank.total(&mut reader), TOTAL + i64::from(7 * ACCOUNTS) + 1);
    engine.shutdown().unwrap();
}

/// A large transaction reads the table for whose large transactions others wait. They wait for it,
/// too, and it waits only for the first one.
#[test]
fn large_reader_does_not_wait_for_itself() {
    for large_before_others_wait in [true, false] {
        let (engine, bank, [mut large, mut reader, mut first, mut last]) = scene();
        begin(&mut reader, Isolation::ReadCommitted);
        let insert = |reader: &mut Worker| {
            for id in 100..100 + ACCOUNTS {
                bank.insert(reader, id, 1).unwrap();
            }
        };
        let totalling = bank.totalling(&mut reader);
        if large_before_others_wait {
            insert(&mut reader);
        }
        let before = first.start(&totalling);
        if !large_before_others_wait {
            insert(&mut reader);
        }
        let reads = reader.start(&totalling);
        let behind = last.start(&totalling);
        assert!(matches!((&before, &behind), (Step::Pending, Step::Pending)));
        assert!(matches!(reads, Step::Pending));
        large.commit().unwrap();
        let total = TOTAL + i64::from(8 * ACCOUNTS);
        assert_eq!(sum(&mut reader, reads), total);
        reader.commit().unwrap();
        assert_eq!((sum(&mut first, before), sum(&mut last, behind)), (total, total));
        engine.shutdown().unwrap();
    }
}

/// A cancelled or closed reader leaves nothing behind.
#[test]
fn waiting_readers_can_leave() {
    let (engine, bank, [mut large, mut cancelled, mut closed, mut last]) = scene();
    let totalling = bank.totalling(&mut last);
    let [first, second, third] =
        [&mut cancelled, &mut closed, &mut last].map(|worker| worker.start(&totalling));
    assert!(matches!((&first, &second, &third), (Step::Pending, Step::Pending, Step::Pending)));
    let error = SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request");
    cancelled.cancel(&error);
    assert_eq!(cancelled.end(first).unwrap_err().state(), SqlState::QUERY_CANCELED);
    let mut port = closed.leave();
    port.poll(&mut Vec::new());
    large.commit().unwrap();
    port.poll(&mut Vec::new());
    assert_eq!(sum(&mut last, third), TOTAL + i64::from(7 * ACCOUNTS));
    engine.shutdown().unwrap();
}
