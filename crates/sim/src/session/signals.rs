//! Signals from other sessions: `pg_cancel_backend` and `pg_terminate_backend`, as in the server.
//! The expression puts the signal into a mailbox and wakes the other session's worker, which takes
//! it in a later turn of its event loop.
//!
//! Invariants
//! 1. A cancel request ends the statement that runs when the session takes it, or nothing. Any
//!    other statement that answers 57014 or 57P01 is a finding (`refusal.rs`).
//! 2. A terminated session begins no further statement. The running one is cancelled and ends
//!    first.

use super::Session;
use crate::worker::Doorbell;
use clearway_ir::{Backends, Env, SessionEnv, Signal};
use clearway_types::{SqlError, SqlState};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Mailboxes of all sessions. A backend id is 1 more than the index of its mailbox.
pub struct Mailboxes {
    boxes: Vec<Mutex<Vec<Signal>>>,
    /// Sessions of each worker.
    sessions: usize,
    bells: Vec<Arc<Doorbell>>,
}

impl Mailboxes {
    /// Creates the mailboxes for workers with these doorbells.
    pub fn new(bells: Vec<Arc<Doorbell>>, sessions: u32) -> Self {
        let sessions = sessions as usize;
        let boxes = (0..bells.len() * sessions).map(|_| Mutex::default()).collect();
        Self { boxes, sessions, bells }
    }

    /// Returns the backend id of a worker's session.
    pub fn pid(&self, worker: u16, session: u32) -> i32 {
        (usize::from(worker) * self.sessions + session as usize + 1) as i32
    }

    /// Returns all backend ids but this one.
    pub(super) fn others(&self, pid: i32) -> Vec<i32> {
        (1..=self.boxes.len() as i32).filter(|other| *other != pid).collect()
    }

    fn of(&self, pid: i32) -> Option<(usize, &Mutex<Vec<Signal>>)> {
        let at = usize::try_from(pid).ok()?.checked_sub(1)?;
        self.boxes.get(at).map(|signals| (at / self.sessions, signals))
    }

    fn take(&self, pid: i32) -> Vec<Signal> {
        let Some((_, signals)) = self.of(pid) else { return Vec::new() };
        std::mem::take(&mut *signals.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Mailboxes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mailboxes")
    }
}

impl Backends for Mailboxes {
    fn signal(&self, pid: i32, signal: Signal) -> bool {
        let Some((worker, signals)) = self.of(pid) else { return false };
        signals.lock().unwrap_or_else(PoisonError::into_inner).push(signal);
        self.bells[worker].ring();
        true
    }
}

/// A session's view of its signals.
pub(super) struct Inbox {
    pid: i32,
    env: Arc<SessionEnv>,
    /// Signals on their way, each with the number of turns of the event loop left.
    coming: Vec<(u64, Signal)>,
    /// The errors with which the running statement was cancelled.
    interrupted: Vec<SqlState>,
    /// Whether the session was terminated.
    terminating: bool,
}

impl Inbox {
    pub(super) fn new(pid: i32, mailboxes: &Arc<Mailboxes>) -> Self {
        let backends: Arc<dyn Backends> = mailboxes.clone();
        let env = Arc::new(SessionEnv { pid, backends: Some(backends), ..SessionEnv::default() });
        Self { pid, env, coming: Vec::new(), interrupted: Vec::new(), terminating: false }
    }

    /// Returns the environment of the session's statements.
    pub(super) fn env(&self) -> Arc<Env> {
        Arc::new(Env { session: Some(self.env.clone()), ..Env::default() })
    }

    /// Clears the cancellations before a statement begins.
    pub(super) fn forget(&mut self) {
        self.interrupted.clear();
    }

    /// Returns true if the running statement was cancelled with this error.
    pub(super) fn explains(&self, state: SqlState) -> bool {
        self.interrupted.contains(&state)
    }

    /// Returns whether the session was terminated, and resets that for the next session.
    pub(super) fn take_end(&mut self) -> bool {
        std::mem::take(&mut self.terminating)
    }
}

impl Session {
    /// Takes the signals that have arrived.
    pub(super) fn take_signals(&mut self) {
        for signal in self.shared.mailboxes.take(self.inbox.pid) {
            self.inbox.coming.push((self.script.delays_signal(), signal));
        }
        let mut due = Vec::new();
        self.inbox.coming.retain_mut(|(turns, signal)| {
            let is_due = *turns == 0;
            if is_due {
                due.push(*signal);
            }
            *turns = turns.saturating_sub(1);
            !is_due
        });
        for signal in due {
            self.shared.trace.event(
                "signal",
                format!("{} {signal:?}", self.name).as_bytes(),
                || format!("{} is told to {signal:?}", self.name),
            );
            self.inbox.terminating |= signal == Signal::Terminate;
            if self.interrupt(&signal.error()) {
                // Relaxed: there is one OS thread.
                self.shared.interrupted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
    }

    /// Sometimes cancels the running statement, as the session's own client would.
    pub(super) fn cancel_at_times(&mut self) {
        if self.script.cancels() {
            let error = SqlError::new(SqlState::QUERY_CANCELED, "cancelled by the simulation");
            self.interrupt(&error);
        }
    }

    /// Cancels the running statement; returns false if there is none.
    fn interrupt(&mut self, error: &SqlError) -> bool {
        let Some(client) = &mut self.client else { return false };
        let runs = client.is_running();
        if runs {
            self.inbox.interrupted.push(error.state());
        }
        client.cancel(error);
        runs
    }
}
