//! Signals to other sessions, and when they arrive.

use super::Script;
use crate::sql::Stmt;

impl Script {
    /// Sets the backend ids of the other sessions.
    pub fn set_others(&mut self, others: Vec<i32>) {
        self.others = others;
    }

    /// Sometimes generates a signal to another session.
    pub(super) fn signal(&mut self) -> Option<Stmt> {
        if self.others.is_empty() || self.mix.signals == 0 || !self.rng.percent(self.mix.signals) {
            return None;
        }
        Some(Stmt::Signal { pid: self.rng.pick(&self.others), terminate: self.rng.percent(25) })
    }

    /// Draws for how many turns of the event loop a signal is delayed after the session could take
    /// it.
    pub fn delays_signal(&mut self) -> u64 {
        if self.rng.percent(50) { 0 } else { self.rng.below(8) }
    }
}
