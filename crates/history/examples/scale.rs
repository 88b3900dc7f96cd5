//! Measures how long a check takes:
//! `cargo run --release -p clearway-history --example scale -- 1000000`.
//!
//! The argument is the number of transactions. The generated history has 64 sessions over a sliding
//! window of lists and registers. It is serial: the transactions are executed one after the other.

use clearway_history::{CheckerOptions, History, Op, Txn, TxnOutcome};
use std::time::Instant;

/// Sessions that run concurrently.
const SESSIONS: u64 = 64;
/// Approximate number of appends to a list before the window moves on.
const LIST: u64 = 24;
/// Lists and registers that are in use at the same time.
const WINDOW: u64 = 32;

fn main() {
    let count: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(100_000);
    let started = Instant::now();
    let mut history = generate(count);
    let generated = started.elapsed();
    let started = Instant::now();
    let report = history.check(&CheckerOptions::default());
    println!("{report}");
    println!(
        "{count} transactions generated in {generated:.1?}, checked in {:.1?}",
        started.elapsed()
    );
}

fn generate(count: u64) -> History {
    let mut history = History::new();
    let (mut lists, mut registers) = (Vec::<Vec<u64>>::new(), Vec::<Option<u64>>::new());
    let mut state = 1_u64;
    let mut below = move |n: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    let mut value = 0;
    for at in 0..count {
        let first = at * 2 / LIST;
        lists.resize((first + WINDOW) as usize, Vec::new());
        registers.resize((first + WINDOW) as usize, None);
        let mut ops = Vec::new();
        for work in 0..5 {
            let k = (first + below(WINDOW)) as usize;
            value += 1;
            let key = history.key(&format!("{} {k}", if work < 3 { "list" } else { "register" }));
            ops.push(match work {
                0 => Op::List { key, values: lists[k].clone() },
                1 | 2 => {
                    lists[k].push(value);
                    Op::Append { key, value }
                }
                3 => Op::Read { key, value: registers[k] },
                _ => {
                    registers[k] = Some(value);
                    Op::Write { key, value }
                }
            });
        }
        let start = 1000 * at + 1000 - below(1000);
        let end = Some(1000 * (at + SESSIONS) - below(1000));
        history
            .push(Txn {
                session: (at % SESSIONS) as u32,
                start,
                end,
                outcome: TxnOutcome::Committed,
                ops,
            })
            .expect("the generated history is valid");
    }
    history
}
