//! Statements that change the catalog.

use super::{Script, kind_of};
use crate::sql::{A, D, K, Stmt, U};
use clearway_ir::TableDef;

impl Script {
    pub(super) fn ddl(&mut self, table: &TableDef) -> Stmt {
        let kind = kind_of(table);
        let adds = self.mix.keys_added > 0 && kind.with_key().is_some();
        if adds && self.rng.percent(self.mix.keys_added) {
            return Stmt::AddKey(table.name.clone());
        }
        match self.rng.below(10) {
            0 => Stmt::DropTable(table.name.clone()),
            1 | 2 => {
                self.empty = Some((table.name.clone(), kind));
                Stmt::Truncate(table.name.clone())
            }
            what => self.index(table, what <= 5),
        }
    }

    /// Creates an index, or drops one if `drops` is set and there is one.
    pub(super) fn index(&mut self, table: &TableDef, drops: bool) -> Stmt {
        let names = table.indexes.iter().map(|index| &index.name);
        let made: Vec<&String> = names.filter(|name| name.starts_with("i_")).collect();
        if drops && !made.is_empty() {
            return Stmt::DropIndex(made[self.rng.below(made.len() as u64) as usize].clone());
        }
        let columns: &[&[usize]] = &[&[A], &[A, K], &[U, A], &[D]];
        let columns = self.rng.pick(columns).to_vec();
        Stmt::CreateIndex { name: self.fresh_name("i"), table: table.name.clone(), columns }
    }
}
