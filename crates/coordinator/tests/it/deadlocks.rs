//! Who gives up in a deadlock, or beside a failed fragment, and who hears of it.

use crate::common::{Bank, Worker, open};
use clearway_coordinator::{Step, Tag};
use clearway_env::MemDisk;
use clearway_types::SqlState;

/// A statement on its own that closes a cycle is run again: nobody has seen anything of it. Here on one partition, where it is one message.
#[test]
fn a_lone_statement_of_one_partition_survives_a_deadlock() {
    let engine = open(&MemDisk::new(), 1, 3);
    let mut workers = [0, 1, 2].map(|worker| Worker::new(&engine, worker));
    let [lone, first, second] = &mut workers;
    let bank = Bank::create(lone, 10, 100);
    first.begin();
    bank.add(first, 5, 1).unwrap();
    second.begin();
    bank.add(second, 9, 1).unwrap();
    let update = bank.adding_to(lone, &[1, 5, 9], 1, 10);
    assert!(matches!(lone.start(&update), Step::Pending), "it has 1 and waits for 5");
    let update = bank.adding(second, 1, 1);
    assert!(matches!(second.start(&update), Step::Pending), "it waits for 1");
    first.commit().unwrap();
    lone.port.poll(&mut Vec::new());
    let step = lone.resume();
    assert!(matches!(step, Step::Pending), "it has given up 1 and begins again: {step:?}");
    second.end(Step::Pending).unwrap();
    second.commit().unwrap();
    assert_eq!(lone.end(Step::Pending).unwrap().tag, Tag::Update(3));
    assert_eq!(bank.total(lone), 10 * 100 + 3 + 30);
    workers.into_iter().for_each(Worker::close);
    engine.shutdown().unwrap();
}

/// Its siblings may wait for somebody who has nothing to do with it, and does nothing.
#[test]
fn a_failed_fragment_ends_the_others() {
    let engine = open(&MemDisk::new(), 2, 2);
    let (mut idle, mut inserter) = (Worker::new(&engine, 0), Worker::new(&engine, 1));
    let bank = Bank::create(&mut idle, 10, 100);
    for failing in [0, 1] {
        let there = (0..10).find(|id| Bank::home(*id, 2).0 == failing).unwrap();
        let wanted = (100..).find(|id| Bank::home(*id, 2).0 != failing).unwrap();
        idle.begin();
        bank.insert(&mut idle, wanted, 1).unwrap();
        for in_block in [false, true] {
            if in_block {
                inserter.begin();
            }
            let insert = bank.inserting(&mut inserter, &[(wanted, 2), (there, 2)]);
            let step = inserter.start(&insert);
            assert!(matches!(&step, Step::Done(Err(r)) if r.error.state() == SqlState::UNIQUE_VIOLATION), "{step:?}");
        }
        inserter.rollback();
        idle.rollback();
    }
    assert_eq!(bank.total(&mut inserter), 1000);
    [idle, inserter].into_iter().for_each(Worker::close);
    engine.shutdown().unwrap();
}
