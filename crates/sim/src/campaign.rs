//! Runs many seeds on all cores. Each seed runs in one OS thread, because an execution stays in
//! one.

use crate::chronicle::ANOMALIES;
use crate::execution::Report;
use crate::life;
use crate::panics;
use crate::pool;
use crate::trace::{Lines, Trace};
use crate::world::World;
use clearway_sync::canary::{self, BUGS_OF_ENGINE, BUGS_OF_HISTORIES, BUGS_OF_POOL, Bug};
use clearway_testkit::{Campaign, CampaignSum, kept_seeds};
use std::fmt::{self, Display, Formatter};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// A planted bug must be found within this many seeds.
const CANARY_SEEDS: u64 = 20_000;
/// Histories with additions, and how many of these must share their rows. Up to 15 at each
/// partition are not counted.
const SEEDS_WITH_ADDITIONS: std::ops::Range<u64> = 40..240;
const LEAST_SHARED: u64 = 24;
/// One of this many seeds is run twice.
const TWICE: usize = 20;
/// Seeds that found a bug once.
const KEPT: &str = include_str!("../seeds.txt");
const KEPT_OF_POOL: &str = include_str!("../pool_seeds.txt");
/// The default start of the search for each planted bug: the seed that found it last.
const CANARIES: &str = include_str!("../canaries.txt");

/// What is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The whole engine: see [`crate::life`].
    Engine,
    /// The whole engine, judged only by the checker of histories: see [`crate::chronicle`].
    Histories,
    /// The buffer pool alone: see [`crate::pool`].
    Pool,
}

impl Subject {
    /// Returns the option of the command that replays a seed.
    fn option(self) -> &'static str {
        match self {
            Self::Engine => "",
            Self::Histories => "--histories ",
            Self::Pool => "--pool ",
        }
    }

    /// Returns the seeds that found a bug once.
    fn kept_seeds(self) -> Result<Vec<u64>, String> {
        let (file, kept) = match self {
            Self::Engine => ("seeds.txt", KEPT),
            Self::Histories => return Ok(Vec::new()),
            Self::Pool => ("pool_seeds.txt", KEPT_OF_POOL),
        };
        kept_seeds(file, kept)
    }

    /// Returns the bugs that can be planted.
    fn bugs(self) -> &'static [Bug] {
        match self {
            Self::Engine => BUGS_OF_ENGINE,
            Self::Histories => BUGS_OF_HISTORIES,
            Self::Pool => BUGS_OF_POOL,
        }
    }

    /// Returns the seed that found the planted bug last; 0 if none is known.
    fn found_last(self, bug: &str) -> u64 {
        let subject = match self {
            Self::Engine => "engine",
            Self::Histories => "histories",
            Self::Pool => "pool",
        };
        let mut lines = CANARIES.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        lines
            .find(|line| line.len() == 3 && line[..2] == [subject, bug])
            .and_then(|line| line[2].parse().ok())
            .unwrap_or(0)
    }

    /// Returns false if a search for the bug may skip the seed.
    fn can_meet(self, bug: Bug, seed: u64) -> bool {
        self != Self::Engine || World::new(seed).can_meet(bug)
    }

    fn run(self, seed: u64, trace: &Trace) -> Result<Report, String> {
        match self {
            Self::Engine => life::run(&World::new(seed), trace),
            Self::Histories => life::run(&World::of_histories(seed), trace).or_else(only_anomalies),
            Self::Pool => pool::run(&pool::World::new(seed), trace),
        }
    }

    /// Runs one seed without output, in a thread of its own: a finding can leave state behind in
    /// the thread, such as a panic that was unwinding when the execution ended, and the next seed
    /// must not see it.
    fn quietly(self, seed: u64) -> Result<Report, String> {
        self.traced(seed, &Trace::new(Lines::Dropped))
    }

    /// Runs one seed like [`Subject::quietly`], with this trace.
    fn traced(self, seed: u64, trace: &Trace) -> Result<Report, String> {
        let run = || self.run(seed, trace);
        std::thread::scope(|scope| scope.spawn(run).join())
            .unwrap_or_else(|_| Err("the seed's thread panicked".into()))
    }

    /// Runs a seed twice and fails unless both runs are the same execution.
    fn twice(self, seed: u64) -> Result<Report, String> {
        let traces = [Trace::new(Lines::Kept), Trace::new(Lines::Kept)];
        let first = self.traced(seed, &traces[0])?;
        let second = self.traced(seed, &traces[1])?;
        if first == second {
            return Ok(second);
        }
        Err(format!(
            "the two runs differ: {first:?}, then {second:?}; {}",
            traces[0].parting(&traces[1])
        ))
    }
}

/// Drops a finding unless it comes from the checker of histories.
fn only_anomalies(found: String) -> Result<Report, String> {
    if found.contains(ANOMALIES) { Err(found) } else { Ok(Report::default()) }
}

/// The sum of the seeds' reports.
#[derive(Default)]
struct Sum {
    all: Report,
    /// The most steps of any seed, and that seed.
    longest: (u64, u64),
}

impl CampaignSum for Sum {
    type Report = Report;
    fn add(&mut self, seed: u64, report: Report) {
        self.longest = self.longest.max((report.steps, seed));
        self.all.steps += report.steps;
        report.counts.into_iter().for_each(|(what, times)| self.all.count(what, times));
    }
}

impl Display for Sum {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let counts: Vec<String> =
            self.all.counts.iter().map(|(what, times)| format!("{times} {what}")).collect();
        let (counts, (longest, seed)) = (counts.join(", "), self.longest);
        let [steps, longest] = [self.all.steps, longest].map(|steps| steps as f64 / 1e6);
        write!(f, "{counts}; {steps:.1} million steps, {longest:.1} of them in seed {seed}")
    }
}

/// Runs the kept seeds, then `count` seeds from `first` on, and stops after `minutes`.
pub fn run(subject: Subject, first: u64, count: u64, minutes: Option<u64>) -> Result<(), String> {
    prepare();
    let kept = subject.kept_seeds()?;
    let seeds = kept.into_iter().chain(first..first.saturating_add(count)).collect();
    let campaign = Campaign { seeds, minutes, options: subject.option() };
    campaign.run::<Sum>(|at, seed| {
        if at.is_multiple_of(TWICE) { subject.twice(seed) } else { subject.quietly(seed) }
    })
}

/// Runs one seed and prints every event.
pub fn replay(subject: Subject, seed: u64) -> Result<(), String> {
    prepare();
    match subject {
        Subject::Engine => println!("{:#?}", World::new(seed)),
        Subject::Histories => println!("{:#?}", World::of_histories(seed)),
        Subject::Pool => println!("{:#?}", pool::World::new(seed)),
    }
    let report = subject
        .run(seed, &Trace::new(Lines::Shown))
        .map_err(|finding| format!("seed {seed}: {finding}"))?;
    println!("sim: seed {seed}: nothing found; {report:?}");
    Ok(())
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Installs our panic hook. Shuttle installs its own at its first execution, so this runs one
/// first.
fn prepare() {
    let mut config = shuttle::Config::new();
    config.failure_persistence = shuttle::FailurePersistence::None;
    shuttle::Runner::new(shuttle::scheduler::RandomScheduler::new(1), config).run(|| {});
    panics::install();
}

/// Fails unless additions of some histories share their rows: otherwise the checker would judge no
/// concurrent additions.
fn check_additions() -> Result<(), String> {
    let mut sum = Report::default();
    for seed in SEEDS_WITH_ADDITIONS {
        let report = Subject::Histories.quietly(seed)?;
        report.counts.into_iter().for_each(|(what, times)| sum.count(what, times));
    }
    let [all, exclusive] = ["learned additions", "exclusive additions"]
        .map(|what| sum.counts.get(what).copied().unwrap_or_default());
    let shared = all - exclusive;
    println!(
        "sim: {shared} of {all} additions in blocks of {SEEDS_WITH_ADDITIONS:?} share their rows"
    );
    if shared < LEAST_SHARED {
        return Err(format!("less than {LEAST_SHARED} additions to counters share their rows"));
    }
    Ok(())
}

/// Plants each known kind of bug, or only `only`, and checks that the judge finds it within
/// [`CANARY_SEEDS`] seeds from `first`. The default is the seed that found it last.
pub fn canaries(subject: Subject, first: Option<u64>, only: Option<&str>) -> Result<(), String> {
    prepare();
    if subject == Subject::Histories {
        check_additions()?;
    }
    let mut missed = Vec::new();
    for &bug in subject.bugs() {
        let name = format!("{bug:?}");
        if only.is_some_and(|only| only != name) {
            continue;
        }
        let first = first.unwrap_or_else(|| subject.found_last(&name));
        let began = Instant::now();
        match found_only_with(subject, bug, first) {
            Some((seed, finding)) => {
                let finding: String = finding.chars().take(300).collect();
                println!(
                    "sim: {name}: found by seed {seed} after {:.1?}: {finding}",
                    began.elapsed()
                );
            }
            None => missed.push(format!("{name} from {first} on")),
        }
    }
    canary::plant(None);
    if missed.is_empty() {
        Ok(())
    } else {
        Err(format!("not found within {CANARY_SEEDS} seeds: {}", missed.join(", ")))
    }
}

/// Returns the first seed that finds something with the bug planted and nothing without it.
fn found_only_with(subject: Subject, bug: Bug, first: u64) -> Option<(u64, String)> {
    let (mut from, end) = (first, first + CANARY_SEEDS);
    while from < end {
        canary::plant(Some(bug));
        let (seed, finding) = first_finding(subject, bug, from, end)?;
        canary::plant(None);
        if subject.quietly(seed).is_ok() {
            return Some((seed, finding));
        }
        from = seed + 1;
    }
    None
}

/// Returns approximately the first seed in `from..end` that finds something: several run at once.
fn first_finding(subject: Subject, bug: Bug, from: u64, end: u64) -> Option<(u64, String)> {
    let next = AtomicU64::new(from);
    let found = Mutex::new(None);
    let is_found = || found.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    std::thread::scope(|scope| {
        for _ in 0..cores() {
            scope.spawn(|| {
                while !is_found() {
                    let seed = next.fetch_add(1, Ordering::Relaxed); // Relaxed: only uniqueness matters.
                    if seed >= end {
                        return;
                    }
                    if !subject.can_meet(bug, seed) {
                        continue;
                    }
                    if let Err(finding) = subject.quietly(seed) {
                        found
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .get_or_insert((seed, finding));
                    }
                }
            });
        }
    });
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}
