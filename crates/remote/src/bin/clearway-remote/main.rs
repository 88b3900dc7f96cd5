//! A process of an experiment: a node that owns a part of a key store and runs transactions on the
//! keys of all nodes, or a client without keys.
//!
//! A parent starts all processes, nodes first, and controls them by lines on standard input and
//! output:
//!
//! | line | from | |
//! |---|---|---|
//! | `ready SEGMENT ROWS MAILBOX ADDRESS` | process | segment path, keys of its regions, listen address; `-` for none |
//! | `peers ROWS MAILBOX ADDRESS ...` | parent | the same fields of all processes, by number |
//! | `connected` | process | |
//! | `run MILLISECONDS` | parent | to nodes, after all processes have connected |
//! | `result NAME=VALUE ...` | node | its counts; it continues to serve the others |
//! | `txn OPERATION ...` | parent | to a client, after all processes have connected, until `check` |
//! | `committed ANSWER ...` | client | one answer for each operation |
//! | `invalid WHY` | client | the line is not a transaction; nothing has been done |
//! | `check` | parent | to nodes, after all processes have finished |
//! | `rows SUM` | node | the sum of the values of its keys |
//!
//! A key is a number from 1, and a value is a number that fills all words of a row. Operations of a
//! client:
//!
//! | operation | answers |
//! |---|---|
//! | `get KEY` | its value, or `absent` |
//! | `put KEY VALUE` | `present` (replaced) or `absent` (nothing done) |
//! | `insert KEY VALUE` | `absent` (added), `present` or `no-room` (nothing done) |
//! | `delete KEY` | `present` (deleted) or `absent` |
//!
//! At the start each node has `--rows` keys with value 0: the lowest numbers that hash to it.
//! A node's transactions read these keys and add 1 to their values, so without clients the sum is
//! the number of updates that committed. Nodes begin with the locations of these keys in their
//! caches. A client reads the index.
//!
//! A process ends when standard input ends.

#![forbid(unsafe_code)]

mod keys;
mod load;
mod node;
mod options;
mod parent;
mod session;

use options::Options;
use std::process::ExitCode;

const USAGE: &str = "clearway-remote: a transactional key store in the memory of several processes

Usage: clearway-remote serve --node N [OPTIONS]
       clearway-remote client --node N --clients N [OPTIONS]

  serve   Owns a part of the keys, and runs the transactions of an experiment on all keys
  client  Owns no keys, and runs transactions read from standard input: lines of `txn` and the
          operations `get KEY`, `put KEY VALUE`, `insert KEY VALUE` and `delete KEY`

A parent process exchanges the processes' addresses over standard input and output. All processes
need the same options, except --node, --cached, --seed and --segment.

  --node N            Number of this process; required. Nodes count from 0, clients from --nodes
  --nodes N           Processes that own keys, 1 to 64 [default: 4]
  --clients N         Client processes, 0 to 64 [default: 0]
  --transport T       How keys are accessed: one-sided (verbs on shared memory), two-sided (messages
                      through shared memory) or tcp (messages) [default: one-sided]
  --protocol P        Reaction to a conflict: no-wait or wait-die [default: no-wait]
  --locks K           Kind of row locks: mutual, shared, one-round, line or adaptive
                      [default: shared]
  --rows N            Keys of each node at the start, 2 to 2^30 - 1; a node has room for twice as
                      many [default: 100000]
  --operations N      Operations per transaction, 1 to 64; a limit for clients [default: 10]
  --theta X           Zipf skew of the choice of keys, 0 to below 1 [default: 0]
  --writes X          Share of operations that update, 0 to 1 [default: 0.5]
  --transactions N    Concurrent transactions of the process, 1 to 32 [default: 4]
  --cached N          Key locations that the process caches, at least 0; 0 reads the index for each
                      operation [default: 4 for each key of a node; 4096 for a client]
  --latency-ns N      Delays each verb's completion, in nanoseconds; ignored for tcp [default: 0]
  --seed N            Seed of the random transactions [default: 1]
  --segment PATH      Shared memory segment, as printed by node 0; required for other processes
                      unless the transport is tcp
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
    match node::run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("clearway-remote: process {}: {why}", options.node);
            ExitCode::FAILURE
        }
    }
}
