//! The life of a transaction: joining partitions, commit, abort, savepoints.
//!
//! Commit: one log record for all partitions, then the new catalog if there is one, then `Finish`
//! everywhere. Locks are released when the record is in the log buffer. The reply waits until it is
//! durable, and so does every reply that read what the transaction wrote.
//!
//! If the transaction has changed rows with uncommitted changes of others, COMMIT first waits for
//! those transactions (`partition/retire.rs`). If one of them is undone, the block is replayed
//! ([`crate::replay`]).
//!
//! A block that fails is undone at once and releases its locks, unless it has a savepoint to return
//! to. Its client may take its time to end it.
//!
//! Invariants
//! 1. A partition joined after a savepoint gets the marks of all savepoints before its first
//!    statement, whether that statement then runs or not.
//! 2. `Finish` is sent to every participant exactly once, and answered before the session's next
//!    statement starts.
//!
//! `Finish` goes first to the partition with the most waits: that unblocks the most transactions
//! early.
//!
//! A crash before the commit record is durable leaves a loser, which recovery undoes; after it, a
//! winner.

use crate::core::{Block, Core, Savepoint, Txn};
use crate::engine::Stall;
use crate::exports::Exported;
use crate::message::control;
use crate::multi;
use crate::outcome::{End, Outcome, Stop, stopped};
use crate::past;
use crate::protocol::{Coordination, FragmentRound, Outgoing};
use crate::replay;
use crate::shared_snapshots;
use crate::snapshot::View;
use crate::whole;
use clearway_ir::statement::TxnOptions;
use clearway_ir::{Access, Program, TableDef};
use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_partition::{Body, Failure};
use clearway_sync::canary::{self, Bug};
use clearway_types::{Lsn, PartitionId, SqlError, SqlResult, SqlState, TxnId};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

/// Returns the transaction's id. Assigns one if it has none.
pub(crate) fn identify(core: &Core, txn: &mut Txn) -> TxnId {
    if txn.protocol.id() == TxnId(0) {
        txn.protocol.begin(core.port.next_txn());
    }
    txn.protocol.id()
}

/// Adds the partition to the participants. Returns the transaction's id.
pub(crate) fn join(core: &Core, txn: &mut Txn, partition: PartitionId) -> TxnId {
    txn.protocol.join(partition);
    identify(core, txn)
}

/// Like [`join`], and sets the marks of earlier savepoints at the partition.
pub(crate) async fn enter(core: &Core, partition: PartitionId) -> Result<TxnId, Failure> {
    let known = core.txn().protocol.participants().contains(&partition);
    if !known {
        // It may have to wait there.
        whole::release_exclusive(core);
    }
    let id = join(core, &mut core.txn(), partition);
    if !known {
        let marks: Vec<u32> = core.txn().savepoints.iter().map(|s| s.id).collect();
        for mark in marks {
            let seq = core.send(partition, id, Body::Savepoint(mark));
            core.reply(seq).await?;
        }
    }
    Ok(id)
}

/// Sends each partition the message made by `body`, then waits for all answers. Returns the first
/// error, if any.
pub(crate) async fn everywhere(
    core: &Core,
    partitions: impl IntoIterator<Item = PartitionId>,
    mut body: impl FnMut(PartitionId) -> Body,
) -> Result<Vec<clearway_partition::Reply>, Failure> {
    round(core, partitions.into_iter().map(|partition| (partition, body(partition))).collect())
        .await
}

/// Like [`everywhere`], with a separate message for each partition.
pub(crate) async fn round(
    core: &Core,
    messages: Vec<(PartitionId, Body)>,
) -> Result<Vec<clearway_partition::Reply>, Failure> {
    // Enter all of them first: an error here would leave calls whose answers no one gathers.
    for (partition, _) in &messages {
        enter(core, *partition).await?;
    }
    // A cancel request may have arrived between two rounds, when there was no call to end.
    core.check_cancelled()?;
    send_all(core, messages).await
}

/// Sends messages to participants, then waits for all answers.
async fn send_all(
    core: &Core,
    messages: Vec<(PartitionId, Body)>,
) -> Result<Vec<clearway_partition::Reply>, Failure> {
    let id = core.txn().protocol.id();
    let calls =
        messages.into_iter().map(|(partition, body)| core.send(partition, id, body)).collect();
    gather(core, calls).await
}

/// Waits for all answers, even after an error, so that none is left over. The first error ends the
/// other calls, which may wait for unrelated transactions.
pub(crate) async fn gather(
    core: &Core,
    calls: Vec<u32>,
) -> Result<Vec<clearway_partition::Reply>, Failure> {
    let mut replies = vec![clearway_partition::Reply::default(); calls.len()];
    let mut round = FragmentRound::new(calls.len());
    while !round.is_over() {
        let (at, answer) = core.first_reply(&calls).await;
        let failure = match answer {
            Ok(reply) => {
                core.txn().rows += reply.count;
                replies[at] = reply;
                None
            }
            Err(failure) => Some(failure),
        };
        if let Some(error) = round.answered(failure) {
            core.cancel_calls(&calls, &error);
        }
    }
    round.failed().map_or(Ok(replies), Err)
}

/// Returns the table on which the program works.
pub(crate) fn table_of(program: &Program) -> &Arc<TableDef> {
    match program {
        Program::Insert { table, .. }
        | Program::BuildIndex { table, .. }
        | Program::GlobalIndex { table, .. } => table,
        Program::Scan { access: Access { table, .. }, .. }
        | Program::Update { access: Access { table, .. }, .. }
        | Program::Delete { access: Access { table, .. }, .. } => table,
    }
}

/// Returns true if this transaction created the program's tree, so that no other can see it.
pub(crate) fn is_fresh(txn: &Txn, program: &Program) -> bool {
    let table = table_of(program);
    match program {
        Program::GlobalIndex { table, key, .. } => {
            table.global_index(*key).is_some_and(|g| txn.created.contains(&g.tree))
        }
        _ => txn.created.contains(&table.tree),
    }
}

/// What a statement does to the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It reads rows, and may lock them.
    Reads,
    /// It changes rows or the catalog: the commit is logged.
    Changes,
}

/// Runs a statement's work in the session's block, or in a transaction of its own, committed
/// afterwards. Returns the end of the commit record, 0 if there is none.
pub(crate) async fn in_transaction<T>(
    core: &Core,
    effect: Effect,
    work: impl Future<Output = Result<T, Stop>>,
) -> Result<(T, Lsn), Stop> {
    let value = work.await?;
    core.txn().protocol.write(effect == Effect::Changes);
    if core.txn().block != Block::None {
        return Ok((value, Lsn(0)));
    }
    if core.engine().stall() != Stall::None && decides_several(core) {
        // Boxed: it would enlarge every task.
        Box::pin(multi::stall(core)).await?;
    }
    Ok((value, commit(core).await?))
}

fn decides_several(core: &Core) -> bool {
    let protocol = &core.txn().protocol;
    protocol.has_written() && protocol.participants().len() > 1
}

/// Decides what happens to the transaction after a statement has failed.
pub(crate) async fn after_failure(core: &Core, stop: Stop) -> End {
    if core.txn().block != Block::None {
        return End::Error(stopped(stop));
    }
    // A statement that is only replanned has not ended.
    let undone = if matches!(stop, Stop::Replan) { undo(core).await } else { abort(core).await };
    if let Err(e) = undone {
        return End::Error(e);
    }
    match stop {
        Stop::Error(e) => End::Error(e),
        Stop::Replan => End::Replan,
    }
}

/// Commits. Returns the end of the commit record, 0 if there is none.
pub(crate) async fn commit(core: &Core) -> SqlResult<Lsn> {
    let result = commit_everywhere(core).await;
    // An undone single statement runs again.
    if !core.txn().protocol.is_undone() {
        core.port.count_end(result.is_ok());
    }
    result
}

async fn commit_everywhere(core: &Core) -> SqlResult<Lsn> {
    let undone = core.txn().protocol.is_undone();
    if core.txn().protocol.id() == TxnId(0) && !undone {
        *core.txn() = Txn::default();
        // Its snapshot may have been the last that saw them.
        past::drop_unseen(core).await;
        return Ok(Lsn(0));
    }
    if !undone
        && has_ddl(core)
        && let Err(f) = Box::pin(announce_ddl(core)).await
    {
        Box::pin(undo(core)).await?;
        return Err(stopped(f.into()));
    }
    if let Err(f) = settle(core).await
        && let Err(e) = Box::pin(replay::until_settled(core, f)).await
    {
        if core.txn().block != Block::None || !core.txn().protocol.is_undone() {
            Box::pin(undo(core)).await?;
        }
        return Err(e);
    }
    let mut txn = std::mem::take(&mut *core.txn());
    if canary::on(Bug::EarlyRelease) {
        Box::pin(end(core, &mut txn, |protocol, out| protocol.logged(Lsn(0), out))).await.1?;
    }
    match end(core, &mut txn, Coordination::commit).await {
        // The commit record is in the log, so the transaction is committed whatever happens to its
        // locks and to the trees to drop; the next start handles those. Returning the error would
        // claim that it is not committed.
        (Some(lsn), Err(e)) => {
            tracing::error!(
                "transaction {} is committed, but a partition could not finish it: {e}",
                txn.protocol.id()
            );
            Ok(lsn)
        }
        (lsn, ended) => ended.map(|()| lsn.unwrap_or_default()),
    }
}

/// Returns true if the transaction changes the catalog, or has trees of an undone change of it.
fn has_ddl(core: &Core) -> bool {
    let txn = core.txn();
    txn.overlay.is_some() || !txn.created.is_empty()
}

/// Appends the commit record, and publishes the catalog that it makes valid.
fn log_commit(core: &Core, txn: &mut Txn) -> Lsn {
    let lsn = core.engine().commit(txn.protocol.id());
    if let Some(catalog) = &txn.overlay {
        core.engine().publish(catalog.clone(), lsn);
    }
    let drops = std::mem::take(&mut txn.drops);
    if !drops.is_empty() {
        core.engine().past().leave(drops, lsn);
    }
    lsn
}

/// Waits for the transactions that this one is behind.
pub(crate) async fn settle(core: &Core) -> Result<(), Failure> {
    if core.txn().protocol.is_settled() {
        return Ok(());
    }
    // Boxed: it is rare, and would enlarge every task.
    match Box::pin(multi::step(core, Coordination::settle)).await {
        Err(Failure::Sql(error)) if replay::hides(core, &error) => Err(Failure::Undone),
        result => result.map(drop),
    }
}

/// Prepares for a statement below REPEATABLE READ that reads without locks; see
/// [`Coordination::prepare_to_read`].
pub(crate) async fn prepare_to_read(core: &Core) -> Result<(), Failure> {
    if core.txn().protocol.may_read() {
        return Ok(());
    }
    // Apart: a replay may hide a deadlock of this wait, but not one of the conversion.
    settle(core).await?;
    Box::pin(multi::step(core, Coordination::prepare_to_read)).await.map(drop)
}

/// Tells every partition which plans become stale at commit, and determines which trees are dropped
/// then.
async fn announce_ddl(core: &Core) -> Result<(), Failure> {
    let changed = {
        let mut txn = core.txn();
        let kept: Vec<_> = txn
            .overlay
            .iter()
            .flat_map(|c| c.tables.values())
            .flat_map(|t| t.trees().collect::<Vec<_>>())
            .collect();
        let mut drops = std::mem::take(&mut txn.drops);
        // Created and dropped in the same transaction, or created before a ROLLBACK TO.
        drops.extend(txn.created.iter().filter(|t| !kept.contains(t)).copied().collect::<Vec<_>>());
        drops.sort_unstable();
        drops.dedup();
        // The commit is logged, and the trees are dropped after it, even if all else is undone.
        txn.protocol.write(!drops.is_empty());
        txn.drops = drops;
        std::mem::take(&mut txn.changed)
    };
    for (table, version) in changed {
        everywhere(core, core.engine().all(), |_| Body::TableChanged { table, version }).await?;
    }
    Ok(())
}

/// Aborts: every participant undoes its part and releases its locks.
pub(crate) async fn abort(core: &Core) -> SqlResult<()> {
    core.port.count_end(false);
    undo(core).await
}

/// Undoes a failed block that [has only to end](Txn::has_only_to_end) and releases its locks now,
/// before the client ends it.
pub(crate) async fn give_up(core: Rc<Core>, error: SqlError) -> End {
    let mut txn = {
        let mut txn = core.txn();
        let Txn { block, characteristics, queried, .. } = *txn;
        let exported = std::mem::take(&mut txn.exported);
        exported.iter().for_each(Exported::fail);
        std::mem::replace(
            &mut *txn,
            Txn { block, characteristics, queried, exported, failed: true, ..Txn::default() },
        )
    };
    if let (_, Err(e)) = end(&core, &mut txn, Coordination::abort).await {
        let id = txn.protocol.id();
        tracing::error!("transaction {id} failed ({error}) and could not be undone: {e}");
        return End::Error(e);
    }
    End::Error(error)
}

/// Like [`abort`], for a transaction that is not counted: it restarts, or never was one.
pub(crate) async fn undo(core: &Core) -> SqlResult<()> {
    let mut txn = std::mem::take(&mut *core.txn());
    end(core, &mut txn, Coordination::abort).await.1
}

/// Ends the transaction by this step of the protocol. Returns the end of the commit record, if it
/// was logged, and whether all partitions have finished.
pub(crate) async fn end(
    core: &Core,
    txn: &mut Txn,
    start: impl FnOnce(&mut Coordination, &mut Vec<Outgoing>),
) -> (Option<Lsn>, SqlResult<()>) {
    core.replays.keep(txn.script.take());
    let released = replay::released(core).await;
    // Before the partitions process the end, so that they can discard versions that are no longer
    // needed.
    txn.view = View::Undecided;
    txn.exported.clear();
    txn.protocol.order_end(|partition| core.engine().waiting(partition));
    // Held until every partition has been notified: a snapshot sees all of it or nothing.
    let mut committing = None;
    let (mut lsn, mut pending, mut next) = (None, VecDeque::new(), 0);
    let mut out = core.take_outgoing();
    start(&mut txn.protocol, &mut out);
    let ended = loop {
        match out.get(next) {
            Some(&Outgoing::Send(to, message)) => {
                let seq = core.send(to, txn.protocol.id(), message.into());
                match core.try_end(seq) {
                    Some(answer) => txn.protocol.answered(to, &answer, &mut out),
                    None => pending.push_back((to, seq)),
                }
                next += 1;
            }
            Some(Outgoing::Log) => {
                committing = Some(core.engine().snapshots().commit(txn.protocol.id()));
                let at = log_commit(core, txn);
                lsn = Some(at);
                txn.protocol.logged(at, &mut out);
                next += 1;
            }
            // One log covers all partitions of the node: no one votes.
            Some(Outgoing::Prepare(_)) => next += 1,
            Some(Outgoing::Done(ended)) => break ended.clone(),
            None => {
                let Some((from, seq)) = pending.pop_front() else { break Ok(true) };
                txn.protocol.answered(from, &core.end(seq).await, &mut out);
            }
        }
    };
    core.keep_outgoing(out);
    // Its snapshot may have been the last that saw them.
    past::drop_unseen(core).await;
    drop(committing);
    (lsn, released.and(ended.map(drop).map_err(|f| stopped(f.into()))))
}

/// Executes COMMIT.
pub(crate) async fn commit_block(core: &Core) -> Result<Outcome, Stop> {
    let (block, failed) = {
        let txn = core.txn();
        (txn.block, txn.failed)
    };
    if block == Block::None {
        return Ok(Outcome::plain("COMMIT").warn(SqlState::NO_ACTIVE_TRANSACTION, NOT_IN_PROGRESS));
    }
    if failed {
        Box::pin(abort(core)).await?;
        return Ok(Outcome::plain("ROLLBACK"));
    }
    let wait = match commit(core).await {
        Ok(wait) => wait,
        Err(e) => {
            core.txn().block = Block::None;
            return Err(e.into());
        }
    };
    let outcome = Outcome { wait, ..Outcome::plain("COMMIT") };
    Ok(if block == Block::Explicit {
        outcome
    } else {
        outcome.warn(SqlState::NO_ACTIVE_TRANSACTION, NOT_IN_PROGRESS)
    })
}

const NOT_IN_PROGRESS: &str = "there is no transaction in progress";

/// Executes ROLLBACK.
pub(crate) async fn rollback_block(core: &Core) -> Result<Outcome, Stop> {
    if core.txn().block == Block::None {
        return Ok(
            Outcome::plain("ROLLBACK").warn(SqlState::NO_ACTIVE_TRANSACTION, NOT_IN_PROGRESS)
        );
    }
    let block = core.txn().block;
    abort(core).await?;
    let outcome = Outcome::plain("ROLLBACK");
    Ok(if block == Block::Explicit {
        outcome
    } else {
        outcome.warn(SqlState::NO_ACTIVE_TRANSACTION, NOT_IN_PROGRESS)
    })
}

/// Executes SAVEPOINT.
pub(crate) async fn savepoint(core: &Core, name: &str) -> Result<Outcome, Stop> {
    only_in_block(core, "SAVEPOINT")?;
    let (id, participants) = {
        let mut txn = core.txn();
        let id = txn.next_savepoint;
        txn.next_savepoint += 1;
        (id, txn.protocol.participants().to_vec())
    };
    everywhere(core, participants, |_| Body::Savepoint(id)).await?;
    let mut txn = core.txn();
    let savepoint = Savepoint {
        name: name.to_owned(),
        id,
        overlay: txn.overlay.clone(),
        drops: txn.drops.len(),
        changed: txn.changed.len(),
        characteristics: txn.characteristics,
    };
    txn.savepoints.push(savepoint);
    Ok(Outcome::plain("SAVEPOINT"))
}

/// Refuses a command outside BEGIN ... COMMIT. Several statements in one message are no such block:
/// the end of the message would commit what follows a savepoint.
fn only_in_block(core: &Core, command: &str) -> SqlResult<()> {
    if core.txn().block != Block::Explicit {
        return Err(SqlError::new(
            SqlState::NO_ACTIVE_TRANSACTION,
            format!("{command} can only be used in transaction blocks"),
        )
        .hint("Start one with BEGIN."));
    }
    Ok(())
}

fn find_savepoint(txn: &Txn, name: &str) -> SqlResult<usize> {
    txn.savepoints.iter().rposition(|s| s.name == name).ok_or_else(|| {
        SqlError::new(SqlState::UNDEFINED_SAVEPOINT, format!("savepoint \"{name}\" does not exist"))
    })
}

/// Executes ROLLBACK TO: undoes what came after the savepoint, which remains. The block is no
/// longer failed.
pub(crate) async fn rollback_to(core: &Core, name: &str) -> Result<Outcome, Stop> {
    only_in_block(core, "ROLLBACK TO SAVEPOINT")?;
    let (id, participants) = {
        let mut txn = core.txn();
        let at = find_savepoint(&txn, name)?;
        txn.savepoints.truncate(at + 1);
        (txn.savepoints[at].id, txn.protocol.participants().to_vec())
    };
    // Without a check for a cancel request: the later savepoints are gone already.
    send_all(core, participants.into_iter().map(|p| (p, Body::RollbackTo(id))).collect()).await?;
    let mut txn = core.txn();
    let at = find_savepoint(&txn, name)?;
    let (overlay, drops, changed, characteristics) = {
        let s = &txn.savepoints[at];
        (s.overlay.clone(), s.drops, s.changed, s.characteristics)
    };
    txn.overlay = overlay;
    txn.characteristics = characteristics;
    txn.drops.truncate(drops);
    txn.changed.truncate(changed);
    txn.failed = false;
    Ok(Outcome::plain("ROLLBACK"))
}

/// Executes RELEASE: discards the savepoint and all later ones, and keeps their effects.
pub(crate) fn release(core: &Core, name: &str) -> Result<Outcome, Stop> {
    only_in_block(core, "RELEASE SAVEPOINT")?;
    let (id, savepoint, participants) = {
        let mut txn = core.txn();
        let at = find_savepoint(&txn, name)?;
        // As in PostgreSQL, READ ONLY set since the savepoint ends with it.
        txn.characteristics.read_only = txn.savepoints[at].characteristics.read_only;
        let savepoint = txn.savepoints[at].id;
        txn.savepoints.truncate(at);
        (txn.protocol.id(), savepoint, txn.protocol.participants().to_vec())
    };
    for partition in participants {
        core.port.submit(partition, control(id, Body::Release(savepoint)));
    }
    Ok(Outcome::plain("RELEASE"))
}

/// Executes SET TRANSACTION.
pub(crate) fn set_options(core: &Core, options: TxnOptions) -> Result<Outcome, Stop> {
    let mut txn = core.txn();
    if txn.block == Block::None {
        return Ok(Outcome::plain("SET").warn(SqlState::NO_ACTIVE_TRANSACTION, SET_WITHOUT_BLOCK));
    }
    txn.change(options)?;
    Ok(Outcome::plain("SET"))
}

const SET_WITHOUT_BLOCK: &str = "SET TRANSACTION can only be used in transaction blocks";

/// Executes SET TRANSACTION SNAPSHOT.
pub(crate) fn set_snapshot(core: &Core, id: &str) -> Result<Outcome, Stop> {
    if core.txn().block != Block::None {
        shared_snapshots::import(core, id)?;
        return Ok(Outcome::plain("SET"));
    }
    // Outside a block it has no effect, but can fail for the same reasons. The warning precedes the
    // error, too.
    core.notice(SqlState::NO_ACTIVE_TRANSACTION, SET_WITHOUT_BLOCK.to_owned());
    shared_snapshots::check(core, id)?;
    Ok(Outcome { notices: core.take_notices(), ..Outcome::plain("SET") })
}

static ANSWER: Class = Class::new("coordinator.checkpoint_answer");

/// Requests a checkpoint and waits for it.
pub(crate) async fn checkpoint(core: &Rc<Core>) -> SqlResult<()> {
    let answer = Arc::new(Latch::new(&ANSWER, None));
    let (set, wake) = (answer.clone(), core.port.waker(core.token));
    core.engine().checkpointer.request(Box::new(move |result| {
        *set.lock() = Some(result);
        wake();
    }));
    std::future::poll_fn(move |_| match answer.lock().take() {
        Some(result) => std::task::Poll::Ready(result),
        None => std::task::Poll::Pending,
    })
    .await
}
