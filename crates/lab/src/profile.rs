//! A process's CPU time by function, from a sampling profile by `perf`.
//!
//! `perf` samples the process's threads while they run, in user mode and in the kernel. A thread
//! that sleeps is not sampled. An inlined function counts as its caller.

use clearway_harness::Res;
use clearway_harness::process::{self, Running};
use clearway_harness::tools::{self, TempDir};
use std::process::Command;
use std::time::Duration;

/// Samples per second of CPU time: a prime, so that no periodic work is always or never sampled.
const RATE: &str = "997";
/// Maximum time for `perf` to end, and to print its report.
const LIMIT: Duration = Duration::from_secs(60);

/// A profile that is being recorded.
pub struct Profiler {
    perf: Running,
    directory: TempDir,
}

/// Percent of the samples by function. The functions' names are demangled.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile(Vec<(String, f64)>);

impl Profiler {
    /// Starts to profile the process.
    pub fn start(process: u32) -> Res<Self> {
        let perf = tools::find("perf").ok_or("`perf` is not installed")?;
        let directory = TempDir::new("perf")?;
        let mut command = Command::new(perf);
        command.args(["record", "-q", "-F", RATE, "-p", &process.to_string(), "-o"]);
        command.arg(directory.path().join("data"));
        Ok(Self { perf: Running::start(&mut command, "")?, directory })
    }

    /// Ends the profile and returns it. Fails if `perf` was not permitted to sample, or has no
    /// sample.
    pub fn finish(self) -> Res<Profile> {
        // If perf has already ended, its output says why.
        let _ended = self.perf.signal("INT");
        let named = |why| format!("`perf`: {why}");
        let recorded = self.perf.finish(LIMIT).map_err(named)?;
        let mut report = Command::new(tools::need("perf")?);
        report.args([
            "report",
            "--stdio",
            "--no-children",
            "-g",
            "none",
            "-s",
            "symbol",
            "-t",
            ";",
        ]);
        report.arg("-i").arg(self.directory.path().join("data"));
        let reported = process::run(&mut report, "", LIMIT).map_err(named)?;
        let profile = Profile::parse(&reported.output);
        profile.ok_or_else(|| format!("`perf` recorded no sample: {}", recorded.output.trim()))
    }
}

impl Profile {
    /// Parses perf's report; returns `None` if it has no function.
    fn parse(report: &str) -> Option<Self> {
        let functions: Vec<(String, f64)> = report.lines().filter_map(function).collect();
        (!functions.is_empty()).then_some(Self(functions))
    }

    /// Returns the percent of samples in functions whose name ends with `name`.
    pub fn percent(&self, name: &str) -> f64 {
        self.share(|function| function.ends_with(name))
    }

    /// Returns the percent of samples in functions whose name this accepts.
    pub fn share(&self, is_counted: impl Fn(&str) -> bool) -> f64 {
        self.0.iter().filter(|(function, _)| is_counted(function)).map(|(_, share)| share).sum()
    }
}

/// Parses a line such as ` 4.83%;[k] clear_page`. Some versions of perf add columns, or a space
/// before the separator.
fn function(line: &str) -> Option<(String, f64)> {
    let mut fields = line.split(';');
    let share = fields.next()?.trim().strip_suffix('%')?.parse().ok()?;
    let name = fields.next()?.trim();
    let name = ["[k] ", "[.] "].iter().find_map(|mode| name.strip_prefix(mode)).unwrap_or(name);
    Some((name.to_owned(), share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_function_are_added() {
        let report = "# Samples: 12K of event 'cpu-clock:pppH'\n#\n# Overhead;Symbol\n\
            14.85% ;[k] finish_task_switch.isra.0      ;-      -\n \
            5.07%;[.] clearway_latch::park::ParkLatch::lock_slowly\n \
            1.50% ;[.] clearway_latch::park::ParkLatch::unlock_slowly   ;-      -\n \
            0.03%;[.] clearway_latch::park::ParkLatch::lock_slowly\n";
        let profile = Profile::parse(report).unwrap();
        assert_eq!(profile.0.len(), 4);
        assert_eq!(profile.percent("ParkLatch::lock_slowly"), 5.07 + 0.03);
        assert_eq!(profile.percent("isra.0"), 14.85);
        assert_eq!(profile.percent("lock"), 0.0);
        assert_eq!(Profile::parse("Error:\nfailed to open data\n"), None);
    }

    #[test]
    fn a_process_that_runs_is_sampled_or_the_reason_given() {
        let result = Profiler::start(std::process::id()).and_then(|profiler| {
            let mut sum = 0_u64;
            let until = std::time::Instant::now() + Duration::from_millis(200);
            while std::time::Instant::now() < until {
                sum = sum.wrapping_add(std::hint::black_box(1));
            }
            profiler.finish()
        });
        match result {
            Ok(profile) => assert!(profile.percent("") > 0.0, "{profile:?}"),
            Err(why) => assert!(why.contains("perf"), "{why}"),
        }
    }
}
