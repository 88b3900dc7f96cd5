//! Multi-partition one-shots under each concurrency-control scheme.

use crate::common::{Bank, Worker, end_all, open_with};
use crate::contention::{is_alone, requests};
use clearway_coordinator::{Engine, Limits, LockWaitView, SchemeKind, Step};
use clearway_testkit::MemDisk;
use clearway_types::{PartitionId, SqlError, SqlState};
use std::sync::Arc;

const ACCOUNTS: i32 = 20;

fn open(scheme: SchemeKind, slice_rows: usize, workers: usize) -> Arc<Engine> {
    open_with(&MemDisk::new(), 2, workers, Limits { scheme, slice_rows, ..Limits::default() })
}

/// Returns accounts that live at this partition, of two.
fn at(partition: u16) -> Vec<i32> {
    (0..ACCOUNTS).filter(|id| Bank::home(*id, 2) == PartitionId(partition)).collect()
}

fn waits(engine: &Engine) -> Vec<String> {
    engine.lock_waits().iter().map(LockWaitView::what).collect()
}

#[test]
fn rows_of_idle_partitions_are_locked_as_the_scheme_says() {
    if !is_alone("schemes::rows_of_idle_partitions_are_locked_as_the_scheme_says") {
        return;
    }
    for scheme in SchemeKind::ALL {
        let engine = open(scheme, 2048, 1);
        let mut worker = Worker::new(&engine, 0);
        let bank = Bank::create(&mut worker, ACCOUNTS, 100);
        let counted = |prefix| requests(prefix) - requests("lock.partition");
        let before = counted("lock.");
        bank.add(&mut worker, 3, 1).unwrap();
        assert_eq!(counted("lock."), before, "{scheme}: a single partition");
        let asked = requests("lock.partition");
        bank.add_to_all(&mut worker, 1).unwrap();
        let locks = counted("lock.") - before;
        // What an optimistic statement has used is locked until its decision.
        let expected = matches!(scheme, SchemeKind::Locking | SchemeKind::Optimistic);
        assert_eq!(locks > 0, expected, "{scheme}: {locks} locks");
        // A statement for each partition and, unless it locks, a request for each.
        let messages = requests("lock.partition") - asked;
        assert_eq!(messages, if locks > 0 { 2 } else { 4 }, "{scheme}");
        assert_eq!(bank.balance(&mut worker, 3), Some(102));
        worker.close();
        engine.shutdown().unwrap();
    }
}

/// No scheme makes a statement wait for a client whose rows it does not use.
#[test]
fn interactive_transactions_delay_only_users_of_their_rows() {
    for scheme in SchemeKind::ALL {
        let engine = open(scheme, 2048, 3);
        let [mut holder, mut other, mut single] = [0, 1, 2].map(|n| Worker::new(&engine, n));
        let bank = Bank::create(&mut holder, ACCOUNTS, 100);
        let (here, there) = (at(0), at(1));
        holder.begin();
        bank.add(&mut holder, there[0], 1).unwrap();
        bank.insert_rows(&mut other, &[(here[0] + 1000, 5), (there[0] + 1000, 5), (3000, 5)])
            .unwrap();
        bank.add(&mut single, there[1], 7).unwrap();
        let all = bank.adding_to_all(&mut other, 1);
        assert!(matches!(other.start(&all), Step::Pending), "{scheme}: it needs the locked row");
        holder.commit().unwrap();
        other.end(Step::Pending).unwrap();
        let left = [there[0], there[1]].map(|id| bank.balance(&mut holder, id).unwrap());
        assert_eq!(left, [102, 108], "{scheme}");
        [holder, other, single].into_iter().for_each(Worker::close);
        engine.shutdown().unwrap();
    }
}

/// Beside a one-shot that holds locks because it has used up its slice.
#[test]
fn blocking_waits_for_one_shots_with_locks() {
    for scheme in SchemeKind::ALL {
        let engine = open(scheme, 1, 3);
        let mut workers = [0, 1, 2].map(|n| Worker::new(&engine, n));
        let bank = Bank::create(&mut workers[0], ACCOUNTS, 100);
        let here = at(0);
        let [long, multi, single] = &mut workers;
        let many = bank.adding_to(long, &here[..4], here[0], 1);
        assert!(matches!(long.start(&many), Step::Pending), "a slice is one row");
        let all = bank.adding_to_all(multi, 10);
        assert!(matches!(multi.start(&all), Step::Pending));
        let blocking = !matches!(scheme, SchemeKind::Hybrid | SchemeKind::Locking);
        assert_eq!(waits(&engine)[0] == "partition 0", blocking, "{scheme}: {:?}", waits(&engine));
        let read = bank.reading(single, here[9 % here.len()]);
        assert_eq!(matches!(single.start(&read), Step::Pending), blocking, "{scheme}");
        if blocking {
            assert_eq!(waits(&engine), ["partition 0", "partition 0"]);
        }
        end_all(&mut workers);
        assert_eq!(engine.lock_waits(), []);
        let sum: i64 = bank.total(&mut workers[0]);
        assert_eq!(sum, i64::from(ACCOUNTS * 110 + 4), "{scheme}");
        workers.into_iter().for_each(Worker::close);
        engine.shutdown().unwrap();
    }
}

#[test]
fn wait_for_a_partition_without_locks_can_be_canceled() {
    let engine = open(SchemeKind::Blocking, 1, 2);
    let mut workers = [0, 1].map(|n| Worker::new(&engine, n));
    let bank = Bank::create(&mut workers[0], ACCOUNTS, 100);
    let here = at(0);
    let [long, multi] = &mut workers;
    let many = bank.adding_to(long, &here[..4], here[0], 1);
    assert!(matches!(long.start(&many), Step::Pending));
    let all = bank.adding_to_all(multi, 10);
    assert!(matches!(multi.start(&all), Step::Pending));
    multi.cancel(&SqlError::new(SqlState::QUERY_CANCELED, "enough"));
    assert_eq!(multi.end(Step::Pending).unwrap_err().state(), SqlState::QUERY_CANCELED);
    assert_eq!(engine.lock_waits(), []);
    end_all(&mut workers);
    bank.add_to_all(&mut workers[1], 1).unwrap();
    assert_eq!(bank.balance(&mut workers[0], here[0]), Some(102));
    workers.into_iter().for_each(Worker::close);
    engine.shutdown().unwrap();
}
