//! Where the cores are, before and after a run: near each other, or apart.
//!
//! A virtual machine does not see on which cores of the host it runs, and the host moves it. On
//! cores that share a cache, a cache line goes from one to the other and back several times faster
//! than on cores that do not. A latch whose holder changes is then as much faster. So runs of
//! several threads are compared only with runs in the same place.

use crate::number::median;
use crate::spinlock::Work;
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
/// Cores are apart if a line takes more than this many times the shortest trip of all runs.
const APART: f64 = 2.0;

/// The setting of an experiment that prefers runs with near cores.
pub const SETTING: (&str, &str) =
    ("runs that count", "those with near cores, or all where there are no others");

/// State of the cores during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cores {
    /// A cache line went to another core and back about as fast as in the fastest run.
    Near,
    /// It took more than [`APART`] times as long.
    Apart,
}

/// What the machine gives to a run.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Time in which a cache line goes to another core and back, in nanoseconds; NaN if the
    /// threads that measured it had only one core.
    pub line_ns: f64,
    /// Time of a core's work relative to its time when the run began.
    pub slowness: f64,
    /// State of the cores: near until [`mark_apart`] has seen all runs.
    pub cores: Cores,
}

/// Measures the place of one run after another.
pub struct Watch {
    per_ns: f64,
    before: Place,
}

impl Watch {
    /// Measures the machine before the first run. Work takes `per_ns` multiplications per
    /// nanosecond when the experiment begins.
    pub fn begin(per_ns: f64) -> Self {
        Self { per_ns, before: Place::now(per_ns) }
    }

    /// Ends a run and begins the next one. Returns the worse of the machine's states before and
    /// after the run.
    pub fn lap(&mut self) -> Place {
        let after = Place::now(self.per_ns);
        std::mem::replace(&mut self.before, after).worse(after)
    }
}

/// The result of a run that has a place, or of another one, which has none.
pub trait Placed {
    /// Returns the place of the run.
    fn place(&self) -> Option<&Place> {
        None
    }

    /// Returns the place to mark.
    fn place_mut(&mut self) -> Option<&mut Place> {
        None
    }

    /// Returns true if the cores were in this state, or if that does not matter.
    fn is_in(&self, cores: Cores) -> bool {
        self.place().is_none_or(|place| place.cores == cores)
    }
}

/// End of the title of samples with the times of the cache line, after what they belong to.
pub const LINE: &str = "cache line there and back";

/// Returns true if the cores were apart in a run with this time of the line.
pub fn is_apart(line_ns: f64, shortest_ns: f64) -> bool {
    line_ns > APART * shortest_ns
}

/// Finds the runs of an experiment whose cores were further apart than those of others.
pub fn mark_apart<'a, F: Placed + 'a>(results: impl Iterator<Item = &'a mut F>) {
    let mut places: Vec<&mut Place> = results.filter_map(Placed::place_mut).collect();
    let shortest = shortest_trip(places.iter().map(|place| place.line_ns));
    for place in &mut places {
        place.cores = if is_apart(place.line_ns, shortest) { Cores::Apart } else { Cores::Near };
    }
}

/// Returns the shortest of these times of a trip of a cache line in nanoseconds, without the
/// shortest hundredth: else a few runs would make all others apart. NaN if there is none.
pub fn shortest_trip(lines_ns: impl Iterator<Item = f64>) -> f64 {
    let mut lines: Vec<f64> = lines_ns.filter(|ns| ns.is_finite()).collect();
    lines.sort_by(f64::total_cmp);
    lines.get(lines.len() / 100).copied().unwrap_or(f64::NAN)
}

/// Returns the results with near cores, or all if there are none.
pub fn near_or_all<F: Placed>(results: &[F]) -> Vec<&F> {
    let cores = common(&[results], |results, cores| results.iter().any(|r| r.is_in(cores)));
    results.iter().filter(|result| cores.is_none_or(|cores| result.is_in(cores))).collect()
}

/// Returns the state of the cores in which groups of runs can be compared: near, if each group has
/// such runs; else apart, if each has. Returns `None` if they have no state in common.
pub fn common<G>(groups: &[G], has: impl Fn(&G, Cores) -> bool) -> Option<Cores> {
    [Cores::Near, Cores::Apart].into_iter().find(|cores| groups.iter().all(|g| has(g, *cores)))
}

/// Why groups of runs cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// One has no run.
    Unmeasured,
    /// One has runs only with near cores, another only with cores apart.
    NoCommonState,
}

/// Returns the medians of groups of runs in the state of the cores that all of them have.
pub fn medians<G, const N: usize>(
    groups: [Option<G>; N],
    has: impl Fn(&G, Cores) -> bool,
    median_in: impl Fn(&G, Cores) -> Option<f64>,
) -> Result<[f64; N], Missing> {
    let groups: Vec<G> = groups.into_iter().collect::<Option<_>>().ok_or(Missing::Unmeasured)?;
    let cores = common(&groups, has).ok_or(Missing::NoCommonState)?;
    let medians: Option<Vec<f64>> = groups.iter().map(|group| median_in(group, cores)).collect();
    medians.and_then(|medians| medians.try_into().ok()).ok_or(Missing::Unmeasured)
}

/// Says in how many of the `what` the cores were apart; `None` if no line was measured.
pub fn found<'a>(what: &str, places: impl Iterator<Item = &'a Place>) -> Option<String> {
    let places: Vec<&Place> = places.collect();
    let (all, shortest) = (places.len(), shortest_trip(places.iter().map(|place| place.line_ns)));
    let apart = places.iter().filter(|place| place.cores == Cores::Apart);
    let apart: Vec<f64> = apart.map(|place| place.line_ns).collect();
    match median(&apart) {
        Some(slow) => Some(format!(
            "In {} of {all} {what} the cores were apart: a cache line went to the other core and back in {slow:.0} ns (median) instead of {shortest:.0} ns. The host moved this virtual machine, or threads moved between distant cores. Such {what} count only where there are no others.",
            apart.len()
        )),
        None if shortest.is_nan() => None,
        None => Some(format!(
            "In all {all} {what} a cache line took at most {:.0} ns to go to the other core and back, and in nearly all at least {shortest:.0}.",
            APART * shortest
        )),
    }
}

impl Place {
    /// Measures the machine, in about a millisecond.
    fn now(per_ns: f64) -> Self {
        let shortest = (0..20).map(|_| {
            let began = Instant::now();
            Work::steps(STEPS).run(1);
            began.elapsed().as_nanos() as f64
        });
        let slowness = shortest.fold(f64::MAX, f64::min) * per_ns / STEPS as f64;
        Self { line_ns: there_and_back(), slowness, cores: Cores::Near }
    }

    /// Returns the worse of each measure.
    fn worse(self, other: Self) -> Self {
        Self {
            line_ns: self.line_ns.max(other.line_ns),
            slowness: self.slowness.max(other.slowness),
            cores: self.cores,
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
pub mod tests {
    use super::*;

    /// Near cores, unless another round's line is much faster.
    pub const NEAR: Place = Place { line_ns: 50.0, slowness: 1.0, cores: Cores::Near };
    /// Cores apart, beside [`NEAR`].
    pub const APART: Place = Place { line_ns: 300.0, slowness: 1.0, cores: Cores::Apart };

    #[test]
    fn machine_is_measured() {
        let place = Watch::begin(1.0).lap();
        assert!(place.line_ns.is_nan() || place.line_ns > 0.0, "{place:?}");
        assert!(place.slowness > 0.0, "{place:?}");
    }

    #[test]
    fn the_worse_place_counts() {
        let both = Place { slowness: 1.5, ..NEAR }.worse(APART);
        assert_eq!((both.line_ns, both.slowness), (300.0, 1.5));
    }

    impl Placed for Place {
        fn place(&self) -> Option<&Place> {
            Some(self)
        }

        fn place_mut(&mut self) -> Option<&mut Place> {
            Some(self)
        }
    }

    impl Placed for &str {}

    #[test]
    fn cores_are_apart_relative_to_the_shortest_trip() {
        let marked = |lines: [f64; 4]| {
            let mut places = lines.map(|line_ns| Place { line_ns, ..NEAR });
            mark_apart(places.iter_mut());
            places.map(|place| place.cores)
        };
        use Cores::{Apart, Near};
        assert_eq!(marked([50.0, 100.0, 101.0, f64::NAN]), [Near, Near, Apart, Near]);
        assert_eq!(marked([300.0, 310.0, 330.0, 300.0]), [Near; 4]);
        assert_eq!(marked([f64::NAN; 4]), [Near; 4], "one core");
    }

    #[test]
    fn a_run_in_a_hundred_makes_no_others_apart() {
        let apart = |near: usize| {
            let mut places = vec![Place { line_ns: 110.0, ..NEAR }; 300];
            places[..near].fill(Place { line_ns: 43.0, ..NEAR });
            mark_apart(places.iter_mut());
            places.iter().filter(|place| place.cores == Cores::Apart).count()
        };
        assert_eq!((apart(3), apart(4)), (0, 296));
    }

    #[test]
    fn near_results_count_if_there_are_some() {
        let lines = |places: &[Place]| {
            near_or_all(places).iter().map(|place| place.line_ns).collect::<Vec<_>>()
        };
        assert_eq!(lines(&[APART, NEAR, APART]), [50.0]);
        assert_eq!(lines(&[APART, APART]), [300.0; 2]);
        assert_eq!(near_or_all(&["simulated"; 2]).len(), 2, "without places");
        assert_eq!(near_or_all::<Place>(&[]).len(), 0);
    }

    #[test]
    fn the_output_says_how_many_runs_were_apart() {
        let said = |places: &[Place]| found("runs", places.iter());
        assert!(said(&[NEAR, APART, APART]).unwrap().starts_with("In 2 of 3 runs the cores"));
        assert!(
            said(&[NEAR, NEAR])
                .unwrap()
                .starts_with("In all 2 runs a cache line took at most 100 ns")
        );
        assert_eq!(said(&[Place { line_ns: f64::NAN, ..NEAR }]), None);
    }

    #[test]
    fn groups_are_compared_in_a_common_state() {
        use Cores::{Apart, Near};
        let common = |groups: &[&[Cores]]| common(groups, |group, cores| group.contains(&cores));
        assert_eq!(common(&[&[Near, Apart], &[Near]]), Some(Near));
        assert_eq!(common(&[&[Near, Apart], &[Near, Apart]]), Some(Near));
        assert_eq!(common(&[&[Near, Apart], &[Apart]]), Some(Apart));
        assert_eq!(common(&[&[Near], &[Apart]]), None);
    }
}
