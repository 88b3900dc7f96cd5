//! Time that passes only on request: for executions under shuttle, which has no time.
//!
//! Each thread of the operating system has one clock. An execution stays in one such thread, so
//! concurrent executions do not share a clock. The simulation resets the clock ([`reset`]) and
//! advances it ([`advance`], [`advance_to_next`]). A waiter with a time-out is woken when the clock
//! has reached it.
//!
//! The only scheduling point here is the wake-up, which happens when nothing of this module is
//! borrowed.

use shuttle::sync::Condvar;
use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::time::Duration;

thread_local! {
    static CLOCK: RefCell<Clock> = RefCell::default();
}

#[derive(Default)]
struct Clock {
    now: Duration,
    alarms: Vec<(Duration, Weak<Condvar>)>,
}

/// A moment of the virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(Duration);

impl Instant {
    /// Returns the current moment.
    pub fn now() -> Self {
        Self(now())
    }

    /// Returns the time from an earlier moment to this one.
    pub fn duration_since(&self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns how long ago it is.
    pub fn elapsed(&self) -> Duration {
        now().saturating_sub(self.0)
    }
}

/// A time-out that a thread waits for.
pub(crate) struct Alarm(Duration);

impl Alarm {
    pub(crate) fn is_over(&self) -> bool {
        now() >= self.0
    }
}

/// Returns the time since the execution began.
pub fn now() -> Duration {
    CLOCK.with_borrow(|clock| clock.now)
}

/// Begins an execution: time zero, and no waiters.
pub fn reset() {
    CLOCK.with_borrow_mut(|clock| *clock = Clock::default());
}

/// Advances the time, and wakes the waiters whose time-outs have expired.
pub fn advance(by: Duration) {
    let due = CLOCK.with_borrow_mut(|clock| {
        clock.now += by;
        let now = clock.now;
        clock.alarms.retain(|(_, waiter)| waiter.strong_count() > 0);
        clock
            .alarms
            .extract_if(.., |(at, _)| *at <= now)
            .map(|(_, waiter)| waiter)
            .collect::<Vec<_>>()
    });
    // A waiter that no longer waits for this alarm is woken spuriously, as a condition variable
    // permits.
    due.iter().filter_map(Weak::upgrade).for_each(|waiter| waiter.notify_all());
}

/// Advances the time to the next time-out. Returns false if there is none.
pub fn advance_to_next() -> bool {
    let next = CLOCK.with_borrow(|clock| {
        clock.alarms.iter().filter(|(_, waiter)| waiter.strong_count() > 0).map(|(at, _)| *at).min()
    });
    match next {
        Some(at) => {
            advance(at.saturating_sub(now()));
            true
        }
        None => false,
    }
}

/// Waits until this much time has passed.
pub fn sleep(how_long: Duration) {
    let ends = now() + how_long;
    let (mutex, condvar) = (crate::Mutex::new(()), crate::Condvar::new());
    let mut guard = mutex.lock().unwrap_or_else(crate::PoisonError::into_inner);
    while now() < ends {
        guard = condvar
            .wait_timeout(guard, ends - now())
            .unwrap_or_else(crate::PoisonError::into_inner)
            .0;
    }
}

pub(crate) fn set_alarm(timeout: Duration, waiter: &Arc<Condvar>) -> Alarm {
    CLOCK.with_borrow_mut(|clock| {
        let at = clock.now + timeout;
        clock.alarms.push((at, Arc::downgrade(waiter)));
        Alarm(at)
    })
}
