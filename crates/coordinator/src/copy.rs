//! COPY FROM STDIN: batches of rows in one transaction.

use crate::characteristics::RunOptions;
use crate::client::Client;
use crate::core::Core;
use crate::insert::{Done, Inserter, Rounds};
use crate::outcome::{End, Outcome, Step, Stop, stopped};
use crate::statement::{failed_block, read_only};
use crate::tag::Tag;
use crate::txn::Effect;
use crate::{replay, txn};
use clearway_ir::program::Env;
use clearway_ir::statement::{Copy, CopyDirection};
use clearway_ir::{Program, TableDef};
use clearway_partition::Failure;
use clearway_types::{RowBatch, SqlError, SqlResult};
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
    pub(crate) fn new(core: &Core, copy: &Copy, env: &Arc<Env>) -> SqlResult<Self> {
        let CopyDirection::From { table, program, .. } = &copy.direction else {
            return Err(SqlError::internal("COPY TO has no input"));
        };
        // The plan may be stale: rows go to the table's current definition.
        if core.catalog().table(&table.name).is_none_or(|now| now.version != table.version) {
            return Err(stopped(Stop::Replan));
        }
        Ok(Self {
            table: table.clone(),
            program: program.clone(),
            env: env.clone(),
            done: Rc::default(),
        })
    }

    pub(crate) async fn insert(&self, core: &Core, rows: RowBatch) -> Result<(), Stop> {
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

/// Ends a COPY.
pub(crate) async fn finish(core: Rc<Core>, copy: CopyIn, abort: Option<SqlError>) -> End {
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
    /// Starts a COPY FROM STDIN.
    pub fn copy_in_start(
        &mut self,
        copy: &Copy,
        env: &Arc<Env>,
        options: RunOptions,
    ) -> SqlResult<()> {
        self.core.forget_cancel();
        self.core.set_retries(None);
        if self.core.txn().failed {
            return Err(failed_block());
        }
        if self.characteristics(options.characteristics).read_only {
            return Err(read_only("COPY FROM"));
        }
        self.core.enter(options);
        {
            let mut txn = self.core.txn();
            txn.queried = true;
            replay::close(&self.core, &mut txn);
        }
        self.copy = Some(CopyIn::new(&self.core, copy, env)?);
        // The number of columns, and an end without rows, reveal the catalog.
        self.core.show(self.core.engine().catalog_commit());
        Ok(())
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
