//! A policy whose operations consume virtual time.

use super::{run_until, with_running};
use clearway_replacement::{Policy, Probe};
use clearway_types::{FrameId, PageId};

/// A policy whose hits consume virtual time while a simulation runs on this thread.
pub struct Timed(Box<dyn Policy>);

impl Timed {
    /// Wraps a policy.
    pub fn new(policy: Box<dyn Policy>) -> Self {
        Self(policy)
    }
}

impl Policy for Timed {
    /// Runs the operation, then simulates the other threads until it ends and, if the caller loses
    /// its core, until it regains it.
    fn hit(&mut self, frame: FrameId) {
        self.0.hit(frame);
        if let Some(ends) = with_running(|running| running.schedule.operation(frame.0)) {
            run_until(ends);
            if with_running(|running| running.schedule.loses_core()) == Some(true) {
                run_until(u64::MAX);
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
