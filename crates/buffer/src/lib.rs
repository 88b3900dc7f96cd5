//! The buffer pool: frames, page table, pins, write-back.
//!
//! [`Pool::read`] and [`Pool::write`] find a resident page without a lock and never block on I/O.
//! If a page is not resident they return a [`MissingPage`], which [`Pool::fetch`] turns into a
//! [`Pin`] asynchronously. The pool keeps the write-ahead rule through [`WalBarrier`] without
//! knowing the log, and accesses the disk through [`PageIo`]. The crate `clearway-replacement`
//! chooses the pages to evict.
//!
//! The crate can be used alone: its README lists what the engine must provide, and
//! `examples/counters.rs` is such an engine.

mod access;
mod batch;
mod cooler;
mod copy;
mod core;
mod counters;
mod error;
mod fifo_mutex;
mod files;
mod frame;
mod free;
mod guard;
mod health;
mod io;
mod loader;
mod optimistic;
mod page;
mod pool;
#[cfg(all(loom, test))]
mod pool_loom_tests;
mod scan_ring;
mod second_level;
mod stats;
mod table;
mod unsynced;
mod write_back;

pub use error::{Damage, PageError};
pub use files::{Files, data_file_name};
pub use free::FrameWaits;
pub use guard::{PageMut, PageRef};
pub use io::{FileSpace, NoLog, PageIo, Place, WRITE_BATCH, WalBarrier};
pub use loader::{FetchDone, MissingPage, Pin, Reservation};
pub use optimistic::OptimisticPage;
pub use page::{FORMAT_VERSION, HEADER, PAGE_SIZE, kind, lsn, seal, set_kind, set_lsn, verify};
pub use pool::{Pool, PoolConfig};
pub use second_level::{SECOND_LEVEL_FILE, SecondLevel, SecondLevelConfig, SecondLevelStats};
pub use stats::Stats;
