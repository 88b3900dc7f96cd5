//! What the sessions saw, for the judge.

use crate::model::{Answer, Model, difference};
use crate::sql::{Pred, Stmt};
use crate::views::View;
use clearway_types::Lsn;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How a transaction ended, as far as its session knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The engine said that it was committed. The client heard of it only if [`Transaction::told`]
    /// is set.
    Committed,
    /// Rolled back by ROLLBACK or the COMMIT of a failed block, or a statement on its own that met
    /// a duplicate.
    RolledBack,
    /// Rolled back in another way, or never asked to commit.
    Aborted,
    /// The life ended in its COMMIT, or in a statement on its own.
    Unanswered,
}

/// A transaction.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// Who.
    pub session: String,
    /// Its statements with what they answered. The last one of an unanswered transaction counts as
    /// done.
    pub statements: Vec<(Stmt, Answer)>,
    /// How it ended.
    pub end: End,
    /// The commit record's end if it wrote and committed; else the last commit that it may have
    /// seen.
    pub lsn: Lsn,
    /// The snapshot that it read: its place in the serial order, though it may have waited for a
    /// later commit.
    pub snapshot: Option<Lsn>,
    /// The snapshots that its statements saw, if it is below SERIALIZABLE; none for those that saw
    /// what is newest.
    pub views: Vec<Option<Lsn>>,
    /// The step at which its first statement began.
    pub began: u64,
    /// The step at which its client heard of the end: the log was durable up to `lsn`.
    pub told: Option<u64>,
}

impl Transaction {
    fn is_committed(&self) -> bool {
        self.end == End::Committed
    }

    fn is_acknowledged(&self) -> bool {
        self.is_committed() && self.told.is_some()
    }

    /// Whether the commit record is its own.
    fn wrote(&self) -> bool {
        let writes = |(stmt, answer): &(Stmt, Answer)| {
            stmt.writes()
                && !matches!(answer, Answer::Count(0) | Answer::Refused(_) | Answer::Duplicate)
        };
        self.is_committed() && self.statements.iter().any(writes)
    }

    /// Whether the model knows at which point of the serial order it looked at the data.
    fn is_judged(&self) -> bool {
        matches!(self.end, End::Committed | End::RolledBack)
    }

    /// Its place in the order of all: behind what it saw.
    fn place(&self) -> Lsn {
        let last = self.views.iter().flatten().max();
        self.snapshot.unwrap_or(self.lsn).max(last.copied().unwrap_or_default())
    }

    /// Whether its statements saw one snapshot, and are not to change what others have changed
    /// since.
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

/// What comes first among what belongs to one LSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// The transaction that the commit record there commits.
    Changes,
    /// A statement of a transaction looks at what there is.
    Looks(usize),
    /// A transaction that has changed nothing.
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

    /// Adds one; its number.
    pub fn add(&self, transaction: Transaction) -> usize {
        let mut all = self.lock();
        all.push(transaction);
        all.len() - 1
    }

    /// The client has been told of the end, at this step.
    pub fn tell(&self, number: usize, step: u64) {
        self.lock()[number].told = Some(step);
    }

    /// What the only statement of a transaction has answered by now.
    pub fn amend(&self, number: usize, answer: Answer) {
        self.lock()[number].statements[0].1 = answer;
    }

    /// All of them.
    pub fn transactions(&self) -> Vec<Transaction> {
        self.lock().clone()
    }

    /// Counts by what they are.
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

    /// Where the last transaction that was acknowledged ends.
    pub fn acknowledged_up_to(&self) -> Lsn {
        self.lock().iter().filter(|t| t.is_acknowledged()).map(|t| t.lsn).max().unwrap_or(Lsn(0))
    }

    /// Brings the model from the life's beginning to where a log that ends at `end` leaves it. The
    /// transactions behind that are as if they had never been; an error if a client has heard of
    /// one of them, or if the others are not as if one had run after the other.
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

    /// Brings the model from the life's beginning to what was committed up to `end`; an error if
    /// that is not as if one had run after the other.
    ///
    /// The order is that of the commit records, and of snapshots; another transaction that wrote
    /// nothing, or was rolled back, comes behind the last commit that it may have seen: it had its
    /// locks until it ended, and until then nobody committed what contradicts its answers.
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
                    "session {}, {:?} at {}: not serialisable: {why}\n  {}",
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

/// What a database was found to hold: for each table its rows, sorted.
pub type Found = BTreeMap<String, Vec<crate::sql::Row>>;

/// Whether that is what the model says.
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
