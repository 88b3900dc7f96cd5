//! Large results: rows go to the session in parts, and the next part is read when the session has
//! room for it.
//!
//! A query's partitions answer in batches. If each of them has only one batch, the rows are the
//! outcome. Otherwise each batch becomes a part ([`crate::Step::Rows`]). The partitions are asked
//! for their next batches when the session has taken all parts of this round.
//!
//! Invariants
//! 1. Between two parts no call to a partition is unanswered. So the task may be dropped there, and
//!    [`Paused`] notifies the partitions.
//! 2. A statement that has handed out a part is neither retried after a deadlock nor replanned: the
//!    client has seen its rows.
//! 3. A round is at most `EngineConfig::stream_bytes` plus one row of each partition. So is a part:
//!    the finishing steps and generate_series compute no row before the part has room for it.
//! 4. The statement holds its snapshot, or its locks, until its end: its result is from one point
//!    in time.
//!
//! Locking: none of its own. A crash leaves nothing.

use crate::core::Core;
use crate::finish::{self, RowSteps};
use crate::message::control;
use crate::multi;
use crate::outcome::Stop;
use crate::protocol::Coordination;
use crate::query::{self, Series};
use crate::txn::gather;
use clearway_ir::program::Env;
use clearway_ir::statement::{Query, Source};
use clearway_ir::{Access, Path, Program, Statement};
use clearway_partition::{Batch, Body, Reply};
use clearway_types::{PartitionId, RowBatch, SqlError, SqlResult, TxnId};
use std::sync::Arc;

/// The end of a query's result.
pub(crate) struct Rows {
    /// The rows that have not been handed out.
    pub rows: RowBatch,
    /// The number of rows that have been handed out.
    pub sent: u64,
}

impl Rows {
    pub(crate) fn all(rows: RowBatch) -> Self {
        Self { rows, sent: 0 }
    }

    /// Returns the total number of rows.
    pub(crate) fn count(&self) -> u64 {
        self.sent + self.rows.len() as u64
    }
}

/// Returns true if the query's first rows are known before its source has been read completely.
pub(crate) fn streams(query: &Query) -> bool {
    query.finish.iter().all(finish::is_row_wise)
}

/// Returns the batches in which one of this many partitions answers a statement.
pub(crate) fn batch(core: &Core, partitions: usize) -> Batch {
    let bytes = core.engine().stream_bytes() / partitions.max(1) as u32;
    Batch { id: core.next_batch(), rows: u32::MAX, bytes }
}

/// Returns true if it reads one row by its key: its answer is one reply, which tells what it has
/// read.
fn is_point(program: &Program) -> bool {
    matches!(program, Program::Scan { access: Access { path: Path::Point(_), .. }, .. })
}

/// Returns the batches of a statement that is one message in a block. `None`: it has few rows, or
/// all of them are needed at once.
#[inline(never)]
pub(crate) fn batch_of(core: &Core, statement: &Statement) -> Option<Batch> {
    match statement {
        Statement::Query(query @ Query { source: Source::Table { program, .. }, .. }) => {
            (!is_point(program) && streams(query)).then(|| batch(core, 1))
        }
        _ => None,
    }
}

/// Applies the finishing steps to one batch after the other and hands the rows out.
struct Parts<'a> {
    core: &'a Core,
    steps: RowSteps<'a>,
    /// The next part.
    rows: RowBatch,
    sent: u64,
}

impl<'a> Parts<'a> {
    /// Starts on a query that [`streams`].
    fn new(core: &'a Core, query: &'a Query, env: &'a Env) -> SqlResult<Self> {
        let (steps, rest) = RowSteps::split(&query.finish, env)?;
        if !rest.is_empty() {
            return Err(SqlError::internal("a step that needs all rows"));
        }
        Ok(Self { core, steps, rows: RowBatch::new(), sent: 0 })
    }

    fn is_full(&self) -> bool {
        self.steps.is_full()
    }

    /// Applies the steps to a batch, and hands out each part that has become full.
    async fn take(&mut self, batch: &RowBatch) -> SqlResult<()> {
        let most = self.core.engine().stream_bytes() as usize;
        let mut next = 0;
        while next < batch.len() && !self.is_full() {
            next = self.steps.feed(batch, next..batch.len(), most, &mut self.rows)?;
            if self.rows.memory() >= most {
                self.hand_out().await?;
            }
        }
        Ok(())
    }

    /// Applies the steps to a partition's batch, and hands out all of its rows.
    async fn pass(&mut self, batch: RowBatch) -> SqlResult<()> {
        if self.steps.is_empty() {
            self.rows = batch;
        } else {
            self.take(&batch).await?;
        }
        self.hand_out().await
    }

    async fn hand_out(&mut self) -> SqlResult<()> {
        let rows = std::mem::take(&mut self.rows);
        if rows.is_empty() {
            // The task still yields its turn.
            return self.core.yield_turn().await;
        }
        self.steps.release();
        self.sent += rows.len() as u64;
        self.core.hand_out(rows).await
    }
}

/// The partitions where a statement has paused. Dropping this tells them to forget the statement.
struct Paused<'a> {
    core: &'a Core,
    txn: TxnId,
    id: u32,
    at: Vec<PartitionId>,
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        for partition in &self.at {
            self.core.port.submit(*partition, control(self.txn, Body::Forget(self.id)));
        }
    }
}

/// Runs a query whose rows go to the client.
pub(crate) async fn select(core: &Core, query: &Query, env: &Arc<Env>) -> Result<Rows, Stop> {
    if !streams(query) || !query::is_wanted(query, env)? {
        return query::run(core, query, env).await.map(Rows::all);
    }
    match &query.source {
        Source::Table { program, route }
            if !is_point(program) && !query::skips_some(program, &query.finish) =>
        {
            let (replies, id) = query::scatter_batched(core, program, route, env).await?;
            rest(core, query, env, id, replies).await
        }
        Source::Series { start, stop, step, ty } => {
            let series = Series::new(start, stop, step, *ty, env)?;
            of_series(core, query, env, series).await
        }
        _ => query::run(core, query, env).await.map(Rows::all),
    }
}

/// Returns the rows of a statement whose partitions have answered with their first batches.
pub(crate) async fn rest(
    core: &Core,
    query: &Query,
    env: &Env,
    id: u32,
    mut replies: Vec<(PartitionId, Reply)>,
) -> Result<Rows, Stop> {
    if replies.iter().all(|(_, reply)| !reply.more) {
        let rows = query::merge(replies.into_iter().map(|(_, reply)| reply.rows));
        return Ok(Rows::all(finish::apply(core, &query.finish, rows, env).await?));
    }
    multi::tell(core, Coordination::unblock);
    let mut paused = Paused { core, txn: core.txn().protocol.id(), id, at: Vec::new() };
    paused.at =
        replies.iter().filter(|(_, reply)| reply.more).map(|(partition, _)| *partition).collect();
    let mut parts = Parts::new(core, query, env)?;
    loop {
        for (_, reply) in replies {
            parts.pass(reply.rows).await?;
            if parts.is_full() {
                break;
            }
        }
        if paused.at.is_empty() || parts.is_full() {
            return Ok(Rows { rows: RowBatch::new(), sent: parts.sent });
        }
        // Once they have answered or failed, they need not be told to forget the statement.
        let asked = std::mem::take(&mut paused.at);
        let calls = asked
            .iter()
            .map(|partition| core.send(*partition, paused.txn, Body::Next(id)))
            .collect();
        let answers = gather(core, calls).await.inspect_err(|_| paused.at.clone_from(&asked))?;
        replies = asked.into_iter().zip(answers).collect();
        paused.at = replies
            .iter()
            .filter(|(_, reply)| reply.more)
            .map(|(partition, _)| *partition)
            .collect();
    }
}

/// Returns the rows of generate_series.
async fn of_series(
    core: &Core,
    query: &Query,
    env: &Env,
    mut series: Series,
) -> Result<Rows, Stop> {
    let mut parts = Parts::new(core, query, env)?;
    while !parts.is_full()
        && let Some(chunk) = series.next_chunk(core.engine().chunk_rows())
    {
        let sent = parts.sent;
        parts.take(&chunk).await?;
        if parts.sent == sent {
            core.yield_turn().await?;
        }
    }
    parts.steps.release();
    Ok(Rows { rows: parts.rows, sent: parts.sent })
}
