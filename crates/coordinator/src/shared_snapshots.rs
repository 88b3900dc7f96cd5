//! pg_export_snapshot and SET TRANSACTION SNAPSHOT: see [`crate::exports`].

use crate::characteristics::too_late;
use crate::core::{Core, Txn};
use crate::snapshot::View;
use clearway_ir::Env;
use clearway_ir::statement::Isolation;
use clearway_partition::Snapshot;
use clearway_types::{SqlError, SqlResult, SqlState};
use std::sync::Arc;

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
    let id = exported.id().to_owned();
    txn.exported.push(exported);
    Ok(id)
}

/// Executes SET TRANSACTION SNAPSHOT: from now on the transaction sees the exporter's state.
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
