//! Waiting until no lock is held here. A transaction does this after it was refused the partition
//! because of locks of others that will end soon.
//!
//! Without this a busy partition would stay in the locking scheme. One transaction takes locks when
//! it misses a page; the next ones are refused the partition and lock as well, so there is always
//! one that has a lock.
//!
//! Invariants
//! 1. A transaction that waits here holds no lock anywhere and no partition. So no one waits for
//!    it, and its wait is not an edge of the waits-for graph.
//! 2. It does not wait for a client: it gets its reply immediately if there is a transaction here
//!    that is not [short](crate::txn::Txn::short).
//! 3. A short transaction is no longer short here once it waits for a lock, pauses, or cannot be
//!    rolled back. Its coordinator informs the other partitions ([`crate::Body::AwaitsClient`]).
//!
//! Locking: none. A crash leaves nothing.

use super::Partition;
use crate::lock::PARTITION;
use crate::message::{Message, Out, Outbox, Reply};
use crate::txn::{Job, Task, Txn};
use clearway_storage::Trees;
use clearway_types::TxnId;
use std::panic::Location;

impl<T: Trees> Partition<T> {
    /// Replies with 1 when no lock is held here, or with 0 when that may depend on a client.
    pub(super) fn await_quiet(&mut self, message: Message, out: &mut Outbox) {
        if let Some(count) = self.quiet() {
            return self.reply(message.origin, Ok(Reply { count, ..Reply::default() }), out);
        }
        let (wait, order, caller) = (self.next_wait(), self.next_order(), Location::caller());
        let Message { txn, stake, .. } = message;
        PARTITION.request();
        self.blocking.quiet.push((wait, message));
        let (partition, requester, line, wanted, class) = (self.id(), None, None, None, &PARTITION);
        out.push(Out::Waits {
            txn,
            partition,
            order,
            wait,
            stake,
            requester,
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

    /// Replies to the waiting calls, if possible now.
    #[cold]
    pub(super) fn end_quiet_waits(&mut self, out: &mut Outbox) {
        let Some(count) = self.quiet() else { return };
        for (wait, message) in std::mem::take(&mut self.blocking.quiet) {
            self.report_over(message.txn, wait, true, out);
            self.reply(message.origin, Ok(Reply { count, ..Reply::default() }), out);
        }
    }

    /// Records that the transaction now waits for its client: it keeps locks on what it has used.
    pub(super) fn awaits_client(&mut self, id: TxnId) {
        self.unblock(id);
        if let Some(txn) = self.txns.get_mut(&id) {
            txn.short = false;
        }
    }

    /// Records that the transaction waits for a lock (invariant 3).
    pub(super) fn waits_for_lock(&self, txn: &mut Txn<T::Log>, task: &Task, out: &mut Outbox) {
        if std::mem::take(&mut txn.short) && matches!(task.job, Job::Statement(_)) {
            out.push(Out::Stalled { to: task.origin });
        }
    }
}
