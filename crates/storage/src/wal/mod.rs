//! The write-ahead log: one a node, shared by all partitions.
//!
//! An [`Lsn`] is a byte offset in an endless log, cut into `segment` files. [`Wal::append`]
//! reserves a range of it by one atomic add and fills the range in a `ring` of memory; the
//! `flusher` writes and syncs in groups; [`WalReader`] reads it back after a crash. Formats:
//! `record`, `segment`.
//!
//! Invariants
//! 1. Records lie back to back from [`LOG_START`] on; each starts at a multiple of 8.
//! 2. [`Wal::durable`] only grows, and is never above what a sync has confirmed.
//! 3. After a crash the reader returns every record below what was durable, in order, and then any
//!    number of the records that followed, without a gap.
//! 4. A record that the reader did not return will not be returned after later crashes either.
//!
//! Locking: none to append; see `ring` and `shared` for who wakes whom.

mod back;
mod flusher;
mod log;
#[cfg(all(test, loom))]
mod loom_tests;
mod reader;
mod record;
mod ring;
mod room;
mod segment;
mod segments;
mod shared;
mod span;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use back::BackReader;
pub use log::{Wal, WalConfig};
pub use reader::{WalEntry, WalError, WalReader};
pub use room::SpaceWaits;
pub use shared::DURABLE;
pub(crate) use span::{Restored, Span};

use clearway_types::Lsn;

/// Where the first record of a new log starts: no record starts at 0, so that 0 may stand for
/// "none".
pub const LOG_START: Lsn = Lsn(8);

/// The bytes of log that a record with `payload_len` bytes of payload takes: its start is its end
/// less this.
pub const fn record_size(payload_len: usize) -> u64 {
    (record::HEADER as u64 + payload_len as u64).next_multiple_of(8)
}
