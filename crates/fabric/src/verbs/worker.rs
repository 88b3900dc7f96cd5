//! A worker: posts to the device and polls its completion queues.

use super::memory::Memory;
use super::node::Attachment;
use super::setup::Link;
use crate::{
    Completion, FabricError, FabricWorker, Guarantees, PostError, QueueId, RemoteAddr, Request,
    Verb, VerbError, WorkerAddr,
};
use sideway::ibverbs::completion::{BasicWorkCompletion, WorkCompletionStatus as Status};
use sideway::ibverbs::queue_pair::{PostSendGuard, QueuePair, WorkRequestFlags};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The id that a request has at the device: SENT for the send queue, RECEIVED for a RECV.
const SENT: u64 = 0;
const RECEIVED: u64 = 1;

/// A worker of a node.
pub struct VerbsWorker {
    // Dropped first, so that no queue pair uses the scratch memory when it is freed. `None` for a
    // queue pair that has ended.
    queues: Vec<Option<Queue>>,
    scratch: Memory,
    scratch_words: usize,
    address: WorkerAddr,
    ready: VecDeque<Completion>,
    attachment: Arc<Attachment>,
}

struct Queue {
    link: Link,
    accepted: bool,
    /// Incomplete requests, in order.
    sent: VecDeque<Request>,
    recvs: VecDeque<Request>,
}

impl VerbsWorker {
    pub(super) fn new(attachment: Arc<Attachment>, address: WorkerAddr, scratch: Memory) -> Self {
        let scratch_words = scratch.words().len();
        Self {
            queues: Vec::new(),
            scratch,
            scratch_words,
            address,
            ready: VecDeque::new(),
            attachment,
        }
    }

    fn add_queue(&mut self, link: Link, accepted: bool) -> QueueId {
        let (sent, recvs) = (VecDeque::new(), VecDeque::new());
        self.queues.push(Some(Queue { link, accepted, sent, recvs }));
        QueueId(self.queues.len() as u32 - 1)
    }

    fn check(&self, queue: Option<&Queue>, batch: &[Request]) -> Result<(), PostError> {
        let limits = self.guarantees();
        for request in batch {
            let local = request.verb.scratch();
            if !local.fits(self.scratch_words) || local.words > limits.max_words {
                return Err(PostError::BadRange);
            }
            if queue.is_some_and(|queue| queue.accepted) && request.verb.remote().is_some() {
                return Err(PostError::OneSided);
            }
        }
        let Some(queue) = queue else { return Ok(()) };
        let recvs = batch.iter().filter(|r| matches!(r.verb, Verb::Recv { .. })).count();
        let sent = queue.sent.len() + batch.len() - recvs;
        if sent.max(queue.recvs.len() + recvs) > limits.queue_depth {
            Err(PostError::QueueFull)
        } else {
            Ok(())
        }
    }

    /// Completes requests with an error.
    fn fail(&mut self, queue: QueueId, requests: impl Iterator<Item = Request>, why: VerbError) {
        for Request { id, .. } in requests {
            self.ready.push_back(Completion { queue, id, result: Err(why) });
        }
    }
}

/// Converts a word's address for the device. An address that does not exist becomes one that no
/// region contains.
fn address(remote: RemoteAddr) -> (u32, u64) {
    const NOWHERE: u64 = u64::MAX - 7;
    let at = remote.word.checked_mul(8).and_then(|offset| remote.key.base.checked_add(offset));
    (u32::try_from(remote.key.key).unwrap_or(0), at.unwrap_or(NOWHERE))
}

impl Queue {
    /// Posts requests to the device. Returns true if it accepted them.
    fn post(&mut self, scratch: &Memory, batch: &[Request]) -> bool {
        let is_recv = |request: &&Request| matches!(request.verb, Verb::Recv { .. });
        let (recvs, sends): (Vec<&Request>, Vec<&Request>) = batch.iter().partition(is_recv);
        let mut posted = true;
        if !recvs.is_empty() {
            let mut list = self.link.pair.start_post_recv();
            for request in &recvs {
                scratch.name(request.verb.scratch(), list.construct_wr(RECEIVED));
            }
            posted &= list.post().is_ok();
        }
        if !sends.is_empty() {
            let mut list = self.link.pair.start_post_send();
            for request in &sends {
                let fence =
                    if request.fence { WorkRequestFlags::Fence } else { WorkRequestFlags::none() };
                let handle = list.construct_wr(SENT, WorkRequestFlags::Signaled | fence);
                let (key, at) = request.verb.remote().map_or((0, 0), address);
                let buffer = match request.verb {
                    Verb::Read { .. } => handle.setup_read(key, at),
                    Verb::Write { .. } => handle.setup_write(key, at),
                    Verb::Cas { expected, new, .. } => {
                        handle.setup_atomic_compare_swap(key, at, expected, new)
                    }
                    Verb::Faa { add, .. } => handle.setup_atomic_fetch_add(key, at, add),
                    Verb::Send { .. } | Verb::Recv { .. } => handle.setup_send(),
                };
                scratch.name(request.verb.scratch(), buffer);
            }
            posted &= list.post().is_ok();
        }
        self.sent.extend(sends);
        self.recvs.extend(recvs);
        posted
    }

    /// Returns the request that a completion ends, and its result.
    fn ended(&mut self, work: &BasicWorkCompletion<'_>) -> Option<(u64, Result<usize, VerbError>)> {
        let is_recv = work.wr_id() == RECEIVED;
        let request = if is_recv { self.recvs.pop_front()? } else { self.sent.pop_front()? };
        let status = work.status();
        let is_send = matches!(request.verb, Verb::Send { .. });
        let result = if status == Status::Success as u32 {
            Ok(if is_recv { work.byte_len() as usize / 8 } else { request.verb.scratch().words })
        } else if status == Status::WorkRequestFlushedError as u32 {
            Err(VerbError::Flushed)
        } else if status == Status::LocalLengthError as u32
            || (is_send && status == Status::RemoteInvalidRequestError as u32)
        {
            Err(VerbError::MessageTooLong)
        } else if status == Status::RemoteAccessError as u32
            || status == Status::RemoteInvalidRequestError as u32
        {
            Err(VerbError::RemoteAccess)
        } else {
            Err(VerbError::PeerDead)
        };
        Some((request.id, result))
    }
}

impl FabricWorker for VerbsWorker {
    fn address(&self) -> WorkerAddr {
        self.address
    }

    fn guarantees(&self) -> Guarantees {
        self.attachment.state.guarantees()
    }

    fn connect(&mut self, peer: WorkerAddr) -> Result<QueueId, FabricError> {
        let link = self.attachment.state.connect(self.address, peer)?;
        Ok(self.add_queue(link, false))
    }

    fn accept(&mut self) -> Option<(QueueId, WorkerAddr)> {
        let (link, from) = self.attachment.state.accepted(self.address.port)?;
        Some((self.add_queue(link, true), from))
    }

    fn disconnect(&mut self, queue: QueueId) {
        let Some(ended) = self.queues.get_mut(queue.0 as usize).and_then(Option::take) else {
            return;
        };
        let Queue { link, sent, recvs, .. } = ended;
        // The device stops using the scratch memory before the requests complete.
        drop(link);
        self.fail(queue, sent.into_iter().chain(recvs), VerbError::Flushed);
    }

    fn post(&mut self, queue: QueueId, batch: &[Request]) -> Result<(), PostError> {
        let index = queue.0 as usize;
        self.check(self.queues.get(index).ok_or(PostError::UnknownQueue)?.as_ref(), batch)?;
        let Some(queue_pair) = &mut self.queues[index] else {
            self.fail(queue, batch.iter().copied(), VerbError::Flushed);
            return Ok(());
        };
        if !queue_pair.post(&self.scratch, batch) {
            // The device refuses requests for a reason outside the caller's control. Which of them
            // it accepted is unknown.
            let (sent, recvs) =
                (std::mem::take(&mut queue_pair.sent), std::mem::take(&mut queue_pair.recvs));
            self.fail(queue, sent.into_iter().chain(recvs), VerbError::PeerDead);
        }
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        for (index, queue) in self.queues.iter_mut().enumerate() {
            let Some(queue) = queue else { continue };
            if queue.sent.is_empty() && queue.recvs.is_empty() {
                continue;
            }
            let completion_queue = Arc::clone(&queue.link.completions);
            // An empty queue is reported as an error here.
            let Ok(work) = completion_queue.start_poll() else { continue };
            for work in work {
                if let Some((id, result)) = queue.ended(&work) {
                    self.ready.push_back(Completion { queue: QueueId(index as u32), id, result });
                }
            }
        }
        let count = self.ready.len();
        completions.extend(self.ready.drain(..));
        count
    }

    fn wait(&mut self) {
        std::thread::yield_now();
    }

    fn scratch_words(&self) -> usize {
        self.scratch_words
    }

    fn load(&self, word: usize) -> u64 {
        // Acquire: pairs with the device's writes before the polled completion; libibverbs has the
        // barrier.
        self.scratch.words()[word].load(Ordering::Acquire)
    }

    fn store(&mut self, word: usize, value: u64) {
        // Release: pairs with the device's reads for the request posted next; libibverbs has the
        // barrier.
        self.scratch.words()[word].store(value, Ordering::Release);
    }
}

impl Drop for VerbsWorker {
    fn drop(&mut self) {
        self.attachment.state.free(self.address.port);
    }
}
