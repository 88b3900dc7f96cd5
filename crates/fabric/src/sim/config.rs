//! Costs of a simulated network.

use crate::Guarantees;

/// Latencies, bandwidth and limits of a [`Network`](super::Network).
///
/// The default resembles a 100 Gbit/s network of one switch with ConnectX-5 adapters: about 2
/// microseconds for a READ.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Time from one adapter to another.
    pub latency_ns: u64,
    /// Time from an adapter back to itself, for queue pairs to the worker's own node.
    pub loopback_ns: u64,
    /// Upper bound of the random time added to either, drawn for each request and reply.
    pub jitter_ns: u64,
    /// Time that an adapter spends on one request or reply. It handles one at a time in each
    /// direction.
    pub verb_ns: u64,
    /// Time that one word of payload occupies an adapter, in picoseconds.
    pub word_ps: u64,
    /// The words of a WRITE land, and those of a READ are read, at random moments within an
    /// interval of this length.
    pub spread_ns: u64,
    /// Upper bound of the time between the read and the write of a CAS or FAA; at least 1 ns.
    pub atomic_ns: u64,
    /// Time after which a dead peer is noticed.
    pub timeout_ns: u64,
    /// Value and behaviour of [`Guarantees::reads_follow_atomics`].
    pub reads_follow_atomics: bool,
    /// Value and behaviour of [`Guarantees::inline_words`].
    pub inline_words: usize,
    /// Value and behaviour of [`Guarantees::queue_depth`].
    pub queue_depth: usize,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            latency_ns: 850,
            loopback_ns: 300,
            jitter_ns: 200,
            verb_ns: 15,
            word_ps: 640,
            spread_ns: 150,
            atomic_ns: 100,
            timeout_ns: 1_000_000,
            reads_follow_atomics: true,
            inline_words: 8,
            queue_depth: 128,
        }
    }
}

impl SimConfig {
    /// Returns the weakest guarantees that the crate's documentation allows.
    pub(super) fn guarantees(&self) -> Guarantees {
        Guarantees {
            cpu_atomics: false,
            writes_exclude_atomics: false,
            writes_ordered: false,
            reads_follow_atomics: self.reads_follow_atomics,
            inline_words: self.inline_words,
            queue_depth: self.queue_depth,
            max_words: 1 << 20,
            recvs_end_with_peer: true,
        }
    }
}
