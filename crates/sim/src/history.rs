//! What the sessions saw, for the judge.

use crate::model::{Answer, Model, difference};
use crate::sql::Stmt;
use clearway_types::Lsn;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A transaction that the engine said was committed (to the session; the client heard of it only when `acknowledged`).
#[derive(Clone, Debug)]
pub struct Committed {
    /// Who.
    pub session: String,
    /// Its statements with what they answered.
    pub statements: Vec<(Stmt, Answer)>,
    /// The commit record's end if it wrote; else the last commit that it may have seen.
    pub lsn: Lsn,
    /// The client has heard of it: the log was durable up to `lsn`.
    pub acknowledged: bool,
}

impl Committed {
    fn wrote(&self) -> bool {
        self.statements.iter().any(|(stmt, answer)| {
            stmt.writes() && !matches!(answer, Answer::Count(0) | Answer::Refused(_) | Answer::Duplicate)
        })
    }
}

/// The transactions of one life.
#[derive(Default)]
pub struct History {
    committed: Mutex<Vec<Committed>>,
}

impl History {
    fn lock(&self) -> MutexGuard<'_, Vec<Committed>> {
        self.committed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one; its number.
    pub fn add(&self, committed: Committed) -> usize {
        let mut all = self.lock();
        all.push(committed);
        all.len() - 1
    }

    /// The client has been told.
    pub fn acknowledge(&self, number: usize) {
        self.lock()[number].acknowledged = true;
    }

    /// How many transactions, and how many of them were acknowledged.
    pub fn counts(&self) -> (u64, u64) {
        let all = self.lock();
        (all.len() as u64, all.iter().filter(|t| t.acknowledged).count() as u64)
    }

    /// Where the last transaction that was acknowledged ends.
    pub fn acknowledged_up_to(&self) -> Lsn {
        self.lock().iter().filter(|t| t.acknowledged).map(|t| t.lsn).max().unwrap_or(Lsn(0))
    }

    /// Brings the model from the life's beginning to where a log that ends at `end` leaves it. The transactions behind that are as if
    /// they had never been; an error if one of them was acknowledged, or if the others are not as if one had run after the other.
    pub fn settle(&self, model: &mut Model, end: Lsn) -> Result<(), String> {
        if let Some(Committed { session, lsn, .. }) = self.lock().iter().find(|t| t.acknowledged && t.lsn > end) {
            return Err(format!("session {session}: acknowledged at {lsn}, but the log ends at {end}: it is lost"));
        }
        self.replay(model, end)
    }

    /// Brings the model from the life's beginning to what was committed up to `end`; an error if that is not as if one had run after the other.
    ///
    /// The order is that of the commit records; who wrote nothing comes behind the last commit that he may have seen.
    pub fn replay(&self, model: &mut Model, end: Lsn) -> Result<(), String> {
        let all = self.lock();
        let mut order: Vec<&Committed> = all.iter().filter(|t| t.lsn <= end).collect();
        order.sort_by_key(|t| (t.lsn, !t.wrote()));
        for txn in order {
            model.replay(&txn.statements).map_err(|why| {
                let steps: Vec<String> =
                    txn.statements.iter().map(|(s, a)| format!("{} -> {a:.60?}", s.short())).collect();
                format!(
                    "session {}, commit at {}: not serialisable: {why}\n  {}",
                    txn.session,
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
        let mut expected = model.tables[name].rows.clone();
        expected.sort_unstable();
        if *rows != expected {
            return Err(format!("table {name}: {}", difference(rows, &expected)));
        }
    }
    Ok(())
}
