//! The sending half of a connection at the adapter's side, shared by the adapter and one worker.

use super::{HIGH_WATER, adapter::Watch};
use rustix::io::Errno;
use rustix::net::SendFlags;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A connection that a peer opened.
pub(super) struct Peer {
    /// Its number at this node, never reused.
    pub id: u64,
    pub stream: TcpStream,
    watch: Watch,
    output: Mutex<Output>,
    /// Messages of the peer that have not been received.
    messages: AtomicUsize,
    /// Messages to the peer that it has not answered.
    sends: AtomicUsize,
}

#[derive(Default)]
struct Output {
    bytes: Vec<u8>,
    sent: usize,
    /// Whether the adapter waits for room in the socket, and whether it has stopped reading.
    watched: (bool, bool),
}

impl Peer {
    pub fn new(id: u64, stream: TcpStream, watch: Watch) -> Self {
        let (messages, sends) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { id, stream, watch, output: Mutex::default(), messages, sends }
    }

    fn output(&self) -> MutexGuard<'_, Output> {
        // A panic under this lock leaves whole frames, or a closed connection.
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends as much as the socket accepts. The adapter sends the rest later.
    pub fn send(&self, bytes: &[u8]) {
        let mut output = self.output();
        output.bytes.extend_from_slice(bytes);
        self.flush_locked(&mut output);
    }

    /// Sends waiting bytes if the socket accepts them.
    pub fn flush(&self) {
        self.flush_locked(&mut self.output());
    }

    fn flush_locked(&self, output: &mut Output) {
        match write_some(&self.stream, &mut output.bytes, &mut output.sent) {
            Ok(()) => {
                let len = output.bytes.len();
                // While too much was waiting, the adapter may have left requests. If a worker has
                // sent that output, one more event must wake the adapter.
                let unclogs = output.watched.1 && len <= HIGH_WATER;
                let state = (len > 0 || unclogs, len > HIGH_WATER);
                if state != output.watched {
                    output.watched = state;
                    self.watch.change(self, state.0, !state.1);
                }
            }
            // The adapter finds the connection closed and forgets it.
            Err(_) => self.close(),
        }
    }

    /// Counts a message that has arrived. Returns the number of messages not yet received.
    pub fn count_message(&self) -> usize {
        // Relaxed, here and below: a count, which publishes nothing.
        self.messages.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Counts a message as received or refused.
    pub fn message_ended(&self) {
        self.messages.fetch_sub(1, Ordering::Relaxed); // Relaxed: see `count_message`.
    }

    /// Counts a message that is about to be sent.
    pub fn count_send(&self) {
        self.sends.fetch_add(1, Ordering::Relaxed); // Relaxed: see `count_message`.
    }

    /// Counts a message as answered. Returns false if the peer has answered all of them.
    pub fn send_ended(&self) -> bool {
        let less = |sends: usize| sends.checked_sub(1);
        // Relaxed: see `count_message`.
        self.sends.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// Returns true if so much output is waiting that no more requests should be read.
    pub fn is_clogged(&self) -> bool {
        self.output().bytes.len() > HIGH_WATER
    }

    /// Closes the connection for both ends.
    pub fn close(&self) {
        // It may be closed already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Writes as much as the socket accepts. Leaves `bytes` empty if that was everything.
pub(super) fn write_some(
    stream: &TcpStream,
    bytes: &mut Vec<u8>,
    sent: &mut usize,
) -> io::Result<()> {
    while *sent < bytes.len() {
        match rustix::net::send(stream, &bytes[*sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
        {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => *sent += count,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                bytes.drain(..*sent);
                *sent = 0;
                return Ok(());
            }
            Err(why) => return Err(why.into()),
        }
    }
    bytes.clear();
    *sent = 0;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    /// The adapter leaves requests while too much output waits, so the end of that must wake it.
    #[test]
    fn a_send_that_unclogs_a_connection_wakes_the_adapter() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        reader.set_nonblocking(true).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let watch = Watch::new().unwrap();
        watch.add(&stream, 2).unwrap();
        let peer = Peer::new(2, stream, watch);
        let mut bytes = vec![0; HIGH_WATER];
        while !peer.is_clogged() {
            peer.send(&bytes);
        }
        assert_eq!(peer.output().watched, (true, true));
        let mut flush_after_read = || {
            while reader.read(&mut bytes).is_ok_and(|read| read > 0) {}
            peer.send(&[]);
        };
        while peer.is_clogged() {
            flush_after_read();
        }
        assert_eq!(peer.output().watched, (true, false), "the adapter sleeps");
        // The adapter's own flush.
        while !peer.output().bytes.is_empty() {
            flush_after_read();
        }
        peer.flush();
        assert_eq!(peer.output().watched, (false, false));
    }
}
