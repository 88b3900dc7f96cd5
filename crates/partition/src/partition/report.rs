//! Reports the partition's state and counts, for the views.

use super::{Partition, blocking};
use crate::message::{Message, NOBODY, Out, Outbox, TakeReport};
use crate::scheme::{SchemeCounts, SchemeKind};
use clearway_storage::Trees;
use std::time::Duration;

/// A partition's state and its counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionReport {
    /// Its scheme.
    pub scheme: SchemeKind,
    /// Transactions that are neither committed nor aborted here.
    pub active: usize,
    /// Messages that wait in line for the partition or until no lock is held there, and changes of
    /// the scheme that wait.
    pub queue: usize,
    /// How its one-shots have run.
    pub counts: SchemeCounts,
    /// What its environment has measured.
    pub times: PartitionTimes,
}

/// Times of a partition since the start. Its environment measures them, because the partition has
/// no clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionTimes {
    /// Time in which it was [stalled](Partition::is_stalled).
    pub stall: Duration,
    /// Time spent in [`Partition::on_message`].
    pub cpu: Duration,
}

impl<T: Trees> Partition<T> {
    /// Returns the number of transactions that are neither committed nor aborted here.
    pub fn active(&self) -> usize {
        self.txns.len()
    }

    /// Returns how many locks of keys and ranges were requested since the start. The driver of the
    /// simulated cluster charges them.
    pub fn row_lock_requests(&self) -> u64 {
        self.locks.row_requests()
    }

    /// Returns how this partition's one-shots have run since the start.
    pub fn counts(&self) -> SchemeCounts {
        self.blocking.chain.counts
    }

    /// Returns the number of messages that wait in line for the partition or until no lock is held
    /// there, and of changes of the scheme that wait.
    pub fn queue(&self) -> usize {
        self.blocking.queue() + self.fences()
    }

    /// Returns true if a transaction has exclusive access and there is nothing to run: all of its
    /// own messages and of those that may run behind it have been handled.
    #[inline]
    pub fn is_stalled(&self) -> bool {
        // Invariant 5: `behind` is set while there is work left.
        self.blocking.is_taken() && !self.behind
    }

    /// Returns true if the message would only be put in line now.
    pub fn would_wait(&self, message: &Message) -> bool {
        message.txn != NOBODY && blocking::may_wait(&message.body) && self.blocking.stops(message)
    }

    /// Returns what the environment has measured so far, to add to it.
    pub fn times(&mut self) -> &mut PartitionTimes {
        &mut self.times
    }

    /// Leaves the partition's report in the outbox.
    pub(super) fn report(&self, take: TakeReport, out: &mut Outbox) {
        let report = PartitionReport {
            scheme: self.scheme_kind,
            active: self.active(),
            queue: self.queue(),
            counts: self.counts(),
            times: self.times,
        };
        out.push(Out::Report { partition: self.id, report, take });
    }
}
