//! Runs seeds of the simulated cluster: `cargo xtask sim --cluster` builds and starts this. See
//! [`HELP`].

#![forbid(unsafe_code)]

use clearway_cluster::{ClusterConfig, campaign, run};
use clearway_partition::SchemeKind;
use std::process::ExitCode;
use std::time::Instant;

const HELP: &str = "\
Simulates many partitions on separate nodes, with faults

Usage: clearway-cluster <COMMAND>

Commands:
  run FIRST COUNT [MINUTES]  Runs the seeds that once found something, then COUNT
                             seeds from FIRST on, at most for this time
  replay SEED                Runs one seed, and prints its settings
  canaries [FIRST]           Plants each bug, which must be found within 2,000 seeds
                             from FIRST on [default: 0]. Bugs of the engine need a
                             build with --cfg shuttle
  speed                      Runs the micro-benchmark under each scheme

Exit codes:
  0  success
  1  a finding, a planted bug that was not found, or a wrong command line";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match obey(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("sim: {why}");
            ExitCode::FAILURE
        }
    }
}

fn obey(args: &[&str]) -> Result<(), String> {
    let number = |text: &str| text.parse::<u64>().map_err(|e| format!("{text}: {e}"));
    match *args {
        ["run", first, count] => campaign::run_seeds(number(first)?, number(count)?, None),
        ["run", first, count, minutes] => {
            campaign::run_seeds(number(first)?, number(count)?, Some(number(minutes)?))
        }
        ["replay", seed] => campaign::replay(number(seed)?),
        ["canaries"] => campaign::canaries(0),
        ["canaries", first] => campaign::canaries(number(first)?),
        ["speed"] => speed(),
        ["--help" | "-h"] => {
            println!("{HELP}");
            Ok(())
        }
        _ => Err(format!("wrong command line\n{HELP}")),
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
            let s = start.elapsed().as_secs_f64();
            let rate = report.transactions() as f64 * 60.0 / s.max(1e-9);
            println!("  {report}; {s:.1} s, {rate:.0} transactions a minute");
        }
    }
    Ok(())
}
