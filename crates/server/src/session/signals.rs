//! Ending other sessions' statements, and other sessions: pg_cancel_backend and
//! pg_terminate_backend.
//!
//! Invariant: a session that is to end begins no statement more; a commit that is under way ends
//! first.

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

/// A session's way to the others, which its expressions take in any worker's thread.
pub(super) struct Signals {
    shared: Arc<Shared>,
    /// Backend ids that were told and are nobody's: the client is warned.
    unknown: Latch<Vec<i32>>,
    any: AtomicBool,
}

impl Signals {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, unknown: Latch::new(&UNKNOWN, Vec::new()), any: AtomicBool::new(false) }
    }

    /// Takes the ids that are nobody's.
    fn take_unknown(&self) -> Vec<i32> {
        // Acquire: pairs with the Release in `signal`; most statements tell nobody anything, and
        // take no latch.
        if !self.any.load(Ordering::Acquire) {
            return Vec::new();
        }
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
        let told = self.shared.signal(pid, signal);
        if !told {
            self.unknown.lock().push(pid);
            // Release: pairs with the Acquire in `take_unknown`.
            self.any.store(true, Ordering::Release);
        }
        told
    }
}

impl Session {
    /// Warns the client of backend ids that are nobody's.
    pub(super) fn warn_of_unknown(&mut self) {
        for pid in self.signals.take_unknown() {
            let text = format!("PID {pid} is not a PostgreSQL backend process");
            self.notices(&[(SqlState::WARNING, text)]);
        }
    }

    /// Another session wants this one to end. What runs in the engine is cancelled, and the session
    /// ends when that has an end.
    pub fn terminate(&mut self, cx: &mut Context<'_>) {
        self.terminating = true;
        if matches!(self.phase, Phase::Running { .. }) {
            self.interrupt(cx, Signal::Terminate.error());
        }
    }

    /// Ends the session if it is to end, and nothing runs.
    pub(super) fn end_if_terminated(&mut self, cx: &Context<'_>) {
        if self.terminating && !matches!(self.phase, Phase::Running { .. } | Phase::Closing) {
            self.fatal(cx, &Signal::Terminate.error());
        }
    }
}
