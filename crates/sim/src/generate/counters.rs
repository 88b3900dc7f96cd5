//! Additions to counters, whose sums show who saw which: each adds another power of two.
//!
//! In a table whose name begins with [`COUNTERS`] the column `a` of a row is a counter. Statements
//! add to it by the primary key, which lets them share the row's lock
//! (docs/decisions/increments.md), and read it. A row that does not exist is a counter of 0. Rows
//! are never deleted, and their other columns are functions of the key. Sessions use a few counters
//! at a time, each for at most 31 additions.

use super::unique::KEYS;
use super::{Script, kind_of};
use crate::sql::{A, K, Kind, Pred, Row, Set, Stmt};
use clearway_ir::{LockWait, TableDef};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Prefix of the names of tables of counters.
pub const COUNTERS: &str = "c_";
/// Additions to one counter: the powers of two of an int4.
const ADDITIONS: u32 = 31;
/// Counters of a table that are in use at the same time.
const HOT: usize = 2;
/// Maximum number of tables.
const TABLES: usize = 2;
/// The kinds that let additions share a row.
const KINDS: [Kind; 4] = [Kind::Keyed, Kind::Keyed, Kind::Guarded, Kind::Spread];

/// Returns true for a table of counters.
pub fn is_counters(table: &str) -> bool {
    table.starts_with(COUNTERS)
}

/// Returns the row of a counter.
pub fn row(k: i32, sum: i32) -> Row {
    Row { n: [Some(k % 6), Some(k), Some(sum), Some(k)], v: "".into() }
}

/// How many additions to each counter were generated, in all sessions and lives of a seed.
#[derive(Debug, Default)]
pub struct Additions(Mutex<BTreeMap<String, [u32; KEYS as usize]>>);

impl Additions {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, [u32; KEYS as usize]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true at the first call for a table.
    fn is_new(&self, table: &str) -> bool {
        let mut all = self.lock();
        let is_new = !all.contains_key(table);
        all.entry(table.to_owned()).or_default();
        is_new
    }

    /// Returns the counters of a table that are in use now: the first ones with space.
    fn hot(&self, table: &str) -> Vec<i32> {
        let all = self.lock();
        let used = all.get(table).copied().unwrap_or_default();
        (0..KEYS).filter(|k| used[*k as usize] < ADDITIONS).take(HOT).collect()
    }

    /// Returns an amount that was never added to this counter, unless there is none.
    fn take(&self, table: &str, k: i32) -> Option<i32> {
        let mut all = self.lock();
        let used = all.entry(table.to_owned()).or_default().get_mut(usize::try_from(k).ok()?)?;
        (*used < ADDITIONS).then(|| {
            *used += 1;
            1 << (*used - 1)
        })
    }
}

impl Script {
    /// Generates a statement over one of the tables of counters, or the creation of one. Returns
    /// `None` if all counters are full.
    pub(super) fn counter_work(&mut self, tables: &[&Arc<TableDef>]) -> Option<Stmt> {
        if let Some((table, pred)) = self.added.take()
            && self.mix.sums > 0
            && self.rng.percent(self.mix.sums)
        {
            return Some(Stmt::Select { table, pred, lock: None });
        }
        let own: Vec<&Arc<TableDef>> =
            tables.iter().copied().filter(|table| is_counters(&table.name)).collect();
        if own.is_empty() || (own.len() < TABLES && self.rng.percent(2)) {
            let (table, kind) = (self.fresh_name("c"), self.rng.pick(&KINDS));
            return Some(Stmt::CreateTable { table, kind });
        }
        let table = own[self.rng.below(own.len() as u64) as usize];
        let (kind, table) = (kind_of(table), table.name.clone());
        if self.additions.is_new(&table) {
            return Some(Stmt::Insert { table, rows: (0..KEYS).map(|k| row(k, 0)).collect() });
        }
        let hot = self.additions.hot(&table);
        if hot.is_empty() {
            return None;
        }
        let k = self.rng.pick(&hot);
        let pred =
            Pred::Equal(kind.key().iter().filter_map(|c| Some((*c, row(k, 0).n[*c]?))).collect());
        Some(match self.rng.below(100) {
            0..74 => {
                let set = self.addition(&table, &pred)?;
                self.added = Some((table.clone(), pred.clone()));
                Stmt::Update { table, set, pred }
            }
            // The rows that the first statement inserted may have been rolled back.
            74..80 => {
                let sum = if self.rng.percent(50) { 0 } else { self.additions.take(&table, k)? };
                Stmt::Insert { table, rows: vec![row(k, sum)] }
            }
            80..93 => {
                let lock = self.rng.percent(15).then(|| self.lock());
                // The chronicle would take a skipped row for an absent one.
                Stmt::Select { table, pred, lock: lock.filter(|lock| lock.wait != LockWait::Skip) }
            }
            93..96 => Stmt::Select { table, pred: Pred::Between(K, k, k + HOT as i32), lock: None },
            _ => Stmt::Select { table, pred: Pred::All, lock: None },
        })
    }

    /// Returns an addition to the counter that the predicate selects, if it has space.
    pub(super) fn addition(&mut self, table: &str, pred: &Pred) -> Option<Set> {
        let Pred::Equal(columns) = pred else { return None };
        let (_, k) = columns.iter().find(|(column, _)| *column == K)?;
        Some(Set::Add(A, self.additions.take(table, *k)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_amount_is_added_twice_to_a_counter() {
        let additions = Additions::default();
        assert!(additions.is_new("c_1") && !additions.is_new("c_1"));
        let mut sums = [0_i64; KEYS as usize];
        while let [first, ..] = additions.hot("c_1")[..] {
            let amount = i64::from(additions.take("c_1", first).unwrap());
            assert!(!additions.is_new("c_1"));
            assert!(amount > 0 && sums[first as usize] & amount == 0);
            sums[first as usize] |= amount;
        }
        assert_eq!(sums, [i64::from(i32::MAX); KEYS as usize]);
        assert_eq!((additions.take("c_1", 0), additions.take("c_1", KEYS)), (None, None));
        assert_eq!(additions.take("c_2", 0), Some(1));
    }
}
