//! `clearway-history FILE`: checks a history in the format of [`clearway_history::jsonl`].
//!
//! Exit codes: 0 for no anomalies, 1 for anomalies, 2 for an unreadable history.

#![forbid(unsafe_code)]

use clearway_history::{CheckerOptions, jsonl};
use std::fs::File;
use std::io::BufReader;
use std::process::ExitCode;
use std::time::Instant;

const HELP: &str = "\
Finds isolation anomalies in a transaction history

Usage: clearway-history [OPTIONS] FILE

  --no-real-time  Check serializability instead of strict serializability
  --examples N    Maximum number of examples to print of each anomaly [default: 4]
  -h, --help      Print help

FILE has a JSON object on each line, which is a transaction:
  {\"session\":1,\"start\":10,\"end\":20,\"outcome\":\"committed\",\"ops\":[...]}
Its operations:
  [\"append\",KEY,VALUE]  Appended to a list     [\"r\",KEY,[VALUE,...]]     Read the list
  [\"w\",KEY,VALUE]       Wrote a register       [\"r\",KEY,VALUE or null]   Read the register
  [\"add\",KEY,VALUE]     Added to a counter     [\"sum\",KEY,SUM]           Read the counter
Each VALUE is written once to its KEY; those that are added are powers of two up to 2^62

Exit codes:
  0  no anomalies
  1  anomalies were found
  2  the command line is wrong, or the history cannot be read";

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<bool, String> {
    let (mut options, mut file) = (CheckerOptions::default(), None);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "-h" | "--help" => {
                println!("{HELP}");
                return Ok(true);
            }
            "--no-real-time" => options.real_time = false,
            "--examples" => {
                options.examples = args.next().and_then(|n| n.parse().ok()).ok_or(HELP)?
            }
            _ if arg.starts_with('-') || file.is_some() => return Err(HELP.into()),
            _ => file = Some(arg),
        }
    }
    let file = file.ok_or(HELP)?;
    let input = File::open(&file).map_err(|e| format!("{file}: {e}"))?;
    let mut history = jsonl::read(BufReader::new(input)).map_err(|e| format!("{file}: {e}"))?;
    let started = Instant::now();
    let report = history.check(&options);
    println!("{report}");
    println!("{} transactions checked in {:.1?}", history.len(), started.elapsed());
    Ok(report.is_clean())
}
