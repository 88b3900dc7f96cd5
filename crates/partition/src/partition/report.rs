//! Reports the partition's state and counts, for the views.

use super::{Partition, blocking};
use crate::message::{Message, NOBODY, Out, Outbox, TakeReport};
use crate::scheme::{SchemeCounts, SchemeKind};
use clearway_storage::Trees;
use std::time::Duration;

/// A partition's state and its counts since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// How many transactions its cascades have undone.
    pub cascades: Cascades,
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

/// Cascades of a partition since the start, by size.
///
/// A cascade undoes, at one partition, the transactions behind another one
/// (`partition/retire.rs`). Its size is the number of transactions that it has undone. It counts
/// from its first one on, also while it waits for pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cascades {
    /// The number of cascades of size 1, 2 and so on. The bound of a cascade
    /// (`lock/retired.rs`, invariant 3) also bounds the length.
    by_size: Vec<u64>,
}

/// Totals over a partition's cascades.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CascadeCounts {
    /// Cascades.
    pub cascades: u64,
    /// Transactions that they have undone.
    pub undone: u64,
}

impl Cascades {
    /// Counts a transaction undone by a cascade of this size so far, and adds it to the size.
    pub(super) fn add(&mut self, size: &mut usize) {
        if let Some(before) = size.checked_sub(1) {
            self.by_size[before] -= 1;
        }
        if self.by_size.len() == *size {
            self.by_size.push(0);
        }
        self.by_size[*size] += 1;
        *size += 1;
    }

    /// Returns each size that has occurred, in ascending order, with its number of cascades.
    pub fn sizes(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        (1..).zip(self.by_size.iter().copied()).filter(|(_, cascades)| *cascades > 0)
    }

    /// Returns the totals.
    pub fn totals(&self) -> CascadeCounts {
        self.sizes().fold(CascadeCounts::default(), |sum, (size, cascades)| CascadeCounts {
            cascades: sum.cascades + cascades,
            undone: sum.undone + size * cascades,
        })
    }
}

/// What a partition counts and measures only for its reports.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub times: PartitionTimes,
    pub cascades: Cascades,
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

    /// Returns its cascades since the start.
    pub fn cascades(&self) -> &Cascades {
        &self.measured.cascades
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
        &mut self.measured.times
    }

    /// Leaves the partition's report in the outbox.
    pub(super) fn report(&self, take: TakeReport, out: &mut Outbox) {
        let report = PartitionReport {
            scheme: self.scheme_kind,
            active: self.active(),
            queue: self.queue(),
            counts: self.counts(),
            cascades: self.measured.cascades.clone(),
            times: self.measured.times,
        };
        out.push(Out::Report { partition: self.id, report, take });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growing_cascades_are_counted_once() {
        let mut cascades = Cascades::default();
        assert_eq!(cascades.totals(), CascadeCounts::default());
        let (mut first, mut second) = (0, 0);
        for size in [&mut first, &mut second] {
            cascades.add(size);
        }
        cascades.add(&mut first);
        cascades.add(&mut first);
        assert_eq!((first, second), (3, 1));
        assert_eq!(cascades.sizes().collect::<Vec<_>>(), [(1, 1), (3, 1)]);
        assert_eq!(cascades.totals(), CascadeCounts { cascades: 2, undone: 4 });
    }
}
