//! Measures this machine's processor at start-up, in a few milliseconds.
//!
//! The calibration chooses the instructions with which [`crate::ParkLatch`] acquires its word, and
//! the number of pauses between two reads of the word and before yielding or sleeping. It assumes
//! nothing from the architecture's name: the source found LSE slower on one chip and faster on
//! others (see [`crate::acquire`]).
//!
//! A candidate is judged by the throughput of two threads that acquire and release one word. If two
//! candidates are within 5 % of each other, the time of a single thread decides.
//!
//! A thread should spin for about as long as its alternative takes, so that it never loses more
//! than twice the cost of the best decision (Karlin and others, "Competitive Randomized Algorithms
//! for Nonuniform Problems", SODA 1990). The alternative is to give the core to another thread. The
//! limit is therefore the time to yield a core and get it back, divided by the length of one pause,
//! which differs tenfold between chips of one architecture. Two bounds hold:
//!
//! - *At most 1.1 us.* [`crate::ParkLatch`] treats sections as long, and yields, if many waits
//!   outlast the limit. Some virtual machines need 2.7 us to yield a core and regain it. With that
//!   limit, sections of 2 us count as short, and the threads that spin for them keep the cores from
//!   woken threads.
//! - *At least one pause of each kind.* A waiter that gives up during the long pause misses that
//!   the latch has become free, and sleeps.
//!
//! The wake-up time of a sleeper is not a usable measure: it is 0.8 us with its waker on the same
//! core, 25 us with an idle core that must wake up first, and which of the two is measured is
//! chance.

use crate::acquire::{Acquisition, Compare, FREE, Tested};
use crate::choice::{Choice, choose};
use crate::park;
use clearway_sync::hint;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The duration of one measurement.
const SLICE: Duration = Duration::from_micros(200);
/// Operations between two reads of the clock.
const CHUNK: u32 = 64;
/// How many times a core is yielded and regained.
const TRIPS: u32 = 100;
/// The time of that where it cannot be measured: the value of a server processor of 2020.
const DEFAULT_TRIP_NS: f64 = 1100.0;
/// The maximum time of a spin: with it sections of 2 us count as long.
const LONGEST_SPIN_NS: f64 = 1100.0;
/// The minimum and maximum number of spins, whatever was measured.
const SPINS: std::ops::RangeInclusive<u32> = 10..=1000;

/// The measurements of one candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The candidate.
    pub choice: Choice,
    /// One thread alone: nanoseconds to acquire and release.
    pub alone_ns: f64,
    /// Two threads: acquisitions per microsecond, both together.
    pub pair_per_us: f64,
}

/// The measurements and the choice.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// The measurements of each candidate.
    pub samples: Vec<Sample>,
    /// The chosen candidate.
    pub choice: Choice,
    /// Nanoseconds of one pause while spinning.
    pub pause_ns: f64,
    /// Nanoseconds from a thread's yielding its core to another thread until it gets the core back.
    pub yield_ns: f64,
    /// Spins before a thread yields or sleeps: as long as `yield_ns`, within the bounds that the
    /// module names.
    pub spin_limit: u32,
    /// The duration of the whole calibration.
    pub took: Duration,
}

impl Calibration {
    /// Applies the result to the whole process.
    pub fn apply(&self) {
        choose(self.choice);
        park::set_spin_limit(self.spin_limit);
        park::set_pause(self.pause_ns);
    }
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "latches by {}, {} spins before a thread yields or sleeps (",
            self.choice.name(),
            self.spin_limit
        )?;
        for sample in &self.samples {
            write!(
                f,
                "{} {:.1} ns alone, {:.1} per us by two threads; ",
                sample.choice.name(),
                sample.alone_ns,
                sample.pair_per_us
            )?;
        }
        write!(
            f,
            "pause {:.1} ns, core yielded and regained in {:.0} ns; took {:.1?})",
            self.pause_ns, self.yield_ns, self.took
        )
    }
}

/// Measures this machine, in a few milliseconds. Does not apply the result.
pub fn calibrate() -> Calibration {
    let began = Instant::now();
    let samples: Vec<Sample> =
        Choice::all().into_iter().map(|choice| sample(choice, SLICE)).collect();
    let best_pair = samples.iter().map(|s| s.pair_per_us).fold(0.0, f64::max);
    let choice = samples
        .iter()
        .filter(|s| s.pair_per_us >= best_pair * 0.95)
        .min_by(|a, b| a.alone_ns.total_cmp(&b.alone_ns))
        .map_or(Choice::Cas, |s| s.choice);
    let pause_ns = alone(SLICE, hint::spin_loop);
    let yield_ns = there_and_back().unwrap_or(DEFAULT_TRIP_NS);
    let spin_limit = spins(yield_ns, pause_ns);
    Calibration { samples, choice, pause_ns, yield_ns, spin_limit, took: began.elapsed() }
}

/// Returns the spins before a thread yields or sleeps, where a core is yielded and regained in
/// `yield_ns` nanoseconds and a pause takes `pause_ns`.
fn spins(yield_ns: f64, pause_ns: f64) -> u32 {
    let in_time = (yield_ns.min(LONGEST_SPIN_NS) / pause_ns.max(0.1)) as u32;
    in_time.max(park::pauses_of_three_reads(pause_ns)).clamp(*SPINS.start(), *SPINS.end())
}

fn measure<A: Acquisition>(slice: Duration) -> (f64, f64) {
    let word = clearway_sync::atomic::AtomicU32::new(FREE);
    let take = || {
        while !A::try_acquire(&word) {
            A::pause(&word);
        }
        // Release: pairs with the Acquire in `try_acquire`.
        word.store(FREE, Ordering::Release);
    };
    let alone_ns = alone(slice, take);
    (alone_ns, pair(slice, take))
}

fn sample(choice: Choice, slice: Duration) -> Sample {
    let (alone_ns, pair_per_us) = match choice {
        Choice::Cas => measure::<Compare>(slice),
        Choice::TestCas => measure::<Tested<Compare>>(slice),
        #[cfg(all(target_arch = "aarch64", not(any(loom, shuttle, miri))))]
        Choice::LseCas => measure::<crate::acquire::LseCompare>(slice),
        #[cfg(all(target_arch = "aarch64", not(any(loom, shuttle, miri))))]
        Choice::TestLseCas => measure::<Tested<crate::acquire::LseCompare>>(slice),
    };
    Sample { choice, alone_ns, pair_per_us }
}

/// Returns the nanoseconds of one operation: the best of several chunks, since interruptions only
/// add time. Runs at least one chunk, even if the thread loses its core for the whole of `slice`.
fn alone(slice: Duration, mut operation: impl FnMut()) -> f64 {
    let began = Instant::now();
    let mut best = f64::MAX;
    loop {
        let chunk = Instant::now();
        for _ in 0..CHUNK {
            operation();
        }
        best = best.min(chunk.elapsed().as_nanos() as f64 / f64::from(CHUNK));
        if began.elapsed() >= slice {
            return best;
        }
    }
}

/// Returns the operations per microsecond of two threads together, each of which runs at least one
/// chunk. If a thread cannot be started, one thread runs.
fn pair(slice: Duration, operation: impl Fn() + Sync) -> f64 {
    let (stop, ready, go) =
        (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
    let done = AtomicU64::new(0);
    let run = |until: &dyn Fn() -> bool| {
        let mut n = 0;
        loop {
            for _ in 0..CHUNK {
                operation();
            }
            n += u64::from(CHUNK);
            if until() {
                break;
            }
        }
        done.fetch_add(n, Ordering::Relaxed);
    };
    thread::scope(|scope| {
        let other = thread::Builder::new().spawn_scoped(scope, || {
            ready.store(true, Ordering::Relaxed);
            while !go.load(Ordering::Relaxed) {
                hint::spin_loop();
            }
            run(&|| stop.load(Ordering::Relaxed));
        });
        while other.is_ok() && !ready.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        let began = Instant::now();
        go.store(true, Ordering::Relaxed);
        run(&|| began.elapsed() >= slice);
        stop.store(true, Ordering::Relaxed);
        // A panic in the thread would be one in `operation`, which does not panic.
        let _joined = other.map(thread::ScopedJoinHandle::join);
        done.load(Ordering::Relaxed) as f64 / (began.elapsed().as_nanos() as f64 / 1e3)
    })
}

/// Returns the nanoseconds from a thread's yielding its core to another thread until it gets the
/// core back, for two threads on one core. Takes the lower quartile, since other threads on that
/// core only add time. Returns `None` if two threads cannot run on one core.
fn there_and_back() -> Option<f64> {
    let (stop, theirs) = (AtomicBool::new(false), AtomicU64::new(0));
    let core = Core::current()?;
    let mut trips = thread::scope(|scope| {
        let other = thread::Builder::new().spawn_scoped(scope, || {
            core.keep_to()?;
            while !stop.load(Ordering::Relaxed) {
                theirs.fetch_add(1, Ordering::Relaxed);
                thread::yield_now();
            }
            Some(())
        });
        let timed = thread::Builder::new().spawn_scoped(scope, || {
            core.keep_to()?;
            let trip = || {
                let (turns, left) = (theirs.load(Ordering::Relaxed), Instant::now());
                thread::yield_now();
                let trip = left.elapsed().as_nanos() as f64;
                // Otherwise the other thread was not ready, and the core was not yielded. Relaxed:
                // a counter that orders nothing.
                (theirs.load(Ordering::Relaxed) != turns).then_some(trip)
            };
            Some((0..TRIPS).filter_map(|_| trip()).collect::<Vec<f64>>())
        });
        // A panic in the threads would be one in their operations, which do not panic.
        let trips = timed.ok().and_then(|timed| timed.join().ok().flatten());
        stop.store(true, Ordering::Relaxed);
        let _joined = other.map(thread::ScopedJoinHandle::join);
        trips
    })?;
    trips.sort_by(f64::total_cmp);
    trips.get(trips.len() / 4).copied()
}

/// One of the processor's cores.
struct Core(rustix::thread::CpuSet);

impl Core {
    /// Returns the core that the calling thread runs on.
    fn current() -> Option<Self> {
        if cfg!(miri) {
            return None;
        }
        let mut set = rustix::thread::CpuSet::new();
        let core = rustix::thread::sched_getcpu();
        (core < rustix::thread::CpuSet::MAX_CPU).then(|| set.set(core))?;
        Some(Self(set))
    }

    /// Pins the calling thread to this core. Returns `None` if the system refuses.
    fn keep_to(&self) -> Option<()> {
        rustix::thread::sched_setaffinity(None, &self.0).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::chosen;

    #[test]
    fn a_spin_takes_as_long_as_a_yield_within_bounds() {
        assert_eq!(spins(1100.0, 25.0), 44, "an Intel Xeon");
        assert_eq!(spins(2670.0, 24.6), 44, "a virtual machine on an AMD EPYC: the upper bound");
        assert_eq!(spins(1000.0, 25.0), 40);
        assert_eq!(spins(1000.0, 2.5), 400, "short pauses");
        assert_eq!(spins(300.0, 25.0), 4 + 32 + 1, "a fast yield: one read of each kind");
        assert_eq!(spins(300.0, 56.0), 2 + 14 + 1);
    }

    #[test]
    fn spins_are_bounded_for_any_measurement() {
        for yield_ns in [0.0, 1.0, 1e3, 1e12, f64::INFINITY, f64::NAN] {
            for pause_ns in [0.0, 0.1, 1.0, 25.0, 1e6, f64::INFINITY, f64::NAN] {
                let spins = spins(yield_ns, pause_ns);
                assert!(SPINS.contains(&spins), "{yield_ns} {pause_ns} {spins}");
            }
        }
    }

    #[test]
    fn slice_without_a_core_is_still_measured() {
        for choice in Choice::all() {
            let sample = sample(choice, Duration::ZERO);
            assert!(sample.alone_ns > 0.0 && sample.alone_ns < 1e9, "{sample:?}");
            assert!(sample.pair_per_us > 0.0, "{sample:?}");
        }
    }

    #[test]
    fn calibration_chooses_an_available_instruction() {
        let calibration = calibrate();
        assert!(Choice::all().contains(&calibration.choice));
        assert_eq!(calibration.samples.len(), Choice::all().len());
        assert!(SPINS.contains(&calibration.spin_limit), "{calibration}");
        assert!(
            calibration.samples.iter().all(|s| s.alone_ns > 0.0 && s.pair_per_us > 0.0),
            "{calibration}"
        );
        assert!(calibration.yield_ns > 0.0, "{calibration}");
        calibration.apply();
        assert_eq!((chosen(), park::spin_limit()), (calibration.choice, calibration.spin_limit));
        assert_eq!(Choice::by_name(calibration.choice.name()), Some(calibration.choice));
        assert_eq!(Choice::by_name("bakery"), None);
    }
}
