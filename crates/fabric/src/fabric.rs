//! The interface that protocols are written on.

use crate::{
    Completion, FabricError, FabricNode, PostError, QueueId, RegionKey, Request, WorkerAddr,
};

/// What a provider promises beyond the order that the crate's documentation states.
///
/// A protocol must be correct on whatever it finds here. A provider promises less if in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guarantees {
    /// The owner's accesses through [`Region`] and the fabric's CAS and FAA on a word are mutually
    /// atomic. If not, the owner must use verbs, over a queue pair to its own node, on words that
    /// others CAS or FAA.
    pub cpu_atomics: bool,
    /// A WRITE of one word and a CAS or FAA on it are mutually atomic. If not, a word that others
    /// CAS or FAA must be written by CAS or FAA.
    pub writes_exclude_atomics: bool,
    /// WRITEs of one queue pair become visible in the order of posting, the words of one WRITE in
    /// ascending order.
    pub writes_ordered: bool,
    /// A READ posted after a CAS or FAA of the same queue pair reads after that has taken effect,
    /// without a fence.
    pub reads_follow_atomics: bool,
    /// WRITEs and SENDs of at most this many words take them from the scratch area when they are
    /// posted.
    pub inline_words: usize,
    /// Requests of one queue pair that may be posted and not completed; RECVs are counted by
    /// themselves.
    pub queue_depth: usize,
    /// The longest READ, WRITE or message, in words.
    pub max_words: usize,
    /// A RECV ends as flushed after the worker at the other end has gone, even if nothing is sent
    /// to it.
    pub recvs_end_with_peer: bool,
}

/// A node's attachment to a fabric.
///
/// Set-up calls may block; verbs do not.
pub trait Fabric {
    /// The node's registered memory.
    type Region: Region;
    /// A thread's access.
    type Worker: FabricWorker;

    /// This node.
    fn node(&self) -> FabricNode;

    /// What this provider promises.
    fn guarantees(&self) -> Guarantees;

    /// Registers a region of `words` zeros, which peers that have its key may read and write until
    /// it is dropped.
    ///
    /// # Errors
    /// [`FabricError::Limit`] for no words or too many.
    fn register(&self, words: usize) -> Result<Self::Region, FabricError>;

    /// Makes a worker with a scratch area of `scratch_words` zeros. One thread uses it; peers
    /// connect to `port`.
    ///
    /// # Errors
    /// [`FabricError::Limit`] if the port is taken or the scratch area too large.
    fn worker(&self, port: u32, scratch_words: usize) -> Result<Self::Worker, FabricError>;
}

/// A registered region, as its owner's processor sees it.
///
/// The operations are atomic among each other. Whether they are with respect to the fabric's is
/// told by [`Guarantees::cpu_atomics`].
///
/// # Panics
/// All of them panic if the word is not within the region.
pub trait Region {
    /// What peers need to access the region.
    fn key(&self) -> RegionKey;

    /// The region's size, in words.
    fn words(&self) -> usize;

    /// Reads a word, with acquire ordering.
    fn load(&self, word: usize) -> u64;

    /// Writes a word, with release ordering.
    fn store(&self, word: usize, value: u64);

    /// Replaces a word with `new` if it is `expected`; returns the value found.
    fn compare_exchange(&self, word: usize, expected: u64, new: u64) -> u64;

    /// Adds to a word, wrapping around; returns the value from before.
    fn fetch_add(&self, word: usize, add: u64) -> u64;

    /// Gives the region another key, and keeps its words. Whoever does not learn of it has no more
    /// access: verbs with the old key are refused from now on, and what those before have written
    /// has landed.
    ///
    /// On [`shm`](crate::shm) another processor may be within a verb at this moment: fence
    /// processes that have ended.
    ///
    /// # Errors
    /// [`FabricError::Unsupported`] if the provider cannot do it.
    fn fence(&mut self) -> Result<(), FabricError> {
        Err(FabricError::Unsupported("fences"))
    }
}

/// A thread's access to a fabric: its queue pairs, one completion queue for all of them, and its
/// scratch area.
///
/// Some providers move messages and take in replies only while the worker polls: a worker that
/// waits for anything polls.
pub trait FabricWorker {
    /// Where peers reach this worker.
    fn address(&self) -> WorkerAddr;

    /// What the provider promises.
    fn guarantees(&self) -> Guarantees;

    /// Connects a queue pair to a worker of this or another node. One-sided verbs go to the memory
    /// of the worker's node at once; the worker need not exist, and its node's processor takes no
    /// part. SENDs wait until the worker has accepted the queue pair and posted a RECV.
    ///
    /// # Errors
    /// [`FabricError::UnknownPeer`], [`FabricError::Authentication`], or [`FabricError::Io`].
    fn connect(&mut self, peer: WorkerAddr) -> Result<QueueId, FabricError>;

    /// Takes one queue pair that a peer has connected to this worker, for SEND and RECV only; none
    /// if there is no new one. To access the peer's memory, connect to it.
    fn accept(&mut self) -> Option<(QueueId, WorkerAddr)>;

    /// Posts requests in this order: all of them, or none.
    ///
    /// # Errors
    /// See [`PostError`]. A queue pair in error takes requests and completes them as flushed.
    fn post(&mut self, queue: QueueId, batch: &[Request]) -> Result<(), PostError>;

    /// Appends the completions that have arrived since the last call; returns how many. Never
    /// blocks.
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize;

    /// Waits until a completion or connection may have arrived, for a bounded short time. For a
    /// thread with nothing else to do. In a simulation: moves virtual time to the next event.
    fn wait(&mut self);

    /// The size of the scratch area, in words.
    fn scratch_words(&self) -> usize;

    /// Reads a scratch word.
    ///
    /// # Panics
    /// If the word is not within the scratch area; so do the calls below.
    fn load(&self, word: usize) -> u64;

    /// Writes a scratch word.
    fn store(&mut self, word: usize, value: u64);

    /// Copies scratch words from `start` on into `out`.
    fn load_range(&self, start: usize, out: &mut [u64]) {
        for (word, out) in (start..).zip(out) {
            *out = self.load(word);
        }
    }

    /// Copies `values` into the scratch area from `start` on.
    fn store_range(&mut self, start: usize, values: &[u64]) {
        for (word, value) in (start..).zip(values) {
            self.store(word, *value);
        }
    }
}
