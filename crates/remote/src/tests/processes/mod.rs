//! Worker processes that are killed, over shared memory and TCP. Leases detect their deaths.
//!
//! The test's process owns the rows of a table or a store, except those of an owner that is killed,
//! too. Each worker is the same program, which runs only [`child`]. Both communicate by lines of
//! text:
//!
//! | from a worker | |
//! |---|---|
//! | `ready ADDRESS KEY` | its node's address, `-` on shared memory, and its mailbox's key |
//! | `commit SESSION STARTED OPS` | this transaction requests its commit |
//! | `committed SESSION ENDED` | this transaction has committed |
//! | `holds KEY WORDS` | after `stop`: its new mailbox's key, and the locks it certainly holds |
//! | `ended` | after `finish`: all its transactions have ended |
//! | `failed` | a verb has failed for the first time |
//!
//! An operation is `register=read`, `register=,written` or `register=read,written`. The register is
//! a row (`owner.index`), or a key or bucket of the store.
//!
//! | to a worker | |
//! |---|---|
//! | `peers ADDRESS KEY ...` | addresses and mailbox keys of all workers, in worker order |
//! | `stop` | the regions are fenced |
//! | `go KEYS MAILBOXES WORDS` | recovery has ended: new keys of the regions and mailboxes; committed transactions |
//! | `finish` | start no more transactions |

mod owner;
mod rows;
mod store;
mod worker;

use super::store_client::{OPERATIONS, StoreOp, layout, read_owner};
use super::{PAYLOAD, all_modes};
use crate::recovery::{HeldLock, rebuild};
use crate::{Buckets, LeaseWatch, LogLayout, Mode, Owner, RowId, Table, WorkerLimits};
use clearway_env::{Clock, OsClock};
use clearway_fabric::shm::{ShmConfig, ShmSegment};
use clearway_fabric::tcp::{TcpConfig, TcpFabric};
use clearway_fabric::{Fabric, FabricNode, Region, RegionKey, WorkerAddr};
use clearway_history::{CheckerOptions, History, Txn, TxnOutcome};
use rows::RowLoad;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use store::StoreLoad;
use worker::Work;

/// Concurrent transactions of a worker.
const TRANSACTIONS: usize = 2;
const OWNERS: u32 = 2;
const ROWS: u32 = 3;
const WORKERS: u32 = 4;
/// Transactions that commit before the first kill, between kills, and after the last one.
const COMMITS_PER_KILL: usize = 400;
const KILLS: usize = 2;
/// A worker that does not run for this long is considered dead and killed. The test continues
/// without it, unless it is the last one: then its lease starts again.
const LEASE: Duration = Duration::from_secs(1);
const SECRET: [u8; 16] = *b"of this test run";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contents {
    Rows,
    Store,
}

/// What the processes share, in one mode.
#[derive(Clone, Copy)]
struct Shape {
    contents: Contents,
    /// Its place among all modes.
    mode: usize,
}

impl Shape {
    fn all(contents: Contents) -> impl Iterator<Item = Self> {
        (0..all_modes().len()).map(move |mode| Self { contents, mode })
    }

    fn parse(contents: &str, mode: &str) -> Self {
        let contents = if contents == "store" { Contents::Store } else { Contents::Rows };
        Self { contents, mode: mode.parse().unwrap() }
    }

    fn mode(self) -> Mode {
        all_modes()[self.mode]
    }

    fn limits(self) -> WorkerLimits {
        match self.contents {
            Contents::Rows => WorkerLimits { transactions: TRANSACTIONS, rows: 3 },
            Contents::Store => layout(self.mode()).limits(TRANSACTIONS, OPERATIONS),
        }
    }

    /// Returns the table on the regions with these keys.
    fn table(self, keys: &[u64]) -> Table {
        let owner = |(node, key): (u32, &u64)| Owner {
            address: WorkerAddr { node: FabricNode(node), port: 9 },
            region: RegionKey { key: *key, base: 0 },
        };
        let owners = (0..).zip(keys).map(owner).collect();
        let limits = self.limits();
        let (transactions, rows) = (limits.transactions as u32, limits.rows as u32);
        let log = LogLayout { workers: WORKERS, transactions, rows };
        if self.contents == Contents::Store {
            return Table { log, ..layout(self.mode()).table(owners) };
        }
        let (mode, buckets) = (self.mode(), Buckets::default());
        Table { mode, payload_words: PAYLOAD, rows: ROWS, buckets, log, owners }
    }

    /// Returns the words of an owner's region.
    fn words(self) -> usize {
        self.table(&[0; OWNERS as usize]).words()
    }
}

/// As [`Shape::parse`] expects it.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let contents = if self.contents == Contents::Store { "store" } else { "rows" };
        write!(f, "{contents} {}", self.mode)
    }
}

fn now_ns() -> u64 {
    OsClock.monotonic().as_nanos() as u64
}

fn words(text: &str) -> Vec<u64> {
    text.split_whitespace().map(|word| word.parse().unwrap()).collect()
}

fn joined(words: impl IntoIterator<Item = u64>) -> String {
    words.into_iter().map(|word| word.to_string()).collect::<Vec<_>>().join(" ")
}

/// The body of a worker's process; does nothing when it runs as an ordinary test.
#[test]
fn child() {
    let Ok(spec) = std::env::var("CLEARWAY_REMOTE_TEST_WORKER") else { return };
    // Ends the line that the test harness has begun to print.
    println!();
    let fields: Vec<&str> = spec.split(' ').collect();
    if fields[0] == "owner" {
        return owner::serve(&fields[1..]);
    }
    let [kind, number, contents, mode, place @ ..] = &fields[..] else { panic!("{spec}") };
    let (number, shape): (u16, _) = (number.parse().unwrap(), Shape::parse(contents, mode));
    let keys = place[place.len() - OWNERS as usize..]
        .iter()
        .map(|key| key.parse().unwrap())
        .collect::<Vec<u64>>();
    let node = FabricNode(OWNERS + u32::from(number));
    if *kind == "shm" {
        let segment = ShmSegment::attach(place[0].as_ref()).unwrap();
        let fabric = segment.node(node, Duration::ZERO).unwrap();
        return work(fabric, "-", (shape, number), &keys, |_, _, _| ());
    }
    let fabric = bind(node.0);
    (0..OWNERS).for_each(|owner| {
        fabric.add_peer(FabricNode(owner), place[owner as usize].parse().unwrap())
    });
    let address = fabric.address().to_string();
    let add_peer = |fabric: &TcpFabric, node, address: &str| {
        fabric.add_peer(node, address.parse().unwrap());
    };
    work(fabric, &address, (shape, number), &keys, add_peer);
}

/// Runs a worker until the test ends it.
fn work<F: Fabric>(
    node: F,
    address: &str,
    of: (Shape, u16),
    keys: &[u64],
    add_peer: impl Fn(&F, FabricNode, &str),
) where
    F::Region: 'static,
{
    match of.0.contents {
        Contents::Rows => Work::<F, RowLoad<_>>::new(node, address, of, keys, add_peer).run(),
        Contents::Store => Work::<F, StoreLoad<_>>::new(node, address, of, keys, add_peer).run(),
    }
}

struct Process {
    child: Child,
    reader: Option<JoinHandle<()>>,
    alive: bool,
    killed: bool,
}

impl Process {
    /// Waits until the process has ended and all its lines are in the channel.
    fn wait(&mut self) {
        self.child.wait().unwrap();
        self.reader.take().into_iter().for_each(|reader| reader.join().unwrap());
    }
}

struct Owners<R> {
    shape: Shape,
    table: Table,
    regions: Vec<R>,
    workers: Vec<Process>,
    lines: Receiver<(usize, String)>,
    watches: Vec<LeaseWatch>,
    history: History,
    /// By session: the transaction that has requested its commit.
    commits: BTreeMap<u32, Txn>,
    committed: usize,
    /// By worker: whether all its transactions have ended.
    ended: Vec<bool>,
    failed: usize,
    /// By worker: its node's address and its mailbox's key, once it has sent them.
    mailboxes: Vec<Option<(String, u64)>>,
    held: Vec<(usize, Vec<u64>)>,
    freed: u64,
}

fn spawn(number: usize, spec: &str, sender: Sender<(usize, String)>) -> Process {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::processes::child", "--nocapture"])
        .env("CLEARWAY_REMOTE_TEST_WORKER", spec)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap());
    // Ends with the pipe. The last line of a killed process may be incomplete: it has no newline.
    let reader = std::thread::spawn(move || {
        let mut lines = lines;
        let mut line = String::new();
        while lines.read_line(&mut line).is_ok_and(|read| read > 0) {
            if line.ends_with('\n') && sender.send((number, line.trim_end().into())).is_err() {
                return;
            }
            line.clear();
        }
    });
    Process { child, reader: Some(reader), alive: true, killed: false }
}

impl<R: Region> Owners<R> {
    /// Starts the workers. `regions` are those of the first owners; `keys` those of all.
    fn new(shape: Shape, regions: Vec<R>, keys: &[u64], place: &str) -> Self {
        let table = shape.table(keys);
        let (sender, lines) = channel();
        let start = |number| {
            let spec = format!(
                "{} {}",
                place.replace("NUMBER", &format!("{number} {shape}")),
                joined(keys.iter().copied())
            );
            spawn(number, &spec, sender.clone())
        };
        let workers = (0..WORKERS as usize).map(start).collect();
        let mut owners = Self {
            shape,
            table,
            regions,
            workers,
            lines,
            watches: Vec::new(),
            history: History::new(),
            commits: BTreeMap::new(),
            committed: 0,
            ended: vec![false; WORKERS as usize],
            failed: 0,
            mailboxes: vec![None; WORKERS as usize],
            held: Vec::new(),
            freed: 0,
        };
        let dead = owners.wait_until(|owners| owners.mailboxes.iter().all(Option::is_some));
        assert!(dead.is_empty(), "{dead:?} had no leases yet");
        let peers =
            owners.mailboxes.iter().flatten().map(|(address, key)| format!("{address} {key}"));
        let peers = format!("peers {}", peers.collect::<Vec<_>>().join(" "));
        owners.send_all(&peers);
        owners.watch();
        owners
    }

    /// Restarts all leases.
    fn watch(&mut self) {
        let lease_ns = LEASE.as_nanos() as u64;
        self.watches =
            self.regions.iter().map(|_| LeaseWatch::new(&self.table, lease_ns)).collect();
    }

    fn alive(&self) -> usize {
        self.workers.iter().filter(|worker| worker.alive).count()
    }

    /// Returns true if all workers have ended that are alive. A worker that is considered dead may
    /// have ended, too, before it was killed.
    fn have_all_ended(&self) -> bool {
        self.workers.iter().zip(&self.ended).all(|(worker, ended)| *ended || !worker.alive)
    }

    fn send_all(&mut self, order: &str) {
        for worker in self.workers.iter_mut().filter(|worker| worker.alive) {
            // A worker that has just died reads nothing.
            let _ = writeln!(worker.child.stdin.as_mut().unwrap(), "{order}");
        }
    }

    /// Handles lines and checks leases until `holds` returns true. Returns early with the workers
    /// considered dead.
    fn wait_until(&mut self, mut holds: impl FnMut(&Self) -> bool) -> Vec<u16> {
        while !holds(self) {
            match self.lines.recv_timeout(LEASE / 20) {
                Ok((worker, line)) => self.handle_line(worker, &line),
                Err(_) => {
                    assert!(self.alive() > 0, "every process was considered dead");
                    for worker in
                        self.workers.iter_mut().filter(|worker| worker.alive && !worker.killed)
                    {
                        assert!(worker.child.try_wait().unwrap().is_none(), "a worker has failed");
                    }
                }
            }
            let now_ns = now_ns();
            let looks = self.watches.iter_mut().zip(&self.regions);
            let found = looks.map(|(watch, region)| watch.look(now_ns, region));
            let Some(dead) = found.into_iter().find(|dead| !dead.is_empty()) else { continue };
            let survives = |(number, worker): (u16, &Process)| {
                worker.alive && !worker.killed && !dead.contains(&number)
            };
            if (0..).zip(&self.workers).any(survives) {
                return dead;
            }
            // The machine is too slow for every lease.
            self.watch();
        }
        Vec::new()
    }

    fn handle_line(&mut self, worker: usize, line: &str) {
        let (what, rest) = line.split_once(' ').unwrap_or((line, ""));
        match what {
            "commit" => {
                let mut fields = rest.split(' ');
                let session = fields.next().unwrap().parse().unwrap();
                let start = fields.next().unwrap().parse().unwrap();
                let mut ops = Vec::new();
                for op in fields {
                    let (name, values) = op.split_once('=').unwrap();
                    let (read, written) = values.split_once(',').unwrap_or((values, ""));
                    let [read, written] = [read, written].map(|value| value.parse().ok());
                    let read = read.map(|value| StoreOp::Read(name.into(), value));
                    let written = written.map(|value| StoreOp::Write(name.into(), value));
                    let both = read.into_iter().chain(written);
                    ops.extend(both.map(|op| op.recorded(&mut self.history)));
                }
                self.commits.insert(
                    session,
                    Txn { session, start, end: None, outcome: TxnOutcome::Unknown, ops },
                );
            }
            "committed" => {
                let [session, end] = words(rest)[..] else { panic!("{line}") };
                let txn = self.commits.remove(&(session as u32)).unwrap();
                self.history
                    .push(Txn { end: Some(end), outcome: TxnOutcome::Committed, ..txn })
                    .unwrap();
                self.committed += 1;
            }
            "ready" => {
                let (address, key) = rest.split_once(' ').unwrap();
                self.mailboxes[worker] = Some((address.into(), key.parse().unwrap()));
            }
            "holds" => {
                let words = words(rest);
                let (key, locks) = words.split_first().unwrap();
                self.mailboxes[worker].as_mut().unwrap().1 = *key;
                self.held.push((worker, locks.to_vec()));
            }
            "ended" => self.ended[worker] = true,
            "failed" => self.failed += 1,
            // Output of the process's test harness.
            _ => {}
        }
    }

    fn recover(&mut self, dead: &[u16]) {
        for worker in dead {
            // On shared memory, only a process that has certainly ended can be fenced off. It may
            // have been killed already.
            let process = &mut self.workers[usize::from(*worker)];
            let _ = process.child.kill();
            process.wait();
            process.alive = false;
        }
        for region in &mut self.regions {
            region.fence().unwrap();
        }
        self.send_all("stop");
        self.held.clear();
        self.watches.clear();
        let survivors = self.alive();
        self.wait_until(|owners| owners.held.len() == survivors);
        let table = &self.table;
        let lock =
            |words: &[u64; 3]| HeldLock::from_words(*words, table).expect("a lock of this table");
        let locks: Vec<HeldLock> =
            self.held.iter().flat_map(|(_, words)| words.as_chunks().0).map(lock).collect();
        let regions: Vec<_> =
            self.regions.iter().map(|region| Some(region as &dyn Region)).collect();
        let outcomes = rebuild(table, &regions, &locks);
        self.freed += outcomes.exclusive_freed;
        self.watch();
        for (watch, region) in self.watches.iter_mut().zip(&self.regions) {
            dead.iter().for_each(|worker| watch.clear(*worker, region));
        }
        let keys = keys_of(&self.regions);
        self.table = self.shape.table(&keys);
        let mailboxes = self.mailboxes.iter().flatten().map(|(_, key)| *key);
        let words = keys.into_iter().chain(mailboxes).chain(outcomes.to_words());
        let go = format!("go {}", joined(words));
        self.send_all(&go);
    }

    /// Waits until `holds` returns true, and recovers from every death in the meantime. Returns
    /// the number of deaths.
    fn recovering(&mut self, mut holds: impl FnMut(&Self) -> bool) -> usize {
        let before = self.alive();
        loop {
            let dead = self.wait_until(&mut holds);
            if dead.is_empty() {
                return before - self.alive();
            }
            self.recover(&dead);
        }
    }

    fn run(mut self) -> (u64, usize) {
        for kill in 1..=KILLS {
            self.recovering(|owners| owners.committed >= kill * COMMITS_PER_KILL);
            if self.alive() == 1 {
                // The machine was too slow for the leases of the others.
                break;
            }
            let victim = self.workers.iter().position(|worker| worker.alive).unwrap();
            self.workers[victim].child.kill().unwrap();
            self.workers[victim].killed = true;
            let alive = self.alive();
            self.recovering(|owners| owners.alive() < alive);
        }
        let enough = (KILLS + 1) * COMMITS_PER_KILL;
        self.recovering(|owners| owners.committed >= enough);
        self.send_all("finish");
        self.recovering(Self::have_all_ended);
        let unknown = self.end_workers();
        let owners = (0..).zip(&self.regions);
        let read = owners.map(|(owner, region)| self.read(owner, |word| region.load(word)));
        let read = read.flatten().collect();
        self.check(read, enough);
        (self.freed, unknown)
    }

    /// Ends the workers' processes and handles their last lines. Returns the number of transactions
    /// with an unknown outcome.
    fn end_workers(&mut self) -> usize {
        for worker in &mut self.workers {
            drop(worker.child.stdin.take());
            worker.wait();
        }
        while let Ok((worker, line)) = self.lines.try_recv() {
            self.handle_line(worker, &line);
        }
        let unknown = self.commits.len();
        for txn in std::mem::take(&mut self.commits).into_values() {
            self.history.push(txn).unwrap();
        }
        unknown
    }

    /// Checks the history, to which a last transaction with these operations is added.
    fn check(&mut self, last: Vec<StoreOp>, enough: usize) {
        let ops = last.iter().map(|op| op.recorded(&mut self.history)).collect();
        let (session, start) = (WORKERS * TRANSACTIONS as u32, now_ns());
        let (end, outcome) = (Some(start + 1), TxnOutcome::Committed);
        self.history.push(Txn { session, start, end, outcome, ops }).unwrap();
        let report = self.history.check(&CheckerOptions::default());
        assert!(report.is_clean(), "{:?}: {report}", self.table.mode);
        assert!(report.counts.committed > enough as u64, "{report}");
    }

    /// Asserts that the rows of an owner are free and not torn, and that its index agrees with
    /// them. Returns what a last transaction reads there.
    fn read(&self, owner: u32, load: impl Fn(usize) -> u64) -> Vec<StoreOp> {
        let load = |row: RowId, word: usize| load(self.table.word(row, word).word as usize);
        if self.shape.contents == Contents::Store {
            let read = read_owner(layout(self.table.mode), owner, load, &mut Vec::new());
            return read.unwrap_or_else(|why| panic!("{:?}: {why}", self.table.mode));
        }
        let header = self.table.mode.header_words();
        let read = |index| {
            let of_row = |word| load(RowId { owner, index }, word);
            let row: Vec<u64> = (0..header + PAYLOAD).map(of_row).collect();
            let free = row[..header].iter().all(|word| *word == 0);
            assert!(free, "row {owner}.{index}: the lock leaked: {row:?}");
            let whole = row[header..].iter().all(|word| *word == row[header]);
            assert!(whole, "row {owner}.{index}: torn: {row:?}");
            StoreOp::Read(format!("{owner}.{index}"), row[header])
        };
        (0..ROWS).map(read).collect()
    }
}

fn segment(shape: Shape) -> ShmSegment {
    let nodes = (OWNERS + WORKERS) as usize;
    // A mailbox for each worker at the start and after each recovery.
    let mailboxes = (WORKERS * (1 + WORKERS)) as usize;
    let config = ShmConfig {
        nodes,
        workers: nodes,
        regions: OWNERS as usize + mailboxes,
        queue_pairs: 256,
        ring_words: 4,
        heap_words: OWNERS as usize * shape.words() + mailboxes * shape.limits().mailbox_words(),
    };
    ShmSegment::create(config).unwrap()
}

fn bind(node: u32) -> TcpFabric {
    let listen = "127.0.0.1:0".parse().unwrap();
    let secret = SECRET.to_vec();
    TcpFabric::bind(TcpConfig { node: FabricNode(node), listen, secret }).unwrap()
}

fn keys_of<R: Region>(regions: &[R]) -> Vec<u64> {
    regions.iter().map(|region| region.key().key).collect()
}

fn kill_workers_on_shm(contents: Contents) {
    for shape in Shape::all(contents) {
        let segment = segment(shape);
        let nodes: Vec<_> =
            (0..OWNERS).map(|n| segment.node(FabricNode(n), Duration::ZERO).unwrap()).collect();
        let regions: Vec<_> =
            nodes.iter().map(|node| node.register(shape.words()).unwrap()).collect();
        let (keys, place) = (keys_of(&regions), format!("shm NUMBER {}", segment.path().display()));
        let (freed, unknown) = Owners::new(shape, regions, &keys, &place).run();
        println!("{:?}: {freed} exclusive locks freed, {unknown} unknown outcomes", shape.mode());
    }
}

fn kill_workers_on_tcp(contents: Contents) {
    for shape in Shape::all(contents) {
        let nodes: Vec<_> = (0..OWNERS).map(bind).collect();
        let regions: Vec<_> =
            nodes.iter().map(|node| node.register(shape.words()).unwrap()).collect();
        let addresses: Vec<String> = nodes.iter().map(|node| node.address().to_string()).collect();
        let (keys, place) = (keys_of(&regions), format!("tcp NUMBER {}", addresses.join(" ")));
        let (freed, unknown) = Owners::new(shape, regions, &keys, &place).run();
        println!("{:?}: {freed} exclusive locks freed, {unknown} unknown outcomes", shape.mode());
    }
}

#[test]
fn killed_processes_keep_serializability_on_shm() {
    kill_workers_on_shm(Contents::Rows);
}

#[test]
fn killed_processes_keep_serializability_on_tcp() {
    kill_workers_on_tcp(Contents::Rows);
}

#[test]
fn killed_processes_keep_the_store_serializable_on_shm() {
    kill_workers_on_shm(Contents::Store);
}

#[test]
fn killed_processes_keep_the_store_serializable_on_tcp() {
    kill_workers_on_tcp(Contents::Store);
}
