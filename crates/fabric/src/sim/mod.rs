//! A network in virtual time that gives the weakest order RDMA allows, drawn from a seed.
//!
//! One thread owns a [`Network`], its nodes and their workers. Nothing happens but in
//! [`Network::advance`], which moves virtual time to the next event that somebody can notice. The
//! same seed and the same calls give the same run.
//!
//! What is drawn: the time that each request and reply takes, so that queue pairs overtake one
//! another; the moment when each word of a WRITE lands and each word of a READ is read (torn READs
//! and WRITEs); the gap between the read and the write of a CAS or FAA, in which WRITEs and the
//! owner's processor get lost; how many of the requests in flight a dead worker's adapter still
//! sends, and how much of a WRITE.
//!
//! # Invariants
//! 1. The order that the crate's documentation states holds, and no more than that.
//! 2. Events of the same moment happen in the order in which they were scheduled: a run depends on
//!    seed and calls alone.
//! 3. A dead worker gets no completion, and posts nothing. A dead node's memory is gone.
//!
//! # Locking
//! None: the handles share the network through `Rc<RefCell>` and never keep it borrowed over a
//! return.

mod config;
mod core;
mod crash;
mod handles;
mod queue;
mod requester;
mod responder;
#[cfg(test)]
mod tests;

pub use config::SimConfig;
pub use handles::{SimNode, SimRegion, SimWorker};

use self::core::Core;
use crate::{FabricNode, WorkerAddr};
use std::cell::RefCell;
use std::rc::Rc;

/// Something that [`Network::advance`] has brought about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The worker has a new completion, or a queue pair to accept.
    Worker(WorkerAddr),
    /// The timer with this token has expired.
    Timer(u64),
}

/// A simulated network.
#[derive(Clone)]
pub struct Network(Rc<RefCell<Core>>);

impl Network {
    /// An empty network whose draws are those of `seed`.
    pub fn new(seed: u64, config: SimConfig) -> Self {
        Self(Rc::new(RefCell::new(Core::new(seed, config))))
    }

    /// Adds a node; the first is node 0.
    pub fn add_node(&self) -> SimNode {
        let node = self.0.borrow_mut().add_node();
        SimNode::new(Rc::clone(&self.0), node)
    }

    /// Virtual time since the network was made.
    pub fn now_ns(&self) -> u64 {
        self.0.borrow().now_ns
    }

    /// Moves to the next event that a worker or the owner of a timer notices; `None` if nothing is
    /// under way.
    pub fn advance(&self) -> Option<Step> {
        self.0.borrow_mut().advance()
    }

    /// Makes [`Network::advance`] return [`Step::Timer`] with this token at `at_ns`, or now if that
    /// has passed.
    pub fn set_timer(&self, token: u64, at_ns: u64) {
        self.0.borrow_mut().set_timer(token, at_ns);
    }

    /// Kills a worker, as when its thread or process dies: what it has posted and its adapter has
    /// not sent is lost, a WRITE possibly in the middle. Its node's memory stays. The worker's
    /// handle posts and receives nothing from now on.
    pub fn crash_worker(&self, worker: WorkerAddr) {
        self.0.borrow_mut().crash_worker(worker);
    }

    /// Kills a node with its workers and memory. Its peers' requests fail with
    /// [`VerbError::PeerDead`](crate::VerbError::PeerDead) after the time-out.
    pub fn crash_node(&self, node: FabricNode) {
        self.0.borrow_mut().crash_node(node);
    }
}
