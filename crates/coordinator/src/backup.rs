//! BACKUP: a dedicated thread copies the database while the session waits and receives progress
//! notices.
//!
//! Invariants
//! 1. The statement ends only after the copy has ended, so the session's next statement finds no
//!    running backup.
//! 2. Cancelling the statement, or losing the client, ends the copy after the current block.
//!
//! Locking: one monitor over the state that the thread and the statement share, never held during
//! I/O. A crash leaves a target without a manifest, which is not a valid backup.

use crate::core::{Block, Core};
use crate::outcome::{Outcome, Stop};
use crate::pace::Pace;
use crate::tag::Tag;
use clearway_ir::statement::Backup;
use clearway_latch::lockstat::Class;
use clearway_latch::{Monitor, MonitorGuard};
use clearway_storage::backup::{BackupProgress, BackupReport};
use clearway_sync::panics::caught;
use clearway_sync::thread;
use clearway_sync::time::{Duration, Instant};
use clearway_types::{DatumRef, RowBatch, SqlError, SqlState};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

/// Interval between the client's progress notices.
const NOTICE_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Default)]
struct State {
    cancelled: bool,
    progress: Option<BackupProgress>,
    result: Option<Result<BackupReport, SqlError>>,
}

static BACKUP: Class = Class::new("coordinator.backup");

/// What the thread and the statement share.
struct Job {
    state: Monitor<State>,
}

impl Job {
    fn new() -> Self {
        Self { state: Monitor::new(&BACKUP, State::default()) }
    }

    #[track_caller]
    fn state(&self) -> MonitorGuard<'_, State> {
        self.state.lock()
    }

    fn cancel(&self) {
        self.state().cancelled = true;
        self.state.notify_all();
    }

    /// Waits for `wait`, if given, and returns whether to continue.
    fn wait_or_stop(&self, wait: Option<Duration>) -> ControlFlow<()> {
        let mut state = self.state();
        if let Some(wait) = wait {
            state = self.state.wait_timeout_while(state, wait, |s| !s.cancelled).0;
        }
        if state.cancelled { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Executes BACKUP.
pub(crate) async fn run(core: &Rc<Core>, backup: &Backup) -> Result<Outcome, Stop> {
    if core.txn().block != Block::None {
        let text = "BACKUP cannot run inside a transaction block";
        return Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, text).into());
    }
    let target = PathBuf::from(&backup.target);
    if !target.is_absolute() {
        let e = SqlError::new(
            SqlState::INVALID_PARAMETER,
            format!("\"{}\" is not an absolute path", backup.target),
        );
        return Err(e
            .hint("A relative path would start at the server's working directory.")
            .into());
    }
    let began = Instant::now();
    let job = Arc::new(Job::new());
    start(core, job.clone(), target, Pace::new(backup.bytes_a_second))?;
    let report = std::future::poll_fn(|_| {
        if let Err(e) = core.check_cancelled() {
            job.cancel();
            core.cancel_again(e);
        }
        let mut state = job.state();
        if let Some(BackupProgress { done, total }) = state.progress.take() {
            core.notice(SqlState::SUCCESSFUL_COMPLETION, format!("{done} of {total} bytes copied"));
        }
        state.result.take().map_or(Poll::Pending, Poll::Ready)
    })
    .await;
    // The reason for the cancellation is more useful than the copy's own error.
    core.check_cancelled()?;
    let BackupReport { bytes, begin, end } = report?;
    let mut rows = RowBatch::new();
    rows.push_with(|r| {
        for n in [bytes, begin.0, end.0, began.elapsed().as_millis() as u64] {
            r.push(DatumRef::Int8(n as i64));
        }
    });
    // Progress that came with the result.
    let notices = core.take_notices();
    Ok(Outcome { rows, tag: Tag::Plain("BACKUP"), notices, ..Outcome::plain("BACKUP") })
}

fn start(core: &Rc<Core>, job: Arc<Job>, target: PathBuf, pace: Pace) -> Result<(), SqlError> {
    let (engine, waker) = (core.engine().clone(), core.port.waker(core.token));
    let work = move || {
        let mut noticed = Instant::now();
        let mut step = |progress: BackupProgress| {
            let wait = pace.wait(progress.done);
            // Also before a long pause.
            if noticed.elapsed() + wait.unwrap_or_default() >= NOTICE_INTERVAL {
                noticed = Instant::now();
                job.state().progress = Some(progress);
                waker();
            }
            job.wait_or_stop(wait)
        };
        let copied = caught(|| engine.node().backup(&target, env!("CARGO_PKG_VERSION"), &mut step));
        let result = copied.map_err(|message| {
            engine.fail_by_panic("backup", &message);
            SqlError::new(SqlState::INTERNAL, format!("the backup thread panicked: {message}"))
        });
        let result = result.and_then(|copied| copied.map_err(SqlError::from));
        match &result {
            Ok(report) => {
                tracing::info!(
                    target = %target.display(),
                    bytes = report.bytes,
                    end = %report.end,
                    "backup complete"
                )
            }
            Err(e) => tracing::warn!(target = %target.display(), "backup failed: {e}"),
        }
        job.state().result = Some(result);
        waker();
    };
    let spawned = thread::Builder::new().name("backup".into()).spawn(work);
    spawned
        .map(drop)
        .map_err(|e| SqlError::new(SqlState::INTERNAL, format!("cannot start a thread: {e}")))
}
