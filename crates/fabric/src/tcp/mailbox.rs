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

/// A worker's mailbox. For each connection it holds at most the messages that the adapter admits
/// and one item of each other kind.
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
