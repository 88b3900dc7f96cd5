//! Campaigns of simulations: many seeds on all cores, with lines of progress and findings.

use std::fmt::Display;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Findings after which a campaign stops: the first few are the most useful.
const MOST_FINDINGS: usize = 10;
/// Time between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);

/// What the reports of a campaign's seeds add up to.
pub trait CampaignSum: Default + Display + Send {
    /// The report of a seed without findings.
    type Report;
    /// Adds a seed's report.
    fn add(&mut self, seed: u64, report: Self::Report);
}

/// The seeds of a campaign.
#[derive(Clone, Debug)]
pub struct Campaign<'a> {
    /// They are started in this order.
    pub seeds: Vec<u64>,
    /// Time after which none is started.
    pub minutes: Option<u64>,
    /// The options of `cargo xtask sim` before `--seed`, each with a space behind it.
    pub options: &'a str,
}

struct Totals<S> {
    seeds: u64,
    sum: S,
    findings: usize,
}

impl Campaign<'_> {
    /// Runs the seeds, each by its index and itself. Prints findings at once, and the sum of the
    /// reports from time to time.
    ///
    /// # Errors
    /// If there are findings.
    pub fn run<S: CampaignSum>(
        &self,
        run: impl Fn(usize, u64) -> Result<S::Report, String> + Sync,
    ) -> Result<(), String> {
        let began = Instant::now();
        let ends = self.minutes.map(|minutes| began + Duration::from_secs(minutes * 60));
        let next = AtomicUsize::new(0);
        let totals = Mutex::new(Totals { seeds: 0, sum: S::default(), findings: 0 });
        let lock = || totals.lock().unwrap_or_else(PoisonError::into_inner);
        let work = || {
            while lock().findings < MOST_FINDINGS && ends.is_none_or(|ends| Instant::now() < ends) {
                // Relaxed: only uniqueness matters.
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(seed) = self.seeds.get(at) else { return };
                let result = run(at, *seed);
                lock().add(self.options, *seed, result);
            }
        };
        std::thread::scope(|scope| {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
            let mut said = Instant::now();
            while !threads.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                std::thread::park_timeout(Duration::from_millis(50));
                if said.elapsed() >= PROGRESS {
                    println!("{}", lock().line(began));
                    said = Instant::now();
                }
            }
        });
        let totals = lock();
        println!("{}", totals.line(began));
        match totals.findings {
            0 => Ok(()),
            n => Err(format!("{n} findings")),
        }
    }
}

impl<S: CampaignSum> Totals<S> {
    fn add(&mut self, options: &str, seed: u64, result: Result<S::Report, String>) {
        self.seeds += 1;
        match result {
            Ok(report) => self.sum.add(seed, report),
            Err(finding) => {
                self.findings += 1;
                println!(
                    "sim: seed {seed} FOUND {finding}\n     \
                     replay it: cargo xtask sim {options}--seed {seed}"
                );
            }
        }
    }

    fn line(&self, began: Instant) -> String {
        let s = began.elapsed().as_secs_f64();
        format!(
            "sim: {} seeds in {s:.0} s, {:.1} a second; {}; {} findings",
            self.seeds,
            self.seeds as f64 / s,
            self.sum,
            self.findings
        )
    }
}

/// Reads the seeds of a file: the first word of each line that is neither empty nor a comment.
///
/// # Errors
/// The file's name, with a line whose first word is not a number.
pub fn kept_seeds(file: &str, text: &str) -> Result<Vec<u64>, String> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let first_word = |line: &str| line.split_whitespace().next().unwrap_or_default().parse();
    lines.map(|line| first_word(line).map_err(|e| format!("{file}: {line}: {e}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt;

    #[derive(Default)]
    struct Odd(u64);

    impl Display for Odd {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{} odd", self.0)
        }
    }

    impl CampaignSum for Odd {
        type Report = u64;
        fn add(&mut self, seed: u64, report: u64) {
            assert_eq!(report, seed % 2);
            self.0 += report;
        }
    }

    fn campaign(seeds: u64, run: impl Fn(u64) -> Result<u64, String> + Sync) -> Result<(), String> {
        let campaign = Campaign { seeds: (0..seeds).collect(), minutes: None, options: "" };
        campaign.run::<Odd>(|at, seed| {
            assert_eq!(at as u64, seed);
            run(seed)
        })
    }

    #[test]
    fn findings_are_counted_and_end_a_campaign() {
        assert_eq!(campaign(100, |seed| Ok(seed % 2)), Ok(()));
        let some = |seed| if seed < 3 { Err("a finding".to_owned()) } else { Ok(seed % 2) };
        assert_eq!(campaign(100, some), Err("3 findings".to_owned()));
        let run = AtomicUsize::new(0);
        let all = campaign(100_000, |_| {
            run.fetch_add(1, Ordering::Relaxed);
            Err("a finding".to_owned())
        });
        let n: usize = all.unwrap_err().split(' ').next().unwrap().parse().unwrap();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        assert!((MOST_FINDINGS..MOST_FINDINGS + cores).contains(&n), "{n}");
        assert_eq!(run.into_inner(), n);
    }

    #[test]
    fn kept_seeds_are_the_first_words() {
        assert_eq!(kept_seeds("a", "# 1 x\n\n2 y\n3\n"), Ok(vec![2, 3]));
        assert!(kept_seeds("a", "x\n").unwrap_err().starts_with("a: x: "));
    }
}
