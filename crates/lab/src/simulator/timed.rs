//! A policy whose operations take virtual time.

use super::{play_until, with_playing};
use clearway_replacement::{Policy, Probe};
use clearway_types::{FrameId, PageId};

/// A policy whose hits take virtual time while a machine is played on this thread.
pub struct Timed(Box<dyn Policy>);

impl Timed {
    /// The policy, timed.
    pub fn new(policy: Box<dyn Policy>) -> Self {
        Self(policy)
    }
}

impl Policy for Timed {
    /// The operation, and then all that others do while it is under way, and until the caller has
    /// its core again, if it loses it.
    fn hit(&mut self, frame: FrameId) {
        self.0.hit(frame);
        if let Some(ends) = with_playing(|playing| playing.schedule.operation(frame.0)) {
            play_until(ends);
            if with_playing(|playing| playing.schedule.loses_core()) == Some(true) {
                play_until(u64::MAX);
            }
        }
    }

    fn miss(&mut self, frame: FrameId, page: PageId) {
        self.0.miss(frame, page);
    }

    fn evict(
        &mut self,
        incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        self.0.evict(incoming, probe)
    }

    fn remove(&mut self, frame: FrameId) {
        self.0.remove(frame);
    }

    fn validate(&self) -> Result<(), String> {
        self.0.validate()
    }
}
