//! Processors and messages of the simulated cluster, in the virtual time of its network.

use super::{Costs, MessageCosts};
use crate::{Incoming, Link, RemoteError, TxnHandle};
use clearway_fabric::sim::Network;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// The effect of a timer.
pub(super) enum Action {
    /// A client's transaction starts or restarts.
    Begin(usize, usize),
    /// The back-off of an aborted transaction has passed.
    Again(usize, usize),
    /// A processor of this queue may be idle.
    Idle(usize),
    /// The transaction's work on a row is done.
    GoOn(usize, TxnHandle),
    /// The worker polls for arrivals.
    Poll(usize),
    /// The worker polls its memory.
    Look(usize),
    Arrive(Message),
    Deliver(Message),
}

/// A message between endpoints. Endpoints are the workers, followed by the owners' servers.
pub(super) struct Message {
    from: usize,
    pub to: usize,
    words: Vec<u64>,
}

/// Virtual time, and until when each processor is busy.
pub(super) struct Model {
    network: Network,
    costs: Costs,
    messages: MessageCosts,
    /// By token. A token is reused after its timer has expired.
    actions: Vec<Option<Action>>,
    free_tokens: Vec<usize>,
    /// By worker. Those of a node are adjacent, and serve its messages, too.
    free_ns: Vec<u64>,
    workers_per_node: usize,
    /// The workers of a node take arrivals and new transactions from one queue.
    shared: bool,
    inboxes: Vec<VecDeque<Incoming>>,
}

impl Model {
    pub fn new(
        network: Network,
        costs: Costs,
        messages: MessageCosts,
        (nodes, workers_per_node): (usize, usize),
    ) -> Self {
        let workers = nodes * workers_per_node;
        Self {
            network,
            costs,
            messages,
            actions: Vec::new(),
            free_tokens: Vec::new(),
            free_ns: vec![0; workers],
            workers_per_node,
            shared: false,
            inboxes: (0..workers + nodes).map(|_| VecDeque::new()).collect(),
        }
    }

    pub fn at(&mut self, at_ns: u64, action: Action) {
        let token = self.free_tokens.pop().unwrap_or_else(|| {
            self.actions.push(None);
            self.actions.len() - 1
        });
        self.actions[token] = Some(action);
        self.network.set_timer(token as u64, at_ns);
    }

    pub fn take(&mut self, token: u64) -> Action {
        self.free_tokens.push(token as usize);
        self.actions[token as usize].take().expect("a timer expires once")
    }

    /// Makes the workers of a node take arrivals from one queue.
    pub fn with_shared_queues(self) -> Self {
        Self { shared: true, ..self }
    }

    /// Returns the number of queues: one per worker, or one per node.
    pub fn queues(&self) -> usize {
        if self.shared { self.inboxes.len() - self.free_ns.len() } else { self.free_ns.len() }
    }

    /// Returns the queue from which a worker takes its work.
    pub fn queue(&self, worker: usize) -> usize {
        if self.shared { self.node(worker) } else { worker }
    }

    /// Returns the time when a processor of the queue is idle: now, or later.
    pub fn idle_ns(&self, queue: usize) -> u64 {
        self.free_ns[self.first_free(queue)].max(self.network.now_ns())
    }

    /// Returns the processor of a queue that becomes free first.
    fn first_free(&self, queue: usize) -> usize {
        if !self.shared {
            return queue;
        }
        let first = queue * self.workers_per_node;
        let of_node = first..first + self.workers_per_node;
        of_node.min_by_key(|worker| self.free_ns[*worker]).expect("a node has workers")
    }

    /// Occupies the processor that runs a worker's transactions. Returns the time when it is done.
    pub fn work(&mut self, worker: usize, ns: u64) -> u64 {
        let processor = self.first_free(self.queue(worker));
        let free_ns = &mut self.free_ns[processor];
        *free_ns = (*free_ns).max(self.network.now_ns()) + ns;
        *free_ns
    }

    fn node(&self, endpoint: usize) -> usize {
        let workers = self.free_ns.len();
        if endpoint < workers { endpoint / self.workers_per_node } else { endpoint - workers }
    }

    /// Occupies a processor of the endpoint's node.
    fn work_at(&mut self, endpoint: usize, ns: u64) -> u64 {
        self.work(self.node(endpoint) * self.workers_per_node, ns)
    }

    fn send(&mut self, message: Message) {
        if self.node(message.from) == self.node(message.to) {
            let now_ns = self.network.now_ns();
            return self.at(now_ns, Action::Arrive(message));
        }
        let sent_ns = self.work_at(message.from, self.messages.send_ns);
        self.at(sent_ns + self.messages.wire_ns, Action::Arrive(message));
    }

    pub fn arrive(&mut self, message: Message) {
        let is_remote = self.node(message.from) != self.node(message.to);
        let receive_ns = if is_remote { self.messages.receive_ns + self.costs.queue_ns } else { 0 };
        let handle_ns = if message.to >= self.free_ns.len() { self.costs.handle_ns } else { 0 };
        let done_ns = self.work_at(message.to, receive_ns + handle_ns);
        self.at(done_ns, Action::Deliver(message));
    }

    pub fn deliver(&mut self, message: Message) {
        let incoming = Incoming::Message(self.peer(message.from), message.words);
        self.inboxes[message.to].push_back(incoming);
    }

    /// Returns an endpoint's number among the peers of the other kind.
    fn peer(&self, endpoint: usize) -> usize {
        endpoint.checked_sub(self.free_ns.len()).unwrap_or(endpoint)
    }
}

/// An endpoint's messages.
pub(super) struct ModelLink {
    pub model: Rc<RefCell<Model>>,
    pub endpoint: usize,
}

impl Link for ModelLink {
    fn send(&mut self, peer: usize, words: &[u64]) -> Result<(), RemoteError> {
        let mut model = self.model.borrow_mut();
        let workers = model.free_ns.len();
        let to = if self.endpoint < workers { workers + peer } else { peer };
        model.send(Message { from: self.endpoint, to, words: words.to_vec() });
        Ok(())
    }

    fn poll(&mut self, incoming: &mut Vec<Incoming>) -> Result<(), RemoteError> {
        incoming.extend(self.model.borrow_mut().inboxes[self.endpoint].drain(..));
        Ok(())
    }
}
