//! The two rings of a queue pair.
//!
//! A message is its length followed by its words. It may wrap around and may pass through the ring
//! in pieces. Head and tail count words from the start and never wrap to the ring's size.

use super::layout::{ADDRESSES, CLOSED, ERROR, STATE};
use super::segment::{Segment, pack, unpack};
use crate::WorkerAddr;
use std::sync::atomic::{AtomicU64, Ordering};

/// States of a channel; 0 means free or being set up.
const CONNECTED: u64 = 1;
const ACCEPTED: u64 = 2;

/// The connecting end and the accepting end.
pub(super) const CONNECTOR: usize = 0;
pub(super) const ACCEPTOR: usize = 1;

/// Reasons why a channel is broken; 0 while it is not.
pub(super) const BROKEN: u64 = 1;
/// A message was too long. The value is this constant plus the end that sent it.
pub(super) const TOO_LONG: u64 = 2;

/// One end of a queue pair.
#[derive(Clone, Copy)]
pub(super) struct ChannelEnd {
    pub channel: usize,
    /// [`CONNECTOR`] or [`ACCEPTOR`].
    pub end: usize,
}

impl ChannelEnd {
    /// Allocates a channel and publishes it to the peer.
    pub fn connect(segment: &Segment, from: WorkerAddr, to: WorkerAddr) -> Option<Self> {
        let channel = segment.take_channel()?;
        let base = segment.layout.channel(channel);
        for (end, address) in [from, to].into_iter().enumerate() {
            // Relaxed: published by the state.
            segment.word(base + ADDRESSES + end).store(pack(address), Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in `accept`.
        segment.word(base + STATE).store(CONNECTED, Ordering::Release);
        // Release: pairs with the Acquire in `ShmWorker::accept`. A worker that sees the new count
        // sees the state, too.
        segment.connections().fetch_add(1, Ordering::Release);
        Some(Self { channel, end: CONNECTOR })
    }

    /// Accepts the channel if it leads to this address and is not accepted yet.
    pub fn accept(
        segment: &Segment,
        channel: usize,
        address: WorkerAddr,
    ) -> Option<(Self, WorkerAddr)> {
        let base = segment.layout.channel(channel);
        let state = segment.word(base + STATE);
        // Acquire: pairs with the Release in `connect`; makes the addresses visible.
        if state.load(Ordering::Acquire) != CONNECTED {
            return None;
        }
        let [from, to] =
            // As above.
            [0, 1].map(|end| segment.word(base + ADDRESSES + end).load(Ordering::Relaxed));
        if to != pack(address) {
            return None;
        }
        // Relaxed: only one worker has the address, and the state publishes nothing else.
        state.compare_exchange(CONNECTED, ACCEPTED, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        Some((Self { channel, end: ACCEPTOR }, unpack(from)))
    }

    fn field<'s>(&self, segment: &'s Segment, field: usize) -> &'s AtomicU64 {
        segment.word(segment.layout.channel(self.channel) + field)
    }

    /// Returns the error word of the queue pair, shared by both ends.
    pub fn error<'s>(&self, segment: &'s Segment) -> &'s AtomicU64 {
        self.field(segment, ERROR)
    }

    /// Returns the word that says whether this end's worker is gone.
    pub fn closed<'s>(&self, segment: &'s Segment) -> &'s AtomicU64 {
        self.field(segment, CLOSED + self.end)
    }

    /// Returns the other end.
    pub fn other(&self) -> Self {
        Self { end: 1 - self.end, ..*self }
    }

    /// Copies as many of the words into this end's ring as fit and returns their number. `head` is
    /// this end's own count of words pushed.
    pub fn push(&self, segment: &Segment, head: &mut u64, words: &[u64]) -> usize {
        let ring = segment.range(segment.layout.ring(self.channel, self.end));
        let used = head.wrapping_sub(self.consumed(segment)).min(ring.len() as u64);
        let count = words.len().min(ring.len() - used as usize);
        for (index, word) in words[..count].iter().enumerate() {
            let at = (head.wrapping_add(index as u64) % ring.len() as u64) as usize;
            ring[at].store(*word, Ordering::Relaxed); // Relaxed: published by the head.
        }
        *head = head.wrapping_add(count as u64);
        // Release: pairs with the Acquire in `pull`. Publishes the words, and earlier WRITEs of
        // this worker.
        segment.word(segment.layout.head(self.channel, self.end)).store(*head, Ordering::Release);
        count
    }

    /// Returns how many of the words pushed by this end the other end has consumed.
    pub fn consumed(&self, segment: &Segment) -> u64 {
        // Acquire: pairs with the Release in `pull`. The other end has read the words before they
        // are overwritten.
        segment.word(segment.layout.tail(self.channel, self.end)).load(Ordering::Acquire)
    }

    /// Copies words that are available in the other end's ring into `out` and returns their number.
    /// `tail` is this end's own count of words pulled.
    pub fn pull(&self, segment: &Segment, tail: &mut u64, out: &mut [u64]) -> usize {
        let from = self.other();
        let ring = segment.range(segment.layout.ring(self.channel, from.end));
        // Acquire: pairs with the Release in `push`.
        let head =
            segment.word(segment.layout.head(self.channel, from.end)).load(Ordering::Acquire);
        let available = head.wrapping_sub(*tail).min(ring.len() as u64);
        let count = out.len().min(available as usize);
        if count == 0 {
            return 0;
        }
        for (index, out) in out[..count].iter_mut().enumerate() {
            let at = (tail.wrapping_add(index as u64) % ring.len() as u64) as usize;
            *out = ring[at].load(Ordering::Relaxed); // Relaxed: published by the head.
        }
        *tail = tail.wrapping_add(count as u64);
        // Release: pairs with the Acquire in `consumed`.
        segment.word(segment.layout.tail(self.channel, from.end)).store(*tail, Ordering::Release);
        count
    }
}
