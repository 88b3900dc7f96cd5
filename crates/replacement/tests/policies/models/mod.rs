//! Models of the policies, each written from its paper for clarity alone: queues and loops, O(n)
//! per access. A model shares no code with its policy, and uses neither its lists nor its directory
//! of ghosts.

mod arbiter;
mod arc;
mod car;
mod clock;
mod clock_pro;
mod lirs;
mod lru;
mod mq;
mod s3_fifo;
mod seq;
mod sieve;
mod two_q;
mod w_tiny_lfu;

use clearway_replacement::{Policy, PolicyKind};

/// Builds the model of a policy.
pub fn build(kind: PolicyKind, frames: u32) -> Box<dyn Policy> {
    match kind {
        PolicyKind::TwoQ => Box::new(two_q::Model::new(frames)),
        PolicyKind::Arbiter => Box::new(arbiter::Model::new(frames)),
        PolicyKind::Arc => Box::new(arc::Model::new(frames)),
        PolicyKind::Car => Box::new(car::Model::new(frames)),
        PolicyKind::Clock => Box::new(clock::Model::new(frames)),
        PolicyKind::ClockPro => Box::new(clock_pro::Model::new(frames)),
        PolicyKind::Lirs => Box::new(lirs::Model::new(frames)),
        PolicyKind::Lru => Box::new(lru::Model::default()),
        PolicyKind::Mq => Box::new(mq::Model::new(frames)),
        PolicyKind::S3Fifo => Box::new(s3_fifo::Model::new(frames)),
        PolicyKind::Seq => Box::new(seq::Model::default()),
        PolicyKind::Sieve => Box::new(sieve::Model::default()),
        PolicyKind::WTinyLfu => Box::new(w_tiny_lfu::Model::new(frames)),
    }
}
