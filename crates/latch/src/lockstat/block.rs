//! A thread's own counters.
//!
//! Invariants
//! 1. `MINE` of a thread names a block from the thread's first request until its `Membership` is
//!    dropped, which is before the block is.
//! 2. A row's class and caller are written once; the caller last, with Release: who sees the caller
//!    sees the class.

use super::histogram::{BUCKETS, Histogram, bucket};
use super::registry::{self, Totals};
use super::{CLASSES, Caller, ROWS};
use std::cell::Cell;
use std::panic::Location;
use std::ptr::{self, NonNull};
// Plain std, also under a model checker: nothing is communicated by it.
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

thread_local! {
    /// This thread's block. Without a destructor, so that to reach it costs one instruction.
    pub(super) static MINE: Cell<Option<NonNull<Block>>> = const { Cell::new(None) };
    static MEMBERSHIP: Membership = Membership::begin();
}

/// Counters of one thread; some 70 KiB of which a thread that never waits touches one.
pub(super) struct Block {
    requests: [AtomicU64; CLASSES],
    rows: [Row; ROWS],
    /// Waits for which there was no row.
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

/// Adds to a counter that only this thread writes to.
#[inline]
fn add(counter: &AtomicU64, by: u64) {
    // Relaxed: each counter says all by itself. Load and store: there is one writer (invariant 1 of
    // the module above).
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

impl Waits {
    fn add(&self, ns: u64) {
        add(&self.buckets[bucket(ns)], 1);
        add(&self.sum_ns, ns);
    }

    fn read(&self) -> Histogram {
        // Relaxed: see `add`. A wait that is being counted may be in the one and not yet in the
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
        // SAFETY: a block is atomic integers and pointers, for which all bits zero is a value: 0
        // and null.
        unsafe { Arc::<Self>::new_zeroed().assume_init() }
    }

    /// By this block's thread.
    ///
    /// # Panics
    /// If `slot` is none of a class that is counted.
    #[inline]
    pub fn request(&self, slot: u32) {
        add(&self.requests[slot as usize], 1);
    }

    /// By this block's thread.
    pub fn waited(&self, slot: u32, caller: &'static Location<'static>, ns: u64) {
        self.row(slot, caller).map_or(&self.others, |row| &row.waits).add(ns);
    }

    /// The row of class and caller, old or new; none if all are taken.
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

    /// Adds what is counted here; by any thread.
    pub fn add_to(&self, totals: &mut Totals) {
        for (slot, requests) in self.requests.iter().enumerate() {
            totals.requests[slot] += requests.load(Ordering::Relaxed); // Relaxed: see `add`.
        }
        for row in &self.rows {
            // Acquire: pairs with the Release in `row`: the class.
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

/// Has this thread's block counted in, or, if the thread is at its end and has none any more, the
/// totals of the gone.
pub(super) fn with(count: impl FnOnce(&Block), late: impl FnOnce(&mut Totals)) {
    if MEMBERSHIP.try_with(|membership| count(&membership.0)).is_err() {
        registry::late(late);
    }
}

/// A thread's place in the registry.
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
        // `MINE` has no destructor and is there as long as its thread.
        MINE.set(None);
        registry::end(&self.0);
    }
}
