//! B+trees, the write-ahead log, checkpoints and recovery.
//!
//! The path of a change: `store`, which implements `trees`, calls `change`, which changes one leaf,
//! or several pages with `split` and `overflow`. `mini` logs everything as one `record`, and
//! `apply` applies it to the pages, as redo does. `page` is the page layout. `descend` and `scan`
//! find keys. `undo`, `txn`, `rollback` and `log_read` undo changes. `attempt` repeats what missed
//! a page. `directory` lists the trees of a partition. `node` opens a data directory in the stages
//! of `opening`, with `access`, `control`, `recovery` and `redo`, and takes checkpoints. `spill` is
//! its temporary file. `backup` copies the whole database. `addends` are the amounts that an
//! increment adds to integers of a value. `docs/format.md` specifies the bytes.

#![forbid(unsafe_code)]

mod access;
mod addends;
mod apply;
mod attempt;
pub mod backup;
mod change;
pub mod check;
mod config;
mod control;
mod cursor;
mod descend;
mod directory;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod images;
mod log_read;
mod mini;
mod node;
mod opening;
mod overflow;
mod owned;
mod page;
#[cfg(all(test, not(loom)))]
mod page_tests;
mod record;
mod recovery;
mod redo;
mod rollback;
mod scan;
mod spare;
mod spill;
mod split;
mod store;
mod trees;
mod txn;
mod undo;
pub mod wal;

pub use addends::{Addend, Addends, Incremented};
pub use attempt::{Blocked, Missed, retry_blocking};
pub use clearway_buffer::SecondLevelConfig;
pub use config::NodeConfig;
pub use cursor::Cursor;
pub use error::{MAX_KEY, OpenError, OpenErrorKind, StorageError};
pub use log_read::LogRead;
pub use node::{Node, RecoveryReport};
pub use recovery::OPENING_FRAME_WAITS;
pub use scan::Visit;
pub use spill::{SpillBlock, SpillFile, SpillRead, SpillResults, SpillWrite};
pub use store::{Store, rowid_key};
pub use trees::{
    Compute, EachImage, EachUndone, Inserted, Prior, Replaced, Trees, TxnMode, UndoLog,
};
pub use txn::TxnLog;
pub use wal::SpaceWaits;
