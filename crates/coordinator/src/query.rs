//! Queries, UPDATE and DELETE: routes a program, gathers its rows, and finishes them.

use crate::core::Core;
use crate::finish::{self, RowSteps};
use crate::global_indexes::{self, Entries};
use crate::insert::{self, Done, Inserter, Rounds};
use crate::learning;
use crate::multi;
use crate::outcome::Stop;
use crate::schemes;
use crate::shared_snapshots;
use crate::snapshot::{Needs, Work, program_at};
use crate::statement::has_more_work;
use crate::stream;
use crate::txn::{enter, everywhere, gather, is_fresh};
use crate::views;
use clearway_ir::program::Env;
use clearway_ir::statement::{Finish, Query, Route, Source};
use clearway_ir::{Access, Expr, GlobalIndexOp, LockWait, OnConflict, Program, RowLock, TableDef};
use clearway_partition::{Batch, Body, Reply};
use clearway_sync::canary::{self, Bug};
use clearway_types::{Datum, DatumRef, PartitionId, RowBatch, RowView, SqlResult, SqlType};
use std::sync::Arc;

async fn targets(
    core: &Core,
    program: &Program,
    route: &Route,
    env: &Arc<Env>,
) -> Result<Vec<PartitionId>, Stop> {
    if let Route::GlobalIndex { table, key, values } = route {
        // As strong as the row's lock: two transactions that share the key's lock and then both
        // change it would deadlock.
        let (lock, wait) = match program {
            Program::Scan { access, .. } => (access.read_lock(), access.lock_wait()),
            Program::Update { access, .. } | Program::Delete { access, .. } => {
                (access.write_lock(), LockWait::Wait)
            }
            _ => (RowLock::Update, LockWait::Wait),
        };
        let home = global_indexes::home(
            core,
            table,
            *key,
            values,
            GlobalIndexOp::Find { lock, wait },
            env,
        )
        .await?;
        return Ok(home.map_or_else(|| core.engine().all().collect(), |home| vec![home]));
    }
    Ok(match route.partition(env, core.engine().partitions())? {
        Some(one) => vec![one],
        None => core.engine().all().collect(),
    })
}

/// Returns a query's rows.
pub(crate) async fn run(core: &Core, query: &Query, env: &Arc<Env>) -> Result<RowBatch, Stop> {
    let rows = match &query.source {
        _ if !is_wanted(query, env)? => RowBatch::new(),
        Source::Table { program, route } if skips_some(program, &query.finish) => {
            in_turn(core, program, route, env).await?
        }
        Source::Table { program, route } => {
            let replies = scatter(core, program, route, env).await?;
            merge(replies.into_iter().map(|(_, r)| r.rows))
        }
        Source::Rows(rows) => {
            return Ok(finish::apply_to_values(core, rows, &query.finish, env).await?);
        }
        Source::View(view) => {
            let rows = views::rows(core, *view).await?;
            // It may reveal a catalog that is newer than the statement's plan.
            core.show(core.engine().catalog_commit());
            rows
        }
        Source::ExportSnapshot => {
            let id = shared_snapshots::export(core, env)?;
            let mut exported = RowBatch::new();
            exported.push_with(|row| row.push(DatumRef::Text(&id)));
            exported
        }
        Source::SetScheme { partition, scheme } => {
            schemes::set(core, partition.as_ref(), scheme, env).await?;
            done()
        }
        Source::ResetContention => {
            core.engine().system()?.reset_contention();
            done()
        }
        Source::Series { start, stop, step, ty } => {
            let mut series = Series::new(start, stop, step, *ty, env)?;
            // Steps that handle each row separately run as the rows are produced, so that only
            // their output is kept.
            let (mut steps, rest) = RowSteps::split(&query.finish, env)?;
            let mut out = RowBatch::new();
            while !steps.is_full()
                && let Some(chunk) = series.next_chunk(core.engine().chunk_rows())
            {
                steps.feed(&chunk, 0..chunk.len(), usize::MAX, &mut out)?;
                core.yield_turn().await?;
            }
            return Ok(finish::apply(core, rest, out, env).await?);
        }
    };
    Ok(finish::apply(core, &query.finish, rows, env).await?)
}

/// Returns the row of a function without a result.
fn done() -> RowBatch {
    let mut done = RowBatch::new();
    done.push_with(|row| row.push(DatumRef::Text("")));
    done
}

/// Returns true if the query's source must be read at all.
pub(crate) fn is_wanted(query: &Query, env: &Env) -> SqlResult<bool> {
    query.once.as_ref().map_or(Ok(true), |condition| condition.eval_bool(RowView::new(&[]), env))
}

pub(crate) fn merge(mut batches: impl Iterator<Item = RowBatch>) -> RowBatch {
    let mut all = batches.next().unwrap_or_default();
    for batch in batches {
        all.append(&batch);
    }
    all
}

async fn scatter(
    core: &Core,
    program: &Arc<Program>,
    route: &Route,
    env: &Arc<Env>,
) -> Result<Vec<(PartitionId, Reply)>, Stop> {
    let targets = targets(core, program, route, env).await?;
    send_to(core, targets, (program, Needs::of(program, route)), env, None).await
}

/// Like [`scatter`], but returns each partition's first batch, and the batches' id.
pub(crate) async fn scatter_batched(
    core: &Core,
    program: &Arc<Program>,
    route: &Route,
    env: &Arc<Env>,
) -> Result<(Vec<(PartitionId, Reply)>, u32), Stop> {
    let targets = targets(core, program, route, env).await?;
    let batch = stream::batch(core, targets.len());
    Ok((
        send_to(core, targets, (program, Needs::of(program, route)), env, Some(batch)).await?,
        batch.id,
    ))
}

async fn send_to(
    core: &Core,
    targets: Vec<PartitionId>,
    (program, needs): (&Arc<Program>, Needs),
    env: &Arc<Env>,
    batch: Option<Batch>,
) -> Result<Vec<(PartitionId, Reply)>, Stop> {
    let (fresh, learns, may_use_retired, may_add, sees) = {
        let txn = core.txn();
        let learns = learning::learns(core.engine(), &txn, program);
        let may_use_retired = txn.may_use_retired(program);
        (is_fresh(&txn, program), learns, may_use_retired, txn.may_add(), txn.sees(needs))
    };
    if !fresh && sees.is_none() {
        let changes = matches!(&**program, Program::Update { .. } | Program::Delete { .. });
        multi::block(core, &targets, changes && !has_more_work(program)).await?;
    }
    let optimistic = core.txn().protocol.is_optimistic();
    let past = program_at(core, program, sees.filter(|_| !fresh))?;
    let program = past.as_ref().unwrap_or(program);
    let body = |_| {
        let rows = None;
        Work { program, env, rows, batch, fresh, learns, may_use_retired, may_add, optimistic }
            .body(sees)
    };
    let replies = everywhere(core, targets.iter().copied(), body).await?;
    Ok(targets.into_iter().zip(replies).collect())
}

/// Returns true if a query may take any unlocked rows (SKIP LOCKED with a limit): the first
/// partitions may have enough of them.
pub(crate) fn skips_some(program: &Program, finish: &[Finish]) -> bool {
    let skips = match program {
        Program::Scan { access, limit: Some(_), .. } => access.lock_wait() == LockWait::Skip,
        _ => false,
    };
    skips && !finish.iter().any(|step| matches!(step, Finish::Sort(_)))
}

/// Returns the rows of a query with a limit from one partition after the other, so that it locks no
/// more rows than the limit.
async fn in_turn(
    core: &Core,
    program: &Program,
    route: &Route,
    env: &Arc<Env>,
) -> Result<RowBatch, Stop> {
    let Program::Scan { access, group, project, limit: Some(limit) } = program else {
        return Ok(RowBatch::new());
    };
    let limit = limit.eval_const(env)?.as_i64();
    let mut rows = RowBatch::new();
    for partition in targets(core, program, route, env).await? {
        let left = limit.map(|limit| limit.saturating_sub_unsigned(rows.len() as u64));
        if left.is_some_and(|left| left <= 0) {
            break;
        }
        let limit = left.map(|left| Expr::Literal(Datum::Int8(left)));
        let (access, group, project) = (access.clone(), group.clone(), project.clone());
        let program = Arc::new(Program::Scan { access, group, project, limit });
        let sees = core.txn().sees(Needs::Snapshot);
        let then = sees.filter(|_| !is_fresh(&core.txn(), &program));
        let program = program_at(core, &program, then)?.unwrap_or(program);
        let body = |_| Work::plain(&program, env).body(sees);
        for reply in everywhere(core, [partition], body).await? {
            rows.append(&reply.rows);
        }
    }
    Ok(rows)
}

/// Runs UPDATE or DELETE. Returns the RETURNING rows and the number of affected rows.
pub(crate) async fn modify(
    core: &Core,
    program: &Arc<Program>,
    route: &Route,
    env: &Arc<Env>,
) -> Result<(RowBatch, u64), Stop> {
    core.txn().protocol.write(true);
    let replies = scatter(core, program, route, env).await?;
    match &**program {
        Program::Update { access: Access { table, .. }, moves: true, returning, .. } => {
            let insert = Program::Insert {
                table: table.clone(),
                returning: returning.clone(),
                on_conflict: OnConflict::Fail,
            };
            let insert = Arc::new(insert);
            if table.has_global_index() {
                return moved(core, table, &insert, replies, env).await;
            }
            let rows = merge(replies.into_iter().map(|(_, r)| r.rows));
            let inserter = Inserter { core, table, program: &insert, env, new: false };
            let mut done = Done::default();
            inserter.rows(&rows, Rounds::Several, &mut done).await?;
            Ok((done.returned, done.count))
        }
        Program::Delete { access: Access { table, .. }, returning } if table.has_global_index() => {
            let width = returning.len() - table.global_index_columns().count();
            deleted(core, table, width, replies, env).await
        }
        _ => {
            let count = replies.iter().map(|(_, r)| r.count).sum();
            Ok((merge(replies.into_iter().map(|(_, r)| r.rows)), count))
        }
    }
}

/// Returns the memory of the replies' rows.
fn memory(replies: &[(PartitionId, Reply)]) -> usize {
    replies.iter().map(|(_, reply)| reply.rows.memory()).sum()
}

/// Finishes an UPDATE that removed rows from a table with a global index. Each row came with its
/// new version.
async fn moved(
    core: &Core,
    table: &Arc<TableDef>,
    insert: &Arc<Program>,
    replies: Vec<(PartitionId, Reply)>,
    env: &Arc<Env>,
) -> Result<(RowBatch, u64), Stop> {
    let (mut gone, mut come) = (Entries::new(table), Entries::new(table));
    let (mut rows, mut homes) = (RowBatch::new(), Vec::new());
    let mut unread = memory(&replies);
    for (from, reply) in replies {
        for pair in 0..reply.rows.len() / 2 {
            let (old, new) = (reply.rows.get(2 * pair), reply.rows.get(2 * pair + 1));
            let to = table.partition_of(new, core.engine().partitions())?.unwrap_or(from);
            gone.add(core, old, from)?;
            come.add(core, new, to)?;
            rows.push_encoded(new.bytes());
            homes.push(to);
            let built = rows.memory() + gone.memory() + come.memory();
            env.memory.settle((unread + built) as u64)?;
        }
        unread -= reply.rows.memory();
    }
    gone.cancel(&mut come);
    gone.delete(core, env).await?;
    drop(gone);
    env.memory.settle((rows.memory() + come.memory()) as u64)?;
    let inserter = Inserter { core, table, program: insert, env, new: false };
    inserter.moved(&rows, &homes, &come).await
}

/// Finishes a DELETE from a table with a global index. After the first `width` columns, its rows
/// have the columns of the global indexes.
async fn deleted(
    core: &Core,
    table: &Arc<TableDef>,
    width: usize,
    replies: Vec<(PartitionId, Reply)>,
    env: &Arc<Env>,
) -> Result<(RowBatch, u64), Stop> {
    let (mut gone, mut rows, mut count) = (Entries::new(table), RowBatch::new(), 0);
    let mut unread = memory(&replies);
    for (_, reply) in replies {
        count += reply.count;
        for row in reply.rows.iter() {
            gone.add_columns(core, row, width)?;
            if width > 0 {
                rows.try_push_with(|r| {
                    row.iter().take(width).try_for_each(|value| value.map(|value| r.push(value)))
                })
                .map_err(insert::bad_row)?;
            }
            env.memory.settle((unread + rows.memory() + gone.memory()) as u64)?;
        }
        unread -= reply.rows.memory();
    }
    gone.delete(core, env).await?;
    Ok((rows, count))
}

/// Reads all rows of one partition in batches, and awaits `each` with every batch.
pub(crate) async fn pull(
    core: &Core,
    partition: PartitionId,
    program: &Arc<Program>,
    env: &Arc<Env>,
    each: &mut impl AsyncFnMut(RowBatch) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let id = enter(core, partition).await?;
    core.check_cancelled()?;
    let fresh = is_fresh(&core.txn(), program) || canary::on(Bug::UnlockedKey);
    let batch =
        Batch { id: core.next_batch(), rows: core.engine().chunk_rows() as u32, bytes: u32::MAX };
    let body = Work { batch: Some(batch), fresh, ..Work::plain(program, env) }.body(None);
    let mut seq = core.send(partition, id, body);
    loop {
        let reply = gather(core, vec![seq]).await?.pop().unwrap_or_default();
        let more = reply.more;
        each(reply.rows).await?;
        if !more {
            return Ok(());
        }
        core.yield_turn().await?;
        seq = core.send(partition, id, Body::Next(batch.id));
    }
}

/// generate_series, in chunks.
pub(crate) struct Series {
    next: Option<i64>,
    stop: i64,
    step: i64,
    ty: SqlType,
}

impl Series {
    pub(crate) fn new(
        start: &Expr,
        stop: &Expr,
        step: &Expr,
        ty: SqlType,
        env: &Env,
    ) -> SqlResult<Self> {
        let value = |e: &Expr| -> SqlResult<Option<i64>> { Ok(e.eval_const(env)?.as_i64()) };
        let (start, stop, step) = (value(start)?, value(stop)?, value(step)?);
        let (Some(start), Some(stop), Some(step)) = (start, stop, step) else {
            return Ok(Self { next: None, stop: 0, step: 1, ty });
        };
        if step == 0 {
            return Err(clearway_types::SqlError::new(
                clearway_types::SqlState::INVALID_PARAMETER,
                "step size cannot equal zero",
            ));
        }
        Ok(Self { next: Some(start), stop, step, ty })
    }

    /// Returns the next rows, at most `most`, or `None` after the last.
    pub(crate) fn next_chunk(&mut self, most: usize) -> Option<RowBatch> {
        let mut out = RowBatch::new();
        while out.len() < most {
            let Some(v) =
                self.next.filter(|v| if self.step > 0 { *v <= self.stop } else { *v >= self.stop })
            else {
                break;
            };
            let datum = match self.ty {
                SqlType::Int4 => DatumRef::Int4(v as i32),
                _ => DatumRef::Int8(v),
            };
            out.push_with(|row| row.push(datum));
            self.next = v.checked_add(self.step);
        }
        (!out.is_empty()).then_some(out)
    }
}
