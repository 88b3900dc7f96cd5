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

/// Reads the rest of portals, one after the other.
pub(super) struct Drain {
    /// The portal whose rest is being read; `None` is the unnamed one.
    portal: Option<Box<str>>,
    env: Arc<Env>,
    rows: RowBatch,
    charge: Charge,
    /// The portals to read after it.
    others: Vec<Option<Box<str>>>,
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
    /// Reads the rest of all portals that the statement would invalidate, and returns the statement
    /// when it may run. `None` if it has failed or waits for the engine, and runs afterwards.
    pub(super) fn drain(&mut self, cx: &mut Context<'_>, run: Run) -> Option<Run> {
        let portals = self.affected_portals(change(&run.plan.statement));
        self.drain_portals(cx, portals, run)
    }

    fn affected_portals(&self, change: Change) -> Vec<Option<Box<str>>> {
        // There may be very many portals, and most statements change nothing.
        if change == Change::Nothing {
            return Vec::new();
        }
        let affected = |portal: &&Portal| is_affected(portal, change);
        let unnamed = self.portals.unnamed.as_ref().filter(affected).map(|_| None);
        let named = self.portals.named.iter().filter(|(_, portal)| affected(portal));
        unnamed.into_iter().chain(named.map(|(name, _)| Some(name.clone()))).collect()
    }

    /// Reads the rest of these portals. A loop: recursion would need a stack that grows with their
    /// number.
    fn drain_portals(
        &mut self,
        cx: &mut Context<'_>,
        mut others: Vec<Option<Box<str>>>,
        mut run: Run,
    ) -> Option<Run> {
        while let Some(name) = others.pop() {
            let Some(portal) = self.portals.get_mut(name.as_deref()) else { continue };
            let env = portal.env.clone();
            let state = std::mem::replace(&mut portal.state, PortalState::Done { tag: None });
            let PortalState::Rows { rows, pos, rest: Rest::Suspended(suspended) } = state else {
                portal.state = state;
                continue;
            };
            let mut left = RowBatch::new();
            (pos..rows.len()).for_each(|i| left.push_encoded(rows.get(i).bytes()));
            let step = self.client.as_mut()?.resume_suspended(suspended);
            let charge = Charge::default();
            let drain = Drain { portal: name, env, rows: left, charge, others, run };
            (others, run) = self.read_rest(cx, drain, step)?;
        }
        Some(run)
    }

    /// Continues to read the rest of portals when the engine has answered.
    pub(super) fn drained(&mut self, cx: &mut Context<'_>, drain: Drain, step: Step) {
        if let Some((others, run)) = self.read_rest(cx, drain, step)
            && let Some(run) = self.drain_portals(cx, others, run)
        {
            self.carry_out(cx, run);
        }
    }

    /// Reads the rest of one portal. Returns the portals to read after it, and the statement.
    /// `None` if the statement has failed or waits for the engine.
    fn read_rest(
        &mut self,
        cx: &mut Context<'_>,
        mut drain: Drain,
        mut step: Step,
    ) -> Option<(Vec<Option<Box<str>>>, Run)> {
        let error = loop {
            match step {
                Step::Pending => {
                    self.wait(cx, Task::Drain(Box::new(drain)));
                    return None;
                }
                Step::Rows(part) => {
                    self.hold(cx, part.wait);
                    drain.rows.append(&part.rows);
                    let charged = drain.charge.grow(&drain.env.memory, drain.rows.memory());
                    let client = self.client.as_mut()?;
                    if let Err(e) = charged {
                        drop(client.suspend());
                        break e;
                    }
                    step = client.resume();
                }
                Step::Done(result) => match self.answered(cx, result) {
                    Ok(outcome) => {
                        drain.rows.append(&outcome.rows);
                        if let Some(portal) = self.portals.get_mut(drain.portal.as_deref()) {
                            let (rows, rest) = (drain.rows, Rest::End(outcome.tag));
                            portal.state = PortalState::Rows { rows, pos: 0, rest };
                        }
                        return Some((drain.others, drain.run));
                    }
                    Err(e) => break e,
                },
                Step::Replan => {
                    break SqlError::new(
                        SqlState::SERIALIZATION_FAILURE,
                        "a table of a suspended portal was changed",
                    );
                }
            }
        };
        if matches!(drain.run.plan.statement, Statement::RollbackTo(_)) {
            return Some((drain.others, drain.run));
        }
        self.complete(cx, drain.run, Err(error));
        None
    }
}
