//! COPY FROM STDIN: batches of rows in one transaction. It locks its table before the client sends
//! the first of them.

use crate::client::Client;
use crate::core::Core;
use crate::insert::{Done, Inserter, Rounds};
use crate::outcome::{End, Outcome, Step, Stop, stopped};
use crate::tag::Tag;
use crate::txn::{self, Effect};
use clearway_ir::program::Env;
use clearway_ir::{Program, TableDef};
use clearway_partition::Failure;
use clearway_types::{RowBatch, SqlError};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// A running COPY.
#[derive(Clone)]
pub(crate) struct CopyIn {
    table: Arc<TableDef>,
    program: Arc<Program>,
    env: Arc<Env>,
    /// What it has inserted so far.
    done: Rc<Cell<Done>>,
}

impl CopyIn {
    async fn insert(&self, core: &Core, rows: RowBatch) -> Result<(), Stop> {
        if core.txn().protocol.is_undone() {
            return Err(Failure::Undone.into());
        }
        core.txn().protocol.write(true);
        let Self { table, program, env, .. } = self;
        let inserter = Inserter { core, table, program, env, new: true };
        let mut done = self.done.take();
        inserter.rows(&rows, Rounds::Several, &mut done).await?;
        self.done.set(done);
        core.check_cancelled()?;
        Ok(())
    }
}

/// Starts a COPY FROM: locks its table until the transaction's end.
pub(crate) async fn start(
    core: &Core,
    table: &Arc<TableDef>,
    program: &Arc<Program>,
    env: &Arc<Env>,
) -> Result<Outcome, Stop> {
    core.txn().protocol.write(true);
    Inserter { core, table, program, env, new: true }.hold().await?;
    Ok(Outcome::plain(""))
}

/// Ends a COPY.
async fn finish(core: Rc<Core>, copy: CopyIn, abort: Option<SqlError>) -> End {
    if let Some(error) = abort {
        return txn::after_failure(&core, Stop::Error(error)).await;
    }
    match txn::in_transaction(&core, Effect::Changes, async { Ok(()) }).await {
        Ok(((), wait)) => {
            let tag = Tag::Copy(copy.done.take().count);
            End::Outcome(Outcome { wait, tag, ..Outcome::plain("") })
        }
        Err(stop) => txn::after_failure(&core, stop).await,
    }
}

impl Client {
    /// Prepares for the rows of a COPY FROM STDIN that [`Client::start`] has started. `program` is
    /// the table's `Program::Insert`.
    pub fn copy_in_start(&mut self, table: &Arc<TableDef>, program: &Arc<Program>, env: &Arc<Env>) {
        // The client sends its rows once.
        self.core.set_retries(None);
        let (table, program, env) = (table.clone(), program.clone(), env.clone());
        self.copy = Some(CopyIn { table, program, env, done: Rc::default() });
    }

    /// Inserts encoded rows of the table that the COPY received. Await the outcome before the next
    /// call.
    pub fn copy_in_rows(&mut self, rows: RowBatch) -> Step {
        let Some(copy) = self.copy.clone() else {
            return Step::Done(Err(SqlError::internal("rows without a COPY").into()));
        };
        let core = self.core.clone();
        self.poll_task(Box::pin(async move {
            match copy.insert(&core, rows).await {
                Ok(()) => End::Outcome(Outcome::plain("")),
                Err(stop) => End::Error(stopped(stop)),
            }
        }))
    }

    /// Ends the COPY: commits it if it is a transaction of its own, or aborts it with the given
    /// error.
    pub fn copy_in_end(&mut self, abort: Option<SqlError>) -> Step {
        let Some(copy) = self.copy.take() else {
            return Step::Done(Err(
                SqlError::internal("the end of a COPY that has not begun").into()
            ));
        };
        let core = self.core.clone();
        self.poll_task(Box::pin(finish(core, copy, abort)))
    }
}
