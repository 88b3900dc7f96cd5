//! Statement kinds: how each is executed as a task, which ones write, and the errors for refused
//! ones.

use crate::core::Core;
use crate::outcome::{Outcome, Stop};
use crate::tag::Tag;
use crate::txn::Effect;
use crate::{backup, copy, ddl, insert, query, snapshot, txn};
use clearway_ir::program::Env;
use clearway_ir::statement::{Copy, CopyDirection, Maintain, Query, Source};
use clearway_ir::{Plan, Program, RowLock, Statement};
use clearway_types::{DatumRef, RowBatch, SqlError, SqlState};
use std::rc::Rc;
use std::sync::Arc;

/// Executes a statement that is not one message to one partition.
///
/// Large futures are boxed: COMMIT is a task of every block, and would otherwise reserve space for
/// the largest of them.
pub(crate) async fn run(
    core: &Rc<Core>,
    plan: &Arc<Plan>,
    env: &Arc<Env>,
) -> Result<Outcome, Stop> {
    match &plan.statement {
        Statement::Commit => txn::commit_block(core).await,
        Statement::Rollback => Box::pin(txn::rollback_block(core)).await,
        Statement::Savepoint(name) => Box::pin(txn::savepoint(core, name)).await,
        Statement::RollbackTo(name) => Box::pin(txn::rollback_to(core, name)).await,
        Statement::Release(name) => txn::release(core, name),
        Statement::SetTransaction { options, session: false } => txn::set_options(core, *options),
        Statement::SetSnapshot(id) => txn::set_snapshot(core, id),
        Statement::Explain(lines) => Ok(explain(lines)),
        Statement::Maintain { kind, skipped } => Box::pin(maintain(core, *kind, skipped)).await,
        Statement::Skip { tag, notice } => Ok(skipping(tag, std::slice::from_ref(notice))),
        Statement::Backup(b) => Box::pin(backup::run(core, b)).await,
        Statement::Noop(tag) => Ok(Outcome::plain(tag)),
        Statement::Query(q) | Statement::Copy(Copy { direction: CopyDirection::To(q), .. }) => {
            let rows = snapshot::read(core, q, env);
            Box::pin(txn::in_transaction(core, Effect::Reads, rows)).await.map(|(rows, wait)| {
                let n = rows.count();
                let tag = if matches!(plan.statement, Statement::Copy(_)) {
                    Tag::Copy(n)
                } else {
                    Tag::Select(n)
                };
                Outcome { rows: rows.rows, tag, wait, notices: Vec::new() }
            })
        }
        Statement::Copy(Copy { direction: CopyDirection::From { table, program, .. }, .. }) => {
            Box::pin(copy::start(core, table, program, env)).await
        }
        Statement::Insert(i) => {
            Box::pin(txn::in_transaction(core, Effect::Changes, insert::run(core, i, env)))
                .await
                .map(|((rows, n), wait)| Outcome {
                    rows,
                    tag: Tag::Insert(n),
                    wait,
                    notices: Vec::new(),
                })
        }
        Statement::Modify { program, route } => {
            let changes = snapshot::seeing_rows(
                core,
                program,
                route,
                query::modify(core, program, route, env),
            );
            Box::pin(txn::in_transaction(core, Effect::Changes, changes)).await.map(
                |((rows, n), wait)| Outcome {
                    rows,
                    tag: modify_tag(program, n),
                    wait,
                    notices: Vec::new(),
                },
            )
        }
        Statement::CreateTable { .. }
        | Statement::DropTable { .. }
        | Statement::Truncate { .. }
        | Statement::AddPrimaryKey { .. }
        | Statement::AddCheck { .. }
        | Statement::CreateIndex { .. }
        | Statement::DropIndex { .. } => {
            Box::pin(txn::in_transaction(core, Effect::Changes, ddl::run(core, plan, env)))
                .await
                .map(|(outcome, wait)| Outcome { wait, ..outcome })
        }
        other => {
            Err(SqlError::internal(format!("{} reached the coordinator", command(other))).into())
        }
    }
}

/// Returns the outcome with a notice for each name that IF EXISTS skips.
pub(crate) fn skipping(tag: &'static str, notices: &[String]) -> Outcome {
    notices.iter().fold(Outcome::plain(tag), |outcome, text| {
        outcome.warn(SqlState::SUCCESSFUL_COMPLETION, text)
    })
}

fn explain(lines: &[String]) -> Outcome {
    let mut rows = RowBatch::new();
    for line in lines {
        rows.push_with(|r| r.push(DatumRef::Text(line)));
    }
    Outcome { rows, ..Outcome::plain("EXPLAIN") }
}

async fn maintain(core: &Rc<Core>, kind: Maintain, skipped: &[String]) -> Result<Outcome, Stop> {
    let outcome = Outcome::plain(match kind {
        // There are no dead row versions to collect and no statistics yet: the delete that empties
        // a page frees it.
        Maintain::Vacuum => "VACUUM",
        Maintain::Analyze => "ANALYZE",
        Maintain::Checkpoint => {
            txn::checkpoint(core).await?;
            "CHECKPOINT"
        }
    });
    Ok(skipped.iter().fold(outcome, |outcome, text| outcome.warn(SqlState::WARNING, text.clone())))
}

pub(crate) fn modify_tag(program: &Program, n: u64) -> Tag {
    if matches!(program, Program::Delete { .. }) { Tag::Delete(n) } else { Tag::Update(n) }
}

/// Returns true if work remains after the program has run: rows to insert elsewhere, entries to
/// delete from global indexes.
pub(crate) fn has_more_work(program: &Program) -> bool {
    match program {
        Program::Update { moves, .. } => *moves,
        Program::Delete { access, .. } => access.table.has_global_index(),
        _ => false,
    }
}

/// Returns true if the statement only controls transactions; in PostgreSQL's terms, if it takes no
/// snapshot.
pub(crate) fn controls(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::Begin(_)
            | Statement::Commit
            | Statement::Rollback
            | Statement::Savepoint(_)
            | Statement::RollbackTo(_)
            | Statement::Release(_)
            | Statement::SetTransaction { .. }
            | Statement::SetSnapshot(_)
    )
}

/// Returns the row lock that the query requests, if it has a locking clause.
fn lock(query: &Query) -> Option<RowLock> {
    match &query.source {
        Source::Table { program, .. } => match &**program {
            Program::Scan { access, .. } => access.lock.map(|lock| lock.asked),
            _ => None,
        },
        _ => None,
    }
}

pub(crate) fn writes(statement: &Statement) -> bool {
    if let Statement::Query(query) = statement {
        return lock(query).is_some();
    }
    let only_reads = matches!(
        statement,
        Statement::Explain(_)
            | Statement::Copy(Copy { direction: CopyDirection::To(_), .. })
            | Statement::Noop(_)
            | Statement::Skip { .. }
            | Statement::Maintain { .. }
            | Statement::Backup(_)
    );
    !controls(statement) && !only_reads
}

pub(crate) fn command(statement: &Statement) -> &'static str {
    match statement {
        Statement::Query(query) => match lock(query) {
            Some(RowLock::KeyShare) => "SELECT FOR KEY SHARE",
            Some(RowLock::Share) => "SELECT FOR SHARE",
            Some(RowLock::NoKeyUpdate) => "SELECT FOR NO KEY UPDATE",
            Some(RowLock::Update) | None => "SELECT FOR UPDATE",
        },
        Statement::Insert(_) => "INSERT",
        Statement::Modify { program, .. } if matches!(**program, Program::Delete { .. }) => {
            "DELETE"
        }
        Statement::Modify { .. } => "UPDATE",
        Statement::CreateTable { .. } => "CREATE TABLE",
        Statement::DropTable { .. } => "DROP TABLE",
        Statement::Truncate { .. } => "TRUNCATE TABLE",
        Statement::AddPrimaryKey { .. } | Statement::AddCheck { .. } => "ALTER TABLE",
        Statement::CreateIndex { .. } => "CREATE INDEX",
        Statement::DropIndex { .. } => "DROP INDEX",
        Statement::Copy(_) => "COPY FROM",
        _ => "this statement",
    }
}

pub(crate) fn failed_block() -> SqlError {
    SqlError::new(
        SqlState::IN_FAILED_TRANSACTION,
        "current transaction is aborted, commands ignored until end of transaction block",
    )
    .hint("End it with ROLLBACK, or go back with ROLLBACK TO SAVEPOINT.")
}

pub(crate) fn read_only(command: &str) -> SqlError {
    SqlError::new(
        SqlState::READ_ONLY_TRANSACTION,
        format!("cannot execute {command} in a read-only transaction"),
    )
}
