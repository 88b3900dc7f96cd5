//! `--log-lock-waits`: logs each long wait for a lock once while it lasts and once when it ends.
//!
//! A session whose statement still waits after the configured time queues the wait here. Only the
//! blocker's session knows what the blocker runs. So all workers are asked for their sessions, as
//! for `clearway.locks`, and the waits still in progress are logged. Without long waits this costs
//! nothing.
//!
//! Invariants
//! 1. At most one roll call is in progress, and roll calls are at least [`APART`] apart: the cost
//!    of logging is bounded, whatever the number of waits.
//! 2. A session that has queued a wait retries until the wait has been taken from the queue.
//!
//! Locking: a latch protects the queue; it is held to append to the queue or to empty it. A crash
//! leaves nothing.

use crate::locks::Waits;
use crate::sessions::{Roll, SessionInfo};
use crate::shared::Shared;
use clearway_coordinator::{Engine, LockWaitView, LoggedWait, WaitId, one_line};
use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use hashbrown::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The minimum time between two roll calls.
const APART: Duration = Duration::from_millis(100);

static LONG_WAITS: Class = Class::new("server.long_waits");

#[derive(Default)]
struct Queue {
    waits: Vec<WaitId>,
    /// A roll call is in progress.
    rolling: bool,
    /// Earliest time of the next roll call.
    next: Option<Instant>,
}

/// Waits that are queued to be logged.
pub struct LongWaits(Latch<Queue>);

impl Default for LongWaits {
    fn default() -> Self {
        Self(Latch::new(&LONG_WAITS, Queue::default()))
    }
}

impl LongWaits {
    /// Queues waits and starts a roll call that logs the queue. Returns when to retry, if the queue
    /// is left non-empty.
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
        // Weak: workers may stop without answering the roll call in their inboxes.
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

/// Logs the waits that are still in progress.
fn log_all(engine: &Engine, wanted: &[WaitId], sessions: &[SessionInfo]) {
    let all = engine.lock_waits();
    let waits = Waits::new(&all, sessions);
    let by_id: HashMap<WaitId, &LockWaitView> = all.iter().map(|wait| (wait.id, wait)).collect();
    for wait in wanted.iter().filter_map(|id| by_id.get(id)) {
        let Some(waiter) = waits.session(wait.waiter) else { continue };
        let (pid, what, statement) = (waiter.pid, wait.what(), last_statement(waiter));
        let logged = LoggedWait { pid, what: what.clone(), statement: statement.clone() };
        // Registered before it is logged, so that its end is logged whenever it comes.
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
