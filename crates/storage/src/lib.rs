//! B+trees, the write-ahead log, checkpoints and recovery.
