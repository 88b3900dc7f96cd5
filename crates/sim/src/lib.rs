//! Seeded simulation of the whole engine.
//!
//! A seed draws a [`world`]: the engine's settings, its threads and how unevenly they run, and the
//! sessions' work. The real engine runs in it under shuttle's deterministic threads and a virtual
//! clock, on an in-memory disk that stops at any operation. A simple [`model`] judges what the
//! sessions saw and what recovery leaves. docs/simulation.md lists what is covered and what is not.
//!
//! Only the judge and the generator are built without `--cfg shuttle`: `cargo xtask sim` builds and
//! runs the rest.

#![forbid(unsafe_code)]

pub mod chronicle;
pub mod generate;
pub mod history;
pub mod model;
pub mod rng;
pub mod sql;
pub mod trace;
pub mod views;
pub mod world;

#[cfg(shuttle)]
pub mod answers;
#[cfg(shuttle)]
pub mod campaign;
#[cfg(shuttle)]
pub mod disk;
#[cfg(shuttle)]
pub mod execution;
#[cfg(shuttle)]
pub mod life;
#[cfg(shuttle)]
pub mod panics;
#[cfg(shuttle)]
pub mod pool;
#[cfg(shuttle)]
pub mod schedule;
#[cfg(shuttle)]
pub mod session;
#[cfg(shuttle)]
pub mod worker;
