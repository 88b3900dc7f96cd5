//! One-shot work on several partitions: it gets exclusive access to them as the scheme says.
//!
//! Invariants
//! 1. A transaction requests its partitions in ascending order before its first statement, so that
//!    two transactions with common partitions cannot wait for each other. If one request is
//!    refused, the transaction gives up the others. Then it uses locks, or waits until that
//!    partition has none and requests all again, at most [`ROUNDS`] times.
//! 2. A transaction that uses locks may be a deadlock victim. A single statement is then retried.
//! 3. It gives up all partitions (and keeps locks on what it has used) as soon as it cannot
//!    continue at one of them, and before it goes to a partition outside the set. So a transaction
//!    with exclusive access waits only as in (1).
//! 4. While it waits for others that hold locks (`Body::AwaitQuiet`) it has neither locks nor
//!    partitions.
//!
//! Locking: none of its own. A crash leaves the state in the log.
//!
//! Source: Jones, Abadi, Madden, SIGMOD 2010, section 4.1. The partitions' own order replaces their
//! central coordinator's order.

use crate::core::{Block, Core};
use crate::message::control;
use crate::txn::join;
use crate::whole;
use clearway_partition::{Body, ExclusiveAccess, Failure};
use clearway_types::{PartitionId, SqlError, SqlState};

/// How many times a transaction requests its partitions, each time after the lock holders there
/// have ended. After that it uses locks.
const ROUNDS: usize = 8;

/// Requests exclusive access to these partitions (ascending) as the scheme says, if the statement
/// is a transaction of its own on more than one.
pub(crate) async fn block(core: &Core, partitions: &[PartitionId]) -> Result<(), Failure> {
    let fits = |txn: &crate::core::Txn| txn.block == Block::None && txn.participants.is_empty();
    if partitions.len() < 2 || !fits(&core.txn()) {
        return Ok(());
    }
    match core.engine().exclusive() {
        ExclusiveAccess::Never => Ok(()),
        ExclusiveAccess::IfUnlocked => acquire(core, partitions).await.map(drop),
        ExclusiveAccess::WhenUnlocked => acquire_when_quiet(core, partitions).await.map(drop),
    }
}

/// Requests exclusive access to these partitions (ascending). While others hold locks there for a
/// short time, waits until they have ended and requests again. Returns whether it was granted.
pub(crate) async fn acquire_when_quiet(
    core: &Core,
    partitions: &[PartitionId],
) -> Result<bool, Failure> {
    for _ in 0..ROUNDS {
        let Some(refused) = acquire(core, partitions).await? else { return Ok(true) };
        core.check_cancelled()?;
        let id = core.txn().id;
        let seq = core.send(refused, id, Body::AwaitQuiet);
        if core.reply(seq).await?.count == 0 {
            break;
        }
    }
    Ok(false)
}

/// Requests exclusive access to these partitions (ascending). If one refuses, gives up the others
/// and returns the one that refused.
async fn acquire(core: &Core, partitions: &[PartitionId]) -> Result<Option<PartitionId>, Failure> {
    for partition in partitions {
        // A cancel request may have arrived between two calls.
        core.check_cancelled()?;
        let id = join(core, &mut core.txn(), *partition);
        let seq = core.send(*partition, id, Body::Block);
        if core.reply(seq).await?.count == 0 {
            core.txn().short = true;
            whole::release_exclusive(core);
            return Ok(Some(*partition));
        }
        core.txn().blocked.push(*partition);
    }
    core.txn().short = true;
    Ok(None)
}

/// Returns true if a failed statement can be retried unnoticed: it is a transaction of its own, was
/// aborted by a deadlock, and has retries left.
pub(crate) fn may_start_over(core: &Core, error: &SqlError, retries: u32) -> bool {
    is_victim(core, error) && may_retry(core, retries)
}

/// Returns true if a statement retried this many times may be retried once more.
pub(crate) fn may_retry(core: &Core, retries: u32) -> bool {
    retries.saturating_add(1) < core.engine().deadlocks()
}

/// Returns true if the statement is a transaction of its own that a deadlock aborted.
pub(crate) fn is_victim(core: &Core, error: &SqlError) -> bool {
    error.state() == SqlState::DEADLOCK && core.txn().block == Block::None
}

/// Gives up the transaction's exclusive access to partitions.
pub(crate) fn unblock(core: &Core) {
    let (id, blocked) = {
        let mut txn = core.txn();
        (txn.id, std::mem::take(&mut txn.blocked))
    };
    for partition in blocked {
        core.port.submit(partition, control(id, Body::Unblock));
    }
}
