//! A condition variable over a checker's, with what the checkers omit: waiting for a condition, and
//! time-outs.
//!
//! Under shuttle a time-out is a moment of the virtual time (see [`crate::virtual_time`]); under
//! loom it never expires.

use crate::{LockResult, MutexGuard, PoisonError};
use std::sync::Arc;
use std::time::Duration;

#[cfg(loom)]
type Checked = loom::sync::Condvar;
#[cfg(shuttle)]
type Checked = shuttle::sync::Condvar;

/// Like [`std::sync::Condvar`].
#[derive(Debug)]
pub struct Condvar {
    checked: Arc<Checked>,
}

/// Like [`std::sync::WaitTimeoutResult`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Returns true if the time-out has expired.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

impl Condvar {
    /// Creates a condition variable without waiters.
    pub fn new() -> Self {
        Self { checked: Arc::new(Checked::new()) }
    }

    /// Wakes one of the waiters.
    pub fn notify_one(&self) {
        self.checked.notify_one();
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.checked.notify_all();
    }

    /// Waits to be woken; may return spuriously.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.checked.wait(guard)
    }

    /// Waits until the condition no longer holds.
    pub fn wait_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        while condition(&mut *guard) {
            guard = self.wait(guard)?;
        }
        Ok(guard)
    }

    /// Waits to be woken, for at most the time-out; may return spuriously.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        #[cfg(shuttle)]
        let over = {
            let alarm = crate::virtual_time::set_alarm(timeout, &self.checked);
            move || alarm.is_over()
        };
        #[cfg(loom)]
        let over = {
            let _never = timeout;
            || false
        };
        match self.wait(guard) {
            Ok(guard) => Ok((guard, WaitTimeoutResult(over()))),
            Err(poison) => Err(PoisonError::new((poison.into_inner(), WaitTimeoutResult(over())))),
        }
    }

    /// Waits until the condition no longer holds, for at most the time-out.
    pub fn wait_timeout_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        timeout: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let began = crate::time::Instant::now();
        while condition(&mut *guard) {
            let Some(left) = timeout.checked_sub(began.elapsed()).filter(|left| !left.is_zero())
            else {
                return Ok((guard, WaitTimeoutResult(true)));
            };
            guard = self.wait_timeout(guard, left)?.0;
        }
        Ok((guard, WaitTimeoutResult(false)))
    }
}
