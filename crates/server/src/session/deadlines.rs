//! A session's deadlines: for its startup packet, its statement, its waits for locks (their timeout
//! and their log line), its idle time inside a transaction, and the time that a client which has
//! closed its side takes to read on.
//!
//! Invariants
//! 1. Each kind has at most one pending deadline at the worker. It may be left over from an earlier
//!    statement or wait: then it fires too early and is set again. One that became meaningless is
//!    cancelled before the next one is set, and when the session is closed.
//! 2. A wait for a lock is measured from its own start, which the engine knows:
//!    [`Client::waited_for_lock`].
//! 3. A session is idle in a transaction from its ReadyForQuery until the whole next message has
//!    arrived.
//! 4. A sleep, and a wait for another session's end, have a deadline of their own. Its ticket is in
//!    the phase. If the phase ends earlier, the deadline is cancelled.
//!
//! Locking: none. A crash leaves nothing.
//!
//! [`Client::waited_for_lock`]: clearway_coordinator::Client::waited_for_lock

use super::run::Task;
use super::{Context, Phase, Session};
use crate::long_waits::LongWaits;
use crate::settings::Settings;
use crate::timers::Timers;
use clearway_coordinator::TxnStatus;
use clearway_types::{SqlError, SqlState};
use std::time::{Duration, Instant};

/// Time limits from the settings; `None` means no limit.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Limits {
    statement: Option<Duration>,
    lock: Option<Duration>,
    idle: Option<Duration>,
}

/// Tickets of the pending deadlines, 0 for none, and the times that they refer to.
#[derive(Default)]
pub(super) struct Deadlines {
    limits: Limits,
    startup: u64,
    statement: u64,
    lock: u64,
    long_wait: u64,
    idle: u64,
    draining: u64,
    /// Bytes that were not sent yet when the deadline `draining` was set.
    unsent: usize,
    /// Tickets of deadlines that have become meaningless and are not cancelled yet.
    dropped: Vec<u64>,
    statement_ends: Option<Instant>,
    idle_since: Option<Instant>,
}

impl Deadlines {
    /// Applies the settings. If a limit has changed, all pending deadlines are dropped: they could
    /// be too late for the new limits.
    pub(super) fn follow(&mut self, settings: &Settings) {
        let limit = |name| match settings.milliseconds(name) {
            0 => None,
            ms => Some(Duration::from_millis(ms)),
        };
        let limits = Limits {
            statement: limit("statement_timeout"),
            lock: limit("lock_timeout"),
            idle: limit("idle_in_transaction_session_timeout"),
        };
        if limits != self.limits {
            self.drop_all();
            *self = Self { limits, dropped: std::mem::take(&mut self.dropped), ..Self::default() };
        }
    }

    /// Drops the pending deadlines.
    fn drop_all(&mut self) {
        let kinds = [
            &mut self.startup,
            &mut self.statement,
            &mut self.lock,
            &mut self.long_wait,
            &mut self.idle,
            &mut self.draining,
        ];
        let pending = kinds.into_iter().map(std::mem::take).filter(|ticket| *ticket != 0);
        self.dropped.extend(pending);
    }

    /// Cancels the dropped deadlines.
    fn cancel_dropped(&mut self, timers: &mut Timers) {
        self.dropped.drain(..).for_each(|ticket| timers.cancel(ticket));
    }

    /// Notes that a message has arrived.
    pub(super) fn message_arrived(&mut self) {
        self.idle_since = None;
    }
}

impl Session {
    /// Sets the ticket of the startup deadline. A connection that has not sent its startup packet
    /// by then is closed.
    pub fn expect_startup(&mut self, ticket: u64) {
        self.deadlines.startup = ticket;
    }

    /// Starts the statement's timeout and the measurement of its latency.
    pub(super) fn statement_begins(&mut self, cx: &mut Context<'_>) {
        let now = cx.clock.begin();
        (self.times.began, self.times.is_timed) = (now, true);
        self.deadlines.statement_ends = self.deadlines.limits.statement.map(|limit| now + limit);
    }

    /// Stops the statement's timeout and counts its latency.
    pub(super) fn statement_ended(&mut self, cx: &mut Context<'_>) {
        self.deadlines.statement_ends = None;
        if std::mem::take(&mut self.times.is_timed) {
            let took = cx.clock.end().duration_since(self.times.began);
            cx.counters().statement_took(took);
        }
    }

    /// Sets deadlines for a statement that starts to wait.
    pub(super) fn limit_wait(&mut self, cx: &mut Context<'_>) {
        self.times.has_waited = true;
        let (slot, d) = (self.schedule.slot, &mut self.deadlines);
        d.cancel_dropped(cx.timers);
        if let Some(ends) = d.statement_ends.filter(|_| d.statement == 0) {
            d.statement = cx.timers.set(ends, slot);
        }
        if let Some(limit) = d.limits.lock.filter(|_| d.lock == 0) {
            d.lock = cx.timers.set(cx.now() + limit, slot);
        }
        if let Some(limit) = cx.shared.config.log_lock_waits.0.filter(|_| d.long_wait == 0) {
            d.long_wait = cx.timers.set(cx.now() + limit, slot);
        }
    }

    /// Sets the deadline for idle time in a transaction, after ReadyForQuery.
    pub(super) fn limit_idle_time(&mut self, cx: &mut Context<'_>) {
        let (slot, d) = (self.schedule.slot, &mut self.deadlines);
        d.cancel_dropped(cx.timers);
        let Some(limit) = d.limits.idle else { return };
        let now = cx.now();
        d.idle_since = Some(now);
        if d.idle == 0 {
            d.idle = cx.timers.set(now + limit, slot);
        }
    }

    /// Cancels the session's deadlines, before it is closed.
    pub fn cancel_deadlines(&mut self, timers: &mut Timers) {
        self.deadlines.drop_all();
        self.deadlines.cancel_dropped(timers);
        self.cancel_wait(timers);
    }

    /// Cancels the deadline of the phase, if it has one: the phase ends.
    pub(super) fn cancel_wait(&self, timers: &mut Timers) {
        match &self.phase {
            Phase::Sleeping { ticket, .. } => timers.cancel(*ticket),
            Phase::Ending(ending) => timers.cancel(ending.ticket()),
            _ => {}
        }
    }

    /// Handles a deadline that has been reached.
    pub fn deadline(&mut self, cx: &mut Context<'_>, ticket: u64) {
        let d = &mut self.deadlines;
        if ticket == d.startup {
            d.startup = 0;
            return self.startup_is_due();
        }
        if ticket == d.statement {
            d.statement = 0;
            return self.statement_is_due(cx);
        }
        if ticket == d.lock {
            d.lock = 0;
            return self.lock_is_due(cx);
        }
        if ticket == d.long_wait {
            d.long_wait = 0;
            return self.long_wait_is_due(cx);
        }
        if ticket == d.draining {
            d.draining = 0;
            return self.draining_is_due(cx);
        }
        if ticket == d.idle {
            d.idle = 0;
            return self.idle_time_is_due(cx);
        }
        if matches!(self.phase, Phase::Ending(_)) {
            return self.ending_is_due(cx, ticket);
        }
        if matches!(&self.phase, Phase::Sleeping { ticket: t, .. } if *t == ticket)
            && let Phase::Sleeping { run, .. } = std::mem::replace(&mut self.phase, Phase::Idle)
        {
            self.start_in_engine(cx, run);
        }
    }

    /// Closes silently, as PostgreSQL does: the client's protocol is still unknown.
    fn startup_is_due(&mut self) {
        if matches!(self.phase, Phase::Startup) {
            self.phase = Phase::Closing;
        }
    }

    /// Sets the deadline for a client that has closed its side and has not taken all replies.
    pub(super) fn limit_draining(&mut self, cx: &mut Context<'_>) {
        if self.deadlines.draining == 0 {
            let limit = Duration::from_millis(cx.shared.config.startup_timeout_ms);
            self.deadlines.unsent = self.io.unsent();
            self.deadlines.draining = cx.timers.set(cx.now() + limit, self.schedule.slot);
        }
    }

    /// Closes the connection if its client has taken nothing since the deadline was set.
    fn draining_is_due(&mut self, cx: &mut Context<'_>) {
        // If the socket takes output, the replies wait for the log.
        if self.io.writable || self.io.unsent() < self.deadlines.unsent {
            self.limit_draining(cx);
        } else {
            self.phase = Phase::Closing;
        }
    }

    fn statement_is_due(&mut self, cx: &mut Context<'_>) {
        let Some(ends) = self.deadlines.statement_ends else { return };
        if cx.now() < ends {
            self.deadlines.statement = cx.timers.set(ends, self.schedule.slot);
            return;
        }
        let e =
            SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to statement timeout");
        self.interrupt(cx, e);
    }

    fn lock_is_due(&mut self, cx: &mut Context<'_>) {
        let (Phase::Running { task }, Some(limit), Some(client)) =
            (&self.phase, self.deadlines.limits.lock, &self.client)
        else {
            return;
        };
        if matches!(task, Task::EndImplicit { .. }) {
            return;
        }
        let waited = client.waited_for_lock().unwrap_or_default();
        match limit.checked_sub(waited).filter(|left| !left.is_zero()) {
            Some(left) => self.deadlines.lock = cx.timers.set(cx.now() + left, self.schedule.slot),
            None => {
                let e = SqlError::new(
                    SqlState::LOCK_NOT_AVAILABLE,
                    "canceling statement due to lock timeout",
                );
                self.interrupt(cx, e);
            }
        }
    }

    /// Logs the statement's long waits, and schedules the next check while the statement runs.
    fn long_wait_is_due(&mut self, cx: &mut Context<'_>) {
        let Some(limit) = cx.shared.config.log_lock_waits.0 else { return };
        let mut waits = Vec::new();
        let running = self.client.as_ref().filter(|_| matches!(self.phase, Phase::Running { .. }));
        let next = running.map(|client| client.claim_long_waits(limit, &mut waits));
        let again = LongWaits::log(cx.shared, cx.port.engine(), waits);
        if let Some(next) = next.into_iter().chain(again).min() {
            self.deadlines.long_wait = cx.timers.set(cx.now() + next, self.schedule.slot);
        }
    }

    fn idle_time_is_due(&mut self, cx: &mut Context<'_>) {
        let (Some(limit), Some(since)) = (self.deadlines.limits.idle, self.deadlines.idle_since)
        else {
            return;
        };
        if !matches!(self.phase, Phase::Idle) || self.status() == TxnStatus::Idle {
            return;
        }
        if cx.now() < since + limit {
            self.deadlines.idle = cx.timers.set(since + limit, self.schedule.slot);
            return;
        }
        if !self.waits_for_a_message() {
            return;
        }
        let e = SqlError::new(
            SqlState(*b"25P03"),
            "terminating connection due to idle-in-transaction timeout",
        );
        self.fatal(cx, &e);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::SetScope;
    use clearway_ir::statement::Isolation;

    #[test]
    fn invariant_1_changed_limits_leave_no_deadlines() {
        let (mut timers, mut deadlines) = (Timers::default(), Deadlines::default());
        let mut settings = Settings::new("", true, Isolation::default());
        let hour = Instant::now() + Duration::from_secs(3600);
        for limit in ["1h", "2h", "0", "3h"] {
            settings.set("statement_timeout", Some(limit), SetScope::Session).unwrap();
            deadlines.follow(&settings);
            deadlines.cancel_dropped(&mut timers);
            assert!(timers.is_empty() && deadlines.statement == 0);
            deadlines.statement = timers.set(hour, 0);
            deadlines.idle = timers.set(hour, 0);
        }
        deadlines.follow(&settings);
        assert!(deadlines.statement != 0 && deadlines.idle != 0);
    }
}
