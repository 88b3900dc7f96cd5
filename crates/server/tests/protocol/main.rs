//! The wire protocol, message by message, against a server in this process.

mod extended;
mod many;
mod raw;
mod session;
mod system;
