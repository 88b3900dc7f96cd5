//! The model's READ COMMITTED and REPEATABLE READ: statements that see a snapshot and their
//! transaction's own changes.
//!
//! A statement finds its rows in what it sees. It returns them, or changes or locks the newest
//! version of each one that still satisfies its condition. At REPEATABLE READ none of them may have
//! been changed by others since.
//!
//! A key has one place in its tree. So at REPEATABLE READ no statement creates a key that the block
//! still sees and that others have removed.

use crate::model::{Answer, Known, Model, Table, keys, sorted, sum};
use crate::sql::{CursorStmt, Kind, Pred, Row, Stmt};
use std::collections::{BTreeMap, BTreeSet};

/// What a statement sees.
#[derive(Clone, Debug, PartialEq)]
pub enum View {
    /// The newest state, under locks.
    Newest,
    /// Its table at a snapshot.
    AsOf {
        /// `None`: the table did not exist.
        table: Option<Table>,
        /// Whether the level is REPEATABLE READ.
        repeatable: bool,
    },
}

type Rows<'t> = BTreeMap<u64, &'t Row>;

fn rows(table: Option<&Table>) -> Rows<'_> {
    table.into_iter().flat_map(|table| &table.rows).map(|known| (known.id, &known.row)).collect()
}

/// Combines a snapshot with the changes that its transaction made between `base` and `now`. Nobody
/// else changes a row between the transaction's first read after its own change and its end. So the
/// row is as in the serial order, even if the transaction has only added to it.
fn with_own<'t>(then: &Rows<'t>, base: &Rows<'_>, now: &Rows<'t>) -> Rows<'t> {
    let is_own = |id: &u64| base.get(id) != now.get(id);
    let others = then.iter().filter(|(id, _)| !is_own(id));
    others.chain(now.iter().filter(|(id, _)| is_own(id))).map(|(id, row)| (*id, *row)).collect()
}

impl Model {
    /// Executes a statement of a transaction that saw its table like this. `seen` is the engine's
    /// answer, `base` the state before the transaction.
    pub(crate) fn execute_as_of(
        &mut self,
        (stmt, seen): (&Stmt, &Answer),
        then: Option<&Table>,
        base: &Self,
        repeatable: bool,
    ) -> Result<Answer, String> {
        let name = stmt.table().unwrap_or_default();
        let before = self.tables.get(name).filter(|_| repeatable).cloned();
        let answer = self.execute_seeing((stmt, seen), then, base, repeatable)?;
        if let (Some(before), Some(after), Answer::Count(_)) =
            (before, self.tables.get(name), &answer)
        {
            let found = with_own(&rows(then), &rows(base.tables.get(name)), &rows(Some(&before)));
            if let Some(row) = revived(&found, &before, after) {
                return Err(format!(
                    "{}: makes a key of {row}, which others have removed",
                    stmt.short()
                ));
            }
        }
        Ok(answer)
    }

    fn execute_seeing(
        &mut self,
        (stmt, seen): (&Stmt, &Answer),
        then: Option<&Table>,
        base: &Self,
        repeatable: bool,
    ) -> Result<Answer, String> {
        if let Stmt::InsertFree { table, rows: new } = stmt {
            return self.insert_free_as_of((table, new), then, base, repeatable);
        }
        let (Some(name), Some(pred)) = (stmt.table(), stmt.pred()) else {
            return self.execute(stmt);
        };
        // Others may have dropped the table since the statement read it.
        let now = match self.tables.get(name) {
            None if !stmt.locks() => {
                Table { kind: Kind::Heap, rows: Vec::new(), indexes: BTreeSet::new() }
            }
            _ => self.table(name)?.clone(),
        };
        let (then, base, now_rows) = (rows(then), rows(base.tables.get(name)), rows(Some(&now)));
        let mut found = with_own(&then, &base, &now_rows);
        found.retain(|_, row| pred.holds(row));
        if !stmt.locks() {
            let rows = sorted(found.values().copied());
            return Ok(if matches!(stmt, Stmt::Sum { .. }) {
                sum(&rows)
            } else {
                Answer::Rows(rows)
            });
        }
        let is_lost = |id: &&u64| stmt.has_lost(then.get(id).copied(), base.get(id).copied());
        let lost = found.keys().find(|id| repeatable && !stmt.skips() && is_lost(id));
        if let Some(row) = lost.and_then(|id| then.get(id)) {
            return Err(format!("{}: others have changed {row} since the snapshot", stmt.short()));
        }
        let table = self.table(name)?;
        let (taken, answer) = take(stmt, &now, |known| found.contains_key(&known.id));
        if answer == *seen || repeatable || stmt.skips() {
            *table = taken;
            return Ok(answer);
        }
        // A row that was deleted and inserted again under the same key may count as the same row.
        let gone: Vec<_> = found
            .iter()
            .filter(|(id, _)| !now_rows.contains_key(id))
            .map(|(_, row)| *row)
            .collect();
        let key = now.kind.key();
        let is_again = |row: &Row| {
            let same = |gone: &&Row| key.iter().all(|column| gone.n[*column] == row.n[*column]);
            !key.is_empty() && gone.iter().any(same)
        };
        let (again, answer_again) =
            take(stmt, &now, |known| found.contains_key(&known.id) || is_again(&known.row));
        let (taken, answer) =
            if answer_again == *seen { (again, answer_again) } else { (taken, answer) };
        *table = taken;
        Ok(answer)
    }
}

impl Model {
    /// Executes INSERT ... ON CONFLICT DO NOTHING. It skips a row only if the snapshot contains a
    /// conflicting row with the same key, or its transaction created one.
    fn insert_free_as_of(
        &mut self,
        (name, new): (&str, &[Row]),
        then: Option<&Table>,
        base: &Self,
        repeatable: bool,
    ) -> Result<Answer, String> {
        let (then, base) = (rows(then), rows(base.tables.get(name)));
        let is_seen = |known: &Known, key: &[usize]| {
            let is_own = base.get(&known.id).is_none_or(|before| **before != known.row);
            let has_key =
                |row: &&Row| key.iter().all(|column| row.n[*column] == known.row.n[*column]);
            !repeatable || is_own || then.get(&known.id).is_some_and(has_key)
        };
        self.insert_free(name, new, is_seen)
    }
}

/// Returns a row visible to the block whose unique key did not exist before and exists after.
fn revived<'r>(found: &'r Rows<'_>, before: &Table, after: &Table) -> Option<&'r Row> {
    let of = |row: &Row, key: &[usize]| {
        key.iter().map(|column| row.n[*column]).collect::<Option<Vec<i32>>>()
    };
    after.kind.uniques().iter().find_map(|key| {
        let there = |table: &Table| -> BTreeSet<Vec<i32>> {
            table.rows.iter().filter_map(|known| of(&known.row, key)).collect()
        };
        let made: BTreeSet<Vec<i32>> = &there(after) - &there(before);
        found.values().copied().find(|row| of(row, key).is_some_and(|value| made.contains(&value)))
    })
}

/// Applies the statement to the newest versions of these rows, if they satisfy its condition.
fn take(stmt: &Stmt, now: &Table, which: impl Fn(&Known) -> bool) -> (Table, Answer) {
    let mut table = now.clone();
    let takes =
        |known: &Known| which(known) && stmt.pred().is_some_and(|pred| pred.holds(&known.row));
    let taken = || sorted(now.rows.iter().filter(|known| takes(known)).map(|known| &known.row));
    let answer = match stmt {
        Stmt::Update { set, .. } => table.update(set, takes),
        Stmt::Delete { .. } => table.delete(takes),
        Stmt::Keys { kind, .. } => keys(*kind, taken()),
        _ => Answer::Rows(taken()),
    };
    (table, answer)
}

impl Stmt {
    /// Returns the table whose rows it reads or changes, or that it creates or drops.
    pub fn table(&self) -> Option<&str> {
        match self {
            Self::Insert { table, .. }
            | Self::InsertFree { table, .. }
            | Self::InsertSelect { table, .. }
            | Self::Update { table, .. }
            | Self::Delete { table, .. }
            | Self::Select { table, .. }
            | Self::Keys { table, .. }
            | Self::Sum { table, .. }
            | Self::Cursor(CursorStmt::Declare { table, .. })
            | Self::CreateTable { table, .. }
            | Self::DropTable(table)
            | Self::AddKey(table)
            | Self::Truncate(table) => Some(table),
            _ => None,
        }
    }

    /// Returns the predicate for the rows that it reads or changes.
    fn pred(&self) -> Option<&Pred> {
        match self {
            Self::Update { pred, .. }
            | Self::Delete { pred, .. }
            | Self::Select { pred, .. }
            | Self::Keys { pred, .. }
            | Self::Sum { pred, .. }
            | Self::Cursor(CursorStmt::Declare { pred, .. }) => Some(pred),
            _ => None,
        }
    }

    /// Returns true if its effect depends on what it sees.
    pub fn looks(&self) -> bool {
        self.finds() || matches!(self, Self::Insert { .. } | Self::InsertFree { .. })
    }

    /// Returns true if it searches for rows.
    pub fn finds(&self) -> bool {
        self.pred().is_some()
    }

    /// Returns true if a row has been changed so that a statement that found it earlier may not use
    /// it. Others may change everything but the keys of a row locked FOR KEY SHARE.
    fn has_lost(&self, then: Option<&Row>, now: Option<&Row>) -> bool {
        match (self, then, now) {
            (Self::Keys { kind, .. }, Some(then), Some(now)) => {
                keys(*kind, vec![then.clone()]) != keys(*kind, vec![now.clone()])
            }
            _ => then != now,
        }
    }

    /// Returns true if it locks the rows that it finds.
    fn locks(&self) -> bool {
        !matches!(self, Self::Select { lock: None, .. } | Self::Sum { .. } | Self::Cursor(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::{A, K, Set};

    fn row(k: i32, a: i32) -> Row {
        Row { n: [Some(0), Some(k), Some(a), None], v: "".into() }
    }

    fn insert(k: i32) -> (Stmt, Answer) {
        (Stmt::Insert { table: "t".into(), rows: vec![row(k, 0)] }, Answer::Count(1))
    }

    fn add(pred: Pred, n: u64) -> (Stmt, Answer) {
        (Stmt::Update { table: "t".into(), set: Set::Add(A, 1), pred }, Answer::Count(n))
    }

    fn select(rows: &[Row]) -> (Stmt, Answer) {
        (
            Stmt::Select { table: "t".into(), pred: Pred::All, lock: None },
            Answer::Rows(rows.to_vec()),
        )
    }

    /// Returns a table with the keys 1 and 2, and the state after another transaction has added to
    /// 1 and inserted 3.
    fn changed() -> (Table, Model) {
        let mut model = Model::default();
        let create = (Stmt::CreateTable { table: "t".into(), kind: Kind::Keyed }, Answer::Done);
        model.replay(&[create, insert(1), insert(2)], &[]).unwrap();
        let then = model.tables["t"].clone();
        model.replay(&[add(Pred::Equal(vec![(K, 1)]), 1), insert(3)], &[]).unwrap();
        (then, model)
    }

    fn replay(steps: &[(Stmt, Answer)], repeatable: bool) -> Result<Vec<Row>, String> {
        let (then, mut model) = changed();
        let view = View::AsOf { table: Some(then), repeatable };
        model.replay(steps, &vec![view; steps.len()])?;
        Ok(model.tables["t"].select(&Pred::All))
    }

    #[test]
    fn reads_see_the_snapshot_and_own_changes() {
        let steps = [
            select(&[row(1, 0), row(2, 0)]),
            insert(4),
            select(&[row(1, 0), row(2, 0), row(4, 0)]),
        ];
        assert_eq!(replay(&steps, true), Ok(vec![row(1, 1), row(2, 0), row(3, 0), row(4, 0)]));
        assert!(replay(&[select(&[row(1, 1), row(2, 0), row(3, 0)])], false).is_err());
    }

    #[test]
    fn a_cursor_answers_with_rows_of_its_snapshot() {
        let declare = |answer| {
            let declare = CursorStmt::Declare { cursor: 0, table: "t".into(), pred: Pred::All };
            replay(&[(Stmt::Cursor(declare), answer)], false)
        };
        for some in [&[][..], &[row(1, 0)], &[row(2, 0)], &[row(1, 0), row(2, 0)]] {
            assert!(declare(Answer::Some(some.to_vec())).is_ok(), "{some:?}");
        }
        assert!(declare(Answer::Rows(vec![row(1, 0), row(2, 0)])).is_ok());
        for wrong in [vec![row(1, 1)], vec![row(3, 0)], vec![row(2, 0), row(2, 0)]] {
            assert!(declare(Answer::Some(wrong.clone())).is_err(), "{wrong:?}");
        }
        // A cursor read to its end must have returned all rows.
        assert!(declare(Answer::Rows(vec![row(1, 0)])).is_err());
    }

    #[test]
    fn a_snapshot_sees_a_table_truncated_or_dropped_later() {
        for ddl in [Stmt::Truncate("t".into()), Stmt::DropTable("t".into())] {
            let (then, mut model) = changed();
            model.replay(&[(ddl, Answer::Done)], &[]).unwrap();
            let view = |table| vec![View::AsOf { table, repeatable: true }];
            assert_eq!(model.replay(&[select(&[row(1, 0), row(2, 0)])], &view(Some(then))), Ok(()));
            assert_eq!(model.replay(&[select(&[])], &view(None)), Ok(()));
        }
    }

    #[test]
    fn changes_apply_to_newest_versions_that_still_match() {
        let zero = Pred::Equal(vec![(A, 0)]);
        assert_eq!(
            replay(&[add(zero.clone(), 1)], false),
            Ok(vec![row(1, 1), row(2, 1), row(3, 0)])
        );
        assert_eq!(replay(&[add(Pred::All, 2)], false), Ok(vec![row(1, 2), row(2, 1), row(3, 0)]));
        let lost = replay(&[add(Pred::All, 2)], true).unwrap_err();
        assert!(lost.contains("others have changed (0, 1, 0, NULL"), "{lost}");
    }

    #[test]
    fn keys_that_others_removed_are_not_created_again() {
        let update = |set, k| {
            (
                Stmt::Update { table: "t".into(), set, pred: Pred::Equal(vec![(K, k)]) },
                Answer::Count(1),
            )
        };
        let delete = |k| {
            (Stmt::Delete { table: "t".into(), pred: Pred::Equal(vec![(K, k)]) }, Answer::Count(1))
        };
        let free =
            (Stmt::InsertFree { table: "t".into(), rows: vec![row(1, 0)] }, Answer::Count(1));
        let replay = |steps: &[(Stmt, Answer)], repeatable| {
            let (then, mut model) = changed();
            model.replay(&[delete(1), delete(3)], &[]).unwrap();
            model.replay(steps, &vec![View::AsOf { table: Some(then), repeatable }; steps.len()])
        };
        for step in [insert(1), free, update(Set::To(K, Some(1)), 2)] {
            assert_eq!(replay(std::slice::from_ref(&step), false), Ok(()), "{step:?}");
            let again = replay(&[step], true).unwrap_err();
            assert!(again.contains("makes a key of (0, 1, 0, NULL"), "{again}");
        }
        // The snapshot lacks 3, and the block itself removes 2.
        assert_eq!(replay(&[insert(3), delete(2), insert(2)], true), Ok(()));
        assert_eq!(replay(&[update(Set::To(K, Some(4)), 2), insert(2)], true), Ok(()));
    }

    #[test]
    fn do_nothing_skips_rows_that_the_snapshot_has() {
        let free = |k: i32, n| {
            let stmt = Stmt::InsertFree { table: "t".into(), rows: vec![row(k, 7), row(k, 8)] };
            (stmt, Answer::Count(n))
        };
        let now = vec![row(1, 1), row(2, 0), row(3, 0)];
        // 3 was inserted since.
        assert_eq!(replay(&[free(3, 0)], false), Ok(now.clone()));
        let unseen = replay(&[free(3, 0)], true).unwrap_err();
        assert!(unseen.contains("the snapshot does not have the row (0, 3, 0, NULL"), "{unseen}");
        // 2 was there, and the statement's first row is its own.
        assert_eq!(replay(&[free(2, 0)], true), Ok(now.clone()));
        assert_eq!(replay(&[free(4, 1), free(4, 0)], true), Ok([now, vec![row(4, 7)]].concat()));
    }
}
