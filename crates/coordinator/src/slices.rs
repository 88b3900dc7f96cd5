//! Long fragments whose slice has ended: any idle worker continues one, so that all cores share the
//! partitions of a long scan.
//!
//! Invariants
//! 1. A worker takes at most one per turn of its event loop, so its other work waits for one slice
//!    only, however many fragments are long. A worker that has other work in each turn first
//!    skips [`SKIPPED_TURNS`] turns.
//! 2. None waits while all workers sleep: the worker that adds one checks again before it sleeps
//!    ([`crate::Port::has_work`]), and wakes another worker if there is more than it can take
//!    itself.
//!
//! Locking: none, a lock-free queue. A crash leaves nothing.

use clearway_types::{PartitionId, TxnId};
use crossbeam_queue::SegQueue;
use std::cell::Cell;

/// Turns with other work in which a worker skips the slices. So slices take at most one turn in
/// four from a busy worker, and all its idle turns.
const SKIPPED_TURNS: u32 = 3;

/// Decides when a worker takes its next slice.
#[derive(Default)]
pub(crate) struct Turns {
    /// The worker has had other work since the last check.
    busy: Cell<bool>,
    skipped: Cell<u32>,
}

impl Turns {
    /// Records that the worker has other work.
    pub(crate) fn works(&self) {
        self.busy.set(true);
    }

    /// Returns true if it is time for a slice. Called once per turn.
    fn is_due(&self) -> bool {
        let skipped = if self.busy.take() { self.skipped.get() + 1 } else { u32::MAX };
        let due = skipped > SKIPPED_TURNS;
        self.skipped.set(if due { 0 } else { skipped });
        due
    }
}

/// The queue; see the module's documentation.
#[derive(Default)]
pub(crate) struct Slices {
    waiting: SegQueue<(PartitionId, TxnId)>,
}

impl Slices {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes the longest-waiting fragment, if it is this worker's turn for one.
    pub(crate) fn take(&self, turns: &Turns) -> Option<(PartitionId, TxnId)> {
        if turns.is_due() { self.waiting.pop() } else { None }
    }

    /// Adds a fragment that should continue after others have run. Returns true if there are now
    /// several, so that another worker should be woken.
    pub(crate) fn put(&self, partition: PartitionId, txn: TxnId) -> bool {
        self.waiting.push((partition, txn));
        self.waiting.len() > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_worker_takes_a_slice_every_fourth_turn() {
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
