//! Waits for a partition to which a multi-partition statement has exclusive access.

use crate::common::{Bank, Worker, end_all, open};
use clearway_coordinator::{LockWaitView, Step};
use clearway_testkit::MemDisk;
use clearway_types::{PartitionId, SqlError, SqlState};

#[test]
fn partition_wait_is_listed_until_it_ends() {
    let engine = open(&MemDisk::new(), 2, 3);
    let mut workers = [0, 1, 2].map(|worker| Worker::new(&engine, worker));
    let bank = Bank::create(&mut workers[0], 10, 100);
    let row = (0..10).find(|id| Bank::home(*id, 2) == PartitionId(0)).unwrap();
    let [has_it, waits, cancelled] = &mut workers;
    engine.while_busy(PartitionId(1), || {
        // It has the first partition, and waits for the answer of the second.
        let all = bank.adding_to_all(has_it, 10);
        assert!(matches!(has_it.start(&all), Step::Pending));
        for worker in [&mut *waits, &mut *cancelled] {
            let one = bank.adding(worker, row, 1);
            assert!(matches!(worker.start(&one), Step::Pending));
        }
        let shown = engine.lock_waits();
        let whats: Vec<_> = shown.iter().map(LockWaitView::what).collect();
        assert_eq!(whats, ["partition 0", "partition 0"]);
        for (wait, worker) in shown.iter().zip([&mut *waits, &mut *cancelled]) {
            assert_eq!((worker.client().transactions(), &wait.lock), (vec![wait.waiter], &None));
            let at = (wait.id.partition, wait.blockers.as_slice());
            assert_eq!(at, (PartitionId(0), [].as_slice()));
            assert!(worker.client().waited_for_lock().is_some());
        }
        cancelled.cancel(&SqlError::new(SqlState::QUERY_CANCELED, "enough"));
        let left: Vec<_> = engine.lock_waits().iter().map(|wait| wait.id).collect();
        assert_eq!(left, [shown[0].id]);
        let refused = cancelled.end(Step::Pending).unwrap_err();
        assert_eq!(refused.state(), SqlState::QUERY_CANCELED);
    });
    end_all(&mut workers);
    assert_eq!(engine.lock_waits(), []);
    let read = bank.reading(&mut workers[0], row);
    let step = workers[0].start(&read);
    let rows = workers[0].end(step).unwrap().rows;
    assert_eq!(rows.get(0).get(0).unwrap().to_owned().as_i64(), Some(111));
    workers.into_iter().for_each(Worker::close);
    engine.shutdown().unwrap();
}
