//! Verbs, their addresses and completions, as plain data.

/// A node of a fabric: a process, or a simulated machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FabricNode(pub u32);

/// A worker of a node, identified by its port number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerAddr {
    /// The worker's node.
    pub node: FabricNode,
    /// The worker's number on its node.
    pub port: u32,
}

/// A queue pair of one worker. The id has no meaning for another worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u32);

/// Names a registered region and permits access to it. Its two words may be sent to peers. A
/// provider that chooses keys draws them at random so that they cannot be guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionKey {
    /// The key itself.
    pub key: u64,
    /// Address of the region's first byte for its owner's device, or 0 if the device needs none.
    pub base: u64,
}

/// A word of a registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteAddr {
    /// The region.
    pub key: RegionKey,
    /// Index of the word within the region.
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
    /// Creates a range of `words` words that begins at `start`.
    pub const fn new(start: usize, words: usize) -> Self {
        Self { start, words }
    }

    /// Returns true if the range is not empty and ends within `scratch_words`.
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
        /// The destination and the number of words.
        local: ScratchRange,
    },
    /// Copies words of the scratch area to remote memory.
    Write {
        /// The source.
        local: ScratchRange,
        /// The first remote word.
        remote: RemoteAddr,
    },
    /// Compare-and-swap: replaces a remote word with `new` if it equals `expected`.
    Cas {
        /// The word.
        remote: RemoteAddr,
        /// The value that permits the swap.
        expected: u64,
        /// The new value.
        new: u64,
        /// The scratch word that receives the value found, swapped or not.
        old: usize,
    },
    /// Fetch-and-add: adds to a remote word, wrapping around.
    Faa {
        /// The word.
        remote: RemoteAddr,
        /// The addend; `n.wrapping_neg()` subtracts `n`.
        add: u64,
        /// The scratch word that receives the previous value.
        old: usize,
    },
    /// Sends a message to the worker at the other end. Completes when a RECV there has received it.
    Send {
        /// The message.
        local: ScratchRange,
    },
    /// Offers room for one message. Completes with the message's length in words.
    Recv {
        /// Room for the message, which may be shorter.
        local: ScratchRange,
    },
}

impl Verb {
    /// Returns true if the verb is a CAS or FAA.
    pub fn is_atomic(&self) -> bool {
        matches!(self, Self::Cas { .. } | Self::Faa { .. })
    }

    /// Returns the scratch words that the verb reads or writes.
    pub fn scratch(&self) -> ScratchRange {
        match *self {
            Self::Read { local, .. }
            | Self::Write { local, .. }
            | Self::Send { local }
            | Self::Recv { local } => local,
            Self::Cas { old, .. } | Self::Faa { old, .. } => ScratchRange::new(old, 1),
        }
    }

    /// Returns the first remote word of the verb; `None` for SEND and RECV.
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
    /// The caller's id for the request, repeated in its completion.
    pub id: u64,
    /// If true, the request starts only after all earlier READs, CASs and FAAs of the queue pair
    /// have completed. Ignored for RECV.
    pub fence: bool,
    /// The operation.
    pub verb: Verb,
}

impl Request {
    /// Creates an unfenced request.
    pub const fn new(id: u64, verb: Verb) -> Self {
        Self { id, fence: false, verb }
    }

    /// Returns the same request with a fence.
    pub const fn fenced(self) -> Self {
        Self { fence: true, ..self }
    }
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The queue pair to which the request was posted.
    pub queue: QueueId,
    /// The request's id.
    pub id: u64,
    /// The number of words moved, or the error.
    pub result: Result<usize, crate::VerbError>,
}
