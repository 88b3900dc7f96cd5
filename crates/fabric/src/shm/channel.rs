//! A queue pair: its state, and its two rings.
//!
//! A message is its length followed by its words. It may pass through a ring in pieces.

use super::layout::{ADDRESSES, CLOSED, ERROR, PROCESS, STATE};
use super::ring::Ring;
use super::segment::{Segment, pack, unpack};
use crate::WorkerAddr;
use rustix::process::Pid;
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
        // Relaxed: as above.
        segment.word(base + PROCESS).store(u64::from(std::process::id()), Ordering::Relaxed);
        // Release: pairs with the Acquire in `accept`.
        segment.word(base + STATE).store(CONNECTED, Ordering::Release);
        // Release: pairs with the Acquire in `ShmWorker::accept`. A worker that sees the new count
        // sees the state, too.
        segment.connections().fetch_add(1, Ordering::Release);
        Some(Self { channel, end: CONNECTOR })
    }

    /// Accepts the channel if it leads to this address and is not accepted yet. Returns the
    /// connecting end's address and process, too.
    pub fn accept(
        segment: &Segment,
        channel: usize,
        address: WorkerAddr,
    ) -> Option<(Self, WorkerAddr, Option<Pid>)> {
        let base = segment.layout.channel(channel);
        let state = segment.word(base + STATE);
        // Acquire: pairs with the Release in `connect`; makes the other words visible.
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
        // Relaxed: as the addresses.
        let process = segment.word(base + PROCESS).load(Ordering::Relaxed);
        let process = i32::try_from(process).ok().and_then(Pid::from_raw);
        Some((Self { channel, end: ACCEPTOR }, unpack(from), process))
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

    /// Returns the ring into which an end pushes.
    fn ring<'s>(&self, segment: &'s Segment, end: usize) -> Ring<'s, AtomicU64> {
        let layout = &segment.layout;
        Ring {
            words: segment.range(layout.ring(self.channel, end)),
            head: segment.word(layout.head(self.channel, end)),
            tail: segment.word(layout.tail(self.channel, end)),
        }
    }

    /// Copies as many of the words into this end's ring as fit and returns their number. `head` is
    /// this end's own count of words pushed.
    pub fn push(&self, segment: &Segment, head: &mut u64, words: &[u64]) -> usize {
        self.ring(segment, self.end).push(head, words)
    }

    /// Returns how many of the words pushed by this end the other end has consumed.
    pub fn consumed(&self, segment: &Segment) -> u64 {
        self.ring(segment, self.end).consumed()
    }

    /// Copies words that are available in the other end's ring into `out` and returns their number.
    /// `tail` is this end's own count of words pulled.
    pub fn pull(&self, segment: &Segment, tail: &mut u64, out: &mut [u64]) -> usize {
        self.ring(segment, self.other().end).pull(tail, out)
    }
}
