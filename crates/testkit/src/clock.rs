//! A clock that a test sets.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use clearway_env::Clock;

/// A clock that advances only on request.
#[derive(Debug, Default)]
pub struct ManualClock {
    monotonic_ns: AtomicU64,
    wall_us: AtomicI64,
}

impl ManualClock {
    /// Creates a clock with monotonic time zero and wall time `wall_us` microseconds since
    /// 2000-01-01 UTC.
    pub fn new(wall_us: i64) -> Self {
        Self { monotonic_ns: AtomicU64::new(0), wall_us: AtomicI64::new(wall_us) }
    }

    /// Advances both clocks, by less than 292 years in total.
    pub fn advance(&self, by: Duration) {
        // Relaxed, here and below: each value is read on its own and orders no other memory.
        self.monotonic_ns.fetch_add(by.as_nanos() as u64, Ordering::Relaxed);
        self.wall_us.fetch_add(by.as_micros() as i64, Ordering::Relaxed);
    }

    /// Sets the wall clock, as an operator may at any time. The monotonic clock is unaffected.
    pub fn set_wall_micros(&self, wall_us: i64) {
        self.wall_us.store(wall_us, Ordering::Relaxed); // Relaxed: see `advance`.
    }
}

impl Clock for ManualClock {
    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.monotonic_ns.load(Ordering::Relaxed)) // Relaxed: see `advance`.
    }

    fn wall_micros(&self) -> i64 {
        self.wall_us.load(Ordering::Relaxed) // Relaxed: see `advance`.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_moves_only_when_set() {
        let clock = ManualClock::new(10);
        assert_eq!((clock.monotonic(), clock.wall_micros()), (Duration::ZERO, 10));
        clock.advance(Duration::from_micros(5));
        assert_eq!((clock.monotonic(), clock.wall_micros()), (Duration::from_micros(5), 15));
        clock.set_wall_micros(-1);
        assert_eq!((clock.monotonic(), clock.wall_micros()), (Duration::from_micros(5), -1));
    }
}
