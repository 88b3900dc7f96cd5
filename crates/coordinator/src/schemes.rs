//! The schemes of the partitions, and changing them: `clearway.set_scheme`.
//!
//! A transaction on several partitions has all of them to itself or none. It asks for them as the
//! scheme says that grants the least: if one of them never grants exclusive access, it locks at all
//! of them; if one grants it only while no lock is held, the transaction does not wait for quiet;
//! it runs optimistically only if all of them are optimistic. Otherwise it could wait for a lock at
//! one partition while it has another to itself, and the holder of the lock could wait in that
//! one's line: a deadlock that no one would find.
//!
//! What is known here is a hint, because a partition may change at any time. The partition decides:
//! it refuses a request that its scheme does not grant, and answers a wait for quiet that would be
//! useless. So a request that is based on an old hint costs messages, never an answer or a wait.
//!
//! Invariants
//! 1. The hint is the scheme of the last change whose [`Out::Scheme`] has been carried out. It is
//!    recorded before the change is answered.
//! 2. A session that waits for a change holds no lock and no partition: changes are refused in a
//!    block. So no one waits for it but those in line behind the change
//!    (`partition/src/partition/fence.rs`).
//!
//! Locking: none. A crash leaves nothing: a restart begins with the configured scheme.
//!
//! [`Out::Scheme`]: clearway_partition::Out::Scheme

use crate::core::{Block, Core};
use crate::engine::Engine;
use crate::outcome::Stop;
use clearway_ir::Expr;
use clearway_ir::program::Env;
use clearway_partition::{Body, ExclusiveAccess, SchemeKind};
use clearway_types::{Datum, PartitionId, RowView, SqlError, SqlResult, SqlState};
// Plain std: hints. The partitions decide, so no model needs to explore when they are read.
use std::sync::atomic::{AtomicU64, Ordering};

/// The schemes of all partitions.
///
/// Each word holds the number of the partition's last change, and in its lowest byte the scheme's
/// index in [`SchemeKind::ALL`]. So the greatest word is the last one, in whatever order threads
/// deliver them.
pub(crate) struct Schemes(Vec<AtomicU64>);

impl Schemes {
    /// Creates the schemes of partitions that all begin with this one.
    pub(crate) fn new(partitions: usize, scheme: SchemeKind) -> Self {
        Self((0..partitions).map(|_| AtomicU64::new(word(0, scheme))).collect())
    }

    /// Records a change.
    pub(crate) fn note(&self, partition: PartitionId, order: u64, scheme: SchemeKind) {
        // Relaxed, here and below: a hint that orders nothing.
        self.0[usize::from(partition.0)].fetch_max(word(order, scheme), Ordering::Relaxed);
    }

    /// Returns the partition's scheme.
    pub(crate) fn of(&self, partition: PartitionId) -> SchemeKind {
        let word = self.0[usize::from(partition.0)].load(Ordering::Relaxed);
        SchemeKind::ALL[(word & 0xFF) as usize]
    }

    /// Returns how a transaction gets exclusive access to all of these partitions.
    pub(crate) fn exclusive(&self, partitions: &[PartitionId]) -> ExclusiveAccess {
        let each = partitions.iter().map(|partition| self.of(*partition).exclusive());
        each.min().unwrap_or(ExclusiveAccess::Never)
    }
}

fn word(order: u64, scheme: SchemeKind) -> u64 {
    let at = SchemeKind::ALL.iter().position(|kind| *kind == scheme).unwrap_or_default();
    order << 8 | at as u64
}

/// Changes the scheme of a partition or, if there is none, of all, and waits until the change is in
/// effect. If it is cancelled, partitions where it is in effect keep the new scheme.
pub(crate) async fn set(
    core: &Core,
    partition: Option<&Expr>,
    scheme: &Expr,
    env: &Env,
) -> Result<(), Stop> {
    if core.txn().block != Block::None {
        let text = "clearway.set_scheme() cannot run inside a transaction block";
        return Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, text).into());
    }
    let partitions = match partition {
        Some(partition) => vec![numbered(core.engine(), evaluate(partition, env)?)?],
        None => core.engine().all().collect(),
    };
    let scheme = named(evaluate(scheme, env)?)?;
    let send = |partition| core.send(partition, core.port.next_txn(), Body::SetScheme(scheme));
    let calls: Vec<u32> = partitions.into_iter().map(send).collect();
    let mut result = Ok(());
    for call in calls {
        let answer = core.end(call).await;
        result = result.and(answer.map(drop));
    }
    Ok(result?)
}

fn evaluate(argument: &Expr, env: &Env) -> SqlResult<Datum> {
    match argument.eval(RowView::new(&[]), env)? {
        Datum::Null => {
            let text = "arguments of clearway.set_scheme() must not be null";
            Err(SqlError::new(SqlState(*b"22004"), text))
        }
        value => Ok(value),
    }
}

fn numbered(engine: &Engine, number: Datum) -> SqlResult<PartitionId> {
    let number = number.as_i64().unwrap_or(-1);
    let found = engine.all().find(|partition| i64::from(partition.0) == number);
    found.ok_or_else(|| {
        let last = engine.partitions() - 1;
        SqlError::new(SqlState::INVALID_PARAMETER, format!("partition {number} does not exist"))
            .hint(format!("The partitions are 0 to {last}."))
    })
}

fn named(scheme: Datum) -> SqlResult<SchemeKind> {
    let Datum::Text(name) = &scheme else {
        return Err(SqlError::internal("the name of a scheme is not a text"));
    };
    name.parse().map_err(|_: String| {
        let known = SchemeKind::ALL.map(|kind| kind.to_string()).join(", ");
        SqlError::new(SqlState::INVALID_PARAMETER, format!("scheme \"{name}\" does not exist"))
            .hint(format!("The schemes are {known}."))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_change_counts_in_any_order_of_delivery() {
        let schemes = Schemes::new(2, SchemeKind::Hybrid);
        let (a, b) = (PartitionId(0), PartitionId(1));
        schemes.note(a, 2, SchemeKind::Blocking);
        schemes.note(a, 1, SchemeKind::Locking);
        assert_eq!((schemes.of(a), schemes.of(b)), (SchemeKind::Blocking, SchemeKind::Hybrid));
        schemes.note(a, 3, SchemeKind::Hybrid);
        assert_eq!(schemes.of(a), SchemeKind::Hybrid);
    }

    #[test]
    fn access_to_several_partitions_is_the_least_of_theirs() {
        use ExclusiveAccess::{IfUnlocked, Never, WhenUnlocked};
        let schemes = Schemes::new(4, SchemeKind::Blocking);
        let [a, b, c, d] = [0, 1, 2, 3].map(PartitionId);
        schemes.note(b, 1, SchemeKind::Speculative);
        schemes.note(c, 1, SchemeKind::Hybrid);
        schemes.note(d, 1, SchemeKind::Locking);
        assert_eq!(schemes.exclusive(&[a, b]), WhenUnlocked);
        assert_eq!(schemes.exclusive(&[a, b, c]), IfUnlocked);
        assert_eq!(schemes.exclusive(&[a, c, d]), Never);
        assert_eq!(schemes.exclusive(&[]), Never);
    }
}
