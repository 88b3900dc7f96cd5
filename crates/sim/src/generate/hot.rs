//! Reads and changes of a few rows by their keys, in blocks that are undone together and run again.

use super::{Script, kind_of};
use crate::sql::{A, K, Kind, Pred, Set, Stmt};
use clearway_ir::TableDef;
use std::sync::Arc;

/// Rows.
const HOT: u64 = 3;

impl Script {
    /// Usually generates such a statement. `None`: the caller generates any other one.
    pub(super) fn of_hot_row(&mut self, tables: &[&Arc<TableDef>]) -> Option<Stmt> {
        if !self.mix.plain || !self.rng.percent(90) {
            return None;
        }
        let Some(table) = tables.iter().find(|table| kind_of(table) == Kind::Keyed) else {
            return Some(Stmt::CreateTable { table: self.fresh_name("t"), kind: Kind::Keyed });
        };
        let (table, key) = (table.name.clone(), self.rng.below(HOT) as i32);
        let pred = Pred::Equal(vec![(K, key)]);
        Some(match self.rng.below(20) {
            0 | 1 => {
                let mut row = self.row();
                row.n[K] = Some(key);
                Stmt::Insert { table, rows: vec![row] }
            }
            2..=7 => Stmt::Select { table, pred, lock: None },
            8 => Stmt::Sum { table, pred: Pred::All },
            9..=16 => Stmt::Update { table, set: Set::Add(A, self.rng.within(1..=9)), pred },
            _ => Stmt::Update { table, set: Set::Text(self.text()), pred },
        })
    }
}
