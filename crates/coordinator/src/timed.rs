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
//! Locking: the baton of the partition. A crash leaves nothing.

use clearway_partition::{Message, Outbox, Partition};
use clearway_sync::time::Instant;

/// One message in this number is timed. It is prime: the transactions of a load often consist of
/// the same few messages, and each of these is to be sampled.
const SAMPLED: u32 = 251;

/// A partition and its clock.
pub(crate) struct Timed {
    pub partition: Partition,
    /// The number of messages until the next one that is timed, including that one.
    until_sample: u32,
    stalled_since: Option<Instant>,
}

impl Timed {
    pub(crate) fn new(partition: Partition) -> Self {
        Self { partition, until_sample: SAMPLED, stalled_since: None }
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
        if !is_sample && !stalls {
            return;
        }
        let now = Instant::now();
        if stalls {
            self.stalled_since = Some(now);
        }
        if is_sample && let Some(began) = began {
            self.partition.times().cpu += now.duration_since(began) * SAMPLED;
        }
    }
}
