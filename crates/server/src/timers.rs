//! Deadlines of sessions.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

/// A worker's deadlines, earliest first. A session cancels those that it no longer needs, and
/// ignores one whose ticket is not current.
#[derive(Default)]
pub struct Timers {
    /// The session's slot by time and ticket.
    pending: BTreeMap<(Instant, u64), u32>,
    /// The times of the pending tickets.
    times: HashMap<u64, Instant>,
    tickets: u64,
}

impl Timers {
    /// Sets a deadline for a session and returns its ticket.
    pub fn set(&mut self, at: Instant, slot: u32) -> u64 {
        self.tickets += 1;
        self.pending.insert((at, self.tickets), slot);
        self.times.insert(self.tickets, at);
        self.tickets
    }
    /// Removes the deadline with this ticket, unless it has been reached.
    pub fn cancel(&mut self, ticket: u64) {
        if let Some(at) = self.times.remove(&ticket) {
            self.pending.remove(&(at, ticket));
        }
    }
    /// Returns the earliest deadline.
    pub fn next(&self) -> Option<Instant> {
        self.pending.first_key_value().map(|((at, _), _)| *at)
    }
    /// Removes a due deadline and returns its session and ticket.
    pub fn due(&mut self, now: Instant) -> Option<(u32, u64)> {
        let first = self.pending.first_entry().filter(|first| first.key().0 <= now)?;
        let ((_, ticket), slot) = first.remove_entry();
        self.times.remove(&ticket);
        Some((slot, ticket))
    }
    /// Returns true if a deadline of this session is pending. Slow.
    pub fn has_slot(&self, slot: u32) -> bool {
        self.pending.values().any(|pending| *pending == slot)
    }
    /// Returns true if no deadline is pending.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.times.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn cancelled_deadlines_are_never_due() {
        let (mut timers, now) = (Timers::default(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        let first = timers.set(at(2), 7);
        let second = timers.set(at(2), 8);
        let third = timers.set(at(1), 9);
        timers.cancel(third);
        timers.cancel(third);
        assert_eq!((timers.next(), timers.due(at(1))), (Some(at(2)), None));
        assert!(timers.has_slot(7) && timers.has_slot(8) && !timers.has_slot(9));
        assert_eq!(timers.due(at(2)), Some((7, first)));
        timers.cancel(first);
        assert_eq!((timers.due(at(3)), timers.due(at(3))), (Some((8, second)), None));
        assert!(timers.is_empty());
    }
}
