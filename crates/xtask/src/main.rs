//! The repository's own tools: the commands of `cargo xtask`.
//!
//! `tidy` checks the mechanical rules; `ci` runs everything that `.ci/run` runs; `e2e` drives the
//! server with the real pgbench and psql; `crash` kills it during its work and checks what is left;
//! `history` does the same with many clients and searches for anomalies; `sim` simulates it; `fuzz`
//! searches for input bytes that a reader mishandles; `chips` tests the latches on aarch64; `pgo`
//! builds a server that is optimised by a profile.

#![forbid(unsafe_code)]

mod chips;
mod ci;
mod crash;
mod e2e;
mod fuzz;
mod history;
mod options;
mod pgo;
mod rust;
mod sim;
mod tidy;

use options::Options;
use std::process::ExitCode;

const HELP: &str = "\
usage: cargo xtask COMMAND

  tidy [--update]    check the rules of STYLE.md that a machine can check
                     --update: lower the recorded sizes of files that shrank
  ci [--quick]       everything that .ci/run runs: format, clippy, tidy, docs, tests, chips, loom,
                     the simulations and their canaries, end-to-end tests, three crashes, short
                     histories, a tiny run of the lab
                     --quick: end-to-end tests at pgbench scale 1
  e2e [--quick]      drive a release server with the real pgbench (scale 10; 1 with --quick) and psql
  crash [--rounds N] [--seed N]
                     kill -9 during tpcb-like at random moments, then check the data
                     (default 30 rounds)
  history [--minutes M | --transactions N | --rounds N] [--clients N] [--seed S] [--quick]
                     run many clients on a real server that is sometimes killed, and check what they
                     saw for anomalies (docs/history.md; default 1 minute, 24 clients)
  chips              test the latches on aarch64, emulated, and check the instructions of their
                     acquisitions on aarch64 and x86-64
  pgo [--quick]      build a server in target/pgo that is optimised by a profile of itself under
                     pgbench; needs `rustup component add llvm-tools`
                     --quick: run the load for a second each
  fuzz [--target NAME] [--minutes M | --runs N] [--merge] [--seed N]
                     coverage-guided search for input bytes that a reader mishandles (default 1
                     minute for each target; needs a C++ compiler)
                     --merge: keep inputs that reach new code in crates/fuzz/corpus
  sim [--seeds N] [--minutes M] [--first S] [--seed S]
                     simulate the whole engine (docs/simulation.md): the seeds that failed once, then
                     N seeds from S on (default 200 from 0), for at most M minutes
                     --seed: run only this seed and print every event
  sim --pool         simulate the buffer pool alone (default 2,000 seeds)
  sim --histories    simulate the engine, judged only by the checker of histories
  sim --cluster      simulate partitions on separate nodes, with message faults and crashes (default
                     1,000 seeds)
  sim --canaries     plant each known kind of bug and check that it is found within 20,000 seeds from
                     --first on (default: the seed that found it last); with --cluster, within 2,000
                     (default: from 0)

e2e, crash and history:
  --server clearway|postgres   server to start [default: clearway]; postgres tests the harness itself
  --binary PATH                Clearway binary to start, instead of one built from this tree
  --only TEXT                  e2e: only scenarios whose name contains TEXT
  -- ARGS                      more arguments for `clearway serve`
history:
  --isolation LEVEL            of all transactions: decides which anomalies may be found
                               [default: serializable]
e2e:
  --against HOST:PORT          use a running server, and skip scenarios that would stop it
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
        "pgo" => pgo::run(&options),
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
