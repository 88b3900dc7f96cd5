//! Verbs, their addresses and completions, as plain data.

/// A node of a fabric: a process, or a simulated machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FabricNode(pub u32);

/// A worker of a node, by the port number that it chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerAddr {
    /// The node that the worker runs on.
    pub node: FabricNode,
    /// The worker's number on its node.
    pub port: u32,
}

/// A queue pair of one worker; means nothing to another worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u32);

/// Names a registered region and permits access to it. Two words that may be sent to peers; cannot
/// be guessed where the provider can help it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionKey {
    /// The key itself.
    pub key: u64,
    /// Address of the region's first byte as its owner's device knows it; zero unless the device
    /// wants one.
    pub base: u64,
}

/// A word of a registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteAddr {
    /// The region.
    pub key: RegionKey,
    /// Index of the word, from the region's start.
    pub word: u64,
}

/// Consecutive words of a worker's scratch area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScratchRange {
    /// Index of the first word.
    pub start: usize,
    /// Number of words, at least one.
    pub words: usize,
}

impl ScratchRange {
    /// The `words` words from `start` on.
    pub const fn new(start: usize, words: usize) -> Self {
        Self { start, words }
    }

    /// Whether the range is not empty and ends within `scratch_words`.
    pub fn fits(self, scratch_words: usize) -> bool {
        self.words > 0 && self.start.checked_add(self.words).is_some_and(|end| end <= scratch_words)
    }
}

/// One operation of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Copies remote words into the scratch area.
    Read {
        /// The first remote word.
        remote: RemoteAddr,
        /// Where they go, and how many.
        local: ScratchRange,
    },
    /// Copies words of the scratch area to remote memory.
    Write {
        /// What is written.
        local: ScratchRange,
        /// The first remote word.
        remote: RemoteAddr,
    },
    /// Compare-and-swap: replaces a remote word with `new` if it is `expected`.
    Cas {
        /// The word.
        remote: RemoteAddr,
        /// The value that allows the swap.
        expected: u64,
        /// The value that it gets.
        new: u64,
        /// The scratch word that receives the value found, whether swapped or not.
        old: usize,
    },
    /// Fetch-and-add: adds to a remote word, wrapping around.
    Faa {
        /// The word.
        remote: RemoteAddr,
        /// What is added; `n.wrapping_neg()` subtracts `n`.
        add: u64,
        /// The scratch word that receives the value from before the addition.
        old: usize,
    },
    /// Sends a message to the worker at the other end. Completes once a RECV there has taken it.
    Send {
        /// The message.
        local: ScratchRange,
    },
    /// Offers room for one message. Completes with the message's length, in words.
    Recv {
        /// Where the message goes; it may be shorter.
        local: ScratchRange,
    },
}

impl Verb {
    /// Whether the verb is a CAS or FAA.
    pub fn is_atomic(&self) -> bool {
        matches!(self, Self::Cas { .. } | Self::Faa { .. })
    }

    /// The words of the scratch area that the verb reads or writes.
    pub fn scratch(&self) -> ScratchRange {
        match *self {
            Self::Read { local, .. }
            | Self::Write { local, .. }
            | Self::Send { local }
            | Self::Recv { local } => local,
            Self::Cas { old, .. } | Self::Faa { old, .. } => ScratchRange::new(old, 1),
        }
    }

    /// The remote word that the verb starts at; none for SEND and RECV.
    pub fn remote(&self) -> Option<RemoteAddr> {
        match *self {
            Self::Read { remote, .. }
            | Self::Write { remote, .. }
            | Self::Cas { remote, .. }
            | Self::Faa { remote, .. } => Some(remote),
            Self::Send { .. } | Self::Recv { .. } => None,
        }
    }
}

/// A verb to be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The caller's name for it; comes back in its completion.
    pub id: u64,
    /// Starts only after all earlier READs, CASs and FAAs of the queue pair have completed. Means
    /// nothing for RECV.
    pub fence: bool,
    /// The operation.
    pub verb: Verb,
}

impl Request {
    /// An unfenced request.
    pub const fn new(id: u64, verb: Verb) -> Self {
        Self { id, fence: false, verb }
    }

    /// The same request with a fence.
    pub const fn fenced(self) -> Self {
        Self { fence: true, ..self }
    }
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The queue pair that it was posted to.
    pub queue: QueueId,
    /// The request's id.
    pub id: u64,
    /// The number of words moved, or why there are none.
    pub result: Result<usize, crate::VerbError>,
}
