//! Random transactions under the schemes in which one-shots of one statement run before others are
//! decided. They are judged as in `history.rs`.

use crate::driver::Driver;
use crate::history::{Mix, Seen, run_mixed};
use crate::trees::{MemTrees, Paging};
use clearway_partition::{Limits, Partition, SchemeCounts, SchemeKind};

fn run_under(scheme: SchemeKind, paging: Option<Paging>, seeds: u64) -> Seen {
    let mut seen = Seen::default();
    for seed in 1..=seeds {
        let mut driver = Driver::new(MemTrees::new(paging), ());
        let trees = std::mem::replace(driver.partition.trees(), MemTrees::new(None));
        let limits = Limits { scheme, ..Limits::default() };
        driver.partition = Partition::new(trees, limits, driver.snapshots.clone());
        let optimistic = scheme == SchemeKind::Optimistic;
        let asks = [70, 95][(seed % 2) as usize];
        let mix = Mix { one_shots: 50, asks, optimistic, changes: 0 };
        seen.add(&run_mixed(driver, seed, 3 + (seed % 5) as usize, 300, mix));
    }
    seen
}

fn run_speculative(paging: Option<Paging>, seeds: u64) -> Seen {
    let seen = run_under(SchemeKind::Speculative, paging, seeds);
    let SchemeCounts { speculated, discarded, retried, .. } = seen.counts;
    assert!(speculated > seeds && discarded > retried && retried > seeds / 4, "{seen:?}");
    assert!(seen.undone > seeds / 10 && seen.reads > seeds, "{seen:?}");
    seen
}

#[test]
fn speculative_transactions_are_serializable() {
    let seen = run_speculative(None, 400);
    assert_eq!(seen.suspensions, 0);
}

#[test]
fn speculative_histories_with_page_misses_are_serializable() {
    let seen = run_speculative(Some(Paging { pages: 40, frames: 25 }), 400);
    assert!(seen.suspensions > 1000 && seen.stalls > 50, "{seen:?}");
}

fn run_optimistic(paging: Option<Paging>, seeds: u64) -> Seen {
    let seen = run_under(SchemeKind::Optimistic, paging, seeds);
    let SchemeCounts { validated, discarded, retried, .. } = seen.counts;
    assert!(validated > 10 * seeds && discarded > retried && retried > seeds / 4, "{seen:?}");
    assert!(seen.undone > seeds && seen.reads > seeds, "{seen:?}");
    seen
}

#[test]
pub fn optimistic_transactions_are_serializable() {
    let seen = run_optimistic(None, 400);
    assert_eq!(seen.suspensions, 0);
}

#[test]
fn optimistic_histories_with_page_misses_are_serializable() {
    let seen = run_optimistic(Some(Paging { pages: 40, frames: 5 }), 400);
    assert!(seen.suspensions > 1000, "{seen:?}");
}
