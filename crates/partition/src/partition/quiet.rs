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
//! 2. It does not wait for a client: it gets its reply immediately if a transaction has locks here
//!    that is not [short](crate::txn::Txn::short), or if the scheme never grants the partition. A
//!    transaction without locks is not waited for, such as a reader of a snapshot, or one that has
//!    given up the partition.
//! 3. A short transaction is no longer short here once it waits for a lock, pauses, or cannot be
//!    rolled back. Its coordinator informs the other partitions ([`crate::Body::AwaitsClient`]).
//! 4. Under the schemes that wait for quiet, single-partition one-shots that arrive meanwhile wait
//!    behind it. No one waits for them, because they hold nothing. They join the partition's line
//!    as soon as no transaction waits for quiet. Otherwise one-shots that take locks could follow
//!    each other without end. Optimistic fragments could, too, and fail (`optimistic.rs`).
//!
//! Locking: none. A crash leaves nothing.

use super::Partition;
use crate::lock::PARTITION;
use crate::message::{Body, Message, Out, Outbox, Reply};
use crate::scheme::ExclusiveAccess;
use crate::txn::{Job, Task, Txn};
use clearway_storage::Trees;
use clearway_types::TxnId;
use std::collections::VecDeque;

/// The messages that wait until no lock is held, and those behind them, with the numbers of their
/// waits.
#[derive(Default)]
pub(super) struct AwaitingQuiet {
    waiting: Vec<(u64, Message)>,
    /// Empty unless there are waiting ones.
    behind: VecDeque<(u64, Message)>,
}

impl AwaitingQuiet {
    /// Returns true if no message waits for quiet.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the number of messages that wait for quiet, and of those behind them.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.behind.len()
    }

    /// Removes the transaction's message.
    pub(super) fn take(&mut self, txn: TxnId) -> Option<(u64, Message)> {
        if let Some(at) = self.waiting.iter().position(|(_, message)| message.txn == txn) {
            return Some(self.waiting.remove(at));
        }
        let at = self.behind.iter().position(|(_, message)| message.txn == txn)?;
        self.behind.remove(at)
    }
}

impl<T: Trees> Partition<T> {
    /// Replies with 1 when no lock is held here, or with 0 when that may depend on a client or the
    /// scheme never grants the partition.
    pub(super) fn await_quiet(&mut self, message: Message, out: &mut Outbox) {
        if let Some(count) = self.quiet() {
            return self.reply(message.origin, Ok(Reply { count, ..Reply::default() }), out);
        }
        PARTITION.request();
        let wait = self.report_wait(&message, out);
        self.blocking.quiet.waiting.push((wait, message));
    }

    /// Returns true if the message must wait behind those that wait for quiet (invariant 4).
    #[cold]
    pub(super) fn waits_behind_quiet(&self, body: &Body) -> bool {
        self.scheme.exclusive().awaits_quiet() && matches!(body, Body::OneShot { .. })
    }

    /// Puts the message behind those that wait for quiet.
    pub(super) fn wait_behind_quiet(&mut self, message: Message, out: &mut Outbox) {
        let wait = self.report_wait(&message, out);
        self.blocking.quiet.behind.push_back((wait, message));
    }

    /// Moves the messages behind waits for quiet to the partition's line if no such wait is left.
    pub(super) fn release_behind_quiet(&mut self) {
        if self.blocking.quiet.is_empty() {
            self.release_all_behind_quiet();
        }
    }

    /// Moves them there even if others still wait for quiet.
    pub(super) fn release_all_behind_quiet(&mut self) {
        let behind = std::mem::take(&mut self.blocking.quiet.behind);
        self.append_to_line(behind.into_iter());
    }

    fn quiet(&self) -> Option<u64> {
        if self.scheme.exclusive() == ExclusiveAccess::Never {
            Some(0)
        } else if self.locks.is_empty() {
            Some(1)
        } else if self.locks.owners().any(|id| self.txns.get(&id).is_none_or(|txn| !txn.short)) {
            Some(0)
        } else {
            None
        }
    }

    /// Replies to the waiting calls, if possible now.
    #[cold]
    pub(super) fn end_quiet_waits(&mut self, out: &mut Outbox) {
        let Some(count) = self.quiet() else { return };
        for (wait, message) in std::mem::take(&mut self.blocking.quiet.waiting) {
            self.report_granted(message.txn, wait, out);
            self.reply(message.origin, Ok(Reply { count, ..Reply::default() }), out);
        }
        self.release_behind_quiet();
        self.yield_if_more(out);
    }

    /// Records that the transaction now waits for its client: it keeps locks on what it has used.
    pub(super) fn awaits_client(&mut self, id: TxnId, out: &mut Outbox) {
        self.unblock(id, out);
        self.lock_in_line(id);
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
