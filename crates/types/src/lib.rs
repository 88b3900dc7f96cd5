//! Identifiers, SQL values and errors, and their encodings: the vocabulary of all other crates.
//!
//! Nothing here knows a page, a log record or a wire message. The encodings that reach the disk
//! ([`row`], [`key`], [`hash`]) are specified in `docs/format.md`; changing one changes the format
//! version.

#![forbid(unsafe_code)]

pub mod datum;
pub mod error;
pub mod hash;
pub mod id;
pub mod key;
pub mod row;
pub mod sqltype;

pub use datum::{Datum, DatumRef};
pub use error::{SqlError, SqlResult, SqlState};
pub use id::{FrameId, Lsn, PageId, PartitionId, TableId, TreeId, TxnId};
pub use row::{RowBatch, RowBuilder, RowView};
pub use sqltype::SqlType;
