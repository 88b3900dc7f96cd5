//! Waits for a partition to which a multi-partition statement has exclusive access.

use crate::common::{Bank, Worker, open, open_pinned};
use clearway_coordinator::{LockWaitView, Step};
use clearway_env::MemDisk;
use clearway_types::{PartitionId, SqlError, SqlState};

/// Polls the workers, and resumes those that run a statement, until none does.
fn end_all(workers: &mut [Worker]) {
    while workers.iter_mut().any(|worker| worker.client().is_running()) {
        for worker in &mut *workers {
            worker.port.poll(&mut Vec::new());
            if worker.client().is_running() {
                assert!(!matches!(worker.resume(), Step::Done(Err(_)) | Step::Replan));
            }
        }
        std::thread::yield_now();
    }
}

#[test]
fn partition_wait_is_listed_until_it_ends() {
    let disk = MemDisk::new();
    let engine = open(&disk, 2, 1);
    let mut worker = Worker::new(&engine, 0);
    let bank = Bank::create(&mut worker, 10, 100);
    worker.close();
    engine.shutdown().unwrap();
    drop(engine);
    let engine = open_pinned(&disk, 2, 4);
    let mut workers = [0, 1, 2, 3].map(|worker| Worker::new(&engine, worker));
    let [has_it, second_home, waits, cancelled] = &mut workers;
    let row = (0..10).find(|id| Bank::home(*id, 2) == PartitionId(0)).unwrap();
    // It has the first partition and requests the second, whose worker has not polled yet.
    let all = bank.adding_to_all(has_it, 10);
    assert!(matches!(has_it.start(&all), Step::Pending));
    for worker in [&mut *waits, &mut *cancelled] {
        let one = bank.adding(worker, row, 1);
        assert!(matches!(worker.start(&one), Step::Pending));
        has_it.port.poll(&mut Vec::new());
    }
    let shown = engine.lock_waits();
    assert_eq!(
        shown.iter().map(LockWaitView::what).collect::<Vec<_>>(),
        ["partition 0", "partition 0"]
    );
    for (wait, worker) in shown.iter().zip([&mut *waits, &mut *cancelled]) {
        assert_eq!((worker.client().transactions(), &wait.lock), (vec![wait.waiter], &None));
        assert_eq!((wait.id.partition, wait.blockers.as_slice()), (PartitionId(0), [].as_slice()));
        assert!(worker.client().waited_for_lock().is_some());
    }
    cancelled.cancel(&SqlError::new(SqlState::QUERY_CANCELED, "enough"));
    has_it.port.poll(&mut Vec::new());
    assert_eq!(engine.lock_waits().iter().map(|wait| wait.id).collect::<Vec<_>>(), [shown[0].id]);
    assert_eq!(cancelled.end(Step::Pending).unwrap_err().state(), SqlState::QUERY_CANCELED);
    second_home.port.poll(&mut Vec::new());
    end_all(&mut workers);
    assert_eq!(engine.lock_waits(), []);
    let read = bank.reading(&mut workers[0], row);
    let step = workers[0].start(&read);
    let rows = workers[0].end(step).unwrap().rows;
    assert_eq!(rows.get(0).get(0).unwrap().to_owned().as_i64(), Some(111));
    workers.into_iter().for_each(Worker::close);
    engine.shutdown().unwrap();
}
