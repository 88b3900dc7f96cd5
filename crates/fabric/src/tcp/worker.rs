//! A worker: its queue pairs, its mailbox, its scratch area.

use super::handshake;
use super::mailbox::{Mail, Mailbox};
use super::node::{Attachment, guarantees};
use super::peer::Peer;
use super::queue::{Ended, Link, Queue};
use crate::{
    Completion, FabricError, FabricWorker, Guarantees, PostError, QueueId, Request, Verb,
    VerbError, WorkerAddr,
};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::RecvFlags;
use std::collections::{HashMap, VecDeque};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// The longest time that `wait` blocks.
const WAIT_TIME: Duration = Duration::from_millis(1);
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// A worker of a node.
pub struct TcpWorker {
    attachment: Arc<Attachment>,
    address: WorkerAddr,
    scratch: Vec<u64>,
    queues: Vec<Queue>,
    mailbox: Arc<Mailbox>,
    /// Queue pairs that peers have connected and this worker has not accepted; and the queue of
    /// each connection.
    unaccepted: VecDeque<(usize, WorkerAddr)>,
    by_peer: HashMap<u64, usize>,
    /// Accepted queue pairs get their number when they are accepted.
    ids: Vec<usize>,
    ready: VecDeque<Completion>,
    buffer: Vec<u8>,
    out: Vec<u8>,
}

impl TcpWorker {
    pub(super) fn new(
        attachment: Arc<Attachment>,
        address: WorkerAddr,
        mailbox: Arc<Mailbox>,
        scratch_words: usize,
    ) -> Self {
        Self {
            attachment,
            address,
            scratch: vec![0; scratch_words],
            queues: Vec::new(),
            mailbox,
            unaccepted: VecDeque::new(),
            by_peer: HashMap::new(),
            ids: Vec::new(),
            ready: VecDeque::new(),
            buffer: Vec::new(),
            out: Vec::new(),
        }
    }

    fn number(&mut self, index: usize) -> QueueId {
        self.ids.push(index);
        QueueId(self.ids.len() as u32 - 1)
    }

    fn shake_hands(&self, peer: WorkerAddr) -> Result<TcpStream, FabricError> {
        let state = &self.attachment.state;
        let address = state.peer(peer.node).ok_or(FabricError::UnknownPeer)?;
        let stream = TcpStream::connect_timeout(&address, handshake::TIME)?;
        handshake::connect(&stream, &state.secret, self.address, peer)?;
        // Each call says whether it blocks; `wait` may, for this long.
        stream.set_read_timeout(Some(WAIT_TIME))?;
        Ok(stream)
    }

    fn check(&self, queue: &Queue, batch: &[Request]) -> Result<(), PostError> {
        let limits = guarantees();
        for request in batch {
            let local = request.verb.scratch();
            if !local.fits(self.scratch.len()) || local.words > limits.max_words {
                return Err(PostError::BadRange);
            }
            if matches!(queue.link, Link::Accepted(_)) && request.verb.remote().is_some() {
                return Err(PostError::OneSided);
            }
        }
        let recvs = batch.iter().filter(|r| matches!(r.verb, Verb::Recv { .. })).count();
        let (sent, offered) = queue.lengths();
        if (sent + batch.len() - recvs).max(offered + recvs) > limits.queue_depth {
            return Err(PostError::QueueFull);
        }
        Ok(())
    }

    fn take_mail(&mut self) {
        for mail in self.mailbox.take() {
            match mail {
                Mail::Connected(peer, from) => self.connected(peer, from),
                Mail::Message(peer, words) => self.with_peer(peer, |queue| queue.message(words)),
                // A SendDone without a SEND: the peer is faulty.
                Mail::SendDone(peer, status) => self.with_peer(peer, |queue| {
                    if queue.send_done(status).is_err() {
                        queue.break_off(VerbError::PeerDead);
                    }
                }),
                Mail::Closed(peer) => {
                    // RECVs that were posted receive what the peer sent before it closed.
                    let index = self.by_peer.get(&peer);
                    let id = index.and_then(|index| self.ids.iter().position(|id| id == index));
                    id.into_iter().for_each(|id| self.progress(id));
                    self.with_peer(peer, |queue| queue.break_off(VerbError::PeerDead));
                }
            }
        }
    }

    fn connected(&mut self, peer: Arc<Peer>, from: WorkerAddr) {
        let index = self.queues.len();
        self.by_peer.insert(peer.id, index);
        self.queues.push(Queue::new(Link::Accepted(peer)));
        self.unaccepted.push_back((index, from));
    }

    fn with_peer(&mut self, peer: u64, act: impl FnOnce(&mut Queue)) {
        if let Some(index) = self.by_peer.get(&peer) {
            act(&mut self.queues[*index]);
        }
    }

    /// Matches messages with RECVs and collects completions.
    fn progress(&mut self, id: usize) {
        let queue = &mut self.queues[self.ids[id]];
        let ready = &mut self.ready;
        let mut complete = |(request, result): Ended| {
            ready.push_back(Completion { queue: QueueId(id as u32), id: request, result });
        };
        self.out.clear();
        while let Some(ended) = queue.match_messages(&mut self.scratch, &mut self.out) {
            complete(ended);
        }
        if !self.out.is_empty() {
            queue.send(&self.out);
        }
        while let Some(ended) = queue.next_ended() {
            complete(ended);
        }
    }
}

impl FabricWorker for TcpWorker {
    fn address(&self) -> WorkerAddr {
        self.address
    }

    fn guarantees(&self) -> Guarantees {
        guarantees()
    }

    fn connect(&mut self, peer: WorkerAddr) -> Result<QueueId, FabricError> {
        let stream = self.shake_hands(peer)?;
        self.queues.push(Queue::new(Link::Connected {
            stream,
            input: Vec::new(),
            output: Vec::new(),
            sent: 0,
        }));
        Ok(self.number(self.queues.len() - 1))
    }

    fn accept(&mut self) -> Option<(QueueId, WorkerAddr)> {
        self.take_mail();
        let (index, from) = self.unaccepted.pop_front()?;
        Some((self.number(index), from))
    }

    fn post(&mut self, queue: QueueId, batch: &[Request]) -> Result<(), PostError> {
        let index = *self.ids.get(queue.0 as usize).ok_or(PostError::UnknownQueue)?;
        self.check(&self.queues[index], batch)?;
        self.out.clear();
        for request in batch {
            self.queues[index].add(*request, &self.scratch, &mut self.out);
        }
        if !self.out.is_empty() {
            self.queues[index].send(&self.out);
        }
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        self.take_mail();
        for id in 0..self.ids.len() {
            let queue = &mut self.queues[self.ids[id]];
            if queue.is_waiting() {
                if !queue.broken && !queue.has_ended() {
                    queue.read(&mut self.scratch, &mut self.buffer, RecvFlags::DONTWAIT);
                }
                self.progress(id);
            }
        }
        let count = self.ready.len();
        completions.extend(self.ready.drain(..));
        count
    }

    fn wait(&mut self) {
        let mut waiting = self.queues.iter_mut().filter(|queue| queue.is_waiting());
        // With a single connection and nothing else to wait for, read it directly as `poll` would.
        if let (Some(queue), None, true) = (waiting.next(), waiting.next(), self.by_peer.is_empty())
            && queue.waits_for_answer()
        {
            return queue.read(&mut self.scratch, &mut self.buffer, RecvFlags::empty());
        }
        let mut watched = vec![PollFd::from_borrowed_fd(self.mailbox.bell(), PollFlags::IN)];
        for queue in self.queues.iter().filter(|queue| queue.is_waiting()) {
            if queue.broken || queue.has_ended() {
                return;
            }
            if let Link::Connected { stream, output, .. } = &queue.link {
                let room = if output.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
                watched.push(PollFd::new(stream, PollFlags::IN | room));
            }
        }
        // The result does not matter: the caller polls again.
        let _ = rustix::event::poll(&mut watched, Some(&WAIT));
    }

    fn scratch_words(&self) -> usize {
        self.scratch.len()
    }

    fn load(&self, word: usize) -> u64 {
        self.scratch[word]
    }

    fn store(&mut self, word: usize, value: u64) {
        self.scratch[word] = value;
    }
}

impl Drop for TcpWorker {
    fn drop(&mut self) {
        self.take_mail();
        let late = self.attachment.state.close(self.address.port, &self.mailbox);
        for mail in late {
            match mail {
                Mail::Connected(peer, from) => self.connected(peer, from),
                Mail::Message(peer, _) => self.with_peer(peer, |queue| queue.message(Vec::new())),
                Mail::SendDone(..) | Mail::Closed(_) => {}
            }
        }
        self.queues.iter_mut().for_each(Queue::leave);
    }
}
