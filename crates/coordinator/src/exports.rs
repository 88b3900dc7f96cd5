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

use crate::characteristics::{Characteristics, too_late};
use crate::core::{Core, Txn};
use crate::snapshot::View;
use clearway_ir::Env;
use clearway_ir::statement::Isolation;
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
    fn add(
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

    fn find(&self, id: &str) -> SqlResult<(Arc<Snapshot>, Characteristics)> {
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

/// Exports the running statement's snapshot and returns its id.
pub(crate) fn export(core: &Core, env: &Env) -> SqlResult<String> {
    let mut txn = core.txn();
    if !txn.savepoints.is_empty() {
        return Err(too_late("cannot export a snapshot from a subtransaction"));
    }
    let source = txn.characteristics;
    if source.isolation == Isolation::Serializable && !source.read_only {
        return Err(SqlError::unsupported(
            "exporting a snapshot from a serializable transaction that may write",
        )
        .hint(
            "Such a transaction reads under locks. Use REPEATABLE READ, or SERIALIZABLE READ ONLY.",
        ));
    }
    let Some(snapshot) = txn.snapshot() else {
        let text = "cannot export a snapshot from a transaction that reads under locks";
        return Err(SqlError::new(SqlState(*b"55000"), text)
            .detail("A large transaction was active when the first query began, and its changes are in the log only.")
            .hint("Start a new transaction."));
    };
    let pid = env.session.as_ref().map_or(0, |session| session.pid);
    let exported = core.engine().exports().add(snapshot, source, pid);
    let id = exported.id.to_string();
    txn.exported.push(exported);
    Ok(id)
}

/// SET TRANSACTION SNAPSHOT: from now on the transaction sees the exporter's state.
pub(crate) fn import(core: &Core, id: &str) -> SqlResult<()> {
    let mut txn = core.txn();
    let snapshot = importable(core, &txn, id)?;
    txn.view = View::AsOf(snapshot);
    // As in PostgreSQL: its characteristics are fixed now.
    txn.queried = true;
    Ok(())
}

/// Returns the error that [`import`] would return.
pub(crate) fn check(core: &Core, id: &str) -> SqlResult<()> {
    importable(core, &core.txn(), id).map(drop)
}

fn importable(core: &Core, txn: &Txn, id: &str) -> SqlResult<Arc<Snapshot>> {
    if txn.queried || !txn.savepoints.is_empty() || !matches!(txn.view, View::Undecided) {
        return Err(too_late("SET TRANSACTION SNAPSHOT must be called before any query"));
    }
    let unsupported = |text: &str| SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, text);
    let own = txn.characteristics;
    if own.isolation < Isolation::RepeatableRead {
        return Err(unsupported(
            "a snapshot-importing transaction must have isolation level SERIALIZABLE or REPEATABLE READ",
        ));
    }
    let (snapshot, source) = core.engine().exports().find(id)?;
    if own.isolation == Isolation::Serializable {
        if source.isolation != Isolation::Serializable {
            return Err(unsupported(
                "a serializable transaction cannot import a snapshot from a non-serializable transaction",
            ));
        }
        if source.read_only && !own.read_only {
            return Err(unsupported(
                "a non-read-only serializable transaction cannot import a snapshot from a read-only transaction",
            ));
        }
    }
    Ok(snapshot)
}
