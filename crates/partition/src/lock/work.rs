//! Counts what the lock table looks at, for tests: work, and not time.

/// One more has been looked at: a span, a lock's holder, a line, an entry of a tree.
#[inline(always)]
pub(super) fn look() {
    #[cfg(test)]
    STEPS.with(|steps| steps.set(steps.get() + 1));
}

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// How many this thread has looked at.
#[cfg(test)]
pub(super) fn steps() -> u64 {
    STEPS.with(std::cell::Cell::get)
}
