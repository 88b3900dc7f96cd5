//! A statement's result: its outcome or error, and the LSN that the client's answer must wait for.

use crate::tag::Tag;
use clearway_partition::Failure;
use clearway_types::{Lsn, RowBatch, SqlError, SqlState};
use std::pin::Pin;

/// A session's transaction status byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxnStatus {
    /// Not in a transaction block: `I`.
    Idle,
    /// In a transaction block: `T`.
    InBlock,
    /// In a failed transaction block: `E`.
    Failed,
}

/// A statement's result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its rows, or the last of them if others came as [`Part`]s.
    pub rows: RowBatch,
    /// Its command tag, which counts all rows.
    pub tag: Tag,
    /// The log must be durable up to here before the reply is sent. 0: no wait.
    pub wait: Lsn,
    /// Warnings and notices for the client: SQLSTATE and text.
    pub notices: Vec<(SqlState, String)>,
}

/// Why a statement failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The error for the client.
    pub error: SqlError,
    /// See [`Outcome::wait`]: an error may reveal other transactions' commits, for example an
    /// existing key.
    pub wait: Lsn,
}

impl From<SqlError> for Refusal {
    /// Creates a refusal by an error that reveals no other transaction's commit.
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
    /// The next rows, at least one.
    pub rows: RowBatch,
    /// See [`Outcome::wait`].
    pub wait: Lsn,
}

/// The state of a statement.
#[derive(Debug)]
pub enum Step {
    /// Not done: call [`crate::Client::resume`] when [`crate::Event::Continue`] names the session.
    Pending,
    /// Rows, and more may follow: call [`crate::Client::resume`] when there is room for them, or
    /// [`crate::Client::suspend`].
    Rows(Part),
    /// Done, with the rows that no [`Step::Rows`] returned.
    Done(Result<Outcome, Refusal>),
    /// The catalog has changed since planning: plan again and start again.
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
            Failure::NeedsSnapshot => Self::Error(SqlError::internal("statement is not one-shot")),
            Failure::Undone => Self::Error(Failure::undone()),
        }
    }
}

/// Returns true if an error may reveal committed data: all except system errors (class 58) and
/// operator intervention (57).
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
