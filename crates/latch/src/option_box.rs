//! A place for at most one boxed value, which threads exchange in one step.
//!
//! | word       | state |
//! |------------|-------|
//! | null       | empty |
//! | an address | the place owns the box of that address |
//!
//! # Invariants
//! 1. A value is owned by the place or by the thread that took it out, never by both.
//! 2. A thread that takes a value out sees everything its last owner did before putting it there.
//!
//! # Locking
//! None. [`AtomicOptionBox::swap`] is one atomic exchange and never waits.
//!
//! # Source
//! `AtomicPtr` as an owner; the crate `atomicbox` has the same type.

use clearway_sync::atomic::{AtomicPtr, Ordering};
use std::fmt;
use std::marker::PhantomData;
use std::ptr;

/// At most one boxed value, exchanged atomically.
pub struct AtomicOptionBox<T> {
    value: AtomicPtr<T>,
    owns: PhantomData<Option<Box<T>>>,
}

// SAFETY: a shared place only moves whole boxes in and out (invariant 1). It never gives out a
// reference to a value that it owns, so `T: Send` is enough.
unsafe impl<T: Send> Sync for AtomicOptionBox<T> {}
// SAFETY: as above: moving the place moves the value.
unsafe impl<T: Send> Send for AtomicOptionBox<T> {}

impl<T> Default for AtomicOptionBox<T> {
    fn default() -> Self {
        Self::empty()
    }
}

impl<T> AtomicOptionBox<T> {
    /// Creates an empty place.
    pub fn empty() -> Self {
        Self { value: AtomicPtr::new(ptr::null_mut()), owns: PhantomData }
    }

    /// Returns true if the place is empty. A hint: another thread may change it at any time, and
    /// the call synchronizes with no other thread.
    #[inline]
    pub fn is_empty(&self) -> bool {
        // Relaxed: a hint.
        self.value.load(Ordering::Relaxed).is_null()
    }

    /// Puts `value` into the place and returns the previous value.
    pub fn swap(&self, value: Option<Box<T>>) -> Option<Box<T>> {
        let new = value.map_or(ptr::null_mut(), Box::into_raw);
        // AcqRel: the Release half pairs with the Acquire half of the exchange that takes `value`
        // out (invariant 2).
        let old = self.value.swap(new, Ordering::AcqRel);
        // SAFETY: an address in the place comes from `Box::into_raw` above, and the exchange that
        // removed it gave it to this thread alone.
        (!old.is_null()).then(|| unsafe { Box::from_raw(old) })
    }

    /// Takes the value out.
    pub fn take(&self) -> Option<Box<T>> {
        self.swap(None)
    }
}

impl<T> Drop for AtomicOptionBox<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<T> fmt::Debug for AtomicOptionBox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() {
            "AtomicOptionBox(empty)"
        } else {
            "AtomicOptionBox(a value)"
        })
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_value_is_moved_and_dropped_once() {
        let value = Arc::new(7);
        let place = AtomicOptionBox::empty();
        assert!(place.is_empty() && place.take().is_none());
        assert!(place.swap(Some(Box::new(value.clone()))).is_none());
        assert!(!place.is_empty());
        assert_eq!(place.swap(Some(Box::new(value.clone()))).as_deref(), Some(&value));
        assert_eq!(
            Arc::strong_count(&value),
            2,
            "what was taken out is gone, the new one is there"
        );
        drop(place);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    /// Invariant 1, under threads.
    #[test]
    fn threads_exchange_values_without_losing_one() {
        const VALUES: u64 = if cfg!(miri) { 20 } else { 2_000 };
        let place = AtomicOptionBox::<u64>::default();
        let exchange = |from: u64| {
            let values = from * VALUES..(from + 1) * VALUES;
            values
                .filter_map(|value| place.swap(Some(Box::new(value))))
                .map(|value| *value)
                .collect::<Vec<_>>()
        };
        let exchange = &exchange;
        let mut seen: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|from| scope.spawn(move || exchange(from))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        seen.extend(place.take().map(|value| *value));
        seen.sort_unstable();
        assert_eq!(seen, (0..3 * VALUES).collect::<Vec<_>>());
    }
}
