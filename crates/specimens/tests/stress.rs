//! Every latch under more threads than cores: no change is lost, and no thread waits forever.
#![cfg(not(any(loom, shuttle)))]

use clearway_latch::conformance::{excludes_its_holder, excludes_many_threads};
use clearway_specimens::{ElidedLatch, McsLatch, SLockCas, SLockTas, TicketLatch};

const THREADS: u64 = if cfg!(miri) { 3 } else { 8 };
/// Fewer iterations where every handover may take a time slice.
const IN_LINE: u64 = if cfg!(miri) { 5 } else { 40 };
const FREE_FOR_ALL: u64 = if cfg!(miri) { 20 } else { 20_000 };

#[test]
fn latches_without_a_line_exclude_a_crowd() {
    excludes_many_threads::<ElidedLatch>(THREADS, FREE_FOR_ALL);
    excludes_many_threads::<SLockTas>(THREADS, FREE_FOR_ALL);
    excludes_many_threads::<SLockCas>(THREADS, FREE_FOR_ALL);
}

#[test]
fn latches_with_a_line_exclude_a_crowd() {
    excludes_many_threads::<TicketLatch>(THREADS, IN_LINE);
    excludes_many_threads::<McsLatch>(THREADS, IN_LINE);
}

#[test]
fn a_holder_cannot_take_its_latch_again() {
    excludes_its_holder::<ElidedLatch>();
    excludes_its_holder::<SLockTas>();
    excludes_its_holder::<SLockCas>();
    excludes_its_holder::<TicketLatch>();
    excludes_its_holder::<McsLatch>();
}

#[test]
fn a_ticket_latch_is_two_words() {
    assert_eq!(size_of::<TicketLatch>(), 8);
}
