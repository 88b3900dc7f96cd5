//! SIEVE: a FIFO queue with a hand that leaves pages used since it last passed in place.
//!
//! New pages enter at the front. The hand moves from back to front, then restarts at the back.
//! Unlike in CLOCK, a page that survives keeps its position, so that the hand quickly reaches and
//! evicts newer pages that are not used. There is no parameter to set.
//!
//! A use sets a bit and costs O(1), the hand O(1) amortised. Metadata: 9 bytes per frame.
//!
//! # Invariants
//! 1. The hand is unset, or at a frame in the list.
//!
//! # Locking
//! None, except for the uses, which other threads may count concurrently (`uses`).
//!
//! # Source
//! Zhang, Yang, Yue, Vigfusson, Rashmi: SIEVE is simpler than LRU, NSDI 2024, algorithm 1.

use super::list::{ListId, Lists};
use super::uses::{Counts, Uses};
use super::{Footprint, Policy, Probe, ensure};
use clearway_types::{FrameId, PageId};
use std::sync::Arc;

/// Newest at the front.
const ALL: ListId = ListId(0);
/// The bound of the count of uses: the source's visited bit.
pub(crate) const MAX_USES: u8 = 1;

/// A FIFO queue with the hand of SIEVE.
pub struct Sieve {
    list: Lists,
    len: u32,
    /// Whether the frame was used since the hand last passed it.
    visited: Arc<dyn Uses>,
    hand: Option<u32>,
}

impl Sieve {
    /// Creates a policy for frames `0 .. frames`.
    pub fn new(frames: u32) -> Self {
        Self::over(frames, Arc::new(Counts::new(frames, MAX_USES)))
    }

    /// Creates a policy that counts the uses of its frames in `uses`.
    pub(crate) fn over(frames: u32, uses: Arc<dyn Uses>) -> Self {
        Self { list: Lists::new(frames, 1), len: 0, visited: uses, hand: None }
    }
}

impl Policy for Sieve {
    fn hit(&mut self, frame: FrameId) {
        self.visited.count(frame);
    }

    fn miss(&mut self, frame: FrameId, _page: PageId) {
        self.visited.set(frame, Some(0));
        self.list.push_front(ALL, frame.0);
        self.len += 1;
    }

    /// Makes at most two rounds: the first may only clear bits.
    fn evict(
        &mut self,
        _incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        for step in 0..2 * self.len {
            let at = self.hand.or_else(|| self.list.back(ALL))?;
            self.hand = Some(at);
            // In the second round no bit is set, except for pages that other threads use as fast as
            // the hand moves. Probing them anyway bounds the loop.
            if !self.visited.take(FrameId(at)) || step >= self.len {
                match probe(FrameId(at)) {
                    Probe::Take => {
                        self.remove(FrameId(at));
                        return Some(FrameId(at));
                    }
                    Probe::Skip => {}
                    Probe::Stop => return None,
                }
            }
            self.hand = self.list.prev(at);
        }
        None
    }

    fn remove(&mut self, frame: FrameId) {
        if self.hand == Some(frame.0) {
            self.hand = self.list.prev(frame.0);
        }
        self.len -= u32::from(self.list.remove(frame.0));
    }

    fn footprint(&self) -> Footprint {
        Footprint::default().uses(&*self.visited)
    }

    fn validate(&self) -> Result<(), String> {
        self.list.validate()?;
        let len = self.list.iter(ALL).count();
        ensure(len == self.len as usize, || format!("{len} frames, not {}", self.len))?;
        ensure(self.hand.is_none_or(|at| self.list.is_linked(at)), || {
            format!("the hand is at {:?}", self.hand)
        })
    }
}
