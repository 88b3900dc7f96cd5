//! Runs seeds of the simulated cluster: see [`HELP`].

#![forbid(unsafe_code)]

use clearway_cluster::{ClusterConfig, ClusterReport, PlantedBug, run};
use clearway_partition::SchemeKind;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const HELP: &str = "\
Simulates many partitions on separate nodes, with faults

Usage: clearway-cluster <COMMAND>

Commands:
  run FIRST COUNT [MINUTES]  Runs COUNT seeds from FIRST on, at most for this time
  replay SEED                Runs one seed, and prints its settings
  canaries [FIRST]           Plants each bug, which must be found within 2,000 seeds
                             from FIRST on [default: 0]
  speed                      Runs the micro-benchmark under each scheme

Exit codes:
  0  success
  1  a finding, a planted bug that was not found, or a wrong command line";
/// Number of seeds within which a planted bug must be found.
const CANARY_SEEDS: u64 = 2_000;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match obey(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("cluster: {why}");
            ExitCode::FAILURE
        }
    }
}

fn obey(args: &[&str]) -> Result<(), String> {
    let number = |text: &str| text.parse::<u64>().map_err(|e| format!("{text}: {e}"));
    match *args {
        ["run", first, count] => seeds(number(first)?, number(count)?, None),
        ["run", first, count, minutes] => {
            let limit = Duration::from_secs(60 * number(minutes)?);
            seeds(number(first)?, number(count)?, Some(limit))
        }
        ["replay", seed] => {
            let config = ClusterConfig::draw(number(seed)?);
            println!("{config:#?}");
            run(&config).map(|report| println!("{report:#?}"))
        }
        ["canaries"] => canaries(0),
        ["canaries", first] => canaries(number(first)?),
        ["speed"] => speed(),
        ["--help" | "-h"] => {
            println!("{HELP}");
            Ok(())
        }
        _ => Err(format!("wrong command line\n{HELP}")),
    }
}

/// Runs seeds until one has a finding.
fn seeds(first: u64, count: u64, limit: Option<Duration>) -> Result<(), String> {
    let (start, mut sum, mut runs) = (Instant::now(), ClusterReport::default(), 0);
    for seed in (first..).take(count as usize) {
        if limit.is_some_and(|limit| start.elapsed() > limit) {
            break;
        }
        let report = run(&ClusterConfig::draw(seed))
            .map_err(|why| format!("seed {seed}: {why}\nreplay it with: replay {seed}"))?;
        sum.add(&report);
        runs += 1;
    }
    summary(&sum, start.elapsed());
    println!("{runs} seeds, no findings");
    Ok(())
}

fn summary(sum: &ClusterReport, time: Duration) {
    let rate = sum.transactions() as f64 * 60.0 / time.as_secs_f64().max(1e-9);
    println!(
        "{} committed, {} aborted ({} repeated), {} unknown; {} crashes, {} messages lost, \
         {} doubled, {} inquiries; {} operations checked; {:.1} s, {rate:.0} transactions a minute",
        sum.committed,
        sum.aborted,
        sum.repeated,
        sum.unknown,
        sum.crashes,
        sum.lost,
        sum.doubled,
        sum.inquiries,
        sum.operations,
        time.as_secs_f64(),
    );
}

/// Plants each bug, and looks for the first seed that finds it.
fn canaries(first: u64) -> Result<(), String> {
    let mut missed = Vec::new();
    for bug in PlantedBug::ALL {
        let found = (first..first + CANARY_SEEDS).find_map(|seed| {
            let config = ClusterConfig { bug: Some(bug), ..ClusterConfig::draw(seed) };
            run(&config).err().map(|why| (seed, why))
        });
        match found {
            Some((seed, why)) => {
                println!("{bug}: found by seed {seed}: {}", why.lines().next().unwrap_or_default());
            }
            None => missed.push(bug.to_string()),
        }
    }
    if missed.is_empty() {
        Ok(())
    } else {
        Err(format!("not found in {CANARY_SEEDS} seeds: {}", missed.join(", ")))
    }
}

/// Measures how fast the micro-benchmark is simulated and judged.
fn speed() -> Result<(), String> {
    for scheme in SchemeKind::ALL {
        for multi in [0, 100, 500, 1000] {
            let start = Instant::now();
            let report = run(&ClusterConfig::micro_benchmark(scheme, multi))?;
            println!(
                "{scheme}, {multi} per 1000 at two partitions: {:.0} transactions a second of \
                 virtual time",
                report.throughput()
            );
            summary(&report, start.elapsed());
        }
    }
    Ok(())
}
