//! One-shot work of several partitions: it has them to itself, if none of them has locks.
//!
//! Invariants
//! 1. A transaction asks for partitions in their order and before its first statement, so that two
//!    that want the same ones cannot wait for each other; if one of them is refused it gives back
//!    the others and locks instead.
//! 2. Where it locks, it may be the victim of a deadlock; a statement on its own is then simply run
//!    again.
//! 3. It lets go of all (and keeps locks on what it has used) as soon as it comes to a halt at one
//!    of them, and before it goes to a partition that is not among them: whoever has a partition to
//!    itself waits for nobody but those in (1).
//!
//! Locking: none of its own. A crash leaves what is in the log.
//!
//! Source: Jones, Abadi, Madden, SIGMOD 2010, section 4.1: their central coordinator's order is
//! here the partitions' own.

use crate::core::{Block, Core};
use crate::port::control;
use crate::txn::join;
use crate::whole;
use clearway_partition::{Body, Failure};
use clearway_types::{PartitionId, SqlError, SqlState};

/// Asks for these partitions, which ascend, if the statement is a transaction of its own and has
/// more than one.
pub(crate) async fn block(core: &Core, partitions: &[PartitionId]) -> Result<(), Failure> {
    let fits = |txn: &crate::core::Txn| txn.block == Block::None && txn.participants.is_empty();
    if partitions.len() < 2 || !fits(&core.txn()) {
        return Ok(());
    }
    ask(core, partitions).await.map(drop)
}

/// Asks for these partitions, which ascend. If one is refused it gives the others back, and returns
/// that one.
pub(crate) async fn ask(
    core: &Core,
    partitions: &[PartitionId],
) -> Result<Option<PartitionId>, Failure> {
    for partition in partitions {
        // A cancel request may have come between two calls.
        core.check_cancelled()?;
        let id = join(core, &mut core.txn(), *partition);
        let seq = core.send(*partition, id, Body::Block);
        if core.reply(seq).await?.count == 0 {
            core.txn().short = true;
            whole::let_go(core);
            return Ok(Some(*partition));
        }
        core.txn().blocked.push(*partition);
    }
    core.txn().short = true;
    Ok(None)
}

/// Whether a statement that has failed can be run again from its beginning without anyone's
/// noticing: it is a transaction of its own, has been given up in a deadlock, and not too often
/// before.
pub(crate) fn may_start_over(core: &Core, error: &SqlError, retries: u32) -> bool {
    is_victim(core, error) && may_retry(core, retries)
}

/// Whether a statement that has been run again so often may be once more.
pub(crate) fn may_retry(core: &Core, retries: u32) -> bool {
    retries.saturating_add(1) < core.engine().deadlocks()
}

/// Whether it is a transaction of its own that has been given up in a deadlock.
pub(crate) fn is_victim(core: &Core, error: &SqlError) -> bool {
    error.state() == SqlState::DEADLOCK && core.txn().block == Block::None
}

/// Lets others into the partitions that the transaction has to itself.
pub(crate) fn unblock(core: &Core) {
    let (id, blocked) = {
        let mut txn = core.txn();
        (txn.id, std::mem::take(&mut txn.blocked))
    };
    for partition in blocked {
        core.port.submit(partition, control(id, Body::Unblock));
    }
}
