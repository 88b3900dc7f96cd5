//! One process of an experiment: a node that owns rows and runs transactions on the rows of all
//! nodes.
//!
//! A parent starts one process per node and controls it by lines on standard input and output:
//!
//! | line | from | |
//! |---|---|---|
//! | `ready SEGMENT ROWS MAILBOX ADDRESS` | process | segment path, keys of its regions, listen address; `-` for none |
//! | `peers ROWS MAILBOX ADDRESS ...` | parent | the same fields of all nodes, in node order |
//! | `connected` | process | |
//! | `run MILLISECONDS` | parent | after all processes have connected |
//! | `result NAME=VALUE ...` | process | its counts; it continues to serve the others |
//! | `check` | parent | after all processes have finished |
//! | `rows SUM` | process | the sum of its rows; each row counts the updates that committed |
//!
//! The process ends when standard input ends.

#![forbid(unsafe_code)]

mod load;
mod node;
mod options;

use options::Options;
use std::process::ExitCode;

const USAGE: &str = "clearway-remote serve: one node of an experiment, driven over standard input

Usage: clearway-remote serve --node N [OPTIONS]

  --node N            Number of this node, from 0; required
  --nodes N           Nodes of the experiment, 1 to 64 [default: 4]
  --transport T       How rows are accessed: one-sided (verbs on shared memory), two-sided (messages
                      through shared memory) or tcp [default: one-sided]
  --protocol P        Reaction to a conflict: no-wait or wait-die [default: no-wait]
  --locks K           Kind of row locks: mutual, shared, one-round, line or adaptive
                      [default: shared]
  --rows N            Rows of each node, 2 to 2^30 - 1 [default: 100000]
  --operations N      Operations per transaction, 1 to 64 [default: 10]
  --theta X           Zipf skew of the row choice, 0 to below 1 [default: 0]
  --writes X          Share of operations that update, 0 to 1 [default: 0.5]
  --transactions N    Concurrent transactions of the node, 1 to 32 [default: 4]
  --read-index B      Reads an index entry before each row in one-sided transactions, true or false
                      [default: false]
  --latency-ns N      Delays each verb's completion, in nanoseconds; ignored for tcp [default: 0]
  --seed N            Seed of the random transactions [default: 1]
  --segment PATH      Shared memory segment, as printed by node 0; required for other nodes unless
                      the transport is tcp
                      [default: node 0 creates one]

Exit codes:
  0  success
  1  the run failed
  2  invalid command line";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let options = match Options::parse(&args) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("clearway-remote: {why}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match node::serve(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("clearway-remote: node {}: {why}", options.node);
            ExitCode::FAILURE
        }
    }
}
