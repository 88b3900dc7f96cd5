//! Time: a monotonic clock for durations, a wall clock for timestamps.

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
}
