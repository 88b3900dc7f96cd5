//! Records what the sessions saw, for the judge.

use crate::model::{Answer, Model, difference};
use crate::sql::{Pred, Stmt};
use crate::views::View;
use clearway_types::Lsn;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How a transaction ended, as far as its session knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The engine reported a commit. The client received the answer only if [`Transaction::told`]
    /// is set.
    Committed,
    /// Rolled back by ROLLBACK or by COMMIT of a failed block; or a single statement that failed
    /// with a duplicate key.
    RolledBack,
    /// Rolled back in another way, or never committed.
    Aborted,
    /// The life ended during its COMMIT or during a single statement.
    Unanswered,
}

/// A transaction.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// The session.
    pub session: String,
    /// Its statements with their answers. The last one of an unanswered transaction counts as
    /// executed.
    pub statements: Vec<(Stmt, Answer)>,
    /// How it ended.
    pub end: End,
    /// End of the commit record, if it wrote and committed; otherwise the last commit that it may
    /// have seen.
    pub lsn: Lsn,
    /// The snapshot that it read: its place in the serial order, although it may have waited for a
    /// later commit.
    pub snapshot: Option<Lsn>,
    /// The snapshot of each statement, below SERIALIZABLE; `None` for a statement that read the
    /// newest state.
    pub views: Vec<Option<Lsn>>,
    /// The step at which its first statement began.
    pub began: u64,
    /// The step at which its client received the answer: the log was durable up to `lsn`.
    pub told: Option<u64>,
}

impl Transaction {
    fn is_committed(&self) -> bool {
        self.end == End::Committed
    }

    fn is_acknowledged(&self) -> bool {
        self.is_committed() && self.told.is_some()
    }

    /// Returns true if `lsn` is the end of its own commit record.
    fn wrote(&self) -> bool {
        let writes = |(stmt, answer): &(Stmt, Answer)| {
            stmt.writes()
                && !matches!(
                    answer,
                    Answer::Count(0) | Answer::Refused(_) | Answer::Duplicate | Answer::Violated
                )
        };
        self.is_committed() && self.statements.iter().any(writes)
    }

    /// Returns true if the model knows at which point of the serial order it read.
    fn is_judged(&self) -> bool {
        matches!(self.end, End::Committed | End::RolledBack)
    }

    /// Returns its place in the serial order: after what it saw.
    fn place(&self) -> Lsn {
        let last = self.views.iter().flatten().max();
        self.snapshot.unwrap_or(self.lsn).max(last.copied().unwrap_or_default())
    }

    /// Returns true if all statements saw one snapshot and must not change rows that others have
    /// changed since.
    fn is_repeatable(&self) -> bool {
        matches!(self.statements.first(), Some((Stmt::BeginAt { repeatable: true }, _)))
    }

    fn replay(&self, model: &mut Model, views: &[View]) -> Result<(), String> {
        match self.end {
            End::RolledBack => model.clone().replay(&self.statements, views),
            _ => model.replay(&self.statements, views),
        }
    }
}

/// The order of events at the same LSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// The transaction that the commit record at this LSN commits.
    Changes,
    /// A statement of a transaction reads.
    Looks(usize),
    /// A read-only transaction.
    Reads,
}

/// The transactions of one life.
#[derive(Default)]
pub struct History {
    transactions: Mutex<Vec<Transaction>>,
}

impl History {
    fn lock(&self) -> MutexGuard<'_, Vec<Transaction>> {
        self.transactions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a transaction and returns its number.
    pub fn add(&self, transaction: Transaction) -> usize {
        let mut all = self.lock();
        all.push(transaction);
        all.len() - 1
    }

    /// Records that the client received the answer at this step.
    pub fn tell(&self, number: usize, step: u64) {
        self.lock()[number].told = Some(step);
    }

    /// Replaces the answer of the only statement of a transaction.
    pub fn amend(&self, number: usize, answer: Answer) {
        self.lock()[number].statements[0].1 = answer;
    }

    /// Returns all transactions.
    pub fn transactions(&self) -> Vec<Transaction> {
        self.lock().clone()
    }

    /// Counts the transactions by how they ended.
    pub fn counts(&self) -> [(&'static str, u64); 4] {
        let all = self.lock();
        let count = |is: fn(&&Transaction) -> bool| all.iter().filter(is).count() as u64;
        [
            ("transactions committed", count(|t| t.is_committed())),
            ("acknowledged", count(|t| t.is_acknowledged())),
            ("of snapshots", count(|t| t.snapshot.is_some() || !t.views.is_empty())),
            ("rolled back and judged", count(|t| t.end == End::RolledBack)),
        ]
    }

    /// Returns the LSN of the last acknowledged commit.
    pub fn acknowledged_up_to(&self) -> Lsn {
        self.lock().iter().filter(|t| t.is_acknowledged()).map(|t| t.lsn).max().unwrap_or(Lsn(0))
    }

    /// Advances the model from the beginning of the life to a log that ends at `end`. Later
    /// transactions count as never run. Fails if a client got the answer of one of those, or if the
    /// others are not serializable.
    pub fn settle(&self, model: &mut Model, end: Lsn) -> Result<(), String> {
        let all = self.lock();
        if let Some(Transaction { session, lsn, .. }) =
            all.iter().find(|t| t.told.is_some() && t.lsn > end)
        {
            return Err(format!(
                "session {session}: acknowledged at {lsn}, but the log ends at {end}: it is lost"
            ));
        }
        drop(all);
        self.replay(model, end)
    }

    /// Advances the model from the beginning of the life to what was committed up to `end`. Fails
    /// if the answers do not match a serial execution.
    ///
    /// The order is that of the commit records and of the snapshots. A transaction that wrote
    /// nothing, or was rolled back, follows the last commit that it may have seen: it held its
    /// locks until its end, so no commit before that contradicts its answers.
    pub fn replay(&self, model: &mut Model, end: Lsn) -> Result<(), String> {
        let all = self.lock();
        let judged: Vec<&Transaction> =
            all.iter().filter(|t| t.is_judged() && t.lsn.max(t.place()) <= end).collect();
        let mut order: Vec<(Lsn, Turn, usize)> = Vec::new();
        for (number, txn) in judged.iter().enumerate() {
            order.push((
                txn.place(),
                if txn.wrote() { Turn::Changes } else { Turn::Reads },
                number,
            ));
            let looks =
                txn.views.iter().enumerate().filter_map(|(at, view)| view.map(|view| (view, at)));
            order.extend(looks.map(|(view, at)| (view, Turn::Looks(at), number)));
        }
        order.sort_unstable();
        let mut views: Vec<Vec<View>> =
            judged.iter().map(|txn| vec![View::Newest; txn.views.len()]).collect();
        for (_, turn, number) in order {
            let txn = judged[number];
            if let Turn::Looks(at) = turn {
                let table =
                    txn.statements[at].0.table().and_then(|name| model.tables.get(name).cloned());
                views[number][at] = View::AsOf { table, repeatable: txn.is_repeatable() };
                continue;
            }
            txn.replay(model, &std::mem::take(&mut views[number])).map_err(|why| {
                let steps: Vec<String> = txn
                    .statements
                    .iter()
                    .map(|(s, a)| format!("{} -> {a:.60?}", s.short()))
                    .collect();
                format!(
                    "session {}, {:?} at {}: not serializable: {why}\n  {}",
                    txn.session,
                    txn.end,
                    txn.lsn,
                    steps.join("\n  ")
                )
            })?;
        }
        Ok(())
    }
}

/// The contents of a database: the sorted rows of each table.
pub type Found = BTreeMap<String, Vec<crate::sql::Row>>;

/// Fails unless the contents match the model.
pub fn compare(found: &Found, model: &Model) -> Result<(), String> {
    let names = |it: Vec<&String>| it.into_iter().cloned().collect::<Vec<_>>();
    let (have, should) = (names(found.keys().collect()), names(model.tables.keys().collect()));
    if have != should {
        return Err(format!("tables {have:?} instead of {should:?}"));
    }
    for (name, rows) in found {
        let expected = model.tables[name].select(&Pred::All);
        if *rows != expected {
            return Err(format!("table {name}: {}", difference(rows, &expected)));
        }
    }
    Ok(())
}
