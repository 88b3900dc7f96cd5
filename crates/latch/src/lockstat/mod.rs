//! Lockstat: counts requests and waits for each latch or lock, by class and caller. Always on.
//!
//! Each kind of latch has a [`Class`], a static with a name. A thread counts in its own block, so
//! that an uncontended acquisition costs a load, an addition and two branches, and writes to no
//! memory that another thread writes to. A thread that has to wait adds to a row of the same block:
//! the class, the caller, a histogram of times. [`contention`] adds up the blocks of live threads
//! and the counts of finished ones.
//!
//! What is counted
//! - a request: each call that may acquire, whether or not it had to wait;
//! - a contended request: one that found the latch taken and waited. An attempt that gives up
//!   instead is only a request;
//! - the wait: from there to the acquisition, in wall-clock time. Waiting for a condition, with the
//!   latch released, is not contention of the latch.
//!
//! Invariants
//! 1. Only its thread writes a block's counters (so a load and a store suffice, without a
//!    read-modify-write), and they never decrease.
//! 2. A block is in the registry from its thread's first request to the thread's end. Then its
//!    counts move to those of finished threads, under the registry's mutex: at any moment a count
//!    is in one place.
//! 3. [`reset`] writes to no block: it saves the counts so far, and [`contention`] subtracts them.
//! 4. Everything is bounded: [`CLASSES`], [`ROWS`] per thread, [`SUMMED_ROWS`] for their sum. What
//!    does not fit is counted in the rows [`OTHER_CLASSES`] and [`OTHER_CALLERS`].
//!
//! Locking: the registry's mutex. It is acquired by a thread that begins or ends to count, by a
//! class's first request, and by readers. Its holder acquires nothing else. A request or a wait
//! that already has its place does not acquire it.
//!
//! Model checkers do not see this module: no count affects what a thread does, all accesses are the
//! standard library's, and nothing waits. There the wait of a latch is not measured, since an extra
//! failed attempt would be one more step to explore.
//!
//! Source: the Linux kernel's lockstat (Documentation/locking/lockstat.rst), for what is counted.

mod block;
mod histogram;
mod registry;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub use histogram::{BUCKETS, Doublings, Histogram};
pub use registry::{contention, counting, reset, set_counting};

use block::MINE;
use clearway_sync::time::Instant;
use std::fmt;
use std::panic::Location;
// Plain std, also under a model checker: threads do not communicate through it.
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of classes with counters of their own, plus one. Later classes share the last one,
/// [`OTHER_CLASSES`].
pub const CLASSES: usize = 128;
/// The number of pairs of class and caller that a thread distinguishes. Later pairs are counted in
/// [`OTHER_CALLERS`].
pub const ROWS: usize = 128;
/// The number of pairs of class and caller that the sum over all threads distinguishes.
pub const SUMMED_ROWS: usize = 4096;
/// The row of classes for which there was no place.
pub const OTHER_CLASSES: &str = "(other classes)";
/// The row of waits for which there was no place, whatever their class.
pub const OTHER_CALLERS: &str = "(other callers)";

/// Not requested yet.
const NEW: u32 = u32::MAX;
/// Not counted.
const OFF: u32 = u32::MAX - 1;

/// A kind of latch or lock, counted together: `static FREE_LIST: Class =
/// Class::new("buffer.free_list");`
///
/// | `slot`       | state |
/// |--------------|-------|
/// | `NEW`        | not requested yet |
/// | `OFF`        | registered, and counting is off |
/// | 0..`CLASSES` | registered; the position of its counters in every block |
#[derive(Debug)]
pub struct Class {
    name: &'static str,
    slot: AtomicU32,
}

impl Class {
    /// Creates a class of this name. Classes of the same name are counted as one.
    pub const fn new(name: &'static str) -> Self {
        Self { name, slot: AtomicU32::new(NEW) }
    }

    /// Returns the name, as `crate.thing`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Counts a request.
    #[inline]
    pub fn request(&'static self) {
        // Relaxed, here and at all other accesses of a slot: an independent number.
        let slot = self.slot.load(Ordering::Relaxed);
        if (slot as usize) < CLASSES
            && let Some(mine) = MINE.get()
        {
            // SAFETY: a block that `MINE` names is alive until its thread, which is this one, drops
            // it (see `block`).
            unsafe { mine.as_ref() }.request(slot);
        } else if slot != OFF {
            self.request_slowly();
        }
    }

    /// Counts a contended request of `caller` that has waited `ns` nanoseconds. The request itself
    /// has already been counted.
    pub fn waited(&'static self, caller: &'static Location<'static>, ns: u64) {
        match self.place() {
            OFF => {}
            slot => block::with(
                |block| block.waited(slot, caller, ns),
                |gone| gone.waited(slot, caller, ns),
            ),
        }
    }

    /// Runs `wait`, and counts how long it took. The request itself has already been counted.
    pub fn timed<R>(
        &'static self,
        caller: &'static Location<'static>,
        wait: impl FnOnce() -> R,
    ) -> R {
        let waiting = self.wait(caller);
        let result = wait();
        waiting.end();
        result
    }

    /// Begins the wait of a contended request, perhaps without a thread that waits for it. The
    /// request itself has already been counted.
    pub fn wait(&'static self, caller: &'static Location<'static>) -> Wait {
        Wait { class: self, caller, since: (self.place() != OFF).then(Instant::now) }
    }

    #[cold]
    #[inline(never)]
    fn request_slowly(&'static self) {
        match self.place() {
            OFF => {}
            slot => block::with(|block| block.request(slot), |gone| gone.request(slot)),
        }
    }

    fn place(&'static self) -> u32 {
        match self.slot.load(Ordering::Relaxed) {
            NEW => registry::enter(self),
            slot => slot,
        }
    }
}

/// A wait in progress. It is counted when `end` is called, not if it is dropped.
#[derive(Debug)]
#[must_use = "a wait is counted when it ends"]
pub struct Wait {
    class: &'static Class,
    caller: &'static Location<'static>,
    /// `None`: counting was off.
    since: Option<Instant>,
}

impl Wait {
    /// Ends the wait: granted, or given up.
    pub fn end(self) {
        if self.is_counted() {
            self.end_at(Instant::now());
        }
    }

    /// Returns true if the wait will be counted.
    pub(crate) fn is_counted(&self) -> bool {
        self.since.is_some()
    }

    /// Ends a wait that was over at this time.
    pub fn end_at(self, at: Instant) {
        if let Some(since) = self.since {
            let ns = at.duration_since(since).as_nanos();
            self.class.waited(self.caller, u64::try_from(ns).unwrap_or(u64::MAX));
        }
    }
}

/// A place in the source that has waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Caller {
    /// The file, as passed to the compiler.
    pub file: &'static str,
    /// The line, from 1.
    pub line: u32,
}

impl From<&'static Location<'static>> for Caller {
    fn from(location: &'static Location<'static>) -> Self {
        Self { file: location.file(), line: location.line() }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// The counts of a class, and one caller that has waited. A class without waits has one row,
/// without a caller.
#[derive(Clone, Debug)]
pub struct Contention {
    /// The class, [`OTHER_CLASSES`] or [`OTHER_CALLERS`].
    pub name: &'static str,
    /// The caller that waited.
    pub caller: Option<Caller>,
    /// Requests of the whole class, of all callers.
    pub requests: u64,
    /// Requests of this caller that had to wait.
    pub contended: u64,
    /// How long they waited.
    pub waits: Histogram,
}
