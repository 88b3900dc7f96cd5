//! The fence: changes the partition's scheme while it runs.
//!
//! A change takes effect when nothing is open that only the old scheme accounts for: no transaction
//! has the partition to itself, and so none is behind it. Until then new work waits in line.
//!
//! Invariants
//! 1. The scheme changes only while no transaction has the partition. Whatever is open then is
//!    protected by its locks, under every scheme: interactive transactions, and one-shots that
//!    lock. They continue, before and after the change.
//! 2. While a change waits, nothing joins the chain. So it waits for the ends of the present
//!    members only: the first one, and at most [`MOST`](super::speculation::MOST) behind it.
//! 3. A change does not wait for a client. A transaction that waits for its client gives up the
//!    partition (`blocking.rs`, invariant 2), and the others of a chain wait for decisions only.
//! 4. The wait of a change is not an edge of the waits-for graph, because it is in no cycle. The
//!    change holds nothing. A transaction that waits in line behind it, and has partitions, has
//!    smaller ones only, since it requests them in ascending order. The first member of the chain
//!    has all its partitions, or waits for a larger one. A member behind it requests partitions,
//!    too, and waits only for larger ones and for decisions about those before it, which have all
//!    theirs. So each wait leads to a larger partition or to a decision.
//! 5. A change that takes effect releases the line, in the message that ends the chain: no one has
//!    to wake it. The line's messages are admitted under the new scheme, in their order.
//! 6. Changes take effect in the order of their arrival, and all at once. Each has its own reply.
//!    One that is cancelled while it waits has no effect.
//!
//! A transaction that waits for quiet keeps waiting if the new scheme grants the partition at all.
//! One-shots behind such a wait return to the line unless the new scheme lets them wait there.
//!
//! Locking: none. A crash leaves nothing: a restart begins with the configured scheme.
//!
//! Source: ours.

use super::Partition;
use crate::lock::PARTITION;
use crate::message::{Body, Failure, Message, Out, Outbox, Reply};
use crate::scheme::SchemeKind;
use clearway_storage::Trees;
use clearway_sync::canary::{self, Bug};
use clearway_types::{SqlError, TxnId};

/// The changes of the scheme that wait, with the numbers of their waits.
#[derive(Default)]
pub(super) struct Fence {
    waiting: Vec<(u64, Message)>,
    /// Number of changes that have taken effect.
    changes: u64,
}

impl<T: Trees> Partition<T> {
    /// Returns the scheme that is in effect.
    pub fn scheme(&self) -> SchemeKind {
        self.scheme_kind
    }

    /// Changes the scheme, now or when the partition is free, and replies then.
    #[cold]
    pub(super) fn set_scheme(&mut self, message: Message, out: &mut Outbox) {
        PARTITION.request();
        if canary::on(Bug::EagerFence) {
            self.blocking.clear();
        }
        if !self.blocking.is_taken() {
            return self.change_scheme(&message, out);
        }
        let wait = self.report_wait(&message, out);
        self.fence.waiting.push((wait, message));
        self.blocking.chain.close(true);
    }

    /// Lets the waiting changes take effect if the partition is free. Call it when a transaction
    /// has ended or given up its exclusive access.
    #[inline]
    pub(super) fn pass_fence(&mut self, out: &mut Outbox) {
        if !self.fence.waiting.is_empty() && !self.blocking.is_taken() {
            self.pass(out);
        }
    }

    #[cold]
    fn pass(&mut self, out: &mut Outbox) {
        self.blocking.chain.close(false);
        for (wait, message) in std::mem::take(&mut self.fence.waiting) {
            self.report_granted(message.txn, wait, out);
            self.change_scheme(&message, out);
        }
    }

    fn change_scheme(&mut self, message: &Message, out: &mut Outbox) {
        let Body::SetScheme(scheme) = message.body else { return };
        self.scheme_kind = scheme;
        self.scheme = scheme.scheme();
        self.fence.changes += 1;
        out.push(Out::Scheme { partition: self.id, order: self.fence.changes, scheme });
        if !self.scheme.exclusive().awaits_quiet() {
            self.release_all_behind_quiet();
        }
        self.reply(message.origin, Ok(Reply::default()), out);
    }

    /// Withdraws the transaction's change, if it waits, and replies with the error. Returns false
    /// if there is none.
    pub(super) fn leave_fence(&mut self, id: TxnId, error: &SqlError, out: &mut Outbox) -> bool {
        let waiting = &mut self.fence.waiting;
        let Some(at) = waiting.iter().position(|(_, message)| message.txn == id) else {
            return false;
        };
        let (wait, message) = waiting.remove(at);
        if waiting.is_empty() {
            self.blocking.chain.close(false);
        }
        self.report_given_up(id, wait, out);
        self.reply(message.origin, Err(Failure::Sql(error.clone())), out);
        true
    }

    /// Returns the number of changes that wait.
    pub(super) fn fences(&self) -> usize {
        self.fence.waiting.len()
    }
}
