//! Pending work of a simulated network: events by time, and requests in flight.
//!
//! # Invariants
//! 1. Events are taken in time order; events of the same time in the order in which they were
//!    added.
//! 2. A request's number is never reused and is greater than those of all earlier requests.

use super::core::{Event, Op};
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Index;

struct Scheduled {
    /// The time, and the number of events scheduled before this one.
    at: Reverse<(u64, u64)>,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.cmp(&other.at)
    }
}

/// Events by time.
#[derive(Default)]
pub(super) struct Events {
    heap: BinaryHeap<Scheduled>,
    scheduled: u64,
}

impl Events {
    pub fn add(&mut self, at_ns: u64, event: Event) {
        self.scheduled += 1;
        self.heap.push(Scheduled { at: Reverse((at_ns, self.scheduled)), event });
    }

    /// Takes the first event and its time.
    pub fn pop(&mut self) -> Option<(u64, Event)> {
        let Scheduled { at: Reverse((at_ns, _)), event } = self.heap.pop()?;
        Some((at_ns, event))
    }

    /// Takes the first event that matches `wanted`. Scans all events, so use it rarely.
    pub fn take_first(&mut self, wanted: impl Fn(&Event) -> bool) -> Option<Event> {
        let mut all = std::mem::take(&mut self.heap).into_vec();
        let of_kind = all.iter().enumerate().filter(|(_, scheduled)| wanted(&scheduled.event));
        let place = of_kind.max_by_key(|(_, scheduled)| scheduled.at).map(|(place, _)| place);
        let first = place.map(|place| all.swap_remove(place).event);
        self.heap = all.into();
        first
    }
}

/// Requests in flight by number, in a window that advances when the oldest has completed.
#[derive(Default)]
pub(super) struct Ops {
    window: VecDeque<Option<Op>>,
    /// The number of the first request in the window.
    first: u64,
}

impl Ops {
    /// Adds a request and returns its number.
    pub fn add(&mut self, op: Op) -> u64 {
        self.window.push_back(Some(op));
        self.first + self.window.len() as u64 - 1
    }

    fn place(&self, id: u64) -> Option<usize> {
        id.checked_sub(self.first).map(|place| place as usize)
    }

    pub fn get(&self, id: u64) -> Option<&Op> {
        self.window.get(self.place(id)?)?.as_ref()
    }

    pub fn get_mut(&mut self, id: u64) -> Option<&mut Op> {
        let place = self.place(id)?;
        self.window.get_mut(place)?.as_mut()
    }

    pub fn contains(&self, id: u64) -> bool {
        self.get(id).is_some()
    }

    pub fn remove(&mut self, id: u64) -> Option<Op> {
        let place = self.place(id)?;
        let op = self.window.get_mut(place)?.take();
        while self.window.front().is_some_and(Option::is_none) {
            self.window.pop_front();
            self.first += 1;
        }
        op
    }
}

impl Index<u64> for Ops {
    type Output = Op;

    fn index(&self, id: u64) -> &Op {
        self.get(id).expect("a request in flight")
    }
}
