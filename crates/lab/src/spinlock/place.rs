//! Where the cores are, before and after a round: near each other, or apart.
//!
//! A virtual machine does not see on which cores of the host it runs, and the host moves it. On
//! cores that share a cache, a cache line goes from one to the other and back several times faster
//! than on cores that do not. A latch whose holder changes is then as much faster. So rounds are
//! compared only with rounds in the same place.

use super::round::Work;
use clearway_latch::CachePadded;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Trips of the line between two reads of the clock.
const BATCH: u32 = 20;
/// Batches of a measurement.
const BATCHES: u32 = 100;
/// The end of a measurement whose threads share a core, and hand it over with each trip.
const PATIENCE: Duration = Duration::from_millis(100);
/// No line takes longer: the threads did share a core.
const SHARED_NS: f64 = 10_000.0;
/// Multiplications of one sample of the core's speed: about 10 us.
const STEPS: u64 = 10_000;
/// Cores are apart if a line takes more than this many times the shortest trip of the run.
pub const APART: f64 = 2.0;

/// What the machine gives to a round.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Time in which a cache line goes to another core and back, in nanoseconds; NaN if the
    /// threads that measured it had only one core.
    pub line_ns: f64,
    /// Time of a core's work relative to its time when the run began.
    pub slowness: f64,
}

impl Place {
    /// Measures the machine, in about a millisecond. Work takes `per_ns` multiplications per
    /// nanosecond when the run begins.
    pub fn now(per_ns: f64) -> Self {
        let shortest = (0..20).map(|_| {
            let began = Instant::now();
            Work::steps(STEPS).run(1);
            began.elapsed().as_nanos() as f64
        });
        let slowness = shortest.fold(f64::MAX, f64::min) * per_ns / STEPS as f64;
        Self { line_ns: there_and_back(), slowness }
    }

    /// Returns the worse of each measure.
    pub fn worse(self, other: Self) -> Self {
        Self {
            line_ns: self.line_ns.max(other.line_ns),
            slowness: self.slowness.max(other.slowness),
        }
    }
}

/// Returns the nanoseconds of a trip: the best of many batches, since interruptions only add time.
fn there_and_back() -> f64 {
    if thread::available_parallelism().map_or(1, usize::from) == 1 {
        return f64::NAN;
    }
    let (line, stop) = (CachePadded::new(AtomicU32::new(0)), AtomicBool::new(false));
    // Relaxed, here and below: the line itself is the message.
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                if line.load(Ordering::Relaxed) == 1 {
                    line.store(0, Ordering::Relaxed);
                }
            }
        });
        let trip = || {
            line.store(1, Ordering::Relaxed);
            while line.load(Ordering::Relaxed) != 0 {}
        };
        // The first trip waits until the other thread has started.
        trip();
        let (began, mut best) = (Instant::now(), f64::MAX);
        for _ in 0..BATCHES {
            let batch = Instant::now();
            (0..BATCH).for_each(|_| trip());
            best = best.min(batch.elapsed().as_nanos() as f64 / f64::from(BATCH));
            if began.elapsed() >= PATIENCE {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        if best < SHARED_NS { best } else { f64::NAN }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_is_measured() {
        let place = Place::now(1.0);
        assert!(place.line_ns.is_nan() || place.line_ns > 0.0, "{place:?}");
        assert!(place.slowness > 0.0, "{place:?}");
    }

    #[test]
    fn the_worse_place_counts() {
        let (near, apart) =
            (Place { line_ns: 50.0, slowness: 1.5 }, Place { line_ns: 300.0, slowness: 1.0 });
        let both = near.worse(apart);
        assert_eq!((both.line_ns, both.slowness), (300.0, 1.5));
    }
}
