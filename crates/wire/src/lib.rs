//! PostgreSQL's frontend/backend protocol 3.0: messages as bytes, and back.
//!
//! Decoding borrows from the receive buffer and never panics, whatever a client sends; encoding
//! appends to one send buffer and allocates nothing a row. Values travel in text (as
//! [`clearway_ir::value`] prints them) or in PostgreSQL's binary forms.
//!
//! Must not know: sockets, sessions, statements, what a message means for a transaction.

#![forbid(unsafe_code)]

pub mod backend;
mod binary;
pub mod copy;
pub mod copy_read;
pub mod frontend;
mod reader;
pub mod row;
pub mod startup;

pub use frontend::{Frame, Frontend, frame};
pub use row::{ColumnFormat, Format};
pub use startup::Startup;
