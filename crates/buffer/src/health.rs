//! The log behind the pool, and whether the pool may still write.
//!
//! # Invariants
//! 1. The first failure says why for good; after it nothing is written.
//! 2. A panic in what is not the pool's own (the disk, the log) is a failure, and goes no further.
//!
//! # Locking
//! None. The failure is set once.

use crate::error::PageError;
use crate::io::WalBarrier;
use clearway_sync::panics::caught;
use std::sync::{Arc, OnceLock};

/// See the module's text.
pub(crate) struct Health {
    pub wal: Arc<dyn WalBarrier>,
    failed: OnceLock<PageError>,
}

impl Health {
    /// With this log, and no failure yet.
    pub fn new(wal: Arc<dyn WalBarrier>) -> Self {
        Self { wal, failed: OnceLock::new() }
    }

    /// The first failure, if there is one.
    pub fn failed(&self) -> Option<&PageError> {
        self.failed.get()
    }

    /// The first failure as an error.
    pub fn check(&self) -> Result<(), PageError> {
        self.failed().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Ends all writing. Returns the first failure, which may be another.
    pub fn fail(&self, error: PageError) -> PageError {
        self.failed.get_or_init(|| error).clone()
    }

    /// Runs `work`, which may panic: a panic is a failure.
    pub fn guarded<T>(
        &self,
        doing: &'static str,
        work: impl FnOnce() -> Result<T, PageError>,
    ) -> Result<T, PageError> {
        caught(work).unwrap_or_else(|message| Err(self.fail(PageError::panicked(doing, &message))))
    }
}
