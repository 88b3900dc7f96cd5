//! B+trees, the write-ahead log, checkpoints and recovery.

#![forbid(unsafe_code)]

mod cursor;
mod error;
mod node;
mod store;
mod txn;
pub mod wal;

pub use cursor::Cursor;
pub use error::{Blocked, MAX_KEY, OpenError, StorageError};
pub use node::{Node, NodeConfig, RecoveryReport};
pub use store::{Inserted, Store, TxnMode};
pub use txn::TxnLog;
