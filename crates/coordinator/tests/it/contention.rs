//! Lock waits are counted, with their time, by class and by place in the code.

use crate::common::{Bank, Worker, open};
use clearway_coordinator::Step;
use clearway_latch::lockstat::{self, Contention};
use clearway_testkit::MemDisk;
use clearway_types::{SqlError, SqlState};
use std::process::Command;
use std::time::{Duration, Instant};

/// Returns a class's counts.
fn rows(class: &str) -> Vec<Contention> {
    lockstat::contention().into_iter().filter(|row| row.name == class).collect()
}

/// Returns the number of a class's waits in a file, and their total time.
fn waits(class: &str, file: &str) -> (u64, Duration) {
    let of_file = |row: &Contention| row.caller.is_some_and(|caller| caller.file.ends_with(file));
    let rows: Vec<Contention> = rows(class).into_iter().filter(of_file).collect();
    let time: u64 = rows.iter().map(|row| row.waits.sum_ns()).sum();
    (rows.iter().map(|row| row.contended).sum(), Duration::from_nanos(time))
}

/// Returns the number of requests in all classes with this name prefix.
pub fn requests(prefix: &str) -> u64 {
    lockstat::contention()
        .iter()
        .filter(|row| row.name.starts_with(prefix))
        .map(|row| row.requests)
        .sum()
}

/// Returns true in a process that runs no other test; otherwise runs the test in such a process.
/// Counts are per process, and other tests wait for rows, too.
pub fn is_alone(test: &str) -> bool {
    if std::env::args().any(|arg| arg == "--exact") {
        return true;
    }
    let done = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(
        done.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&done.stderr)
    );
    false
}

#[test]
fn row_wait_is_counted_when_it_ends() {
    if !is_alone("contention::row_wait_is_counted_when_it_ends") {
        return;
    }
    let counted = || waits("lock.key_exclusive", "exec/modify.rs");
    let engine = open(&MemDisk::new(), 2, 2);
    let (mut holder, mut waiter) = (Worker::new(&engine, 0), Worker::new(&engine, 1));
    let bank = Bank::create(&mut holder, 10, 100);
    let requests = rows("lock.key_exclusive")[0].requests;
    holder.begin();
    bank.add(&mut holder, 1, 5).unwrap();
    let update = bank.adding(&mut waiter, 1, 7);
    assert!(matches!(waiter.start(&update), Step::Pending));
    let waiting = Instant::now();
    assert_eq!(bank.balance(&mut holder, 2), Some(100));
    assert_eq!(counted(), (0, Duration::ZERO), "the wait has not ended");
    let least = waiting.elapsed();
    holder.commit().unwrap();
    waiter.port.poll(&mut Vec::new());
    assert!(matches!(waiter.resume(), Step::Done(Ok(_))));
    let (waits, time) = counted();
    assert!(waits == 1 && time >= least, "{waits} waits of {time:?}, {least:?} expected");
    assert_eq!(rows("lock.key_exclusive")[0].requests, requests + 2, "a waiter has made a request");
    assert!(rows("lock.table_intent_exclusive")[0].requests >= 2);

    // A wait that is cancelled counts, too.
    holder.begin();
    bank.add(&mut holder, 1, 5).unwrap();
    assert!(matches!(waiter.start(&update), Step::Pending));
    let waiting = Instant::now();
    assert_eq!(bank.balance(&mut holder, 2), Some(100));
    let more = waiting.elapsed();
    waiter.cancel(&SqlError::new(SqlState::QUERY_CANCELED, "enough"));
    waiter.port.poll(&mut Vec::new());
    assert!(matches!(waiter.resume(), Step::Done(Err(_))));
    let (waits, both) = counted();
    assert!(
        waits == 2 && both >= time + more,
        "{waits} waits of {both:?}, {time:?} and {more:?} expected"
    );
    holder.commit().unwrap();
    assert_eq!(bank.balance(&mut waiter, 1), Some(117));
    [holder, waiter].into_iter().for_each(Worker::close);
    engine.shutdown().unwrap();
}
