//! Suspended portals, and later statements of their transaction that change the same tables.
//!
//! A portal shows the rows as of its first Execute, but its scan also sees what its own transaction
//! changes later. So the rest of a portal is read before a statement changes the same table or
//! rolls back to a savepoint, within the memory limit of a statement (53200 beyond it). All other
//! statements run while portals stay suspended. If the rest cannot be read, the statement fails
//! with that error. Exception: a ROLLBACK TO succeeds, and the portal cannot be continued.
//!
//! Locking: none. A crash leaves nothing.

use super::prepared::{Portal, PortalState, Rest};
use super::run::{Run, Task};
use super::{Context, Session};
use clearway_coordinator::Step;
use clearway_ir::statement::{Copy, CopyDirection, Source};
use clearway_ir::{Charge, Env, Plan, Program, Statement};
use clearway_types::{RowBatch, SqlError, SqlState, TableId};
use std::sync::Arc;

/// Reads the rest of a portal.
pub(super) struct Drain {
    portal: Option<Box<str>>,
    env: Arc<Env>,
    rows: RowBatch,
    charge: Charge,
    /// The statement that runs afterwards.
    run: Run,
}

/// What a statement changes that other statements of its transaction may read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Nothing,
    Table(TableId),
    Anything,
}

fn change(statement: &Statement) -> Change {
    match statement {
        Statement::Insert(insert) => Change::Table(insert.table.id),
        Statement::Modify { program, .. } => {
            table_of(program).map_or(Change::Anything, Change::Table)
        }
        Statement::Copy(Copy { direction: CopyDirection::From { table, .. }, .. }) => {
            Change::Table(table.id)
        }
        Statement::RollbackTo(_)
        | Statement::CreateTable { .. }
        | Statement::DropTable { .. }
        | Statement::Truncate { .. }
        | Statement::AddPrimaryKey { .. }
        | Statement::AddCheck { .. }
        | Statement::CreateIndex { .. }
        | Statement::DropIndex { .. } => Change::Anything,
        _ => Change::Nothing,
    }
}

fn table_of(program: &Program) -> Option<TableId> {
    match program {
        Program::Scan { access, .. }
        | Program::Update { access, .. }
        | Program::Delete { access, .. } => Some(access.table.id),
        _ => None,
    }
}

/// Returns the table that a query reads.
fn source(plan: &Plan) -> Option<TableId> {
    match &plan.statement {
        Statement::Query(query) => match &query.source {
            Source::Table { program, .. } => table_of(program),
            _ => None,
        },
        _ => None,
    }
}

fn is_affected(portal: &Portal, change: Change) -> bool {
    let suspended = matches!(portal.state, PortalState::Rows { rest: Rest::Suspended(_), .. });
    suspended
        && match (change, source(&portal.plan)) {
            (Change::Nothing, _) | (_, None) => false,
            (Change::Anything, _) => true,
            (Change::Table(changed), Some(read)) => changed == read,
        }
}

impl Session {
    /// Reads the rest of a portal that the statement would invalidate, then runs the statement.
    /// Returns the statement if there is no such portal.
    pub(super) fn drain(&mut self, cx: &mut Context<'_>, run: Run) -> Option<Run> {
        if self.portals.named.is_empty() && self.portals.unnamed.is_none() {
            return Some(run);
        }
        let change = change(&run.plan.statement);
        let unnamed = self
            .portals
            .unnamed
            .as_ref()
            .filter(|portal| is_affected(portal, change))
            .map(|_| None);
        let mut named = self.portals.named.iter().filter(|(_, portal)| is_affected(portal, change));
        let Some(name) = unnamed.or_else(|| named.next().map(|(name, _)| Some(name.clone())))
        else {
            return Some(run);
        };
        let Some(portal) = self.portals.get_mut(name.as_deref()) else { return Some(run) };
        let env = portal.env.clone();
        let state = std::mem::replace(&mut portal.state, PortalState::Done { tag: None });
        let PortalState::Rows { rows, pos, rest: Rest::Suspended(suspended) } = state else {
            return Some(run);
        };
        let mut left = RowBatch::new();
        (pos..rows.len()).for_each(|i| left.push_encoded(rows.get(i).bytes()));
        let Some(client) = &mut self.client else { return Some(run) };
        let step = client.resume_suspended(suspended);
        self.drained(
            cx,
            Drain { portal: name, env, rows: left, charge: Charge::default(), run },
            step,
        );
        None
    }

    pub(super) fn drained(&mut self, cx: &mut Context<'_>, mut drain: Drain, mut step: Step) {
        loop {
            match step {
                Step::Pending => return self.wait(cx, Task::Drain(Box::new(drain))),
                Step::Rows(part) => {
                    self.hold(cx, part.wait);
                    drain.rows.append(&part.rows);
                    let charged = drain.charge.grow(&drain.env.memory, drain.rows.memory());
                    let Some(client) = &mut self.client else { return };
                    if let Err(e) = charged {
                        drop(client.suspend());
                        return self.not_drained(cx, drain.run, e);
                    }
                    step = client.resume();
                }
                Step::Done(result) => {
                    let Drain { portal, mut rows, run, .. } = drain;
                    return match self.answered(cx, result) {
                        Ok(outcome) => {
                            rows.append(&outcome.rows);
                            if let Some(portal) = self.portals.get_mut(portal.as_deref()) {
                                portal.state = PortalState::Rows {
                                    rows,
                                    pos: 0,
                                    rest: Rest::End(outcome.tag),
                                };
                            }
                            self.carry_out(cx, run)
                        }
                        Err(e) => self.not_drained(cx, run, e),
                    };
                }
                Step::Replan => {
                    let e = SqlError::new(
                        SqlState::SERIALIZATION_FAILURE,
                        "a table of a suspended portal was changed",
                    );
                    return self.not_drained(cx, drain.run, e);
                }
            }
        }
    }

    /// Continues after the rest of a portal could not be read.
    fn not_drained(&mut self, cx: &mut Context<'_>, run: Run, error: SqlError) {
        match run.plan.statement {
            Statement::RollbackTo(_) => self.carry_out(cx, run),
            _ => self.complete(cx, run, Err(error)),
        }
    }
}
