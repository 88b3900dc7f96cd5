//! The repository's own tools: `cargo xtask tidy | ci | e2e | crash | history | sim | fuzz`.
//!
//! `tidy` holds the rules that a machine can check; `ci` is all that `.ci/run` runs; `e2e` drives
//! the server with the real pgbench and psql; `crash` kills it in the middle of its work and looks
//! at what is left; `sim` simulates it; `fuzz` searches for bytes that a reader of outside bytes
//! does not bear.

#![forbid(unsafe_code)]

mod chips;
mod ci;
mod crash;
mod e2e;
mod fuzz;
mod history;
mod options;
mod sim;
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
  history [--minutes M | --transactions N | --rounds N] [--clients N] [--seed S] [--quick]
                     many clients on a real server, killed now and then; a check of what they saw for anomalies
                     (docs/history.md; default 1 minute, 24 clients)
  chips              the latches' tests on aarch64, emulated, and the instructions of its acquisitions on aarch64 and x86-64
  fuzz [--target NAME] [--minutes M | --runs N] [--merge] [--seed N]
                     coverage-guided search for bytes that a reader does not bear (default 1 minute a target; needs a C++
                     compiler); --merge: keep in crates/fuzz/corpus what reaches new code
  sim [--seeds N] [--minutes M] [--first S] [--seed S]
                     simulate the whole engine (docs/simulation.md): the seeds that once failed, then N seeds from S on (default 200
                     from 0), for at most M minutes; --seed: only this one, with all that happens in it
  sim --pool         the same of the buffer pool alone (default 2,000 seeds)
  sim --histories    the same of the engine, judged by the checker of histories alone
  sim --canaries     plant each known kind of bug and see that it is found within 4,000 seeds from --first on (default: from where it
                     was found last)

e2e, crash and history:
  --server clearway|postgres   which server to start: clearway (default), or PostgreSQL, to prove the harness itself
  --binary PATH                the Clearway to start, instead of one built from this tree
  --only TEXT                  e2e: only the scenarios whose name contains TEXT
  -- ARGS                      further arguments for `clearway serve`
history:
  --isolation LEVEL            of all transactions: which anomalies may be found [default: serializable]
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
        "fuzz" => fuzz::run(&options),
        "crash" => crash::run(&options),
        "history" => history::run(&options),
        "chips" => chips::run(),
        "sim" => sim::run(&options),
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
