//! Answers wait for the commits that they reveal, including errors and ends of blocks.

use crate::common::{Bank, Worker, open, open_with, plan};
use clearway_coordinator::{Limits, Step, Tag};
use clearway_ir::Statement;
use clearway_ir::statement::{Isolation, TxnOptions};
use clearway_testkit::MemDisk;
use clearway_types::{Lsn, SqlError, SqlState};

/// Creates a bank whose last commit was account 77. Returns the end of that commit record.
fn bank(writer: &mut Worker) -> (Bank, Lsn) {
    let bank = Bank::create(writer, 10, 100);
    let commit = bank.insert(writer, 77, 1).unwrap().wait;
    assert!(commit > Lsn(0));
    (bank, commit)
}

fn twice(bank: &Bank, worker: &mut Worker) {
    assert_eq!(bank.insert(worker, 77, 2).unwrap_err().state(), SqlState::UNIQUE_VIOLATION);
}

#[test]
fn errors_outside_a_block_wait_for_revealed_commits() {
    let engine = open(&MemDisk::new(), 2, 2);
    let (mut writer, mut reader) = (Worker::new(&engine, 0), Worker::new(&engine, 1));
    let (bank, commit) = bank(&mut writer);
    twice(&bank, &mut reader);
    assert!(reader.wait >= commit, "one partition: {} {commit}", reader.wait);
    let other = (100..).find(|id| Bank::home(*id, 2) != Bank::home(77, 2)).unwrap();
    let error = bank.insert_rows(&mut reader, &[(other, 1), (77, 1)]).unwrap_err();
    assert_eq!(error.state(), SqlState::UNIQUE_VIOLATION);
    assert!(reader.wait >= commit, "several partitions: {} {commit}", reader.wait);
    let again = bank.inserting(&mut reader, &[(77, 2)]);
    let step = reader.start_implicit(&again);
    reader.end(step).unwrap_err();
    assert!(reader.wait >= commit, "it ends an implicit transaction: {} {commit}", reader.wait);
    reader.end_implicit(false).unwrap();
    assert!(reader.wait >= commit, "the end of one: {} {commit}", reader.wait);
    [writer, reader].into_iter().for_each(Worker::close);
    engine.shutdown().unwrap();
}

#[test]
fn every_block_end_waits_for_revealed_commits() {
    let engine = open(&MemDisk::new(), 2, 2);
    let (mut writer, mut reader) = (Worker::new(&engine, 0), Worker::new(&engine, 1));
    let (bank, commit) = bank(&mut writer);
    for commits in [false, true] {
        reader.begin();
        assert_eq!(bank.balance(&mut reader, 77), Some(1));
        assert_eq!(reader.wait, Lsn(0), "statements in a block are answered at once");
        if commits {
            drop(reader.commit().unwrap())
        } else {
            reader.rollback()
        }
        assert!(reader.wait >= commit, "{commits}: {} {commit}", reader.wait);
    }
    reader.begin();
    twice(&bank, &mut reader);
    assert_eq!(reader.wait, Lsn(0), "errors in a block are answered at once");
    assert_eq!(reader.commit().unwrap().tag, Tag::Plain("ROLLBACK"));
    assert!(reader.wait >= commit, "a failed block: {} {commit}", reader.wait);
    reader.begin();
    reader.savepoint("a");
    twice(&bank, &mut reader);
    reader.rollback_to("a");
    assert_eq!(reader.wait, Lsn(0), "the block continues");
    reader.rollback();
    assert!(reader.wait >= commit, "before ROLLBACK TO: {} {commit}", reader.wait);
    reader.begin();
    reader.rollback();
    assert!(reader.wait < commit, "nothing was revealed: {} {commit}", reader.wait);
    [writer, reader].into_iter().for_each(Worker::close);
    engine.shutdown().unwrap();
}

/// The next statement does not wait for what an earlier one has revealed.
#[test]
fn answer_does_not_wait_for_unseen_commits() {
    let engine = open(&MemDisk::new(), 2, 2);
    let (mut writer, mut reader) = (Worker::new(&engine, 0), Worker::new(&engine, 1));
    let (bank, commit) = bank(&mut writer);
    let other = (0..10).find(|id| Bank::home(*id, 2) != Bank::home(77, 2)).unwrap();
    // A read-only transaction on both partitions leaves nothing at either.
    reader.begin();
    bank.balance(&mut reader, 77);
    bank.balance(&mut reader, other);
    reader.commit().unwrap();
    bank.balance(&mut reader, other);
    assert!(reader.wait < commit, "{} {commit}", reader.wait);
    let plan = bank.adding(&mut writer, other, 1);
    assert!(matches!(writer.start(&plan), Step::Done(Ok(outcome)) if outcome.wait > commit));
    bank.balance(&mut reader, 77);
    assert_eq!(reader.wait, commit);
    [writer, reader].into_iter().for_each(Worker::close);
    engine.shutdown().unwrap();
}

/// The log may have failed, and then nothing becomes durable any more.
#[test]
fn error_without_data_does_not_wait() {
    let engine = open(&MemDisk::new(), 2, 2);
    let (mut writer, mut reader) = (Worker::new(&engine, 0), Worker::new(&engine, 1));
    let (bank, _) = bank(&mut writer);
    writer.begin();
    bank.add(&mut writer, 77, 1).unwrap();
    let plan = bank.adding(&mut reader, 77, 1);
    let step = reader.start(&plan);
    assert!(matches!(step, Step::Pending));
    reader.cancel(&SqlError::new(
        SqlState::QUERY_CANCELED,
        "canceling statement due to user request",
    ));
    assert_eq!(reader.end(step).unwrap_err().state(), SqlState::QUERY_CANCELED);
    assert_eq!(reader.wait, Lsn(0));
    writer.rollback();
    [writer, reader].into_iter().for_each(Worker::close);
    engine.shutdown().unwrap();
}

#[test]
fn block_end_does_not_wait_for_later_commits() {
    let engine = open(&MemDisk::new(), 2, 2);
    let (mut writer, mut reader) = (Worker::new(&engine, 0), Worker::new(&engine, 1));
    let (bank, commit) = bank(&mut writer);
    let other = (0..10).find(|id| Bank::home(*id, 2) == Bank::home(77, 2)).unwrap();
    for commits in [false, true] {
        reader.begin();
        bank.balance(&mut reader, 77);
        let plan = bank.adding(&mut writer, other, 1);
        let Step::Done(Ok(later)) = writer.start(&plan) else { panic!("it waits") };
        if commits {
            drop(reader.commit().unwrap())
        } else {
            reader.rollback()
        }
        assert!(
            (commit..later.wait).contains(&reader.wait),
            "{commit} {} {}",
            reader.wait,
            later.wait
        );
    }
    [writer, reader].into_iter().for_each(Worker::close);
    engine.shutdown().unwrap();
}

/// A COMMIT that is cancelled while it waits for the transaction ahead is answered at once. The
/// next answer then waits for what the block has read.
#[test]
fn answer_after_cancelled_commit_waits_for_the_block() {
    let limits = Limits { retire: true, retire_cold: true, increments: false, ..Limits::default() };
    let engine = open_with(&MemDisk::new(), 2, 2, limits);
    let (mut writer, mut reader) = (Worker::new(&engine, 0), Worker::new(&engine, 1));
    let (bank, commit) = bank(&mut writer);
    let other = (0..10).find(|id| Bank::home(*id, 2) != Bank::home(77, 2)).unwrap();
    let options = TxnOptions { isolation: Some(Isolation::ReadCommitted), ..TxnOptions::default() };
    for worker in [&mut writer, &mut reader] {
        worker.plain(Statement::Begin(options)).unwrap();
    }
    assert_eq!(bank.balance(&mut reader, 77), Some(1));
    for worker in [&mut writer, &mut reader] {
        let adding = bank.adding_beside(worker, other, 1);
        worker.run(&adding).unwrap();
    }
    let step = reader.start(&plan(Statement::Commit));
    assert!(matches!(step, Step::Pending), "it is behind");
    reader.cancel(&SqlError::new(SqlState::QUERY_CANCELED, "enough"));
    assert_eq!(reader.end(step).unwrap_err().state(), SqlState::QUERY_CANCELED);
    assert_eq!(reader.wait, Lsn(0), "it shows no data");
    reader.begin();
    reader.rollback();
    assert!(reader.wait >= commit, "{} {commit}", reader.wait);
    writer.rollback();
    [writer, reader].into_iter().for_each(Worker::close);
    engine.shutdown().unwrap();
}
