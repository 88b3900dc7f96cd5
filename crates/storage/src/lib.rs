//! B+trees, the write-ahead log, checkpoints and recovery.

#![forbid(unsafe_code)]

mod apply;
mod change;
mod control;
mod cursor;
mod descend;
mod directory;
mod error;
mod mini;
mod node;
mod overflow;
mod page;
#[cfg(all(test, not(loom)))]
mod page_tests;
mod record;
mod recovery;
mod rollback;
mod scan;
mod split;
mod store;
mod txn;
pub mod wal;

pub use cursor::Cursor;
pub use error::{Blocked, MAX_KEY, OpenError, StorageError};
pub use node::{Node, NodeConfig, RecoveryReport};
pub use scan::Visit;
pub use store::{Inserted, Store, TxnMode, rowid_key};
pub use txn::TxnLog;
