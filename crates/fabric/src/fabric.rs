//! The interface between protocols and providers.

use crate::{
    Completion, FabricError, FabricNode, PostError, QueueId, RegionKey, Request, WorkerAddr,
};

/// What a provider guarantees beyond the order in the crate's documentation.
///
/// A protocol must be correct for every combination of these values. A provider that is unsure
/// declares the weaker value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guarantees {
    /// CAS and FAA of the fabric and the owner's accesses through [`Region`] are mutually atomic.
    /// If false, the owner must use verbs over a queue pair to its own node for every word that
    /// others CAS or FAA.
    pub cpu_atomics: bool,
    /// A WRITE of one word is atomic with respect to a CAS or FAA on that word. If false, a word
    /// that others CAS or FAA must be written by CAS or FAA.
    pub writes_exclude_atomics: bool,
    /// WRITEs of one queue pair become visible in posting order, and the words of one WRITE in
    /// ascending order.
    pub writes_ordered: bool,
    /// A READ posted after a CAS or FAA of the same queue pair runs after that atomic has taken
    /// effect, without a fence.
    pub reads_follow_atomics: bool,
    /// WRITEs and SENDs of at most this many words copy them from the scratch area when they are
    /// posted.
    pub inline_words: usize,
    /// Incomplete requests allowed on one queue pair. RECVs have a separate count with the same
    /// limit.
    pub queue_depth: usize,
    /// The longest READ, WRITE or message, in words.
    pub max_words: usize,
    /// A RECV completes as flushed after the worker at the other end is gone, even if nothing is
    /// sent to that worker.
    pub recvs_end_with_peer: bool,
}

/// A node's attachment to a fabric.
///
/// Set-up calls may block; verbs do not.
pub trait Fabric {
    /// The node's registered memory.
    type Region: Region;
    /// One thread's access to the fabric.
    type Worker: FabricWorker;

    /// Returns this node's number.
    fn node(&self) -> FabricNode;

    /// Returns the provider's guarantees.
    fn guarantees(&self) -> Guarantees;

    /// Registers a region of `words` zeros. Peers that have its key may read and write it until it
    /// is dropped.
    ///
    /// # Errors
    /// Returns [`FabricError::Limit`] if `words` is 0 or too large.
    fn register(&self, words: usize) -> Result<Self::Region, FabricError>;

    /// Creates a worker with a scratch area of `scratch_words` zeros, for use by one thread. Peers
    /// connect to `port`.
    ///
    /// # Errors
    /// Returns [`FabricError::Limit`] if the port is taken or the scratch area is too large.
    fn worker(&self, port: u32, scratch_words: usize) -> Result<Self::Worker, FabricError>;
}

/// A registered region, accessed by its owner's CPU.
///
/// The operations are atomic with respect to one another. [`Guarantees::cpu_atomics`] says whether
/// they are also atomic with respect to the fabric's verbs.
///
/// # Panics
/// Every operation panics if the word is not within the region.
pub trait Region {
    /// Returns the key that peers need to access the region.
    fn key(&self) -> RegionKey;

    /// Returns the region's size in words.
    fn words(&self) -> usize;

    /// Reads a word with acquire ordering.
    fn load(&self, word: usize) -> u64;

    /// Writes a word with release ordering.
    fn store(&self, word: usize, value: u64);

    /// Replaces a word with `new` if it equals `expected`. Returns the value found.
    fn compare_exchange(&self, word: usize, expected: u64, new: u64) -> u64;

    /// Adds to a word, wrapping around. Returns the previous value.
    fn fetch_add(&self, word: usize, add: u64) -> u64;

    /// Replaces the region's key and keeps its words. From now on verbs with the old key fail;
    /// everything that earlier verbs wrote has landed.
    ///
    /// On [`shm`](crate::shm) a verb may still be running in another process: fence only processes
    /// that have ended.
    ///
    /// # Errors
    /// Returns [`FabricError::Unsupported`] if the provider has no fences.
    fn fence(&mut self) -> Result<(), FabricError> {
        Err(FabricError::Unsupported("fences"))
    }
}

/// One thread's access to a fabric: its queue pairs, one completion queue for all of them, and its
/// scratch area.
///
/// Some providers move messages and read replies only in `poll`. A worker that waits for anything
/// must therefore keep polling.
pub trait FabricWorker {
    /// Returns the address at which peers reach this worker.
    fn address(&self) -> WorkerAddr;

    /// Returns the provider's guarantees.
    fn guarantees(&self) -> Guarantees;

    /// Connects a queue pair to a worker of this or another node. One-sided verbs access the memory
    /// of the worker's node at once: the worker need not exist, and its node's CPU is not involved.
    /// SENDs wait until the worker has accepted the queue pair and posted a RECV.
    ///
    /// # Errors
    /// Returns [`FabricError::UnknownPeer`], [`FabricError::Authentication`] or
    /// [`FabricError::Io`].
    fn connect(&mut self, peer: WorkerAddr) -> Result<QueueId, FabricError>;

    /// Accepts one queue pair that a peer has connected to this worker. Returns `None` if there is
    /// no new one. An accepted queue pair carries SEND and RECV only; to access the peer's memory,
    /// connect to it.
    fn accept(&mut self) -> Option<(QueueId, WorkerAddr)>;

    /// Ends a queue pair and frees its connection. From now on the queue pair is in error. Its
    /// incomplete requests complete as flushed, executed or not, and so do its RECVs, except for
    /// those that get messages which have already arrived. The other end notices the end as it
    /// notices the death of this worker. Does nothing if the queue pair has ended.
    ///
    /// On [`shm`](crate::shm) the segment's supply does not get the queue pair back.
    fn disconnect(&mut self, queue: QueueId);

    /// Posts all requests in this order, or none of them.
    ///
    /// # Errors
    /// Returns a [`PostError`]. A queue pair in error accepts requests and completes them as
    /// flushed.
    fn post(&mut self, queue: QueueId, batch: &[Request]) -> Result<(), PostError>;

    /// Appends the completions that have arrived since the last call and returns their number.
    /// Never blocks.
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize;

    /// Waits for a bounded short time until a completion or connection may have arrived. For a
    /// thread that has nothing else to do. A simulation moves virtual time to the next event.
    fn wait(&mut self);

    /// Returns the size of the scratch area in words.
    fn scratch_words(&self) -> usize;

    /// Reads a scratch word.
    ///
    /// # Panics
    /// This and the calls below panic if the word is not within the scratch area.
    fn load(&self, word: usize) -> u64;

    /// Writes a scratch word.
    fn store(&mut self, word: usize, value: u64);

    /// Copies scratch words, beginning at `start`, into `out`.
    fn load_range(&self, start: usize, out: &mut [u64]) {
        for (word, out) in (start..).zip(out) {
            *out = self.load(word);
        }
    }

    /// Copies `values` into the scratch area, beginning at `start`.
    fn store_range(&mut self, start: usize, values: &[u64]) {
        for (word, value) in (start..).zip(values) {
            self.store(word, *value);
        }
    }
}
