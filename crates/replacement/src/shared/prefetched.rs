//! A policy behind a latch that every access takes, with prefetching before the latch.
//!
//! Prefetches the latch's cache line, the policy's element of the frame, and its links with those
//! of its neighbours ([`crate::Footprint`]), so that the cache misses happen outside the latch.
//! This is sound without the latch: nothing is read through an address except links, which are
//! atomic.
//!
//! # Source
//! pgPref of BP-Wrapper (Ding, Jiang, Zhang, ICDE 2009).

use super::tagged::{Entry, Prefetcher};
use super::{Locked, Replacement};
use crate::policy::{Policy, Probe};
use clearway_types::{FrameId, PageId};

/// A policy behind a latch that every access takes after prefetching what it will touch.
pub struct Prefetched {
    locked: Locked,
    prefetcher: Prefetcher,
}

impl Prefetched {
    /// Wraps a policy.
    pub fn new(policy: Box<dyn Policy>) -> Self {
        Self { prefetcher: Prefetcher::new(policy.footprint()), locked: Locked::new(policy) }
    }

    fn prefetch(&self, frame: FrameId, page: PageId) {
        self.prefetcher.prefetch(&self.locked, std::iter::once(Entry::new(frame, page)));
    }
}

impl Replacement for Prefetched {
    fn hit(&self, frame: FrameId, page: PageId) {
        self.prefetch(frame, page);
        self.locked.hit(frame, page);
    }

    fn miss(&self, frame: FrameId, page: PageId) {
        self.prefetch(frame, page);
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
