//! Runs seeds: `cargo xtask sim` builds this with `--cfg shuttle` and starts it.
//!
//! `run FIRST COUNT [MINUTES]` · `replay SEED` · `canaries`

#![forbid(unsafe_code)]

#[cfg(not(shuttle))]
fn main() -> std::process::ExitCode {
    eprintln!("the simulation needs a build of its own: cargo xtask sim");
    std::process::ExitCode::FAILURE
}

#[cfg(shuttle)]
fn main() -> std::process::ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().map_err(|e| format!("{text}: {e}"));
    let result = match args[..] {
        ["run", first, count] => number(first).and_then(|f| clearway_sim::campaign::run(f, number(count)?, None)),
        ["run", first, count, minutes] => {
            number(first).and_then(|f| clearway_sim::campaign::run(f, number(count)?, Some(number(minutes)?)))
        }
        ["replay", seed] => number(seed).and_then(clearway_sim::campaign::replay),
        ["canaries"] => clearway_sim::campaign::canaries(),
        _ => Err("usage: clearway-sim run FIRST COUNT [MINUTES] | replay SEED | canaries".into()),
    };
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("sim: {why}");
            std::process::ExitCode::FAILURE
        }
    }
}
