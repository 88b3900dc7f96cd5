//! Work whose history shows who saw what: no value is written twice, as in the paper on Elle.
//!
//! In a table whose name begins with [`LISTS`] the text of a row is a list, to which statements
//! append elements. With [`REGISTERS`] it is a register, which statements overwrite. A row that
//! does not exist is an empty list or an unwritten register. Rows are never deleted, their keys
//! never change, and the other columns are functions of the key. Exception: rows of [`Kind::Apart`]
//! change `d`, and move.
//!
//! Source: Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from Experimental
//! Observations", VLDB 2020.

use super::counters::is_counters;
use super::{Script, kind_of};
use crate::sql::{A, D, K, Kind, Pred, Row, Set, Stmt, U};
use clearway_ir::{LockWait, TableDef};
use std::sync::Arc;

/// Prefix of the names of tables of lists.
pub const LISTS: &str = "l_";
/// Prefix of the names of tables of registers.
pub const REGISTERS: &str = "r_";
/// The keys: few, so that transactions meet.
pub const KEYS: i32 = 12;

/// The kinds in which a key identifies one row.
const KINDS: [Kind; 5] = [Kind::Keyed, Kind::Guarded, Kind::Apart, Kind::Spread, Kind::Unique];
/// Maximum number of tables.
const TABLES: usize = 3;

/// Returns true for a table of lists, registers or counters.
pub fn is_unique(table: &str) -> bool {
    table.starts_with(LISTS) || table.starts_with(REGISTERS) || is_counters(table)
}

/// Returns the row of a key with this text, unless the row has moved.
pub fn row(k: i32, v: Arc<str>) -> Row {
    Row { n: [Some(k % 6), Some(k), Some(k % 10), Some(k)], v }
}

/// Parses the values in a text.
pub fn values(text: &str) -> Result<Vec<u64>, String> {
    let elements = text.split(',').filter(|element| !element.is_empty());
    elements
        .map(|element| {
            element.trim_end_matches('x').parse().map_err(|e| format!("{element:.40}: {e}"))
        })
        .collect()
}

/// Returns the first value of a session. Its prefix is unique to the session.
pub(super) fn first_value(session: &str) -> u64 {
    session
        .bytes()
        .filter(u8::is_ascii_digit)
        .fold(1, |number, digit| number * 10 + u64::from(digit - b'0'))
        * 10_000
}

impl Script {
    /// Generates a statement over one of the tables of lists, registers and counters, or the
    /// creation of one.
    pub(super) fn unique_work(&mut self, tables: &[&Arc<TableDef>]) -> Stmt {
        if self.mix.counters > 0
            && self.rng.percent(self.mix.counters)
            && let Some(stmt) = self.counter_work(tables)
        {
            return stmt;
        }
        let is_own = |table: &&Arc<TableDef>| is_unique(&table.name) && !is_counters(&table.name);
        let own: Vec<&Arc<TableDef>> = tables.iter().copied().filter(is_own).collect();
        if own.is_empty() || (own.len() < TABLES && self.rng.percent(2)) {
            let prefix = self.rng.pick(&[LISTS, LISTS, REGISTERS]);
            let kind = self.rng.pick(&KINDS);
            return Stmt::CreateTable {
                table: self.fresh_name(prefix.trim_end_matches('_')),
                kind,
            };
        }
        let table = own[self.rng.below(own.len() as u64) as usize];
        if self.rng.percent(self.mix.ddl) {
            let drops = self.rng.percent(40);
            return self.index(table, drops);
        }
        let (kind, table) = (kind_of(table), table.name.clone());
        let pred = self.one_row(kind);
        match self.rng.below(100) {
            0..40 => {
                let pred = if self.rng.percent(50) { pred } else { self.several_rows() };
                let lock = self.rng.percent(25).then(|| self.lock());
                // The chronicle would take a skipped row for an absent one.
                Stmt::Select { table, pred, lock: lock.filter(|lock| lock.wait != LockWait::Skip) }
            }
            40..55 => {
                let rows = 1 + self.rng.within(0..=3).min(self.mix.rows - 1);
                let first = self.rng.within(0..=KEYS - rows);
                let rows = (first..first + rows).map(|k| row(k, self.fresh_text(&table))).collect();
                Stmt::Insert { table, rows }
            }
            55..60 if kind == Kind::Apart => {
                let home = self.rng.within(0..=5);
                Stmt::Update { table, set: Set::To(D, Some(home)), pred }
            }
            _ => {
                let set = self.unique_set(&table);
                Stmt::Update { table, set, pred }
            }
        }
    }

    /// Appends to a list or writes a register.
    pub(super) fn unique_set(&mut self, table: &str) -> Set {
        let text = self.fresh_text(table);
        if table.starts_with(LISTS) { Set::Append(text) } else { Set::Text(text) }
    }

    /// Returns a new text for a list or register, or the element to append. In a list each value
    /// follows a `,`, so that texts concatenate.
    fn fresh_text(&mut self, table: &str) -> Arc<str> {
        self.values += 1;
        let (percent, longest) = self.mix.long;
        let padding =
            if self.rng.percent(percent) { self.rng.below(longest as u64 / 4) } else { 0 };
        let before = if table.starts_with(LISTS) { "," } else { "" };
        format!("{before}{}{}", self.values, "x".repeat(padding as usize)).into()
    }

    /// Selects one key's row by any unique key.
    fn one_row(&mut self, kind: Kind) -> Pred {
        let row = row(self.rng.within(0..=KEYS - 1), "".into());
        let key = self.rng.pick(kind.uniques());
        Pred::Equal(
            key.iter().filter_map(|column| row.n[*column].map(|value| (*column, value))).collect(),
        )
    }

    fn several_rows(&mut self) -> Pred {
        match self.rng.below(4) {
            0 => Pred::All,
            1 => Pred::Equal(vec![(A, self.rng.within(0..=9))]),
            _ => {
                let from = self.rng.within(0..=KEYS - 1);
                let column = self.rng.pick(&[K, U]);
                Pred::Between(column, from, from + self.rng.within(0..=4))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_back_from_joined_texts() {
        assert_eq!(values(",7,81xxx,9"), Ok(vec![7, 81, 9]));
        assert_eq!(values("12xx"), Ok(vec![12]));
        assert_eq!(values(""), Ok(vec![]));
        assert!(values(",7y").is_err());
    }

    #[test]
    fn sessions_write_different_values() {
        let names = (0..3).flat_map(|life| {
            (0..3).flat_map(move |w| (0..3).map(move |s| format!("{life}_{w}_{s}")))
        });
        let mut first: Vec<u64> = names.map(|name| first_value(&name)).collect();
        first.sort_unstable();
        assert!(first.windows(2).all(|pair| pair[1] - pair[0] >= 10_000));
    }
}
