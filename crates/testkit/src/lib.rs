//! What the tests of several crates share: a disk in memory that loses, refuses and damages data
//! ([`MemDisk`]), a disk that lets a test see or change each file operation ([`Intercepted`]), a
//! clock that a test sets ([`ManualClock`]), seeded random numbers ([`Rng`]), and runs of many
//! seeds of a simulation ([`Campaign`]).
//!
//! The product uses none of it. Three things are elsewhere, because the layers require it:
//! - The hooks of planted bugs are in `sync::canary`: product crates call them.
//! - `env::SeededEntropy` is beside the trait that it implements. The simulated network of
//!   `fabric` and the load generator of `remote` draw from it, and so do the tests of `env`, which
//!   this crate depends on.
//! - A fake of a crate's own interface is with the tests of that crate, for example the log of the
//!   pool's tests: this crate knows `env` only. Trees in memory are a crate, `memtrees`, because
//!   the simulated cluster uses them, too.

#![forbid(unsafe_code)]

mod campaign;
mod clock;
mod intercept;
mod mem_disk;
mod rng;

pub use campaign::{Campaign, CampaignSum, kept_seeds};
pub use clock::ManualClock;
pub use intercept::{Intercept, Intercepted, Opened};
pub use mem_disk::{
    Duty, FOR_EVER, Fault, FaultPlan, FaultZone, Hook, InjectedFault, MemDisk, OpKind, Operation,
    Role, When,
};
pub use rng::Rng;
