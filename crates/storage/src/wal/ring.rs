//! The in-memory ring between appenders and the flusher: filled by many threads at once, drained by
//! one.
//!
//! An appender reserves a range of the log with one atomic add, and fills it while others fill
//! theirs. (This is the consolidated, decoupled log buffer of Johnson et al., "Aether: A Scalable
//! Approach to Logging", VLDB 2010, without its grouping.) A record consists of whole 8-byte words,
//! so no word is shared by two records, and the ring needs no `unsafe`.
//!
//! The first word of a record contains its length, which is never zero. Its states, `p` being a
//! record's start:
//!
//! | word at `p` | meaning                            | next state                          |
//! |-------------|------------------------------------|-------------------------------------|
//! | 0           | free, or reserved and being filled | nonzero, stored last by the appender |
//! | nonzero     | the record is complete             | 0, with all its words, by the flusher |
//!
//! Invariants
//! 1. `freed <= reserved`; records are contiguous between them. Outside of records that are filled
//!    or being filled, every word is 0.
//! 2. Only the range `..= freed + capacity` is written to: an appender first waits for space.
//! 3. An appender never waits for another waiting appender: earlier reservations get space earlier.
//!
//! Locking: `room`, a monitor, is taken by appenders that found the ring full, and by the flusher
//! if there are any. A crash loses the ring; its content was never reported as durable.
//!
//! `loom_tests` explores the interleavings, except for waiting for space. Where two threads each
//! store and then load what the other stores, fences give the order, not SeqCst accesses. Loom
//! treats SeqCst accesses as AcqRel, and would report lost wake-ups that cannot occur.

use clearway_latch::lockstat::Class;
use clearway_latch::{CachePadded, Monitor};
use clearway_sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use super::record;

/// Contention class for space in the ring; every append requests it.
pub(super) static RING: Class = Class::new("log.ring");
static RING_WAITERS: Class = Class::new("log.ring_waiters");

/// The ring.
pub(super) struct Ring {
    words: Box<[AtomicU64]>,
    /// End of the last reserved record.
    reserved: CachePadded<AtomicU64>,
    /// Everything before it has been drained.
    freed: CachePadded<AtomicU64>,
    waiting: AtomicU32,
    room: Monitor<()>,
}

impl Ring {
    /// Creates an empty ring of `capacity` bytes, a power of two, for a log that continues at
    /// `start`.
    pub(super) fn new(capacity: usize, start: u64) -> Self {
        assert!(
            capacity.is_power_of_two() && capacity >= 64,
            "the log's ring has a power of two of bytes"
        );
        assert!(start.is_multiple_of(8), "log positions are multiples of 8");
        Self {
            words: (0..capacity / 8).map(|_| AtomicU64::new(0)).collect(),
            reserved: CachePadded::new(AtomicU64::new(start)),
            freed: CachePadded::new(AtomicU64::new(start)),
            waiting: AtomicU32::new(0),
            room: Monitor::new(&RING_WAITERS, ()),
        }
    }

    /// Returns the size in bytes.
    pub(super) fn capacity(&self) -> u64 {
        self.words.len() as u64 * 8
    }

    /// Returns the end of the last reserved record.
    pub(super) fn reserved(&self) -> u64 {
        // Acquire: pairs with the AcqRel in `reserve`. A thread that sees a record's end sees what
        // its appender did before. The fences in `Log::sleep_unless` and `wake` ensure that the
        // flusher does not sleep while the ring is full.
        self.reserved.load(Ordering::Acquire)
    }

    /// Returns approximately [`Ring::reserved`]; concurrent reservations may be missing.
    #[inline]
    pub(super) fn reserved_about(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed) // Relaxed: it is outdated as soon as it is read.
    }

    /// Reserves the next `size` bytes of the log; returns their start.
    pub(super) fn reserve(&self, size: u64) -> u64 {
        // AcqRel: pairs with the Acquire in `reserved`, and with itself. A later reservation sees
        // what the earlier appender had done before its own.
        self.reserved.fetch_add(size, Ordering::AcqRel)
    }

    /// Returns the bytes from the drained position to `end`. If that is more than
    /// [`Ring::capacity`], there is no space yet for what ends there.
    pub(super) fn filled_to(&self, end: u64) -> u64 {
        // Acquire: pairs with the Release store of `freed` in `drain`. Without it the flusher's
        // earlier stores could zero an appender's words. An `end` below `freed` was drained
        // concurrently.
        end.saturating_sub(self.freed.load(Ordering::Acquire))
    }

    /// Blocks until there is space for what ends at `end`, or until `give_up` returns true. Returns
    /// true if there is space. `nudge` must keep the flusher from sleeping.
    pub(super) fn wait_for_room(
        &self,
        end: u64,
        nudge: impl Fn(),
        give_up: impl Fn() -> bool,
    ) -> bool {
        // Relaxed: the fence orders it.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // SeqCst: pairs with the fence in `wake_waiting`. We count ourselves, then load `freed`.
        // The flusher stores `freed`, then loads the count. The thread whose fence comes later sees
        // the other's store, so no wake-up is lost.
        fence(Ordering::SeqCst);
        let mut guard = self.room.lock();
        let got_room = loop {
            // Acquire: pairs with the Release store of `freed` in `drain`, as in `filled_to`.
            if end.saturating_sub(self.freed.load(Ordering::Acquire)) <= self.capacity() {
                break true;
            }
            if give_up() {
                break false;
            }
            nudge();
            guard = self.room.wait(guard);
        };
        drop(guard);
        // Relaxed: a count that is briefly too high only costs a needless notification.
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        got_room
    }

    /// Wakes all threads waiting for space; they check again.
    pub(super) fn wake_waiting(&self) {
        // SeqCst: pairs with the fence in `wait_for_room`; see there. It follows the store that
        // they wait for.
        fence(Ordering::SeqCst);
        // Relaxed: the fences order it.
        if self.waiting.load(Ordering::Relaxed) > 0 {
            let _guard = self.room.lock();
            self.room.notify_all();
        }
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        &self.words[(at / 8) as usize & (self.words.len() - 1)]
    }

    /// Fills the record reserved at `start`, for which there is space, and passes it to the
    /// flusher.
    pub(super) fn fill(&self, start: u64, header: [u64; 2], payload: &[&[u8]]) {
        // Relaxed, here and below: the Release store of the first word publishes them all.
        self.word(start + 8).store(header[1], Ordering::Relaxed);
        let mut filler =
            Filler { ring: self, at: start + record::HEADER as u64, pending: 0, bits: 0 };
        for part in payload {
            filler.put(part);
        }
        filler.finish();
        // Release: pairs with the Acquire load in `drain`, which then sees the whole record.
        self.word(start).store(header[0], Ordering::Release);
    }

    /// Moves the filled records from `from` on to the end of `out`. Stops when `out` has at least
    /// `limit` bytes, or at a record that is not filled. Returns the end of the last record. Called
    /// only by the flusher; `from` is the result of the last call.
    pub(super) fn drain(&self, from: u64, limit: usize, out: &mut Vec<u8>) -> u64 {
        let mut at = from;
        while out.len() < limit {
            // Acquire: pairs with the Release store in `fill`.
            let first = self.word(at).load(Ordering::Acquire);
            if first == 0 {
                break;
            }
            let size = record::size_of_word(first);
            let (old, index) = (out.len(), (at / 8) as usize & (self.words.len() - 1));
            out.resize(old + size, 0);
            let (tail, front) = (&self.words[index..], &self.words[..index]);
            for (bytes, word) in
                out[old..].as_chunks_mut::<8>().0.iter_mut().zip(tail.iter().chain(front))
            {
                *bytes = word.load(Ordering::Relaxed).to_le_bytes();
                word.store(0, Ordering::Relaxed);
            }
            at += size as u64;
        }
        if at != from {
            // Release: pairs with the Acquire in `filled_to`. The zeros are ordered before the next
            // fill.
            self.freed.store(at, Ordering::Release);
            self.wake_waiting();
        }
        at
    }
}

/// Writes bytes that arrive in parts as whole words.
struct Filler<'a> {
    ring: &'a Ring,
    at: u64,
    /// Bytes that do not yet make a word, from the lowest up; the rest is zero.
    pending: u64,
    /// Number of bits used in `pending`, below 64.
    bits: u32,
}

impl Filler<'_> {
    fn put(&mut self, part: &[u8]) {
        let (words, rest) = part.as_chunks::<8>();
        if self.bits == 0 {
            for word in words {
                self.store(u64::from_le_bytes(*word));
            }
        } else {
            for word in words {
                let word = u64::from_le_bytes(*word);
                self.store(self.pending | word << self.bits);
                self.pending = word >> (64 - self.bits);
            }
        }
        if !rest.is_empty() {
            self.put_rest(rest);
        }
    }

    fn put_rest(&mut self, rest: &[u8]) {
        let mut bytes = [0; 8];
        bytes[..rest.len()].copy_from_slice(rest);
        let (word, bits) = (u64::from_le_bytes(bytes), rest.len() as u32 * 8);
        self.pending |= word << self.bits;
        if self.bits + bits >= 64 {
            self.store(self.pending);
            // `bits` is below 64, so `self.bits` is above 0 here and the shift is below 64.
            self.pending = word >> (64 - self.bits);
            self.bits = self.bits + bits - 64;
        } else {
            self.bits += bits;
        }
    }

    fn store(&mut self, word: u64) {
        self.ring.word(self.at).store(word, Ordering::Relaxed);
        self.at += 8;
    }

    fn finish(mut self) {
        if self.bits > 0 {
            self.store(self.pending);
        }
    }
}
