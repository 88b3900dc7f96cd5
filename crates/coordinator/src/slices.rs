//! Long fragments whose slice is over: whichever worker has time goes on with one, so that the
//! partitions of a long scan are read on all cores.
//!
//! Invariants
//! 1. In one turn of its event loop a worker takes at most one: everything else that it has to do
//!    waits for one slice, however many fragments are long. A worker that has had other work since
//!    its last slice passes it by in [`PASSED`] turns first.
//! 2. None is left lying while workers sleep: whoever puts one in looks again before it sleeps
//!    ([`crate::Port::has_work`]), and wakes another worker if there is more than it can take
//!    itself.
//!
//! Pinned dispatch does not use this: a partition's home goes on with its fragments.
//!
//! Locking: none, a lock-free queue. A crash leaves nothing.

use crate::engine::Engine;
use clearway_types::{PartitionId, TxnId};
use crossbeam_queue::SegQueue;
use std::cell::Cell;

/// Turns with other work in which a worker leaves the slices alone. So they take at most one turn
/// in four from it, and all of its idle turns.
const PASSED: u32 = 3;

/// When a worker takes its next slice.
#[derive(Default)]
pub(crate) struct Turns {
    /// Whether the worker has had other work since it looked last.
    busy: Cell<bool>,
    passed: Cell<u32>,
}

impl Turns {
    /// The worker has something else to do.
    pub(crate) fn works(&self) {
        self.busy.set(true);
    }

    /// Whether it is time for a slice. Called once a turn.
    fn is_due(&self) -> bool {
        let passed = if self.busy.take() { self.passed.get() + 1 } else { u32::MAX };
        let due = passed > PASSED;
        self.passed.set(if due { 0 } else { passed });
        due
    }
}

/// See the module's text.
#[derive(Default)]
pub(crate) struct Slices {
    waiting: SegQueue<(PartitionId, TxnId)>,
}

impl Slices {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes the fragment that has waited longest, if it is the worker's time for one.
    pub(crate) fn take(&self, turns: &Turns) -> Option<(PartitionId, TxnId)> {
        if turns.is_due() { self.waiting.pop() } else { None }
    }

    /// Puts a fragment in: it is to go on when others have had a turn.
    pub(crate) fn put(&self, engine: &Engine, worker: u16, partition: PartitionId, txn: TxnId) {
        self.waiting.push((partition, txn));
        let other = engine.home(partition);
        if other != worker && self.waiting.len() > 1 {
            engine.mailbox(other).wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_worker_takes_a_slice_in_one_turn_of_four() {
        let turns = Turns::default();
        let turn = |busy: bool| {
            if busy {
                turns.works();
            }
            turns.is_due()
        };
        assert!([turn(false), turn(false)].iter().all(|due| *due), "idle turns");
        let due: Vec<bool> = (0..8).map(|_| turn(true)).collect();
        assert_eq!(due, [false, false, false, true, false, false, false, true]);
        assert!([turn(true), turn(true)].iter().all(|due| !due));
        assert!(turn(false), "a turn without other work");
    }
}
