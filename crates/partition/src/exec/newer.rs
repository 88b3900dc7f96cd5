//! An index that is newer than the snapshot that would use it: the rows are found in the table
//! instead.
//!
//! Such an index has no entries for rows that were deleted before it was built. So the whole table
//! is read as of the snapshot. Rows whose entries are in the range are returned in the order of
//! these entries, as if from the index.
//!
//! Invariant: all rows are found before the first of them is processed, because a statement must
//! not see its own changes.

use super::path::Range;
use super::scan::scan_in_turn;
use super::{Cx, Output, Stop};
use clearway_ir::TableDef;
use clearway_ir::program::Env;
use clearway_storage::Trees;
use clearway_types::{RowView, SqlError, TreeId};
use std::ops::ControlFlow;

/// A search in progress.
pub(super) struct Search {
    /// The rest of the table.
    rows: Range,
    /// The entries that the index would have, and the keys of the rows.
    found: Vec<(Vec<u8>, Vec<u8>)>,
    /// The approximate size of `found` in bytes.
    memory: usize,
}

impl Search {
    pub(super) fn new(table: TreeId) -> Self {
        Self { rows: Range::all(table), found: Vec::new(), memory: 0 }
    }

    fn run<T: Trees>(
        &mut self,
        cx: &mut Cx<'_, T>,
        range: &Range,
        table: &TableDef,
        env: &Env,
        out: &mut Output,
    ) -> Result<(), Stop> {
        let index = table.indexes.iter().find(|index| index.tree == range.tree);
        let index = index.ok_or_else(|| SqlError::internal("no such index"))?;
        let Self { rows, found, memory } = self;
        while !rows.done {
            scan_in_turn(cx, rows, |key, value| {
                let mut entry = Vec::with_capacity(32);
                index.push_entry(RowView::new(value), key, &mut entry)?;
                if range.originally_contains(&entry) {
                    *memory += size_of::<(Vec<u8>, Vec<u8>)>() + entry.len() + key.len();
                    found.push((entry, key.to_vec()));
                }
                Ok(ControlFlow::Continue(()))
            })?;
            out.account(*memory, env)?;
        }
        Ok(())
    }
}

/// Finds the keys of all rows in the range, and completes the range.
pub(super) fn find<T: Trees>(
    cx: &mut Cx<'_, T>,
    range: &mut Range,
    table: &TableDef,
    env: &Env,
    out: &mut Output,
    into: &mut Vec<Vec<u8>>,
) -> Result<(), Stop> {
    let Some(mut search) = range.search.take() else { return Ok(()) };
    if let Err(stop) = search.run(cx, range, table, env, out) {
        range.search = Some(search);
        return Err(stop);
    }
    search.found.sort_unstable();
    if range.reverse {
        search.found.reverse();
    }
    into.extend(search.found.into_iter().map(|(_, key)| key));
    range.done = true;
    Ok(())
}
