//! Many seeds, on all cores: each in one thread of the operating system, since an execution stays in one.

use crate::life::{self, Report};
use crate::panics;
use crate::trace::Trace;
use crate::world::World;
use clearway_sync::canary::{self, BUGS, Bug};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Findings after which a campaign ends: the first few say most.
const MOST_FINDINGS: usize = 10;
/// Time between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);
/// Seeds within which a planted bug must be found.
const CANARY_SEEDS: u64 = 1_000;
/// One seed in so many is run twice.
const TWICE: usize = 20;
/// The seeds that once found something.
const KEPT: &str = include_str!("../seeds.txt");

/// The seeds of `seeds.txt`.
pub fn kept_seeds() -> Result<Vec<u64>, String> {
    let lines = KEPT.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let first_word = |line: &str| line.split_whitespace().next().unwrap_or_default().parse();
    lines.map(|line| first_word(line).map_err(|e| format!("seeds.txt: {line}: {e}"))).collect()
}

/// Runs one seed without a word.
pub fn quietly(seed: u64) -> Result<Report, String> {
    life::run(&World::new(seed), &Trace::new(false))
}

/// Runs a seed a second time: it must be the same execution.
fn again(seed: u64, first: &Report) -> Result<Report, String> {
    let second = quietly(seed)?;
    if second == *first { Ok(second) } else { Err(format!("not the same twice: {first:?}, then {second:?}")) }
}

#[derive(Default)]
struct Totals {
    seeds: AtomicU64,
    committed: AtomicU64,
    acknowledged: AtomicU64,
    crashes: AtomicU64,
    steps: AtomicU64,
    findings: Mutex<Vec<(u64, String)>>,
    stop: AtomicBool,
}

impl Totals {
    // Relaxed throughout: counts that order nothing.
    fn add(&self, seed: u64, result: Result<Report, String>) {
        self.seeds.fetch_add(1, Ordering::Relaxed);
        match result {
            Ok(report) => {
                self.committed.fetch_add(report.committed.0, Ordering::Relaxed);
                self.acknowledged.fetch_add(report.committed.1, Ordering::Relaxed);
                self.crashes.fetch_add(report.crashes, Ordering::Relaxed);
                self.steps.fetch_add(report.steps, Ordering::Relaxed);
            }
            Err(finding) => {
                println!("sim: seed {seed} FOUND {finding}\n     replay it: cargo xtask sim --seed {seed}");
                let mut findings = self.findings.lock().unwrap_or_else(PoisonError::into_inner);
                findings.push((seed, finding));
                if findings.len() >= MOST_FINDINGS {
                    self.stop.store(true, Ordering::Relaxed);
                }
            }
        }
    }

    fn found(&self) -> usize {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn line(&self, began: Instant) -> String {
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let (seeds, s) = (get(&self.seeds), began.elapsed().as_secs_f64());
        format!(
            "sim: {seeds} seeds in {s:.0} s, {:.1} a second; {} transactions committed, {} acknowledged; {} crashes; {} million \
             steps; {} findings",
            seeds as f64 / s,
            get(&self.committed),
            get(&self.acknowledged),
            get(&self.crashes),
            get(&self.steps) / 1_000_000,
            self.found(),
        )
    }
}

/// Runs the kept seeds and then `count` seeds from `first` on, for at most so many minutes.
pub fn run(first: u64, count: u64, minutes: Option<u64>) -> Result<(), String> {
    prepare();
    let began = Instant::now();
    let ends = minutes.map(|minutes| began + Duration::from_secs(minutes * 60));
    let kept = kept_seeds()?;
    let seeds: Vec<u64> = kept.into_iter().chain(first..first.saturating_add(count)).collect();
    let totals = Totals::default();
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let work = || {
            while !totals.stop.load(Ordering::Relaxed) && ends.is_none_or(|ends| Instant::now() < ends) {
                let at = next.fetch_add(1, Ordering::Relaxed) as usize;
                let Some(seed) = seeds.get(at) else { return };
                let mut result = quietly(*seed);
                if at.is_multiple_of(TWICE)
                    && let Ok(first) = &result
                {
                    result = again(*seed, first);
                }
                totals.add(*seed, result);
            }
        };
        let threads: Vec<_> = (0..cores()).map(|_| scope.spawn(work)).collect();
        let mut said = Instant::now();
        while !threads.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            std::thread::park_timeout(Duration::from_millis(50));
            if said.elapsed() >= PROGRESS {
                println!("{}", totals.line(began));
                said = Instant::now();
            }
        }
    });
    println!("{}", totals.line(began));
    match totals.found() {
        0 => Ok(()),
        n => Err(format!("{n} findings")),
    }
}

/// Runs one seed and prints all that happens.
pub fn replay(seed: u64) -> Result<(), String> {
    prepare();
    let world = World::new(seed);
    println!("{world:#?}");
    let report = life::run(&world, &Trace::new(true)).map_err(|finding| format!("seed {seed}: {finding}"))?;
    println!("sim: seed {seed}: nothing found; {report:?}");
    Ok(())
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Shuttle sets a panic hook of its own at its first execution: this is the first, and ours comes after it.
fn prepare() {
    let mut config = shuttle::Config::new();
    config.failure_persistence = shuttle::FailurePersistence::None;
    shuttle::Runner::new(shuttle::scheduler::RandomScheduler::new(1), config).run(|| {});
    panics::install();
}

/// Plants each known kind of bug, one after the other, and sees that the judge finds it.
pub fn canaries() -> Result<(), String> {
    prepare();
    let mut missed = Vec::new();
    for bug in BUGS {
        let began = Instant::now();
        let found = found_only_with(bug);
        match found {
            Some((seed, finding)) => {
                let finding: String = finding.chars().take(300).collect();
                println!("sim: {bug:?}: found by seed {seed} after {:.1?}: {finding}", began.elapsed());
            }
            None => missed.push(format!("{bug:?}")),
        }
    }
    canary::plant(None);
    if missed.is_empty() {
        Ok(())
    } else {
        Err(format!("not found within {CANARY_SEEDS} seeds: {}", missed.join(", ")))
    }
}

/// The first seed that finds something with the bug, and nothing without.
fn found_only_with(bug: Bug) -> Option<(u64, String)> {
    let mut from = 0;
    while from < CANARY_SEEDS {
        canary::plant(Some(bug));
        let (seed, finding) = first_finding(from, CANARY_SEEDS)?;
        canary::plant(None);
        if quietly(seed).is_ok() {
            return Some((seed, finding));
        }
        from = seed + 1;
    }
    None
}

/// The first of the seeds from `from` to `count` that finds something, or nearly: several run at once.
fn first_finding(from: u64, count: u64) -> Option<(u64, String)> {
    let next = AtomicU64::new(from);
    let found = Mutex::new(None);
    let is_found = || found.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    std::thread::scope(|scope| {
        for _ in 0..cores() {
            scope.spawn(|| {
                while !is_found() {
                    let seed = next.fetch_add(1, Ordering::Relaxed); // Relaxed: only uniqueness matters.
                    if seed >= count {
                        return;
                    }
                    if let Err(finding) = quietly(seed) {
                        found.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert((seed, finding));
                    }
                }
            });
        }
    });
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}
