//! Replays a recorded workload on the real pool: threads access its pages in the recorded order.
//!
//! All pages are resident, as in the source's scalability experiments. A thread reads a page under
//! its shared latch. Between two accesses it works for as long as the engine did during recording.
//! After a transaction it continues with another one, drawn at random.

use super::workload::Workload;
use crate::place::{Place, Placed, Watch};
use crate::spinlock::{Work, voluntary_switches};
use clearway_buffer::{MissingPage, Pool};
use clearway_env::OsDisk;
use clearway_harness::Res;
use clearway_latch::lockstat;
use clearway_replacement::ReplacementKind;
use clearway_storage::{Node, NodeConfig};
use clearway_testkit::Rng;
use clearway_types::PageId;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

/// Prefix of the policies' latches in lockstat.
const POLICY_CLASS: &str = "buffer.policy";
/// Threads that load pages.
const LOADERS: usize = 8;
/// Number and length of the runs that measure a bare access.
const REPETITIONS: usize = 5;
const REPETITION: Duration = Duration::from_millis(5);

/// Result of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunResult {
    /// Accesses per microsecond, over all threads.
    pub rate: f64,
    /// Transactions per second. One that the end of the run cut short counts by the share of its
    /// accesses.
    pub transactions: f64,
    /// Mean time from the start of a transaction to its end, in microseconds; NaN if none ended.
    pub response_us: f64,
    /// Accesses, over all threads.
    pub accesses: f64,
    /// Requests for the policy's latch that were not granted immediately.
    pub waits: f64,
    /// Number of times a thread slept, which the source counts as contention. Not every sleep is a
    /// wait for the policy's latch: systems that take none on a hit have a few. Linux counts
    /// a thread that yields (`sched_yield`) as preempted, so waits that only yielded are not
    /// included.
    pub sleeps: f64,
    /// Where the cores were.
    pub place: Place,
}

impl Placed for RunResult {
    fn place(&self) -> Option<&Place> {
        Some(&self.place)
    }

    fn place_mut(&mut self) -> Option<&mut Place> {
        Some(&mut self.place)
    }
}

impl RunResult {
    /// Returns the requests for the policy's latch that were not granted immediately, per million
    /// accesses.
    pub fn contention(&self) -> f64 {
        self.waits * 1e6 / self.accesses.max(1.0)
    }

    /// Returns the waits that slept, per million accesses.
    pub fn sleeping(&self) -> f64 {
        self.sleeps * 1e6 / self.accesses.max(1.0)
    }
}

/// Loads pages into a pool that has room for all of them, in the order of the file, which is the
/// fastest one for a disk. Several threads load, so that the disk has several requests.
pub fn load(pool: &Pool, pages: &[PageId]) -> Res<()> {
    let mut pages = pages.to_vec();
    pages.sort_unstable();
    let next = AtomicUsize::new(0);
    let part = || {
        // Relaxed: only the number itself is shared.
        while let Some(page) = pages.get(next.fetch_add(1, Ordering::Relaxed)) {
            pool.fetch_blocking(MissingPage::Page(*page)).map_err(|e| e.to_string())?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..LOADERS).map(|_| scope.spawn(part)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })
}

/// A pool that holds all pages of a workload.
pub struct Real<'a> {
    node: Node,
    workload: &'a Workload,
    work: Work,
}

impl<'a> Real<'a> {
    /// Opens the workload's database with this replacement and loads its pages. Threads do `work`
    /// between two accesses. Only one instance may be open at a time.
    pub fn open(
        workload: &'a Workload,
        kind: ReplacementKind,
        frames: u32,
        work: Work,
    ) -> Res<Self> {
        let config = NodeConfig { frames, replacement: kind, ..NodeConfig::default() };
        let node = Node::open(Arc::new(OsDisk), workload.directory.path(), config)
            .map_err(|e| e.to_string())?;
        load(node.pool(), &workload.pages)?;
        Ok(Self { node, workload, work })
    }

    /// Returns the work between two accesses: the recorded time per access in the engine, less the
    /// time of a bare pool access with the clock, which was used for the recording. The fastest of
    /// several runs counts, since interruptions only add time.
    pub fn work(workload: &'a Workload, frames: u32, per_ns: f64) -> Res<Work> {
        let bare =
            Self::open(workload, ReplacementKind::ClockSweep, frames, Work::of(0.0, per_ns))?;
        let mut watch = Watch::begin(per_ns);
        let rates = (0..REPETITIONS)
            .map(|_| Ok(bare.run(1, REPETITION, &mut watch)?.rate))
            .collect::<Res<Vec<f64>>>()?;
        let fastest = rates.into_iter().fold(f64::MIN_POSITIVE, f64::max);
        Ok(Work::of((workload.ns_per_access - 1e3 / fastest).max(0.0), per_ns))
    }

    /// Runs this many threads for this long. The watch has just begun, or ended its last run.
    pub fn run(&self, threads: usize, length: Duration, watch: &mut Watch) -> Res<RunResult> {
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
            // Relaxed: a stop flag; it publishes no data.
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
        let (accesses, ended) = (sum(|p| p.accesses), sum(|p| p.transactions));
        let cut: f64 = parts.iter().map(|p| p.cut).sum();
        Ok(RunResult {
            rate: accesses / elapsed / 1e6,
            transactions: (ended + cut) / elapsed,
            response_us: sum(|p| p.response_ns) / ended / 1e3,
            accesses,
            waits: waits as f64,
            sleeps: sum(|p| p.sleeps),
            place: watch.lap(),
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
            for (at, number) in transaction.iter().enumerate() {
                let id = self.workload.pages[*number as usize];
                let page = pool
                    .read(id)
                    .map_err(|_| format!("{id} has left a pool that has room for all"))?;
                self.work.run(u64::from(page[page.len() - 1]) + 1);
                part.accesses += 1;
                // A table scan can outlast the run.
                if part.accesses.is_multiple_of(64) && stop.load(Ordering::Relaxed) {
                    part.cut = (at + 1) as f64 / transaction.len() as f64;
                    part.sleeps = voluntary_switches() - sleeps;
                    return Ok(part);
                }
            }
            part.transactions += 1;
            part.response_ns += began.elapsed().as_nanos() as u64;
        }
    }
}

/// Keeps a finished thread alive until the waits have been read. A thread's exit also takes the
/// policy's latch and may wait for it, but that wait belongs to no access. Also runs on a panic, so
/// that no thread waits forever.
pub struct Counted<'a>(pub &'a Barrier);

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
    /// Share of the last transaction that was run before the end.
    cut: f64,
    response_ns: u64,
    /// All pages are resident, so a thread rarely sleeps except to wait for a latch.
    sleeps: u64,
}

#[cfg(test)]
mod tests {
    use super::super::workload::{Kind, Size};
    use super::*;

    /// Returns small tables whose pages are accessed this often in one transaction.
    fn scans(accesses: usize) -> Workload {
        let mut workload = Workload::record(Kind::TableScan, Size::of(true)).unwrap();
        let pages = workload.pages.len() as u32;
        let long: Box<[u32]> = (0..pages).cycle().take(accesses).collect();
        workload.transactions = [long].into();
        workload
    }

    #[test]
    fn a_cut_transaction_counts_by_its_share() {
        const ACCESSES: usize = 100_003;
        let workload = scans(ACCESSES);
        let work = Work::of(0.0, 1.0);
        let real =
            Real::open(&workload, ReplacementKind::default(), Size::of(true).frames, work).unwrap();
        let ran = real.run(2, Duration::from_millis(5), &mut Watch::begin(1.0)).unwrap();
        let of_one = ran.transactions * ACCESSES as f64 / (ran.rate * 1e6);
        assert!((of_one - 1.0).abs() < 1e-9, "{ran:?}");
    }

    #[test]
    fn every_page_is_loaded() {
        let workload = scans(1);
        let kind = ReplacementKind::default();
        let work = Work::of(0.0, 1.0);
        let real = Real::open(&workload, kind, Size::of(true).frames, work).unwrap();
        assert!(workload.pages.iter().all(|page| real.node.pool().read(*page).is_ok()));
    }
}
