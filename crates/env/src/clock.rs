//! Time: a monotonic clock for durations, a wall clock for timestamps.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds from 1970-01-01 to 2000-01-01 UTC, PostgreSQL's epoch.
const EPOCH_2000_S: i64 = 946_684_800;

/// A source of time.
pub trait Clock: Send + Sync {
    /// Returns the time since some fixed moment; it never goes backwards.
    fn monotonic(&self) -> Duration;

    /// Returns the microseconds since 2000-01-01 00:00 UTC. They jump when the machine's clock is
    /// set.
    fn wall_micros(&self) -> i64;
}

/// The operating system's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsClock;

impl Clock for OsClock {
    fn monotonic(&self) -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        // The monotonic clock starts at or after zero and its nanoseconds stay below 10^9, so
        // neither cast loses bits.
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    }

    fn wall_micros(&self) -> i64 {
        let since_1970 = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => after.as_micros() as i64,
            Err(before) => -(before.duration().as_micros() as i64),
        };
        since_1970 - EPOCH_2000_S * 1_000_000
    }
}

/// A clock that advances only on request; for tests.
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
    fn wall_clock_starts_at_2000() {
        let now_us = OsClock.wall_micros();
        let year_us = 365 * 86_400 * 1_000_000_i64;
        assert!((25 * year_us..75 * year_us).contains(&now_us), "{now_us}");
    }

    #[test]
    fn monotonic_clock_never_goes_backwards() {
        let (first, second) = (OsClock.monotonic(), OsClock.monotonic());
        assert!(first <= second);
    }

    #[test]
    fn manual_clock_moves_only_when_set() {
        let clock = ManualClock::new(10);
        assert_eq!((clock.monotonic(), clock.wall_micros()), (Duration::ZERO, 10));
        clock.advance(Duration::from_micros(5));
        assert_eq!((clock.monotonic(), clock.wall_micros()), (Duration::from_micros(5), 15));
        clock.set_wall_micros(-1);
        assert_eq!((clock.monotonic(), clock.wall_micros()), (Duration::from_micros(5), -1));
    }
}
