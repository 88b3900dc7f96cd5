//! Runs seeds: `cargo xtask sim` builds this with `--cfg shuttle` and starts it.
//!
//! `SUBJECT run FIRST COUNT [MINUTES]` · `SUBJECT replay SEED` · `SUBJECT canaries [FIRST [BUG]]`,
//! with `engine`, `histories` or `pool` for the subject

#![forbid(unsafe_code)]

#[cfg(shuttle)]
use clearway_sim::campaign::{self, Subject};

#[cfg(shuttle)]
const USAGE: &str = "usage: clearway-sim engine|histories|pool run FIRST COUNT [MINUTES] | replay SEED | canaries [FIRST [BUG]]";

#[cfg(not(shuttle))]
fn main() -> std::process::ExitCode {
    eprintln!("the simulation needs a build of its own: cargo xtask sim");
    std::process::ExitCode::FAILURE
}

#[cfg(shuttle)]
fn main() -> std::process::ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args[..] {
        ["engine", ref rest @ ..] => obey(Subject::Engine, rest),
        ["histories", ref rest @ ..] => obey(Subject::Histories, rest),
        ["pool", ref rest @ ..] => obey(Subject::Pool, rest),
        _ => Err(USAGE.into()),
    };
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("sim: {why}");
            std::process::ExitCode::FAILURE
        }
    }
}

#[cfg(shuttle)]
fn obey(subject: Subject, args: &[&str]) -> Result<(), String> {
    let number = |text: &str| text.parse::<u64>().map_err(|e| format!("{text}: {e}"));
    match *args {
        ["run", first, count] => campaign::run(subject, number(first)?, number(count)?, None),
        ["run", first, count, minutes] => {
            campaign::run(subject, number(first)?, number(count)?, Some(number(minutes)?))
        }
        ["replay", seed] => campaign::replay(subject, number(seed)?),
        ["canaries"] => campaign::canaries(subject, None, None),
        ["canaries", first] => campaign::canaries(subject, Some(number(first)?), None),
        ["canaries", first, bug] => campaign::canaries(subject, Some(number(first)?), Some(bug)),
        _ => Err(USAGE.into()),
    }
}
