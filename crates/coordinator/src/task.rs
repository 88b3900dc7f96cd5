//! Statements as tasks: whole statements, and the rest of those that began as a single message.

use crate::core::{Block, Core};
use crate::outcome::{End, Outcome, Stop, Task, stopped};
use crate::tag::Tag;
use crate::{finish, multi, replay, statement, stream, txn};
use clearway_ir::program::Env;
use clearway_ir::{Plan, Statement};
use clearway_partition::Reply;
use clearway_types::{PartitionId, RowBatch, SqlResult};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

/// A statement whose client has some rows and may ask for the rest later:
/// [`crate::Client::resume_suspended`]. Dropping it ends the statement; its transaction continues.
pub struct Suspended(pub(crate) Task);

impl fmt::Debug for Suspended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Suspended")
    }
}

/// Runs a statement, and retries it while it is the victim of deadlocks that can be hidden from the
/// client, or is undone because it has run behind a transaction that was, or optimistically.
pub(crate) async fn run(core: Rc<Core>, plan: Arc<Plan>, env: Arc<Env>) -> End {
    let mut retries = 0;
    // A COMMIT aborted by a deadlock has ended its block, so it would be a different statement now.
    let alone = core.txn().block == Block::None;
    core.allow_speculation(true);
    loop {
        if core.txn().protocol.is_undone()
            && !matches!(plan.statement, Statement::Commit | Statement::Rollback)
            && let Err(e) = Box::pin(replay::again(&core)).await
        {
            return End::Error(e);
        }
        core.streams(false);
        core.set_retries(Some(retries));
        env.memory.reset();
        let rows = core.txn().rows;
        match statement::run(&core, &plan, &env).await {
            Ok(outcome) => {
                replay::note(&core, &plan, &env, &outcome.rows, outcome.tag);
                return End::Outcome(outcome);
            }
            Err(stop) if core.has_handed_out() => {
                return failed(&core, Stop::Error(stopped(stop))).await;
            }
            Err(Stop::Error(e)) if alone && replay::is_undone(&core, &e) => {
                // Once is enough: it could be undone again and again.
                core.allow_speculation(false);
                if let Err(e) = undo(&core).await {
                    return End::Error(e);
                }
            }
            Err(Stop::Error(e)) if replay::is_undone(&core, &e) => {}
            Err(Stop::Error(e)) if alone && multi::may_start_over(&core, &e, retries) => {
                retries += 1;
                if let Err(e) = undo(&core).await {
                    return End::Error(e);
                }
            }
            // In a block, a statement can be repeated if it has changed no row.
            Err(Stop::Replan)
                if core.txn().block != Block::None
                    && (core.txn().rows == rows || !statement::writes(&plan.statement)) =>
            {
                return End::Replan;
            }
            Err(stop) => return failed(&core, stop).await,
        }
    }
}

/// Decides what happens to the transaction after a statement has failed. Boxed, like [`undo`]: it
/// is rare, and would enlarge every task.
async fn failed(core: &Core, stop: Stop) -> End {
    Box::pin(txn::after_failure(core, stop)).await
}

/// Undoes a transaction that is about to start over.
async fn undo(core: &Core) -> SqlResult<()> {
    Box::pin(txn::undo(core)).await?;
    core.check_cancelled()
}

/// Runs the finishing steps of many rows.
pub(crate) async fn finish(
    core: Rc<Core>,
    plan: Arc<Plan>,
    env: Arc<Env>,
    one_shot: bool,
    rows: RowBatch,
) -> End {
    let Statement::Query(query) = &plan.statement else { return End::Replan };
    let rows = finish::apply(&core, &query.finish, rows, &env).await;
    if one_shot {
        core.port.count_end(rows.is_ok());
    }
    match rows {
        Ok(rows) => {
            let tag = Tag::Select(rows.len() as u64);
            replay::note(&core, &plan, &env, &rows, tag);
            End::Outcome(Outcome { rows, tag, ..Outcome::plain("") })
        }
        Err(e) => End::Error(e),
    }
}

/// Runs the rest of a query in a block whose partition has answered with the first of several
/// batches.
pub(crate) async fn stream(
    core: Rc<Core>,
    plan: Arc<Plan>,
    env: Arc<Env>,
    batch: u32,
    first: (PartitionId, Reply),
) -> End {
    let Statement::Query(query) = &plan.statement else { return End::Replan };
    replay::close(&core, &mut core.txn());
    match stream::rest(&core, query, &env, batch, vec![first]).await {
        Ok(rows) => {
            let tag = Tag::Select(rows.count());
            End::Outcome(Outcome { rows: rows.rows, tag, ..Outcome::plain("") })
        }
        Err(stop) => End::Error(stopped(stop)),
    }
}
