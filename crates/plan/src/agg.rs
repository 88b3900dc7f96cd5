//! Aggregates: accumulate rows, hand over partial states, merge them, finish.

use crate::program::{Aggregate, Env, Group};
use clearway_types::{Datum, RowBatch, RowBuilder, RowView, SqlError, SqlResult};

/// The running state of one aggregate of one group.
#[derive(Clone, Debug, Default)]
pub struct State {}

impl Aggregate {
    /// How many columns its partial state takes.
    pub fn state_columns(&self) -> usize {
        1
    }
    /// The state before any row.
    pub fn start(&self) -> State {
        State::default()
    }
}

impl State {
    /// Takes in one row; DISTINCT arguments count once.
    pub fn accumulate(&mut self, agg: &Aggregate, row: RowView<'_>, env: &Env) -> SqlResult<()> {
        let _ = (agg, row, env);
        Err(SqlError::internal("not built yet"))
    }
    /// Takes in a partial state that starts at column `at` of `row` (see [`Aggregate::state_columns`]).
    pub fn merge(&mut self, agg: &Aggregate, row: RowView<'_>, at: usize) -> SqlResult<()> {
        let _ = (agg, row, at);
        Err(SqlError::internal("not built yet"))
    }
    /// Appends the partial state's columns.
    pub fn push_partial(&self, agg: &Aggregate, out: &mut RowBuilder<'_>) {
        let _ = (agg, out);
    }
    /// The aggregate's result.
    pub fn finish(&self, agg: &Aggregate) -> SqlResult<Datum> {
        let _ = agg;
        Err(SqlError::internal("not built yet"))
    }
}

/// All groups of one grouping, in the order in which they were first seen. A partition and the coordinator use the same table.
pub struct Groups {}

impl Groups {
    /// No groups yet; with no keys the one group is there already.
    pub fn new(group: &Group) -> Self {
        let _ = group;
        Self {}
    }
    /// How many groups.
    pub fn len(&self) -> usize {
        0
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Takes in an ungrouped row. `group` is the one given to [`Groups::new`].
    pub fn accumulate(&mut self, group: &Group, row: RowView<'_>, env: &Env) -> SqlResult<()> {
        let _ = (group, row, env);
        Err(SqlError::internal("not built yet"))
    }
    /// Takes in a partial row: keys, then partial states.
    pub fn merge(&mut self, group: &Group, row: RowView<'_>) -> SqlResult<()> {
        let _ = (group, row);
        Err(SqlError::internal("not built yet"))
    }
    /// Appends a row a group: keys, then partial states.
    pub fn push_partial(&self, group: &Group, out: &mut RowBatch) {
        let _ = (group, out);
    }
    /// Appends a row a group: keys, then results.
    pub fn push_final(&self, group: &Group, out: &mut RowBatch) -> SqlResult<()> {
        let _ = (group, out);
        Err(SqlError::internal("not built yet"))
    }
}
