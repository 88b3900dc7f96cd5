//! COPY FROM STDIN: batches of rows into one transaction.

use crate::core::Core;
use crate::insert::Rounds;
use crate::outcome::{End, Outcome, Stop};
use crate::tag::Tag;
use crate::{insert, txn};
use clearway_plan::program::Env;
use clearway_plan::statement::{Copy, CopyDirection};
use clearway_plan::{Program, TableDef};
use clearway_types::{RowBatch, SqlError, SqlResult};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// A COPY that is running.
#[derive(Clone)]
pub(crate) struct CopyIn {
    table: Arc<TableDef>,
    program: Arc<Program>,
    env: Arc<Env>,
    rows: Rc<Cell<u64>>,
}

impl CopyIn {
    pub(crate) fn new(core: &Core, copy: &Copy, env: &Arc<Env>) -> SqlResult<Self> {
        let CopyDirection::From { table, program, .. } = &copy.direction else {
            return Err(SqlError::internal("COPY TO has no input"));
        };
        // The plan may be a moment old: rows go to the table as it is now.
        if core.catalog().table(&table.name).is_none_or(|now| now.version != table.version) {
            return Err(crate::outcome::stopped(Stop::Replan));
        }
        Ok(Self { table: table.clone(), program: program.clone(), env: env.clone(), rows: Rc::default() })
    }

    pub(crate) async fn insert(&self, core: &Core, rows: RowBatch) -> Result<(), Stop> {
        core.txn().wrote = true;
        let (_, n) = insert::rows(core, &self.table, &self.program, &rows, &self.env, Rounds::Several).await?;
        self.rows.set(self.rows.get() + n);
        core.check_cancelled()?;
        Ok(())
    }
}

/// Ends a COPY.
pub(crate) async fn finish(core: Rc<Core>, copy: CopyIn, abort: Option<SqlError>) -> End {
    if let Some(error) = abort {
        return txn::after_failure(&core, Stop::Error(error), false).await;
    }
    match txn::in_transaction(&core, true, async { Ok(()) }).await {
        Ok(((), wait)) => End::Outcome(Outcome { wait, tag: Tag::Copy(copy.rows.get()), ..Outcome::plain("") }),
        Err(stop) => txn::after_failure(&core, stop, false).await,
    }
}
