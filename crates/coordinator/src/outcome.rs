//! What a statement comes to: its outcome, or why it failed, and what the answer to the client must
//! wait for.

use crate::tag::Tag;
use clearway_partition::Failure;
use clearway_types::{Lsn, RowBatch, SqlError, SqlState};
use std::pin::Pin;

/// What a session's transaction status byte says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxnStatus {
    /// Not in a transaction block: `I`.
    Idle,
    /// In a transaction block: `T`.
    InBlock,
    /// In a failed transaction block: `E`.
    Failed,
}

/// What a statement returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its rows, or the last of them if others came as [`Part`]s.
    pub rows: RowBatch,
    /// Its command tag, which counts all rows.
    pub tag: Tag,
    /// The reply must not be seen before the log is durable up to here; 0: at once.
    pub wait: Lsn,
    /// Warnings and notices for the client: SQLSTATE and text.
    pub notices: Vec<(SqlState, String)>,
}

/// Why a statement failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What the client is told.
    pub error: SqlError,
    /// As [`Outcome::wait`]: an error may show what others have committed, a key that is there say.
    pub wait: Lsn,
}

impl From<SqlError> for Refusal {
    /// An error that shows nothing which others have committed.
    fn from(error: SqlError) -> Self {
        Self { error, wait: Lsn(0) }
    }
}

impl From<Refusal> for SqlError {
    fn from(refusal: Refusal) -> Self {
        refusal.error
    }
}

impl Outcome {
    pub(crate) fn plain(tag: &'static str) -> Self {
        Self { rows: RowBatch::new(), tag: Tag::Plain(tag), wait: Lsn(0), notices: Vec::new() }
    }
    pub(crate) fn warn(mut self, state: SqlState, text: impl Into<String>) -> Self {
        self.notices.push((state, text.into()));
        self
    }
}

/// Rows of a result that is larger than one answer of its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its next rows, at least one.
    pub rows: RowBatch,
    /// As [`Outcome::wait`].
    pub wait: Lsn,
}

/// Where a statement stands.
#[derive(Debug)]
pub enum Step {
    /// Not yet: call [`crate::Client::resume`] when [`crate::Event::Continue`] names the session.
    Pending,
    /// It has rows, and more may follow: call [`crate::Client::resume`] when there is room for
    /// them, or [`crate::Client::suspend`].
    Rows(Part),
    /// Over. With the rows that no [`Step::Rows`] has brought.
    Done(Result<Outcome, Refusal>),
    /// The catalog has changed since it was planned: plan again and start again.
    Replan,
}

pub(crate) enum End {
    Outcome(Outcome),
    Error(SqlError),
    Replan,
}

pub(crate) type Task = Pin<Box<dyn Future<Output = End>>>;

/// Why a statement ends early.
pub(crate) enum Stop {
    Error(SqlError),
    Replan,
}

impl From<SqlError> for Stop {
    fn from(e: SqlError) -> Self {
        Self::Error(e)
    }
}
impl From<Failure> for Stop {
    fn from(f: Failure) -> Self {
        match f {
            Failure::Sql(e) => Self::Error(e),
            Failure::StalePlan => Self::Replan,
            Failure::NeedsSnapshot => Self::Error(SqlError::internal("a statement is no one-shot")),
            Failure::Undone => Self::Error(Failure::undone()),
        }
    }
}

/// Whether an error may say what is committed: all do but those of the machine (class 58) and of
/// whoever gave the statement up (57).
pub(crate) fn shows_data(state: SqlState) -> bool {
    !matches!(state.0, [b'5', b'7' | b'8', ..])
}

pub(crate) fn stopped(stop: Stop) -> SqlError {
    match stop {
        Stop::Error(e) => e,
        Stop::Replan => SqlError::new(
            SqlState::SERIALIZATION_FAILURE,
            "a table was changed by another session meanwhile",
        )
        .hint("Run the transaction again."),
    }
}
