//! INSERT: rows from a source, checked, routed by their distribution columns, inserted where they belong.

use crate::client::Stop;
use crate::core::Core;
use crate::finish;
use crate::query::{self, CHUNK_ROWS, Series, split_per_row};
use crate::txn::{enter, gather, is_fresh};
use clearway_partition::{Body, not_null_violation};
use clearway_plan::program::Env;
use clearway_plan::statement::{Insert, Query, Source};
use clearway_plan::{Program, TableDef};
use clearway_types::row::BadRow;
use clearway_types::{PartitionId, RowBatch, RowView, SqlError, SqlResult, SqlState};
use std::sync::Arc;

/// An INSERT of one row of expressions: its program, its partition and its row. `None` if it is another kind.
#[allow(clippy::type_complexity, reason = "one use; a struct would only name the tuple")]
pub(crate) fn one_row<'p>(
    core: &Core,
    insert: &'p Insert,
    env: &Env,
) -> Option<SqlResult<(&'p Arc<Program>, PartitionId, Option<RowBatch>)>> {
    let Query { source: Source::Rows(rows), finish } = &insert.source else { return None };
    if rows.len() != 1 || !finish.is_empty() {
        return None;
    }
    Some(finish::values(rows, env).and_then(|batch| {
        let row = batch.get(0);
        check(&insert.table, row, env)?;
        let partition = destination(core, &insert.table, row, 0)?;
        Ok((&insert.program, partition, Some(batch)))
    }))
}

/// INSERT in general: what is returned, and how many rows were inserted.
pub(crate) async fn run(core: &Core, insert: &Insert, env: &Arc<Env>) -> Result<(RowBatch, u64), Stop> {
    core.txn().wrote = true;
    let (table, program) = (&insert.table, &insert.program);
    if let Source::Series { start, stop, step, ty } = &insert.source.source {
        let (per_row, rest) = split_per_row(&insert.source.finish);
        if rest.is_empty() {
            let mut series = Series::new(start, stop, step, *ty, env)?;
            let (mut returned, mut count) = (RowBatch::new(), 0);
            while let Some(chunk) = series.next_chunk() {
                let chunk = finish::apply(per_row, chunk, env)?;
                let (more, n) = rows(core, table, program, &chunk, env).await?;
                returned.append(&more);
                count += n;
                core.breathe().await?;
            }
            return Ok((returned, count));
        }
    }
    let source = query::run(core, &insert.source, env).await?;
    rows(core, table, program, &source, env).await
}

/// Inserts whole rows of the table.
pub(crate) async fn rows(
    core: &Core,
    table: &TableDef,
    program: &Arc<Program>,
    rows: &RowBatch,
    env: &Arc<Env>,
) -> Result<(RowBatch, u64), Stop> {
    let (mut returned, mut count) = (RowBatch::new(), 0);
    let mut at = 0;
    while at < rows.len() {
        let end = rows.len().min(at + CHUNK_ROWS);
        let mut parts: Vec<RowBatch> = vec![RowBatch::new(); usize::from(core.engine().partitions())];
        for i in at..end {
            let row = rows.get(i);
            check(table, row, env)?;
            let to = destination(core, table, row, at / CHUNK_ROWS)?;
            parts[usize::from(to.0)].push_encoded(row.bytes());
        }
        let mut calls = Vec::new();
        for (partition, part) in core.engine().all().zip(parts).filter(|(_, part)| !part.is_empty()) {
            let id = enter(core, partition).await?;
            let fresh = is_fresh(&core.txn(), program);
            let body =
                Body::Statement { program: program.clone(), env: env.clone(), rows: Some(part), batch: None, fresh };
            calls.push(core.send(partition, id, body));
        }
        for reply in gather(core, calls).await? {
            returned.append(&reply.rows);
            count += reply.count;
        }
        at = end;
    }
    Ok((returned, count))
}

/// NOT NULL.
fn check(table: &TableDef, row: RowView<'_>, env: &Env) -> SqlResult<()> {
    for (i, (column, value)) in table.columns.iter().zip(row.iter()).enumerate() {
        if value.map_err(bad_row)?.is_null() && column.not_null {
            return Err(not_null_violation(table, i, row, env)?);
        }
    }
    Ok(())
}

pub(crate) fn bad_row(_: BadRow) -> SqlError {
    SqlError::new(SqlState::DATA_CORRUPTED, "a row's bytes are damaged")
}

/// Where a row belongs. A row that may live anywhere goes where the transaction already is, else to a partition by session and turn.
fn destination(core: &Core, table: &TableDef, row: RowView<'_>, turn: usize) -> SqlResult<PartitionId> {
    let partitions = core.engine().partitions();
    if let Some(partition) = table.partition_of(row, partitions)? {
        return Ok(partition);
    }
    Ok(match core.txn().participants.last() {
        Some(here) if turn == 0 => *here,
        _ => PartitionId(((core.token as usize + turn) % usize::from(partitions)) as u16),
    })
}
