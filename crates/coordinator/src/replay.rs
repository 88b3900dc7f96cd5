//! Replay of blocks: hides from a client that a transaction ahead of its own was rolled back, or
//! that its own was on a deadlock while it waited for those ahead.
//!
//! A block below REPEATABLE READ that is behind others (`partition/retire.rs`) is undone before one
//! of them is. Its session is notified, ends the running statement, and rolls the rest of the block
//! back. At the block's next statement (COMMIT included), or in place of the statement that was
//! ended, it replays the block's statements in a transaction with a new id. If every answer is the
//! same as before, the block continues with that statement. Otherwise it fails with 40001.
//!
//! Invariants
//! 1. Every answered statement of the block is in its [`Script`], or the script is closed and the
//!    block is not replayed. A statement closes the script if it may be answered in parts, may be
//!    read later, does more in the transaction than read and change rows, or has informed another
//!    session. Exceeding [`STATEMENTS`] or [`BYTES`] closes it, too.
//! 2. A statement is replayed with its original plan, parameters, times and settings.
//! 3. Each answer is compared: the command tag, and every row in its place. An error is a different
//!    answer.
//! 4. Between the undo and the next statement the block has no id, no participants and no locks.
//! 5. A block is replayed at most [`crate::EngineConfig::replays`] times.
//! 6. A block that can be replayed is the preferred victim of a deadlock while it waits for the
//!    transactions ahead of it, and while it is being replayed. A replay hides the deadlock. From
//!    then on the block neither goes behind others nor retires its locks: its undo undoes nobody
//!    else, so two such blocks cannot undo each other in turn.
//!
//! Why the client may continue: at READ COMMITTED each statement sees what is committed when it
//! starts, and nothing relates that to the time when the client sent it. So the replay is a run
//! that the client could have had, and it gave the same answers (3). What the replay stored without
//! showing may differ: no one has seen the first run, which left nothing.
//!
//! Locking: none of its own. A crash leaves nothing.
//!
//! Source: ours, after PostgreSQL's rule that READ COMMITTED does not fail because of other
//! transactions.

use crate::core::{Block, Core, Txn};
use crate::exports::Exported;
use crate::outcome::{Stop, shows_data, stopped};
use crate::protocol::Coordination;
use crate::snapshot::{self, ReadAt, View};
use crate::statement::modify_tag;
use crate::tag::Tag;
use crate::{insert, query, txn};
use clearway_ir::program::Env;
use clearway_ir::statement::{Query, Source};
use clearway_ir::{Plan, Statement};
use clearway_partition::{Body, Failure, Stake};
use clearway_sync::canary::{self, Bug};
use clearway_types::{Datum, Lsn, RowBatch, RowView, SqlError, SqlResult, SqlState, TxnId};
use std::cell::Cell;
use std::sync::Arc;

/// Maximum number of statements of a block that can be replayed.
const STATEMENTS: usize = 64;
/// Maximum size of its answers and parameters, in bytes.
const BYTES: usize = 64 << 10;
/// Maximum size of a script's memory that a session keeps for its next block, in bytes.
const SPARE: usize = 4 << 10;

/// A block's statements so far.
#[derive(Default)]
pub(crate) struct Script {
    done: Vec<Done>,
    /// The rows of all answers.
    rows: RowBatch,
    /// Bytes of all parameters.
    params: usize,
    /// The block has done something that is not replayed: invariant 1.
    closed: bool,
    replays: u32,
}

/// A statement with its answer.
struct Done {
    plan: Arc<Plan>,
    env: Arc<Env>,
    tag: Tag,
    /// Where its rows end in [`Script::rows`].
    end: usize,
}

impl Script {
    fn clear(&mut self) {
        self.done.clear();
        self.rows.truncate(0);
        (self.params, self.closed, self.replays) = (0, false, 0);
    }

    fn push(&mut self, plan: &Arc<Plan>, env: &Arc<Env>, rows: &RowBatch, tag: Tag) {
        self.params += env.params.iter().map(bytes).sum::<usize>();
        let size = self.rows.size() + rows.size() + self.params;
        if self.done.len() == STATEMENTS
            || size > BYTES
            || !is_repeatable(&plan.statement)
            || env.has_acted()
        {
            self.clear();
            self.closed = true;
            return;
        }
        if !rows.is_empty() {
            self.rows.append(rows);
        }
        self.done.push(Done { plan: plan.clone(), env: env.clone(), tag, end: self.rows.len() });
    }

    /// Compares an answer with the recorded one: invariant 3.
    fn is_answer(&self, at: usize, rows: &RowBatch, tag: Tag) -> bool {
        let begin = at.checked_sub(1).map_or(0, |before| self.done[before].end);
        let Done { tag: before, end, .. } = self.done[at];
        let same = |(i, row): (usize, RowView<'_>)| self.rows.get(begin + i).bytes() == row.bytes();
        tag == before && rows.len() == end - begin && rows.iter().enumerate().all(same)
    }
}

/// A session's replay state.
#[derive(Default)]
pub(crate) struct Replays {
    /// The memory of the last script, for reuse.
    spare: Cell<Option<Box<Script>>>,
    /// What the block's statements read at the last replay.
    read: Cell<Option<Vec<Option<Lsn>>>>,
    /// Calls that release what an undone block has left.
    released: Cell<Vec<u32>>,
    /// The number of the replay in progress, if another one may follow it.
    running: Cell<Option<u32>>,
}

impl Replays {
    /// Keeps the memory of a script whose transaction has ended or restarts without it.
    pub(crate) fn keep(&self, script: Option<Box<Script>>) {
        if let Some(mut script) = script
            && script.rows.memory() <= SPARE
        {
            script.clear();
            self.spare.set(Some(script));
        }
    }

    /// Returns the stake of a call of a replay: the engine can start over.
    pub(crate) fn stake(&self) -> Option<Stake> {
        self.running.get().map(Stake::Retry)
    }

    /// See [`crate::Client::take_replayed`].
    pub(crate) fn take_read(&self) -> Option<Vec<Option<Lsn>>> {
        self.read.take()
    }
}

/// Returns a value's size beyond its place in the array.
fn bytes(value: &Datum) -> usize {
    match value {
        Datum::Text(text) => text.len(),
        _ => 0,
    }
}

/// Returns true if the statement reads and changes rows, and does nothing else.
fn is_repeatable(statement: &Statement) -> bool {
    match statement {
        Statement::Query(Query { source, .. }) => {
            matches!(source, Source::Table { .. } | Source::Rows(_) | Source::Series { .. })
        }
        Statement::Insert(_) | Statement::Modify { .. } => true,
        _ => false,
    }
}

/// Records an answered statement, if its block may be replayed.
#[inline]
pub(crate) fn note(core: &Core, plan: &Arc<Plan>, env: &Arc<Env>, rows: &RowBatch, tag: Tag) {
    if core.engine().replays() > 0 {
        record(core, plan, env, rows, tag);
    }
}

fn record(core: &Core, plan: &Arc<Plan>, env: &Arc<Env>, rows: &RowBatch, tag: Tag) {
    let mut txn = core.txn();
    if txn.block == Block::None || !txn.sees_each() || matches!(plan.statement, Statement::Begin(_))
    {
        return;
    }
    if matches!(plan.statement, Statement::Savepoint(_) | Statement::Release(_)) {
        // Without ROLLBACK TO, they have no effect.
        return;
    }
    if core.has_handed_out() {
        return close(core, &mut txn);
    }
    let script = txn.script.get_or_insert_with(|| core.replays.spare.take().unwrap_or_default());
    if !script.closed {
        script.push(plan, env, rows, tag);
    }
}

/// Closes the script: the block does something that is not replayed.
pub(crate) fn close(core: &Core, txn: &mut Txn) {
    if core.engine().replays() > 0 && txn.block != Block::None {
        let script = txn.script.get_or_insert_default();
        script.clear();
        script.closed = true;
    }
}

impl Core {
    /// Records that the transaction was undone because of another one. Returns false if it has
    /// ended.
    pub(crate) fn note_undone(&self, id: TxnId) -> bool {
        self.txn().protocol.undo(id)
    }
}

/// Ends the calls of an undone block: their results are useless.
pub(crate) fn interrupt(core: &Core) {
    core.cancel_all(&Failure::undone());
}

/// Has the other partitions undo an undone block and release its locks (invariant 4). Called when
/// none of its statements runs.
pub(crate) fn release(core: &Core) {
    let (id, participants) = {
        let mut txn = core.txn();
        if !txn.protocol.is_undone() || txn.protocol.id() == TxnId(0) {
            return;
        }
        txn.view = View::Undecided;
        txn.exported.iter().for_each(Exported::fail);
        txn.protocol.restart()
    };
    let end = |partition| core.send(partition, id, Body::Finish { commit: None });
    core.replays.released.set(participants.into_iter().map(end).collect());
}

/// Waits for the end of [`release`].
pub(crate) async fn released(core: &Core) -> SqlResult<()> {
    let mut failed = Ok(());
    for call in core.replays.released.take() {
        if let Err(failure) = core.end(call).await {
            failed = Err(stopped(failure.into()));
        }
    }
    failed
}

/// Returns true if the block failed because a transaction that it was behind was undone.
pub(crate) fn is_undone(core: &Core, error: &SqlError) -> bool {
    error.state() == SqlState::SERIALIZATION_FAILURE && core.txn().protocol.is_undone()
}

/// Continues a COMMIT that failed while it waited for the transactions ahead. Replays the block, as
/// often as the reason is that one of them was undone.
pub(crate) async fn until_settled(core: &Core, failure: Failure) -> SqlResult<()> {
    let mut error = stopped(failure.into());
    while is_undone(core, &error) {
        again(core).await?;
        match txn::settle(core).await {
            Ok(()) => return Ok(()),
            Err(failure) => error = stopped(failure.into()),
        }
    }
    Err(error)
}

/// Replays the statements of an undone block.
///
/// # Errors
/// 40001 if it cannot be replayed, or if an answer differs; a system error; 57014 if it is
/// cancelled.
pub(crate) async fn again(core: &Core) -> SqlResult<()> {
    loop {
        core.check_cancelled()?;
        let Some(mut script) = take(core) else { return Err(Failure::undone()) };
        let result = run(core, &mut script).await;
        core.replays.running.set(None);
        match result {
            Ok(read) => {
                core.txn().script = Some(script);
                core.replays.read.set(Some(read));
                core.read_at.set(ReadAt::Newest);
                return Ok(());
            }
            Err(error) if is_undone(core, &error) => core.txn().script = Some(script),
            // The client has seen nothing of this run.
            Err(error)
                if error.state() == SqlState::DEADLOCK
                    && script.replays < core.engine().replays() =>
            {
                let mut txn = core.txn();
                (txn.script, txn.deadlocked) = (Some(script), true);
            }
            Err(error) if shows_data(error.state()) => return Err(Failure::undone()),
            Err(error) => return Err(error),
        }
    }
}

/// Returns how often the block has been replayed, if it may be replayed once more.
fn replays(core: &Core, txn: &Txn) -> Option<u32> {
    let reads_rows_only =
        txn.savepoints.is_empty() && txn.overlay.is_none() && txn.exported.is_empty();
    if txn.block == Block::None || !txn.sees_each() || !reads_rows_only {
        return None;
    }
    let done = txn.script.as_ref().map_or(Some(0), |s| (!s.closed).then_some(s.replays));
    done.filter(|done| *done < core.engine().replays())
}

/// Takes the script of a block that may be replayed.
fn take(core: &Core) -> Option<Box<Script>> {
    let mut txn = core.txn();
    replays(core, &txn)?;
    Some(txn.script.take().unwrap_or_default())
}

/// Returns the stake of a block that waits for the transactions ahead of it, if it can be replayed:
/// then a deadlock that it is on ends without an error.
pub(crate) fn stake_of_settle(core: &Core) -> Option<Stake> {
    replays(core, &core.txn()).map(Stake::Retry)
}

/// Returns true if the error is a deadlock that a replay of the block hides. The block then counts
/// as undone.
pub(crate) fn hides(core: &Core, error: &SqlError) -> bool {
    let mut txn = core.txn();
    let hides = error.state() == SqlState::DEADLOCK && replays(core, &txn).is_some();
    if hides {
        txn.protocol.mark_undone();
    }
    txn.deadlocked |= hides;
    hides
}

/// Runs the script. Returns what each statement read.
async fn run(core: &Core, script: &mut Script) -> SqlResult<Vec<Option<Lsn>>> {
    script.replays += 1;
    core.port.count_replay();
    let mut undone = {
        let mut txn = core.txn();
        let Txn { block, characteristics, queried, deadlocked, .. } = *txn;
        let new = Txn { block, characteristics, queried, deadlocked, ..Txn::default() };
        std::mem::replace(&mut *txn, new)
    };
    let deadlocked = undone.deadlocked;
    tracing::debug!(txn = %undone.protocol.id(), deadlocked, "the block is undone: it is replayed");
    txn::end(core, &mut undone, Coordination::abort).await.1?;
    core.replays.running.set((script.replays < core.engine().replays()).then_some(script.replays));
    let mut read = Vec::with_capacity(script.done.len());
    for (at, Done { plan, env, .. }) in script.done.iter().enumerate() {
        core.check_cancelled()?;
        core.read_at.set(ReadAt::Newest);
        env.memory.reset();
        let (rows, tag) = statement(core, &plan.statement, env).await.map_err(stopped)?;
        if !script.is_answer(at, &rows, tag) && !canary::on(Bug::UnequalReplay) {
            return Err(Failure::undone());
        }
        read.push(core.reads_at());
    }
    Ok(read)
}

/// Runs one [repeatable](is_repeatable) statement without handing out its rows in parts.
async fn statement(
    core: &Core,
    statement: &Statement,
    env: &Arc<Env>,
) -> Result<(RowBatch, Tag), Stop> {
    match statement {
        Statement::Query(query) => {
            let rows = snapshot::seeing(core, &query.source, query::run(core, query, env)).await?;
            let tag = Tag::Select(rows.len() as u64);
            Ok((rows, tag))
        }
        Statement::Insert(insert) => {
            let (rows, n) = insert::run(core, insert, env).await?;
            Ok((rows, Tag::Insert(n)))
        }
        Statement::Modify { program, route } => {
            let changes = query::modify(core, program, route, env);
            let (rows, n) = snapshot::seeing_rows(core, program, route, changes).await?;
            Ok((rows, modify_tag(program, n)))
        }
        _ => Err(SqlError::internal("a statement that cannot be replayed").into()),
    }
}
