//! The checkpointer thread: checkpoints at an interval, when the log has grown by a given size, and
//! on request. It also flushes the log periodically for commits that do not wait for it.
//!
//! Invariant: a request made before a checkpoint begins is answered after that checkpoint ends,
//! never by an earlier one. A panic of the thread fails the engine, and all present and later
//! requests. Locking: one monitor over the requests, never held during I/O. A crash leaves the last
//! completed checkpoint.

use clearway_latch::Monitor;
use clearway_latch::lockstat::Class;
use clearway_storage::Node;
use clearway_sync::panics::caught;
use clearway_sync::thread::{self, JoinHandle};
use clearway_sync::time::{Duration, Instant};
use clearway_types::{SqlError, SqlState};
use std::sync::Arc;

const NAME: &str = "checkpointer";

static CHECKPOINTER: Class = Class::new("coordinator.checkpointer");

type Answer = Box<dyn FnOnce(Result<(), SqlError>) + Send>;

#[derive(Default)]
struct State {
    requests: Vec<Answer>,
    /// Successful checkpoints.
    made: u64,
    /// Why checkpoints have ended: the thread panicked, or could not be started.
    ended: Option<SqlError>,
    stop: bool,
    thread: Option<JoinHandle<()>>,
}

/// The thread and its requests.
pub(crate) struct Checkpointer {
    shared: Arc<Monitor<State>>,
}

impl Default for Checkpointer {
    fn default() -> Self {
        Self { shared: Arc::new(Monitor::new(&CHECKPOINTER, State::default())) }
    }
}

impl Checkpointer {
    /// Starts the thread. `lazy_flush`: interval at which it wakes and flushes the log for commits
    /// that do not wait.
    pub(crate) fn start(
        &self,
        node: &Arc<Node>,
        interval: Duration,
        log: u64,
        lazy_flush: Duration,
    ) {
        self.start_with(node, interval, log, move |shared| next_turn(shared, lazy_flush));
    }

    fn start_with<F>(&self, node: &Arc<Node>, interval: Duration, log: u64, next_turn: F)
    where
        F: Fn(&Monitor<State>) -> Option<Vec<Answer>> + Send + 'static,
    {
        let (shared, weak) = (self.shared.clone(), Arc::downgrade(node));
        let spawned = thread::Builder::new().name(NAME.into()).spawn(move || {
            let ended = caught(|| {
                let mut last = Instant::now();
                // At once after a recovery: until then, a crash would repeat the whole recovery.
                let mut due = true;
                // Log position at the start of the last checkpoint. A failed one is retried on the
                // same schedule as any other.
                let mut begun_at = None;
                while let Some(requests) = next_turn(&shared) {
                    let Some(node) = weak.upgrade() else { return };
                    let wal = node.wal();
                    let appended = wal.appended();
                    wal.request_flush(appended);
                    let from = *begun_at.get_or_insert(appended);
                    if !due
                        && requests.is_empty()
                        && last.elapsed() < interval
                        && appended.0 - from.0 < log
                    {
                        continue;
                    }
                    due = false;
                    last = Instant::now();
                    begun_at = Some(appended);
                    let result =
                        node.checkpoint().map_err(|e| SqlError::new(SqlState::IO, e.to_string()));
                    match &result {
                        Ok(()) => shared.lock().made += 1,
                        Err(e) => tracing::error!("checkpoint failed: {e}"),
                    }
                    answer_all(&node, requests, &result);
                }
            });
            if let (Err(message), Some(node)) = (ended, weak.upgrade()) {
                end(&shared, &node, &format!("the checkpointer panicked: {message}"));
                fail_by_panic(&node, NAME, &message);
            }
        });
        match spawned {
            Ok(handle) => self.shared.lock().thread = Some(handle),
            Err(e) => {
                end(&self.shared, node, &format!("the checkpointer thread cannot be started: {e}"))
            }
        }
    }

    /// Requests a checkpoint. `answer` is called after it ends.
    pub(crate) fn request(&self, answer: Answer) {
        let mut state = self.shared.lock();
        if let Some(why) = state.ended.clone() {
            drop(state);
            return answer(Err(why));
        }
        state.requests.push(answer);
        drop(state);
        self.shared.notify_all();
    }

    /// Returns the number of completed checkpoints.
    pub(crate) fn made(&self) -> u64 {
        self.shared.lock().made
    }

    pub(crate) fn stop(&self) {
        let thread = {
            let mut state = self.shared.lock();
            state.stop = true;
            state.thread.take()
        };
        self.shared.notify_all();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the checkpointer's thread had panicked");
        }
    }
}

/// Calls each callback, even if an earlier one panics.
fn answer_all(node: &Node, requests: Vec<Answer>, result: &Result<(), SqlError>) {
    for answer in requests {
        watch(node, NAME, || answer(result.clone()));
    }
}

/// Records that the thread has ended and fails present and later requests.
fn end(shared: &Monitor<State>, node: &Node, why: &str) {
    let why = format!("checkpoints have stopped: {why}");
    tracing::error!("{why}");
    let refused = SqlError::new(SqlState::INTERNAL, why);
    let requests = {
        let mut state = shared.lock();
        state.ended = Some(refused.clone());
        std::mem::take(&mut state.requests)
    };
    answer_all(node, requests, &Err(refused));
}

/// Waits for a request or for `wait`. Returns `None` to stop.
fn next_turn(shared: &Monitor<State>, wait: Duration) -> Option<Vec<Answer>> {
    let idle = |s: &mut State| !s.stop && s.requests.is_empty();
    let (mut state, _) = shared.wait_timeout_while(shared.lock(), wait, idle);
    if state.stop { None } else { Some(std::mem::take(&mut state.requests)) }
}

/// Runs a thread's work. A panic stops here and fails the node.
pub(crate) fn watch(node: &Node, thread: &str, work: impl FnOnce()) {
    if let Err(message) = caught(work) {
        fail_by_panic(node, thread, &message);
    }
}

pub(crate) fn fail_by_panic(node: &Node, thread: &str, message: &str) {
    node.fail(format!("thread {thread} panicked: {message}"));
}

#[cfg(test)]
#[path = "checkpointer_tests.rs"]
mod tests;
