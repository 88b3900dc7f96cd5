//! Requests in flight.
//!
//! # Invariant
//! A request's number is never reused and is greater than those of all earlier requests.

use super::core::Op;
use std::collections::VecDeque;
use std::ops::Index;

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
