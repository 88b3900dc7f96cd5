//! One round: threads acquire one latch repeatedly for a fixed time, and each keeps its own counts.
//!
//! While the round runs, threads share only the latch and its protected data: counts and waits are
//! per thread and allocated before the start. Every [`SAMPLED`]th wait is timed, the same for all
//! latches, by two clock reads, the second inside the critical section.

use super::contender::{Contender, Protected};
use super::histogram::Histogram;
use crate::cpu;
use clearway_harness::Res;
use clearway_latch::CachePadded;
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// One wait in this many is timed.
pub const SAMPLED: u64 = 16;

/// Polls at the start before a thread yields its core.
const START_POLLS: u32 = 10_000;

/// Work of fixed length: dependent multiplications that touch no shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Work(u64);

impl Work {
    /// Returns the work of `ns` nanoseconds, with `per_ns` multiplications per nanosecond.
    pub fn of(ns: f64, per_ns: f64) -> Self {
        Self((ns * per_ns).round() as u64)
    }

    /// Returns the work of this many multiplications.
    pub fn steps(steps: u64) -> Self {
        Self(steps)
    }

    /// Does the work; `x` is its initial value.
    #[inline]
    pub fn run(self, mut x: u64) {
        for _ in 0..self.0 {
            x = black_box(x.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        }
    }
}

/// Returns the multiplications of [`Work`] per nanosecond on this processor: the best of many runs,
/// since interruptions only add time.
pub fn calibrate() -> f64 {
    const STEPS: u64 = 10_000;
    let fastest = (0..200).map(|_| {
        let began = Instant::now();
        Work(STEPS).run(1);
        began.elapsed().as_nanos() as f64
    });
    STEPS as f64 / fastest.fold(f64::MAX, f64::min).max(1.0)
}

/// The load of a round.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Number of threads.
    pub threads: usize,
    /// Work in the critical section.
    pub inside: Work,
    /// Work between two critical sections of a thread.
    pub outside: Work,
    /// Length of the round.
    pub length: Duration,
}

impl Load {
    /// Returns the sampling interval of timed waits. A single thread never waits, and reads no
    /// clock.
    fn sampled(&self) -> u64 {
        if self.threads == 1 { u64::MAX } else { SAMPLED }
    }
}

/// Results of a round.
#[derive(Debug)]
pub struct Round {
    /// Time from the start until the stop flag, in nanoseconds.
    pub elapsed_ns: f64,
    /// Acquisitions by thread.
    pub taken: Vec<u64>,
    /// Sampled waits in nanoseconds.
    pub waits: Histogram,
    /// CPU time of all threads in nanoseconds.
    pub cpu_ns: u64,
    /// Total time that threads were runnable without a core, in nanoseconds.
    pub queued_ns: u64,
    /// Voluntary context switches.
    pub switches: u64,
}

/// Start barrier: no thread starts before all have been on a core and the clock runs.
struct Start {
    barrier: Barrier,
    arrived: AtomicUsize,
    threads: usize,
    go: AtomicBool,
}

impl Start {
    fn of(threads: usize) -> Self {
        Self {
            barrier: Barrier::new(threads + 1),
            arrived: AtomicUsize::new(0),
            threads,
            go: AtomicBool::new(false),
        }
    }

    /// Starts the round and returns its start time. Called by the timekeeper.
    fn begin(&self) -> Instant {
        self.barrier.wait();
        // Relaxed, here and below: counts and flags that publish no data.
        wait_until(|| self.arrived.load(Ordering::Relaxed) == self.threads);
        let began = Instant::now();
        self.go.store(true, Ordering::Relaxed);
        began
    }

    /// Waits for the start and returns the resources used until then. Called by each thread.
    fn wait(&self) -> Spent {
        self.barrier.wait();
        self.arrived.fetch_add(1, Ordering::Relaxed);
        wait_until(|| self.go.load(Ordering::Relaxed));
        Spent::now()
    }
}

/// Spins for a while, then yields between polls.
fn wait_until(done: impl Fn() -> bool) {
    let mut looks = 0;
    while !done() {
        if looks < START_POLLS {
            looks += 1;
            std::hint::spin_loop();
        } else {
            thread::yield_now();
        }
    }
}

/// Results of one thread.
struct ThreadResult {
    taken: u64,
    waits: Box<Histogram>,
    spent: Spent,
}

/// Runs a round on a new latch and checks its mutual exclusion.
pub fn round<C: Contender>(load: &Load) -> Res<Round> {
    let latch = CachePadded::new(C::new());
    let stop = CachePadded::new(AtomicBool::new(false));
    let start = Start::of(load.threads);
    let (elapsed, results) = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..load.threads).map(|_| scope.spawn(|| work(&*latch, load, &stop, &start))).collect();
        let began = start.begin();
        // A loop: the last thread of an earlier scope may have left an unpark token.
        while let Some(left) =
            load.length.checked_sub(began.elapsed()).filter(|left| !left.is_zero())
        {
            thread::park_timeout(left);
        }
        // Relaxed: a stop flag; it publishes no data.
        stop.store(true, Ordering::Relaxed);
        let elapsed = began.elapsed();
        (elapsed, threads.into_iter().map(|t| t.join()).collect::<Result<Vec<_>, _>>())
    });
    let results = results.map_err(|_| "a thread of the bench panicked")?;
    let mut all = Round {
        elapsed_ns: elapsed.as_nanos() as f64,
        taken: results.iter().map(|a| a.taken).collect(),
        waits: Histogram::default(),
        cpu_ns: results.iter().map(|a| a.spent.cpu_ns).sum(),
        queued_ns: results.iter().map(|a| a.spent.queued_ns).sum(),
        switches: results.iter().map(|a| a.spent.switches).sum(),
    };
    results.iter().for_each(|a| all.waits.add(&a.waits));
    let (taken, counted) = (all.taken.iter().sum::<u64>(), latch.with(|p| p.taken));
    if taken != counted {
        return Err(format!(
            "{taken} sections ran, but only {counted} are counted: the latch admitted two threads at once"
        ));
    }
    Ok(all)
}

fn work<C: Contender>(latch: &C, load: &Load, stop: &AtomicBool, start: &Start) -> ThreadResult {
    let (mut taken, mut untimed, mut waits) = (0_u64, 0_u64, Box::new(Histogram::default()));
    let (inside, outside, sampled) = (load.inside, load.outside, load.sampled());
    let section = |protected: &mut Protected| {
        protected.taken += 1;
        inside.run(protected.taken);
    };
    let spent = start.wait();
    loop {
        if untimed == 0 {
            untimed = sampled;
            let came = Instant::now();
            let waited = latch.with(|protected| {
                let waited = came.elapsed();
                section(protected);
                waited
            });
            waits.record(waited.as_nanos() as u64);
        } else {
            latch.with(section);
        }
        untimed -= 1;
        taken += 1;
        outside.run(taken);
        // At least one section, even if the thread got a core late: a round in which a thread
        // acquired nothing says nothing about the latch.
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    ThreadResult { taken, waits, spent: Spent::now().since(&spent) }
}

/// Resources used by the calling thread. Waits and switches come from Linux's `/proc`; zero
/// elsewhere.
struct Spent {
    cpu_ns: u64,
    queued_ns: u64,
    switches: u64,
}

/// Returns how often this thread gave up its core to wait, excluding preemptions and yields.
pub fn voluntary_switches() -> u64 {
    let status = of_this_thread("status");
    number(status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")))
}

fn of_this_thread(file: &str) -> String {
    std::fs::read_to_string(format!("/proc/thread-self/{file}")).unwrap_or_default()
}

fn number(text: Option<&str>) -> u64 {
    text.and_then(|t| t.trim().parse().ok()).unwrap_or(0)
}

impl Spent {
    fn now() -> Self {
        Self {
            cpu_ns: cpu::of_this_thread(),
            queued_ns: number(of_this_thread("schedstat").split_whitespace().nth(1)),
            switches: voluntary_switches(),
        }
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns - before.cpu_ns,
            queued_ns: self.queued_ns - before.queued_ns,
            switches: self.switches - before.switches,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::contender::kinds;
    use super::*;

    #[test]
    fn waiting_counts_as_a_voluntary_switch() {
        let (wake, woken) = std::sync::mpsc::channel();
        let (name, named) = std::sync::mpsc::channel();
        let waiter = thread::spawn(move || {
            let before = voluntary_switches();
            name.send(std::fs::read_link("/proc/thread-self").unwrap()).unwrap();
            woken.recv().unwrap();
            voluntary_switches() - before
        });
        let status = std::path::Path::new("/proc").join(named.recv().unwrap()).join("status");
        while !std::fs::read_to_string(&status).unwrap().contains("State:\tS") {
            thread::yield_now();
        }
        wake.send(()).unwrap();
        assert!(waiter.join().unwrap() > 0);
    }

    #[test]
    fn rounds_count_acquisitions_of_every_thread() {
        let (inside, outside) = (Work::of(20.0, 1.0), Work::of(20.0, 1.0));
        for threads in [1, 3] {
            let load = Load { threads, inside, outside, length: Duration::from_millis(1) };
            for kind in kinds() {
                let round =
                    (kind.round)(&load).unwrap_or_else(|why| panic!("{}: {why}", kind.name));
                assert_eq!(round.taken.len(), threads, "{}", kind.name);
                assert!(round.elapsed_ns >= 1e6 && round.cpu_ns > 0, "{}", kind.name);
                assert!(
                    round.taken.iter().all(|taken| *taken > 0),
                    "{}: {:?}",
                    kind.name,
                    round.taken
                );
                let timed: u64 =
                    round.taken.iter().map(|taken| taken.div_ceil(load.sampled())).sum();
                assert_eq!(round.waits.count(), timed, "{}", kind.name);
            }
        }
    }

    /// A latch that discards its protected data.
    struct Forgetful;

    impl Contender for Forgetful {
        fn new() -> Self {
            Self
        }

        fn with<R>(&self, section: impl FnOnce(&mut Protected) -> R) -> R {
            section(&mut Protected::default())
        }
    }

    /// Also if the round is over before the thread has a core.
    #[test]
    fn broken_latches_are_detected() {
        let load = Load { threads: 1, inside: Work(1), outside: Work(1), length: Duration::ZERO };
        assert!(round::<Forgetful>(&load).unwrap_err().contains("two threads at once"));
    }
}
