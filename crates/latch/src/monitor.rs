//! A value behind a mutex, with a condition to wait for and a name. Lockstat counts the waits for
//! the mutex, not for the condition. The mutex is [`clearway_sync`]'s. Poisoning is ignored: code
//! that may panic halfway through a change must restore the value first.
//!
//! Source: Hoare, "Monitors: An Operating System Structuring Concept", CACM 1974; signals as in
//! Mesa (Lampson and Redell, 1980): a woken thread checks again.

use crate::lockstat::Class;
use clearway_sync::time::Duration;
use clearway_sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::fmt;
#[cfg(not(any(loom, shuttle)))]
use std::panic::Location;

/// Access to a monitor's value; releases the monitor when dropped.
pub type MonitorGuard<'a, T> = MutexGuard<'a, T>;

/// A value that threads change and whose changes threads wait for. [`Latch`](crate::Latch) is for
/// values without waiters for a change.
pub struct Monitor<T> {
    class: &'static Class,
    value: Mutex<T>,
    condition: Condition,
}

/// A condition that the holders of a monitor wait for: its own, or an additional one.
#[derive(Debug, Default)]
pub struct Condition(Condvar);

impl Condition {
    /// Creates a condition without waiters.
    #[cfg(not(any(loom, shuttle)))]
    pub const fn new() -> Self {
        Self(Condvar::new())
    }

    /// Creates a condition without waiters.
    #[cfg(any(loom, shuttle))]
    pub fn new() -> Self {
        Self(Condvar::new())
    }

    /// Releases the monitor until woken; may return spuriously.
    pub fn wait<'a, T>(&self, guard: MonitorGuard<'a, T>) -> MonitorGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases the monitor while the predicate holds for the value.
    pub fn wait_while<'a, T>(
        &self,
        guard: MonitorGuard<'a, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MonitorGuard<'a, T> {
        self.0.wait_while(guard, condition).unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases the monitor until woken, for at most the time-out; may return spuriously. Also
    /// returns whether the time-out has expired.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MonitorGuard<'a, T>,
        timeout: Duration,
    ) -> (MonitorGuard<'a, T>, bool) {
        let (guard, result) =
            self.0.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner);
        (guard, result.timed_out())
    }

    /// Releases the monitor while the predicate holds for the value, for at most the time-out. Also
    /// returns whether the time-out has expired.
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MonitorGuard<'a, T>,
        timeout: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> (MonitorGuard<'a, T>, bool) {
        let waited = self.0.wait_timeout_while(guard, timeout, condition);
        let (guard, result) = waited.unwrap_or_else(PoisonError::into_inner);
        (guard, result.timed_out())
    }

    /// Wakes one of the waiters.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

impl<T> Monitor<T> {
    /// Creates a monitor with a free mutex of this class.
    #[cfg(not(any(loom, shuttle)))]
    pub const fn new(class: &'static Class, value: T) -> Self {
        Self { class, value: Mutex::new(value), condition: Condition::new() }
    }

    /// Creates a monitor with a free mutex of this class.
    #[cfg(any(loom, shuttle))]
    pub fn new(class: &'static Class, value: T) -> Self {
        Self { class, value: Mutex::new(value), condition: Condition::new() }
    }

    /// Acquires the mutex; waits as long as it takes.
    #[cfg(not(any(loom, shuttle)))]
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> MonitorGuard<'_, T> {
        use std::sync::TryLockError;
        let guard = match self.value.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poison)) => poison.into_inner(),
            Err(TryLockError::WouldBlock) => return self.lock_slowly(Location::caller()),
        };
        // After the attempt, as in `Latch`.
        self.class.request();
        guard
    }

    #[cfg(not(any(loom, shuttle)))]
    #[cold]
    fn lock_slowly(&self, caller: &'static Location<'static>) -> MonitorGuard<'_, T> {
        self.class.request();
        self.class.timed(caller, || self.value.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Acquires the mutex; waits as long as it takes. Under a checker the wait is not measured (see
    /// [`crate::lockstat`]).
    #[cfg(any(loom, shuttle))]
    pub fn lock(&self) -> MonitorGuard<'_, T> {
        self.class.request();
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// See [`Condition::wait`].
    pub fn wait<'a>(&self, guard: MonitorGuard<'a, T>) -> MonitorGuard<'a, T> {
        self.condition.wait(guard)
    }

    /// See [`Condition::wait_while`].
    pub fn wait_while<'a>(
        &self,
        guard: MonitorGuard<'a, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MonitorGuard<'a, T> {
        self.condition.wait_while(guard, condition)
    }

    /// See [`Condition::wait_timeout`].
    pub fn wait_timeout<'a>(
        &self,
        guard: MonitorGuard<'a, T>,
        timeout: Duration,
    ) -> (MonitorGuard<'a, T>, bool) {
        self.condition.wait_timeout(guard, timeout)
    }

    /// See [`Condition::wait_timeout_while`].
    pub fn wait_timeout_while<'a>(
        &self,
        guard: MonitorGuard<'a, T>,
        timeout: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> (MonitorGuard<'a, T>, bool) {
        self.condition.wait_timeout_while(guard, timeout, condition)
    }

    /// Wakes one of the waiters.
    pub fn notify_one(&self) {
        self.condition.notify_one();
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.condition.notify_all();
    }

    /// Returns the value of a monitor that is not shared.
    pub fn into_inner(self) -> T {
        self.value.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for Monitor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Monitor({})", self.class.name())
    }
}
