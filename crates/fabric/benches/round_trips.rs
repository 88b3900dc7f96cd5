//! Round trips of READ, WRITE and CAS over TCP, compared with a bare ping-pong of the same sizes.
//! Both sides run in alternating turns of the same process while a thread of the owner keeps
//! computing. Run with `cargo bench -p clearway-fabric`; as a test, the sizes are tiny.
//!
//! The bar: p50 at most 1.2 times the bare ping-pong.

use clearway_fabric::tcp::{TcpConfig, TcpFabric, TcpWorker};
use clearway_fabric::{
    Fabric, FabricNode, FabricWorker, QueueId, Region, RemoteAddr, Request, ScratchRange, Verb,
    WorkerAddr,
};
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Turns of each side, and round trips in one turn.
const TURNS: usize = 20;
const ROUND_TRIPS: usize = 1000;

/// A verb, with the sizes of its request and reply frames in bytes.
struct Case {
    name: &'static str,
    verb: Verb,
    request: usize,
    reply: usize,
}

fn cases(remote: RemoteAddr) -> Vec<Case> {
    let local = |words| ScratchRange::new(0, words);
    let read = |name, words| Case {
        name,
        verb: Verb::Read { remote, local: local(words) },
        request: 25,
        reply: 5 + 8 * words,
    };
    let write = |name, words| Case {
        name,
        verb: Verb::Write { local: local(words), remote },
        request: 21 + 8 * words,
        reply: 5,
    };
    let cas = Verb::Cas { remote, expected: 0, new: 0, old: 0 };
    vec![
        read("READ 8 B", 1),
        read("READ 1 KiB", 128),
        write("WRITE 8 B", 1),
        write("WRITE 1 KiB", 128),
        Case { name: "CAS", verb: cas, request: 37, reply: 13 },
    ]
}

fn fabric_turn(
    worker: &mut TcpWorker,
    queue: QueueId,
    verb: Verb,
    count: usize,
    times: &mut Vec<Duration>,
) {
    let mut done = Vec::with_capacity(1);
    for id in 0..count {
        let start = Instant::now();
        worker.post(queue, &[Request::new(id as u64, verb)]).expect("posted");
        while worker.poll(&mut done) == 0 {
            worker.wait();
        }
        times.push(start.elapsed());
        assert!(done.drain(..).all(|c| c.id == id as u64 && c.result.is_ok()));
    }
}

fn bare_turn(
    stream: &mut TcpStream,
    request: usize,
    reply: usize,
    count: usize,
    times: &mut Vec<Duration>,
) {
    let (request, mut reply) = (vec![1; request], vec![0; reply]);
    for _ in 0..count {
        let start = Instant::now();
        stream.write_all(&request).expect("sent");
        stream.read_exact(&mut reply).expect("received");
        times.push(start.elapsed());
    }
}

/// Answers requests of one size with replies of another until the client disconnects. Then serves
/// the next client with the next pair of sizes.
fn bare_server(listener: &TcpListener, sizes: &[(usize, usize)]) {
    for (request, reply) in sizes {
        let (mut stream, _) = listener.accept().expect("a client");
        stream.set_nodelay(true).expect("an option");
        let (mut request, reply) = (vec![0; *request], vec![1; *reply]);
        while stream.read_exact(&mut request).is_ok() {
            if stream.write_all(&reply).is_err() {
                break;
            }
        }
    }
}

fn quantile_us(times: &mut [Duration], percent: usize) -> f64 {
    times.sort_unstable();
    times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e6
}

fn node(number: u32) -> TcpFabric {
    let listen = "127.0.0.1:0".parse().expect("an address");
    let secret = b"a secret of a benchmark".to_vec();
    TcpFabric::bind(TcpConfig { node: FabricNode(number), listen, secret }).expect("a node")
}

/// Runs every case, both sides in alternating turns, and prints the results.
fn run(
    worker: &mut TcpWorker,
    queue: QueueId,
    cases: &[Case],
    bare: &TcpListener,
    turns: usize,
    count: usize,
) {
    let address = bare.local_addr().expect("an address");
    println!(
        "{:<12} {:>8} {:>9} {:>8} {:>9} {:>6}",
        "verb", "p50 us", "bare p50", "p99 us", "bare p99", "ratio"
    );
    for case in cases {
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.set_nodelay(true).expect("an option");
        let (mut verbs, mut bare) = (Vec::new(), Vec::new());
        for _ in 0..turns {
            fabric_turn(worker, queue, case.verb, count, &mut verbs);
            bare_turn(&mut stream, case.request, case.reply, count, &mut bare);
        }
        let [p50, p99] = [50, 99].map(|percent| quantile_us(&mut verbs, percent));
        let [bare_p50, bare_p99] = [50, 99].map(|percent| quantile_us(&mut bare, percent));
        let ratio = p50 / bare_p50;
        println!(
            "{:<12} {p50:>8.1} {bare_p50:>9.1} {p99:>8.1} {bare_p99:>9.1} {ratio:>6.2}",
            case.name
        );
    }
}

fn main() {
    // `cargo bench` passes `--bench`; `cargo test` does not.
    let full = std::env::args().any(|argument| argument == "--bench");
    let (turns, count) = if full { (TURNS, ROUND_TRIPS) } else { (2, 5) };
    let (client, owner) = (node(0), node(1));
    client.add_peer(owner.node(), owner.address());
    let region = owner.register(1024).expect("a region");
    let cases = cases(RemoteAddr { key: region.key(), word: 0 });
    let sizes: Vec<(usize, usize)> = cases.iter().map(|case| (case.request, case.reply)).collect();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| bare_server(&listener, &sizes));
        scope.spawn(|| {
            let mut number = 1_u64;
            // Relaxed: the flag publishes nothing.
            while !stop.load(Ordering::Relaxed) {
                number = black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
            }
        });
        let mut worker = client.worker(0, 1024).expect("a worker");
        let queue =
            worker.connect(WorkerAddr { node: owner.node(), port: 0 }).expect("a queue pair");
        run(&mut worker, queue, &cases, &listener, turns, count);
        stop.store(true, Ordering::Relaxed); // Relaxed: as above.
    });
}
