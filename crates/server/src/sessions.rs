//! `clearway.sessions`: who is connected and what each session does.
//!
//! A session publishes nothing. A reader of the view asks every worker, and each worker adds the
//! descriptions of its sessions, in bounded pieces. So reading the view costs the workers, and
//! ordinary statements pay nothing.
//!
//! Invariant: a roll call ends when every worker has finished answering; its result is delivered
//! once.
//!
//! Locking: a latch protects the collected descriptions; it is held to append a piece. A crash
//! leaves nothing.

use crate::shared::{Note, Shared};
use clearway_coordinator::{Engine, LockWaitView};
use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_types::{DatumRef, Lsn, RowBatch, TxnId};
use hashbrown::HashMap;
use std::sync::Arc;

/// A session's description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// The backend id.
    pub pid: i32,
    /// The client's address, or the kind of socket.
    pub client: String,
    /// The user name given at login.
    pub user: String,
    /// `application_name`.
    pub application: String,
    /// The state, in PostgreSQL's words.
    pub state: &'static str,
    /// Start of the state, in microseconds since 2000-01-01 UTC.
    pub state_since: i64,
    /// The last statement begun, and when its message arrived.
    pub statement: Option<(Arc<str>, i64)>,
    /// When its transaction began, if it is in one.
    pub transaction_since: Option<i64>,
    /// Its open snapshot, and since when.
    pub snapshot: Option<(Lsn, i64)>,
    /// Its transactions in the engine; the open one first.
    pub transactions: Vec<TxnId>,
    /// What it waits for as far as the session knows, which excludes locks.
    pub waits_for: Option<&'static str>,
}

type Done = Box<dyn FnOnce(Vec<SessionInfo>) + Send>;

struct Collected {
    sessions: Vec<SessionInfo>,
    /// Workers that have not finished answering.
    left: usize,
    done: Option<Done>,
}

static ROLL: Class = Class::new("server.roll");

/// A roll call: asks all workers for their sessions.
pub struct Roll(Latch<Collected>);

impl Roll {
    /// Asks all workers. `done` receives the sessions by backend id, in the thread of the last
    /// worker that answers. It is never called if the server stops meanwhile.
    pub(crate) fn call(shared: &Shared, done: impl FnOnce(Vec<SessionInfo>) + Send + 'static) {
        let collected =
            Collected { sessions: Vec::new(), left: shared.workers(), done: Some(Box::new(done)) };
        let roll = Arc::new(Self(Latch::new(&ROLL, collected)));
        for worker in 0..shared.workers() {
            shared.post(worker, Note::Roll(roll.clone()));
        }
    }

    /// Adds some of a worker's sessions; `last` means that the worker has no more.
    pub(crate) fn add(&self, mut sessions: Vec<SessionInfo>, last: bool) {
        let (mut all, done) = {
            let mut collected = self.0.lock();
            collected.sessions.append(&mut sessions);
            collected.left -= usize::from(last);
            if collected.left > 0 {
                return;
            }
            (std::mem::take(&mut collected.sessions), collected.done.take())
        };
        all.sort_unstable_by_key(|session| session.pid);
        if let Some(done) = done {
            done(all);
        }
    }
}

/// Maps each transaction to its session.
pub(crate) fn by_transaction(sessions: &[SessionInfo]) -> HashMap<TxnId, &SessionInfo> {
    sessions
        .iter()
        .flat_map(|session| session.transactions.iter().map(move |txn| (*txn, session)))
        .collect()
}

pub(crate) fn text(text: Option<&str>) -> DatumRef<'_> {
    text.map_or(DatumRef::Null, DatumRef::Text)
}

/// Returns a text value, or NULL if it is empty.
pub(crate) fn not_empty(name: &str) -> DatumRef<'_> {
    text(Some(name).filter(|name| !name.is_empty()))
}

/// Returns the rows of `clearway.sessions`. `waits` are the waits in progress.
pub(crate) fn rows(sessions: &[SessionInfo], waits: &[LockWaitView]) -> RowBatch {
    let by_transaction = by_transaction(sessions);
    let waits: HashMap<TxnId, &LockWaitView> =
        waits.iter().map(|wait| (wait.waiter, wait)).collect();
    let mut rows = RowBatch::new();
    for session in sessions {
        let wait = session.transactions.iter().find_map(|txn| waits.get(txn));
        let blocker = wait.and_then(|wait| by_transaction.get(wait.blockers.first()?));
        let waits_for = wait
            .map(|wait| if wait.lock.is_some() { "lock" } else { "partition" })
            .or(session.waits_for);
        let statement = session.statement.as_ref();
        rows.push_with(|row| {
            row.push(DatumRef::Int4(session.pid));
            for value in
                [session.client.as_str(), &session.user, &session.application, session.state]
            {
                row.push(DatumRef::Text(value));
            }
            row.push(DatumRef::Timestamptz(session.state_since));
            row.push(text(statement.map(|(text, _)| &**text)));
            row.push(statement.map_or(DatumRef::Null, |(_, at)| DatumRef::Timestamptz(*at)));
            let open = session.transactions.first();
            row.push(open.map_or(DatumRef::Null, |txn| DatumRef::Int8(txn.0 as i64)));
            row.push(session.transaction_since.map_or(DatumRef::Null, DatumRef::Timestamptz));
            row.push(text(waits_for));
            row.push(blocker.map_or(DatumRef::Null, |session| DatumRef::Int4(session.pid)));
        });
    }
    rows
}

/// Returns the rows of `clearway.snapshots`.
pub(crate) fn snapshot_rows(sessions: &[SessionInfo], engine: &Engine) -> RowBatch {
    let int = |n: u64| DatumRef::Int8(i64::try_from(n).unwrap_or(i64::MAX));
    let mut rows = RowBatch::new();
    for session in sessions {
        let Some((snapshot, since)) = session.snapshot else { continue };
        rows.push_with(|row| {
            row.push(DatumRef::Int4(session.pid));
            row.push(int(snapshot.0));
            row.push(DatumRef::Timestamptz(since));
            row.push(int(engine.log_bytes_since(snapshot)));
            row.push(int(engine.version_bytes()));
            row.push(int(engine.version_file_bytes()));
            row.push(text(session.statement.as_ref().map(|(text, _)| &**text)));
        });
    }
    rows
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use clearway_coordinator::LockName;

    pub(crate) fn session(pid: i32, transactions: &[u64]) -> SessionInfo {
        SessionInfo {
            pid,
            client: "unix".into(),
            user: "me".into(),
            application: String::new(),
            state: "active",
            state_since: 0,
            statement: None,
            transaction_since: None,
            snapshot: None,
            transactions: transactions.iter().map(|txn| TxnId(*txn)).collect(),
            waits_for: Some("client"),
        }
    }

    #[test]
    fn last_worker_ends_a_roll_call() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let done: Done = Box::new(move |all| sender.send(all).unwrap());
        let roll =
            Roll(Latch::new(&ROLL, Collected { sessions: Vec::new(), left: 2, done: Some(done) }));
        roll.add(vec![session(3, &[])], true);
        roll.add(vec![session(2, &[])], false);
        assert!(receiver.try_recv().is_err());
        roll.add(vec![session(1, &[])], true);
        assert_eq!(receiver.recv().unwrap().iter().map(|s| s.pid).collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn lock_wait_overrides_what_the_session_reports() {
        let sessions = [session(1, &[7]), session(2, &[8, 9])];
        let wait = LockWaitView {
            waiter: TxnId(9),
            lock: Some(LockName::default()),
            blockers: vec![TxnId(7), TxnId(5)],
            ..LockWaitView::default()
        };
        let rows = rows(&sessions, &[wait]);
        let ends =
            |row: usize| [10, 11].map(|column| rows.get(row).get(column).unwrap().to_owned());
        assert_eq!(ends(0), ["client".into(), clearway_types::Datum::Null]);
        assert_eq!(ends(1), ["lock".into(), clearway_types::Datum::Int4(1)]);
    }
}
