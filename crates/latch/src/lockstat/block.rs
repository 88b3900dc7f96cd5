//! A thread's own counters.
//!
//! Invariants
//! 1. `MINE` of a thread names a block from the thread's first request until its `Membership` is
//!    dropped, which happens before the block is.
//! 2. A row's class and caller are written once. The caller is written last, with Release: a thread
//!    that sees the caller also sees the class.

use super::histogram::{BUCKETS, Histogram, SCALE};
use super::registry::{self, Totals};
use super::{CLASSES, Caller, ROWS};
use std::cell::Cell;
use std::panic::Location;
use std::ptr::{self, NonNull};
// Plain std, also under a model checker: threads do not communicate through it.
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

thread_local! {
    /// This thread's block. Without a destructor, so that access costs one instruction.
    pub(super) static MINE: Cell<Option<NonNull<Block>>> = const { Cell::new(None) };
    static MEMBERSHIP: Membership = Membership::begin();
}

/// Counters of one thread: about 70 KiB, of which a thread that never waits touches 1 KiB.
pub(super) struct Block {
    requests: [AtomicU64; CLASSES],
    rows: [Row; ROWS],
    /// Waits without a row.
    others: Waits,
}

struct Row {
    /// Null: the row is free.
    caller: AtomicPtr<Location<'static>>,
    class: AtomicU32,
    waits: Waits,
}

struct Waits {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

/// Adds to a counter that only this thread writes.
#[inline]
fn add(counter: &AtomicU64, by: u64) {
    // Relaxed: each counter is independent. Load and store suffice: there is one writer (invariant
    // 1 of the module above).
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

impl Waits {
    fn add(&self, ns: u64) {
        add(&self.buckets[SCALE.bucket(ns)], 1);
        add(&self.sum_ns, ns);
    }

    fn read(&self) -> Histogram {
        // Relaxed: see `add`. A wait that is being counted may be in one counter and not yet in the
        // other.
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Histogram {
            buckets: std::array::from_fn(|at| load(&self.buckets[at])),
            sum_ns: load(&self.sum_ns),
        }
    }
}

impl Block {
    fn new() -> Arc<Self> {
        // SAFETY: a block consists of atomic integers and pointers, for which all bits zero is a
        // valid value: 0 and null.
        unsafe { Arc::<Self>::new_zeroed().assume_init() }
    }

    /// Counts a request. Only this block's thread calls it.
    ///
    /// # Panics
    /// If `slot` does not belong to a counted class.
    #[inline]
    pub fn request(&self, slot: u32) {
        add(&self.requests[slot as usize], 1);
    }

    /// Counts a wait. Only this block's thread calls it.
    pub fn waited(&self, slot: u32, caller: &'static Location<'static>, ns: u64) {
        self.row(slot, caller).map_or(&self.others, |row| &row.waits).add(ns);
    }

    /// Returns the row of class and caller, old or new; `None` if all are taken.
    fn row(&self, slot: u32, caller: &'static Location<'static>) -> Option<&Row> {
        // Locations are some words apart; the multiplication spreads them over the upper bits.
        let hash = (ptr::from_ref(caller).addr() as u64 ^ u64::from(slot))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            >> 32;
        let from = hash as usize % ROWS;
        let row = self.rows[from..].iter().chain(&self.rows[..from]).find(|row| {
            // Relaxed, both: written by this thread.
            let taken_by = row.caller.load(Ordering::Relaxed).cast_const();
            taken_by.is_null()
                || (ptr::eq(taken_by, caller) && row.class.load(Ordering::Relaxed) == slot)
        })?;
        if row.caller.load(Ordering::Relaxed).is_null() {
            // Relaxed: published by the Release below, which pairs with the Acquire in `add_to`.
            row.class.store(slot, Ordering::Relaxed);
            row.caller.store(ptr::from_ref(caller).cast_mut(), Ordering::Release);
        }
        Some(row)
    }

    /// Adds the counts of this block to `totals`. Any thread may call it.
    pub fn add_to(&self, totals: &mut Totals) {
        for (slot, requests) in self.requests.iter().enumerate() {
            totals.requests[slot] += requests.load(Ordering::Relaxed); // Relaxed: see `add`.
        }
        for row in &self.rows {
            // Acquire: pairs with the Release in `row`, and makes the class visible.
            let caller = row.caller.load(Ordering::Acquire);
            // SAFETY: null, or made from a `&'static Location`.
            if let Some(caller) = unsafe { caller.as_ref() } {
                totals.merge(
                    row.class.load(Ordering::Relaxed),
                    Some(Caller::from(caller)),
                    &row.waits.read(),
                );
            }
        }
        totals.others.merge(&self.others.read());
    }
}

/// Counts in this thread's block or, if the thread is exiting and no longer has one, in the totals
/// of finished threads.
pub(super) fn with(count: impl FnOnce(&Block), late: impl FnOnce(&mut Totals)) {
    if MEMBERSHIP.try_with(|membership| count(&membership.0)).is_err() {
        registry::late(late);
    }
}

/// A thread's membership in the registry.
struct Membership(Arc<Block>);

impl Membership {
    fn begin() -> Self {
        let block = Block::new();
        registry::begin(block.clone());
        MINE.set(Some(NonNull::from(&*block)));
        Self(block)
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        // `MINE` has no destructor and exists as long as its thread.
        MINE.set(None);
        registry::end(&self.0);
    }
}
