use super::handshake::{HELLO_BYTES, NONCE_BYTES, PROOF_BYTES, Role};
use super::*;
use crate::{
    Completion, Fabric, FabricError, FabricNode, FabricWorker, QueueId, Region, RemoteAddr,
    Request, ScratchRange, Verb, VerbError, WorkerAddr, conformance,
};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

const SECRET: &[u8] = b"sixteen bytes or more";

fn node(number: u32, secret: &[u8]) -> TcpFabric {
    let listen = "127.0.0.1:0".parse().unwrap();
    TcpFabric::bind(TcpConfig { node: FabricNode(number), listen, secret: secret.into() }).unwrap()
}

fn pair() -> (TcpFabric, TcpFabric) {
    let (a, b) = (node(0, SECRET), node(1, SECRET));
    a.add_peer(b.node(), b.address());
    b.add_peer(a.node(), a.address());
    (a, b)
}

fn finish(worker: &mut TcpWorker, count: usize) -> Vec<Completion> {
    let mut done = Vec::new();
    while done.len() < count {
        worker.poll(&mut done);
        worker.wait();
    }
    done
}

/// A well-behaved worker beside hostile ones, and its counter.
struct Neighbour {
    worker: TcpWorker,
    queue: QueueId,
    region: TcpRegion,
    count: u64,
}

impl Neighbour {
    fn new(a: &TcpFabric, b: &TcpFabric) -> Self {
        let region = b.register(16).unwrap();
        let mut worker = a.worker(1, 16).unwrap();
        let queue = worker.connect(WorkerAddr { node: b.node(), port: 1 }).unwrap();
        Self { worker, queue, region, count: 0 }
    }

    fn is_served(&mut self) {
        let remote = RemoteAddr { key: self.region.key(), word: 0 };
        self.worker
            .post(self.queue, &[Request::new(0, Verb::Faa { remote, add: 1, old: 0 })])
            .unwrap();
        assert_eq!(finish(&mut self.worker, 1)[0].result, Ok(1));
        self.count += 1;
        assert_eq!(self.region.load(0), self.count);
    }
}

/// Connects a member that writes raw bytes.
fn member(b: &TcpFabric) -> TcpStream {
    let mut stream = TcpStream::connect(b.address()).unwrap();
    let from = WorkerAddr { node: FabricNode(9), port: 9 };
    let hello = handshake::hello(from, WorkerAddr { node: b.node(), port: 9 });
    stream.write_all(&hello).unwrap();
    let (mut nonce, mut proof) = ([0; NONCE_BYTES], [0; PROOF_BYTES]);
    stream.read_exact(&mut nonce).unwrap();
    stream.read_exact(&mut proof).unwrap();
    assert!(handshake::is_proven(SECRET, Role::Accept, &hello, &nonce, &proof));
    stream.write_all(&handshake::proof(SECRET, Role::Connect, &hello, &nonce)).unwrap();
    stream.read_exact(&mut [0]).unwrap();
    stream
}

/// Reads until the other side closes.
fn is_closed(mut stream: TcpStream) -> bool {
    let mut bytes = [0; 1024];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(why) => return why.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn conforms() {
    conformance::run(pair);
}

#[test]
fn a_peer_with_another_secret_is_rejected() {
    let (a, b) = pair();
    let mut neighbour = Neighbour::new(&a, &b);
    let stranger = node(2, b"another secret, as long");
    stranger.add_peer(b.node(), b.address());
    a.add_peer(stranger.node(), stranger.address());
    let connect = |from: &TcpFabric, to: FabricNode| {
        from.worker(5, 1).unwrap().connect(WorkerAddr { node: to, port: 0 })
    };
    // The connecting side finds out first, whichever side has the wrong secret.
    assert!(matches!(connect(&stranger, b.node()), Err(FabricError::Authentication)));
    assert!(matches!(connect(&a, stranger.node()), Err(FabricError::Authentication)));
    assert!(matches!(connect(&a, FabricNode(77)), Err(FabricError::UnknownPeer)));
    // The address belongs to a different node.
    a.add_peer(FabricNode(78), b.address());
    assert!(connect(&a, FabricNode(78)).is_err());
    let listen = "127.0.0.1:0".parse().unwrap();
    assert!(
        TcpFabric::bind(TcpConfig { node: FabricNode(3), listen, secret: b"short".into() })
            .is_err()
    );
    neighbour.is_served();
}

#[test]
fn a_proof_holds_for_one_side_and_one_handshake() {
    let address = |node| WorkerAddr { node: FabricNode(node), port: 1 };
    let (first, second) =
        (handshake::hello(address(0), address(1)), handshake::hello(address(0), address(1)));
    let (nonce, other) = (handshake::nonce(), handshake::nonce());
    let proof = handshake::proof(SECRET, Role::Connect, &first, &nonce);
    assert!(handshake::is_proven(SECRET, Role::Connect, &first, &nonce, &proof));
    // A replay, a reflection, and another secret.
    assert!(!handshake::is_proven(SECRET, Role::Connect, &second, &nonce, &proof));
    assert!(!handshake::is_proven(SECRET, Role::Connect, &first, &other, &proof));
    assert!(!handshake::is_proven(SECRET, Role::Accept, &first, &nonce, &proof));
    assert!(!handshake::is_proven(
        b"another secret, as long",
        Role::Connect,
        &first,
        &nonce,
        &proof
    ));
    assert_eq!(handshake::addresses(&first), Some((address(0), address(1))));
    assert_eq!(handshake::addresses(&[0; HELLO_BYTES]), None);
    assert!(!first.windows(SECRET.len()).any(|bytes| bytes == SECRET));
}

#[test]
fn unproven_connections_are_limited() {
    let (a, b) = pair();
    let mut neighbour = Neighbour::new(&a, &b);
    let mut silent: Vec<_> =
        (0..=MAX_UNPROVEN).map(|_| TcpStream::connect(b.address()).unwrap()).collect();
    assert!(is_closed(silent.remove(0)), "the oldest makes room");
    for mut stranger in silent {
        // Verbs before any proof, in place of a hello.
        let mut bytes = vec![0; HELLO_BYTES];
        frame::faa(&mut bytes, neighbour.region.key().key, 0, 1000);
        // The other side may have closed the connection already.
        let _ = stranger.write_all(&bytes);
        assert!(is_closed(stranger));
    }
    neighbour.is_served();
}

#[test]
fn verbs_in_place_of_a_proof_are_not_executed() {
    let (a, b) = pair();
    let mut neighbour = Neighbour::new(&a, &b);
    let mut stranger = TcpStream::connect(b.address()).unwrap();
    let mut bytes = handshake::hello(
        WorkerAddr { node: FabricNode(0), port: 3 },
        WorkerAddr { node: b.node(), port: 3 },
    )
    .to_vec();
    bytes.extend([7; PROOF_BYTES]);
    frame::faa(&mut bytes, neighbour.region.key().key, 0, 1000);
    stranger.write_all(&bytes).unwrap();
    assert!(is_closed(stranger));
    neighbour.is_served();
}

#[test]
fn a_bad_frame_closes_only_its_connection() {
    let (a, b) = pair();
    let mut neighbour = Neighbour::new(&a, &b);
    let mut read_done = Vec::new();
    frame::read_done(&mut read_done, &[1]);
    let hostile: [&[u8]; 6] = [
        &[0, 0, 0, 0],
        &[255, 255, 255, 255, 1],
        &[1, 0, 0, 0, 99],
        &[2, 0, 0, 0, 20, 3],
        // A READ of no words.
        &[21, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &read_done,
    ];
    for bytes in hostile {
        let mut stream = member(&b);
        stream.write_all(bytes).unwrap();
        assert!(is_closed(stream), "{bytes:?}");
        neighbour.is_served();
    }
    // The worker that receives a hostile member's messages loses that queue pair.
    let mut worker = b.worker(9, 4).unwrap();
    let mut stream = member(&b);
    let queue = loop {
        match worker.accept() {
            Some((queue, _)) => break queue,
            None => worker.wait(),
        }
    };
    worker.post(queue, &[Request::new(1, Verb::Recv { local: ScratchRange::new(0, 4) })]).unwrap();
    stream.write_all(&[0, 0, 0, 0]).unwrap();
    assert_eq!(finish(&mut worker, 1)[0].result, Err(VerbError::Flushed));
    neighbour.is_served();
}

/// The peers of one-sided verbs come and go; nobody takes the mail of their port.
#[test]
fn closed_connections_leave_a_port_without_a_worker() {
    let (a, b) = pair();
    let mut neighbour = Neighbour::new(&a, &b);
    let _lasting = member(&b);
    for refused in [false, true].repeat(5) {
        let mut stream = member(&b);
        let mut bytes = Vec::new();
        frame::send(&mut bytes, &[1]);
        if refused {
            frame::faa(&mut bytes, 0, 0, 1);
        }
        stream.write_all(&bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(is_closed(stream));
    }
    // The adapter has forgotten the last one before it serves this.
    neighbour.is_served();
    let mut worker = b.worker(9, 4).unwrap();
    assert!(worker.accept().is_some());
    assert!(worker.accept().is_none(), "a closed connection is left");
}

#[test]
fn unreceived_messages_are_limited() {
    let (a, b) = pair();
    let mut neighbour = Neighbour::new(&a, &b);
    let mut stream = member(&b);
    let mut bytes = Vec::new();
    (0..=QUEUE_DEPTH).for_each(|_| frame::send(&mut bytes, &[1]));
    // The connection may be closed before everything is written.
    let _ = stream.write_all(&bytes);
    assert!(is_closed(stream));
    neighbour.is_served();
}

/// Nobody takes the mail of the member's port, so it must not get any for nothing.
#[test]
fn an_end_without_a_message_closes_the_connection() {
    let (a, b) = pair();
    let mut neighbour = Neighbour::new(&a, &b);
    let mut stream = member(&b);
    let mut bytes = Vec::new();
    frame::send_done(&mut bytes, frame::SendStatus::Taken);
    frame::faa(&mut bytes, 0, 0, 1);
    stream.write_all(&bytes).unwrap();
    assert_eq!(stream.read(&mut [0; 16]).unwrap_or(0), 0, "the next frame was handled");
    neighbour.is_served();
}

/// The adapter closes the oldest connection if too many are unproven.
#[test]
fn a_connection_closed_in_the_handshake_is_tried_again() {
    let a = node(0, SECRET);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    a.add_peer(FabricNode(1), listener.local_addr().unwrap());
    let acceptor = std::thread::spawn(move || {
        drop(listener.accept().unwrap());
        let (mut stream, _) = listener.accept().unwrap();
        let (mut hello, nonce) = ([0; HELLO_BYTES], handshake::nonce());
        stream.read_exact(&mut hello).unwrap();
        stream.write_all(&nonce).unwrap();
        stream.write_all(&handshake::proof(SECRET, Role::Accept, &hello, &nonce)).unwrap();
        stream.read_exact(&mut [0; PROOF_BYTES]).unwrap();
        stream.write_all(&[handshake::WELCOME]).unwrap();
    });
    let mut worker = a.worker(1, 1).unwrap();
    worker.connect(WorkerAddr { node: FabricNode(1), port: 1 }).unwrap();
    acceptor.join().unwrap();
}

#[test]
fn a_peer_that_does_not_read_delays_only_itself() {
    const READS: usize = 500;
    let (a, b) = pair();
    let mut neighbour = Neighbour::new(&a, &b);
    let large = b.register(frame::MAX_WORDS).unwrap();
    let mut stream = member(&b);
    let mut bytes = Vec::new();
    (0..READS).for_each(|_| frame::read(&mut bytes, large.key().key, 0, frame::MAX_WORDS as u32));
    stream.write_all(&bytes).unwrap();
    neighbour.is_served();
    // All replies come once it reads.
    let mut answers = vec![0; READS * (4 + 1 + frame::MAX_WORDS * 8)];
    stream.read_exact(&mut answers).unwrap();
    neighbour.is_served();
}

#[test]
fn a_dead_node_fails_requests_in_flight() {
    let (a, b) = pair();
    let mut client = a.worker(1, 4).unwrap();
    let peer = WorkerAddr { node: b.node(), port: 3 };
    let queue = client.connect(peer).unwrap();
    // No RECV will be posted for it.
    client.post(queue, &[Request::new(1, Verb::Send { local: ScratchRange::new(0, 1) })]).unwrap();
    client.post(queue, &[Request::new(2, Verb::Recv { local: ScratchRange::new(0, 1) })]).unwrap();
    drop(b);
    let mut done = finish(&mut client, 2);
    done.sort_by_key(|c| c.id);
    assert_eq!(
        done.iter().map(|c| c.result).collect::<Vec<_>>(),
        [Err(VerbError::PeerDead), Err(VerbError::Flushed)]
    );
    assert!(client.connect(peer).is_err());
}

#[test]
fn a_node_still_serves_after_its_worker_is_dropped() {
    let (a, b) = pair();
    let mut neighbour = Neighbour::new(&a, &b);
    let server = b.worker(1, 4).unwrap();
    let send = Request::new(1, Verb::Send { local: ScratchRange::new(0, 1) });
    neighbour.worker.post(neighbour.queue, &[send]).unwrap();
    neighbour.is_served_beside_a_message();
    drop(server);
    assert_eq!(finish(&mut neighbour.worker, 2)[0].result, Err(VerbError::PeerDead));
    neighbour.queue = neighbour.worker.connect(WorkerAddr { node: b.node(), port: 2 }).unwrap();
    neighbour.is_served();
}

impl Neighbour {
    /// Posts an FAA behind a SEND: it is executed although its completion waits.
    fn is_served_beside_a_message(&mut self) {
        let remote = RemoteAddr { key: self.region.key(), word: 0 };
        self.worker
            .post(self.queue, &[Request::new(2, Verb::Faa { remote, add: 1, old: 0 })])
            .unwrap();
        self.count += 1;
        while self.region.load(0) != self.count {
            self.worker.wait();
        }
    }
}

#[test]
fn frames_round_trip() {
    let mut bytes = Vec::new();
    frame::read(&mut bytes, 1, 2, 3);
    frame::write(&mut bytes, 4, 5, &[6, 7]);
    frame::cas(&mut bytes, 8, 9, 10, 11);
    frame::faa(&mut bytes, 12, 13, 14);
    frame::send_done(&mut bytes, frame::SendStatus::TooLong);
    frame::left(&mut bytes);
    let mut found = Vec::new();
    let mut rest = &bytes[..];
    while let Some((frame, length)) = frame::decode(rest).unwrap() {
        assert!(
            (0..length).all(|part| frame::decode(&rest[..part]).unwrap().is_none()),
            "a part of a frame was decoded"
        );
        found.push(format!("{frame:?}"));
        rest = &rest[length..];
    }
    assert_eq!(found.len(), 6);
    assert_eq!(found[5], "Left");
    assert_eq!(found[0], "Read { key: 1, word: 2, words: 3 }");
    assert_eq!(found[2], "Cas { key: 8, word: 9, expected: 10, new: 11 }");
    assert_eq!(found[4], "SendDone(TooLong)");
}
