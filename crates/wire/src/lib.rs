//! PostgreSQL's frontend/backend protocol 3.0: encodes and decodes messages.
//!
//! Decoding borrows from the receive buffer and never panics, whatever a client sends. Encoding
//! appends to one send buffer and does not allocate per row. Values are encoded as text, as
//! [`clearway_ir::value`] prints them, or in PostgreSQL's binary formats.
//!
//! ```
//! use clearway_wire::{Frontend, backend, frame};
//!
//! let received = b"Q\0\0\0\x0dselect 1\0";
//! let message = frame(received, 1 << 20).unwrap().expect("the message is complete");
//! let body = &received[5..message.len];
//! assert!(matches!(Frontend::decode(message.tag, body), Ok(Frontend::Query("select 1"))));
//!
//! let mut reply = Vec::new();
//! backend::ready_for_query(&mut reply, b'I');
//! assert_eq!(reply, b"Z\0\0\0\x05I");
//! ```
//!
//! Must not know: sockets, sessions, statements, what a message means for a transaction.

#![forbid(unsafe_code)]

pub mod backend;
mod binary;
pub mod copy;
mod copy_lines;
pub mod copy_read;
pub mod frontend;
mod reader;
pub mod row;
pub mod startup;

pub use frontend::{Frame, Frontend, frame};
pub use row::{ColumnFormat, Format};
pub use startup::Startup;
