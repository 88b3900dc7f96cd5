//! Waits for locks are counted, by class and by place in the code, with their time.

use crate::common::{Bank, Worker, open};
use clearway_coordinator::Step;
use clearway_env::MemDisk;
use clearway_latch::lockstat::{self, Contention};
use clearway_types::{SqlError, SqlState};
use std::time::{Duration, Instant};

/// What a class has counted. Other tests of this process count, too: never less.
fn rows(class: &str) -> Vec<Contention> {
    lockstat::contention().into_iter().filter(|row| row.name == class).collect()
}

/// Waits of at least so long, in a class, from a file.
fn waits(class: &str, file: &str, least: Duration) -> u64 {
    let of_file = |row: &&Contention| row.caller.is_some_and(|caller| caller.file.ends_with(file));
    let long = |row: &Contention| {
        let mut lower = 0;
        let mut count = 0;
        for (upper, n) in row.waits.buckets() {
            count += if u128::from(lower) >= least.as_nanos() { n } else { 0 };
            lower = upper;
        }
        count
    };
    rows(class).iter().filter(of_file).map(long).sum()
}

fn pass(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::thread::yield_now();
    }
}

/// Long enough that no other test's waits are taken for it.
const LONG: Duration = Duration::from_millis(300);

/// As a bucket's lower bound is below what is in it.
const AT_LEAST: Duration = Duration::from_millis(190);

#[test]
fn a_wait_for_a_row_is_counted_when_it_ends() {
    let engine = open(&MemDisk::new(), 2, 2);
    let (mut holder, mut waiter) = (Worker::new(&engine, 0), Worker::new(&engine, 1));
    let bank = Bank::create(&mut holder, 10, 100);
    let before = waits("lock.key_exclusive", "exec/modify.rs", AT_LEAST);
    let requests = rows("lock.key_exclusive")[0].requests;
    holder.begin();
    bank.add(&mut holder, 1, 5).unwrap();
    let update = bank.adding(&mut waiter, 1, 7);
    assert!(matches!(waiter.start(&update), Step::Pending));
    pass(LONG);
    assert_eq!(waits("lock.key_exclusive", "exec/modify.rs", AT_LEAST), before, "it has not ended");
    holder.commit().unwrap();
    waiter.port.poll(&mut Vec::new());
    assert!(matches!(waiter.resume(), Step::Done(Ok(_))));
    assert_eq!(waits("lock.key_exclusive", "exec/modify.rs", AT_LEAST), before + 1);
    assert!(rows("lock.key_exclusive")[0].requests >= requests + 2, "who waits has asked");
    assert!(rows("lock.table_intent_exclusive")[0].requests >= 2);

    // One that is given up has waited, too.
    holder.begin();
    bank.add(&mut holder, 1, 5).unwrap();
    assert!(matches!(waiter.start(&update), Step::Pending));
    pass(LONG);
    waiter.cancel(&SqlError::new(SqlState::QUERY_CANCELED, "enough"));
    waiter.port.poll(&mut Vec::new());
    assert!(matches!(waiter.resume(), Step::Done(Err(_))));
    assert_eq!(waits("lock.key_exclusive", "exec/modify.rs", AT_LEAST), before + 2);
    holder.commit().unwrap();
    assert_eq!(bank.balance(&mut waiter, 1), Some(117));
    [holder, waiter].into_iter().for_each(Worker::close);
    engine.shutdown().unwrap();
}
