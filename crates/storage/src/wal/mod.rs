//! The write-ahead log: one a node.

mod log;
mod reader;

pub use log::{Wal, WalConfig};
pub use reader::{WalEntry, WalError, WalReader};

use clearway_types::Lsn;

/// Where the first record of a new log starts: no record starts at 0, so that 0 may stand for "none".
pub const LOG_START: Lsn = Lsn(8);

/// The bytes of log that a record with `payload_len` bytes of payload takes: its start is its end less this.
pub const fn record_size(payload_len: usize) -> u64 {
    (16 + payload_len as u64).next_multiple_of(8)
}
