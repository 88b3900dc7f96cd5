//! The interface of every latch, and the container of the value that a latch protects.
//!
//! Latches do not handle panics. A guard that is dropped while its thread unwinds releases the
//! latch like any other, and the next holder finds the value as it was left. A latch protects a
//! structure briefly, and code that may panic halfway through a change must restore it first.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use clearway_sync::cell::UnsafeCell;

/// Mutual exclusion in at most a cache line, without a place for the value.
///
/// # Safety
/// Between a `lock`, or a `try_lock` that returned true, and its matching `unlock`, no other such
/// call may return (or return true). Everything done before the `unlock` happens before everything
/// done after the next acquisition.
pub unsafe trait RawLatch: Send + Sync {
    /// The name in lockstat, the lab and the logs.
    const NAME: &'static str;

    /// A free latch, for statics.
    #[cfg(not(any(loom, shuttle)))]
    const NEW: Self;

    /// Creates a free latch.
    fn new() -> Self
    where
        Self: Sized;

    /// Acquires the latch; waits as long as it takes.
    fn lock(&self);

    /// Acquires the latch if that is possible at once. May fail although the latch is free (another
    /// thread was quicker, a transaction aborted), but not forever while no other thread wants it.
    fn try_lock(&self) -> bool;

    /// Releases the latch.
    ///
    /// # Safety
    /// The calling thread has acquired the latch and has not released it since.
    unsafe fn unlock(&self);
}

/// A value behind a latch: like [`std::sync::Mutex`], without poisoning, and with the latch as a
/// parameter.
pub struct Latched<T, L: RawLatch> {
    latch: L,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a guard, and only one guard exists at a time (the
// contract of `RawLatch`). Sharing the container passes the value from thread to thread, as `Send`
// allows.
unsafe impl<T: Send, L: RawLatch> Sync for Latched<T, L> {}
// SAFETY: it owns the value, and latches may change threads.
unsafe impl<T: Send, L: RawLatch> Send for Latched<T, L> {}

impl<T, L: RawLatch> Latched<T, L> {
    /// Creates a free latch around the value.
    #[cfg(not(any(loom, shuttle)))]
    pub const fn new(value: T) -> Self {
        Self { latch: L::NEW, value: UnsafeCell::new(value) }
    }

    /// Creates a free latch around the value.
    #[cfg(any(loom, shuttle))]
    pub fn new(value: T) -> Self {
        Self { latch: L::new(), value: UnsafeCell::new(value) }
    }

    /// Acquires the latch; waits as long as it takes.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T, L> {
        self.latch.lock();
        Guard { of: self, here: PhantomData }
    }

    /// Acquires the latch by `lock`, and returns what that returns.
    ///
    /// # Safety
    /// When `lock` returns, it has acquired the latch.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) unsafe fn lock_by<R>(&self, lock: impl FnOnce(&L) -> R) -> (Guard<'_, T, L>, R) {
        let result = lock(&self.latch);
        (Guard { of: self, here: PhantomData }, result)
    }

    /// Acquires the latch if that is possible at once.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T, L>> {
        self.latch.try_lock().then(|| Guard { of: self, here: PhantomData })
    }

    /// Returns the value of a container that is not shared.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T, L: RawLatch> fmt::Debug for Latched<T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Latched<{}>", L::NAME)
    }
}

/// Access to the value; releases the latch when dropped. It stays in its thread, because some
/// latches must be released by the thread that acquired them.
#[must_use = "the latch is released at once if the guard is not kept"]
pub struct Guard<'a, T, L: RawLatch> {
    of: &'a Latched<T, L>,
    here: PhantomData<*mut ()>,
}

impl<T, L: RawLatch> Deref for Guard<'_, T, L> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard's thread holds the latch, so no other thread has a reference, and this
        // one ends before the guard.
        self.of.value.with_mut(|value| unsafe { &*value })
    }
}

impl<T, L: RawLatch> DerefMut for Guard<'_, T, L> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; `&mut self` keeps this guard's own references apart.
        self.of.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T, L: RawLatch> Drop for Guard<'_, T, L> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard was made by the acquisition that this ends, in this thread (it is not
        // `Send`).
        unsafe { self.of.latch.unlock() }
    }
}
