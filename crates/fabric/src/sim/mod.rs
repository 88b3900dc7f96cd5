//! A network in virtual time that gives the weakest order RDMA allows, drawn from a seed.
//!
//! One thread owns a [`Network`], its nodes and their workers. Events happen only in
//! [`Network::advance`], which moves virtual time to the next event that somebody can notice. The
//! same seed and the same calls give the same run.
//!
//! The following is random:
//! - The time that each request and reply takes, so that queue pairs overtake one another.
//! - The moment when each word of a WRITE lands and each word of a READ is read (torn WRITEs and
//!   READs).
//! - The gap between the read and the write of a CAS or FAA. WRITEs and stores of the owner's CPU
//!   within the gap are lost.
//! - How many of a dead worker's requests its adapter still sends, and how much of a WRITE.
//!
//! # Invariants
//! 1. The order in the crate's documentation holds, and nothing stronger.
//! 2. Events of the same time happen in the order in which they were scheduled. A run depends on
//!    seed and calls alone.
//! 3. A dead worker gets no completion and posts nothing. A dead node's memory is gone.
//!
//! # Locking
//! None. The handles share the network through `Rc<RefCell>` and never keep it borrowed after they
//! return.

mod config;
mod core;
mod crash;
mod events;
mod handles;
mod ops;
mod requester;
mod responder;
mod sparse;
#[cfg(test)]
mod tests;

pub use config::SimConfig;
pub use handles::{SimNode, SimRegion, SimWorker};

use self::core::Core;
use crate::{FabricNode, WorkerAddr};
use std::cell::RefCell;
use std::rc::Rc;

/// An event that [`Network::advance`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimStep {
    /// The worker has a new completion, or a queue pair to accept.
    Worker(WorkerAddr),
    /// The timer with this token has expired.
    Timer(u64),
}

/// A simulated network.
#[derive(Clone)]
pub struct Network(Rc<RefCell<Core>>);

impl Network {
    /// Creates an empty network with the random numbers of `seed`.
    pub fn new(seed: u64, config: SimConfig) -> Self {
        Self(Rc::new(RefCell::new(Core::new(seed, config))))
    }

    /// Adds a node; the first is node 0.
    pub fn add_node(&self) -> SimNode {
        let node = self.0.borrow_mut().add_node();
        SimNode::new(Rc::clone(&self.0), node)
    }

    /// Returns the virtual time since the network was created.
    pub fn now_ns(&self) -> u64 {
        self.0.borrow().now_ns
    }

    /// Moves to the next event that a worker or the owner of a timer notices. Returns `None` if no
    /// event is pending.
    pub fn advance(&self) -> Option<SimStep> {
        self.0.borrow_mut().advance()
    }

    /// Makes [`Network::advance`] return [`SimStep::Timer`] with this token at `at_ns`, or now if
    /// that time has passed.
    pub fn set_timer(&self, token: u64, at_ns: u64) {
        self.0.borrow_mut().set_timer(token, at_ns);
    }

    /// Kills a worker, as if its thread or process died. Requests that its adapter has not sent are
    /// lost; a WRITE may be cut off. Its node's memory stays. From now on the worker's handle posts
    /// and receives nothing.
    pub fn crash_worker(&self, worker: WorkerAddr) {
        self.0.borrow_mut().crash_worker(worker);
    }

    /// Kills a node with its workers and memory. Requests of its peers fail with
    /// [`VerbError::PeerDead`](crate::VerbError::PeerDead) after the time-out.
    pub fn crash_node(&self, node: FabricNode) {
        self.0.borrow_mut().crash_node(node);
    }
}
