//! Latches and the baton: what protects a structure for a short time.
