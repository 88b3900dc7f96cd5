//! Space and write permission of a disk in memory.
//!
//! A file with a name uses the larger of its length, sparse or not, and its allocated space. Names
//! use nothing.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counts the operations that change the disk. Refuses them after the granted number, or in
/// read-only mode.
pub(super) struct Gate {
    done: AtomicU64,
    limit: AtomicU64,
    read_only: AtomicBool,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            done: AtomicU64::new(0),
            limit: AtomicU64::new(u64::MAX),
            read_only: AtomicBool::new(false),
        }
    }
}

// Relaxed, everywhere in this file: counters and switches that order no other memory.
impl Gate {
    pub(super) fn pass(&self) -> Result<(), Refusal> {
        if self.read_only.load(Ordering::Relaxed) {
            return Err(Refusal::ReadOnly);
        }
        let within = |done: u64| (done < self.limit.load(Ordering::Relaxed)).then_some(done + 1);
        self.done
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, within)
            .map_err(|_| Refusal::Used)?;
        Ok(())
    }

    pub(super) fn grant(&self, operations: u64) {
        self.limit.store(self.done().saturating_add(operations), Ordering::Relaxed);
    }

    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    pub(super) fn set_read_only(&self, read_only: bool) {
        self.read_only.store(read_only, Ordering::Relaxed);
    }
}

pub(super) enum Refusal {
    /// The granted operations are used up.
    Used,
    ReadOnly,
}

impl Refusal {
    pub(super) fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Used => io::ErrorKind::Other,
            Self::ReadOnly => io::ErrorKind::ReadOnlyFilesystem,
        }
    }
}

/// Used and total bytes.
pub(super) struct Room {
    used: AtomicU64,
    capacity: AtomicU64,
}

impl Default for Room {
    fn default() -> Self {
        Self::new(0, u64::MAX)
    }
}

impl Room {
    pub(super) fn new(used: u64, capacity: u64) -> Self {
        Self { used: AtomicU64::new(used), capacity: AtomicU64::new(capacity) }
    }

    /// Reserves up to `bytes`; returns the number reserved.
    pub(super) fn take(&self, bytes: u64) -> u64 {
        let capacity = self.capacity();
        let mut taken = 0;
        let take = |used: u64| {
            taken = bytes.min(capacity.saturating_sub(used));
            Some(used + taken)
        };
        // Cannot fail: the closure always returns a value.
        let _ = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken
    }

    pub(super) fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    pub(super) fn set_capacity(&self, bytes: u64) {
        self.capacity.store(bytes, Ordering::Relaxed);
    }
}
