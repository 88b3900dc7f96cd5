//! The buffer pool: frames, page table, pins, replacement policies, write-back.
//!
//! [`Pool::read`] and [`Pool::write`] find a resident page without a lock and never block on I/O: a page that is not
//! resident is a [`Want`], which [`Pool::fetch`] turns into a [`Keep`] asynchronously. The pool keeps the write-ahead
//! rule through [`WalBarrier`] without knowing the log, and reaches the disk through [`PageIo`].
//!
//! It can be used alone: the crate's README says what an engine owes it, and `examples/counters.rs` is one.

mod cooler;
mod copy;
mod error;
mod fair;
mod fetch;
mod files;
mod frame;
mod free;
mod guard;
mod io;
mod optimistic;
mod page;
mod policy;
mod pool;
#[cfg(all(loom, test))]
mod pool_loom_tests;
mod replacement;
mod scan_ring;
mod second_level;
mod stats;
mod table;
mod unsynced;
mod write_back;

pub use error::{Damage, PageError};
pub use fetch::FetchDone;
pub use files::{Files, data_file_name};
pub use free::FrameWaits;
pub use guard::{Keep, PageMut, PageRef, Reservation};
pub use io::{PageIo, Place, WalBarrier};
pub use optimistic::Glimpse;
pub use page::{FORMAT_VERSION, HEADER, PAGE_SIZE, kind, lsn, seal, set_kind, set_lsn, verify};
pub use policy::{
    Arbiter, ArbiterParameters, ArcPolicy, Car, Clock, ClockPro, Directory, Footprint, Lirs, ListId, Lists, Lru, Mq,
    Policy, PolicyKind, Probe, Queues, S3Fifo, Seq, SeqParameters, Sieve, Sketch, TinyLfuParameters, TwoQ, Uses,
    WTinyLfu,
};
pub use pool::{Pool, PoolConfig, Want};
pub use replacement::{
    Batched, ClockSweep, Combining, Locked, Maker, Marked, MarkedKind, Multilist, MultilistKind, Prefetched, QUEUE,
    Replacement, ReplacementKind, THRESHOLD, WrapperKind,
};
pub use second_level::{SECOND_LEVEL_FILE, SecondLevel, SecondLevelConfig, SecondLevelStats};
pub use stats::Stats;
pub use write_back::WRITE_BATCH;
