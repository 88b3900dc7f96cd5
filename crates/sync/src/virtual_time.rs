//! Time that passes only when it is told to: for executions under shuttle, which has none.
//!
//! One clock for each thread of the operating system, since an execution stays in one: executions
//! side by side do not share it. The simulation starts it anew ([`reset`]) and moves it
//! ([`advance`], [`advance_to_next`]); whoever waits with a time-out is woken when the clock has
//! come to its end.
//!
//! Nothing here is a scheduling point but the waking, which happens when nothing of this module is
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
    /// This moment.
    pub fn now() -> Self {
        Self(now())
    }

    /// How long it is ago.
    pub fn elapsed(&self) -> Duration {
        now().saturating_sub(self.0)
    }
}

/// A time-out that somebody waits for.
pub(crate) struct Alarm(Duration);

impl Alarm {
    pub(crate) fn is_over(&self) -> bool {
        now() >= self.0
    }
}

/// Since the execution began.
pub fn now() -> Duration {
    CLOCK.with_borrow(|clock| clock.now)
}

/// The beginning of an execution: time zero, and nobody waits.
pub fn reset() {
    CLOCK.with_borrow_mut(|clock| *clock = Clock::default());
}

/// Lets so much time pass, and wakes those whose time-outs are over.
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
    // A waiter that did not wait for this alarm any more is woken for nothing, as a condition
    // variable may.
    due.iter().filter_map(Weak::upgrade).for_each(|waiter| waiter.notify_all());
}

/// Lets time pass up to the next time-out; false if nobody waits for one.
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

/// Waits until so much time has passed.
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
