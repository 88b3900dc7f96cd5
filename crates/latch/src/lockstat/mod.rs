//! Lockstat: who asks for which latch or lock, how often, and how long it waits. Always on.
//!
//! Each kind of latch has a [`Class`], a static with a name. A thread counts in a block of its own,
//! so that an acquisition that need not wait costs a load, an addition and two branches, and writes
//! to no memory that another thread writes to. Who has to wait adds to a row of the same block: the
//! class, the caller, a histogram of times. [`contention`] adds the blocks up, of threads that live
//! and of those gone.
//!
//! What is counted
//! - a request: each call that may acquire, whether it had to wait or not;
//! - a contended request: one that found the latch taken and waited. An attempt that gives up
//!   instead is a request only;
//! - the wait: from there to the acquisition, by the clock. Waiting for a condition, with the latch
//!   let go, is no contention of the latch.
//!
//! Invariants
//! 1. A block's counters are written by its thread only (so a load and a store do, no
//!    read-modify-write), and never go down.
//! 2. A block is in the registry from its thread's first request to the thread's end, when its
//!    counts move to those of the gone, under the registry's mutex: at any moment a count is in one
//!    place.
//! 3. [`reset`] writes to no block: it remembers what was counted until then, and [`contention`]
//!    subtracts it.
//! 4. Everything is bounded: [`CLASSES`], [`ROWS`] for a thread, [`SUMMED_ROWS`] for their sum.
//!    What does not fit is counted in the rows [`OTHER_CLASSES`] and [`OTHER_CALLERS`].
//!
//! Locking: the registry's mutex, by a thread that begins or ends to count, a class's first
//! request, and whoever reads. Nothing is taken under it, and a request or a wait that has its
//! place takes none.
//!
//! Under a model checker nothing here is seen by it: no count decides what a thread does, all
//! accesses are the standard library's, and nothing waits. The wait of a latch is not measured
//! there, since a failed attempt first would be one more step to explore.
//!
//! Source: the Linux kernel's lockstat (Documentation/locking/lockstat.rst), for what is counted.

mod block;
mod histogram;
mod registry;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub use histogram::{BUCKETS, Histogram};
pub use registry::{contention, counting, reset, set_counting};

use block::MINE;
use clearway_sync::time::Instant;
use std::fmt;
use std::panic::Location;
// Plain std, also under a model checker: nothing is communicated by it.
use std::sync::atomic::{AtomicU32, Ordering};

/// How many classes have counters of their own, less one; those that come later share the last,
/// [`OTHER_CLASSES`].
pub const CLASSES: usize = 128;
/// How many pairs of class and caller a thread tells apart, less one; what comes later is counted
/// in [`OTHER_CALLERS`].
pub const ROWS: usize = 128;
/// How many pairs of class and caller the sum over all threads tells apart.
pub const SUMMED_ROWS: usize = 4096;
/// The row of classes for which there was no place.
pub const OTHER_CLASSES: &str = "(other classes)";
/// The row of waits for which there was no place, whatever their class.
pub const OTHER_CALLERS: &str = "(other callers)";

/// Not asked for yet.
const NEW: u32 = u32::MAX;
/// Not counted.
const OFF: u32 = u32::MAX - 1;

/// A kind of latch or lock, counted together:
/// `static FREE_LIST: Class = Class::new("buffer.free_list");`
///
/// | `slot`       | state |
/// |--------------|-------|
/// | `NEW`        | nobody has asked for it yet |
/// | `OFF`        | it is known, and counting is off |
/// | 0..`CLASSES` | it is known, and this is the place of its counters in every block |
#[derive(Debug)]
pub struct Class {
    name: &'static str,
    slot: AtomicU32,
}

impl Class {
    /// A class of this name. Classes of the same name are counted as one.
    pub const fn new(name: &'static str) -> Self {
        Self { name, slot: AtomicU32::new(NEW) }
    }

    /// The name, as `crate.thing`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Counts a request.
    #[inline]
    pub fn request(&'static self) {
        // Relaxed, here and wherever a slot is touched: a number that says all by itself.
        let slot = self.slot.load(Ordering::Relaxed);
        if (slot as usize) < CLASSES
            && let Some(mine) = MINE.get()
        {
            // SAFETY: a block that `MINE` names is alive until its thread, which is this one, ends
            // it (see `block`).
            unsafe { mine.as_ref() }.request(slot);
        } else if slot != OFF {
            self.request_slowly();
        }
    }

    /// Counts a contended request that has waited `ns` nanoseconds, and who waited. The request
    /// itself has been counted.
    pub fn waited(&'static self, caller: &'static Location<'static>, ns: u64) {
        match self.place() {
            OFF => {}
            slot => block::with(
                |block| block.waited(slot, caller, ns),
                |gone| gone.waited(slot, caller, ns),
            ),
        }
    }

    /// Does what waits, and counts how long it took. The request itself has been counted.
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

    /// A contended request begins to wait, perhaps without a thread that waits with it. The request
    /// itself has been counted.
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

/// A wait that goes on: counted when it is told that it has ended, not if it is dropped.
#[derive(Debug)]
#[must_use = "a wait is counted when it ends"]
pub struct Wait {
    class: &'static Class,
    caller: &'static Location<'static>,
    /// None: counting was off.
    since: Option<Instant>,
}

impl Wait {
    /// It is over: granted, or given up.
    pub fn end(self) {
        if let Some(since) = self.since {
            self.class
                .waited(self.caller, u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
    }
}

/// A place in the source that has waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Caller {
    /// The file, as the compiler was told it.
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

/// What a class has counted, and one caller that has waited. A class that nobody has waited for has
/// one row, without a caller.
#[derive(Clone, Debug)]
pub struct Contention {
    /// The class, [`OTHER_CLASSES`] or [`OTHER_CALLERS`].
    pub name: &'static str,
    /// Who waited.
    pub caller: Option<Caller>,
    /// Requests of the whole class, whoever made them.
    pub requests: u64,
    /// Requests of this caller that had to wait.
    pub contended: u64,
    /// How long they waited.
    pub waits: Histogram,
}
