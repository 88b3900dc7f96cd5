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
use clearway_env::{Entropy, OsEntropy};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::RecvFlags;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// The longest time that `wait` blocks.
const WAIT_TIME: Duration = Duration::from_millis(1);
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// Limits of the first and the last pause before a worker connects again because the peer has
/// closed its connection in the handshake. The peer does so if too many connect at once: see
/// [`MAX_UNPROVEN`](super::MAX_UNPROVEN). The pauses are random and grow, to spread them.
const FIRST_PAUSE_MS: u64 = 8;
const LAST_PAUSE_MS: u64 = 512;

/// A worker of a node.
pub struct TcpWorker {
    attachment: Arc<Attachment>,
    address: WorkerAddr,
    scratch: Vec<u64>,
    /// Queue pairs that have not ended.
    queues: BTreeMap<QueueId, Queue>,
    /// Numbers are never reused: requests for a queue pair that has ended are flushed.
    next_id: u32,
    mailbox: Arc<Mailbox>,
    /// Queue pairs that peers have connected and this worker has not accepted; and the queue pair
    /// of each connection.
    unaccepted: VecDeque<(QueueId, WorkerAddr)>,
    by_peer: HashMap<u64, QueueId>,
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
            queues: BTreeMap::new(),
            next_id: 0,
            mailbox,
            unaccepted: VecDeque::new(),
            by_peer: HashMap::new(),
            ready: VecDeque::new(),
            buffer: Vec::new(),
            out: Vec::new(),
        }
    }

    fn add_queue(&mut self, link: Link) -> QueueId {
        let id = QueueId(self.next_id);
        self.next_id += 1;
        self.queues.insert(id, Queue::new(link));
        id
    }

    fn shake_hands(&self, peer: WorkerAddr) -> Result<TcpStream, FabricError> {
        let state = &self.attachment.state;
        let address = state.peer(peer.node).ok_or(FabricError::UnknownPeer)?;
        let mut longest_ms = FIRST_PAUSE_MS;
        let stream = loop {
            let stream = TcpStream::connect_timeout(&address, handshake::TIME)?;
            match handshake::connect(&stream, &state.secret, self.address, peer) {
                Ok(()) => break stream,
                Err(handshake::Failure::Closed) if longest_ms <= LAST_PAUSE_MS => {}
                Err(why) => return Err(why.into()),
            }
            // No event tells when the peer has room.
            let pause_ns = OsEntropy.u64() % (longest_ms * 1_000_000);
            let pause = Timespec { tv_sec: 0, tv_nsec: pause_ns as i64 };
            let _ = rustix::event::poll(&mut [], Some(&pause));
            longest_ms *= 2;
        };
        // Each call says whether it blocks; `wait` may, for this long.
        stream.set_read_timeout(Some(WAIT_TIME))?;
        handshake::watch_peer(&stream)?;
        Ok(stream)
    }

    fn check(&self, queue: Option<&Queue>, batch: &[Request]) -> Result<(), PostError> {
        let limits = guarantees();
        for request in batch {
            let local = request.verb.scratch();
            if !local.fits(self.scratch.len()) || local.words > limits.max_words {
                return Err(PostError::BadRange);
            }
            let accepted = queue.is_some_and(|queue| matches!(queue.link, Link::Accepted(_)));
            if accepted && request.verb.remote().is_some() {
                return Err(PostError::OneSided);
            }
        }
        let Some(queue) = queue else { return Ok(()) };
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
                Mail::Closed(peer) => self.closed(peer),
            }
        }
    }

    fn connected(&mut self, peer: Arc<Peer>, from: WorkerAddr) {
        let number = peer.id;
        let id = self.add_queue(Link::Accepted(peer));
        self.by_peer.insert(number, id);
        self.unaccepted.push_back((id, from));
    }

    fn closed(&mut self, peer: u64) {
        // The adapter says it twice if it has refused a verb, and after `disconnect`.
        let Some(id) = self.by_peer.remove(&peer) else { return };
        self.unaccepted.retain(|(unaccepted, _)| *unaccepted != id);
        self.end(id, VerbError::PeerDead);
    }

    fn with_peer(&mut self, peer: u64, act: impl FnOnce(&mut Queue)) {
        if let Some(queue) = self.by_peer.get(&peer).and_then(|id| self.queues.get_mut(id)) {
            act(queue);
        }
    }

    /// Completes everything of a queue pair, the first incomplete request with `why`, and frees it
    /// with its connection.
    fn end(&mut self, id: QueueId, why: VerbError) {
        let Some(mut queue) = self.queues.remove(&id) else { return };
        let (scratch, out, ready) = (&mut self.scratch, &mut self.out, &mut self.ready);
        // RECVs that were posted receive what the peer sent before the end.
        progress(id, &mut queue, scratch, out, ready);
        queue.break_off(why);
        progress(id, &mut queue, scratch, out, ready);
    }
}

/// Matches messages with RECVs and collects completions.
fn progress(
    id: QueueId,
    queue: &mut Queue,
    scratch: &mut [u64],
    out: &mut Vec<u8>,
    ready: &mut VecDeque<Completion>,
) {
    let mut complete = |(request, result): Ended| {
        ready.push_back(Completion { queue: id, id: request, result });
    };
    out.clear();
    while let Some(ended) = queue.match_messages(scratch, out) {
        complete(ended);
    }
    if !out.is_empty() {
        queue.send(out);
    }
    while let Some(ended) = queue.next_ended() {
        complete(ended);
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
        let (input, output) = (Vec::new(), Vec::new());
        Ok(self.add_queue(Link::Connected { stream, input, output, sent: 0 }))
    }

    fn accept(&mut self) -> Option<(QueueId, WorkerAddr)> {
        self.take_mail();
        self.unaccepted.pop_front()
    }

    fn disconnect(&mut self, queue: QueueId) {
        if let Some(Queue { link: Link::Accepted(peer), .. }) = self.queues.get(&queue) {
            peer.close();
            self.by_peer.remove(&peer.id);
        }
        self.end(queue, VerbError::Flushed);
    }

    fn post(&mut self, queue: QueueId, batch: &[Request]) -> Result<(), PostError> {
        if queue.0 >= self.next_id {
            return Err(PostError::UnknownQueue);
        }
        self.check(self.queues.get(&queue), batch)?;
        let Some(open) = self.queues.get_mut(&queue) else {
            // It has ended.
            let result = Err(VerbError::Flushed);
            let flushed = |request: &Request| Completion { queue, id: request.id, result };
            self.ready.extend(batch.iter().map(flushed));
            return Ok(());
        };
        self.out.clear();
        for request in batch {
            open.add(*request, &self.scratch, &mut self.out);
        }
        if !self.out.is_empty() {
            open.send(&self.out);
        }
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        self.take_mail();
        for (id, queue) in &mut self.queues {
            if queue.is_waiting() {
                if !queue.broken && !queue.has_ended() {
                    queue.read(&mut self.scratch, &mut self.buffer, RecvFlags::DONTWAIT);
                }
                progress(*id, queue, &mut self.scratch, &mut self.out, &mut self.ready);
            }
        }
        let count = self.ready.len();
        completions.extend(self.ready.drain(..));
        count
    }

    fn wait(&mut self) {
        if !self.ready.is_empty() {
            return;
        }
        let mut waiting = self.queues.values_mut().filter(|queue| queue.is_waiting());
        // With a single connection and nothing else to wait for, read it directly as `poll` would.
        if let (Some(queue), None, true) = (waiting.next(), waiting.next(), self.by_peer.is_empty())
            && queue.waits_for_answer()
        {
            return queue.read(&mut self.scratch, &mut self.buffer, RecvFlags::empty());
        }
        let mut watched = vec![PollFd::from_borrowed_fd(self.mailbox.bell(), PollFlags::IN)];
        for queue in self.queues.values().filter(|queue| queue.is_waiting()) {
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
        self.queues.values_mut().for_each(Queue::leave);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{TcpConfig, TcpFabric};
    use super::*;
    use crate::{Fabric, FabricNode, ScratchRange};

    fn node(number: u32) -> TcpFabric {
        let (node, listen) = (FabricNode(number), "127.0.0.1:0".parse().unwrap());
        TcpFabric::bind(TcpConfig { node, listen, secret: b"sixteen bytes or more".into() })
            .unwrap()
    }

    /// Posts a RECV, unless it is posted already, and asserts that it is flushed.
    fn assert_flushed(worker: &mut TcpWorker, queue: QueueId, post: bool) {
        let recv = Request::new(5, Verb::Recv { local: ScratchRange::new(0, 1) });
        if post {
            worker.post(queue, &[recv]).unwrap();
        }
        let mut done = Vec::new();
        while worker.poll(&mut done) == 0 {
            worker.wait();
        }
        assert_eq!(done, [Completion { queue, id: 5, result: Err(VerbError::Flushed) }]);
    }

    /// A host that has lost power closes no connection.
    #[test]
    fn both_ends_probe_a_silent_peer() {
        let (a, b) = (node(0), node(1));
        a.add_peer(b.node(), b.address());
        let (mut client, mut server) = (a.worker(1, 4).unwrap(), b.worker(7, 4).unwrap());
        client.connect(server.address()).unwrap();
        server.take_mail();
        for worker in [&client, &server] {
            let stream = match &worker.queues.values().next().unwrap().link {
                Link::Connected { stream, .. } => stream,
                Link::Accepted(peer) => &peer.stream,
            };
            use rustix::net::sockopt;
            assert!(sockopt::socket_keepalive(stream).unwrap());
            let times = [
                sockopt::tcp_keepidle(stream).unwrap() + sockopt::tcp_keepintvl(stream).unwrap(),
                Duration::from_millis(sockopt::tcp_user_timeout(stream).unwrap().into()),
            ];
            assert!(times.iter().all(|time| *time <= handshake::TIME), "{times:?}");
        }
    }

    /// Whichever end leaves, both ends forget the queue pair, and its number stays in error.
    #[test]
    fn queue_pairs_that_have_ended_are_forgotten() {
        let (a, b) = (node(0), node(1));
        a.add_peer(b.node(), b.address());
        let (mut client, mut server) = (a.worker(1, 4).unwrap(), b.worker(7, 4).unwrap());
        let recv = Request::new(5, Verb::Recv { local: ScratchRange::new(0, 1) });
        for round in 0..6 {
            let connected = client.connect(server.address()).unwrap();
            let accepted = loop {
                match server.accept() {
                    Some((accepted, _)) => break accepted,
                    None => server.wait(),
                }
            };
            client.post(connected, &[recv]).unwrap();
            server.post(accepted, &[recv]).unwrap();
            match round % 3 {
                0 => client.disconnect(connected),
                1 => server.disconnect(accepted),
                _ => {
                    drop(client);
                    client = a.worker(1, 4).unwrap();
                    assert_flushed(&mut server, accepted, false);
                    continue;
                }
            }
            assert_flushed(&mut client, connected, false);
            assert_flushed(&mut server, accepted, false);
            // The connecting end frees a queue pair only when it is told.
            client.disconnect(connected);
            assert_flushed(&mut client, connected, true);
            assert_flushed(&mut server, accepted, true);
        }
        assert_eq!((client.queues.len(), server.queues.len(), server.by_peer.len()), (0, 0, 0));
        let next = QueueId(client.next_id);
        assert_eq!(client.post(next, &[recv]), Err(PostError::UnknownQueue));
    }
}
