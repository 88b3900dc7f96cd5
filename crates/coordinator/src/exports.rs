//! Exported snapshots: pg_export_snapshot and SET TRANSACTION SNAPSHOT, which let several sessions
//! read the same state.
//!
//! An export shares its transaction's snapshot under an id. Importers share it too, so it stays
//! open until the last of them ends, even if the exporter ends first. Rules and error messages are
//! PostgreSQL's, with one addition: a SERIALIZABLE transaction that may write reads under locks, so
//! it has no snapshot to export.
//!
//! Invariants
//! 1. An id can be imported while its exporter's transaction is open and has not failed, and never
//!    again: ids are not reused. An export of a failed block holds no snapshot.
//! 2. An imported snapshot is never older than the oldest open one: the export keeps it open while
//!    an importer takes its share.
//!
//! Locking: `open` is a latch, held for a few instructions; snapshots are closed outside it. A
//! crash leaves nothing: ids end with the process.
//!
//! Source: PostgreSQL 15, `ExportSnapshot` and `ImportSnapshot` in snapmgr.c.

use crate::characteristics::Characteristics;
use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_partition::Snapshot;
use clearway_sync::atomic::{AtomicU64, Ordering};
use clearway_types::{SqlError, SqlResult, SqlState};
use hashbrown::HashMap;
use std::sync::Arc;

static EXPORTS: Class = Class::new("coordinator.exports");

struct Export {
    /// None: the exporter's block has failed but has not ended.
    snapshot: Option<Arc<Snapshot>>,
    /// The exporter's characteristics at the time of the export.
    source: Characteristics,
    /// The exporter's backend id.
    pid: i32,
}

/// A node's exported snapshots, by id.
pub(crate) struct Exports {
    open: Latch<HashMap<Box<str>, Export>>,
    next: AtomicU64,
}

impl Default for Exports {
    fn default() -> Self {
        Self { open: Latch::new(&EXPORTS, HashMap::new()), next: AtomicU64::new(1) }
    }
}

impl Exports {
    /// Shares the snapshot under a new id in PostgreSQL's format: its LSN, and a number that makes
    /// the id unique.
    pub(crate) fn add(
        self: &Arc<Self>,
        snapshot: Arc<Snapshot>,
        source: Characteristics,
        pid: i32,
    ) -> Exported {
        // Relaxed: only uniqueness matters.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let lsn = snapshot.lsn().0;
        let id: Box<str> = format!("{:08X}-{:08X}-{number}", lsn >> 32, lsn as u32).into();
        self.open.lock().insert(id.clone(), Export { snapshot: Some(snapshot), source, pid });
        Exported { exports: self.clone(), id }
    }

    pub(crate) fn find(&self, id: &str) -> SqlResult<(Arc<Snapshot>, Characteristics)> {
        let open = self.open.lock();
        let Some(Export { snapshot, source, pid }) = open.get(id) else {
            return Err(SqlError::new(
                SqlState::INVALID_PARAMETER,
                format!("invalid snapshot identifier: \"{id}\""),
            ));
        };
        let shared = snapshot.as_ref().map(|snapshot| (snapshot.share(), *source));
        shared.ok_or_else(|| {
            SqlError::new(SqlState(*b"55000"), "could not import the requested snapshot")
                .detail(format!("The source process with PID {pid} is not running anymore."))
        })
    }
}

/// A snapshot that its transaction has exported. Dropping it ends the export.
pub(crate) struct Exported {
    exports: Arc<Exports>,
    id: Box<str>,
}

impl Exported {
    /// Returns the id under which it can be imported.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the snapshot, unless the transaction has failed.
    pub(crate) fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.exports.open.lock().get(&self.id)?.snapshot.clone()
    }

    /// Records that the transaction has failed: the snapshot can no longer be imported, but its id
    /// remains known.
    pub(crate) fn fail(&self) {
        // Closing a snapshot takes another latch, so the share is dropped after this one is
        // released.
        let share =
            self.exports.open.lock().get_mut(&self.id).and_then(|export| export.snapshot.take());
        drop(share);
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        // See `fail`.
        let share = self.exports.open.lock().remove(&self.id);
        drop(share);
    }
}
