//! Waiting until nobody has a lock here: what a transaction does that was refused the partition
//! because of the locks of others who are soon over.
//!
//! Without this a partition would stay in the locking scheme for as long as it is busy: one
//! transaction takes locks as it misses a page, the next ones are refused the partition and lock as
//! well, and there is always one that has a lock.
//!
//! Invariants
//! 1. Who waits here has no lock anywhere and no partition to itself. So nobody waits for it, and
//!    its wait is no edge of the waits-for graph.
//! 2. It does not wait for a client: it is answered at once when a transaction is here that is not
//!    [short](crate::txn::Txn::short).
//! 3. A short transaction that comes to wait for a lock, pauses, or cannot be rolled back is not
//!    short any more, here; its coordinator tells the other partitions ([`Body::AwaitsClient`]).
//!
//! Locking: none. A crash leaves nothing.

use super::Partition;
use crate::lock::PARTITION;
use crate::message::{Message, Out, Outbox, Reply};
use crate::trees::Trees;
use crate::txn::{Job, Task, Txn};
use clearway_types::TxnId;
use std::panic::Location;

impl<T: Trees> Partition<T> {
    /// Answers when no lock is held here, with 1; with 0 when that may take as long as a client
    /// likes.
    pub(super) fn await_quiet(&mut self, message: Message, out: &mut Outbox) {
        if let Some(count) = self.quiet() {
            return self.reply(message.origin, Ok(Reply { count, ..Reply::default() }), out);
        }
        let (wait, order, caller) = (self.next_wait(), self.next_order(), Location::caller());
        let Message { txn, stake, .. } = message;
        PARTITION.request();
        self.blocking.quiet.push((wait, message));
        let (partition, asker, line, wanted, class) = (self.id(), None, None, None, &PARTITION);
        out.push(Out::Waits {
            txn,
            partition,
            order,
            wait,
            stake,
            asker,
            line,
            wanted,
            class,
            caller,
        });
    }

    fn quiet(&self) -> Option<u64> {
        if self.locks.is_empty() {
            Some(1)
        } else if self.txns.values().any(|txn| !txn.short) {
            Some(0)
        } else {
            None
        }
    }

    /// Answers those who wait, if that can be done now.
    #[cold]
    pub(super) fn end_quiet_waits(&mut self, out: &mut Outbox) {
        let Some(count) = self.quiet() else { return };
        for (wait, message) in std::mem::take(&mut self.blocking.quiet) {
            self.tell_over(message.txn, wait, true, out);
            self.reply(message.origin, Ok(Reply { count, ..Reply::default() }), out);
        }
    }

    /// The transaction waits for its client from now on: it keeps locks on what it has used.
    pub(super) fn awaits_client(&mut self, id: TxnId) {
        self.unblock(id);
        if let Some(txn) = self.txns.get_mut(&id) {
            txn.short = false;
        }
    }

    /// The transaction comes to wait for a lock: invariant 3.
    pub(super) fn waits_for_lock(&self, txn: &mut Txn<T::Log>, task: &Task, out: &mut Outbox) {
        if std::mem::take(&mut txn.short) && matches!(task.job, Job::Statement(_)) {
            out.push(Out::Stalled { to: task.origin });
        }
    }
}
