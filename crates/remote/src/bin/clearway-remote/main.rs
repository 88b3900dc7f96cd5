//! One process of an experiment: a node that owns rows, and runs transactions on those of all
//! nodes.
//!
//! A parent starts one process for each node and talks with them in lines, over standard input and
//! output:
//!
//! | line | from | |
//! |---|---|---|
//! | `ready SEGMENT ROWS MAILBOX ADDRESS` | process | the segment's path, keys of its regions, where it listens; `-` where there is none |
//! | `peers ROWS MAILBOX ADDRESS ...` | parent | the same of all nodes, in their order |
//! | `connected` | process | |
//! | `run MILLISECONDS` | parent | after all have connected |
//! | `result NAME=VALUE ...` | process | what it has counted; it goes on to serve the others |
//! | `check` | parent | after all have ended |
//! | `rows SUM` | process | the sum of its rows, each of which counts the updates that committed |
//!
//! The end of standard input ends the process.

#![forbid(unsafe_code)]

mod load;
mod node;
mod options;

use options::Options;
use std::process::ExitCode;

const USAGE: &str = "clearway-remote serve: one node of an experiment, driven over standard input

Usage: clearway-remote serve --node N [OPTIONS]

  --node N            Number of this node, from 0
  --nodes N           Nodes of the experiment [default: 4]
  --transport T       one-sided (verbs on shared memory), two-sided (messages through shared memory) or tcp
                      [default: one-sided]
  --protocol P        no-wait or wait-die [default: no-wait]
  --locks K           mutual, shared, one-round, line or adaptive [default: shared]
  --rows N            Rows of each node [default: 100000]
  --operations N      Operations of a transaction [default: 10]
  --theta X           Skew of the rows, from 0 to below 1 [default: 0]
  --writes X          Share of operations that update, from 0 to 1 [default: 0.5]
  --transactions N    Transactions that the node runs at a time [default: 4]
  --read-index B      Whether one-sided transactions read an index entry before each row, true or false
                      [default: false]
  --latency-ns N      Delay of each verb's completion, in nanoseconds; not for tcp [default: 0]
  --seed N            Seed of the transactions [default: 1]
  --segment PATH      Shared memory of the experiment, as node 0 has told [default: node 0 makes one]

Exit codes:
  0  done
  1  the run failed
  2  the command line is wrong";

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
