//! The policies once more, each written from its paper for clarity alone: queues and loops, O(n) an access. A model shares no code with
//! its policy, and knows no list, no ghost and no order by anything else's help.

mod clock;
mod lru;

use clearway_buffer::{Policy, PolicyKind};

/// The model of a policy.
pub fn build(kind: PolicyKind, frames: u32) -> Box<dyn Policy> {
    match kind {
        PolicyKind::Clock => Box::new(clock::Model::new(frames)),
        PolicyKind::Lru => Box::new(lru::Model::default()),
    }
}
