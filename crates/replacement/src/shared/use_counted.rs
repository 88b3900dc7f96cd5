//! Hits without a latch, for policies for which a hit only counts a use of the frame, up to a
//! bound.
//!
//! Both the policy and a thread that hits can reach the counts (`policy::uses`). In the pool the
//! counts are in the frames themselves: a hit touches no cache line beyond those that finding the
//! page has touched, and a hit on a hot page, whose count is at the bound, writes nothing. No queue
//! is needed, since hits commute. So the policy chooses exactly as it would alone.
//!
//! # Locking
//! The policy's latch, for misses, evictions and removals.
//!
//! # Source
//! The lock-free hits of S3-FIFO (Yang and others, SOSP 2023) and SIEVE (Zhang and others, NSDI
//! 2024).

use super::{POLICY, Replacement};
use crate::policy::{
    Policy, PolicyKind, Probe, S3_FIFO_MAX_USES, S3Fifo, SIEVE_MAX_USES, Sieve, Uses,
};
use clearway_latch::Latch;
use clearway_types::{FrameId, PageId};
use std::sync::Arc;

/// The policies for which a hit only counts a use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UseCountedKind {
    /// S3-FIFO: counts up to 3.
    S3Fifo,
    /// SIEVE: counts up to 1.
    Sieve,
}

impl UseCountedKind {
    /// All kinds.
    pub const ALL: &[Self] = &[Self::S3Fifo, Self::Sieve];

    /// Returns the policy.
    pub const fn policy(self) -> PolicyKind {
        match self {
            Self::S3Fifo => PolicyKind::S3Fifo,
            Self::Sieve => PolicyKind::Sieve,
        }
    }

    /// Returns the bound of the count.
    pub(super) const fn max_uses(self) -> u8 {
        match self {
            Self::S3Fifo => S3_FIFO_MAX_USES,
            Self::Sieve => SIEVE_MAX_USES,
        }
    }

    /// Builds the policy for `frames` frames, whose uses are counted in `uses`.
    pub fn build(self, frames: u32, uses: Arc<dyn Uses>) -> Box<dyn Policy> {
        match self {
            Self::S3Fifo => Box::new(S3Fifo::over(frames, uses)),
            Self::Sieve => Box::new(Sieve::over(frames, uses)),
        }
    }

    /// Wraps the policy. The uses of its frames are counted in `uses`, up to its bound.
    pub fn wrap(self, policy: Box<dyn Policy>, uses: Arc<dyn Uses>) -> Box<dyn Replacement> {
        Box::new(UseCounted { policy: Latch::new(&POLICY, policy), uses })
    }
}

/// A policy that reads the counts of uses in the frames.
pub struct UseCounted {
    policy: Latch<Box<dyn Policy>>,
    uses: Arc<dyn Uses>,
}

impl Replacement for UseCounted {
    #[inline]
    fn hit(&self, frame: FrameId, _page: PageId) {
        self.uses.count(frame);
    }

    fn miss(&self, frame: FrameId, page: PageId) {
        self.policy.lock().miss(frame, page);
    }

    fn evict(
        &self,
        incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        self.policy.lock().evict(incoming, probe)
    }

    fn remove(&self, frame: FrameId, take: &mut dyn FnMut() -> bool) {
        let mut policy = self.policy.lock();
        if take() {
            policy.remove(frame);
        }
    }
}
