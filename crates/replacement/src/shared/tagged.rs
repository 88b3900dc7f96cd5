//! A policy that receives hits late. It knows the page of each frame, and skips a hit on a page
//! that has left its frame.
//!
//! If a page was evicted while hits on it were queued, they must neither return it to the policy
//! nor count for the frame's next page. Without the check an eviction can fail forever, as was
//! found in other caches.
//!
//! # Source
//! The tag of BP-Wrapper (Ding, Jiang, Zhang, ICDE 2009), compared at commit.

use crate::policy::{Footprint, Policy, Probe};
use clearway_latch::prefetch;
use clearway_types::{FrameId, PageId};

/// A use of a page in a frame, in one word: frame + 1 in the upper half, the page's tag in the
/// lower half. 0 means none.
///
/// The tag is 32 bits computed from the page's 48: its number with the partition mixed in. Two
/// successive pages of a frame may have the same tag; then the second page gets a hit of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry(u64);

impl Entry {
    pub const NONE: Self = Self(0);

    #[inline(always)]
    pub fn new(frame: FrameId, page: PageId) -> Self {
        let raw = page.to_u64();
        let tag = raw as u32 ^ ((raw >> 32) as u32).wrapping_mul(0x9e37_79b9);
        Self((u64::from(frame.0) + 1) << 32 | u64::from(tag))
    }

    #[inline(always)]
    pub fn to_u64(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub fn from_u64(raw: u64) -> Self {
        Self(raw)
    }

    /// Returns the frame of an entry other than `NONE`.
    #[inline]
    pub fn frame(self) -> FrameId {
        FrameId(((self.0 >> 32) as u32).wrapping_sub(1))
    }
}

/// A policy, and the page of each frame.
pub(super) struct Tagged {
    policy: Box<dyn Policy>,
    held: Box<[Entry]>,
}

impl Tagged {
    /// Wraps a policy of frames `0 .. frames`.
    pub fn new(policy: Box<dyn Policy>, frames: u32) -> Self {
        Self { policy, held: vec![Entry::NONE; frames as usize].into() }
    }

    /// Returns the memory that a hit touches.
    pub fn footprint(&self) -> Footprint {
        self.policy.footprint().array(&self.held)
    }

    /// Applies a hit if the page is still in the frame.
    #[inline]
    pub fn hit(&mut self, entry: Entry) {
        let frame = entry.frame();
        if self.held[frame.0 as usize] == entry {
            self.policy.hit(frame);
        }
    }

    pub fn miss(&mut self, frame: FrameId, page: PageId) {
        self.held[frame.0 as usize] = Entry::new(frame, page);
        self.policy.miss(frame, page);
    }

    pub fn evict(
        &mut self,
        incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        let taken = self.policy.evict(incoming, probe)?;
        self.held[taken.0 as usize] = Entry::NONE;
        Some(taken)
    }

    pub fn remove(&mut self, frame: FrameId, take: &mut dyn FnMut() -> bool) {
        if take() {
            self.held[frame.0 as usize] = Entry::NONE;
            self.policy.remove(frame);
        }
    }
}

/// Prefetches, before a latch is requested, the latch's own cache line and what the queued hits
/// will touch.
pub(super) struct Prefetcher(Footprint);

impl Prefetcher {
    pub fn new(footprint: Footprint) -> Self {
        Self(footprint)
    }

    pub fn prefetch<L>(&self, latch: &L, entries: impl Iterator<Item = Entry> + Clone) {
        prefetch(std::ptr::from_ref(latch).addr());
        self.0.prefetch(entries.map(|entry| entry.frame().0));
    }
}
