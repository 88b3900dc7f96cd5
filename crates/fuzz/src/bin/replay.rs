//! `cargo run -p clearway-fuzz --bin replay -- TARGET FILE...`: runs a target on files, for example
//! on one that the fuzzer found.

#![forbid(unsafe_code)]

use clearway_fuzz::TARGETS;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_default();
    let Some(target) = TARGETS.iter().find(|target| target.name == name) else {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        eprintln!("usage: replay TARGET FILE...\ntargets: {}", names.join(" "));
        return ExitCode::from(2);
    };
    for file in args {
        match std::fs::read(&file) {
            Ok(bytes) => (target.run)(&bytes),
            Err(error) => {
                eprintln!("{file}: {error}");
                return ExitCode::from(2);
            }
        }
        println!("{file}: no finding");
    }
    ExitCode::SUCCESS
}
