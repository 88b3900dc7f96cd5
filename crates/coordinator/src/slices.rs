//! Long fragments whose slice is over: whichever worker has time goes on with one, so that the partitions of a long scan are read on all cores.
//!
//! Invariants
//! 1. In one turn of its event loop a worker takes at most one: everything else that it has to do waits for one slice, however many
//!    fragments are long.
//! 2. None is left lying while workers sleep: whoever puts one in looks again before it sleeps ([`crate::Port::has_work`]), and wakes
//!    another worker if there is more than it can take itself.
//!
//! Pinned dispatch does not use this: a partition's home goes on with its fragments.
//!
//! Locking: none, a lock-free queue. A crash leaves nothing.

use crate::engine::Engine;
use clearway_types::{PartitionId, TxnId};
use crossbeam_queue::SegQueue;

/// See the module's text.
#[derive(Default)]
pub(crate) struct Slices {
    waiting: SegQueue<(PartitionId, TxnId)>,
}

impl Slices {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes the fragment that has waited longest.
    pub(crate) fn take(&self) -> Option<(PartitionId, TxnId)> {
        self.waiting.pop()
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
