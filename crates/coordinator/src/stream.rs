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
//! 3. A round is at most `EngineConfig::stream_bytes` plus one row of each partition.
//! 4. The statement holds its snapshot, or its locks, until its end: its result is from one point
//!    in time.
//!
//! Locking: none of its own. A crash leaves nothing.

use crate::core::Core;
use crate::finish::{self, LIMIT, OFFSET};
use crate::message::control;
use crate::multi;
use crate::outcome::Stop;
use crate::protocol::Coordination;
use crate::query::{self, Series, split_per_row};
use crate::txn::gather;
use clearway_ir::program::Env;
use clearway_ir::statement::{Finish, Query, Source};
use clearway_ir::{Access, Path, Program, Statement};
use clearway_partition::{Batch, Body, Reply};
use clearway_types::{PartitionId, RowBatch, SqlResult, TxnId};
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
    query.finish.is_empty() || matches!(split_per_row(&query.finish).1, [] | [Finish::Limit { .. }])
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
    env: &'a Env,
    per_row: &'a [Finish],
    skip: usize,
    left: usize,
    sent: u64,
}

impl<'a> Parts<'a> {
    /// Starts on a query that [`streams`].
    fn new(core: &'a Core, query: &'a Query, env: &'a Env) -> SqlResult<Self> {
        let (per_row, rest) = split_per_row(&query.finish);
        let (skip, left) = match rest {
            [Finish::Limit { limit, offset }] => {
                let skip = finish::count(offset.as_ref(), OFFSET, env)?.unwrap_or(0);
                (skip, finish::count(limit.as_ref(), LIMIT, env)?.unwrap_or(usize::MAX))
            }
            _ => (0, usize::MAX),
        };
        Ok(Self { core, env, per_row, skip, left, sent: 0 })
    }

    fn is_full(&self) -> bool {
        self.left == 0
    }

    fn take(&mut self, rows: RowBatch) -> SqlResult<RowBatch> {
        let mut rows = finish::per_row(self.per_row, rows, self.env)?;
        let skipped = self.skip.min(rows.len());
        if skipped > 0 {
            self.skip -= skipped;
            let mut kept = RowBatch::new();
            (skipped..rows.len()).for_each(|i| kept.push_encoded(rows.get(i).bytes()));
            rows = kept;
        }
        rows.truncate(self.left);
        self.left -= rows.len();
        Ok(rows)
    }

    async fn hand_out(&mut self, rows: RowBatch) -> SqlResult<()> {
        if rows.is_empty() {
            // The task still yields its turn.
            return self.core.yield_turn().await;
        }
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
            let part = parts.take(reply.rows)?;
            parts.hand_out(part).await?;
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
    let mut rows = RowBatch::new();
    while !parts.is_full()
        && let Some(chunk) = series.next_chunk(core.engine().chunk_rows())
    {
        rows.append(&parts.take(chunk)?);
        if rows.memory() >= core.engine().stream_bytes() as usize {
            parts.hand_out(std::mem::take(&mut rows)).await?;
        } else {
            core.yield_turn().await?;
        }
    }
    Ok(Rows { rows, sent: parts.sent })
}
