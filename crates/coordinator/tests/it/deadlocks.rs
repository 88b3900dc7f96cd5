//! The victims of deadlocks, the fragments beside a failed one, and their clients.

use crate::common::{Bank, Worker, open, serializable};
use clearway_coordinator::{Client, Event, Step, Tag};
use clearway_ir::program::Env;
use clearway_testkit::MemDisk;
use clearway_types::SqlState;
use std::sync::Arc;

/// A single statement that closes a cycle is retried unnoticed. Here it is one message to one
/// partition.
#[test]
fn single_partition_statement_survives_a_deadlock() {
    let engine = open(&MemDisk::new(), 1, 3);
    let mut workers = [0, 1, 2].map(|worker| Worker::new(&engine, worker));
    let [lone, first, second] = &mut workers;
    let bank = Bank::create(lone, 10, 100);
    first.begin();
    bank.add(first, 5, 1).unwrap();
    second.begin();
    bank.add(second, 9, 1).unwrap();
    let update = bank.adding_to(lone, &[1, 5, 9], 1, 10);
    assert!(matches!(lone.start(&update), Step::Pending), "holds 1, waits for 5");
    let update = bank.adding(second, 1, 1);
    assert!(matches!(second.start(&update), Step::Pending), "waits for 1");
    first.commit().unwrap();
    lone.port.poll(&mut Vec::new());
    let step = lone.resume();
    assert!(matches!(step, Step::Pending), "the victim has released 1 and retries: {step:?}");
    second.end(Step::Pending).unwrap();
    second.commit().unwrap();
    assert_eq!(lone.end(Step::Pending).unwrap().tag, Tag::Update(3));
    assert_eq!(bank.total(lone), 10 * 100 + 3 + 30);
    workers.into_iter().for_each(Worker::close);
    engine.shutdown().unwrap();
}

/// The single statement is the victim although the block closes the cycle, at another partition.
#[test]
fn block_survives_a_deadlock_with_a_single_statement() {
    for partitions in [1, 2] {
        let engine = open(&MemDisk::new(), partitions, 2);
        let mut workers = [0, 1].map(|worker| Worker::new(&engine, worker));
        let [lone, block] = &mut workers;
        let bank = Bank::create(lone, 10, 100);
        // The statement takes rows in order, separately in each partition.
        let held = (0..10).rfind(|id| Bank::home(*id, partitions).0 == partitions - 1).unwrap();
        let wanted = (0..10).find(|id| Bank::home(*id, partitions).0 == 0).unwrap();
        block.begin();
        bank.add(block, held, 1).unwrap();
        let update = bank.adding_to_all(lone, 10);
        assert!(matches!(lone.start(&update), Step::Pending), "waits for {held}");
        let update = bank.adding(block, wanted, 1);
        let mut step = block.start(&update);
        while let Step::Pending = step {
            lone.port.poll(&mut Vec::new());
            assert!(matches!(lone.resume(), Step::Pending), "the victim is undone and retries");
            block.port.poll(&mut Vec::new());
            step = block.resume();
            std::thread::yield_now();
        }
        block.end(step).unwrap();
        block.commit().unwrap();
        assert_eq!(
            lone.end(Step::Pending).unwrap().tag,
            Tag::Update(10),
            "the client does not notice"
        );
        assert_eq!(bank.total(lone), 10 * 100 + 2 + 100);
        workers.into_iter().for_each(Worker::close);
        engine.shutdown().unwrap();
    }
}

#[test]
fn block_with_less_work_is_the_victim() {
    for closes in [0, 1] {
        let engine = open(&MemDisk::new(), 1, 2);
        let mut workers = [0, 1].map(|worker| Worker::new(&engine, worker));
        let bank = Bank::create(&mut workers[0], 10, 100);
        for worker in &mut workers {
            worker.begin();
        }
        // The first to begin has the lower id: with equal work it would survive.
        [1, 2].into_iter().for_each(|id| drop(bank.add(&mut workers[1], id, 1).unwrap()));
        bank.add(&mut workers[0], 5, 1).unwrap();
        let wanted = [1, 5];
        let waits = 1 - closes;
        let update = bank.adding(&mut workers[waits], wanted[waits], 1);
        assert!(matches!(workers[waits].start(&update), Step::Pending));
        let update = bank.adding(&mut workers[closes], wanted[closes], 1);
        let step = workers[closes].start(&update);
        let mut steps = [Step::Pending, Step::Pending];
        steps[closes] = step;
        let [less, more] = steps;
        assert_eq!(workers[0].end(less).unwrap_err().state(), SqlState::DEADLOCK);
        workers[0].rollback();
        workers[1].end(more).unwrap();
        workers[1].commit().unwrap();
        assert_eq!(bank.total(&mut workers[0]), 10 * 100 + 3);
        workers.into_iter().for_each(Worker::close);
        engine.shutdown().unwrap();
    }
}

/// A commit first releases the partition with the most waits.
#[test]
fn most_contended_partition_is_released_first() {
    let engine = open(&MemDisk::new(), 2, 2);
    let (mut holder, mut waiters) = (Worker::new(&engine, 0), Worker::new(&engine, 1));
    let bank = Bank::create(&mut holder, 20, 100);
    for hot in [0, 1] {
        let here = |partition| (0..20).filter(move |id| Bank::home(*id, 2).0 == partition);
        let wanted: Vec<i32> = here(1 - hot).take(1).chain(here(hot).take(3)).collect();
        holder.begin();
        wanted.iter().for_each(|id| drop(bank.add(&mut holder, *id, 1).unwrap()));
        let mut clients: Vec<Client> =
            (1..=4).map(|session| Client::new(&mut waiters.port, session)).collect();
        for (client, id) in clients.iter_mut().zip(&wanted) {
            let update = bank.adding(&mut waiters, *id, 1);
            let step = client.start(&update, &Arc::new(Env::default()), serializable());
            assert!(matches!(step, Step::Pending));
        }
        let mut events = Vec::new();
        waiters.port.poll(&mut events);
        events.clear();
        holder.commit().unwrap();
        waiters.port.poll(&mut events);
        let order = events.iter().filter_map(|event| match event {
            Event::Continue { session } => Some(*session),
            Event::Durable(_) => None,
        });
        assert_eq!(order.collect::<Vec<_>>().last(), Some(&1), "alone at its partition");
        for mut client in clients {
            assert!(matches!(client.resume(), Step::Done(Ok(_))));
            client.close();
        }
        waiters.port.poll(&mut events);
    }
    assert_eq!(bank.total(&mut holder), 20 * 100 + 16);
    [holder, waiters].into_iter().for_each(Worker::close);
    engine.shutdown().unwrap();
}

/// The other fragments may wait for an unrelated, idle transaction.
#[test]
fn failed_fragment_ends_the_others() {
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
            assert!(
                matches!(&step, Step::Done(Err(r)) if r.error.state() == SqlState::UNIQUE_VIOLATION),
                "{step:?}"
            );
        }
        inserter.rollback();
        idle.rollback();
    }
    assert_eq!(bank.total(&mut inserter), 1000);
    [idle, inserter].into_iter().for_each(Worker::close);
    engine.shutdown().unwrap();
}
