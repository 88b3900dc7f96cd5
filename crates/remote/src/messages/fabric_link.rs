//! Messages over SEND and RECV of a fabric.
//!
//! Each queue pair has one receive buffer and one send buffer for each request that the peer may
//! have in flight. A receive buffer is posted again as soon as it has been read.
//!
//! A RECV is always posted for each peer. If the fabric flushes it when the peer goes away
//! ([`recvs_end_with_peer`](clearway_fabric::Guarantees::recvs_end_with_peer)), the link reports a
//! silent peer as gone. Otherwise it reports that once something is sent to the peer.

use super::link::{Incoming, Link};
use crate::RemoteError;
use clearway_fabric::{
    Completion, FabricWorker, PostError, QueueId, Request, ScratchRange, Verb, VerbError,
    WorkerAddr,
};
use std::collections::VecDeque;

struct Peer {
    queue: QueueId,
    free: Vec<usize>,
    /// Messages without a free buffer: at most one for each request of the peer.
    waiting: VecDeque<Vec<u64>>,
    gone: bool,
}

/// Messages over queue pairs of one worker.
pub struct FabricLink<W> {
    fabric: W,
    peers: Vec<Peer>,
    max_peers: usize,
    /// Concurrent messages of one peer, in each direction.
    depth: usize,
    message_words: usize,
    completions: Vec<Completion>,
    incoming: Vec<Incoming>,
}

impl<W: FabricWorker> FabricLink<W> {
    /// Returns the scratch words for `peers` with `depth` messages in flight each.
    pub fn scratch_words(peers: usize, depth: usize, message_words: usize) -> usize {
        peers * depth * 2 * message_words
    }

    /// Creates a link of at most `max_peers`; more are rejected. Both ends must have the same
    /// `depth` and `message_words`.
    ///
    /// # Panics
    /// Panics if the scratch area is smaller than [`FabricLink::scratch_words`].
    pub fn new(fabric: W, max_peers: usize, depth: usize, message_words: usize) -> Self {
        assert!(fabric.scratch_words() >= Self::scratch_words(max_peers, depth, message_words));
        let (peers, completions, incoming) = (Vec::new(), Vec::new(), Vec::new());
        Self { fabric, peers, max_peers, depth, message_words, completions, incoming }
    }

    /// Connects to the next peer.
    ///
    /// # Errors
    /// Returns [`RemoteError::Fabric`] if it cannot be reached, and [`RemoteError::Post`] if the
    /// fabric rejects the buffers.
    pub fn connect(&mut self, peer: WorkerAddr) -> Result<(), RemoteError> {
        let queue = self.fabric.connect(peer).map_err(RemoteError::Fabric)?;
        self.add(queue)
    }

    /// Returns the underlying worker, to wait for completions.
    pub fn fabric(&mut self) -> &mut W {
        &mut self.fabric
    }

    fn add(&mut self, queue: QueueId) -> Result<(), RemoteError> {
        let peer = self.peers.len();
        let (free, waiting) = ((self.depth..2 * self.depth).collect(), VecDeque::new());
        self.peers.push(Peer { queue, free, waiting, gone: false });
        (0..self.depth).try_for_each(|buffer| self.offer(peer, buffer))
    }

    fn start(&self, peer: usize, buffer: usize) -> usize {
        (peer * 2 * self.depth + buffer) * self.message_words
    }

    fn id(&self, peer: usize, buffer: usize) -> u64 {
        (peer * 2 * self.depth + buffer) as u64
    }

    fn offer(&mut self, peer: usize, buffer: usize) -> Result<(), RemoteError> {
        let local = ScratchRange::new(self.start(peer, buffer), self.message_words);
        let recv = Request::new(self.id(peer, buffer), Verb::Recv { local });
        self.fabric.post(self.peers[peer].queue, &[recv]).map_err(RemoteError::Post)
    }

    fn send_now(&mut self, peer: usize, words: &[u64]) -> Result<bool, RemoteError> {
        let Some(buffer) = self.peers[peer].free.pop() else { return Ok(false) };
        let start = self.start(peer, buffer);
        self.fabric.store_range(start, words);
        let send = Verb::Send { local: ScratchRange::new(start, words.len()) };
        match self.fabric.post(self.peers[peer].queue, &[Request::new(self.id(peer, buffer), send)])
        {
            Ok(()) => Ok(true),
            Err(PostError::QueueFull) => {
                self.peers[peer].free.push(buffer);
                Ok(false)
            }
            Err(why) => Err(RemoteError::Post(why)),
        }
    }

    fn complete(&mut self, completion: Completion) -> Result<(), RemoteError> {
        let place = completion.id as usize;
        let (peer, buffer) = (place / (2 * self.depth), place % (2 * self.depth));
        match completion.result {
            Ok(words) if buffer < self.depth => {
                let mut message = vec![0; words];
                self.fabric.load_range(self.start(peer, buffer), &mut message);
                self.incoming.push(Incoming::Message(peer, message));
                self.offer(peer, buffer)
            }
            Ok(_) => {
                self.peers[peer].free.push(buffer);
                let Some(words) = self.peers[peer].waiting.pop_front() else { return Ok(()) };
                if !self.send_now(peer, &words)? {
                    self.peers[peer].waiting.push_front(words);
                }
                Ok(())
            }
            Err(
                VerbError::RemoteAccess
                | VerbError::MessageTooLong
                | VerbError::Flushed
                | VerbError::PeerDead,
            ) => {
                if !std::mem::replace(&mut self.peers[peer].gone, true) {
                    self.incoming.push(Incoming::Gone(peer));
                }
                Ok(())
            }
        }
    }
}

impl<W: FabricWorker> Link for FabricLink<W> {
    fn send(&mut self, peer: usize, words: &[u64]) -> Result<(), RemoteError> {
        assert!(words.len() <= self.message_words, "a message of {} words", words.len());
        if self.peers[peer].gone {
            return Ok(());
        }
        if !self.peers[peer].waiting.is_empty() || !self.send_now(peer, words)? {
            self.peers[peer].waiting.push_back(words.to_vec());
        }
        Ok(())
    }

    fn poll(&mut self, incoming: &mut Vec<Incoming>) -> Result<(), RemoteError> {
        while self.peers.len() < self.max_peers
            && let Some((queue, _)) = self.fabric.accept()
        {
            self.add(queue)?;
        }
        let mut completions = std::mem::take(&mut self.completions);
        self.fabric.poll(&mut completions);
        for completion in completions.drain(..) {
            self.complete(completion)?;
        }
        self.completions = completions;
        incoming.append(&mut self.incoming);
        Ok(())
    }
}
