//! Fuzz targets: one for every reader of bytes that come from outside, be it a disk, a client, an
//! operator or a user.
//!
//! A target is a function of some bytes that panics if it finds a mistake: the reader panicked, or
//! a property does not hold. `corpus/<target>/` holds inputs worth keeping: seeds that the program
//! `seeds` makes, what the fuzzer found to reach new code, and one `regression-...` for each
//! mistake that was found. Ordinary tests replay all of it, with a few cheap mutations;
//! `cargo xtask fuzz` runs the coverage-guided fuzzer (libFuzzer) from there.

#![forbid(unsafe_code)]

pub mod corpus;
pub mod input;
pub mod mutate;
pub mod seal;
pub mod seeds;
pub mod targets;

pub use targets::{TARGETS, Target};
