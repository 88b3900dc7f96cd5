//! Workers in processes of their own that are killed, over shared memory and TCP; leases notice it.
//!
//! The test's process owns the rows. Each worker is the same program again, which runs [`child`]
//! alone. Both talk in lines:
//!
//! | from a worker | |
//! |---|---|
//! | `commit SESSION BEGUN OPS` | this transaction asks for its commit; an operation is owner.index=read or, changed, =read,written |
//! | `committed SESSION ENDED` | and has committed |
//! | `holds WORDS` | after `stop`: the locks that the worker surely holds |
//! | `ended` | after `finish`: all of its transactions have |
//!
//! | to a worker | |
//! |---|---|
//! | `stop` | the regions are fenced |
//! | `go KEYS COUNT WORDS` | recovery has ended: new keys, and which transactions have committed |
//! | `finish` | begin no more transactions |

mod worker;

use super::PAYLOAD;
use crate::recovery::{HeldLock, rebuild};
use crate::{Buckets, LeaseWatch, LogLayout, Mode, Owner, RowId, Table, WorkerLimits};
use clearway_env::{Clock, OsClock};
use clearway_fabric::shm::{ShmConfig, ShmSegment};
use clearway_fabric::tcp::{TcpConfig, TcpFabric};
use clearway_fabric::{Fabric, FabricNode, Region, RegionKey, WorkerAddr};
use clearway_history::{CheckOptions, History, Op, Outcome, Txn};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use worker::Work;

const LIMITS: WorkerLimits = WorkerLimits { transactions: 2, rows: 3 };
const OWNERS: u32 = 2;
const ROWS: u32 = 3;
const WORKERS: u32 = 4;
/// Transactions that commit before the first worker is killed, and so on.
const COMMITS_A_KILL: usize = 400;
const KILLS: usize = 2;
/// A worker that gets no time for this long is taken for dead, and killed: the test goes on without
/// it.
const LEASE: Duration = Duration::from_secs(1);
const SECRET: [u8; 16] = *b"of this test run";

fn table_of(mode: Mode, keys: &[u64]) -> Table {
    let log = LogLayout {
        workers: WORKERS,
        transactions: LIMITS.transactions as u32,
        rows: LIMITS.rows as u32,
    };
    let owner = |(node, key): (u32, &u64)| Owner {
        address: WorkerAddr { node: FabricNode(node), port: 9 },
        region: RegionKey { key: *key, base: 0 },
    };
    let owners = (0..).zip(keys).map(owner).collect();
    Table { mode, payload_words: PAYLOAD, rows: ROWS, buckets: Buckets::default(), log, owners }
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

/// The part of another process; does nothing when it runs as a test.
#[test]
fn child() {
    let Ok(told) = std::env::var("CLEARWAY_REMOTE_TEST_WORKER") else { return };
    // Ends what the test harness has begun to print.
    println!();
    let fields: Vec<&str> = told.split(' ').collect();
    let [kind, number, mode, place @ ..] = &fields[..] else { panic!("{told}") };
    let (number, mode): (u16, usize) = (number.parse().unwrap(), mode.parse().unwrap());
    let keys = place[place.len() - OWNERS as usize..]
        .iter()
        .map(|key| key.parse().unwrap())
        .collect::<Vec<u64>>();
    let table = table_of(all_modes()[mode], &keys);
    let node = FabricNode(OWNERS + u32::from(number));
    if *kind == "shm" {
        let segment = ShmSegment::attach(place[0].as_ref()).unwrap();
        return Work::new(&segment.node(node, Duration::ZERO).unwrap(), table, number).run();
    }
    let listen = "127.0.0.1:0".parse().unwrap();
    let fabric = TcpFabric::bind(TcpConfig { node, listen, secret: SECRET.to_vec() }).unwrap();
    (0..OWNERS).for_each(|owner| {
        fabric.add_peer(FabricNode(owner), place[owner as usize].parse().unwrap())
    });
    Work::new(&fabric, table, number).run();
}

fn all_modes() -> Vec<Mode> {
    Mode::PUBLISHED.into_iter().chain(Mode::ADAPTIVE).chain([Mode::ONE_ROUND]).collect()
}

struct Process {
    child: Child,
    reader: Option<JoinHandle<()>>,
    alive: bool,
    killed: bool,
}

impl Process {
    /// Waits for its end, and until all that it has said is in the channel.
    fn wait(&mut self) {
        self.child.wait().unwrap();
        self.reader.take().into_iter().for_each(|reader| reader.join().unwrap());
    }
}

struct Owners<R> {
    table: Table,
    regions: Vec<R>,
    workers: Vec<Process>,
    lines: Receiver<(usize, String)>,
    watches: Vec<LeaseWatch>,
    history: History,
    /// By session: the transaction that has asked for its commit.
    commits: BTreeMap<u32, Txn>,
    committed: usize,
    ended: usize,
    held: Vec<(usize, Vec<u64>)>,
    freed: u64,
}

fn spawn(number: usize, told: &str, tell: Sender<(usize, String)>) -> Process {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::processes::child", "--nocapture"])
        .env("CLEARWAY_REMOTE_TEST_WORKER", told)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap());
    // Ends with the pipe. The last line of a killed process may be cut off: it has no end.
    let reader = std::thread::spawn(move || {
        let mut lines = lines;
        let mut line = String::new();
        while lines.read_line(&mut line).is_ok_and(|read| read > 0) {
            if line.ends_with('\n') && tell.send((number, line.trim_end().into())).is_err() {
                return;
            }
            line.clear();
        }
    });
    Process { child, reader: Some(reader), alive: true, killed: false }
}

impl<R: Region> Owners<R> {
    fn new(mode: usize, regions: Vec<R>, place: &str) -> Self {
        let keys: Vec<u64> = regions.iter().map(|region| region.key().key).collect();
        let table = table_of(all_modes()[mode], &keys);
        let (tell, lines) = channel();
        let start = |number| {
            let told = format!(
                "{} {}",
                place.replace("NUMBER", &format!("{number} {mode}")),
                joined(keys.clone())
            );
            spawn(number, &told, tell.clone())
        };
        let workers = (0..WORKERS as usize).map(start).collect();
        let mut owners = Self {
            table,
            regions,
            workers,
            lines,
            watches: Vec::new(),
            history: History::new(),
            commits: BTreeMap::new(),
            committed: 0,
            ended: 0,
            held: Vec::new(),
            freed: 0,
        };
        owners.watch();
        owners
    }

    /// All leases begin anew.
    fn watch(&mut self) {
        let lease_ns = LEASE.as_nanos() as u64;
        self.watches =
            self.regions.iter().map(|_| LeaseWatch::new(&self.table, lease_ns)).collect();
    }

    fn alive(&self) -> usize {
        self.workers.iter().filter(|worker| worker.alive).count()
    }

    fn tell(&mut self, order: &str) {
        for worker in self.workers.iter_mut().filter(|worker| worker.alive) {
            // One that has just died does not listen.
            let _ = writeln!(worker.child.stdin.as_mut().unwrap(), "{order}");
        }
    }

    /// Takes lines until this holds, and looks at the leases meanwhile. Returns the workers that
    /// are taken for dead.
    fn until(&mut self, mut holds: impl FnMut(&Self) -> bool) -> Vec<u16> {
        while !holds(self) {
            match self.lines.recv_timeout(LEASE / 20) {
                Ok((worker, line)) => self.hear(worker, &line),
                Err(_) => {
                    assert!(self.alive() > 0, "every process was taken for dead");
                    for worker in
                        self.workers.iter_mut().filter(|worker| worker.alive && !worker.killed)
                    {
                        assert!(worker.child.try_wait().unwrap().is_none(), "a worker has failed");
                    }
                }
            }
            let now_ns = now_ns();
            for (watch, region) in self.watches.iter_mut().zip(&self.regions) {
                let dead = watch.look(now_ns, region);
                if !dead.is_empty() {
                    return dead;
                }
            }
        }
        Vec::new()
    }

    fn hear(&mut self, worker: usize, line: &str) {
        let (what, rest) = line.split_once(' ').unwrap_or((line, ""));
        match what {
            "commit" => {
                let mut fields = rest.split(' ');
                let session = fields.next().unwrap().parse().unwrap();
                let start = fields.next().unwrap().parse().unwrap();
                let mut ops = Vec::new();
                for op in fields {
                    let (row, values) = op.split_once('=').unwrap();
                    let key = self.history.key(row);
                    let mut values = values.split(',').map(|value| value.parse::<u64>().unwrap());
                    ops.push(Op::Read { key, value: values.next().filter(|value| *value > 0) });
                    ops.extend(values.next().map(|value| Op::Write { key, value }));
                }
                self.commits.insert(
                    session,
                    Txn { session, start, end: None, outcome: Outcome::Unknown, ops },
                );
            }
            "committed" => {
                let [session, end] = words(rest)[..] else { panic!("{line}") };
                let txn = self.commits.remove(&(session as u32)).unwrap();
                self.history
                    .push(Txn { end: Some(end), outcome: Outcome::Committed, ..txn })
                    .unwrap();
                self.committed += 1;
            }
            "holds" => self.held.push((worker, words(rest))),
            "ended" => self.ended += 1,
            // What the test harness of the process says.
            _ => {}
        }
    }

    fn recover(&mut self, dead: &[u16]) {
        for worker in dead {
            // Only who surely runs no more is fenced off shared memory. It may have been killed
            // already.
            let process = &mut self.workers[usize::from(*worker)];
            let _ = process.child.kill();
            process.wait();
            process.alive = false;
        }
        for region in &mut self.regions {
            region.fence().unwrap();
        }
        self.tell("stop");
        self.held.clear();
        self.watches.clear();
        let survivors = self.alive();
        self.until(|owners| owners.held.len() == survivors);
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
        let keys: Vec<u64> = self.regions.iter().map(|region| region.key().key).collect();
        self.table = table_of(self.table.mode, &keys);
        self.tell(&format!("go {}", joined(keys.into_iter().chain(outcomes.to_words()))));
    }

    /// Waits for this, and recovers from every death on the way; returns how many there were.
    fn recovering(&mut self, mut holds: impl FnMut(&Self) -> bool) -> usize {
        let before = self.alive();
        loop {
            let dead = self.until(&mut holds);
            if dead.is_empty() {
                return before - self.alive();
            }
            self.recover(&dead);
        }
    }

    fn run(mut self) -> (u64, usize) {
        for kill in 1..=KILLS {
            self.recovering(|owners| owners.committed >= kill * COMMITS_A_KILL);
            let victim = self.workers.iter().position(|worker| worker.alive).unwrap();
            self.workers[victim].child.kill().unwrap();
            self.workers[victim].killed = true;
            let alive = self.alive();
            self.recovering(|owners| owners.alive() < alive);
        }
        let enough = (KILLS + 1) * COMMITS_A_KILL;
        self.recovering(|owners| owners.committed >= enough);
        self.tell("finish");
        self.recovering(|owners| owners.ended == owners.alive());
        for worker in &mut self.workers {
            drop(worker.child.stdin.take());
            worker.wait();
        }
        while let Ok((worker, line)) = self.lines.try_recv() {
            self.hear(worker, &line);
        }
        let unknown = self.commits.len();
        for txn in std::mem::take(&mut self.commits).into_values() {
            self.history.push(txn).unwrap();
        }
        let report = self.history.check(&CheckOptions::default());
        assert!(report.is_clean(), "{:?}: {report}", self.table.mode);
        assert!(report.counts.committed >= enough as u64, "{report}");
        let header = self.table.mode.header_words();
        for (owner, region) in (0..).zip(&self.regions) {
            for index in 0..ROWS {
                let first = self.table.word(RowId { owner, index }, 0).word as usize;
                let row: Vec<u64> =
                    (first..first + header + PAYLOAD).map(|word| region.load(word)).collect();
                assert!(
                    row[..header].iter().all(|word| *word == 0),
                    "row {owner}.{index}: the lock leaked: {row:?}"
                );
                assert!(
                    row[header..].iter().all(|word| *word == row[header]),
                    "row {owner}.{index}: torn: {row:?}"
                );
            }
        }
        (self.freed, unknown)
    }
}

#[test]
fn killed_processes_leave_histories_serializable_on_shared_memory() {
    for mode in 0..all_modes().len() {
        let nodes = (OWNERS + WORKERS) as usize;
        let words = table_of(all_modes()[mode], &[0; OWNERS as usize]).words();
        let config = ShmConfig {
            nodes,
            workers: nodes,
            regions: OWNERS as usize,
            queue_pairs: 256,
            ring_words: 4,
            heap_words: OWNERS as usize * words,
        };
        let segment = ShmSegment::create(config).unwrap();
        let nodes: Vec<_> =
            (0..OWNERS).map(|n| segment.node(FabricNode(n), Duration::ZERO).unwrap()).collect();
        let regions = nodes.iter().map(|node| node.register(words).unwrap()).collect();
        let place = format!("shm NUMBER {}", segment.path().display());
        let (freed, unknown) = Owners::new(mode, regions, &place).run();
        println!(
            "{:?}: {freed} exclusive locks freed, {unknown} unknown outcomes",
            all_modes()[mode]
        );
    }
}

#[test]
fn killed_processes_leave_histories_serializable_on_tcp() {
    for mode in 0..all_modes().len() {
        let listen = "127.0.0.1:0".parse().unwrap();
        let bind = |n| {
            TcpFabric::bind(TcpConfig { node: FabricNode(n), listen, secret: SECRET.to_vec() })
                .unwrap()
        };
        let nodes: Vec<_> = (0..OWNERS).map(bind).collect();
        let words = table_of(all_modes()[mode], &[0; OWNERS as usize]).words();
        let regions = nodes.iter().map(|node| node.register(words).unwrap()).collect();
        let addresses: Vec<String> = nodes.iter().map(|node| node.address().to_string()).collect();
        let (freed, unknown) =
            Owners::new(mode, regions, &format!("tcp NUMBER {}", addresses.join(" "))).run();
        println!(
            "{:?}: {freed} exclusive locks freed, {unknown} unknown outcomes",
            all_modes()[mode]
        );
    }
}
