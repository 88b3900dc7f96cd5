//! The repository's own tools: `cargo xtask tidy | ci | e2e | crash`.
//!
//! `tidy` holds the rules that a machine can check; `ci` is all that `.ci/run` runs; `e2e` drives the server with the real
//! pgbench and psql; `crash` kills it in the middle of its work and looks at what is left.

#![forbid(unsafe_code)]

mod ci;
mod crash;
mod e2e;
mod options;
mod tidy;

use options::Options;
use std::process::ExitCode;

const HELP: &str = "\
usage: cargo xtask COMMAND

  tidy [--update]    check the rules that a machine can check (STYLE.md); --update lets the ratchet follow files that shrank
  ci [--quick]       all that .ci/run runs: format, clippy, tidy, docs, tests, end-to-end tests, three crashes, a tiny lab run;
                     --quick: end-to-end tests at pgbench scale 1
  e2e [--quick]      drive a release server with the real pgbench (scale 10; 1 with --quick) and psql
  crash [--rounds N] [--seed N]
                     kill -9 in the middle of tpcb-like at random moments and check what is left (default 30 rounds)

e2e and crash:
  --server clearway|postgres   which server to start: clearway (default), or PostgreSQL, to prove the harness itself
  --binary PATH                the Clearway to start, instead of one built from this tree
  --only TEXT                  e2e: only the scenarios whose name contains TEXT
  -- ARGS                      further arguments for `clearway serve`
e2e:
  --against HOST:PORT          use a server that runs already, and skip what would have to stop it
";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let command = args.next().unwrap_or_default();
    let result = Options::parse(args).and_then(|options| match command.as_str() {
        "tidy" => tidy::run(options.update),
        "ci" => ci::run(&options),
        "e2e" => e2e::run(&options),
        "crash" => crash::run(&options),
        _ => Err(HELP.into()),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{}", why.trim_end());
            ExitCode::FAILURE
        }
    }
}
