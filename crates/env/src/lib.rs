//! The engine's environment: files, clocks, entropy, I/O threads.
//!
//! Logic receives its environment through the traits here. So the same code runs on the operating
//! system ([`OsDisk`], [`DirectDisk`], [`OsClock`], [`OsEntropy`]) and in a test that replays a
//! seed (`testkit::MemDisk`, `testkit::ManualClock`, [`SeededEntropy`]). Every call on a disk may
//! block, so only I/O threads and start-up code make them.

mod clock;
mod direct;
mod disk;
#[cfg(test)]
mod engine_tests;
mod entropy;
mod extents;
mod io_pool;
mod kernel;
mod memory;
mod os_disk;
mod registered;
mod ring;
mod shared_words;
pub mod split_mix;
#[cfg(test)]
mod test_files;

pub use clock::{Clock, OsClock};
pub use direct::DirectDisk;
pub use disk::{Disk, DiskLock, File, FileId, Open, is_full};
pub use entropy::{Entropy, OsEntropy, SeededEntropy};
pub use io_pool::{IoPool, Job, QUEUE_LIMIT, Read, ReadTarget, Registered, Write};
pub use memory::{ALIGN, Aligned, IoMemory};
pub use os_disk::OsDisk;
pub use shared_words::SharedWords;
