//! INSERT ... SELECT outside of a block. It is serializable at every level, so it reads the state
//! at its commit.

use super::{Script, kind_of, unique};
use crate::sql::{A, K, Kind, Pred, Stmt};
use clearway_ir::{Catalog, TableDef};
use std::sync::Arc;

impl Script {
    /// Replaces some INSERTs by one that reads what it inserts. Never into a table without keys:
    /// only keys bound the growth of the table.
    pub(super) fn copying(&mut self, stmt: Stmt, catalog: &Catalog) -> Stmt {
        let Stmt::Insert { table, .. } = &stmt else { return stmt };
        let kind = catalog.table(table).map_or(Kind::Heap, |table| kind_of(table));
        // Rows of other tables may violate the constraint, or be duplicates: either may be first.
        let fits = !kind.uniques().is_empty() && kind != Kind::Checked && !unique::is_unique(table);
        if self.mix.copies == 0 || !fits || !self.rng.percent(self.mix.copies) {
            return stmt;
        }
        let mut sources: Vec<&Arc<TableDef>> = catalog.tables.values().collect();
        sources.retain(|source| !unique::is_unique(&source.name));
        sources.sort_unstable_by_key(|source| &source.name);
        let others = sources[self.rng.below(sources.len() as u64) as usize].name.clone();
        let from = if self.rng.percent(50) { table.clone() } else { others };
        let first = self.key();
        let pred = match self.rng.below(3) {
            0 => self.point(&[K]),
            1 => Pred::Between(K, first, first + self.rng.within(0..=4)),
            _ => self.point(&[A]),
        };
        Stmt::InsertSelect { table: table.clone(), from, pred, up: self.rng.within(1..=4) }
    }
}
