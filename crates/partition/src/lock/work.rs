//! Counts the lock table's steps, so that tests can measure work instead of time.

/// Counts one step: a visit to a span, a lock's holder, a line or a tree entry.
#[inline(always)]
pub(super) fn look() {
    #[cfg(test)]
    STEPS.with(|steps| steps.set(steps.get() + 1));
}

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Returns the number of steps on this thread.
#[cfg(test)]
pub(super) fn steps() -> u64 {
    STEPS.with(std::cell::Cell::get)
}
