//! B+trees, the write-ahead log, checkpoints and recovery.

#![forbid(unsafe_code)]

pub mod wal;
