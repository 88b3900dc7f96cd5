//! Offsets within a segment, in words.

use super::ShmConfig;
use std::ops::Range;

pub(super) const MAGIC: u64 = u64::from_be_bytes(*b"CLWYSHM1");

/// Words of the header, by index. The limits follow in the order of [`ShmConfig`]'s fields.
pub(super) const MAGIC_WORD: usize = 0;
pub(super) const LIMITS: usize = 1;
pub(super) const HEAP_TAKEN: usize = 8;
pub(super) const CHANNELS_TAKEN: usize = 16;
pub(super) const CHANNELS_CONNECTED: usize = 24;
const HEADER_WORDS: usize = 32;

/// Words of a region's entry.
pub(super) const REGION_KEY: usize = 0;
pub(super) const REGION_START: usize = 1;
pub(super) const REGION_WORDS: usize = 2;
const REGION_ENTRY: usize = 4;

/// Words of a channel, by index: state, the addresses of both ends, a closed flag for each end, an
/// error, and the connecting end's process. Head and tail of each direction follow, each in its own
/// cache line; then the rings.
pub(super) const STATE: usize = 0;
pub(super) const ADDRESSES: usize = 1;
pub(super) const CLOSED: usize = 3;
pub(super) const ERROR: usize = 5;
pub(super) const PROCESS: usize = 6;
const HEADS: usize = 8;
const TAILS: usize = 24;
const CHANNEL_HEADER: usize = 40;

/// The sizes of a segment's parts.
#[derive(Clone, Copy)]
pub(super) struct Layout(pub ShmConfig);

impl Layout {
    pub fn node(&self, node: usize) -> usize {
        HEADER_WORDS + node
    }

    pub fn ports(&self) -> Range<usize> {
        let start = self.node(self.0.nodes);
        start..start + self.0.workers
    }

    pub fn region(&self, index: usize) -> usize {
        self.ports().end + index * REGION_ENTRY
    }

    pub fn channel(&self, index: usize) -> usize {
        // A multiple of a cache line.
        self.region(self.0.regions).next_multiple_of(8)
            + index * (CHANNEL_HEADER + 2 * self.0.ring_words)
    }

    /// Returns the head of the direction that starts at end `from`.
    pub fn head(&self, channel: usize, from: usize) -> usize {
        self.channel(channel) + HEADS + 8 * from
    }

    pub fn tail(&self, channel: usize, from: usize) -> usize {
        self.channel(channel) + TAILS + 8 * from
    }

    pub fn ring(&self, channel: usize, from: usize) -> Range<usize> {
        let start = self.channel(channel) + CHANNEL_HEADER + from * self.0.ring_words;
        start..start + self.0.ring_words
    }

    pub fn heap(&self) -> Range<usize> {
        let start = self.channel(self.0.queue_pairs);
        start..start + self.0.heap_words
    }
}
