//! Records what the sessions of a seed saw of its lists, registers and counters, over all its
//! lives, for the checker of histories.
//!
//! It knows neither the engine's log nor the model: only statements, answers, and the steps at
//! which transactions began and at which their clients learned how they ended. The state after a
//! life is read as one transaction, so that a lost acknowledged write forms a cycle with it.
//!
//! Invariants
//! 1. A commit whose client got no answer has an unknown outcome, and so has one that the end of
//!    the life cut off: it happened before that end, or never.
//! 2. Writes that were rolled back, also to a savepoint, and writes of refused statements belong to
//!    aborted transactions. A read-only transaction that ended with ROLLBACK counts if the client
//!    got the answer.
//! 3. The allowed anomalies are those of the weakest isolation level that was requested.

use crate::generate::counters::is_counters;
use crate::generate::unique::{self, KEYS, LISTS, is_unique};
use crate::history::{End, Found, Transaction};
use crate::model::Answer;
use crate::sql::{A, CursorStmt, D, K, Pred, Row, Set, Stmt, U};
use clearway_history::{Anomaly, CheckerOptions, History, Key, Op, Txn, TxnOutcome};
use std::collections::{BTreeMap, BTreeSet};

/// Prefix of a finding of the checker.
pub const ANOMALIES: &str = "history: ";

/// Number of the session that reads the state after a life.
const LOOK: u32 = 0;

/// A seed's history.
#[derive(Default)]
pub struct Chronicle {
    history: History,
    /// Numbers of the sessions.
    sessions: BTreeMap<String, u32>,
    /// Tables with at least one write.
    tables: BTreeSet<String>,
    /// Whether blocks were REPEATABLE READ, and READ COMMITTED.
    repeatable: bool,
    committed: bool,
}

impl Chronicle {
    /// Adds the transactions of a life that ended at step `over`.
    pub fn add(&mut self, transactions: &[Transaction], over: u64) -> Result<(), String> {
        for transaction in transactions {
            let ops = self.operations(&transaction.statements)?;
            if let Some((Stmt::BeginAt { repeatable }, _)) = transaction.statements.first() {
                self.repeatable |= repeatable;
                self.committed |= !repeatable;
            }
            let next = LOOK + 1 + self.sessions.len() as u32;
            let session = *self.sessions.entry(transaction.session.clone()).or_insert(next);
            let (start, end) = (transaction.began, Some(transaction.told.unwrap_or(over)));
            let txn = |outcome, ops| Txn { session, start, end, outcome, ops };
            let only_reads = ops.undone.is_empty() && !ops.done.iter().any(Op::is_write);
            let outcome = match (transaction.end, transaction.told) {
                (End::Committed, Some(_)) => TxnOutcome::Committed,
                (End::RolledBack, Some(_)) if only_reads => TxnOutcome::Committed,
                (End::Committed, None) | (End::Unanswered, _) => TxnOutcome::Unknown,
                (End::RolledBack | End::Aborted, _) => TxnOutcome::Aborted,
            };
            if !ops.undone.is_empty() {
                self.push(txn(TxnOutcome::Aborted, ops.undone))?;
            }
            if !ops.done.is_empty() {
                self.push(txn(outcome, ops.done))?;
            }
        }
        Ok(())
    }

    /// Adds the state that a life left, as read at this step.
    pub fn look(&mut self, found: &Found, step: u64) -> Result<(), String> {
        let mut ops = Vec::new();
        for table in self.tables.clone() {
            // A table that lost all its rows is not in the map.
            let rows = found.get(&table).map_or(&[][..], Vec::as_slice);
            self.read(&table, &Pred::All, rows, &mut ops)?;
        }
        self.push(Txn {
            session: LOOK,
            start: step,
            end: Some(step),
            outcome: TxnOutcome::Committed,
            ops,
        })
    }

    /// Checks the history; also returns its number of transactions.
    pub fn check(&mut self) -> (Result<(), String>, u64) {
        let report =
            self.history.check(&CheckerOptions { examples: 1, ..CheckerOptions::default() });
        let allowed: &[Anomaly] = match (self.committed, self.repeatable) {
            (true, _) => &[Anomaly::GSingle, Anomaly::G2, Anomaly::LostUpdate, Anomaly::Internal],
            (false, true) => &[Anomaly::G2],
            (false, false) => &[],
        };
        let is_clean = report.anomalies().all(|anomaly| allowed.contains(&anomaly));
        let found = if is_clean { Ok(()) } else { Err(format!("{ANOMALIES}{report}")) };
        (found, self.history.len() as u64)
    }

    fn push(&mut self, txn: Txn) -> Result<(), String> {
        self.history.push(txn).map(drop).map_err(|e| format!("{ANOMALIES}{e}"))
    }

    fn key(&mut self, table: &str, k: i32) -> Key {
        self.history.key(&format!("{table}:{k}"))
    }

    /// Returns what a transaction's statements read and wrote.
    fn operations(&mut self, statements: &[(Stmt, Answer)]) -> Result<Operations, String> {
        let mut ops = Operations::default();
        for (stmt, answer) in statements {
            match (stmt, answer) {
                (_, Answer::Refused(_) | Answer::Duplicate | Answer::Violated) => {
                    self.refused(stmt, &mut ops.undone)?
                }
                (Stmt::Savepoint(name), _) => ops.savepoints.push((*name, ops.done.len())),
                (Stmt::RollbackTo(name), _) => ops.roll_back_to(*name),
                (Stmt::Release(name), _) => ops.release(*name),
                (
                    Stmt::Select { table, pred, .. }
                    | Stmt::Cursor(CursorStmt::Declare { table, pred, .. }),
                    Answer::Rows(rows),
                ) if is_unique(table) => {
                    self.read(table, pred, rows, &mut ops.done)?;
                }
                (Stmt::Insert { table, rows }, _) if is_unique(table) => {
                    for row in rows {
                        // The key was free.
                        self.read_one(table, row.n[K].unwrap_or_default(), None, &mut ops.done)?;
                        self.insert(table, row, &mut ops.done)?;
                    }
                }
                (Stmt::Update { table, pred, set }, answer) if is_unique(table) => {
                    let k =
                        key_of(pred).ok_or_else(|| format!("{}: of which key?", stmt.short()))?;
                    match set {
                        _ if *answer == Answer::Count(0) => {
                            self.read_one(table, k, None, &mut ops.done)?
                        }
                        Set::Text(v) | Set::Append(v) => self.write(table, k, v, &mut ops.done)?,
                        Set::Add(A, amount) => self.add_to(table, k, *amount, &mut ops.done),
                        Set::To(..) | Set::Add(..) => {}
                    }
                }
                _ => {}
            }
        }
        Ok(ops)
    }

    /// Adds what a statement that failed would have written.
    fn refused(&mut self, stmt: &Stmt, undone: &mut Vec<Op>) -> Result<(), String> {
        match stmt {
            Stmt::Insert { table, rows } if is_unique(table) => {
                rows.iter().try_for_each(|row| self.insert(table, row, undone))
            }
            Stmt::Update { table, pred, set: Set::Add(A, amount) } if is_counters(table) => {
                key_of(pred).into_iter().for_each(|k| self.add_to(table, k, *amount, undone));
                Ok(())
            }
            Stmt::Update { table, pred, set: Set::Text(v) | Set::Append(v) }
                if is_unique(table) =>
            {
                key_of(pred).map_or(Ok(()), |k| self.write(table, k, v, undone))
            }
            _ => Ok(()),
        }
    }

    fn insert(&mut self, table: &str, row: &Row, ops: &mut Vec<Op>) -> Result<(), String> {
        let k = row.n[K].unwrap_or_default();
        if is_counters(table) {
            self.add_to(table, k, row.n[A].unwrap_or_default(), ops);
            return Ok(());
        }
        self.write(table, k, &row.v, ops)
    }

    /// Adds to a counter; 0 only creates it.
    fn add_to(&mut self, table: &str, k: i32, amount: i32, ops: &mut Vec<Op>) {
        self.tables.insert(table.to_owned());
        let (key, value) = (self.key(table, k), amount as u64);
        ops.extend((amount != 0).then_some(Op::Add { key, value }));
    }

    fn write(&mut self, table: &str, k: i32, text: &str, ops: &mut Vec<Op>) -> Result<(), String> {
        self.tables.insert(table.to_owned());
        let key = self.key(table, k);
        for value in unique::values(text)? {
            ops.push(if table.starts_with(LISTS) {
                Op::Append { key, value }
            } else {
                Op::Write { key, value }
            });
        }
        Ok(())
    }

    /// Reads every key that satisfies the predicate; `rows` are those that have a row. A search by
    /// home or by a counter's value does not tell which keys have no row: these columns change.
    fn read(
        &mut self,
        table: &str,
        pred: &Pred,
        rows: &[Row],
        ops: &mut Vec<Op>,
    ) -> Result<(), String> {
        let counted = |column: usize| column == A && is_counters(table);
        let is_vague = match pred {
            Pred::Equal(columns) => {
                columns.iter().all(|(column, _)| *column == D)
                    || columns.iter().any(|(column, _)| counted(*column))
            }
            Pred::Between(column, ..) | Pred::IsNull(column) => *column == D || counted(*column),
            Pred::All => false,
        };
        for k in 0..KEYS {
            let row = rows.iter().find(|row| row.n[K] == Some(k));
            if row.is_some() || !is_vague && pred.holds(&unique::row(k, "".into())) {
                self.read_one(table, k, row, ops)?;
            }
        }
        Ok(())
    }

    fn read_one(
        &mut self,
        table: &str,
        k: i32,
        row: Option<&Row>,
        ops: &mut Vec<Op>,
    ) -> Result<(), String> {
        let key = self.key(table, k);
        if is_counters(table) {
            let value = row.and_then(|row| row.n[A]).unwrap_or_default().into();
            ops.push(Op::Sum { key, value });
            return Ok(());
        }
        let values = row.map_or(Ok(Vec::new()), |row| unique::values(&row.v))?;
        let is_list = table.starts_with(LISTS);
        ops.push(if is_list {
            Op::List { key, values }
        } else {
            Op::Read { key, value: values.last().copied() }
        });
        Ok(())
    }
}

/// Returns the key of the only row that satisfies the predicate.
fn key_of(pred: &Pred) -> Option<i32> {
    let Pred::Equal(columns) = pred else { return None };
    columns.iter().find(|(column, _)| [K, U].contains(column)).map(|(_, k)| *k)
}

/// Returns what the operation adds to the counter: a power of two, or 0.
fn amount_of(op: &Op, counter: Key) -> u64 {
    match *op {
        Op::Add { key, value } if key == counter => value,
        _ => 0,
    }
}

/// The operations of a transaction.
#[derive(Default)]
struct Operations {
    done: Vec<Op>,
    /// Writes that were rolled back to a savepoint.
    undone: Vec<Op>,
    /// The savepoints, each with the number of operations before it.
    savepoints: Vec<(u8, usize)>,
}

impl Operations {
    /// Undoes the writes and keeps the reads, without what they saw of those writes.
    fn roll_back_to(&mut self, name: u8) {
        let Some(at) = self.savepoints.iter().rposition(|(n, _)| *n == name) else { return };
        self.savepoints.truncate(at + 1);
        let taken = self.done.split_off(self.savepoints[at].1);
        let (writes, reads): (Vec<Op>, Vec<Op>) = taken.into_iter().partition(Op::is_write);
        let own = |key: Key, value: u64| {
            writes.contains(&Op::Append { key, value })
                || writes.contains(&Op::Write { key, value })
        };
        for read in reads {
            match read {
                Op::List { key, mut values } => {
                    values.retain(|value| !own(key, *value));
                    self.done.push(Op::List { key, values });
                }
                Op::Read { key, value: Some(value) } if own(key, value) => {}
                Op::Sum { key, value } => {
                    let undone: u64 = writes.iter().map(|write| amount_of(write, key)).sum();
                    self.done.push(Op::Sum { key, value: value & !undone.cast_signed() });
                }
                read => self.done.push(read),
            }
        }
        self.undone.extend(writes);
    }

    fn release(&mut self, name: u8) {
        if let Some(at) = self.savepoints.iter().rposition(|(n, _)| *n == name) {
            self.savepoints.truncate(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::counters;
    use clearway_types::Lsn;

    const TABLE: &str = "l_1";
    const COUNTED: &str = "c_1";

    fn row(k: i32, v: &str) -> Row {
        unique::row(k, v.into())
    }

    fn insert(k: i32, v: &str) -> (Stmt, Answer) {
        (Stmt::Insert { table: TABLE.into(), rows: vec![row(k, v)] }, Answer::Count(1))
    }

    fn append(k: i32, v: &str) -> (Stmt, Answer) {
        let pred = Pred::Equal(vec![(K, k)]);
        (Stmt::Update { table: TABLE.into(), set: Set::Append(v.into()), pred }, Answer::Count(1))
    }

    fn select(rows: &[Row]) -> (Stmt, Answer) {
        (
            Stmt::Select { table: TABLE.into(), pred: Pred::All, lock: None },
            Answer::Rows(rows.to_vec()),
        )
    }

    fn txn(
        session: &str,
        end: End,
        time: (u64, Option<u64>),
        statements: Vec<(Stmt, Answer)>,
    ) -> Transaction {
        Transaction {
            session: session.into(),
            statements,
            end,
            lsn: Lsn(0),
            snapshot: None,
            views: Vec::new(),
            began: time.0,
            told: time.1,
        }
    }

    /// Runs the checker on these transactions, whose life left these rows.
    fn check(transactions: &[Transaction], left: &[Row]) -> Result<(), String> {
        let mut chronicle = Chronicle::default();
        chronicle.add(transactions, 100)?;
        chronicle.look(&Found::from([(TABLE.into(), left.to_vec())]), 200)?;
        chronicle.check().0
    }

    #[test]
    fn a_lost_commit_is_found_only_if_it_was_acknowledged() {
        let appends = |told| {
            let first = txn("a", End::Committed, (1, Some(2)), vec![insert(3, ",7")]);
            [first, txn("b", End::Committed, (3, told), vec![append(3, ",8")])]
        };
        let found = check(&appends(Some(4)), &[row(3, ",7")]).unwrap_err();
        assert!(found.starts_with(ANOMALIES) && found.contains("G-single-realtime"), "{found}");
        assert_eq!(check(&appends(None), &[row(3, ",7")]), Ok(()));
        assert_eq!(check(&appends(None), &[row(3, ",7,8")]), Ok(()));
    }

    #[test]
    fn a_search_by_home_does_not_read_absent_keys() {
        let pred = Pred::Equal(vec![(D, 3)]);
        let by_home =
            (Stmt::Select { table: TABLE.into(), pred, lock: None }, Answer::Rows(Vec::new()));
        let history = |read| {
            let first = txn("a", End::Committed, (1, Some(2)), vec![insert(3, ",7")]);
            [first, txn("b", End::Committed, (3, Some(4)), vec![read])]
        };
        assert_eq!(check(&history(by_home), &[row(3, ",7")]), Ok(()));
        assert!(check(&history(select(&[])), &[row(3, ",7")]).is_err());
    }

    #[test]
    fn a_phantom_is_an_anti_dependency() {
        let skew = [
            txn("a", End::Committed, (1, Some(9)), vec![select(&[]), insert(1, ",7")]),
            txn("b", End::Committed, (1, Some(9)), vec![select(&[]), insert(2, ",8")]),
        ];
        let found = check(&skew, &[row(1, ",7"), row(2, ",8")]).unwrap_err();
        assert!(found.contains("G2"), "{found}");
    }

    #[test]
    fn an_unanswered_commit_counts_once_it_is_seen() {
        let cut = txn(
            "a",
            End::Unanswered,
            (1, None),
            vec![insert(1, ",7"), insert(2, ",8"), (Stmt::Commit, Answer::Done)],
        );
        let cut = std::slice::from_ref(&cut);
        assert_eq!(check(cut, &[]), Ok(()));
        assert_eq!(check(cut, &[row(1, ",7"), row(2, ",8")]), Ok(()));
        let found = check(cut, &[row(1, ",7")]).unwrap_err();
        assert!(found.contains("G-single"), "{found}");
    }

    fn add(k: i32, amount: i32) -> (Stmt, Answer) {
        let pred = Pred::Equal(vec![(K, k)]);
        let set = Set::Add(A, amount);
        (Stmt::Update { table: COUNTED.into(), set, pred }, Answer::Count(1))
    }

    fn sums(pred: Pred, rows: &[(i32, i32)]) -> (Stmt, Answer) {
        let rows = rows.iter().map(|(k, sum)| counters::row(*k, *sum)).collect();
        (Stmt::Select { table: COUNTED.into(), pred, lock: None }, Answer::Rows(rows))
    }

    /// Like [`check`], for the table of counters.
    fn check_sums(transactions: &[Transaction], left: &[(i32, i32)]) -> Result<(), String> {
        let mut chronicle = Chronicle::default();
        chronicle.add(transactions, 100)?;
        let left = left.iter().map(|(k, sum)| counters::row(*k, *sum)).collect();
        chronicle.look(&Found::from([(COUNTED.into(), left)]), 200)?;
        chronicle.check().0
    }

    fn with_counters(statements: Vec<(Stmt, Answer)>) -> [Transaction; 2] {
        let rows = (0..2).map(|k| counters::row(k, 0)).collect();
        let insert = (Stmt::Insert { table: COUNTED.into(), rows }, Answer::Count(2));
        let first = txn("a", End::Committed, (1, Some(2)), vec![insert]);
        [first, txn("b", End::Committed, (3, Some(4)), statements)]
    }

    #[test]
    fn a_lost_addition_is_found_at_every_level() {
        for level in [Stmt::Begin, Stmt::BeginAt { repeatable: false }] {
            let steps = vec![(level, Answer::Done), add(1, 4), sums(Pred::All, &[(0, 0), (1, 4)])];
            let added = with_counters(steps);
            assert_eq!(check_sums(&added, &[(0, 0), (1, 4)]), Ok(()));
            let found = check_sums(&added, &[(0, 0), (1, 0)]).unwrap_err();
            assert!(found.contains("lost-addition"), "{found}");
            let found = check_sums(&added, &[(0, 1), (1, 4)]).unwrap_err();
            assert!(found.contains("garbage"), "{found}");
        }
    }

    #[test]
    fn rolled_back_additions_are_never_seen() {
        let refused = (add(1, 16).0, Answer::Refused("40001".into()));
        let history = with_counters(vec![
            add(1, 1),
            (Stmt::Savepoint(0), Answer::Done),
            add(1, 2),
            sums(Pred::Equal(vec![(K, 1)]), &[(1, 3)]),
            (Stmt::RollbackTo(0), Answer::Done),
            add(1, 4),
            refused,
            (Stmt::RollbackTo(0), Answer::Done),
            add(1, 8),
            (Stmt::Commit, Answer::Done),
        ]);
        assert_eq!(check_sums(&history, &[(0, 0), (1, 9)]), Ok(()));
        for sum in [11, 13, 25] {
            let found = check_sums(&history, &[(0, 0), (1, sum)]).unwrap_err();
            assert!(found.contains("G1a"), "{found}");
        }
    }

    #[test]
    fn a_search_by_sum_reads_only_what_it_finds() {
        let history = |pred| {
            let [first, second] = with_counters(vec![add(1, 4)]);
            [first, second, txn("c", End::Committed, (5, Some(6)), vec![sums(pred, &[])])]
        };
        let by_sum = history(Pred::Equal(vec![(A, 0), (K, 1)]));
        assert_eq!(check_sums(&by_sum, &[(0, 0), (1, 4)]), Ok(()));
        let by_key = history(Pred::Between(K, 0, 3));
        assert!(check_sums(&by_key, &[(0, 0), (1, 4)]).unwrap_err().contains("lost-addition"));
        // An addition to an absent row.
        let mut absent = with_counters(vec![add(5, 4)]);
        absent[1].statements[0].1 = Answer::Count(0);
        assert_eq!(check_sums(&absent, &[(0, 0), (1, 0)]), Ok(()));
        assert!(check_sums(&absent, &[(5, 4)]).unwrap_err().contains("garbage"));
    }

    #[test]
    fn rolled_back_writes_are_never_seen() {
        let back = |name| (Stmt::RollbackTo(name), Answer::Done);
        let own = [row(1, ",7,8")];
        let statements = vec![
            insert(1, ",7"),
            (Stmt::Savepoint(0), Answer::Done),
            append(1, ",8"),
            select(&own),
            back(0),
            select(&[row(1, ",7")]),
            (append(1, ",9").0, Answer::Refused("40001".into())),
            back(0),
            (Stmt::Commit, Answer::Done),
        ];
        let transactions = [txn("a", End::Committed, (1, Some(2)), statements)];
        assert_eq!(check(&transactions, &[row(1, ",7")]), Ok(()));
        for left in [",7,8", ",7,9"] {
            let found = check(&transactions, &[row(1, left)]).unwrap_err();
            assert!(found.contains("G1a"), "{found}");
        }
    }
}
