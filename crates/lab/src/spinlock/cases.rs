//! Which loads the latches are put under, and the rounds that came of it.

use super::contender::{COUNTED, ENGINE, Kind, PARKING_LOT, SPINNING, STD, kinds};
use super::round::{Load, Round, Work};
use crate::experiment::{Part, Task};
use crate::number::median;
use crate::progress::Progress;
use clearway_harness::Res;
use std::time::Duration;

/// Lengths of the critical section and of what a thread does before it comes again, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Section {
    /// Under the latch; the counter's increment comes to it.
    pub inside_ns: f64,
    /// Between two sections of a thread.
    pub outside_ns: f64,
}

/// A counter and nothing else; as long under the latch as not; mostly not; mostly under it.
pub const SECTIONS: [Section; 4] = [
    Section { inside_ns: 0.0, outside_ns: 0.0 },
    Section { inside_ns: 50.0, outside_ns: 50.0 },
    Section { inside_ns: 100.0, outside_ns: 1000.0 },
    Section { inside_ns: 2000.0, outside_ns: 500.0 },
];
/// How many threads, for tables and charts.
pub const THREADS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// How many threads a crowd has: what bars on more threads than cores are judged by.
pub const CROWDS: [usize; 3] = [8, 16, 64];
const QUICK_THREADS: [usize; 3] = [1, 2, 8];

/// Turns of a repetition, in each of which every latch has a round. Where threads share cores a
/// round must be long enough for all to have some, so that there is one.
const TURNS: u32 = 8;
const QUICK_ROUND: Duration = Duration::from_millis(2);
/// A thread that has a core to itself is never ready without running. A round in which its threads
/// were for more than this share of its time was disturbed by another program.
const DISTURBED: f64 = 0.05;

/// A number of threads with sections of one kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// What they do.
    pub section: Section,
    /// How many they are.
    pub threads: usize,
}

impl Section {
    /// As tables and `--only` call it.
    pub fn name(&self) -> String {
        format!("{:.0}/{:.0} ns", self.inside_ns, self.outside_ns)
    }
}

impl Case {
    /// As progress and `--only` call it.
    pub fn name(&self) -> String {
        let threads = if self.threads == 1 { "thread" } else { "threads" };
        format!("{}, {} {threads}", self.section.name(), self.threads)
    }

    /// One thread has its time alone judged, with nothing to do but to take the latch; two and more
    /// are judged by all they do.
    fn has_a_bar(&self) -> bool {
        match self.threads {
            1 => self.section == SECTIONS[0],
            2 => true,
            threads => CROWDS.contains(&threads),
        }
    }
}

/// The cases of this part of the experiment.
pub fn cases(task: &Task) -> Vec<Case> {
    let threads: &[usize] = if task.options.quick { &QUICK_THREADS } else { &THREADS };
    let all = SECTIONS
        .iter()
        .flat_map(|section| threads.iter().map(|t| Case { section: *section, threads: *t }));
    all.filter(|case| task.part.wants(&case.name(), case.has_a_bar())).collect()
}

/// The latches of this part of the experiment.
pub fn latches(task: &Task) -> Vec<Kind> {
    let judged = [ENGINE, COUNTED, SPINNING, STD, PARKING_LOT];
    let wanted = |kind: &Kind| task.part != Part::Bars || judged.contains(&kind.name);
    kinds().into_iter().filter(wanted).collect()
}

/// What a latch did in a case: one value a round.
#[derive(Debug)]
pub struct Cell {
    /// The case.
    pub case: Case,
    /// The latch.
    pub latch: &'static str,
    /// By round.
    pub rounds: Vec<Figures>,
}

/// What is read off one round.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Acquisitions in a microsecond, by all threads.
    pub rate: f64,
    /// 99.9 % of the waits are no longer, in microseconds. No number where nobody was timed.
    pub wait_us: f64,
    /// Jain's index of the threads' acquisitions: 1 where all have the same number, 1/n where one
    /// of n has all.
    pub jain: f64,
    /// The acquisitions of the thread with the fewest over those of the one with the most.
    pub least: f64,
    /// Processor time an acquisition, in nanoseconds.
    pub cpu_ns: f64,
    /// How often a thread gave up its core to wait, in a thousand acquisitions.
    pub switches: f64,
    /// The share of its time that a thread was ready and had no core.
    pub queued: f64,
}

impl Figures {
    fn of(round: &Round) -> Self {
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
            queued: round.queued_ns as f64 / (round.elapsed_ns * taken.len() as f64),
        }
    }
}

impl Cell {
    /// The median over the rounds that [`Self::values`] has.
    pub fn median(&self, of: fn(&Figures) -> f64) -> Option<f64> {
        median(&self.values(of))
    }

    /// All rounds; where every thread has a core, those that nobody disturbed, if there are any.
    pub fn values(&self, of: fn(&Figures) -> f64) -> Vec<f64> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let quiet = |f: &&Figures| self.case.threads <= cores && f.queued <= DISTURBED;
        let mut values: Vec<f64> = self.rounds.iter().filter(quiet).map(of).collect();
        if values.is_empty() {
            values = self.rounds.iter().map(of).collect();
        }
        values
    }
}

/// Puts every latch under every load, in turns.
pub fn measure(what: &'static str, task: &Task, per_ns: f64) -> Res<Vec<Cell>> {
    let (cases, latches) = (cases(task), latches(task));
    let mut progress = Progress::new(what, cases.len());
    let mut cells = Vec::new();
    for case in cases {
        progress.step(&case.name());
        let mut rounds: Vec<Vec<Figures>> = latches.iter().map(|_| Vec::new()).collect();
        let (turns, load) = load(task, &case, latches.len() as u32, per_ns);
        for _ in 0..turns {
            for (latch, rounds) in latches.iter().zip(&mut rounds) {
                let round = (latch.round)(&load)
                    .map_err(|why| format!("{}: {}: {why}", case.name(), latch.name))?;
                rounds.push(Figures::of(&round));
            }
        }
        cells.extend(latches.iter().zip(rounds).map(|(latch, rounds)| Cell {
            case,
            latch: latch.name,
            rounds,
        }));
    }
    Ok(cells)
}

/// How many turns a case has, and the load of one round: `--seconds` are shared by the turns and
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
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_off_a_round() {
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
        let f = Figures::of(&round);
        assert_eq!((f.rate, f.wait_us, f.jain, f.cpu_ns), (2.0, 0.01, 0.8, 1000.0));
        assert_eq!((f.switches, f.queued), (250.0, 0.25));
        assert!((f.least - 1.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn disturbed_rounds_count_only_where_there_is_no_other() {
        let figures = |rate, queued| Figures {
            rate,
            queued,
            wait_us: 0.0,
            jain: 1.0,
            least: 1.0,
            cpu_ns: 1.0,
            switches: 0.0,
        };
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
    }
}
