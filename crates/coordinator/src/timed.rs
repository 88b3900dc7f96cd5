//! A partition and its clock: measures what the partition, which has none, cannot.
//!
//! - *Stall* is the time in which a transaction has exclusive access to the partition and nothing
//!   runs there: from the end of a message to the start of the next one that does more than join
//!   the line. It is measured completely. This reads the clock twice for each message that a
//!   partition handles while a transaction has it to itself, and never otherwise.
//! - *CPU* is the time that threads spend in the partition. It is estimated from one message in
//!   [`SAMPLED`], whose time counts that many times. If the operating system preempts the thread
//!   meanwhile, that time counts, too.
//!
//! Counts and times are published for readers outside of the partition after each message that is
//! timed. Almost all counts change only while a transaction has the partition to itself, so what is
//! published is rarely out of date. Cascades may be late by up to [`SAMPLED`] messages.
//!
//! Locking: the baton of the partition. A crash leaves nothing.

use clearway_partition::{CascadeCounts, Message, Outbox, Partition, PartitionTimes, SchemeCounts};
use clearway_sync::time::{Duration, Instant};
use std::sync::Arc;
// Plain std: a statistic; no thread's decision depends on it.
use std::sync::atomic::{AtomicU64, Ordering};

/// One message in this number is timed. It is prime: the transactions of a load often consist of
/// the same few messages, and each of these is to be sampled.
const SAMPLED: u32 = 251;

/// Counts and times of a partition, as of the last message that was timed.
#[derive(Debug, Default)]
pub(crate) struct Published {
    counts: [AtomicU64; 5],
    cascades: [AtomicU64; 2],
    /// In nanoseconds.
    times: [AtomicU64; 2],
}

impl Published {
    /// Called by the holder of the partition's baton only.
    fn set(&self, counts: SchemeCounts, cascades: CascadeCounts, times: PartitionTimes) {
        let SchemeCounts { speculated, validated, discarded, retried, blocked } = counts;
        let counts = [speculated, validated, discarded, retried, blocked];
        // Relaxed, here and below: no other data depends on the numbers.
        for (slot, count) in self.counts.iter().zip(counts) {
            slot.store(count, Ordering::Relaxed);
        }
        for (slot, count) in self.cascades.iter().zip([cascades.cascades, cascades.undone]) {
            slot.store(count, Ordering::Relaxed);
        }
        for (slot, time) in self.times.iter().zip([times.stall, times.cpu]) {
            slot.store(time.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    /// Returns what was published last.
    pub(crate) fn get(&self) -> (SchemeCounts, CascadeCounts, PartitionTimes) {
        let load = |slot: &AtomicU64| slot.load(Ordering::Relaxed);
        let [speculated, validated, discarded, retried, blocked] = self.counts.each_ref().map(load);
        let [cascades, undone] = self.cascades.each_ref().map(load);
        let [stall, cpu] = self.times.each_ref().map(|time| Duration::from_nanos(load(time)));
        let counts = SchemeCounts { speculated, validated, discarded, retried, blocked };
        (counts, CascadeCounts { cascades, undone }, PartitionTimes { stall, cpu })
    }
}

/// A partition and its clock.
pub(crate) struct Timed {
    pub partition: Partition,
    /// The number of messages until the next one that is timed, including that one.
    until_sample: u32,
    stalled_since: Option<Instant>,
    published: Arc<Published>,
}

impl Timed {
    pub(crate) fn new(partition: Partition) -> Self {
        Self { partition, until_sample: SAMPLED, stalled_since: None, published: Arc::default() }
    }

    /// Returns where counts and times are published.
    pub(crate) fn published(&self) -> Arc<Published> {
        self.published.clone()
    }

    /// See [`Partition::on_message`].
    #[inline]
    pub(crate) fn on_message(&mut self, message: Message, out: &mut Outbox) {
        self.until_sample -= 1;
        if self.until_sample == 0 || self.stalled_since.is_some() {
            return self.measure(message, out);
        }
        self.partition.on_message(message, out);
        if self.partition.is_stalled() {
            self.stalled_since = Some(Instant::now());
        }
    }

    #[cold]
    fn measure(&mut self, message: Message, out: &mut Outbox) {
        let is_sample = self.until_sample == 0;
        if is_sample {
            self.until_sample = SAMPLED;
        }
        let stall_ends = self.stalled_since.is_some() && !self.partition.would_wait(&message);
        let began = (is_sample || stall_ends).then(Instant::now);
        if stall_ends && let (Some(since), Some(now)) = (self.stalled_since.take(), began) {
            self.partition.times().stall += now.duration_since(since);
        }
        self.partition.on_message(message, out);
        let stalls = self.stalled_since.is_none() && self.partition.is_stalled();
        if is_sample || stalls {
            let now = Instant::now();
            if stalls {
                self.stalled_since = Some(now);
            }
            if is_sample && let Some(began) = began {
                self.partition.times().cpu += now.duration_since(began) * SAMPLED;
            }
        }
        let cascades = self.partition.cascades().totals();
        self.published.set(self.partition.counts(), cascades, *self.partition.times());
    }
}
