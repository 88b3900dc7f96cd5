//! The state of a simulated network, and its events.

use super::events::Events;
use super::ops::Ops;
use super::sparse::SparseWords;
use super::{SimConfig, SimStep};
use crate::{Completion, FabricNode, QueueId, Request, ScratchRange, Verb, VerbError, WorkerAddr};
use clearway_env::SeededEntropy;
use std::collections::VecDeque;

/// One end of a queue pair: the requests it sends and the messages it receives.
#[derive(Default)]
pub(super) struct End {
    /// The worker that posts here; `None` while the accepting worker does not exist.
    pub worker: Option<usize>,
    /// The queue pair's number at its worker.
    pub id: u32,
    /// The nodes of this end and of the other end.
    pub here: usize,
    pub there: usize,
    /// The other end's index.
    pub other: usize,
    pub accepted: bool,
    pub broken: bool,
    /// The worker has disconnected.
    pub left: bool,
    /// Incomplete requests, oldest first. Those at `departed` and later wait for a fence.
    pub requests: VecDeque<u64>,
    pub departed: usize,
    /// Requests, and replies, of one queue pair do not overtake one another.
    pub last_arrival_ns: u64,
    pub last_reply_ns: u64,
    /// At the responder: the time by which every request of the kind that has arrived has taken
    /// effect.
    pub writes_until_ns: u64,
    pub atomics_until_ns: u64,
    pub reads_until_ns: u64,
    /// The words that WRITEs will still land on, with the times.
    pub landings: Vec<(Place, u64)>,
    /// The responder drops what arrives after a request that it refused.
    pub refused: bool,
    /// RECVs posted at this end, and messages that arrived for it, as the request that sent each.
    pub recvs: VecDeque<(u64, ScratchRange)>,
    pub inbox: VecDeque<u64>,
}

/// A request in flight.
pub(super) struct Op {
    pub end: usize,
    pub request: Request,
    pub payload: Vec<u64>,
    pub taken: bool,
    pub arrived: bool,
    /// The sender crashed and the payload was cut off.
    pub cut: bool,
    pub result: Option<Result<usize, VerbError>>,
}

pub(super) struct Memory {
    pub key: u64,
    pub words: SparseWords,
    pub registered: bool,
}

#[derive(Default)]
pub(super) struct Node {
    pub dead: bool,
    pub regions: Vec<Memory>,
    pub out_free_ns: u64,
    pub in_free_ns: u64,
    /// The adapter executes one atomic at a time.
    pub atomic_free_ns: u64,
}

pub(super) struct WorkerState {
    pub address: WorkerAddr,
    pub dead: bool,
    pub scratch: Vec<u64>,
    pub completions: VecDeque<Completion>,
    pub accepts: VecDeque<usize>,
    /// Its ends, by queue id.
    pub ends: Vec<usize>,
}

/// A word of registered memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub node: usize,
    pub region: usize,
    pub word: usize,
}

pub(super) enum Event {
    /// The request leaves its adapter.
    Depart(u64),
    /// The request is at its responder.
    Arrive(u64),
    /// A word of a WRITE, or the second half of a CAS or FAA, lands.
    Land(Place, u64),
    /// A word of a READ is read.
    Sample(u64, Place, usize),
    /// The first half of a CAS or FAA; the second half comes at the given time.
    Fetch(u64, Place, u64),
    /// A message reaches the inbox.
    Deliver(u64),
    /// The responder sends its reply.
    Answer(u64, Result<usize, VerbError>),
    /// The reply is at its requester.
    Reply(u64, Result<usize, VerbError>),
    /// The requester gives up on a dead peer.
    GiveUp(usize),
    Timer(u64),
}

pub(super) struct Core {
    pub config: SimConfig,
    pub rng: SeededEntropy,
    pub now_ns: u64,
    events: Events,
    pub steps: VecDeque<SimStep>,
    pub nodes: Vec<Node>,
    pub workers: Vec<WorkerState>,
    pub ends: Vec<End>,
    pub ops: Ops,
    /// Ends connected to a worker that does not exist yet.
    pub unclaimed: Vec<(WorkerAddr, usize)>,
}

impl Core {
    pub fn new(seed: u64, config: SimConfig) -> Self {
        Self {
            config,
            rng: SeededEntropy::new(seed),
            now_ns: 0,
            events: Events::default(),
            steps: VecDeque::new(),
            nodes: Vec::new(),
            workers: Vec::new(),
            ends: Vec::new(),
            ops: Ops::default(),
            unclaimed: Vec::new(),
        }
    }

    pub fn add_node(&mut self) -> FabricNode {
        self.nodes.push(Node::default());
        FabricNode(self.nodes.len() as u32 - 1)
    }

    pub fn set_timer(&mut self, token: u64, at_ns: u64) {
        self.schedule(at_ns, Event::Timer(token));
    }

    /// Draws a number uniformly from 0 to `most`.
    pub fn draw(&self, most: u64) -> u64 {
        self.rng.below(most.saturating_add(1))
    }

    pub fn schedule(&mut self, at_ns: u64, event: Event) {
        self.events.add(at_ns.max(self.now_ns), event);
    }

    pub fn advance(&mut self) -> Option<SimStep> {
        loop {
            if let Some(step) = self.steps.pop_front() {
                return Some(step);
            }
            let (at_ns, event) = self.events.pop()?;
            self.now_ns = at_ns;
            self.handle(event);
        }
    }

    /// Applies everything that has arrived for a region at once, in the order in which it would
    /// have taken effect.
    pub fn settle(&mut self, node: usize, region: usize) {
        let changes = |event: &Event| match event {
            Event::Land(place, _) | Event::Fetch(_, place, _) => {
                place.node == node && place.region == region
            }
            _ => false,
        };
        while let Some(event) = self.events.take_first(changes) {
            self.handle(event);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Depart(op) => self.depart(op),
            Event::Arrive(op) => self.arrive(op),
            Event::Land(place, value) => self.land(place, value),
            Event::Sample(op, place, index) => self.sample(op, place, index),
            Event::Fetch(op, place, store_ns) => self.fetch(op, place, store_ns),
            Event::Deliver(op) => self.deliver(op),
            Event::Answer(op, result) => self.answer(op, result),
            Event::Reply(op, result) => self.reply(op, result),
            Event::GiveUp(end) => self.give_up(end),
            Event::Timer(token) => self.steps.push_back(SimStep::Timer(token)),
        }
    }

    /// Queues a completion at the end's worker if the worker is alive.
    pub fn complete(&mut self, end: usize, id: u64, result: Result<usize, VerbError>) {
        let queue = QueueId(self.ends[end].id);
        let Some(worker) = self.ends[end].worker else { return };
        let worker = &mut self.workers[worker];
        if !worker.dead {
            worker.completions.push_back(Completion { queue, id, result });
            self.steps.push_back(SimStep::Worker(worker.address));
        }
    }

    /// Returns true if somebody may still receive the end's messages: its node is alive, and its
    /// worker is alive and has not disconnected, or does not exist yet.
    pub fn is_alive(&self, end: usize) -> bool {
        let end = &self.ends[end];
        !self.nodes[end.here].dead
            && !end.left
            && end.worker.is_none_or(|worker| !self.workers[worker].dead)
    }

    /// Returns true if the peer of this end will never answer the request.
    pub fn is_unanswerable(&self, end: usize, op: &Op) -> bool {
        self.nodes[self.ends[end].there].dead
            || (matches!(op.request.verb, Verb::Send { .. })
                && !self.is_alive(self.ends[end].other))
    }

    /// Draws the time of one trip between two adapters.
    pub fn flight_ns(&self, end: usize) -> u64 {
        let end = &self.ends[end];
        let base =
            if end.here == end.there { self.config.loopback_ns } else { self.config.latency_ns };
        base + self.draw(self.config.jitter_ns)
    }

    /// Occupies an adapter with one request or reply. Returns the time when it is free again.
    pub fn occupy(free_ns: &mut u64, now_ns: u64, config: &SimConfig, words: usize) -> u64 {
        *free_ns = (*free_ns).max(now_ns)
            + config.verb_ns
            + (words as u64 * config.word_ps).div_ceil(1000);
        *free_ns
    }
}
