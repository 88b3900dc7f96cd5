//! Trees, log and recovery together, from outside, on a disk in memory.

mod audit;
mod common;
mod concurrent;
mod crash;
mod directory;
mod tree_model;
