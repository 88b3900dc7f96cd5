//! A round of fragments: one to each of several partitions.

use clearway_partition::Failure;
use clearway_types::{SqlError, SqlState};

/// The unanswered fragments of a round, and its first failure. Every fragment is awaited, even
/// after a failure, so that no answer is left over.
#[derive(Debug)]
pub struct FragmentRound {
    unanswered: usize,
    failed: Option<Failure>,
}

impl FragmentRound {
    /// Begins a round of this number of fragments.
    pub fn new(fragments: usize) -> Self {
        Self { unanswered: fragments, failed: None }
    }

    /// Returns true if all fragments have been answered.
    pub fn is_over(&self) -> bool {
        self.unanswered == 0
    }

    /// Records a fragment's answer; `failure` if it has failed. Returns the error with which the
    /// unanswered fragments are to be cancelled, which may wait for unrelated transactions. The
    /// client sees the first failure, not this.
    pub fn answered(&mut self, failure: Option<Failure>) -> Option<SqlError> {
        self.unanswered = self.unanswered.saturating_sub(1);
        let failure = failure.filter(|_| self.failed.is_none())?;
        let error = match &failure {
            Failure::Sql(error) => error.clone(),
            Failure::StalePlan => SqlError::new(
                SqlState::QUERY_CANCELED,
                "canceling statement because its plan is stale",
            ),
            Failure::NeedsSnapshot => SqlError::internal("statement is not one-shot"),
            Failure::Undone => Failure::undone(),
        };
        self.failed = Some(failure);
        Some(error)
    }

    /// Returns the first failure.
    pub fn failed(self) -> Option<Failure> {
        self.failed
    }
}
