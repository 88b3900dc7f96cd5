//! The wire protocol, message by message, against a server in this process.

mod deadlines;
mod extended;
mod hot_rows;
mod increments;
mod isolation;
mod locks;
mod log;
mod many;
mod matrix;
mod metrics;
mod plans;
mod portals;
mod raw;
mod retire;
mod session;
mod sessions;
mod streams;
mod system;
mod top;
mod unread;
mod whole;
