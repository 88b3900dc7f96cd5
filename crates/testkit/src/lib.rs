//! What the tests of several crates share: a disk in memory that loses, refuses and damages data
//! ([`MemDisk`]), a disk that lets a test see or change each file operation ([`Intercepted`]), a
//! clock that a test sets ([`ManualClock`]), and seeded random numbers ([`Rng`]).
//!
//! The product uses none of it. The hooks of planted bugs are not here but in `sync::canary`,
//! because product crates call them.

#![forbid(unsafe_code)]

mod clock;
mod intercept;
mod mem_disk;
mod rng;

pub use clock::ManualClock;
pub use intercept::{Intercept, Intercepted, Opened};
pub use mem_disk::{
    Duty, FOR_EVER, Fault, FaultPlan, FaultZone, Hook, InjectedFault, MemDisk, OpKind, Operation,
    Role, When,
};
pub use rng::Rng;
