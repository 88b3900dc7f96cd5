//! The loads of the latch benchmark, and the rounds measured.

use super::contender::{ENGINE, Kind, PARKING_LOT, SPINNING, STD, UNCOUNTED, kinds};
use super::repeat;
use super::round::{Load, Round, Work};
use crate::experiment::{Part, Task};
use crate::number::median;
use crate::place::{self, Cores, Place, Placed, Watch};
use crate::progress::Progress;
use clearway_harness::Res;
use std::time::Duration;

/// Lengths of the critical section and of the work between two sections, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Section {
    /// In the critical section, in addition to the counter's increment.
    pub inside_ns: f64,
    /// Between two critical sections of a thread.
    pub outside_ns: f64,
}

/// Only a counter; equal parts inside and outside; mostly outside; mostly inside.
pub const SECTIONS: [Section; 4] = [
    Section { inside_ns: 0.0, outside_ns: 0.0 },
    Section { inside_ns: 50.0, outside_ns: 50.0 },
    Section { inside_ns: 100.0, outside_ns: 1000.0 },
    Section { inside_ns: 2000.0, outside_ns: 500.0 },
];
/// Thread counts, for tables and charts.
pub const THREADS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Thread counts above the number of cores, for the bars.
pub const MORE_THREADS: [usize; 3] = [8, 16, 64];
const QUICK_THREADS: [usize; 3] = [1, 2, 8];

/// Turns per repetition; every latch has one round per turn. If threads share cores there is only
/// one turn, since a round must be long enough for every thread to get a core.
const TURNS: u32 = 8;
const QUICK_ROUND: Duration = Duration::from_millis(2);
/// A thread with its own core never waits for one. If the threads of a round waited for a core for
/// more than this share of the time, another program disturbed the round.
const DISTURBED: f64 = 0.05;

/// A number of threads with one kind of critical section.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// The section.
    pub section: Section,
    /// Number of threads.
    pub threads: usize,
}

impl Section {
    /// Returns the name in tables and for `--only`.
    pub fn name(&self) -> String {
        format!("{:.0}/{:.0} ns", self.inside_ns, self.outside_ns)
    }
}

impl Case {
    /// Returns the name in progress output and for `--only`.
    pub fn name(&self) -> String {
        let threads = if self.threads == 1 { "thread" } else { "threads" };
        format!("{}, {} {threads}", self.section.name(), self.threads)
    }

    /// Returns true if a bar judges this case. With one thread, only the empty section is judged;
    /// with two or more, all sections.
    fn has_a_bar(&self) -> bool {
        match self.threads {
            1 => self.section == SECTIONS[0],
            2 => true,
            threads => MORE_THREADS.contains(&threads),
        }
    }
}

/// Returns the cases of this part of the experiment.
pub fn cases(task: &Task) -> Vec<Case> {
    let threads: &[usize] = if task.options.quick { &QUICK_THREADS } else { &THREADS };
    let all = SECTIONS
        .iter()
        .flat_map(|section| threads.iter().map(|t| Case { section: *section, threads: *t }));
    all.filter(|case| task.part.wants(&case.name(), case.has_a_bar())).collect()
}

/// Returns the latches of this part of the experiment.
pub fn latches(task: &Task) -> Vec<Kind> {
    let judged = [ENGINE, UNCOUNTED, SPINNING, STD, PARKING_LOT];
    let wanted = |kind: &Kind| task.part != Part::Bars || judged.contains(&kind.name);
    kinds().into_iter().filter(wanted).collect()
}

/// The rounds of one latch in one case.
#[derive(Debug)]
pub struct Cell {
    /// The case.
    pub case: Case,
    /// The latch.
    pub latch: &'static str,
    /// One value per round.
    pub rounds: Vec<Figures>,
}

/// Results of one round.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Acquisitions per microsecond, over all threads.
    pub rate: f64,
    /// 99.9th percentile of the wait, in microseconds; NaN if no wait was timed.
    pub wait_us: f64,
    /// Jain's index of the threads' acquisitions: 1 if all are equal, 1/n if one of n threads got
    /// all.
    pub jain: f64,
    /// Fewest acquisitions of a thread over the most.
    pub least: f64,
    /// CPU time per acquisition, in nanoseconds.
    pub cpu_ns: f64,
    /// Voluntary context switches per 1,000 acquisitions.
    pub switches: f64,
    /// Voluntary context switches.
    pub sleeps: f64,
    /// Share of the time that threads were runnable without a core.
    pub queued: f64,
    /// The worse of the machine's states before and after the round.
    pub place: Place,
}

impl Figures {
    fn of(round: &Round, place: Place) -> Self {
        let taken: Vec<f64> = round.taken.iter().map(|n| *n as f64).collect();
        let (sum, squares) = (taken.iter().sum::<f64>(), taken.iter().map(|n| n * n).sum::<f64>());
        let most = taken.iter().copied().fold(0.0, f64::max);
        Self {
            rate: sum * 1e3 / round.elapsed_ns,
            wait_us: if round.taken.len() > 1 {
                round.waits.quantile(0.999) as f64 / 1e3
            } else {
                f64::NAN
            },
            jain: sum * sum / (taken.len() as f64 * squares),
            least: taken.iter().copied().fold(f64::MAX, f64::min) / most,
            cpu_ns: round.cpu_ns as f64 / sum,
            switches: round.switches as f64 * 1e3 / sum,
            sleeps: round.switches as f64,
            queued: round.queued_ns as f64 / (round.elapsed_ns * taken.len() as f64),
            place,
        }
    }
}

impl Placed for Figures {
    fn place(&self) -> Option<&Place> {
        Some(&self.place)
    }

    fn place_mut(&mut self) -> Option<&mut Place> {
        Some(&mut self.place)
    }
}

impl Cell {
    /// Returns the median over the rounds of [`Self::values`].
    pub fn median(&self, of: fn(&Figures) -> f64) -> Option<f64> {
        median(&self.values(of))
    }

    /// Returns the median over the rounds with the cores in one state.
    pub fn median_in(&self, cores: Cores, of: fn(&Figures) -> f64) -> Option<f64> {
        median(&self.values_in(cores, of))
    }

    /// Returns the throughput of the rounds whose cores were apart over that of the others. Returns
    /// `None` unless several threads had rounds of both kinds.
    pub fn apart_over_near(&self) -> Option<f64> {
        let rate = |cores| self.median_in(cores, |f| f.rate);
        if self.case.threads > 1 { Some(rate(Cores::Apart)? / rate(Cores::Near)?) } else { None }
    }

    /// Returns the number of rounds with the cores in this state. A thread alone shares no cache
    /// line, so its rounds have both states.
    pub fn count(&self, cores: Cores) -> usize {
        self.rounds.iter().filter(|f| self.is_in(cores, f)).count()
    }

    fn is_in(&self, cores: Cores, figures: &Figures) -> bool {
        self.case.threads == 1 || Placed::is_in(figures, cores)
    }

    /// Returns the rounds with near cores, or with cores apart if there are no others.
    pub fn values(&self, of: fn(&Figures) -> f64) -> Vec<f64> {
        let cores = place::common(&[self], |cell, cores| cell.count(cores) > 0);
        self.values_in(cores.unwrap_or(Cores::Near), of)
    }

    /// Returns the rounds with the cores in one state; of these, if every thread has a core and
    /// some rounds were not disturbed, only those.
    fn values_in(&self, cores: Cores, of: fn(&Figures) -> f64) -> Vec<f64> {
        let available = std::thread::available_parallelism().map_or(1, usize::from);
        let quiet = |f: &&Figures| self.case.threads > available || f.queued <= DISTURBED;
        let in_state = || self.rounds.iter().filter(|f| self.is_in(cores, f));
        let mut values: Vec<f64> = in_state().filter(quiet).map(of).collect();
        if values.is_empty() {
            values = in_state().map(of).collect();
        }
        values
    }
}

/// The rounds of a run.
pub struct Rounds {
    /// By case and latch.
    pub cells: Vec<Cell>,
    /// How many of them were repetitions of rounds whose cores were apart.
    pub repeated: usize,
}

/// Runs every latch under every load, in turns. Then repeats rounds whose cores were apart.
pub fn measure(what: &'static str, task: &Task, per_ns: f64) -> Res<Rounds> {
    let (cases, latches) = (cases(task), latches(task));
    let mut progress = Progress::new(what, cases.len() + 1);
    let (mut cells, mut taken) = (Vec::new(), Duration::ZERO);
    let loads = cases.iter().map(|case| load(task, case, latches.len() as u32, per_ns));
    let loads: Vec<(u32, Load)> = loads.collect();
    let run = |cell: (&Case, &Kind), load: &Load, watch: &mut Watch| {
        let round = (cell.1.round)(load)
            .map_err(|why| format!("{}: {}: {why}", cell.0.name(), cell.1.name))?;
        Ok::<_, String>(Figures::of(&round, watch.lap()))
    };
    for (case, (turns, load)) in cases.iter().zip(&loads) {
        progress.step(&case.name());
        let mut rounds: Vec<Vec<Figures>> = latches.iter().map(|_| Vec::new()).collect();
        let mut watch = Watch::begin(per_ns);
        for _ in 0..*turns {
            for (latch, rounds) in latches.iter().zip(&mut rounds) {
                rounds.push(run((case, latch), load, &mut watch)?);
                taken += load.length;
            }
        }
        cells.extend(latches.iter().zip(rounds).map(|(latch, rounds)| Cell {
            case: *case,
            latch: latch.name,
            rounds,
        }));
    }
    progress.step("repeating rounds whose cores were apart");
    let mut watch = Watch::begin(per_ns);
    // Cells are ordered by case, then by latch.
    let of = |at: usize| (at / latches.len(), at % latches.len());
    let length = |at: usize| loads[of(at).0].1.length;
    let repeated = repeat::repeat(&mut cells, taken / repeat::SHARE, length, |at| {
        let (case, latch) = of(at);
        run((&cases[case], &latches[latch]), &loads[case].1, &mut watch)
    })?;
    Ok(Rounds { cells, repeated })
}

/// Returns all rounds.
pub fn rounds(cells: &[Cell]) -> impl Iterator<Item = &Figures> {
    cells.iter().flat_map(|cell| &cell.rounds)
}

/// Finds the rounds whose cores were further apart than those of others.
pub fn mark_apart(cells: &mut [Cell]) {
    place::mark_apart(cells.iter_mut().flat_map(|cell| &mut cell.rounds));
}

/// Returns the turns of a case and the load of one round: `--seconds` are shared by the turns and
/// the latches of a repetition.
fn load(task: &Task, case: &Case, latches: u32, per_ns: f64) -> (u32, Load) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let turns = if task.options.quick || case.threads > cores { 1 } else { TURNS };
    let shared = task.shared_time(latches) / turns;
    let load = Load {
        threads: case.threads,
        inside: Work::of(case.section.inside_ns, per_ns),
        outside: Work::of(case.section.outside_ns, per_ns),
        length: if task.options.quick { QUICK_ROUND } else { shared },
    };
    (turns * task.repetitions(), load)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::place::tests::NEAR;

    #[test]
    fn round_figures_are_computed() {
        let mut waits = super::super::histogram::Histogram::default();
        (1..=10).for_each(|_| waits.record(10));
        let round = Round {
            elapsed_ns: 2000.0,
            taken: vec![3, 1],
            waits,
            cpu_ns: 4000,
            queued_ns: 1000,
            switches: 1,
        };
        let f = Figures::of(&round, NEAR);
        assert_eq!((f.rate, f.wait_us, f.jain, f.cpu_ns), (2.0, 0.01, 0.8, 1000.0));
        assert_eq!((f.switches, f.sleeps, f.queued), (250.0, 1.0, 0.25));
        assert!((f.least - 1.0 / 3.0).abs() < 1e-9);
    }

    /// An undisturbed round without sleeps.
    pub(in crate::spinlock) const PLAIN: Figures = Figures {
        rate: 1.0,
        wait_us: 0.0,
        jain: 1.0,
        least: 1.0,
        cpu_ns: 1.0,
        switches: 0.0,
        sleeps: 0.0,
        queued: 0.0,
        place: NEAR,
    };

    #[test]
    fn rounds_with_cores_apart_count_only_without_near_ones() {
        let cell = |lines: [f64; 3]| {
            let rounds = lines.map(|line_ns| Figures {
                rate: line_ns,
                place: Place { line_ns, ..NEAR },
                ..PLAIN
            });
            let case = Case { section: SECTIONS[0], threads: 2 };
            Cell { case, latch: "x", rounds: rounds.to_vec() }
        };
        let mut cells = [cell([50.0, 60.0, 300.0]), cell([300.0, 310.0, 330.0])];
        mark_apart(&mut cells);
        assert_eq!(cells[0].values(|f| f.rate), [50.0, 60.0]);
        assert_eq!(cells[0].median_in(Cores::Apart, |f| f.rate), Some(300.0));
        assert_eq!(cells[0].apart_over_near(), Some(300.0 / 50.0));
        assert_eq!(cells[1].apart_over_near(), None);
        assert_eq!(cells[1].values(|f| f.rate), [300.0, 310.0, 330.0]);
        assert_eq!([Cores::Near, Cores::Apart].map(|cores| cells[1].count(cores)), [0, 3]);
        let mut one_core = [cell([f64::NAN; 3])];
        mark_apart(&mut one_core);
        assert_eq!(one_core[0].values(|f| f.jain), [1.0; 3]);
        cells[1].case.threads = 1;
        assert_eq!(cells[1].count(Cores::Near), 3, "a thread alone shares no cache line");
    }

    #[test]
    fn disturbed_rounds_count_only_without_quiet_ones() {
        let figures = |rate, queued| Figures { rate, queued, ..PLAIN };
        let cell = |threads, rounds: Vec<Figures>| Cell {
            case: Case { section: SECTIONS[0], threads },
            latch: "x",
            rounds,
        };
        let mixed = vec![figures(1.0, 0.5), figures(2.0, 0.5), figures(9.0, 0.0)];
        assert_eq!(cell(1, mixed.clone()).median(|f| f.rate), Some(9.0));
        assert_eq!(
            cell(100_000, mixed).median(|f| f.rate),
            Some(2.0),
            "threads that share cores wait for them"
        );
        assert_eq!(
            cell(1, vec![figures(1.0, 0.5), figures(2.0, 0.5)]).median(|f| f.rate),
            Some(1.0)
        );
        let apart = Place { cores: Cores::Apart, ..NEAR };
        let mut disturbed = vec![figures(1.0, 0.5), figures(9.0, 0.0)];
        disturbed[1].place = apart;
        let near =
            Cell { case: Case { section: SECTIONS[0], threads: 2 }, latch: "x", rounds: disturbed };
        assert_eq!(near.values(|f| f.rate), [1.0], "the state of the cores matters more");
    }
}
