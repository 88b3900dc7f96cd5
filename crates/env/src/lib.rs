//! The world that the engine runs in: files, clock, entropy, I/O threads.
//!
//! Logic receives its world through the traits here, so that the same code runs on the operating system
//! ([`OsDisk`], [`OsClock`], [`OsEntropy`]) and in a test that replays a seed ([`MemDisk`], [`ManualClock`],
//! [`SeededEntropy`]). Every call on a disk may block: only I/O threads and start-up code make them.

#![forbid(unsafe_code)]

mod clock;
mod disk;
#[cfg(test)]
mod disk_tests;
mod entropy;
mod io_pool;
mod mem_disk;
mod os_disk;

pub use clock::{Clock, ManualClock, OsClock};
pub use disk::{Disk, DiskLock, File, Open};
pub use entropy::{Entropy, OsEntropy, SeededEntropy};
pub use io_pool::{IoPool, Job, QUEUE_LIMIT};
pub use mem_disk::MemDisk;
pub use os_disk::OsDisk;
