//! A recorded workload on the real pool: threads access its pages in the recorded order.
//!
//! All pages are in the pool, as in the source's part on scalability. A thread reads a page under
//! its shared latch, and between two accesses works for as long as the engine did when it was
//! recorded; then comes the next access, at the end of a transaction that of another, drawn one.

use super::workload::Workload;
use crate::spinlock::{Work, voluntary_switches};
use clearway_buffer::{MissingPage, Pool};
use clearway_env::OsDisk;
use clearway_harness::Res;
use clearway_latch::lockstat;
use clearway_replacement::ReplacementKind;
use clearway_storage::{Node, NodeConfig};
use clearway_traces::Rng;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

/// What lockstat calls the latches of the policies begins so.
const POLICY_CLASS: &str = "buffer.policy";
/// Tries of what an access takes by itself, and how long each lasts.
const TRIES: usize = 5;
const TRY: Duration = Duration::from_millis(5);

/// What a run came to.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    /// Accesses a microsecond, by all threads.
    pub rate: f64,
    /// Transactions a second.
    pub transactions: f64,
    /// From the beginning of a transaction to its end, in microseconds, the mean; no number if none
    /// ended.
    pub response_us: f64,
    /// Accesses, by all threads.
    pub accesses: f64,
    /// Requests for the policy's latch that were not granted at once.
    pub waits: f64,
    /// How often a thread gave up its core to wait, as the source counts contention.
    pub sleeps: f64,
}

impl Ran {
    /// Requests for the policy's latch that were not granted at once, in a million accesses.
    pub fn contention(&self) -> f64 {
        self.waits * 1e6 / self.accesses.max(1.0)
    }

    /// How often a thread gave up its core to wait, in a million accesses.
    pub fn sleeping(&self) -> f64 {
        self.sleeps * 1e6 / self.accesses.max(1.0)
    }
}

/// A pool that holds a workload's pages.
pub struct Real<'a> {
    node: Node,
    workload: &'a Workload,
    work: Work,
}

impl<'a> Real<'a> {
    /// Opens the workload's database with this replacement, and brings its pages in. Between two
    /// accesses threads do `work`. One at a time.
    pub fn open(
        workload: &'a Workload,
        kind: ReplacementKind,
        frames: u32,
        work: Work,
    ) -> Res<Self> {
        let config = NodeConfig { frames, replacement: kind, ..NodeConfig::default() };
        let node = Node::open(Arc::new(OsDisk), workload.directory.path(), config)
            .map_err(|e| e.to_string())?;
        for page in &workload.pages {
            node.pool().fetch_blocking(MissingPage::Page(*page)).map_err(|e| e.to_string())?;
        }
        Ok(Self { node, workload, work })
    }

    /// What threads do between two accesses, whatever the replacement: what the engine took for
    /// one, less what an access of the pool took of that, which had the clock when it was recorded.
    /// Of several tries the fastest counts, as interruptions only add.
    pub fn work(workload: &'a Workload, frames: u32, per_ns: f64) -> Res<Work> {
        let bare =
            Self::open(workload, ReplacementKind::ClockSweep, frames, Work::of(0.0, per_ns))?;
        let rates = (0..TRIES).map(|_| Ok(bare.run(1, TRY)?.rate)).collect::<Res<Vec<f64>>>()?;
        let fastest = rates.into_iter().fold(f64::MIN_POSITIVE, f64::max);
        Ok(Work::of((workload.ns_per_access - 1e3 / fastest).max(0.0), per_ns))
    }

    /// So many threads for so long.
    pub fn run(&self, threads: usize, length: Duration) -> Res<Ran> {
        lockstat::reset();
        let (stop, over) = (AtomicBool::new(false), Barrier::new(threads + 1));
        let began = Instant::now();
        let (parts, elapsed, rows) = thread::scope(|scope| {
            let (stop, over) = (&stop, &over);
            let part = move |thread| {
                let _counted = Counted(over);
                self.part(thread, stop)
            };
            let threads: Vec<_> =
                (0..threads as u64).map(|thread| scope.spawn(move || part(thread))).collect();
            while let Some(left) =
                length.checked_sub(began.elapsed()).filter(|left| !left.is_zero())
            {
                thread::park_timeout(left);
            }
            // Relaxed: a sign, nothing is handed over by it.
            stop.store(true, Ordering::Relaxed);
            over.wait();
            let (elapsed, rows) = (began.elapsed().as_secs_f64(), lockstat::contention());
            over.wait();
            let parts = threads.into_iter().map(|t| t.join().map_err(|_| "a thread panicked")?);
            Ok::<_, String>((parts.collect::<Res<Vec<Part>>>()?, elapsed, rows))
        })?;
        let waits: u64 = rows
            .iter()
            .filter(|row| row.name.starts_with(POLICY_CLASS))
            .map(|row| row.contended)
            .sum();
        let sum = |of: fn(&Part) -> u64| parts.iter().map(of).sum::<u64>() as f64;
        let (accesses, transactions) = (sum(|p| p.accesses), sum(|p| p.transactions));
        Ok(Ran {
            rate: accesses / elapsed / 1e6,
            transactions: transactions / elapsed,
            response_us: sum(|p| p.response_ns) / transactions / 1e3,
            accesses,
            waits: waits as f64,
            sleeps: sum(|p| p.sleeps),
        })
    }

    fn part(&self, thread: u64, stop: &AtomicBool) -> Res<Part> {
        let (pool, transactions): (&Pool, _) = (self.node.pool(), &self.workload.transactions);
        let mut rng = Rng::new(thread + 1);
        let mut part = Part::default();
        let sleeps = voluntary_switches();
        loop {
            let began = Instant::now();
            let transaction = &transactions[rng.below(transactions.len() as u64) as usize];
            for number in transaction {
                let id = self.workload.pages[*number as usize];
                let page = pool
                    .read(id)
                    .map_err(|_| format!("{id} has left a pool that has room for all"))?;
                self.work.run(u64::from(page[page.len() - 1]) + 1);
                part.accesses += 1;
                // A scan of a table takes longer than a run may be late; what is not finished is no
                // transaction.
                if part.accesses.is_multiple_of(64) && stop.load(Ordering::Relaxed) {
                    part.sleeps = voluntary_switches() - sleeps;
                    return Ok(part);
                }
            }
            part.transactions += 1;
            part.response_ns += began.elapsed().as_nanos() as u64;
        }
    }
}

/// Keeps a thread that has made its accesses from ending before the waits have been read: to end it
/// takes the policy's latch, too, and may wait for it, but on no access. Also where it panics, so
/// that nobody waits for it in vain.
struct Counted<'a>(&'a Barrier);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.wait();
        self.0.wait();
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Part {
    accesses: u64,
    transactions: u64,
    response_ns: u64,
    /// All pages are in the pool: a thread gives up its core only to wait for a latch.
    sleeps: u64,
}
