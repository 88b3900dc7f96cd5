//! The time during a session's turn. Statements of a pipeline take a few microseconds each, so
//! reading the clocks several times for each would be a noticeable part of them.
//!
//! Invariants
//! 1. A reading is used again only by what follows at once: a statement begins when its message
//!    arrives, and the next message arrives when the statement before it has ended. Whatever may
//!    take longer in between forgets the reading.
//! 2. The wall clock is read once. The time since then is measured by the monotonic clock.
//!
//! Locking: none; each turn has its own. A crash leaves nothing.

use clearway_env::Clock;
use std::time::Instant;

/// The time during a session's turn.
#[derive(Default)]
pub struct TurnClock {
    /// A reading of both clocks; the wall clock's in microseconds since 2000-01-01 UTC.
    both: Option<(Instant, i64)>,
    /// The last reading, unless it is out of date.
    last: Option<Instant>,
}

impl TurnClock {
    /// Returns the time at which a message arrives, in microseconds since 2000-01-01 UTC.
    pub fn arrival(&mut self, clock: &dyn Clock) -> i64 {
        let now = *self.last.get_or_insert_with(Instant::now);
        let (at, wall_us) = *self.both.get_or_insert_with(|| (now, clock.wall_micros()));
        wall_us + now.duration_since(at).as_micros() as i64
    }

    /// Returns the time at which a statement begins. It may take long, so the reading is forgotten.
    pub fn begin(&mut self) -> Instant {
        self.last.take().unwrap_or_else(Instant::now)
    }

    /// Returns the time at which a statement ends.
    pub fn end(&mut self) -> Instant {
        *self.last.insert(Instant::now())
    }

    /// Forgets the last reading.
    pub fn forget(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_testkit::ManualClock;

    #[test]
    fn invariant_1_consecutive_events_share_a_reading() {
        let (clock, mut turn) = (ManualClock::default(), TurnClock::default());
        turn.arrival(&clock);
        let read = turn.last.unwrap();
        assert_eq!(turn.begin(), read);
        assert!(turn.begin() >= read && turn.last.is_none());
        let ended = turn.end();
        turn.arrival(&clock);
        assert_eq!(turn.begin(), ended);
        turn.end();
        turn.forget();
        assert!(turn.last.is_none());
    }

    #[test]
    fn invariant_2_wall_clock_is_read_once() {
        let (clock, mut turn) = (ManualClock::default(), TurnClock::default());
        clock.set_wall_micros(1_000_000);
        assert_eq!(turn.arrival(&clock), 1_000_000);
        clock.set_wall_micros(-1);
        turn.end();
        let (at, _) = turn.both.unwrap();
        let since = turn.last.unwrap().duration_since(at).as_micros() as i64;
        assert_eq!(turn.arrival(&clock), 1_000_000 + since);
    }
}
