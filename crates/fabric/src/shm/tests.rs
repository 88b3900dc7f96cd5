use super::*;
use crate::{
    Completion, Fabric, FabricNode, FabricWorker, QueueId, Region, RemoteAddr, Request,
    ScratchRange, Verb, VerbError, WorkerAddr, conformance,
};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn small() -> ShmConfig {
    ShmConfig {
        nodes: 4,
        workers: 8,
        regions: 8,
        queue_pairs: 32,
        ring_words: 16,
        heap_words: 1024,
    }
}

fn nodes(segment: &ShmSegment, latency: Duration) -> (ShmFabric, ShmFabric) {
    let node = |n| segment.node(FabricNode(n), latency).unwrap();
    (node(0), node(1))
}

/// Polls until `count` completions have arrived.
fn finish(worker: &mut ShmWorker, count: usize) -> Vec<Completion> {
    let mut done = Vec::new();
    while done.len() < count {
        worker.poll(&mut done);
        worker.wait();
    }
    done
}

#[test]
fn conforms() {
    conformance::run(|| {
        nodes(
            &ShmSegment::create(ShmConfig { ring_words: 4096, ..small() }).unwrap(),
            Duration::ZERO,
        )
    });
}

#[test]
fn conforms_with_messages_in_pieces_and_latency() {
    // A ring of 4 words cannot hold a whole message.
    conformance::run(|| {
        let segment = ShmSegment::create(ShmConfig { ring_words: 4, ..small() }).unwrap();
        nodes(&segment, Duration::from_nanos(500))
    });
}

#[test]
fn supplies_are_bounded() {
    let segment = ShmSegment::create(small()).unwrap();
    let (a, b) = nodes(&segment, Duration::ZERO);
    assert!(segment.node(FabricNode(0), Duration::ZERO).is_err(), "this process is alive");
    assert!(segment.node(FabricNode(4), Duration::ZERO).is_err());
    let _most = a.register(1000).unwrap();
    assert!(a.register(25).is_err() && a.register(0).is_err());
    drop(a.register(24).unwrap());
    assert!(a.register(1).is_err(), "heap words are not reused");
    let mut worker = b.worker(1, 1).unwrap();
    assert!(b.worker(1, 1).is_err());
    let peer = WorkerAddr { node: a.node(), port: 1 };
    assert!((0..32).all(|_| worker.connect(peer).is_ok()));
    assert!(worker.connect(peer).is_err());
    assert!(worker.connect(WorkerAddr { node: FabricNode(3), port: 1 }).is_err());
    for hostile in
        [ShmConfig { nodes: 0, ..small() }, ShmConfig { heap_words: usize::MAX, ..small() }]
    {
        assert!(ShmSegment::create(hostile).is_err());
    }
}

#[test]
fn a_dropped_peer_fails_messages_only() {
    let segment = ShmSegment::create(small()).unwrap();
    let (a, b) = nodes(&segment, Duration::ZERO);
    let region = b.register(1).unwrap();
    let mut server = b.worker(1, 1).unwrap();
    let mut client = a.worker(1, 64).unwrap();
    let queue = client.connect(server.address()).unwrap();
    server.accept().unwrap();
    let faa = Verb::Faa { remote: RemoteAddr { key: region.key(), word: 0 }, add: 1, old: 0 };
    let send = Verb::Send { local: ScratchRange::new(0, 40) };
    client.post(queue, &[Request::new(1, faa)]).unwrap();
    drop(server);
    client
        .post(queue, &[Request::new(2, faa), Request::new(3, send), Request::new(4, faa)])
        .unwrap();
    let results: Vec<_> = finish(&mut client, 4).iter().map(|c| c.result).collect();
    assert_eq!(results, [Ok(1), Ok(1), Err(VerbError::PeerDead), Err(VerbError::Flushed)]);
    assert_eq!(region.load(0), 2);
}

/// The body of the second process; does nothing when it runs as an ordinary test.
///
/// It attaches as node 1, adds to the given region, registers a region of its own, and then waits
/// for a message or for its death.
#[test]
fn other_process() {
    let Ok(path) = std::env::var("CLEARWAY_FABRIC_TEST_SEGMENT") else { return };
    let key = std::env::var("CLEARWAY_FABRIC_TEST_KEY").unwrap().parse().unwrap();
    let node =
        ShmSegment::attach(path.as_ref()).unwrap().node(FabricNode(1), Duration::ZERO).unwrap();
    let mut worker = node.worker(0, 8).unwrap();
    let queue = worker.connect(WorkerAddr { node: FabricNode(0), port: 0 }).unwrap();
    // Nothing is ever sent on this queue pair.
    worker.connect(WorkerAddr { node: FabricNode(0), port: 0 }).unwrap();
    let remote = RemoteAddr { key: crate::RegionKey { key, base: 0 }, word: 0 };
    for id in 0..1000 {
        worker.post(queue, &[Request::new(id, Verb::Faa { remote, add: 1, old: 0 })]).unwrap();
        finish(&mut worker, 1);
    }
    let own = node.register(8).unwrap();
    own.store(7, 77);
    worker.store(0, own.key().key);
    worker.post(queue, &[Request::new(1, Verb::Send { local: ScratchRange::new(0, 1) })]).unwrap();
    finish(&mut worker, 1);
    // Runs until the parent kills it.
    std::io::stdin().lines().for_each(drop);
}

fn start_other(segment: &ShmSegment, region: &ShmRegion) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "shm::tests::other_process", "--nocapture"])
        .env("CLEARWAY_FABRIC_TEST_SEGMENT", segment.path())
        .env("CLEARWAY_FABRIC_TEST_KEY", region.key().key.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn memory_of_a_killed_process_stays() {
    let segment = ShmSegment::create(small()).unwrap();
    let node = segment.node(FabricNode(0), Duration::ZERO).unwrap();
    let region = node.register(1).unwrap();
    let mut worker = node.worker(0, 64).unwrap();
    let mut other = start_other(&segment, &region);
    let mut accept = |worker: &mut ShmWorker| loop {
        match worker.accept() {
            Some((accepted, _)) => return accepted,
            None => assert!(other.try_wait().unwrap().is_none(), "the other process ended"),
        }
        worker.wait();
    };
    let (accepted, silent) = (accept(&mut worker), accept(&mut worker));
    // Both processes add at the same time; this one uses its CPU.
    for _ in 0..1000 {
        region.fetch_add(0, 1);
    }
    let recv = |id| Request::new(id, Verb::Recv { local: ScratchRange::new(0, 1) });
    worker.post(accepted, &[recv(1)]).unwrap();
    assert_eq!(finish(&mut worker, 1)[0].result, Ok(1));
    assert_eq!(region.load(0), 2000);
    let theirs = RemoteAddr { key: crate::RegionKey { key: worker.load(0), base: 0 }, word: 7 };
    worker.post(silent, &[recv(4)]).unwrap();
    other.kill().unwrap();
    other.wait().unwrap();
    // A RECV from the dead process fails after a while.
    let flushed = Completion { queue: silent, id: 4, result: Err(VerbError::Flushed) };
    assert_eq!(finish(&mut worker, 1), [flushed]);
    // A message to the dead process fails after a while. Its memory is still accessible.
    worker
        .post(accepted, &[Request::new(2, Verb::Send { local: ScratchRange::new(0, 1) })])
        .unwrap();
    assert_eq!(finish(&mut worker, 1)[0].result, Err(VerbError::PeerDead));
    let read = |worker: &mut ShmWorker, queue: QueueId| {
        worker
            .post(
                queue,
                &[Request::new(3, Verb::Read { remote: theirs, local: ScratchRange::new(5, 1) })],
            )
            .unwrap();
        finish(worker, 1)[0].result
    };
    let queue = worker.connect(WorkerAddr { node: FabricNode(1), port: 0 }).unwrap();
    assert_eq!((read(&mut worker, queue), worker.load(5)), (Ok(1), 77));
    // The node can be attached again.
    let again = segment.node(FabricNode(1), Duration::ZERO).unwrap();
    assert!(again.worker(0, 1).is_ok());
}

#[test]
fn a_death_before_accept_is_noticed_after_the_node_is_attached_again() {
    let segment = ShmSegment::create(small()).unwrap();
    let node = segment.node(FabricNode(0), Duration::ZERO).unwrap();
    let region = node.register(1).unwrap();
    let mut worker = node.worker(0, 64).unwrap();
    let mut other = start_other(&segment, &region);
    // It adds after it has connected.
    while region.load(0) < 1000 {
        assert!(other.try_wait().unwrap().is_none(), "the other process ended");
        worker.wait();
    }
    other.kill().unwrap();
    other.wait().unwrap();
    let _again = segment.node(FabricNode(1), Duration::ZERO).unwrap();
    worker.accept().unwrap();
    let (silent, _) = worker.accept().unwrap();
    worker.post(silent, &[Request::new(1, Verb::Recv { local: ScratchRange::new(0, 1) })]).unwrap();
    let flushed = Completion { queue: silent, id: 1, result: Err(VerbError::Flushed) };
    assert_eq!(finish(&mut worker, 1), [flushed]);
}

#[test]
fn whole_messages_of_a_dropped_peer_are_received() {
    // A ring of 16 words holds the first message and a part of the second.
    let segment = ShmSegment::create(small()).unwrap();
    let (a, b) = nodes(&segment, Duration::ZERO);
    let mut server = b.worker(1, 64).unwrap();
    let mut client = a.worker(1, 64).unwrap();
    let queue = client.connect(server.address()).unwrap();
    let (accepted, _) = server.accept().unwrap();
    let send = |words| Request::new(0, Verb::Send { local: ScratchRange::new(0, words) });
    client.post(queue, &[send(4), send(30)]).unwrap();
    drop(client);
    let recv = |id| Request::new(id, Verb::Recv { local: ScratchRange::new(0, 40) });
    server.post(accepted, &[recv(1), recv(2), recv(3)]).unwrap();
    let results: Vec<_> = finish(&mut server, 3).iter().map(|c| c.result).collect();
    assert_eq!(results, [Ok(4), Err(VerbError::Flushed), Err(VerbError::Flushed)]);
}

#[test]
fn a_foreign_file_is_rejected() {
    let words = clearway_env::SharedWords::create("foreign", 64).unwrap();
    assert!(ShmSegment::attach(&words.path()).is_err());
    words[0].store(layout::MAGIC, std::sync::atomic::Ordering::Relaxed); // Relaxed: one thread.
    assert!(ShmSegment::attach(&words.path()).is_err());
    (1..7)
        // As above.
        .for_each(|limit| words[limit].store(u64::MAX >> 8, std::sync::atomic::Ordering::Relaxed));
    assert!(ShmSegment::attach(&words.path()).is_err());
}
