//! One round: threads take one latch again and again for a set time, and each keeps its own
//! account.
//!
//! Nothing but the latch and what it protects is written by more than one thread while the round
//! runs: counts and waits are the threads' own, allocated before the start. Every [`SAMPLED`]th
//! wait is timed, the same for all latches: two looks at the clock, of which the second is inside
//! the section.

use super::contender::{Contender, Protected};
use super::histogram::Histogram;
use clearway_harness::Res;
use clearway_latch::CachePadded;
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// One wait in so many is timed.
pub const SAMPLED: u64 = 16;

/// How often a thread at the starting line looks around before it lets others have its core.
const STANDING: u32 = 10_000;

/// A piece of work of a set length: multiplications that wait for each other and touch no shared
/// memory.
#[derive(Clone, Copy, Debug)]
pub struct Work(u64);

impl Work {
    /// As many multiplications as take `ns` nanoseconds, where `per_ns` of them take one.
    pub fn of(ns: f64, per_ns: f64) -> Self {
        Self((ns * per_ns).round() as u64)
    }

    /// Does it; `x` is what it begins with.
    #[inline]
    pub fn run(self, mut x: u64) {
        for _ in 0..self.0 {
            x = black_box(x.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        }
    }
}

/// Multiplications of [`Work`] that this processor makes in a nanosecond: the best of many tries,
/// as interruptions only ever add.
pub fn calibrate() -> f64 {
    const STEPS: u64 = 10_000;
    let fastest = (0..200).map(|_| {
        let began = Instant::now();
        Work(STEPS).run(1);
        began.elapsed().as_nanos() as f64
    });
    STEPS as f64 / fastest.fold(f64::MAX, f64::min).max(1.0)
}

/// What the threads of a round do.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How many there are.
    pub threads: usize,
    /// Work under the latch.
    pub inside: Work,
    /// Work between two sections of a thread.
    pub outside: Work,
    /// How long the round lasts.
    pub length: Duration,
}

impl Load {
    /// One wait in so many is timed; a thread that is alone waits for nobody, and looks at no
    /// clock.
    fn sampled(&self) -> u64 {
        if self.threads == 1 { u64::MAX } else { SAMPLED }
    }
}

/// What a round came to.
#[derive(Debug)]
pub struct Round {
    /// From the start until the threads were told to stop, in nanoseconds.
    pub elapsed_ns: f64,
    /// Acquisitions by thread.
    pub taken: Vec<u64>,
    /// Waits in nanoseconds, sampled.
    pub waits: Histogram,
    /// Processor time of all threads in nanoseconds.
    pub cpu_ns: u64,
    /// How long threads were ready to run and had no core, all together, in nanoseconds.
    pub queued_ns: u64,
    /// How often threads gave up their core to wait.
    pub switches: u64,
}

/// The starting line: nobody leaves it before all have been on a core and the clock runs.
struct Start {
    barrier: Barrier,
    there: AtomicUsize,
    threads: usize,
    go: AtomicBool,
}

impl Start {
    fn of(threads: usize) -> Self {
        Self {
            barrier: Barrier::new(threads + 1),
            there: AtomicUsize::new(0),
            threads,
            go: AtomicBool::new(false),
        }
    }

    /// For whoever takes the time: returns when the round began.
    fn give(&self) -> Instant {
        self.barrier.wait();
        // Relaxed, as all here: counts and signs, nothing is handed over by them.
        stand_until(|| self.there.load(Ordering::Relaxed) == self.threads);
        let began = Instant::now();
        self.go.store(true, Ordering::Relaxed);
        began
    }

    /// For a thread of the round: returns what it had used up before.
    fn await_it(&self) -> Spent {
        self.barrier.wait();
        self.there.fetch_add(1, Ordering::Relaxed);
        stand_until(|| self.go.load(Ordering::Relaxed));
        Spent::now()
    }
}

/// Keeps the core for a while, and then lets others have it.
fn stand_until(done: impl Fn() -> bool) {
    let mut looks = 0;
    while !done() {
        if looks < STANDING {
            looks += 1;
            std::hint::spin_loop();
        } else {
            thread::yield_now();
        }
    }
}

/// What a thread hands back.
struct Account {
    taken: u64,
    waits: Box<Histogram>,
    spent: Spent,
}

/// Runs a round on a fresh latch, and checks that the latch lost nothing.
pub fn round<C: Contender>(load: &Load) -> Res<Round> {
    let latch = CachePadded::new(C::new());
    let stop = CachePadded::new(AtomicBool::new(false));
    let start = Start::of(load.threads);
    let (elapsed, accounts) = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..load.threads).map(|_| scope.spawn(|| work(&*latch, load, &stop, &start))).collect();
        let began = start.give();
        // A loop: the end of an earlier scope's last thread may have left a permit to go on.
        while let Some(left) =
            load.length.checked_sub(began.elapsed()).filter(|left| !left.is_zero())
        {
            thread::park_timeout(left);
        }
        // Relaxed: a sign, nothing is handed over by it.
        stop.store(true, Ordering::Relaxed);
        let elapsed = began.elapsed();
        (elapsed, threads.into_iter().map(|t| t.join()).collect::<Result<Vec<_>, _>>())
    });
    let accounts = accounts.map_err(|_| "a thread of the bench panicked")?;
    let mut all = Round {
        elapsed_ns: elapsed.as_nanos() as f64,
        taken: accounts.iter().map(|a| a.taken).collect(),
        waits: Histogram::default(),
        cpu_ns: accounts.iter().map(|a| a.spent.cpu_ns).sum(),
        queued_ns: accounts.iter().map(|a| a.spent.queued_ns).sum(),
        switches: accounts.iter().map(|a| a.spent.switches).sum(),
    };
    accounts.iter().for_each(|a| all.waits.add(&a.waits));
    let (taken, counted) = (all.taken.iter().sum::<u64>(), latch.with(|p| p.taken));
    if taken != counted {
        return Err(format!(
            "{taken} sections ran, but only {counted} are counted: the latch let two in at once"
        ));
    }
    Ok(all)
}

fn work<C: Contender>(latch: &C, load: &Load, stop: &AtomicBool, start: &Start) -> Account {
    let (mut taken, mut untimed, mut waits) = (0_u64, 0_u64, Box::new(Histogram::default()));
    let (inside, outside, sampled) = (load.inside, load.outside, load.sampled());
    let section = |protected: &mut Protected| {
        protected.taken += 1;
        inside.run(protected.taken);
    };
    let spent = start.await_it();
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
        // One section at least, however late the thread has a core: a round in which a thread took
        // nothing says nothing of the latch.
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Account { taken, waits, spent: Spent::now().since(&spent) }
}

/// What the calling thread has used up. What it waited for is from Linux's `/proc`; zero elsewhere.
struct Spent {
    cpu_ns: u64,
    queued_ns: u64,
    switches: u64,
}

/// How often this thread has given up its core to wait: not where it was preempted, nor where it
/// yielded.
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
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Self {
            cpu_ns: cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64,
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
    fn a_thread_that_waits_gives_up_its_core() {
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
    fn every_latch_keeps_count_and_every_thread_has_an_account() {
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

    /// A latch that forgets what was done under it.
    struct Forgetful;

    impl Contender for Forgetful {
        fn new() -> Self {
            Self
        }

        fn with<R>(&self, section: impl FnOnce(&mut Protected) -> R) -> R {
            section(&mut Protected::default())
        }
    }

    /// Also where the round is over before the thread has a core.
    #[test]
    fn a_latch_that_loses_sections_is_found_out() {
        let load = Load { threads: 1, inside: Work(1), outside: Work(1), length: Duration::ZERO };
        assert!(round::<Forgetful>(&load).unwrap_err().contains("two in at once"));
    }
}
