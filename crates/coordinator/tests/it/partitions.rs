//! The reports of partitions: state, counts and times.

use crate::common::{Bank, Worker, open_config};
use clearway_coordinator::{
    Engine, Limits, PartitionReport, PartitionTimes, SchemeCounts, SchemeKind, Stall, Step,
};
use clearway_testkit::MemDisk;
use clearway_types::PartitionId;
use std::sync::{Arc, mpsc};
use std::time::Duration;

const ACCOUNTS: i32 = 20;
const PARTITIONS: u16 = 2;

/// Opens an engine in which a statement on several partitions waits for a turn before its decision.
fn open(scheme: SchemeKind, workers: usize) -> Arc<Engine> {
    open_config(&MemDisk::new(), PARTITIONS, workers, |config| {
        config.partition = Limits { scheme, ..Limits::default() };
        config.stall = Stall::Turns(1);
    })
}

/// Returns the reports of all partitions. The workers are those of the engine.
pub fn reports(engine: &Engine, workers: &mut [Worker]) -> Vec<PartitionReport> {
    let (send, receive) = mpsc::channel();
    engine.partition_reports(move |all| send.send(all).unwrap());
    workers.iter_mut().for_each(|worker| worker.port.poll(&mut Vec::new()));
    let all = receive.try_recv().expect("every partition has reported");
    let numbers: Vec<PartitionId> = all.iter().map(|(partition, _)| *partition).collect();
    assert_eq!(numbers, (0..engine.partitions()).map(PartitionId).collect::<Vec<_>>());
    all.into_iter().map(|(_, report)| report).collect()
}

/// Returns the report without its times.
fn untimed(report: PartitionReport) -> PartitionReport {
    PartitionReport { times: PartitionTimes::default(), ..report }
}

#[test]
fn reports_show_queue_and_counts() {
    for scheme in [SchemeKind::Blocking, SchemeKind::Speculative] {
        let engine = open(scheme, 3);
        let mut workers = [0, 1, 2].map(|n| Worker::new(&engine, n));
        let bank = Bank::create(&mut workers[0], ACCOUNTS, 100);
        let at_0 = (0..ACCOUNTS).find(|id| Bank::home(*id, PARTITIONS).0 == 0).unwrap();
        let before = reports(&engine, &mut workers);
        let idle = PartitionReport { scheme, ..PartitionReport::default() };
        assert_eq!(
            before.iter().cloned().map(untimed).collect::<Vec<_>>(),
            [idle.clone(), idle.clone()]
        );

        let all = bank.adding_to_all(&mut workers[0], 1);
        let one = bank.adding(&mut workers[1], at_0, 10);
        assert!(matches!(workers[0].start(&all), Step::Pending));
        assert!(matches!(workers[1].start(&one), Step::Pending), "{scheme}: behind the first");
        let speculates = scheme == SchemeKind::Speculative;
        let [ran, waits] = if speculates { [1, 0] } else { [0, 1] };
        let counts = SchemeCounts { speculated: ran, blocked: waits, ..SchemeCounts::default() };
        let during = reports(&engine, &mut workers);
        let first = PartitionReport {
            active: 1 + ran as usize,
            queue: waits as usize,
            counts,
            ..idle.clone()
        };
        let second = PartitionReport { active: 1, ..idle.clone() };
        assert_eq!(during.into_iter().map(untimed).collect::<Vec<_>>(), [first, second]);

        workers[0].end(Step::Pending).unwrap();
        workers[1].end(Step::Pending).unwrap();
        let after = reports(&engine, &mut workers);
        assert_eq!(untimed(after[0].clone()), PartitionReport { counts, ..idle }, "{scheme}");
        for (at, [before, after]) in before.iter().zip(&after).map(|(b, a)| [b, a]).enumerate() {
            assert!(after.times.stall > before.times.stall, "{scheme}: partition {at}");
        }
        workers.into_iter().for_each(Worker::close);
        engine.shutdown().unwrap();
    }
}

#[test]
fn only_exclusive_access_stalls_a_partition() {
    let engine = open(SchemeKind::Locking, 1);
    let mut workers = [Worker::new(&engine, 0)];
    let bank = Bank::create(&mut workers[0], ACCOUNTS, 100);
    // Enough messages for a sample of each partition's time.
    for id in (0..ACCOUNTS).cycle().take(2000) {
        bank.add(&mut workers[0], id, 1).unwrap();
    }
    bank.add_to_all(&mut workers[0], 1).unwrap();
    for PartitionReport { times, .. } in reports(&engine, &mut workers) {
        assert_eq!(times.stall, Duration::ZERO);
        assert!(times.cpu > Duration::ZERO);
    }
    workers.into_iter().for_each(Worker::close);
    engine.shutdown().unwrap();
}
