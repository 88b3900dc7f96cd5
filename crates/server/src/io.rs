//! A connection's buffers: received bytes that are not decoded yet, and replies that are not sent
//! yet.
//!
//! Invariants
//! 1. No byte after `release` is sent: replies leave when their Sync or Flush has been reached, in
//!    one send.
//! 2. No byte at or after a hold is sent before the log is durable up to the hold's LSN.
//! 3. While the socket has refused a write, and only then, the event loop announces that it takes
//!    bytes again. Otherwise a Unix socket would wake its worker whenever the client has read.
//! 4. The input grows to one message at most. The output grows to [`HIGH_WATER`] plus one row or
//!    the replies of one statement.
//!
//! Locking: none; a connection belongs to one worker. A crash loses unsent replies, which nobody
//! has seen.

use crate::counters::Counters;
use crate::net::Stream;
use clearway_coordinator::DURABLE;
use clearway_latch::lockstat::Wait;
use clearway_types::Lsn;
use mio::{Registry, Token};
use std::collections::VecDeque;
use std::io;
use std::panic::Location;
use std::time::Instant;

/// When this many bytes of output are unsent, they are sent before more output is produced. If the
/// client does not take them, production stops.
pub const HIGH_WATER: usize = 256 << 10;
/// The largest message accepted from a client, in bytes.
pub const MAX_MESSAGE: usize = 256 << 20;
/// The usual size of a receive buffer, in bytes.
const INPUT: usize = 16 << 10;
/// A session whose turn ends keeps at most this many bytes outside of its worker's receive buffer.
const SET_ASIDE: usize = INPUT / 4;
/// A session keeps a buffer of this size, in bytes, while it needs none.
const SMALL: usize = 256;

/// Received bytes: `buf[start..end]`. All of `buf` is initialised, so a read needs no clearing.
#[derive(Default)]
pub struct Input {
    buf: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    /// Returns the unconsumed bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.buf[self.start..self.end]
    }
    /// Drops the first `n` bytes.
    pub fn consume(&mut self, n: usize) {
        self.start += n;
        debug_assert!(self.start <= self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }
    /// Returns true if there are no unconsumed bytes.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }
    /// Makes room for a message of `expected` bytes, at most for twice the bytes received: the
    /// length is only what the client claims.
    fn reserve(&mut self, expected: usize) {
        let held = self.end - self.start;
        let wanted = expected.min(2 * held + 4 * INPUT).max(held + INPUT / 4).max(INPUT);
        if self.buf.len() - self.start < wanted {
            self.buf.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, held);
        }
        if self.buf.len() < wanted {
            self.buf.resize(wanted, 0);
        }
    }
    /// Takes the bytes that a session has set aside. If they are many, it takes the session's
    /// buffer, too, and frees its own.
    pub fn take_back(&mut self, aside: &mut Self) {
        let n = aside.bytes().len();
        if n > SET_ASIDE {
            *self = std::mem::take(aside);
        } else if n > 0 {
            self.reserve(n);
            self.buf[..n].copy_from_slice(aside.bytes());
            (self.start, self.end) = (0, n);
            aside.consume(n);
            if aside.buf.len() > SMALL {
                *aside = Self::default();
            }
        }
    }
    /// Leaves the unconsumed bytes to a session whose turn ends. If they are few, they are copied:
    /// this buffer, which is in the core's cache, serves the next session.
    pub fn set_aside(&mut self, aside: &mut Self) {
        if self.end - self.start > SET_ASIDE {
            *aside = std::mem::take(self);
        } else if !self.is_empty() {
            aside.buf.clear();
            aside.buf.extend_from_slice(&self.buf[self.start..self.end]);
            (aside.start, aside.end) = (0, aside.buf.len());
            (self.start, self.end) = (0, 0);
        }
        self.shrink();
    }
    /// Frees the buffer if it is empty and larger than usual.
    fn shrink(&mut self) {
        if self.is_empty() && self.buf.len() > INPUT * 4 {
            *self = Self::default();
        }
    }
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// New bytes arrived.
    Some,
    /// The read would block.
    Nothing,
    /// The client has closed its side.
    Closed,
}

/// Output that waits for the log to become durable.
struct Hold {
    /// Offset of the first held byte.
    at: usize,
    lsn: Lsn,
    wait: Wait,
    /// Start of the statement whose reply is held.
    began: Instant,
}

/// A connection and its output.
pub struct Io {
    /// The socket.
    pub stream: Stream,
    /// True if the socket may have more to read.
    pub readable: bool,
    /// The client has closed its side: reads must continue to the end of the stream, because no
    /// further edge will announce it.
    pub read_closed: bool,
    /// False after the socket refused a write.
    pub writable: bool,
    /// The event loop announces that the socket takes bytes.
    watched: bool,
    /// Encoded replies; encoders append here.
    pub out: Vec<u8>,
    /// Bytes read and written since the last [`Io::take_traffic`].
    traffic: (u64, u64),
    sent: usize,
    release: usize,
    holds: VecDeque<Hold>,
}

impl Io {
    /// Wraps a new connection.
    pub fn new(stream: Stream) -> Self {
        Self {
            stream,
            readable: true,
            read_closed: false,
            writable: true,
            watched: false,
            out: Vec::new(),
            traffic: (0, 0),
            sent: 0,
            release: 0,
            holds: VecDeque::new(),
        }
    }

    /// Reads once. `input` holds less than one message; `expected` is that message's length as far
    /// as known.
    pub fn read(&mut self, input: &mut Input, expected: usize) -> io::Result<ReadOutcome> {
        if !self.readable {
            return Ok(ReadOutcome::Nothing);
        }
        input.reserve(expected);
        loop {
            let room = &mut input.buf[input.end..];
            match self.stream.read(room) {
                Ok(0) => return Ok(ReadOutcome::Closed),
                Ok(n) => {
                    // A short read emptied the socket: a new edge announces further bytes.
                    self.readable = n == room.len() || self.read_closed;
                    input.end += n;
                    self.traffic.0 += n as u64;
                    return Ok(ReadOutcome::Some);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    return Ok(ReadOutcome::Nothing);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Restores invariant 3 after a turn.
    pub fn watch(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        if self.watched == self.writable {
            self.watched = !self.writable;
            self.stream.reregister(registry, token, self.watched)?;
        }
        Ok(())
    }

    /// Returns the bytes read and written since the last call.
    pub fn take_traffic(&mut self) -> (u64, u64) {
        std::mem::take(&mut self.traffic)
    }

    /// Releases all output so far for sending.
    pub fn release(&mut self) {
        self.release = self.out.len();
    }

    /// Discards unreleased output: no message has asked for it, and the connection ends.
    pub fn discard_unreleased(&mut self) {
        self.out.truncate(self.release);
    }

    /// Holds all unreleased and later output until the log is durable up to `lsn`. The hold begins
    /// at the last release, so that the replies of a group still leave in one send. Does nothing if
    /// the log is known to be `durable` that far. `began` is the start of the statement, for the
    /// latency of commits.
    #[track_caller]
    pub fn hold(&mut self, lsn: Lsn, durable: Lsn, began: Instant) {
        DURABLE.request();
        if lsn > durable && self.holds.back().is_none_or(|last| last.lsn < lsn) {
            self.holds.push_back(Hold {
                at: self.release,
                lsn,
                wait: DURABLE.wait(Location::caller()),
                began,
            });
        }
    }

    /// Returns the LSNs that the first and the last held output wait for, if any.
    pub fn waits_for(&self) -> Option<(Lsn, Lsn)> {
        Some((self.holds.front()?.lsn, self.holds.back()?.lsn))
    }

    /// Returns the number of bytes of output that are not sent yet.
    pub fn unsent(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Returns true if too much output is unsent to produce more.
    pub fn is_full(&self) -> bool {
        self.unsent() > HIGH_WATER
    }

    /// Returns true if everything has been sent.
    pub fn is_flushed(&self) -> bool {
        self.out.is_empty()
    }

    /// Sends all output that is released and not held.
    pub fn flush(&mut self, durable: Lsn, counters: &Counters) -> io::Result<()> {
        if self.holds.front().is_some_and(|hold| hold.lsn <= durable) {
            let now = Instant::now();
            while let Some(hold) = self.holds.pop_front_if(|hold| hold.lsn <= durable) {
                hold.wait.end_at(now);
                counters.commit_took(now.duration_since(hold.began));
            }
        }
        let end = self.holds.front().map_or(self.release, |hold| hold.at.min(self.release));
        while self.sent < end && self.writable {
            match self.stream.write(&self.out[self.sent..end]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    self.sent += n;
                    self.traffic.1 += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        if self.sent == self.out.len() && self.holds.is_empty() {
            self.out.clear();
            (self.sent, self.release) = (0, 0);
            if self.out.capacity() > 2 * HIGH_WATER {
                self.out = Vec::new();
            }
        } else if self.sent > HIGH_WATER {
            self.compact();
        }
        Ok(())
    }

    fn compact(&mut self) {
        let gone = self.sent;
        self.out.drain(..gone);
        self.sent = 0;
        self.release -= gone;
        for hold in &mut self.holds {
            hold.at -= gone;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Totals;
    use std::io::Read;

    fn pair() -> (Io, std::os::unix::net::UnixStream) {
        let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
        a.set_nonblocking(true).unwrap();
        b.set_nonblocking(true).unwrap();
        (Io::new(Stream::Unix(mio::net::UnixStream::from_std(a))), b)
    }

    fn got(peer: &mut std::os::unix::net::UnixStream) -> Vec<u8> {
        let mut bytes = vec![0; 1 << 20];
        let n = peer.read(&mut bytes).unwrap_or(0);
        bytes.truncate(n);
        bytes
    }

    #[test]
    fn invariants_1_and_2_output_waits_for_release_and_log() {
        let (mut io, mut peer) = pair();
        let (counters, began) = (Counters::default(), Instant::now());
        io.out.extend_from_slice(b"a");
        io.flush(Lsn(0), &counters).unwrap();
        assert_eq!(got(&mut peer), b"");
        io.release();
        io.hold(Lsn(10), Lsn(9), began);
        io.out.extend_from_slice(b"b");
        io.release();
        io.hold(Lsn(8), Lsn(9), began);
        io.hold(Lsn(20), Lsn(9), began);
        io.out.extend_from_slice(b"c");
        io.release();
        io.out.extend_from_slice(b"d");
        io.flush(Lsn(9), &counters).unwrap();
        assert_eq!(got(&mut peer), b"a");
        assert_eq!(io.waits_for(), Some((Lsn(10), Lsn(20))));
        io.flush(Lsn(10), &counters).unwrap();
        assert_eq!(got(&mut peer), b"b");
        assert_eq!(io.waits_for(), Some((Lsn(20), Lsn(20))));
        io.flush(Lsn(99), &counters).unwrap();
        assert_eq!(got(&mut peer), b"c");
        assert!(!io.is_flushed());
        io.release();
        io.flush(Lsn(99), &counters).unwrap();
        assert_eq!(got(&mut peer), b"d");
        assert!(io.is_flushed());
        assert_eq!((io.take_traffic(), io.take_traffic()), ((0, 4), (0, 0)));
        let mut totals = Totals::default();
        counters.add_to(&mut totals);
        assert_eq!(totals.commit_latency.buckets().map(|(_, count)| count).sum::<u64>(), 2);
    }

    #[test]
    fn invariant_3_only_a_refused_write_is_announced() {
        let (mut io, mut peer) = pair();
        let counters = Counters::default();
        let mut poll = mio::Poll::new().unwrap();
        let mut events = mio::Events::with_capacity(8);
        let mut announced = |poll: &mut mio::Poll| {
            poll.poll(&mut events, Some(std::time::Duration::ZERO)).unwrap();
            events.iter().any(mio::event::Event::is_writable)
        };
        let token = Token(7);
        io.stream.register(poll.registry(), token).unwrap();
        io.out.push(b'a');
        io.release();
        io.flush(Lsn(0), &counters).unwrap();
        io.watch(poll.registry(), token).unwrap();
        assert_eq!(got(&mut peer), b"a");
        assert!(!announced(&mut poll), "the client has read");

        let mut sent = 8 << 20;
        io.out.resize(sent, b'b');
        io.release();
        io.flush(Lsn(0), &counters).unwrap();
        io.watch(poll.registry(), token).unwrap();
        assert!(!io.writable && !announced(&mut poll), "the socket is full");
        while !io.is_flushed() {
            sent -= got(&mut peer).len();
            if announced(&mut poll) {
                io.writable = true;
                io.flush(Lsn(0), &counters).unwrap();
                io.watch(poll.registry(), token).unwrap();
            }
        }
        while sent > 0 {
            sent -= got(&mut peer).len();
        }
        assert!(!announced(&mut poll), "all is sent");
    }

    #[test]
    fn invariant_4_input_grows_to_one_message() {
        let (mut io, mut peer) = pair();
        let mut input = Input::default();
        std::io::Write::write_all(&mut peer, &[7; 50_000]).unwrap();
        while input.bytes().len() < 50_000 {
            io.read(&mut input, 50_000).unwrap();
        }
        input.consume(49_999);
        assert_eq!(input.bytes(), [7]);
        input.consume(1);
        assert!(input.is_empty());
        assert_eq!(io.read(&mut input, 5).unwrap(), ReadOutcome::Nothing);
        drop(peer);
        io.readable = true;
        assert_eq!(io.read(&mut input, 5).unwrap(), ReadOutcome::Closed);
    }

    #[test]
    fn few_bytes_are_set_aside_without_the_buffer() {
        let (mut io, mut peer) = pair();
        let (mut input, mut aside) = (Input::default(), Input::default());
        for n in [5, SMALL + 1, SET_ASIDE] {
            let sent: Vec<u8> = (0..=n).map(|i| i as u8).collect();
            std::io::Write::write_all(&mut peer, &sent).unwrap();
            io.readable = true;
            assert_eq!(io.read(&mut input, 5).unwrap(), ReadOutcome::Some);
            let buffer = input.buf.as_ptr();
            input.consume(1);
            input.set_aside(&mut aside);
            assert!(input.is_empty() && aside.buf.len() == n && aside.bytes() == &sent[1..]);
            input.take_back(&mut aside);
            assert!(aside.is_empty() && aside.buf.len() <= SMALL && input.bytes() == &sent[1..]);
            assert_eq!(input.buf.as_ptr(), buffer);
            input.consume(n);
        }
    }

    #[test]
    fn many_bytes_are_set_aside_with_the_buffer() {
        let sent = vec![7; SET_ASIDE + 1];
        let mut input = Input { start: 0, end: sent.len(), buf: sent.clone() };
        let (mut aside, buffer) = (Input::default(), input.buf.as_ptr());
        input.set_aside(&mut aside);
        assert!(input.is_empty() && aside.buf.as_ptr() == buffer);
        let mut other = Input::default();
        other.take_back(&mut aside);
        assert!(aside.is_empty() && other.bytes() == sent && other.buf.as_ptr() == buffer);
    }
}
