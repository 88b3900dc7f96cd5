//! `Program::BuildIndex`: fills a new index from this partition's rows of the table. The DDL
//! statement holds the table's lock.

use super::change::duplicated;
use super::{Cx, Stop};
use clearway_ir::program::Env;
use clearway_ir::{Program, TableDef};
use clearway_storage::{Inserted, Trees};
use clearway_types::{RowView, SqlError};
use std::ops::{Bound, ControlFlow};

#[derive(Default)]
pub(super) struct Build {
    /// The last row whose entry is in `entries` or in the index.
    last: Option<Vec<u8>>,
    /// Entries read but not yet inserted, in reverse order: entry key, row key.
    entries: Vec<(Vec<u8>, Vec<u8>)>,
    done: bool,
}

impl Build {
    pub(super) fn run<T: Trees>(
        &mut self,
        cx: &mut Cx<'_, T>,
        program: &Program,
        env: &Env,
    ) -> Result<bool, Stop> {
        let Program::BuildIndex { table, index } = program else {
            return Err(SqlError::internal("not an index to build").into());
        };
        loop {
            while let Some((entry, row_key)) = self.entries.last() {
                cx.spend()?;
                if cx.trees.insert(cx.log, cx.mode, table.indexes[*index].tree, entry, row_key)?
                    == Inserted::Exists
                {
                    return Err(duplicate_of(cx, table, *index, row_key, env)?.into());
                }
                self.entries.pop();
            }
            if self.done {
                return Ok(false);
            }
            self.read(cx, table, *index)?;
        }
    }

    fn read<T: Trees>(
        &mut self,
        cx: &mut Cx<'_, T>,
        table: &TableDef,
        index: usize,
    ) -> Result<(), Stop> {
        let Self { last, entries, .. } = self;
        let from = last.clone();
        let from = from.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut error = Ok(());
        let (mut full, most) = (false, cx.limits.collect);
        let result = cx.trees.scan(table.tree, from, Bound::Unbounded, false, &mut |key, value| {
            let mut entry = Vec::with_capacity(32);
            match table.indexes[index].push_entry(RowView::new(value), key, &mut entry) {
                Ok(_) => entries.push((entry, key.to_vec())),
                Err(e) => error = Err(e),
            }
            full = error.is_err() || entries.len() >= most;
            if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if let Some((_, key)) = entries.last() {
            *last = Some(key.clone());
        }
        entries.reverse();
        error?;
        result?;
        self.done = !full;
        Ok(())
    }
}

fn duplicate_of<T: Trees>(
    cx: &Cx<'_, T>,
    table: &TableDef,
    index: usize,
    row_key: &[u8],
    env: &Env,
) -> Result<SqlError, Stop> {
    let mut error = None;
    cx.trees.get(table.tree, row_key, &mut |row| {
        error = Some(duplicated(table, index, RowView::new(row), env))
    })?;
    match error {
        Some(e) => Ok(e?),
        None => Ok(super::scan::missing_row(&table.name)),
    }
}
