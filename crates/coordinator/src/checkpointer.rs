//! The checkpointer's thread: checkpoints in an interval, when the log has grown by so much, and on
//! request; and a log flush now and then for those who do not wait for one.
//!
//! Invariant: a request made before a checkpoint begins is answered after it has ended, never by
//! one that had begun already. A panic of the thread fails the engine. Whoever asks for a
//! checkpoint after the thread's end is told so. Locking: one monitor over the requests, never held
//! during I/O. A crash leaves the last completed checkpoint.

use crate::engine::Engine;
use clearway_latch::Monitor;
use clearway_latch::lockstat::Class;
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
    /// Checkpoints that have succeeded.
    made: u64,
    /// Why there are no checkpoints any more: the thread has panicked, or could not be started.
    ended: Option<SqlError>,
    stop: bool,
    thread: Option<JoinHandle<()>>,
}

/// The thread and what is asked of it.
pub(crate) struct Checkpointer {
    shared: Arc<Monitor<State>>,
}

impl Default for Checkpointer {
    fn default() -> Self {
        Self { shared: Arc::new(Monitor::new(&CHECKPOINTER, State::default())) }
    }
}

impl Checkpointer {
    /// `lazy_flush`: how often it looks, and has the log flushed for those who do not wait.
    pub(crate) fn start(
        &self,
        engine: &Arc<Engine>,
        interval: Duration,
        log: u64,
        lazy_flush: Duration,
    ) {
        self.start_with(engine, interval, log, move |shared| next_turn(shared, lazy_flush));
    }

    fn start_with<F>(&self, engine: &Arc<Engine>, interval: Duration, log: u64, next_turn: F)
    where
        F: Fn(&Monitor<State>) -> Option<Vec<Answer>> + Send + 'static,
    {
        let (shared, weak) = (self.shared.clone(), Arc::downgrade(engine));
        let spawned = thread::Builder::new().name(NAME.into()).spawn(move || {
            let ended = caught(|| {
                let mut last = Instant::now();
                // After a recovery, at once: until then a crash would cost as much again.
                let mut due = true;
                // Where the log was when the last one began; a failed one is tried again as late as
                // any.
                let mut begun_at = None;
                while let Some(requests) = next_turn(&shared) {
                    let Some(engine) = weak.upgrade() else { return };
                    let wal = engine.node().wal();
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
                    let result = engine
                        .node()
                        .checkpoint()
                        .map_err(|e| SqlError::new(SqlState::IO, e.to_string()));
                    match &result {
                        Ok(()) => shared.lock().made += 1,
                        Err(e) => tracing::error!("checkpoint failed: {e}"),
                    }
                    answer_all(&engine, requests, &result);
                }
            });
            if let (Err(message), Some(engine)) = (ended, weak.upgrade()) {
                end(&shared, &engine, &format!("their thread panicked: {message}"));
                engine.fail_by_panic(NAME, &message);
            }
        });
        match spawned {
            Ok(handle) => self.shared.lock().thread = Some(handle),
            Err(e) => end(&self.shared, engine, &format!("their thread cannot be started: {e}")),
        }
    }

    /// Asks for a checkpoint; `answer` is called when it has ended.
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

    /// How many checkpoints have been made.
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

/// Each gets its answer, whatever the others do with theirs.
fn answer_all(engine: &Engine, requests: Vec<Answer>, result: &Result<(), SqlError>) {
    for answer in requests {
        engine.watch(NAME, || answer(result.clone()));
    }
}

/// There is no thread any more: refuses all who wait now or later.
fn end(shared: &Monitor<State>, engine: &Engine, why: &str) {
    let why = format!("no checkpoints: {why}");
    tracing::error!("{why}");
    let refused = SqlError::new(SqlState::INTERNAL, why);
    let requests = {
        let mut state = shared.lock();
        state.ended = Some(refused.clone());
        std::mem::take(&mut state.requests)
    };
    answer_all(engine, requests, &Err(refused));
}

/// Waits for a request or the time; `None` when it is to stop.
fn next_turn(shared: &Monitor<State>, wait: Duration) -> Option<Vec<Answer>> {
    let idle = |s: &mut State| !s.stop && s.requests.is_empty();
    let (mut state, _) = shared.wait_timeout_while(shared.lock(), wait, idle);
    if state.stop { None } else { Some(std::mem::take(&mut state.requests)) }
}

#[cfg(test)]
#[path = "checkpointer_tests.rs"]
mod tests;
