//! Records the history of a small key-value store and checks it:
//! `cargo run -p clearway-history --example store`.
//!
//! The store runs each transaction on a snapshot and does not check for conflicts at commit.
//! Concurrent increments of a register are therefore lost, and the check reports them.

use clearway_history::{CheckerOptions, History, Op, Txn, TxnOutcome};

/// A store with one register.
#[derive(Default)]
struct Store {
    value: Option<u64>,
}

/// Records 10 rounds of increments by `clients` clients, which run concurrently in each round.
fn record(clients: u32) -> History {
    let (mut history, mut store) = (History::new(), Store::default());
    let key = history.key("counter");
    let mut next = 0;
    for round in 0..10 {
        // All clients of a round read before the first one commits.
        let snapshot = store.value;
        for session in 0..clients {
            // Each written value is unique, so that a read identifies the write that it saw.
            next += 1;
            store.value = Some(next);
            let ops = vec![Op::Read { key, value: snapshot }, Op::Write { key, value: next }];
            let (start, end) = (round * 100, Some(round * 100 + 50));
            history
                .push(Txn { session, start, end, outcome: TxnOutcome::Committed, ops })
                .expect("the recorded history is valid");
        }
    }
    history
}

fn main() {
    println!("{}", record(2).check(&CheckerOptions::default()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_history::Anomaly;

    #[test]
    fn only_concurrent_increments_are_lost() {
        assert!(record(1).check(&CheckerOptions::default()).is_clean());
        let report = record(2).check(&CheckerOptions::default());
        assert!(report.anomalies().any(|anomaly| anomaly == Anomaly::LostUpdate), "{report}");
    }
}
