//! Cursors in blocks. Commits of other sessions between two FETCHes must not be visible.

use super::{Script, kind_of};
use crate::sql::{A, CursorStmt, K, Pred, Stmt};
use clearway_ir::{Catalog, TableDef};
use std::sync::Arc;

/// Maximum number of cursors of a session.
const CURSORS: u8 = 3;

impl Script {
    /// Sets the numbers of the session's cursors.
    pub fn set_cursors(&mut self, cursors: Vec<u8>) {
        self.cursors = cursors;
    }

    /// Sometimes generates a statement on a cursor.
    pub(super) fn with_cursor(&mut self, catalog: &Catalog) -> Option<Stmt> {
        if self.mix.cursors == 0 || self.mix.plain || !self.rng.percent(self.mix.cursors) {
            return None;
        }
        let free = (0..CURSORS).find(|cursor| !self.cursors.contains(cursor));
        if let Some(cursor) = free
            && (self.cursors.is_empty() || self.rng.percent(30))
        {
            return self.declare(cursor, catalog);
        }
        let cursor = self.cursors[self.rng.below(self.cursors.len() as u64) as usize];
        Some(Stmt::Cursor(match self.rng.below(10) {
            0 => CursorStmt::Close(cursor),
            1 | 2 => CursorStmt::Fetch { cursor, rows: None },
            _ => CursorStmt::Fetch { cursor, rows: Some(1 + self.rng.below(4) as usize) },
        }))
    }

    fn declare(&mut self, cursor: u8, catalog: &Catalog) -> Option<Stmt> {
        let mut tables: Vec<&Arc<TableDef>> = catalog.tables.values().collect();
        tables.sort_unstable_by_key(|t| &t.name);
        if tables.is_empty() {
            return None;
        }
        let table = tables[self.rng.below(tables.len() as u64) as usize];
        let from = self.key();
        let pred = match self.rng.below(10) {
            0..=4 => Pred::All,
            5 | 6 => Pred::Between(K, from, from + self.rng.within(2..=20)),
            7 => Pred::Between(A, 0, self.rng.within(3..=9)),
            _ => self.pred(kind_of(table)),
        };
        Some(Stmt::Cursor(CursorStmt::Declare { cursor, table: table.name.clone(), pred }))
    }
}
