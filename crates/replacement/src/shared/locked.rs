//! A policy behind a latch that every access takes.
//!
//! A panic may leave the policy in any state. That is harmless: it only proposes victims, and the
//! pool probes each of them.
//!
//! # Source
//! pg2Q of BP-Wrapper (Ding, Jiang, Zhang, ICDE 2009).

use super::{POLICY, Replacement};
use crate::policy::{Policy, Probe};
use clearway_latch::Latch;
use clearway_types::{FrameId, PageId};

/// A policy behind a latch that every access takes.
pub struct Locked(Latch<Box<dyn Policy>>);

impl Locked {
    /// Wraps a policy.
    pub fn new(policy: Box<dyn Policy>) -> Self {
        Self(Latch::new(&POLICY, policy))
    }
}

impl Replacement for Locked {
    /// Does not check the page: the hit is applied immediately, before anything else happens to the
    /// frame.
    fn hit(&self, frame: FrameId, _page: PageId) {
        self.0.lock().hit(frame);
    }
    fn miss(&self, frame: FrameId, page: PageId) {
        self.0.lock().miss(frame, page);
    }
    fn evict(
        &self,
        incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        self.0.lock().evict(incoming, probe)
    }
    fn remove(&self, frame: FrameId, take: &mut dyn FnMut() -> bool) {
        let mut policy = self.0.lock();
        if take() {
            policy.remove(frame);
        }
    }
}
