//! The mailbox between adapter and worker: connections, messages, ends of messages.

use super::frame::SendStatus;
use super::peer::Peer;
use crate::WorkerAddr;
use rustix::event::EventfdFlags;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An item for a worker, with the number of its connection.
pub(super) enum Mail {
    Connected(Arc<Peer>, WorkerAddr),
    Message(u64, Vec<u64>),
    SendDone(u64, SendStatus),
    Closed(u64),
}

impl Mail {
    fn peer(&self) -> u64 {
        match self {
            Self::Connected(peer, _) => peer.id,
            Self::Message(peer, _) | Self::SendDone(peer, _) | Self::Closed(peer) => *peer,
        }
    }
}

/// A worker's mailbox. For each open connection it holds at most the messages that the adapter
/// admits, one end of each message that the worker has sent, and one item of each other kind; for a
/// closed one, nothing if its worker does not know it.
pub(super) struct Mailbox {
    state: Mutex<State>,
    /// Whether there is mail; read without the lock.
    full: AtomicBool,
    /// Readable while there is mail.
    bell: OwnedFd,
}

#[derive(Default)]
struct State {
    mail: VecDeque<Mail>,
    closed: bool,
    /// A worker owns the mailbox.
    owned: bool,
}

impl Mailbox {
    pub fn new() -> io::Result<Self> {
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { state: Mutex::default(), full: AtomicBool::new(false), bell })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic under this lock leaves the queue intact.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the mailbox to a worker. Returns false if another worker owns it.
    pub fn own(&self) -> bool {
        !std::mem::replace(&mut self.state().owned, true)
    }

    pub fn is_owned(&self) -> bool {
        self.state().owned
    }

    /// Adds mail. Returns it if the worker is gone.
    pub fn push(&self, mail: Mail) -> Result<(), Mail> {
        let mut state = self.state();
        if state.closed {
            return Err(mail);
        }
        state.mail.push_back(mail);
        // Release: pairs with the Acquire in `take`; the lock orders the rest.
        if !self.full.swap(true, Ordering::Release) {
            // The counter is 0 or 1, so the write cannot overflow it.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
        Ok(())
    }

    /// Ends a connection. Its worker need not know of one that it has not seen.
    pub fn end(&self, peer: u64) {
        let mut state = self.state();
        let is_new = |mail: &Mail| matches!(mail, Mail::Connected(of, _) if of.id == peer);
        if state.mail.iter().any(is_new) {
            return state.mail.retain(|mail| mail.peer() != peer);
        }
        drop(state);
        // A worker that is gone need not know, either.
        let _ = self.push(Mail::Closed(peer));
    }

    /// Takes all mail. Does not lock if there is none.
    pub fn take(&self) -> VecDeque<Mail> {
        // Acquire: pairs with the Release in `push`.
        if !self.full.load(Ordering::Acquire) {
            return VecDeque::new();
        }
        let mut state = self.state();
        self.full.store(false, Ordering::Relaxed); // Relaxed: under the lock, as is every store.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        std::mem::take(&mut state.mail)
    }

    /// Refuses mail from now on. Returns the mail that was not taken.
    pub fn close(&self) -> VecDeque<Mail> {
        let mut state = self.state();
        state.closed = true;
        std::mem::take(&mut state.mail)
    }

    /// Returns a descriptor that is readable while there is mail.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::super::adapter::Watch;
    use super::*;
    use crate::FabricNode;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn connections_that_end_unseen_leave_no_mail() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mailbox, watch) = (Mailbox::new().unwrap(), Watch::new().unwrap());
        let connect = |id| {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let from = WorkerAddr { node: FabricNode(0), port: 0 };
            let peer = Arc::new(Peer::new(id, stream, watch.clone()));
            assert!(mailbox.push(Mail::Connected(Arc::clone(&peer), from)).is_ok());
            assert!(mailbox.push(Mail::Message(id, Vec::new())).is_ok());
            peer
        };
        let (gone, seen) = (connect(2), connect(3));
        assert!(mailbox.push(Mail::Closed(2)).is_ok());
        mailbox.end(2);
        assert_eq!(Arc::strong_count(&gone), 1);
        let mail = mailbox.take();
        assert_eq!(mail.iter().map(Mail::peer).collect::<Vec<_>>(), [3, 3]);
        // The worker knows this one.
        mailbox.end(3);
        assert!(matches!(mailbox.take().make_contiguous(), [Mail::Closed(3)]));
        assert_eq!(Arc::strong_count(&seen), 2);
    }
}
