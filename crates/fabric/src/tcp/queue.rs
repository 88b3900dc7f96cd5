//! A worker's end of a queue pair: requests in order, messages and their RECVs.

use super::frame::{self, Malformed, SendStatus, TcpFrame};
use super::peer::{Peer, write_some};
use crate::{Request, ScratchRange, Verb, VerbError};
use rustix::net::RecvFlags;
use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;

/// Bytes read at a time.
const READ_BYTES: usize = 1 << 16;

fn received(stream: &TcpStream, buffer: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
    Ok(rustix::net::recv(stream, buffer, flags)?.1)
}

/// The connection to the other end.
pub(super) enum Link {
    /// The worker's own connection.
    Connected { stream: TcpStream, input: Vec<u8>, output: Vec<u8>, sent: usize },
    /// A peer's connection, which the adapter reads.
    Accepted(Arc<Peer>),
}

/// An end of a queue pair.
pub(super) struct Queue {
    pub link: Link,
    /// Incomplete requests, in posting order.
    requests: VecDeque<(Request, Option<Result<usize, VerbError>>)>,
    recvs: VecDeque<(u64, ScratchRange)>,
    inbox: VecDeque<Vec<u64>>,
    /// The accepting worker is gone: nothing arrives after the messages in the inbox.
    left: bool,
    pub broken: bool,
}

/// A request's id and its result.
pub(super) type Ended = (u64, Result<usize, VerbError>);

impl Queue {
    pub fn new(link: Link) -> Self {
        let (requests, recvs, inbox) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        Self { link, requests, recvs, inbox, left: false, broken: false }
    }

    /// Returns the numbers of incomplete requests and RECVs.
    pub fn lengths(&self) -> (usize, usize) {
        (self.requests.len(), self.recvs.len())
    }

    /// Returns true if the other end may still have something for this one.
    pub fn is_waiting(&self) -> bool {
        !(self.requests.is_empty() && self.recvs.is_empty())
    }

    /// Accepts a request and appends its frame to `out`.
    pub fn add(&mut self, request: Request, scratch: &[u64], out: &mut Vec<u8>) {
        if let Verb::Recv { local } = request.verb {
            self.recvs.push_back((request.id, local));
            return;
        }
        let result = if self.broken { Some(Err(VerbError::Flushed)) } else { None };
        self.requests.push_back((request, result));
        if self.broken {
            return;
        }
        let local = request.verb.scratch();
        let words = &scratch[local.start..local.start + local.words];
        match request.verb {
            Verb::Read { remote, .. } => {
                frame::read(out, remote.key.key, remote.word, local.words as u32)
            }
            Verb::Write { remote, .. } => frame::write(out, remote.key.key, remote.word, words),
            Verb::Cas { remote, expected, new, .. } => {
                frame::cas(out, remote.key.key, remote.word, expected, new)
            }
            Verb::Faa { remote, add, .. } => frame::faa(out, remote.key.key, remote.word, add),
            Verb::Send { .. } => {
                if let Link::Accepted(peer) = &self.link {
                    peer.count_send();
                }
                frame::send(out, words);
            }
            Verb::Recv { .. } => {}
        }
    }

    /// Sends frames of requests or of finished messages.
    pub fn send(&mut self, bytes: &[u8]) {
        match &mut self.link {
            Link::Accepted(peer) => peer.send(bytes),
            Link::Connected { stream, output, sent, .. } => {
                output.extend_from_slice(bytes);
                if write_some(stream, output, sent).is_err() {
                    self.break_off(VerbError::PeerDead);
                }
            }
        }
    }

    /// Returns true if all output is sent and the next event is a reply on this connection.
    pub fn waits_for_answer(&self) -> bool {
        matches!(&self.link, Link::Connected { output, .. } if output.is_empty())
            && !self.broken
            && !self.has_ended()
    }

    /// Returns true if the oldest request has finished.
    pub fn has_ended(&self) -> bool {
        self.requests.front().is_some_and(|(_, result)| result.is_some())
    }

    /// Reads the connection and handles its frames. Blocks for the socket's read time-out unless
    /// `flags` say otherwise.
    pub fn read(&mut self, scratch: &mut [u64], buffer: &mut Vec<u8>, flags: RecvFlags) {
        buffer.resize(READ_BYTES, 0);
        let Link::Connected { stream, input, output, sent } = &mut self.link else { return };
        let mut taken = std::mem::take(input);
        let flushed = write_some(stream, output, sent);
        let alive = match flushed.and_then(|()| received(stream, buffer, flags)) {
            Ok(0) => false,
            Ok(count) => {
                taken.extend_from_slice(&buffer[..count]);
                true
            }
            Err(why) => {
                matches!(why.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
            }
        };
        let mut done = 0;
        let understood = loop {
            match frame::decode(&taken[done..]) {
                Ok(Some((frame, length))) => {
                    done += length;
                    if self.handle(frame, scratch).is_err() {
                        break false;
                    }
                }
                Ok(None) => break true,
                Err(Malformed) => break false,
            }
        };
        taken.drain(..done);
        if let Link::Connected { input, .. } = &mut self.link {
            *input = taken;
        }
        if !(alive && understood) {
            self.break_off(VerbError::PeerDead);
        }
    }

    fn handle(&mut self, frame: TcpFrame<'_>, scratch: &mut [u64]) -> Result<(), Malformed> {
        match frame {
            TcpFrame::Send(words) => {
                if self.inbox.len() >= super::QUEUE_DEPTH {
                    return Err(Malformed);
                }
                self.inbox.push_back(words.values().collect());
                return Ok(());
            }
            TcpFrame::SendDone(status) => return self.send_done(status),
            TcpFrame::Left => {
                self.left = true;
                return Ok(());
            }
            _ => {}
        }
        if self.broken {
            return Ok(());
        }
        let open = |(request, result): &&mut (Request, _)| {
            Option::is_none(result) && request.verb.remote().is_some()
        };
        let (request, result) = self.requests.iter_mut().find(open).ok_or(Malformed)?;
        let local = request.verb.scratch();
        let scratch = &mut scratch[local.start..local.start + local.words];
        match (frame, request.verb) {
            (TcpFrame::ReadDone(words), Verb::Read { .. }) if words.len() == local.words => {
                words.values().zip(scratch).for_each(|(value, word)| *word = value);
            }
            (TcpFrame::WriteDone, Verb::Write { .. }) => {}
            (TcpFrame::AtomicDone(old), Verb::Cas { .. } | Verb::Faa { .. }) => scratch[0] = old,
            (TcpFrame::Refused, _) => {
                self.break_one_sided(VerbError::RemoteAccess);
                return Ok(());
            }
            _ => return Err(Malformed),
        }
        *result = Some(Ok(local.words));
        Ok(())
    }

    /// Adds a message from the other end.
    pub fn message(&mut self, words: Vec<u64>) {
        self.inbox.push_back(words);
    }

    /// Handles the end of the oldest SEND.
    pub fn send_done(&mut self, status: SendStatus) -> Result<(), Malformed> {
        if self.broken {
            return Ok(());
        }
        let open = |(request, result): &(Request, Option<_>)| {
            result.is_none() && request.verb.remote().is_none()
        };
        let index = self.requests.iter().position(open).ok_or(Malformed)?;
        match status {
            SendStatus::Taken => {
                let words = self.requests[index].0.verb.scratch().words;
                self.requests[index].1 = Some(Ok(words));
            }
            SendStatus::TooLong => self.break_at(index, VerbError::MessageTooLong),
            SendStatus::Gone => self.break_at(index, VerbError::PeerDead),
        }
        Ok(())
    }

    fn break_one_sided(&mut self, why: VerbError) {
        let open = |(request, result): &(Request, Option<_>)| {
            result.is_none() && request.verb.remote().is_some()
        };
        if let Some(index) = self.requests.iter().position(open) {
            self.break_at(index, why);
        }
    }

    /// Fails this request with `why`. All later requests, and earlier ones that have not finished,
    /// fail as flushed.
    fn break_at(&mut self, index: usize, why: VerbError) {
        self.broken = true;
        for (at, (_, result)) in self.requests.iter_mut().enumerate() {
            if at == index {
                *result = Some(Err(why));
            } else if at > index || result.is_none() {
                *result = Some(Err(VerbError::Flushed));
            }
        }
    }

    /// Fails everything that has not finished, the first request with `why`.
    pub fn break_off(&mut self, why: VerbError) {
        if self.broken {
            return;
        }
        self.broken = true;
        if let Some(first) = self.requests.iter().position(|(_, result)| result.is_none()) {
            self.break_at(first, why);
        }
    }

    /// Delivers messages to RECVs and appends the replies for the sender to `out`. Returns one RECV
    /// that has finished.
    pub fn match_messages(&mut self, scratch: &mut [u64], out: &mut Vec<u8>) -> Option<Ended> {
        if self.left && self.inbox.is_empty() && !self.recvs.is_empty() {
            self.break_off(VerbError::PeerDead);
        }
        if self.broken {
            return self.recvs.pop_front().map(|(id, _)| (id, Err(VerbError::Flushed)));
        }
        if self.recvs.is_empty() || self.inbox.is_empty() {
            return None;
        }
        let ((id, local), message) = (self.recvs.pop_front()?, self.inbox.pop_front()?);
        if let Link::Accepted(peer) = &self.link {
            peer.message_ended();
        }
        if message.len() > local.words {
            frame::send_done(out, SendStatus::TooLong);
            self.break_off(VerbError::Flushed);
            return Some((id, Err(VerbError::MessageTooLong)));
        }
        frame::send_done(out, SendStatus::Taken);
        scratch[local.start..local.start + message.len()].copy_from_slice(&message);
        Some((id, Ok(message.len())))
    }

    /// Returns the next finished request, in order.
    pub fn next_ended(&mut self) -> Option<Ended> {
        let (request, result) = self.requests.front()?;
        let ended = (request.id, (*result)?);
        self.requests.pop_front();
        Some(ended)
    }

    /// Tells the other end that this one receives and sends no more messages.
    pub fn leave(&mut self) {
        if let Link::Accepted(peer) = &self.link {
            let mut out = Vec::new();
            self.inbox.iter().for_each(|_| frame::send_done(&mut out, SendStatus::Gone));
            frame::left(&mut out);
            peer.send(&out);
        }
    }
}
