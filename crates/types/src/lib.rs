//! Identifiers, SQL values and errors, and their encodings: the vocabulary of all other crates.
//!
//! This crate knows nothing of pages, log records or wire messages. `docs/format.md` specifies the
//! encodings that are stored on disk ([`row`], [`key`], [`hash`]). A change of one of them changes
//! the format version.

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
