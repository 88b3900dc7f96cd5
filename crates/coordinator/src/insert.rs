//! INSERT: checks the source's rows, routes them by their distribution columns, and inserts them.

use crate::core::Core;
use crate::finish::{self, RowSteps};
use crate::global_indexes::{Entries, Keys};
use crate::multi;
use crate::outcome::Stop;
use crate::query::{self, Series};
use crate::snapshot::{self, Needs, ReadAt, Work};
use crate::txn::{is_fresh, round};
use clearway_ir::program::Env;
use clearway_ir::statement::{Insert, Query, Source};
use clearway_ir::{Charge, OnConflict, Program, TableDef};
use clearway_partition::{Reply, not_null_violation, satisfies_checks};
use clearway_types::row::BadRow;
use clearway_types::{PartitionId, RowBatch, RowView, SqlError, SqlResult, SqlState};
use std::ops::Range;
use std::sync::Arc;

/// A statement that is one message to one partition.
pub(crate) struct OneMessage<'p> {
    pub program: &'p Arc<Program>,
    pub partition: PartitionId,
    pub rows: Option<RowBatch>,
}

/// Returns the program, partition and row of an INSERT of one row of expressions into a table
/// without global indexes. Returns `None` for other INSERTs.
pub(crate) fn one_row<'p>(
    core: &Core,
    insert: &'p Insert,
    env: &Env,
) -> Option<SqlResult<OneMessage<'p>>> {
    let Query { once: None, source: Source::Rows(rows), finish } = &insert.source else {
        return None;
    };
    if rows.len() != 1 || !finish.is_empty() || insert.table.has_global_index() {
        return None;
    }
    Some(finish::values(rows, env).and_then(|batch| {
        let row = batch.get(0);
        check(&insert.table, row, env)?;
        let partition = destination(core, &insert.table, row, 0)?;
        Ok(OneMessage { program: &insert.program, partition, rows: Some(batch) })
    }))
}

/// Runs any INSERT. Returns the RETURNING rows and the number of rows inserted.
pub(crate) async fn run(
    core: &Core,
    insert: &Insert,
    env: &Arc<Env>,
) -> Result<(RowBatch, u64), Stop> {
    core.txn().protocol.write(true);
    env.draws.restart();
    let inserter =
        Inserter { core, table: &insert.table, program: &insert.program, env, new: true };
    let mut done = Done::default();
    if let Source::Series { start, stop, step, ty } = &insert.source.source {
        let (steps, rest) = RowSteps::split(&insert.source.finish, env)?;
        if rest.is_empty() && query::is_wanted(&insert.source, env)? {
            let series = Series::new(start, stop, step, *ty, env)?;
            of_series(&inserter, series, steps, &mut done).await?;
            return Ok((done.returned, done.count));
        }
    }
    let source =
        snapshot::seeing(core, &insert.source.source, query::run(core, &insert.source, env))
            .await?;
    let sees = core.txn().sees(Needs::at_home(&insert.program));
    if sees.is_some() {
        core.read_at.set(ReadAt::of(sees));
    }
    if source.is_empty() {
        inserter.hold().await?;
    }
    inserter.rows(&source, Rounds::One, &mut done).await?;
    Ok((done.returned, done.count))
}

/// Inserts the rows of generate_series in rounds of at most `EngineConfig::chunk_rows` rows, and of
/// `EngineConfig::stream_bytes` bytes plus one row.
async fn of_series(
    inserter: &Inserter<'_>,
    mut series: Series,
    mut steps: RowSteps<'_>,
    done: &mut Done,
) -> Result<(), Stop> {
    let Inserter { core, env, .. } = *inserter;
    let most = core.engine().stream_bytes() as usize;
    while !steps.is_full()
        && let Some(chunk) = series.next_chunk(core.engine().chunk_rows())
    {
        let mut next = 0;
        while next < chunk.len() && !steps.is_full() {
            let mut rows = RowBatch::new();
            next = steps.feed(&chunk, next..chunk.len(), most, &mut rows)?;
            inserter.rows(&rows, Rounds::Several, done).await?;
            steps.release();
            done.settle(0, env)?;
        }
        core.yield_turn().await?;
    }
    if done.count == 0 {
        inserter.hold().await?;
    }
    Ok(())
}

/// Whether the statement inserts more rows later.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounds {
    /// No: if there are few, the statement knows all its partitions in advance.
    One,
    /// More may follow.
    Several,
}

/// Inserts rows into one table by one program.
#[derive(Clone, Copy)]
pub(crate) struct Inserter<'a> {
    pub core: &'a Core,
    pub table: &'a Arc<TableDef>,
    /// The table's [`Program::Insert`].
    pub program: &'a Arc<Program>,
    pub env: &'a Arc<Env>,
    /// Whether the rows are new. Others were stored before, or an UPDATE has tested them.
    pub new: bool,
}

impl Inserter<'_> {
    /// Locks the table as an INSERT does, at one partition: a statement without rows, too, has
    /// found the table that it names, until its transaction ends.
    pub(crate) async fn hold(&self) -> Result<(), Stop> {
        let Self { core, program, env, .. } = *self;
        let nothing = [(anywhere(core, 0), RowBatch::new())];
        send(core, program, nothing, env).await.map(drop)
    }

    /// Inserts whole rows of the table, and adds the results to those of the statement so far.
    /// Those rows and the results are all that the statement holds.
    pub(crate) async fn rows(
        &self,
        rows: &RowBatch,
        rounds: Rounds,
        done: &mut Done,
    ) -> Result<(), Stop> {
        let Self { core, table, env, .. } = *self;
        let most = core.engine().chunk_rows();
        let mut homes = Vec::with_capacity(rows.len().min(most));
        for at in (0..rows.len()).step_by(most) {
            if at > 0 {
                core.yield_turn().await?;
            }
            let chunk = at..rows.len().min(at.saturating_add(most));
            homes.clear();
            for i in chunk.clone() {
                if self.new {
                    check(table, rows.get(i), env)?;
                }
                homes.push(destination(core, table, rows.get(i), done.turn)?);
            }
            done.turn += 1;
            let mut entries = Entries::new(table);
            for (i, home) in chunk.clone().zip(&homes).filter(|_| table.has_global_index()) {
                entries.add(core, rows.get(i), *home)?;
            }
            if rounds == Rounds::One && rows.len() <= most {
                let mut partitions: Vec<PartitionId> =
                    homes.iter().copied().chain(entries.partitions()).collect();
                partitions.sort_unstable();
                partitions.dedup();
                multi::block(core, &partitions, !table.has_global_index()).await?;
            }
            if table.has_global_index() && on_conflict(self.program) != OnConflict::Fail {
                for (i, home) in chunk.zip(&homes) {
                    done.add(self.unless_conflict(rows.get(i), *home).await?);
                    done.settle(rows.memory(), env)?;
                }
            } else {
                done.add_in_order(self.place(rows, chunk, &homes, &entries).await?, &homes);
                done.settle(rows.memory(), env)?;
            }
        }
        Ok(())
    }

    /// Inserts one row of a table with a global index unless it violates a constraint. One row at a
    /// time, since the result for a row may depend on the previous one.
    async fn unless_conflict(
        &self,
        row: RowView<'_>,
        home: PartitionId,
    ) -> Result<Vec<Reply>, Stop> {
        let Self { core, table, program, env, .. } = *self;
        let mut entries = Entries::new(table);
        entries.add(core, row, home)?;
        if entries.clash(core, on_conflict(program), env).await? {
            return Ok(Vec::new());
        }
        let mut parts = parts(core);
        parts[usize::from(home.0)].push_encoded(row.bytes());
        let replies = deal(core, program, parts, env).await?;
        if replies.iter().any(|r| r.count > 0) {
            entries.insert(core, Keys::Primary, env).await?;
            entries.insert(core, Keys::Secondary, env).await?;
        }
        Ok(replies)
    }

    /// Inserts rows of a table with a global index that an UPDATE has deleted elsewhere, with their
    /// new entries in the global indexes. Returns the RETURNING rows and the number of rows
    /// inserted.
    pub(crate) async fn moved(
        &self,
        rows: &RowBatch,
        homes: &[PartitionId],
        entries: &Entries,
    ) -> Result<(RowBatch, u64), Stop> {
        let Self { env, .. } = *self;
        let (mut done, mut copy) = (Done::default(), Charge::default());
        copy.grow(&env.memory, rows.memory())?;
        done.add(self.place(rows, 0..rows.len(), homes, entries).await?);
        copy.release(&env.memory);
        done.settle(rows.memory() + entries.memory(), env)?;
        Ok((done.returned, done.count))
    }

    /// Sends rows to their partitions, and their entries to the global indexes. Keys are checked in
    /// PostgreSQL's order: the primary key first.
    async fn place(
        &self,
        rows: &RowBatch,
        which: Range<usize>,
        homes: &[PartitionId],
        entries: &Entries,
    ) -> Result<Vec<Reply>, Stop> {
        let Self { core, program, env, .. } = *self;
        let mut parts = parts(core);
        for (i, home) in which.zip(homes) {
            parts[usize::from(home.0)].push_encoded(rows.get(i).bytes());
        }
        entries.insert(core, Keys::Primary, env).await?;
        let replies = deal(core, program, parts, env).await?;
        entries.insert(core, Keys::Secondary, env).await?;
        Ok(replies)
    }
}

fn on_conflict(program: &Program) -> OnConflict {
    match program {
        Program::Insert { on_conflict, .. } => *on_conflict,
        _ => OnConflict::Fail,
    }
}

/// What a statement has inserted so far.
#[derive(Default)]
pub(crate) struct Done {
    /// The RETURNING rows.
    pub returned: RowBatch,
    /// The number of rows inserted.
    pub count: u64,
    /// The number of chunks of rows. A chunk without a distribution key goes to the next partition.
    turn: usize,
}

impl Done {
    /// Settles the statement's account once no partition has a reply for it: it holds `other` bytes
    /// and the RETURNING rows.
    fn settle(&self, other: usize, env: &Env) -> SqlResult<()> {
        if self.returned.is_empty() {
            return Ok(());
        }
        env.memory.settle((other + self.returned.memory()) as u64)
    }

    fn add(&mut self, replies: Vec<Reply>) {
        for reply in replies {
            self.returned.append(&reply.rows);
            self.count += reply.count;
        }
    }

    /// Adds the results for rows with these homes, one for each home in ascending order. If each
    /// row returns one, these are in the order of the source: programs rely on that.
    fn add_in_order(&mut self, replies: Vec<Reply>, homes: &[PartitionId]) {
        let returned: usize = replies.iter().map(|reply| reply.rows.len()).sum();
        if returned < homes.len() || replies.len() < 2 {
            return self.add(replies);
        }
        let mut partitions = homes.to_vec();
        partitions.sort_unstable();
        partitions.dedup();
        let mut next = vec![0; partitions.len()];
        for home in homes {
            let at = partitions.partition_point(|partition| partition < home);
            self.returned.push_encoded(replies[at].rows.get(next[at]).bytes());
            next[at] += 1;
        }
        self.count += replies.iter().map(|reply| reply.count).sum::<u64>();
    }
}

/// Returns an empty batch for each partition.
pub(crate) fn parts(core: &Core) -> Vec<RowBatch> {
    vec![RowBatch::new(); usize::from(core.engine().partitions())]
}

/// Runs the program at every partition that has rows for it.
pub(crate) async fn deal(
    core: &Core,
    program: &Arc<Program>,
    parts: Vec<RowBatch>,
    env: &Arc<Env>,
) -> Result<Vec<Reply>, Stop> {
    let parts = core.engine().all().zip(parts).filter(|(_, part)| !part.is_empty());
    send(core, program, parts, env).await
}

/// Runs the program at these partitions, with these rows.
async fn send(
    core: &Core,
    program: &Arc<Program>,
    parts: impl IntoIterator<Item = (PartitionId, RowBatch)>,
    env: &Arc<Env>,
) -> Result<Vec<Reply>, Stop> {
    let (fresh, sees, optimistic) = {
        let txn = core.txn();
        let sees = txn.sees(Needs::at_home(program));
        (is_fresh(&txn, program), sees, txn.protocol.is_optimistic())
    };
    let past = snapshot::program_at(core, program, sees.filter(|_| !fresh))?;
    let program = past.as_ref().unwrap_or(program);
    let message =
        |part| Work { rows: Some(part), fresh, optimistic, ..Work::plain(program, env) }.body(sees);
    Ok(round(core, parts.into_iter().map(|(partition, part)| (partition, message(part))).collect())
        .await?)
}

/// Tests NOT NULL and CHECK.
fn check(table: &TableDef, row: RowView<'_>, env: &Env) -> SqlResult<()> {
    for (i, (column, value)) in table.columns.iter().zip(row.iter()).enumerate() {
        if value.map_err(bad_row)?.is_null() && column.not_null {
            return Err(not_null_violation(table, i, row, env)?);
        }
    }
    satisfies_checks(table, 0..table.checks.len(), row, env)
}

pub(crate) fn bad_row(_: BadRow) -> SqlError {
    SqlError::new(SqlState::DATA_CORRUPTED, "a row's bytes are damaged")
}

/// Returns the partition for a row. A row without a distribution key goes where the transaction
/// already is, or to a partition chosen by session and turn.
fn destination(
    core: &Core,
    table: &TableDef,
    row: RowView<'_>,
    turn: usize,
) -> SqlResult<PartitionId> {
    let home = table.partition_of(row, core.engine().partitions())?;
    Ok(home.unwrap_or_else(|| anywhere(core, turn)))
}

/// Returns where the transaction already is, or a partition chosen by session and turn.
fn anywhere(core: &Core, turn: usize) -> PartitionId {
    let partitions = usize::from(core.engine().partitions());
    match core.txn().protocol.participants().last() {
        Some(here) if turn == 0 => *here,
        _ => PartitionId(((core.token as usize + turn) % partitions) as u16),
    }
}
