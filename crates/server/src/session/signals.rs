//! pg_cancel_backend and pg_terminate_backend: signals to other sessions.
//!
//! Invariant: a session that was told to terminate begins no further statement; a commit in
//! progress completes first.

use super::{Context, Phase, Session};
use crate::shared::Shared;
use clearway_ir::{Backends, Signal};
use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_types::SqlState;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

static UNKNOWN: Class = Class::new("server.unknown_pids");

/// Maximum number of warnings about single backend ids after a statement. One more warning counts
/// the others.
const MAX_WARNINGS: usize = 100;

/// Signalled backend ids without a session.
#[derive(Default)]
struct UnknownPids {
    /// The first [`MAX_WARNINGS`] of them.
    first: Vec<i32>,
    /// Number of the others.
    more: u64,
}

impl UnknownPids {
    fn push(&mut self, pid: i32) {
        if self.first.len() < MAX_WARNINGS {
            self.first.push(pid);
        } else {
            self.more += 1;
        }
    }
}

/// Sends signals to other sessions. Expressions use it from any worker's thread.
pub(super) struct Signals {
    shared: Arc<Shared>,
    /// What the client is warned about when the statement ends.
    unknown: Latch<UnknownPids>,
    /// True if `unknown` may be non-empty.
    any: AtomicBool,
}

impl Signals {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let unknown = Latch::new(&UNKNOWN, UnknownPids::default());
        Self { shared, unknown, any: AtomicBool::new(false) }
    }

    /// Takes the backend ids without a session.
    fn take_unknown(&self) -> UnknownPids {
        // Acquire: pairs with the Release in `signal`. Most statements send no signal and take no
        // latch.
        if !self.any.load(Ordering::Acquire) {
            return UnknownPids::default();
        }
        // Relaxed: the latch orders it. Cleared before the list is taken, so that no later push is
        // missed.
        self.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut *self.unknown.lock())
    }
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signals")
    }
}

impl Backends for Signals {
    fn signal(&self, pid: i32, signal: Signal) -> bool {
        let sent = self.shared.signal(pid, signal);
        if !sent {
            self.unknown.lock().push(pid);
            // Release: pairs with the Acquire in `take_unknown`.
            self.any.store(true, Ordering::Release);
        }
        sent
    }
}

impl Session {
    /// Warns the client about signalled backend ids without a session.
    pub(super) fn warn_about_unknown_pids(&mut self) {
        let UnknownPids { first, more } = self.signals.take_unknown();
        for pid in first {
            let text = format!("PID {pid} is not a PostgreSQL backend process");
            self.notices(&[(SqlState::WARNING, text)]);
        }
        if more > 0 {
            let text = format!("further PIDs that are not PostgreSQL backend processes: {more}");
            self.notices(&[(SqlState::WARNING, text)]);
        }
    }

    /// Handles pg_terminate_backend from another session: cancels what runs in the engine and ends
    /// the session when that has ended.
    pub fn terminate(&mut self, cx: &mut Context<'_>) {
        self.terminating = true;
        if matches!(self.phase, Phase::Running { .. }) {
            self.interrupt(cx, Signal::Terminate.error());
        }
    }

    /// Ends the session if it was told to terminate and nothing runs.
    pub(super) fn end_if_terminated(&mut self, cx: &mut Context<'_>) {
        if self.terminating && !matches!(self.phase, Phase::Running { .. } | Phase::Closing) {
            self.cancel_wait(cx.timers);
            self.fatal(cx, &Signal::Terminate.error());
        }
    }
}
