//! Fuzz targets: one for every reader of untrusted bytes, from disks, clients, operators or users.
//!
//! A target is a function of a byte string. It panics if it finds a bug: the reader panics, or a
//! property does not hold. `corpus/<target>/` contains inputs: seeds that the program `seeds`
//! makes, inputs with which the fuzzer reached new code, and a `regression-...` for each bug that
//! was found. Ordinary tests replay all of them, with a few simple mutations. `cargo xtask fuzz`
//! runs the coverage-guided fuzzer (libFuzzer) from there.

#![forbid(unsafe_code)]

pub mod corpus;
pub mod input;
pub mod mutate;
pub mod seal;
pub mod seeds;
pub mod targets;

pub use targets::{TARGETS, Target};
