//! The checkpointer's thread: checkpoints in an interval, when the log has grown by so much, and on request; and a log flush now and then for those who do not wait for one.
//!
//! Invariant: a request made before a checkpoint begins is answered after it has ended, never by one that had begun already.
//! Locking: one monitor over the requests, never held during I/O. A crash leaves the last completed checkpoint.

use crate::engine::Engine;
use clearway_latch::Monitor;
use clearway_latch::lockstat::Class;
use clearway_sync::thread::{self, JoinHandle};
use clearway_sync::time::{Duration, Instant};
use clearway_types::{SqlError, SqlState};
use std::sync::Arc;

static CHECKPOINTER: Class = Class::new("coordinator.checkpointer");

type Answer = Box<dyn FnOnce(Result<(), SqlError>) + Send>;

#[derive(Default)]
struct State {
    requests: Vec<Answer>,
    /// Checkpoints that have succeeded.
    made: u64,
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
    pub(crate) fn start(&self, engine: &Arc<Engine>, interval: Duration, log: u64, lazy_flush: Duration) {
        let (shared, engine) = (self.shared.clone(), Arc::downgrade(engine));
        let spawned = thread::Builder::new().name("checkpointer".into()).spawn(move || {
            let mut last = Instant::now();
            // After a recovery, at once: until then a crash would cost as much again.
            let mut due = true;
            // Where the log was when the last one began; a failed one is tried again as late as any.
            let mut begun_at = None;
            while let Some(requests) = next_turn(&shared, lazy_flush) {
                let Some(engine) = engine.upgrade() else { return };
                let wal = engine.node().wal();
                let appended = wal.appended();
                wal.request_flush(appended);
                let from = *begun_at.get_or_insert(appended);
                if !due && requests.is_empty() && last.elapsed() < interval && appended.0 - from.0 < log {
                    continue;
                }
                due = false;
                last = Instant::now();
                begun_at = Some(appended);
                let result = engine.node().checkpoint().map_err(|e| SqlError::new(SqlState::IO, e.to_string()));
                match &result {
                    Ok(()) => shared.lock().made += 1,
                    Err(e) => tracing::error!("checkpoint failed: {e}"),
                }
                requests.into_iter().for_each(|answer| answer(result.clone()));
            }
        });
        match spawned {
            Ok(handle) => self.shared.lock().thread = Some(handle),
            Err(e) => tracing::error!("no checkpoints: their thread cannot be started: {e}"),
        }
    }

    /// Asks for a checkpoint; `answer` is called when it has ended.
    pub(crate) fn request(&self, answer: Answer) {
        self.shared.lock().requests.push(answer);
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

/// Waits for a request or the time; `None` when it is to stop.
fn next_turn(shared: &Monitor<State>, wait: Duration) -> Option<Vec<Answer>> {
    let idle = |s: &mut State| !s.stop && s.requests.is_empty();
    let (mut state, _) = shared.wait_timeout_while(shared.lock(), wait, idle);
    if state.stop { None } else { Some(std::mem::take(&mut state.requests)) }
}
