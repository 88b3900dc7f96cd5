//! Sets up the context of a run and checks its plan.

use super::Partition;
use crate::exec::{Cx, Learning, Locking, Scratch, Stop};
use crate::message::Failure;
use crate::reads::Reads;
use clearway_ir::{Program, TableDef};
use clearway_storage::{Trees, TxnMode};
use clearway_sync::canary::{self, Bug};
use clearway_types::{Lsn, TxnId};

impl<T: Trees> Partition<T> {
    /// Checks that a program's trees exist here and that its table has not changed since planning,
    /// or had not as of the snapshot.
    pub(super) fn check_plan(&self, program: &Program, at: Option<Lsn>) -> Result<(), Stop> {
        let table: &TableDef = crate::exec::table_of(program);
        let all = !matches!(program, Program::Scan { .. });
        let here = self.trees.has_tree(table.tree)
            && match program {
                Program::Scan { access, .. } => match &access.path {
                    clearway_ir::Path::Range { index: Some(i), .. } => {
                        table.indexes.get(*i).is_some_and(|i| self.trees.has_tree(i.tree))
                    }
                    _ => true,
                },
                Program::GlobalIndex { key, .. } => {
                    table.global_index(*key).is_some_and(|g| self.trees.has_tree(g.tree))
                }
                _ => !all || table.indexes.iter().all(|i| self.trees.has_tree(i.tree)),
            };
        let current = match at {
            None => self.tables.is_current(table) || canary::on(Bug::StalePlan),
            Some(at) => self.tables.was_current(table, at),
        };
        if here && current { Ok(()) } else { Err(Stop::Fail(Failure::StalePlan)) }
    }

    pub(super) fn cx<'a>(
        &'a mut self,
        id: TxnId,
        log: &'a mut T::Log,
        locking: Locking,
        mode: TxnMode,
        reads: Option<(&'a mut Reads, bool)>,
    ) -> (Cx<'a, T>, &'a mut Scratch) {
        let limits = &self.limits;
        let budget = limits.slice_rows;
        let gathering = &mut self.gathering;
        let reads = reads.filter(|_| !gathering.is_off());
        let learning = reads.map(|(reads, learns)| Learning { reads, gathering, learns });
        let (trees, locks, sets) = (&mut self.trees, &mut self.locks, &mut self.sets);
        let (moved, as_of, replaced, by_table) = (None, None, None, false);
        let cx = Cx {
            trees,
            locks,
            sets,
            txn: id,
            log,
            mode,
            locking,
            limits,
            learning,
            moved,
            budget,
            as_of,
            by_table,
            replaced,
            may_use_retired: false,
            may_add: false,
        };
        (cx, &mut self.scratch)
    }
}
