//! Threads that share two structures, and where they wait.
//!
//! `cargo run -p clearway-latch --example contention`
//!
//! A sum is behind a latch: each thread waits for it. A list of messages is behind a baton
//! ([`Combiner`]): a thread that finds it taken leaves its message to the thread inside.

use clearway_latch::lockstat::{self, Class};
use clearway_latch::{Combiner, Latch, Submitted};
use std::thread;

static SUM: Class = Class::new("example.sum");
static LIST: Class = Class::new("example.list");

const THREADS: u64 = 4;
const ROUNDS: u64 = 20_000;

/// Runs the threads; returns the sum and the number of messages in the list.
fn run() -> (u64, usize) {
    let sum = Latch::new(&SUM, 0);
    let list = Combiner::new(&LIST, Vec::new());
    let mut handle = |list: &mut Vec<u64>, message| list.push(message);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (sum, list) = (&sum, &list);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    *sum.lock() += 1;
                    let message = thread * ROUNDS + round;
                    if let Submitted::Ran { more: true } = list.submit(message, &mut handle) {
                        // A hold ends after a bounded number of messages.
                        while list.poll(&mut handle) {}
                    }
                }
            });
        }
    });
    (sum.into_inner(), list.into_inner().len())
}

fn main() {
    let (sum, messages) = run();
    println!("sum {sum}, {messages} messages");
    for row in lockstat::contention() {
        let caller = row.caller.map_or("-".to_owned(), |caller| caller.to_string());
        println!(
            "{}: {} requests; {} waited at {caller}, {:.0} ns on average",
            row.name,
            row.requests,
            row.contended,
            row.waits.mean_ns()
        );
    }
}

#[test]
fn no_addition_and_no_message_is_lost() {
    assert_eq!(run(), (THREADS * ROUNDS, (THREADS * ROUNDS) as usize));
    let requests = |class: &Class| {
        let of = |row: &lockstat::Contention| row.name == class.name();
        lockstat::contention().iter().find(|row| of(row)).map(|row| row.requests)
    };
    assert_eq!(requests(&SUM), Some(THREADS * ROUNDS));
    assert_eq!(requests(&LIST), Some(THREADS * ROUNDS));
}
