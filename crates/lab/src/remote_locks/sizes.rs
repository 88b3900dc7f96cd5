//! Fetches words of various sizes from another thread of this machine: by a READ, by a message and
//! its reply, or by TCP.

use super::seeds;
use crate::bp::grid::{Cell, Grid, Measure};
use crate::experiment::Task;
use crate::number::median;
use crate::place::Placed;
use crate::progress::Progress;
use crate::result::{Axis, Configuration, Findings};
use clearway_env::{Clock, OsClock};
use clearway_fabric::shm::{ShmConfig, ShmFabric, ShmSegment, ShmWorker};
use clearway_fabric::{
    Completion, Fabric, FabricNode, FabricWorker, QueueId, Region, RemoteAddr, Request,
    ScratchRange, Verb, WorkerAddr,
};
use clearway_harness::Res;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

const NAME: &str = "remote-locks/fig1";
/// Words fetched at a time: 8 bytes to 16 KiB.
const WORDS: [usize; 6] = [1, 8, 32, 128, 512, 2048];
const QUICK_WORDS: [usize; 2] = [1, 128];
/// Runs that share `--seconds`.
const RUNS: u32 = 10;
const QUICK_RUN: Duration = Duration::from_millis(20);
/// Requests in flight while throughput is measured; 1 while latency is measured.
const DEPTH: usize = 16;
/// The value of every fetched word.
const VALUE: u64 = 0x0123_4567_89ab_cdef;

impl Placed for Figures {}

/// The result of one size of one system.
struct Figures {
    rate: f64,
    latency_us: f64,
}

const RATE: Measure<Figures> = Measure {
    name: "throughput",
    unit: "thousand/s",
    digits: 1,
    axis: Axis::log,
    events: None,
    of: |run| run.rate / 1e3,
};
const LATENCY: Measure<Figures> = Measure {
    name: "latency, median",
    unit: "us",
    digits: 2,
    axis: Axis::log,
    events: None,
    of: |run| run.latency_us,
};

/// A client that fetches words.
trait Fetch {
    /// Sends one request for the words.
    fn ask(&mut self) -> Res<()>;

    /// Waits for at least one reply and returns the number received.
    fn take(&mut self) -> Res<usize>;
}

type System = (&'static str, fn(usize, &mut dyn FnMut(&mut dyn Fetch) -> Res<()>) -> Res<()>);

const SYSTEMS: [System; 3] =
    [("one-sided", with_reads), ("two-sided", with_messages), ("TCP", with_tcp)];

/// Fetches for a time with `depth` requests in flight. Returns the replies per second and the
/// median time of one request.
fn fetch(client: &mut dyn Fetch, depth: usize, time: Duration) -> Res<(f64, f64)> {
    let begun = OsClock.monotonic();
    let (mut in_flight, mut answered, mut times_us) = (0, 0, Vec::new());
    loop {
        let asked = OsClock.monotonic();
        let is_over = asked - begun >= time;
        if is_over && in_flight == 0 {
            let rate = answered as f64 / (asked - begun).as_secs_f64();
            return Ok((rate, median(&times_us).unwrap_or(f64::NAN)));
        }
        while !is_over && in_flight < depth {
            client.ask()?;
            in_flight += 1;
        }
        let taken = client.take()?;
        in_flight -= taken;
        answered += taken;
        if depth == 1 {
            times_us.push((OsClock.monotonic() - asked).as_nanos() as f64 / 1e3);
        }
    }
}

/// Returns the length of one run: a tenth of `--seconds`, and at least 1 s.
fn length(task: &Task) -> Duration {
    if task.options.quick { QUICK_RUN } else { task.shared_time(RUNS) }
}

/// Runs every system at every size.
pub fn run(task: &Task) -> Res<Findings> {
    let sizes: &[usize] = if task.options.quick { &QUICK_WORDS } else { &WORDS };
    let time = length(task);
    let all = SYSTEMS.iter().flat_map(|system| sizes.iter().map(move |words| (system, *words)));
    let cases: Vec<_> = all
        .filter(|((name, _), words)| task.part.wants(&format!("{name} {}", words * 8), false))
        .collect();
    let seeds = seeds(task);
    let mut progress = Progress::new(NAME, cases.len() * seeds.len());
    let cell = |((name, _), words): &(&System, usize)| Cell {
        system: (*name).into(),
        x: (words * 8) as f64,
        figures: Vec::new(),
    };
    let title = "words of another thread, 2 threads".to_owned();
    let mut grid = Grid { title, x: "bytes", cells: cases.iter().map(cell).collect() };
    for _ in &seeds {
        for (((name, with), words), cell) in cases.iter().zip(&mut grid.cells) {
            progress.step(&format!("{name}, {} bytes", words * 8));
            with(*words, &mut |client| {
                let (_, latency_us) = fetch(client, 1, time)?;
                let (rate, _) = fetch(client, DEPTH, time)?;
                cell.figures.push(Figures { rate, latency_us });
                Ok(())
            })?;
        }
    }
    let settings = [
        ("milliseconds", time.as_millis().to_string()),
        ("requests in flight for throughput", DEPTH.to_string()),
        ("repetitions", task.repetitions().to_string()),
    ];
    Ok(Findings {
        configuration: Configuration::from(settings.map(|(name, value)| (name.to_owned(), value))),
        seeds: Vec::new(),
        samples: vec![grid.samples(&RATE), grid.samples(&LATENCY)],
        tables: vec![grid.table(&RATE), grid.table(&LATENCY)],
        found: Vec::new(),
        agreement: Vec::new(),
        bars: Vec::new(),
    })
}

fn failed(what: &str) -> impl Fn(clearway_fabric::FabricError) -> String + '_ {
    move |why| format!("{what}: {why}")
}

/// Creates two nodes on shared memory, with room for these words.
fn nodes(words: usize) -> Res<[ShmFabric; 2]> {
    let heap_words = words;
    let config = ShmConfig {
        nodes: 2,
        workers: 2,
        regions: 1,
        queue_pairs: 2,
        ring_words: 1 << 13,
        heap_words,
    };
    let segment = ShmSegment::create(config).map_err(failed("shared memory"))?;
    let node = |number| segment.node(FabricNode(number), Duration::ZERO).map_err(failed("a node"));
    Ok([node(0)?, node(1)?])
}

/// A client on shared memory: by READs, or by messages to a serving thread.
struct ShmClient {
    worker: ShmWorker,
    queue: QueueId,
    words: usize,
    remote: Option<RemoteAddr>,
    /// The next slot of the scratch area.
    next: usize,
    done: Vec<Completion>,
}

impl ShmClient {
    fn new(
        node: &ShmFabric,
        peer: WorkerAddr,
        words: usize,
        remote: Option<RemoteAddr>,
    ) -> Res<Self> {
        let mut worker = node.worker(0, (DEPTH + 1) * words).map_err(failed("a worker"))?;
        let queue = worker.connect(peer).map_err(failed("a queue pair"))?;
        Ok(Self { worker, queue, words, remote, next: 0, done: Vec::new() })
    }

    fn slot(&self, number: usize) -> ScratchRange {
        ScratchRange::new(number * self.words, self.words)
    }

    fn is_right(&self, number: usize) -> bool {
        let range = self.slot(number);
        self.worker.load(range.start) == VALUE
            && self.worker.load(range.start + range.words - 1) == VALUE
    }
}

/// The id of SENDs. Other requests are identified by their slot.
const SENT: u64 = u64::MAX;

impl Fetch for ShmClient {
    fn ask(&mut self) -> Res<()> {
        let local = self.slot(self.next);
        let id = self.next as u64;
        self.next = (self.next + 1) % DEPTH;
        let batch = match self.remote {
            Some(remote) => vec![Request::new(id, Verb::Read { remote, local })],
            None => {
                let ask = Verb::Send { local: ScratchRange::new(DEPTH * self.words, 1) };
                vec![Request::new(id, Verb::Recv { local }), Request::new(SENT, ask)]
            }
        };
        self.worker.post(self.queue, &batch).map_err(|why| why.to_string())
    }

    fn take(&mut self) -> Res<usize> {
        loop {
            let mut done = std::mem::take(&mut self.done);
            self.worker.poll(&mut done);
            let mut taken = 0;
            for completion in done.drain(..) {
                completion.result.map_err(|why| why.to_string())?;
                if completion.id != SENT {
                    taken += 1;
                    if !self.is_right(completion.id as usize) {
                        return Err("wrong words".into());
                    }
                }
            }
            self.done = done;
            if taken > 0 {
                return Ok(taken);
            }
            self.worker.wait();
        }
    }
}

fn with_reads(words: usize, act: &mut dyn FnMut(&mut dyn Fetch) -> Res<()>) -> Res<()> {
    let [owner, user] = nodes(words)?;
    let region = owner.register(words).map_err(failed("a region"))?;
    (0..words).for_each(|word| region.store(word, VALUE));
    let peer = WorkerAddr { node: owner.node(), port: 0 };
    act(&mut ShmClient::new(&user, peer, words, Some(RemoteAddr { key: region.key(), word: 0 }))?)
}

fn with_messages(words: usize, act: &mut dyn FnMut(&mut dyn Fetch) -> Res<()>) -> Res<()> {
    let [owner, user] = nodes(words)?;
    let mut server = owner.worker(0, DEPTH + words).map_err(failed("a worker"))?;
    let mut client = ShmClient::new(&user, server.address(), words, None)?;
    std::thread::scope(|scope| {
        let served = scope.spawn(move || serve_messages(&mut server, words));
        let acted = act(&mut client);
        // Stops the server: its RECVs are flushed.
        drop(client);
        let served = served.join().map_err(|_| "the serving thread panicked".to_owned())?;
        acted.and(served)
    })
}

/// Answers messages until the client is gone.
fn serve_messages(server: &mut ShmWorker, words: usize) -> Res<()> {
    (DEPTH..DEPTH + words).for_each(|word| server.store(word, VALUE));
    let queue = loop {
        match server.accept() {
            Some((queue, _)) => break queue,
            None => server.wait(),
        }
    };
    let recv =
        |slot: u64| Request::new(slot, Verb::Recv { local: ScratchRange::new(slot as usize, 1) });
    let reply = Request::new(SENT, Verb::Send { local: ScratchRange::new(DEPTH, words) });
    let all: Vec<Request> = (0..DEPTH as u64).map(recv).collect();
    server.post(queue, &all).map_err(|why| why.to_string())?;
    let mut done = Vec::new();
    loop {
        if server.poll(&mut done) == 0 {
            server.wait();
        }
        for completion in done.drain(..) {
            match completion.result {
                Ok(_) if completion.id == SENT => {}
                Ok(_) => server
                    .post(queue, &[recv(completion.id), reply])
                    .map_err(|why| why.to_string())?,
                Err(_) => return Ok(()),
            }
        }
    }
}

struct TcpClient {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Fetch for TcpClient {
    fn ask(&mut self) -> Res<()> {
        self.stream.write_all(&[0; 8]).map_err(|e| e.to_string())
    }

    fn take(&mut self) -> Res<usize> {
        self.stream.read_exact(&mut self.answer).map_err(|e| e.to_string())?;
        let right = self.answer.as_chunks().0.iter().all(|word| u64::from_le_bytes(*word) == VALUE);
        if right { Ok(1) } else { Err("wrong words".into()) }
    }
}

fn with_tcp(words: usize, act: &mut dyn FnMut(&mut dyn Fetch) -> Res<()>) -> Res<()> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
    let stream = TcpStream::connect(listener.local_addr().map_err(|e| e.to_string())?)
        .map_err(|e| e.to_string())?;
    let (mut served, _) = listener.accept().map_err(|e| e.to_string())?;
    [&stream, &served]
        .into_iter()
        .try_for_each(|s| s.set_nodelay(true))
        .map_err(|e| e.to_string())?;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let reply = VALUE.to_le_bytes().repeat(words);
            let mut request = [0; 8];
            while served.read_exact(&mut request).is_ok() && served.write_all(&reply).is_ok() {}
        });
        // Dropped at the end of the scope, which stops the server.
        let mut client = TcpClient { stream, answer: vec![0; words * 8] };
        act(&mut client)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Options, Part};

    #[test]
    fn runs_of_fig1_last_at_least_a_second() {
        let of = |quick, seconds| {
            let options =
                Options { quick, seconds, repeat: 1, binary: None, serve_args: Vec::new() };
            length(&Task { options, part: Part::Whole })
        };
        assert_eq!((of(false, 3).as_secs(), of(false, 20).as_secs()), (1, 2));
        assert_eq!(of(true, 3), QUICK_RUN);
    }
}
