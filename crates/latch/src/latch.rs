//! The engine's latch around a value, with a name: a [`ParkLatch`](crate::ParkLatch) that lockstat
//! counts.
//!
//! A request is counted after the first attempt. The name is in the cache line of the latch's word.
//! Read before the attempt, it would take the line from the holder once more: first for reading,
//! then for the attempt.
//!
//! Under loom and shuttle it is their mutex. The latch has its own loom tests, and its users are
//! checked against its guarantees, not against its every step. There, requests are counted and
//! waits are not.

use crate::lockstat::Class;
use std::fmt;

#[cfg(not(any(loom, shuttle)))]
use crate::{Guard, Latched, ParkLatch};
#[cfg(not(any(loom, shuttle)))]
use std::panic::Location;

/// Access to a latch's value; releases the latch when dropped.
#[cfg(not(any(loom, shuttle)))]
pub type LatchGuard<'a, T> = Guard<'a, T, ParkLatch>;
/// Access to a latch's value; releases the latch when dropped.
#[cfg(any(loom, shuttle))]
pub type LatchGuard<'a, T> = clearway_sync::MutexGuard<'a, T>;

#[cfg(not(any(loom, shuttle)))]
type Inner<T> = Latched<T, ParkLatch>;
#[cfg(any(loom, shuttle))]
type Inner<T> = clearway_sync::Mutex<T>;

/// A value behind the engine's latch, which must be held briefly. There is no poisoning: code that
/// may panic halfway through a change must restore the value first.
pub struct Latch<T> {
    class: &'static Class,
    value: Inner<T>,
}

impl<T> Latch<T> {
    /// Creates a free latch of this class around the value.
    #[cfg(not(any(loom, shuttle)))]
    pub const fn new(class: &'static Class, value: T) -> Self {
        Self { class, value: Latched::new(value) }
    }

    /// Creates a free latch of this class around the value.
    #[cfg(any(loom, shuttle))]
    pub fn new(class: &'static Class, value: T) -> Self {
        Self { class, value: Inner::new(value) }
    }

    /// Acquires the latch; waits as long as it takes.
    #[cfg(not(any(loom, shuttle)))]
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> LatchGuard<'_, T> {
        match self.value.try_lock() {
            Some(guard) => {
                self.class.request();
                guard
            }
            None => self.lock_slowly(Location::caller()),
        }
    }

    #[cfg(not(any(loom, shuttle)))]
    #[cold]
    fn lock_slowly(&self, caller: &'static Location<'static>) -> LatchGuard<'_, T> {
        self.class.request();
        let wait = self.class.wait(caller);
        if !wait.is_counted() {
            return self.value.lock();
        }
        // SAFETY: `lock_timed` returns when it has acquired the latch.
        let (guard, end) = unsafe { self.value.lock_by(ParkLatch::lock_timed) };
        wait.end_at(end);
        guard
    }

    /// Acquires the latch; waits as long as it takes.
    #[cfg(any(loom, shuttle))]
    pub fn lock(&self) -> LatchGuard<'_, T> {
        self.class.request();
        self.value.lock().unwrap_or_else(clearway_sync::PoisonError::into_inner)
    }

    /// Acquires the latch if that is possible at once. A failure counts as a request that did not
    /// wait.
    #[inline]
    pub fn try_lock(&self) -> Option<LatchGuard<'_, T>> {
        let guard = self.value.try_lock();
        self.class.request();
        #[cfg(not(any(loom, shuttle)))]
        return guard;
        #[cfg(any(loom, shuttle))]
        return guard.ok();
    }

    /// Returns the value of a latch that is not shared.
    pub fn into_inner(self) -> T {
        #[cfg(not(any(loom, shuttle)))]
        return self.value.into_inner();
        #[cfg(any(loom, shuttle))]
        return self.value.into_inner().unwrap_or_else(clearway_sync::PoisonError::into_inner);
    }
}

impl<T> fmt::Debug for Latch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Latch({})", self.class.name())
    }
}
