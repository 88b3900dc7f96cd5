//! A policy behind a latch that every access takes, with prefetching before the latch.
//!
//! Prefetched are the latch's line, the policy's element of the frame, and its links with those of
//! its neighbours ([`crate::Footprint`]), so that the cache misses happen outside the latch. Sound
//! without the latch: nothing is read through an address except links, which are atomic.
//!
//! # Source
//! pgPref of BP-Wrapper (Ding, Jiang, Zhang, ICDE 2009).

use super::tagged::{Entry, Warm};
use super::{Locked, Replacement};
use crate::policy::{Policy, Probe};
use clearway_types::{FrameId, PageId};

/// A policy behind a latch that every access takes, with what it will touch prefetched.
pub struct Prefetched {
    locked: Locked,
    warm: Warm,
}

impl Prefetched {
    /// Wraps a policy.
    pub fn new(policy: Box<dyn Policy>) -> Self {
        Self { warm: Warm::new(policy.footprint()), locked: Locked::new(policy) }
    }

    fn warm_up(&self, frame: FrameId, page: PageId) {
        self.warm.up(&self.locked, std::iter::once(Entry::new(frame, page)));
    }
}

impl Replacement for Prefetched {
    fn hit(&self, frame: FrameId, page: PageId) {
        self.warm_up(frame, page);
        self.locked.hit(frame, page);
    }

    fn miss(&self, frame: FrameId, page: PageId) {
        self.warm_up(frame, page);
        self.locked.miss(frame, page);
    }

    fn evict(
        &self,
        incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        self.locked.evict(incoming, probe)
    }

    fn remove(&self, frame: FrameId, take: &mut dyn FnMut() -> bool) {
        self.locked.remove(frame, take);
    }
}
