//! `clearway.locks`, and the words for locks in the log.
//!
//! Shows the waits in progress and their blockers, as in the waits-for graph. Locks without waiters
//! are not looked up, so reading the view disturbs no partition.

use crate::sessions::{SessionInfo, by_transaction, not_empty, text};
use clearway_coordinator::LockWaitView;
use clearway_types::{DatumRef, RowBatch, TxnId};
use hashbrown::HashMap;

/// The longest chain of waits that is followed.
const CHAIN: usize = 1000;

/// Waits in progress and the sessions of their transactions.
pub(crate) struct Waits<'a> {
    waits: &'a [LockWaitView],
    by_waiter: HashMap<TxnId, &'a LockWaitView>,
    sessions: HashMap<TxnId, &'a SessionInfo>,
}

impl<'a> Waits<'a> {
    pub(crate) fn new(waits: &'a [LockWaitView], sessions: &'a [SessionInfo]) -> Self {
        let by_waiter = waits.iter().map(|wait| (wait.waiter, wait)).collect();
        Self { waits, by_waiter, sessions: by_transaction(sessions) }
    }

    pub(crate) fn session(&self, txn: TxnId) -> Option<&'a SessionInfo> {
        self.sessions.get(&txn).copied()
    }

    /// Follows the chain of blockers to a transaction that waits for no lock. Returns `None` if the
    /// chain is a cycle or longer than [`CHAIN`].
    pub(crate) fn holder(&self, wait: &LockWaitView) -> Option<TxnId> {
        let mut at = *wait.blockers.first()?;
        for _ in 0..CHAIN {
            match self.by_waiter.get(&at).and_then(|wait| wait.blockers.first()) {
                Some(next) => at = *next,
                None => return Some(at),
            }
        }
        None
    }

    /// Returns the rows of `clearway.locks`. `now` is in microseconds since 2000-01-01 UTC.
    pub(crate) fn rows(&self, now: i64) -> RowBatch {
        let mut rows = RowBatch::new();
        for wait in self.waits {
            let pid = |txn: Option<TxnId>| {
                let session = txn.and_then(|txn| self.session(txn));
                session.map_or(DatumRef::Null, |session| DatumRef::Int4(session.pid))
            };
            let statement = |txn: Option<TxnId>| {
                let (statement, _) = txn.and_then(|txn| self.session(txn))?.statement.as_ref()?;
                Some(&**statement)
            };
            let others = wait
                .blockers
                .iter()
                .skip(1)
                .filter_map(|txn| Some(self.session(*txn)?.pid.to_string()));
            let others: Vec<String> = others.collect();
            let first = wait.blockers.first().copied();
            let name = |get: fn(&clearway_coordinator::LockName) -> &String| {
                wait.lock.as_ref().map_or(DatumRef::Null, |lock| not_empty(get(lock)))
            };
            rows.push_with(|row| {
                row.push(pid(Some(wait.waiter)));
                row.push(pid(first));
                row.push(not_empty(&others.join(", ")));
                row.push(pid(self.holder(wait)));
                row.push(name(|lock| &lock.table));
                row.push(name(|lock| &lock.index));
                row.push(name(|lock| &lock.key));
                row.push(name(|lock| &lock.mode));
                row.push(DatumRef::Timestamptz(now - wait.waited.as_micros() as i64));
                row.push(DatumRef::Float8(wait.waited.as_secs_f64()));
                row.push(DatumRef::Int4(wait.id.partition.0.into()));
                row.push(text(statement(Some(wait.waiter))));
                row.push(text(statement(first)));
            });
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::tests::session;
    use clearway_coordinator::WaitId;
    use clearway_types::{Datum, PartitionId};

    #[test]
    fn partition_wait_has_a_number_and_no_lock() {
        let id = WaitId { partition: PartitionId(3), number: 1 };
        let waits = [LockWaitView { waiter: TxnId(7), id, ..LockWaitView::default() }];
        let sessions = [session(20, &[7])];
        let rows = Waits::new(&waits, &sessions).rows(5);
        let row: Vec<Datum> =
            (0..13).map(|column| rows.get(0).get(column).unwrap().to_owned()).collect();
        let mut wanted = vec![Datum::Null; 13];
        wanted[0] = Datum::Int4(20);
        (wanted[8], wanted[9]) = (Datum::Timestamptz(5), Datum::Float8(0.0));
        wanted[10] = Datum::Int4(3);
        assert_eq!(row, wanted);
        assert_eq!(waits[0].what(), "partition 3");
    }
}
