//! A line in the log for each wait for a lock that lasts long, and one for its end:
//! `--log-lock-waits`.
//!
//! A session whose statement waits looks after that time at how long, and queues the wait here. Who
//! blocks it, and what the blocker runs, only the blocker's session knows: so all workers are asked
//! for their sessions, as for `clearway.locks`, and the waits that are in progress then are logged.
//! Without long waits nothing of this is done.
//!
//! Invariants
//! 1. One roll is under way at a time, and rolls are [`APART`]: the cost of logging is bounded,
//!    whatever the number of waits.
//! 2. A session that has queued a wait comes again until it was taken up.
//!
//! Locking: the queue is behind a latch, held to append to it or to take it. A crash leaves
//! nothing.

use crate::locks::Waits;
use crate::sessions::{Roll, SessionInfo};
use crate::shared::Shared;
use clearway_coordinator::{Engine, LockWait, LoggedWait, WaitId, one_line};
use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use hashbrown::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time between two rolls.
const APART: Duration = Duration::from_millis(100);

static LONG_WAITS: Class = Class::new("server.long_waits");

#[derive(Default)]
struct Queue {
    waits: Vec<WaitId>,
    /// A roll is under way.
    rolling: bool,
    /// There is none before.
    next: Option<Instant>,
}

/// Waits that are to be logged.
pub struct LongWaits(Latch<Queue>);

impl Default for LongWaits {
    fn default() -> Self {
        Self(Latch::new(&LONG_WAITS, Queue::default()))
    }
}

impl LongWaits {
    /// Queues waits, and has those in the queue logged. Returns when to come again, if some are
    /// left in it.
    pub(crate) fn log(
        shared: &Arc<Shared>,
        engine: &Arc<Engine>,
        mut waits: Vec<WaitId>,
    ) -> Option<Duration> {
        let taken = {
            let mut queue = shared.long_waits.0.lock();
            queue.waits.append(&mut waits);
            if queue.waits.is_empty() {
                return None;
            }
            let now = Instant::now();
            let early =
                queue.next.map_or(Duration::ZERO, |next| next.saturating_duration_since(now));
            if queue.rolling || !early.is_zero() {
                return Some(if early.is_zero() { APART } else { early });
            }
            queue.rolling = true;
            queue.next = Some(now + APART);
            std::mem::take(&mut queue.waits)
        };
        // Weak: a roll is in the workers' inboxes, and they stop without answering it.
        let (weak, engine) = (Arc::downgrade(shared), Arc::downgrade(engine));
        Roll::call(shared, move |sessions| {
            if let Some(engine) = engine.upgrade() {
                log_all(&engine, &taken, &sessions);
            }
            if let Some(shared) = weak.upgrade() {
                shared.long_waits.0.lock().rolling = false;
            }
        });
        None
    }
}

/// Logs those of the waits that are in progress.
fn log_all(engine: &Engine, wanted: &[WaitId], sessions: &[SessionInfo]) {
    let all = engine.lock_waits();
    let waits = Waits::new(&all, sessions);
    let by_id: HashMap<WaitId, &LockWait> = all.iter().map(|wait| (wait.id, wait)).collect();
    for wait in wanted.iter().filter_map(|id| by_id.get(id)) {
        let Some(waiter) = waits.session(wait.waiter) else { continue };
        let (pid, what, statement) = (waiter.pid, wait.what(), last_statement(waiter));
        let logged = LoggedWait { pid, what: what.clone(), statement: statement.clone() };
        // Noted first, so that its end is logged whenever that is.
        if !engine.wait_is_logged(wait.waiter, wait.id, logged) {
            continue;
        }
        let ms = wait.waited.as_secs_f64() * 1e3;
        let blockers: Vec<&SessionInfo> =
            wait.blockers.iter().filter_map(|txn| waits.session(*txn)).collect();
        let pids: Vec<String> = blockers.iter().map(|blocker| blocker.pid.to_string()).collect();
        let holder = waits.holder(wait).and_then(|txn| waits.session(txn));
        let holder =
            holder.filter(|holder| blockers.first().is_some_and(|first| first.pid != holder.pid));
        let blocked_by = match (pids.as_slice(), holder) {
            ([], _) => String::new(),
            (pids, None) => format!("; blocked by process {}", pids.join(", ")),
            (pids, Some(holder)) => {
                format!(
                    "; blocked by process {}; the chain ends at process {}",
                    pids.join(", "),
                    holder.pid
                )
            }
        };
        let blocker = blockers.first().map(|blocker| (blocker.state, last_statement(blocker)));
        let (state, blocker_statement) = blocker.unzip();
        let holder_statement = holder.map(last_statement);
        tracing::info!(
            statement,
            blocker_state = state,
            blocker_statement,
            holder_statement,
            "process {pid} still waits for {what} after {ms:.3} ms{blocked_by}"
        );
    }
}

fn last_statement(session: &SessionInfo) -> String {
    session.statement.as_ref().map_or_else(String::new, |(text, _)| one_line(text))
}
