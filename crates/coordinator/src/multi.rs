//! Carries out what a transaction's protocol asks for: sends its messages, and returns the answers
//! to it. The protocol itself is [`crate::protocol`].
//!
//! Invariants
//! 1. A transaction that uses locks may be a deadlock victim. One that has run behind an undecided
//!    one or optimistically may be undone. A single statement is then retried.
//! 2. It gives up all partitions (and keeps locks on what it has used) as soon as it cannot
//!    continue at one of them, and before it goes to a partition outside the set. So a transaction
//!    with exclusive access waits only while it requests partitions.
//!
//! Locking: none of its own. A crash leaves the state in the log.

use crate::core::{Block, Core};
use crate::engine::Stall;
use crate::message::control;
use crate::protocol::{AccessRequest, Control, Coordination, Outgoing};
use crate::txn::identify;
use clearway_partition::{ExclusiveAccess, Failure};
use clearway_sync::time::Instant;
use clearway_types::{PartitionId, SqlError, SqlResult, SqlState};

/// Requests exclusive access to these partitions (ascending) as their schemes say, or lets the
/// statement run optimistically, if it is a transaction of its own on more than one. `one_round`:
/// it will send exactly one message to each of them.
pub(crate) async fn block(
    core: &Core,
    partitions: &[PartitionId],
    one_round: bool,
) -> Result<(), Failure> {
    let fits = |txn: &crate::core::Txn| {
        txn.block == Block::None
            && !txn.protocol.is_exclusive()
            && txn.protocol.participants().is_empty()
    };
    if partitions.len() < 2 || !fits(&core.txn()) {
        return Ok(());
    }
    let one_round = one_round && core.may_speculate();
    let awaits_quiet = match core.engine().schemes().exclusive(partitions) {
        ExclusiveAccess::Never => return Ok(()),
        ExclusiveAccess::IfUnlocked => false,
        ExclusiveAccess::AfterConflict if one_round => {
            core.txn().protocol.run_optimistically(partitions);
            return Ok(());
        }
        ExclusiveAccess::WhenUnlocked | ExclusiveAccess::AfterConflict => true,
    };
    acquire(core, AccessRequest { partitions, awaits_quiet, one_round }).await.map(drop)
}

/// Waits before the decision about a statement on several partitions:
/// [`crate::EngineConfig::stall`].
pub(crate) async fn stall(core: &Core) -> SqlResult<()> {
    let began = Instant::now();
    let mut turns = 0;
    while match core.engine().stall() {
        Stall::None => false,
        Stall::Turns(most) => turns < most,
        Stall::Time(time) => began.elapsed() < time,
    } {
        turns += 1;
        core.yield_turn().await?;
        if core.txn().protocol.is_undone() {
            break;
        }
    }
    Ok(())
}

/// Requests exclusive access; see [`Coordination::acquire`]. Returns whether it was granted.
pub(crate) async fn acquire(core: &Core, request: AccessRequest<'_>) -> Result<bool, Failure> {
    identify(core, &mut core.txn());
    // Boxed: it would enlarge the task of every statement.
    Box::pin(step(core, |protocol, out| protocol.acquire(request, out))).await
}

/// Runs a step of the protocol to its end.
pub(crate) async fn step(
    core: &Core,
    start: impl FnOnce(&mut Coordination, &mut Vec<Outgoing>),
) -> Result<bool, Failure> {
    let (mut out, mut calls, mut asked) = (Vec::new(), Vec::new(), Vec::new());
    start(&mut core.txn().protocol, &mut out);
    loop {
        for outgoing in out.drain(..) {
            match outgoing {
                Outgoing::Send(to, control) if control.is_answered() => {
                    // A cancel request may have arrived between two calls. There is one at a time.
                    core.check_cancelled()?;
                    let id = core.txn().protocol.id();
                    calls.push(core.send(to, id, control.into()));
                    asked.push(to);
                }
                Outgoing::Send(to, message) => submit(core, to, message),
                Outgoing::Prepare(_) | Outgoing::Log => {
                    return Err(SqlError::internal("not a step of its end").into());
                }
                Outgoing::Done(result) => return result,
            }
        }
        let (at, answer) = core.first_reply(&calls).await;
        calls.swap_remove(at);
        let from = asked.swap_remove(at);
        core.txn().protocol.answered(from, &answer, &mut out);
    }
}

/// Runs a step of the protocol that sends messages without answers.
pub(crate) fn tell(core: &Core, start: impl FnOnce(&mut Coordination, &mut Vec<Outgoing>)) {
    let mut out = Vec::new();
    start(&mut core.txn().protocol, &mut out);
    for outgoing in out {
        if let Outgoing::Send(to, message) = outgoing {
            submit(core, to, message);
        }
    }
}

fn submit(core: &Core, to: PartitionId, message: Control) {
    let id = core.txn().protocol.id();
    core.port.submit(to, control(id, message.into()));
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
