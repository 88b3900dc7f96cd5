//! Converts the engine's answers to the model's.

use crate::model::Answer;
use crate::session::NO_COMMIT;
use crate::sql::{CursorStmt, Row, Stmt};
use clearway_coordinator::{Outcome, Tag};
use clearway_types::{Datum, Lsn, RowBatch};

/// Converts a statement's outcome to the model's answer.
pub fn answer(stmt: &Stmt, outcome: &Outcome) -> Result<Answer, String> {
    Ok(match (stmt, outcome.tag) {
        (Stmt::Sum { .. }, _) => sums(&outcome.rows)?,
        (Stmt::Select { .. } | Stmt::Keys { .. }, _) => Answer::Rows(rows(&outcome.rows)?),
        (Stmt::Signal { .. }, _) => {
            let told = datums(&outcome.rows)?;
            if told != [[Datum::Bool(true)]] {
                return Err(format!("{stmt}: {told:?}, although the session exists"));
            }
            Answer::Done
        }
        // The session records which rows the cursor returned.
        (Stmt::Cursor(CursorStmt::Declare { .. }), _) => Answer::Some(Vec::new()),
        (_, Tag::Insert(n) | Tag::Update(n) | Tag::Delete(n)) => Answer::Count(n),
        // COMMIT of a failed block.
        (Stmt::Commit, Tag::Plain(NO_COMMIT)) => Answer::Refused(NO_COMMIT.into()),
        _ => Answer::Done,
    })
}

pub(crate) fn datums(batch: &RowBatch) -> Result<Vec<Vec<Datum>>, String> {
    batch
        .iter()
        .map(|row| row.to_datums().map_err(|_| "a row that cannot be read".to_owned()))
        .collect()
}

/// Converts the rows of a SELECT d, k, a, u, v, and sorts them.
pub fn rows(batch: &RowBatch) -> Result<Vec<Row>, String> {
    let mut rows = Vec::with_capacity(batch.len());
    for row in datums(batch)? {
        let [d, k, a, u, v] = &row[..] else {
            return Err(format!("a row of {} columns", row.len()));
        };
        let Datum::Text(v) = v else { return Err(format!("a text that is {v:?}")) };
        let int = |d: &Datum| d.as_i64().map(|n| n as i32);
        rows.push(Row { n: [int(d), int(k), int(a), int(u)], v: v.as_ref().into() });
    }
    rows.sort_unstable();
    Ok(rows)
}

/// Converts the row of a SELECT count(*), count(a), sum(a).
pub fn sums(batch: &RowBatch) -> Result<Answer, String> {
    let all = datums(batch)?;
    let [row] = &all[..] else { return Err(format!("{} rows of sums", all.len())) };
    let number = |d: &Datum| d.as_i64();
    match &row[..] {
        [n, values, sum] => Ok(Answer::Sum(
            number(n).unwrap_or(-1) as u64,
            number(values).unwrap_or(-1) as u64,
            number(sum),
        )),
        _ => Err(format!("{} columns of sums", row.len())),
    }
}

/// Returns the end LSN from BACKUP's answer: bytes, begin, end, milliseconds.
pub fn end(batch: &RowBatch) -> Result<Lsn, String> {
    let all = datums(batch)?;
    let end = all.first().and_then(|row| row.get(2)).and_then(Datum::as_i64);
    end.map(|end| Lsn(end as u64)).ok_or_else(|| "BACKUP did not say where it ends".into())
}
