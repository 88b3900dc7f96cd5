//! A simple model of a database: tables are lists of rows, and a transaction happens at once.

use crate::sql::{A, CursorStmt, K, Kind, Pred, Row, Set, Stmt, U};
use crate::views::View;
use std::collections::{BTreeMap, BTreeSet};

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Its constraints.
    pub kind: Kind,
    /// Its rows, in no order.
    pub rows: Vec<Known>,
    /// Names of the indexes made by CREATE INDEX.
    pub indexes: BTreeSet<String>,
}

/// A row with an identity that survives changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// Its identity.
    pub id: u64,
    /// Its contents.
    pub row: Row,
}

/// A statement's answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Rows, sorted.
    Rows(Vec<Row>),
    /// Some of the rows, sorted: those that a cursor has returned.
    Some(Vec<Row>),
    /// The number of changed rows.
    Count(u64),
    /// count(*), count(a), sum(a).
    Sum(u64, u64, Option<i64>),
    /// Success without a result.
    Done,
    /// 23505: duplicate key.
    Duplicate,
    /// 23514: a row violates the CHECK constraint.
    Violated,
    /// Another error. The statement has changed nothing. The model predicts only [`OVERFLOW`].
    Refused(String),
}

/// The error of an addition that leaves the type's range.
pub const OVERFLOW: &str = "22003 integer out of range";

/// The tables after the transactions so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    /// By name.
    pub tables: BTreeMap<String, Table>,
    /// How many rows have been inserted.
    inserted: u64,
}

impl Model {
    /// Executes a committed transaction's statements in order. Fails at the first whose answer
    /// differs. `statements` has the engine's answers; `views` what each statement saw,
    /// [`View::Newest`] for those after the last view.
    pub fn replay(&mut self, statements: &[(Stmt, Answer)], views: &[View]) -> Result<(), String> {
        let base = if views.iter().any(|view| *view != View::Newest) {
            self.clone()
        } else {
            Self::default()
        };
        // Includes the tables that the transaction itself has created or truncated: it sees their
        // newest state.
        let mut savepoints: Vec<(u8, Self, BTreeSet<String>)> = Vec::new();
        let mut remade = BTreeSet::new();
        for (at, (stmt, seen)) in statements.iter().enumerate() {
            if matches!(seen, Answer::Refused(why) if why != OVERFLOW) {
                continue;
            }
            let find = |name: &u8| {
                savepoints.iter().rposition(|(n, ..)| n == name).ok_or("no such savepoint")
            };
            let expected = match stmt {
                Stmt::Savepoint(n) => {
                    savepoints.push((*n, self.clone(), remade.clone()));
                    Answer::Done
                }
                Stmt::RollbackTo(n) => {
                    let at = find(n)?;
                    savepoints.truncate(at + 1);
                    self.clone_from(&savepoints[at].1);
                    remade.clone_from(&savepoints[at].2);
                    Answer::Done
                }
                Stmt::Release(n) => {
                    let at = find(n)?;
                    savepoints.truncate(at);
                    Answer::Done
                }
                other => match views
                    .get(at)
                    .filter(|_| other.table().is_some_and(|name| !remade.contains(name)))
                {
                    Some(View::AsOf { table, repeatable }) => {
                        self.execute_as_of((other, seen), table.as_ref(), &base, *repeatable)?
                    }
                    _ => self.execute(other)?,
                },
            };
            if let Stmt::CreateTable { table, .. }
            | Stmt::DropTable(table)
            | Stmt::Truncate(table)
            | Stmt::AddKey(table) = stmt
            {
                remade.insert(table.clone());
            }
            let as_expected = match (&expected, seen) {
                (Answer::Rows(all), Answer::Rows(some)) if stmt.skips() => are_among(some, all),
                (Answer::Rows(all), Answer::Some(some)) => are_among(some, all),
                _ => expected == *seen,
            };
            if !as_expected {
                return Err(format!(
                    "{}: the engine answered {}, the model {}",
                    stmt.short(),
                    show(seen),
                    show(&expected)
                ));
            }
        }
        Ok(())
    }

    pub(crate) fn table(&mut self, name: &str) -> Result<&mut Table, String> {
        self.tables
            .get_mut(name)
            .ok_or_else(|| format!("there is no table {name} at this point of the serial order"))
    }

    pub(crate) fn execute(&mut self, stmt: &Stmt) -> Result<Answer, String> {
        Ok(match stmt {
            Stmt::Insert { table, rows } => {
                let first = self.inserted;
                self.inserted += rows.len() as u64;
                self.table(table)?.insert(rows, first)
            }
            Stmt::InsertSelect { table, from, pred, up } => {
                let mut rows = self.table(from)?.select(pred);
                for row in &mut rows {
                    row.n[K] = row.n[K].map(|k| k + up);
                    row.n[U] = row.n[K];
                }
                return self.execute(&Stmt::Insert { table: table.clone(), rows });
            }
            Stmt::InsertFree { table, rows } => self.insert_free(table, rows, |_, _| true)?,
            Stmt::Update { table, set, pred } => {
                self.table(table)?.update(set, |known| pred.holds(&known.row))
            }
            Stmt::Delete { table, pred } => {
                self.table(table)?.delete(|known| pred.holds(&known.row))
            }
            Stmt::Select { table, pred, .. } => Answer::Rows(self.table(table)?.select(pred)),
            Stmt::Cursor(CursorStmt::Declare { table, pred, .. }) => {
                Answer::Rows(self.table(table)?.select(pred))
            }
            Stmt::Keys { table, kind, pred, .. } => keys(*kind, self.table(table)?.select(pred)),
            Stmt::Sum { table, pred } => sum(&self.table(table)?.select(pred)),
            Stmt::CreateTable { table, kind } => {
                let made = Table { kind: *kind, rows: Vec::new(), indexes: BTreeSet::new() };
                if self.tables.insert(table.clone(), made).is_some() {
                    return Err(format!("table {table} was there already"));
                }
                Answer::Done
            }
            Stmt::DropTable(table) => {
                self.table(table)?;
                self.tables.remove(table);
                Answer::Done
            }
            Stmt::Truncate(table) => {
                self.table(table)?.rows.clear();
                Answer::Done
            }
            Stmt::AddKey(table) => self.table(table)?.add_key()?,
            Stmt::CreateIndex { name, table, .. } => {
                if !self.table(table)?.indexes.insert(name.clone()) {
                    return Err(format!("index {name} was there already"));
                }
                Answer::Done
            }
            Stmt::DropIndex(name) => {
                if !self.tables.values_mut().any(|t| t.indexes.remove(name)) {
                    return Err(format!(
                        "there is no index {name} at this point of the serial order"
                    ));
                }
                Answer::Done
            }
            _ => Answer::Done,
        })
    }
}

impl Model {
    /// Inserts the rows without conflicts, one after another. Fails if another row conflicts only
    /// with rows that the statement does not see. `is_seen` returns true if a row with the same
    /// values in these columns is visible.
    pub(crate) fn insert_free(
        &mut self,
        name: &str,
        rows: &[Row],
        is_seen: impl Fn(&Known, &[usize]) -> bool,
    ) -> Result<Answer, String> {
        let first = self.inserted;
        self.inserted += rows.len() as u64;
        let table = self.table(name)?;
        if !rows.iter().all(|row| table.kind.permits(row)) {
            return Ok(Answer::Violated);
        }
        let mut count = 0;
        for (id, row) in (first..).zip(rows) {
            let met: Vec<(&Known, &[usize])> = table.met_by(row).collect();
            if met.is_empty() {
                table.rows.push(Known { id, row: row.clone() });
                count += 1;
            } else if !met.iter().any(|(known, key)| is_seen(known, key)) {
                return Err(format!(
                    "the snapshot does not have the row {} that {row} meets",
                    met[0].0.row
                ));
            }
        }
        Ok(Answer::Count(count))
    }
}

impl Table {
    /// Returns the rows that share a unique key with this row, each with the key's columns.
    fn met_by<'t>(&'t self, row: &Row) -> impl Iterator<Item = (&'t Known, &'static [usize])> {
        let same = |known: &Known, key: &[usize]| {
            key.iter()
                .all(|column| row.n[*column].is_some() && known.row.n[*column] == row.n[*column])
        };
        let keys = self.kind.uniques().iter();
        keys.flat_map(move |key| {
            self.rows.iter().filter(move |known| same(known, key)).map(move |known| (known, *key))
        })
    }

    /// Returns the rows that satisfy the predicate, sorted.
    pub fn select(&self, pred: &Pred) -> Vec<Row> {
        sorted(self.rows.iter().map(|known| &known.row).filter(|row| pred.holds(row)))
    }

    /// Inserts rows. The first gets the identity `first`, the others follow.
    fn insert(&mut self, rows: &[Row], first: u64) -> Answer {
        if !rows.iter().all(|row| self.kind.permits(row)) {
            return Answer::Violated;
        }
        let before = self.rows.len();
        self.rows.extend((first..).zip(rows).map(|(id, row)| Known { id, row: row.clone() }));
        if self.has_duplicates() {
            self.rows.truncate(before);
            return Answer::Duplicate;
        }
        Answer::Count(rows.len() as u64)
    }

    pub(crate) fn delete(&mut self, which: impl Fn(&Known) -> bool) -> Answer {
        let before = self.rows.len();
        self.rows.retain(|known| !which(known));
        Answer::Count((before - self.rows.len()) as u64)
    }

    pub(crate) fn update(&mut self, set: &Set, which: impl Fn(&Known) -> bool) -> Answer {
        let before = self.rows.clone();
        let mut count = 0;
        let mut overflows = false;
        for Known { row, .. } in self.rows.iter_mut().filter(|known| which(known)) {
            count += 1;
            match set {
                Set::To(c, n) => row.n[*c] = *n,
                Set::Add(c, n) => {
                    let sum = row.n[*c].map(|old| old.checked_add(*n));
                    overflows |= sum == Some(None);
                    row.n[*c] = sum.flatten();
                }
                Set::Text(v) => row.v = v.clone(),
                Set::Append(v) => row.v = format!("{}{v}", row.v).into(),
            }
        }
        if overflows {
            self.rows = before;
            return Answer::Refused(OVERFLOW.into());
        }
        if !self.rows.iter().all(|known| self.kind.permits(&known.row)) {
            self.rows = before;
            return Answer::Violated;
        }
        if self.has_duplicates() {
            self.rows = before;
            return Answer::Duplicate;
        }
        Answer::Count(count)
    }

    fn add_key(&mut self) -> Result<Answer, String> {
        let before = self.kind;
        let has_key = "the table had a primary key at this point of the serial order";
        self.kind = before.with_key().ok_or(has_key)?;
        if self.has_duplicates() {
            self.kind = before;
            return Ok(Answer::Duplicate);
        }
        Ok(Answer::Done)
    }

    fn has_duplicates(&self) -> bool {
        self.kind.uniques().iter().any(|key| {
            let mut seen = BTreeSet::new();
            let mut values = self.rows.iter().filter_map(|known| {
                key.iter().map(|c| known.row.n[*c]).collect::<Option<Vec<i32>>>()
            });
            values.any(|value| !seen.insert(value))
        })
    }
}

pub(crate) fn sorted<'r>(rows: impl Iterator<Item = &'r Row>) -> Vec<Row> {
    let mut rows: Vec<Row> = rows.cloned().collect();
    rows.sort_unstable();
    rows
}

/// Returns the unique-key columns of these rows.
pub(crate) fn keys(kind: Kind, mut rows: Vec<Row>) -> Answer {
    for row in &mut rows {
        (0..row.n.len()).filter(|c| !kind.is_in_key(*c)).for_each(|c| row.n[c] = None);
        row.v = "".into();
    }
    rows.sort_unstable();
    Answer::Rows(rows)
}

/// Computes count(*), count(a) and sum(a).
pub(crate) fn sum(rows: &[Row]) -> Answer {
    let values: Vec<i64> = rows.iter().filter_map(|row| row.n[A]).map(i64::from).collect();
    let sum = (!values.is_empty()).then(|| values.iter().sum());
    Answer::Sum(rows.len() as u64, values.len() as u64, sum)
}

/// Returns true if `all` contains each of these rows at least as often. Both are sorted.
fn are_among(some: &[Row], all: &[Row]) -> bool {
    let mut all = all.iter();
    some.iter().all(|row| all.any(|other| other == row))
}

/// Formats an answer.
pub fn show(answer: &Answer) -> String {
    match answer {
        Answer::Rows(rows) | Answer::Some(rows) => {
            let some: Vec<String> = rows.iter().take(12).map(Row::to_string).collect();
            let more = if rows.len() > some.len() { ", ..." } else { "" };
            format!("{} rows [{}{more}]", rows.len(), some.join(", "))
        }
        other => format!("{other:?}"),
    }
}

/// Formats the difference between two lists of rows.
pub fn difference(engine: &[Row], model: &[Row]) -> String {
    let missing: Vec<String> =
        model.iter().filter(|row| !engine.contains(row)).take(8).map(Row::to_string).collect();
    let extra: Vec<String> =
        engine.iter().filter(|row| !model.contains(row)).take(8).map(Row::to_string).collect();
    let counts = (engine.len(), model.len());
    format!(
        "{} rows instead of {}; missing: [{}]; too many: [{}]",
        counts.0,
        counts.1,
        missing.join(", "),
        extra.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::{D, Lock};
    use clearway_ir::{LockWait, RowLock};

    fn row(d: i32, k: i32, u: Option<i32>) -> Row {
        Row { n: [Some(d), Some(k), Some(1), u], v: "x".into() }
    }

    fn spread() -> Model {
        let mut model = Model::default();
        model.execute(&Stmt::CreateTable { table: "t".into(), kind: Kind::Spread }).unwrap();
        model
    }

    fn insert(rows: &[Row]) -> Stmt {
        Stmt::Insert { table: "t".into(), rows: rows.to_vec() }
    }

    #[test]
    fn a_duplicate_leaves_nothing_and_nulls_are_distinct() {
        let mut model = spread();
        assert_eq!(
            model.execute(&insert(&[row(1, 1, None), row(1, 2, None)])),
            Ok(Answer::Count(2))
        );
        assert_eq!(
            model.execute(&insert(&[row(1, 3, Some(1)), row(1, 1, None)])),
            Ok(Answer::Duplicate)
        );
        assert_eq!(model.tables["t"].rows.len(), 2);
    }

    #[test]
    fn insert_select_works_between_tables_with_other_keys() {
        let mut model = spread();
        model.execute(&insert(&[row(1, 1, None), row(1, 2, Some(2))])).unwrap();
        let copy = |k, up| Stmt::InsertSelect {
            table: "t".into(),
            from: "t".into(),
            pred: Pred::Equal(vec![(K, k)]),
            up,
        };
        assert_eq!(model.execute(&copy(1, 1)), Ok(Answer::Duplicate));
        assert_eq!(model.execute(&copy(1, 2)), Ok(Answer::Count(1)));
        assert_eq!(model.execute(&copy(7, 1)), Ok(Answer::Count(0)));
        assert_eq!(model.tables["t"].select(&Pred::Equal(vec![(K, 3)])), [row(1, 3, Some(3))]);
    }

    #[test]
    fn a_primary_key_is_added_if_it_is_unique() {
        for (kind, then) in [(Kind::Heap, Kind::Keyed), (Kind::Unique, Kind::Apart)] {
            let mut model = Model::default();
            model.execute(&Stmt::CreateTable { table: "t".into(), kind }).unwrap();
            model.execute(&insert(&[row(1, 1, None), row(2, 1, None)])).unwrap();
            let add = Stmt::AddKey("t".into());
            assert_eq!(model.execute(&add), Ok(Answer::Duplicate));
            assert_eq!(model.tables["t"].kind, kind);
            let pred = Pred::Equal(vec![(D, 2)]);
            model.execute(&Stmt::Delete { table: "t".into(), pred }).unwrap();
            assert_eq!((model.execute(&add), model.tables["t"].kind), (Ok(Answer::Done), then));
            assert_eq!(model.execute(&insert(&[row(2, 1, None)])), Ok(Answer::Duplicate));
            assert!(model.execute(&add).is_err());
        }
    }

    #[test]
    fn skip_locked_may_miss_rows_but_not_invent_them() {
        let (a, b) = (row(1, 1, None), row(1, 2, None));
        let lock = Some(Lock { mode: RowLock::Update, wait: LockWait::Skip });
        let select = |lock| Stmt::Select { table: "t".into(), pred: Pred::All, lock };
        let replay = |lock, rows: &[&Row]| {
            let mut model = spread();
            model.execute(&insert(&[a.clone(), b.clone()])).unwrap();
            model
                .replay(
                    &[(select(lock), Answer::Rows(rows.iter().copied().cloned().collect()))],
                    &[],
                )
                .is_ok()
        };
        for few in [&[][..], &[&a], &[&b]] {
            assert!(
                replay(lock, few) && !replay(None, few) && !replay(Some(Lock::UPDATE), few),
                "{few:?}"
            );
        }
        assert!(replay(lock, &[&a, &b]) && replay(None, &[&a, &b]));
        assert!(!replay(lock, &[&a, &a]) && !replay(lock, &[&row(1, 3, None)]));
    }

    #[test]
    fn rollback_to_a_savepoint_keeps_it() {
        let mut model = spread();
        let done = |stmt| (stmt, Answer::Done);
        let steps = [
            done(Stmt::Savepoint(1)),
            (insert(&[row(1, 1, None)]), Answer::Count(1)),
            done(Stmt::RollbackTo(1)),
            (insert(&[row(2, 1, None)]), Answer::Count(1)),
            done(Stmt::RollbackTo(1)),
        ];
        assert_eq!(model.replay(&steps, &[]), Ok(()));
        assert!(model.tables["t"].rows.is_empty());
        let wrong = [(insert(&[row(2, 1, None)]), Answer::Duplicate)];
        assert!(model.replay(&wrong, &[]).unwrap_err().contains("the model Count(1)"));
    }
}
