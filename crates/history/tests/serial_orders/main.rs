//! Compares verdicts on tiny random histories with brute force over all serial orders.
//!
//! A history is right if and only if some serial order of its transactions explains every read.
//! Trying all orders needs no knowledge of anomalies, so it also finds wrong histories that no list
//! of anomalies names.

mod draft;
mod inferred;
mod orders;

use draft::{Draft, Random};

/// The number of verdicts of each kind.
#[derive(Debug, Default)]
struct Tally {
    right: usize,
    wrong: usize,
    /// Wrong histories whose reads do not show the order of a register's versions.
    hidden: usize,
}

impl Tally {
    /// Asserts that the checker accepts this history if a serial order explains it, and otherwise
    /// reports a finding, with and without real time.
    fn compare(&mut self, draft: &Draft) {
        for real_time in [false, true] {
            let report = draft.check(real_time);
            let evidence = || format!("real time: {real_time}\n{draft}{report}");
            if draft.has_serial_order(real_time) {
                self.right += 1;
                assert!(report.is_clean(), "a right history has findings\n{}", evidence());
            } else if draft.shows_all_orders(real_time) {
                self.wrong += 1;
                assert!(!report.is_clean(), "a wrong history has no findings\n{}", evidence());
            } else {
                self.hidden += 1;
            }
            let is_accepted = report.is_clean();
            assert!(
                !is_accepted || draft.inferred_order_is_acyclic(real_time),
                "an inferred cycle is not reported\n{}",
                evidence()
            );
        }
    }
}

#[test]
fn verdicts_on_tiny_histories_are_those_of_all_serial_orders() {
    const HISTORIES: usize = 30_000;
    let (mut random, mut tally) = (Random(1), Tally::default());
    for _ in 0..HISTORIES {
        let count = 2 + random.below(2);
        let mut draft = Draft::new(&mut random, count, 3);
        match random.below(4) {
            0 => draft.guess(&mut random, 1),
            1 => draft.run_interleaved(&mut random),
            _ => {
                let mut order: Vec<usize> = (0..draft.txns.len()).collect();
                if random.one_in(2) {
                    random.shuffle(&mut order[..count]);
                }
                draft.run_serially(&mut random, &order);
                draft.guess(&mut random, 4);
            }
        }
        tally.compare(&draft);
    }
    // Both verdicts must be frequent for the comparison to mean something.
    assert!(tally.right > HISTORIES / 4 && tally.wrong > HISTORIES / 4, "{tally:?}");
}

/// So many readers and writers of one version are connected through hidden nodes.
#[test]
fn verdicts_on_many_readers_are_those_of_all_serial_orders() {
    const HISTORIES: usize = 2_000;
    let (mut random, mut tally) = (Random(2), Tally::default());
    for _ in 0..HISTORIES {
        let mut draft = Draft::new(&mut random, 11, 2);
        let is_writer = |txn: &usize| draft.txns[*txn].ops.iter().any(|op| op.is_write());
        let mut order: Vec<usize> = (0..draft.txns.len()).collect();
        match random.below(3) {
            // All that only read run first, or last.
            0 => order.sort_by_key(is_writer),
            1 => order.sort_by_key(|txn| !is_writer(txn)),
            _ => {}
        }
        draft.run_serially(&mut random, &order);
        draft.guess(&mut random, 10);
        tally.compare(&draft);
    }
    assert!(tally.right > HISTORIES / 8 && tally.wrong > HISTORIES / 8, "{tally:?}");
}
