//! The simulation conforms, and shows each weakness that it claims under some seed.

use super::*;
use crate::{
    Completion, Fabric, FabricWorker, QueueId, Region, RemoteAddr, Request, ScratchRange, Verb,
    VerbError, conformance,
};

/// Seeds among which every weakness must show.
const SEEDS: u64 = 200;

struct World {
    network: Network,
    owner: SimNode,
    region: SimRegion,
    workers: Vec<(SimWorker, QueueId)>,
}

impl World {
    /// Creates an owner with a region and `workers` workers on another node, each connected to the
    /// owner.
    fn new(seed: u64, workers: u32) -> Self {
        let network = Network::new(seed, SimConfig::default());
        let (owner, node) = (network.add_node(), network.add_node());
        let region = owner.register(32).unwrap();
        let connect = |port| {
            let mut worker = node.worker(port, 32).unwrap();
            let queue = worker.connect(WorkerAddr { node: owner.node(), port }).unwrap();
            (worker, queue)
        };
        Self { workers: (0..workers).map(connect).collect(), network, owner, region }
    }

    fn at(&self, word: u64) -> RemoteAddr {
        RemoteAddr { key: self.region.key(), word }
    }

    fn write(&self, word: u64, words: usize) -> Request {
        Request::new(0, Verb::Write { local: ScratchRange::new(0, words), remote: self.at(word) })
    }

    fn read(&self, word: u64, words: usize) -> Request {
        Request::new(0, Verb::Read { remote: self.at(word), local: ScratchRange::new(16, words) })
    }

    fn faa(&self, word: u64) -> Request {
        Request::new(0, Verb::Faa { remote: self.at(word), add: 1, old: 31 })
    }

    fn post(&mut self, worker: usize, batch: &[Request]) {
        let (worker, queue) = &mut self.workers[worker];
        worker.post(*queue, batch).unwrap();
    }

    fn drain(&self) {
        while self.network.advance().is_some() {}
    }
}

/// Asserts that the case holds for some seeds and not for others.
fn shows_under_some_seed(case: impl Fn(u64) -> bool) {
    let shown = (0..SEEDS).filter(|seed| case(*seed)).count();
    assert!((1..SEEDS as usize).contains(&shown), "{shown} of {SEEDS} seeds");
}

#[test]
fn conforms() {
    for seed in 0..50 {
        conformance::run(|| {
            let network = Network::new(seed, SimConfig::default());
            (network.add_node(), network.add_node())
        });
    }
}

#[test]
fn conforms_where_reads_pass_atomics() {
    for seed in 0..20 {
        conformance::run(|| {
            let network = Network::new(
                seed,
                SimConfig { reads_follow_atomics: false, ..SimConfig::default() },
            );
            (network.add_node(), network.add_node())
        });
    }
}

#[test]
fn a_seed_names_its_run() {
    let run = |seed| {
        let mut world = World::new(seed, 2);
        let batch = [world.write(0, 16), world.read(0, 16), world.faa(0)];
        world.post(0, &batch);
        world.post(1, &batch);
        let mut steps = Vec::new();
        while let Some(step) = world.network.advance() {
            steps.push((world.network.now_ns(), step));
        }
        steps
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

#[test]
fn one_write_lands_in_any_order() {
    // The last word, for example a lock word, is seen before the payload.
    shows_under_some_seed(|seed| {
        let mut world = World::new(seed, 2);
        world.workers[0].0.store_range(0, &[1; 8]);
        let (write, read) = (world.write(0, 8), world.read(0, 8));
        world.post(0, &[write]);
        world.post(1, &[read]);
        world.drain();
        let mut found = [0; 8];
        world.workers[1].0.load_range(16, &mut found);
        found[7] == 1 && found[..7].contains(&0)
    });
}

#[test]
fn two_writes_land_in_any_order() {
    shows_under_some_seed(|seed| {
        let mut world = World::new(seed, 2);
        world.workers[0].0.store(0, 1);
        let (payload, flag, read) = (world.write(0, 1), world.write(1, 1), world.read(0, 2));
        world.post(0, &[payload, flag]);
        world.post(1, &[read, read, read]);
        let mut published_early = false;
        while world.network.advance().is_some() {
            published_early |= world.region.load(1) == 1 && world.region.load(0) == 0;
            published_early |= world.workers[1].0.load(17) == 1 && world.workers[1].0.load(16) == 0;
        }
        published_early
    });
}

#[test]
fn a_plain_write_is_lost_to_an_atomic() {
    // FAA reads 5, WRITE stores 0, FAA stores 6: the release by WRITE is lost.
    shows_under_some_seed(|seed| {
        let mut world = World::new(seed, 2);
        world.region.store(0, 5);
        let (release, faa) = (world.write(0, 1), world.faa(0));
        world.post(0, &[release]);
        world.post(1, &[faa]);
        world.drain();
        world.region.load(0) == 6 && world.workers[1].0.load(31) == 5
    });
}

#[test]
fn a_store_of_the_owner_is_lost_to_an_atomic() {
    shows_under_some_seed(|seed| {
        let mut world = World::new(seed, 1);
        world.region.store(0, 5);
        let faa = world.faa(0);
        world.post(0, &[faa]);
        world.network.set_timer(0, 1_000);
        while world.network.advance() != Some(SimStep::Timer(0)) {}
        world.region.store(0, 0);
        world.drain();
        world.region.load(0) == 6
    });
}

#[test]
fn an_unfenced_write_overtakes_a_read() {
    shows_under_some_seed(|seed| {
        let mut world = World::new(seed, 1);
        world.workers[0].0.store(0, 1);
        let (read, write) = (world.read(0, 1), world.write(0, 1));
        world.post(0, &[read, write]);
        world.drain();
        world.workers[0].0.load(16) == 1
    });
}

#[test]
fn queue_pairs_overtake_one_another() {
    shows_under_some_seed(|seed| {
        let mut world = World::new(seed, 2);
        let faa = world.faa(0);
        world.post(0, &[faa]);
        world.post(1, &[faa]);
        world.drain();
        world.workers[0].0.load(31) == 1
    });
}

#[test]
fn a_completed_write_may_not_be_visible() {
    shows_under_some_seed(|seed| {
        let mut world = World::new(seed, 1);
        let network = Network::new(
            seed,
            SimConfig { latency_ns: 10, jitter_ns: 0, spread_ns: 500, ..SimConfig::default() },
        );
        (world.owner, world.network) = (network.add_node(), network);
        world.region = world.owner.register(1).unwrap();
        let mut worker = world.network.add_node().worker(0, 1).unwrap();
        let queue = worker.connect(WorkerAddr { node: world.owner.node(), port: 0 }).unwrap();
        worker.store(0, 1);
        worker.post(queue, &[world.write(0, 1)]).unwrap();
        while worker.poll(&mut Vec::new()) == 0 {
            worker.wait();
        }
        world.region.load(0) == 0
    });
}

#[test]
fn a_dead_worker_leaves_half_a_write() {
    shows_under_some_seed(|seed| {
        let mut world = World::new(seed, 1);
        world.workers[0].0.store_range(0, &[1; 8]);
        let (write, faa) = (world.write(0, 8), world.faa(9));
        world.post(0, &[faa, write, faa]);
        let address = world.workers[0].0.address();
        world.network.crash_worker(address);
        world.drain();
        assert_eq!(world.workers[0].0.poll(&mut Vec::new()), 0, "a dead worker got a completion");
        let landed = (0..8).filter(|word| world.region.load(*word) == 1).count();
        assert!(world.region.load(9) < 2 || landed == 8, "requests are lost from the end");
        (1..8).contains(&landed)
    });
}

#[test]
fn a_dead_owner_is_noticed_after_the_timeout() {
    for seed in 0..20 {
        let mut world = World::new(seed, 1);
        let faa = world.faa(0);
        world.post(0, &[faa, faa]);
        world.network.crash_node(world.owner.node());
        world.post(0, &[faa]);
        world.drain();
        let mut done = Vec::new();
        world.workers[0].0.poll(&mut done);
        let results: Vec<_> = done.iter().map(|c: &Completion| c.result).collect();
        assert_eq!(
            results,
            [Err(VerbError::PeerDead), Err(VerbError::Flushed), Err(VerbError::Flushed)]
        );
        let timeout_ns = SimConfig::default().timeout_ns;
        assert!((timeout_ns..2 * timeout_ns).contains(&world.network.now_ns()));
        let gone = WorkerAddr { node: world.owner.node(), port: 9 };
        assert!(world.workers[0].0.connect(gone).is_err());
    }
}

#[test]
fn a_dead_workers_memory_stays_and_its_messages_fail() {
    let mut world = World::new(1, 1);
    let mut server = world.owner.worker(0, 4).unwrap();
    assert!(server.accept().is_some());
    let send = Request::new(0, Verb::Send { local: ScratchRange::new(0, 1) });
    world.post(0, &[send]);
    world.drain();
    world.network.crash_worker(server.address());
    world.drain();
    let mut done = Vec::new();
    world.workers[0].0.poll(&mut done);
    assert_eq!(done.iter().map(|c| c.result).collect::<Vec<_>>(), [Err(VerbError::PeerDead)]);
    let queue =
        world.workers[0].0.connect(WorkerAddr { node: world.owner.node(), port: 5 }).unwrap();
    let faa = world.faa(0);
    world.workers[0].0.post(queue, &[faa]).unwrap();
    world.drain();
    assert_eq!(world.region.load(0), 1);
}

#[test]
fn a_recv_is_flushed_after_the_timeout() {
    for node in [false, true] {
        let mut world = World::new(1, 1);
        let mut server = world.owner.worker(0, 4).unwrap();
        let (queue, _) = server.accept().unwrap();
        let recv = Request::new(7, Verb::Recv { local: ScratchRange::new(0, 1) });
        server.post(queue, &[recv]).unwrap();
        world.post(0, &[recv]);
        // Both are alive, so nothing happens.
        world.drain();
        let timeout_ns = SimConfig::default().timeout_ns;
        let dead = world.workers[0].0.address();
        match node {
            true => world.network.crash_node(dead.node),
            false => world.network.crash_worker(dead),
        }
        assert_eq!(world.network.now_ns(), 0);
        world.drain();
        let mut done = Vec::new();
        server.poll(&mut done);
        assert_eq!(done, [Completion { queue, id: 7, result: Err(VerbError::Flushed) }]);
        assert_eq!(world.network.now_ns(), timeout_ns);
    }
}

#[test]
fn a_read_takes_about_two_microseconds() {
    let mut world = World::new(1, 1);
    let read = world.read(0, 16);
    world.post(0, &[read]);
    world.drain();
    assert!((1_700..2_400).contains(&world.network.now_ns()), "{}", world.network.now_ns());
}
