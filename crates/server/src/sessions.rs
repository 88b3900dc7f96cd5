//! Who is connected and what each session does: `clearway.sessions`.
//!
//! A session publishes nothing of what it does. Whoever looks asks every worker, and each adds what
//! its sessions tell of themselves, in bounded pieces. So a look costs the sessions, and a
//! statement pays nothing for it.
//!
//! Invariant: a roll is over when every worker has answered it once, and its end is told once.
//!
//! Locking: what has been told is behind a latch, held to append a piece. A crash leaves nothing.

use crate::shared::{Note, Shared};
use clearway_coordinator::{Engine, LockWait};
use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_types::{DatumRef, Lsn, RowBatch, TxnId};
use hashbrown::HashMap;
use std::sync::Arc;

/// What a session tells of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its backend id.
    pub pid: i32,
    /// Where its client is.
    pub client: String,
    /// The user that it has logged in as.
    pub user: String,
    /// `application_name`.
    pub application: String,
    /// What it does, in PostgreSQL's words.
    pub state: &'static str,
    /// Since when, in microseconds since 2000-01-01 UTC.
    pub state_since: i64,
    /// The last statement that it has begun, and when the message came that asked for it.
    pub statement: Option<(Arc<str>, i64)>,
    /// When its transaction began, if it is in one.
    pub transaction_since: Option<i64>,
    /// The snapshot that it has open, and since when.
    pub snapshot: Option<(Lsn, i64)>,
    /// Those at work for it, the open one first.
    pub transactions: Vec<TxnId>,
    /// What it waits for, as far as it knows: not the locks.
    pub waits_for: Option<&'static str>,
}

type Done = Box<dyn FnOnce(Vec<SessionInfo>) + Send>;

struct Told {
    sessions: Vec<SessionInfo>,
    /// Workers that have more to tell.
    left: usize,
    done: Option<Done>,
}

static ROLL: Class = Class::new("server.roll");

/// A question to all workers: who is there?
pub struct Roll(Latch<Told>);

impl Roll {
    /// Asks all workers. `done` takes the answer in the thread of the last that answers, by backend
    /// id; never, if the server stops meanwhile.
    pub(crate) fn call(shared: &Shared, done: impl FnOnce(Vec<SessionInfo>) + Send + 'static) {
        let told =
            Told { sessions: Vec::new(), left: shared.workers(), done: Some(Box::new(done)) };
        let roll = Arc::new(Self(Latch::new(&ROLL, told)));
        for worker in 0..shared.workers() {
            shared.post(worker, Note::Roll(roll.clone()));
        }
    }

    /// A worker tells of some of its sessions; `last`: there are no more of them.
    pub(crate) fn tell(&self, mut sessions: Vec<SessionInfo>, last: bool) {
        let (mut all, done) = {
            let mut told = self.0.lock();
            told.sessions.append(&mut sessions);
            told.left -= usize::from(last);
            if told.left > 0 {
                return;
            }
            (std::mem::take(&mut told.sessions), told.done.take())
        };
        all.sort_unstable_by_key(|session| session.pid);
        if let Some(done) = done {
            done(all);
        }
    }
}

/// Which session each transaction is at work for.
pub(crate) fn by_transaction(sessions: &[SessionInfo]) -> HashMap<TxnId, &SessionInfo> {
    sessions
        .iter()
        .flat_map(|session| session.transactions.iter().map(move |txn| (*txn, session)))
        .collect()
}

pub(crate) fn text(text: Option<&str>) -> DatumRef<'_> {
    text.map_or(DatumRef::Null, DatumRef::Text)
}

/// A text; NULL for an empty one.
pub(crate) fn not_empty(name: &str) -> DatumRef<'_> {
    text(Some(name).filter(|name| !name.is_empty()))
}

/// The rows of `clearway.sessions`; `waits`: those in progress.
pub(crate) fn rows(sessions: &[SessionInfo], waits: &[LockWait]) -> RowBatch {
    let by_transaction = by_transaction(sessions);
    let waits: HashMap<TxnId, &LockWait> = waits.iter().map(|wait| (wait.waiter, wait)).collect();
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

/// The rows of `clearway.snapshots`.
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
    fn the_last_worker_ends_a_roll() {
        let (tell, hear) = std::sync::mpsc::channel();
        let done: Done = Box::new(move |all| tell.send(all).unwrap());
        let roll =
            Roll(Latch::new(&ROLL, Told { sessions: Vec::new(), left: 2, done: Some(done) }));
        roll.tell(vec![session(3, &[])], true);
        roll.tell(vec![session(2, &[])], false);
        assert!(hear.try_recv().is_err());
        roll.tell(vec![session(1, &[])], true);
        assert_eq!(hear.recv().unwrap().iter().map(|s| s.pid).collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn a_lock_goes_before_what_a_session_knows() {
        let sessions = [session(1, &[7]), session(2, &[8, 9])];
        let wait = LockWait {
            waiter: TxnId(9),
            lock: Some(LockName::default()),
            blockers: vec![TxnId(7), TxnId(5)],
            ..LockWait::default()
        };
        let rows = rows(&sessions, &[wait]);
        let ends =
            |row: usize| [10, 11].map(|column| rows.get(row).get(column).unwrap().to_owned());
        assert_eq!(ends(0), ["client".into(), clearway_types::Datum::Null]);
        assert_eq!(ends(1), ["lock".into(), clearway_types::Datum::Int4(1)]);
    }
}
