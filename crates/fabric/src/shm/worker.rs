//! A worker: executes one-sided verbs when they are posted, and moves messages when it polls.

use super::channel::{ACCEPTOR, BROKEN, CONNECTOR, ChannelEnd, TOO_LONG};
use super::node::{Attachment, guarantees};
use super::segment::Segment;
use crate::words::Executor;
use crate::{
    Completion, FabricError, FabricWorker, Guarantees, PostError, QueueId, Request, ScratchRange,
    Verb, VerbError, WorkerAddr,
};
use clearway_env::{Clock, OsClock};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// `wait` checks for dead peers once in this many calls.
const WAITS_PER_CHECK: u32 = 64;

/// Returns true if a process has not ended, or if that cannot be determined.
pub(super) fn is_alive(pid: Pid) -> bool {
    match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => {
            let mut ended = [PollFd::new(&process, PollFlags::IN)];
            let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            !matches!(rustix::event::poll(&mut ended, Some(&now)), Ok(1))
        }
        Err(why) => why != rustix::io::Errno::SRCH,
    }
}

/// A worker of a segment.
pub struct ShmWorker {
    attachment: Arc<Attachment>,
    address: WorkerAddr,
    slot: usize,
    scratch: Vec<u64>,
    executor: Executor,
    queues: Vec<Queue>,
    /// Completions, each with the time at which `poll` may return it.
    ready: VecDeque<(Duration, Completion)>,
    /// The segment's count of connections when all channels had last been checked.
    connections_seen: u64,
    waits: u32,
}

struct Queue {
    end: ChannelEnd,
    peer: WorkerAddr,
    /// The process that connected, or that of the peer's node when this worker connected; `None` if
    /// it had already ended. Another process may be attached as the node when this worker accepts.
    process: Option<Pid>,
    /// That process has ended.
    gone: bool,
    /// A message that does not fit into the ring yet, and the requests after it, each with its
    /// payload. The payload of a message is its length and words, or the rest of them.
    stalled: VecDeque<(Request, Vec<u64>)>,
    /// Executed or in flight: finished with a result, or finished once the peer has consumed the
    /// ring up to `at`.
    sent: VecDeque<(u64, Sent)>,
    recvs: VecDeque<(u64, ScratchRange)>,
    /// The message that is arriving: its RECV, its range, its length, and the words received so
    /// far.
    arriving: Option<(u64, ScratchRange, usize, usize)>,
    head: u64,
    tail: u64,
    broken: bool,
}

enum Sent {
    Done(Result<usize, VerbError>),
    Taken { at: u64, words: usize },
}

impl ShmWorker {
    pub(super) fn new(
        attachment: Arc<Attachment>,
        address: WorkerAddr,
        slot: usize,
        scratch_words: usize,
    ) -> Self {
        Self {
            attachment,
            address,
            slot,
            scratch: vec![0; scratch_words],
            executor: Executor::default(),
            queues: Vec::new(),
            ready: VecDeque::new(),
            connections_seen: 0,
            waits: 0,
        }
    }

    fn add_queue(&mut self, end: ChannelEnd, peer: WorkerAddr, process: Option<Pid>) -> QueueId {
        self.queues.push(Queue {
            end,
            peer,
            process,
            gone: false,
            stalled: VecDeque::new(),
            sent: VecDeque::new(),
            recvs: VecDeque::new(),
            arriving: None,
            head: 0,
            tail: 0,
            broken: false,
        });
        QueueId(self.queues.len() as u32 - 1)
    }

    fn check(&self, queue: &Queue, batch: &[Request]) -> Result<(), PostError> {
        let limits = guarantees();
        for request in batch {
            let local = request.verb.scratch();
            if !local.fits(self.scratch.len()) || local.words > limits.max_words {
                return Err(PostError::BadRange);
            }
            if queue.end.end == ACCEPTOR && request.verb.remote().is_some() {
                return Err(PostError::OneSided);
            }
        }
        let recvs = batch.iter().filter(|r| matches!(r.verb, Verb::Recv { .. })).count();
        let sent = queue.sent.len() + queue.stalled.len() + batch.len() - recvs;
        let offered = queue.recvs.len() + usize::from(queue.arriving.is_some()) + recvs;
        if sent.max(offered) > limits.queue_depth { Err(PostError::QueueFull) } else { Ok(()) }
    }

    /// Executes a request, unless it must wait for an earlier message or for room in the ring.
    fn execute(&mut self, index: usize, request: Request) {
        let segment = &self.attachment.segment;
        let queue = &mut self.queues[index];
        if queue.broken {
            queue.sent.push_back((request.id, Sent::Done(Err(VerbError::Flushed))));
            return;
        }
        let local = request.verb.scratch();
        let words = &self.scratch[local.start..local.start + local.words];
        let carried = || match request.verb {
            Verb::Write { .. } => words.to_vec(),
            Verb::Send { .. } => [&[local.words as u64], words].concat(),
            _ => Vec::new(),
        };
        if !queue.stalled.is_empty() {
            queue.stalled.push_back((request, carried()));
        } else if matches!(request.verb, Verb::Send { .. }) {
            queue.send(segment, request, carried());
        } else {
            let result =
                one_sided(segment, &mut self.executor, &mut self.scratch, request.verb, None);
            queue.end_with(segment, request.id, result);
        }
    }

    /// Sends stalled messages that now fit, and receives messages that have arrived.
    fn progress(&mut self, index: usize) {
        let segment = &self.attachment.segment;
        let queue = &mut self.queues[index];
        while let Some((request, carried)) = queue.stalled.pop_front() {
            if matches!(request.verb, Verb::Send { .. }) {
                if !queue.send(segment, request, carried) {
                    break;
                }
            } else {
                let result = one_sided(
                    segment,
                    &mut self.executor,
                    &mut self.scratch,
                    request.verb,
                    Some(&carried),
                );
                queue.end_with(segment, request.id, result);
            }
        }
        // Acquire: pairs with the Release in `drop` and `disconnect`. What the peer sent and
        // consumed before is visible below.
        let gone = queue.gone || queue.end.other().closed(segment).load(Ordering::Acquire) != 0;
        let due = due(self.attachment.latency);
        let id = QueueId(index as u32);
        let ready = &mut self.ready;
        queue.receive(segment, &mut self.scratch, |recv, result| {
            ready.push_back((due, Completion { queue: id, id: recv, result }));
        });
        // Acquire: pairs with the Release of the end that broke the queue pair.
        match queue.end.error(segment).load(Ordering::Acquire) {
            0 => {}
            why if why == TOO_LONG + queue.end.end as u64 => {
                queue.break_off(segment, VerbError::MessageTooLong)
            }
            _ => queue.break_off(segment, VerbError::Flushed),
        }
        if gone {
            queue.notice_death(segment);
        }
        if queue.broken {
            let flushed = queue.arriving.take().map(|(recv, ..)| recv).into_iter();
            for recv in flushed.chain(queue.recvs.drain(..).map(|(recv, _)| recv)) {
                ready.push_back((
                    due,
                    Completion { queue: id, id: recv, result: Err(VerbError::Flushed) },
                ));
            }
        }
        self.complete(index);
    }

    /// Queues the completions of finished requests, in order.
    fn complete(&mut self, index: usize) {
        let queue = &mut self.queues[index];
        let due = due(self.attachment.latency);
        while let Some((id, sent)) = queue.sent.front() {
            let result = match *sent {
                Sent::Done(result) => result,
                Sent::Taken { at, words } if queue.has_taken(&self.attachment.segment, at) => {
                    Ok(words)
                }
                Sent::Taken { .. } => return,
            };
            let completion = Completion { queue: QueueId(index as u32), id: *id, result };
            queue.sent.pop_front();
            self.ready.push_back((due, completion));
        }
    }
}

/// Returns the time at which a completion of now is due. Without latency the clock is not read.
fn due(latency: Duration) -> Duration {
    if latency.is_zero() { Duration::ZERO } else { OsClock.monotonic() + latency }
}

/// Executes a READ, WRITE, CAS or FAA. A WRITE that had to wait carries its words.
fn one_sided(
    segment: &Segment,
    executor: &mut Executor,
    scratch: &mut [u64],
    verb: Verb,
    carried: Option<&[u64]>,
) -> Result<usize, VerbError> {
    let local = verb.scratch();
    let remote = verb.remote().expect("the verb is one-sided");
    let words =
        segment.find(remote.key, remote.word, local.words).ok_or(VerbError::RemoteAccess)?;
    let scratch = &mut scratch[local.start..local.start + local.words];
    match verb {
        Verb::Write { .. } => executor.write(words, carried.unwrap_or(scratch)),
        Verb::Cas { expected, new, .. } => scratch[0] = executor.cas(&words[0], expected, new),
        Verb::Faa { add, .. } => scratch[0] = executor.faa(&words[0], add),
        _ => executor.read(words, scratch),
    }
    Ok(local.words)
}

impl Queue {
    /// Pushes a message, or the rest of one, into the ring. Returns true if all of it fit;
    /// otherwise the rest stalls.
    fn send(&mut self, segment: &Segment, request: Request, mut left: Vec<u64>) -> bool {
        let pushed = self.end.push(segment, &mut self.head, &left);
        if pushed < left.len() {
            left.drain(..pushed);
            self.stalled.push_front((request, left));
            return false;
        }
        self.sent.push_back((
            request.id,
            Sent::Taken { at: self.head, words: request.verb.scratch().words },
        ));
        true
    }

    fn end_with(&mut self, segment: &Segment, id: u64, result: Result<usize, VerbError>) {
        self.sent.push_back((id, Sent::Done(result)));
        if result.is_err() {
            self.broken = true;
            self.flush_stalled();
            // Earlier messages that the peer has not received.
            let taken = self.end.consumed(segment);
            for (_, sent) in &mut self.sent {
                if matches!(*sent, Sent::Taken { at, .. } if taken.wrapping_sub(at) >= 1 << 63) {
                    *sent = Sent::Done(Err(VerbError::Flushed));
                }
            }
            // Release: pairs with the Acquire in `progress`. The first reason stays.
            let _ = self.end.error(segment).compare_exchange(
                0,
                BROKEN,
                Ordering::Release,
                Ordering::Relaxed,
            );
        }
    }

    fn flush_stalled(&mut self) {
        for (request, _) in self.stalled.drain(..) {
            self.sent.push_back((request.id, Sent::Done(Err(VerbError::Flushed))));
        }
    }

    fn has_taken(&self, segment: &Segment, at: u64) -> bool {
        self.end.consumed(segment).wrapping_sub(at) < 1 << 63
    }

    /// Receives messages into RECVs and reports the RECVs that have finished.
    fn receive(
        &mut self,
        segment: &Segment,
        scratch: &mut [u64],
        mut ended: impl FnMut(u64, Result<usize, VerbError>),
    ) {
        loop {
            if self.arriving.is_none() {
                let Some(&(recv, local)) = self.recvs.front() else { return };
                let mut words = [0];
                if self.broken || self.end.pull(segment, &mut self.tail, &mut words) == 0 {
                    return;
                }
                self.recvs.pop_front();
                if words[0] > local.words as u64 {
                    ended(recv, Err(VerbError::MessageTooLong));
                    let why = TOO_LONG + self.end.other().end as u64;
                    // Release: pairs with the Acquire in `progress`. The first reason stays.
                    let _ = self.end.error(segment).compare_exchange(
                        0,
                        why,
                        Ordering::Release,
                        Ordering::Relaxed,
                    );
                    return;
                }
                self.arriving = Some((recv, local, words[0] as usize, 0));
            }
            let Some((recv, local, words, here)) = &mut self.arriving else { return };
            let out = &mut scratch[local.start + *here..local.start + *words];
            *here += self.end.pull(segment, &mut self.tail, out);
            if here < words {
                return;
            }
            ended(*recv, Ok(*words));
            self.arriving = None;
        }
    }

    /// Fails the requests in flight: the first one that was not consumed with `why`, the others as
    /// flushed.
    fn break_off(&mut self, segment: &Segment, why: VerbError) {
        if self.broken {
            return;
        }
        self.broken = true;
        self.flush_stalled();
        let taken = self.end.consumed(segment);
        let mut why = Some(why);
        let mut flushed = false;
        for (_, sent) in &mut self.sent {
            let is_taken = match *sent {
                // Of a message that was too long, the length was consumed but not the words.
                Sent::Taken { at, .. } => !flushed && taken.wrapping_sub(at) < 1 << 63,
                Sent::Done(result) => result.is_ok() && !flushed,
            };
            if !is_taken {
                flushed = true;
                *sent = Sent::Done(Err(why.take().unwrap_or(VerbError::Flushed)));
            }
        }
    }

    /// Handles the peer's death: it consumes no more words and sends no more messages.
    fn notice_death(&mut self, segment: &Segment) {
        let waits = |(_, sent): &(u64, Sent)| matches!(*sent, Sent::Taken { at, .. } if !self.has_taken(segment, at));
        let offers = !self.recvs.is_empty() || self.arriving.is_some();
        if offers || !self.stalled.is_empty() || self.sent.iter().any(waits) {
            self.break_off(segment, VerbError::PeerDead);
            // Release: pairs with the Acquire in `progress` of a worker that accepts the other end
            // later.
            let _ = self.end.error(segment).compare_exchange(
                0,
                BROKEN,
                Ordering::Release,
                Ordering::Relaxed,
            );
        }
    }

    /// Returns true if the peer's process has ended.
    fn has_lost_process(&self, segment: &Segment) -> bool {
        self.process
            .is_none_or(|pid| segment.process(self.peer.node) != Some(pid) || !is_alive(pid))
    }

    fn waits_for_peer(&self) -> bool {
        !(self.sent.is_empty()
            && self.stalled.is_empty()
            && self.recvs.is_empty()
            && self.arriving.is_none())
    }
}

impl FabricWorker for ShmWorker {
    fn address(&self) -> WorkerAddr {
        self.address
    }

    fn guarantees(&self) -> Guarantees {
        guarantees()
    }

    fn connect(&mut self, peer: WorkerAddr) -> Result<QueueId, FabricError> {
        let segment = &self.attachment.segment;
        let process = segment.process(peer.node).ok_or(FabricError::UnknownPeer)?;
        let end = ChannelEnd::connect(segment, self.address, peer)
            .ok_or(FabricError::Limit("queue pairs"))?;
        debug_assert_eq!(end.end, CONNECTOR);
        Ok(self.add_queue(end, peer, Some(process)))
    }

    fn accept(&mut self) -> Option<(QueueId, WorkerAddr)> {
        let segment = &self.attachment.segment;
        // Acquire: pairs with the Release in `ChannelEnd::connect`; those channels are connected.
        let connections = segment.connections().load(Ordering::Acquire);
        if connections == self.connections_seen {
            return None;
        }
        let mut channels = 0..segment.channels_taken();
        match channels.find_map(|channel| ChannelEnd::accept(segment, channel, self.address)) {
            Some((end, from, process)) => Some((self.add_queue(end, from, process), from)),
            None => {
                self.connections_seen = connections;
                None
            }
        }
    }

    fn disconnect(&mut self, queue: QueueId) {
        let segment = &self.attachment.segment;
        if let Some(queue) = self.queues.get_mut(queue.0 as usize) {
            queue.break_off(segment, VerbError::Flushed);
            // Release: pairs with the Acquire in `progress`, as in `drop`.
            queue.end.closed(segment).store(1, Ordering::Release);
        }
    }

    fn post(&mut self, queue: QueueId, batch: &[Request]) -> Result<(), PostError> {
        let index = queue.0 as usize;
        self.check(self.queues.get(index).ok_or(PostError::UnknownQueue)?, batch)?;
        for request in batch {
            match request.verb {
                Verb::Recv { local } => self.queues[index].recvs.push_back((request.id, local)),
                _ => self.execute(index, *request),
            }
        }
        self.complete(index);
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        for index in 0..self.queues.len() {
            if self.queues[index].waits_for_peer() {
                self.progress(index);
            }
        }
        if self.ready.is_empty() {
            return 0;
        }
        let now = due(self.attachment.latency).saturating_sub(self.attachment.latency);
        let before = completions.len();
        while let Some((due, completion)) = self.ready.front()
            && *due <= now
        {
            completions.push(*completion);
            self.ready.pop_front();
        }
        completions.len() - before
    }

    fn wait(&mut self) {
        self.waits = self.waits.wrapping_add(1);
        if self.waits.is_multiple_of(WAITS_PER_CHECK) {
            let segment = &self.attachment.segment;
            for queue in
                self.queues.iter_mut().filter(|queue| !queue.broken && queue.waits_for_peer())
            {
                queue.gone = queue.has_lost_process(segment);
            }
        }
        std::thread::yield_now();
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

impl Drop for ShmWorker {
    fn drop(&mut self) {
        let segment = &self.attachment.segment;
        for queue in &self.queues {
            // Release: pairs with the Acquire in `progress`.
            queue.end.closed(segment).store(1, Ordering::Release);
        }
        let port = segment.layout.ports().start + self.slot;
        // Relaxed: an address, which publishes nothing.
        segment.word(port).store(0, Ordering::Relaxed);
    }
}
