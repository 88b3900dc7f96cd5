//! Deadlines of sessions.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

/// A worker's deadlines, earliest first. A deadline is never cancelled: a session ignores one whose
/// ticket is not current.
#[derive(Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(Instant, u32, u64)>>,
    tickets: u64,
}

impl Timers {
    /// Sets a deadline for a session and returns its ticket.
    pub fn set(&mut self, at: Instant, slot: u32) -> u64 {
        self.tickets += 1;
        self.heap.push(Reverse((at, slot, self.tickets)));
        self.tickets
    }
    /// Returns the earliest deadline.
    pub fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _, _))| *at)
    }
    /// Removes a due deadline and returns its session and ticket.
    pub fn due(&mut self, now: Instant) -> Option<(u32, u64)> {
        let Reverse((at, slot, ticket)) = *self.heap.peek()?;
        (at <= now).then(|| {
            self.heap.pop();
            (slot, ticket)
        })
    }
}
