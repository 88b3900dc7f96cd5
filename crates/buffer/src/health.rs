//! The log that the pool depends on, and whether the pool may still write.
//!
//! # Invariants
//! 1. The first failure is final and gives the reason; nothing is written after it.
//! 2. A panic in external code (the disk, the log) becomes a failure and is not propagated.
//!
//! # Locking
//! None. The failure is set once.

use crate::error::PageError;
use crate::io::WalBarrier;
use clearway_sync::panics::caught;
use std::sync::{Arc, OnceLock};

/// See the module's documentation.
pub(crate) struct Health {
    pub wal: Arc<dyn WalBarrier>,
    failed: OnceLock<PageError>,
}

impl Health {
    /// Creates the state with this log and no failure.
    pub fn new(wal: Arc<dyn WalBarrier>) -> Self {
        Self { wal, failed: OnceLock::new() }
    }

    /// Returns the first failure, if there is one.
    pub fn failed(&self) -> Option<&PageError> {
        self.failed.get()
    }

    /// Returns the first failure as an error.
    pub fn check(&self) -> Result<(), PageError> {
        self.failed().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Stops all writing. Returns the first failure, which may be a different one.
    pub fn fail(&self, error: PageError) -> PageError {
        self.failed.get_or_init(|| error).clone()
    }

    /// Runs `work`; a panic in it becomes a failure.
    pub fn guarded<T>(
        &self,
        doing: &'static str,
        work: impl FnOnce() -> Result<T, PageError>,
    ) -> Result<T, PageError> {
        caught(work).unwrap_or_else(|message| Err(self.fail(PageError::panicked(doing, &message))))
    }
}
