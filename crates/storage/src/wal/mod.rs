//! The write-ahead log: one per node, shared by all partitions.
//!
//! An [`Lsn`] is a byte offset in an endless log, divided into `segment` files. [`Log::append`]
//! reserves a range with one atomic add and fills it in an in-memory `ring`. The `flusher` writes
//! and syncs in groups. [`WalReader`] reads the log after a crash. Formats: `record`, `segment`.
//!
//! Invariants
//! 1. Records are contiguous from [`LOG_START`] on; each starts at a multiple of 8.
//! 2. [`Log::durable`] only grows, and is never above what a sync has confirmed.
//! 3. After a crash the reader returns every durable record, in order, and then any number of the
//!    records that followed, without a gap.
//! 4. A record that the reader did not return is not returned after later crashes either.
//!
//! Locking: appending takes no lock; see `ring` and `log` for wake-ups.

mod back;
mod flusher;
mod log;
#[cfg(all(test, loom))]
mod loom_tests;
mod open;
mod reader;
mod record;
mod ring;
mod room;
mod segment;
mod segments;
mod span;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use back::BackReader;
pub use log::{DURABLE, Log};
pub use open::{Wal, WalConfig};
pub use reader::{WalEntry, WalError, WalReader};
pub use room::SpaceWaits;
pub(crate) use span::{Restored, Span, records};

use clearway_types::Lsn;

/// The start of the first record of a new log. No record starts at 0, so 0 can mean "none".
pub const LOG_START: Lsn = Lsn(8);

/// Returns the bytes of log for a record with `payload_len` bytes of payload. The record's start is
/// its end minus this.
pub const fn record_size(payload_len: usize) -> u64 {
    (record::HEADER as u64 + payload_len as u64).next_multiple_of(8)
}
