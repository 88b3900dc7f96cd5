//! One session: generates its next statement, runs it, and records what it saw.

mod cursors;
mod exports;
mod refusal;
mod replays;
mod signals;
mod whole;
mod written;

pub use signals::Mailboxes;

use crate::answers::{answer, end};
use crate::generate::{Block, Script};
use crate::history::{End, History};
use crate::life::Rotten;
use crate::model::{Answer, OVERFLOW, show};
use crate::schedule::Signals;
use crate::sql::Stmt;
use crate::trace::Trace;
use clearway_buffer::PAGE_SIZE;
use clearway_coordinator::{Client, Outcome, Port, Refusal, RunOptions, Step, TxnStatus};
use clearway_ir::{Plan, SessionEnv};
use clearway_testkit::{Duty, FaultPlan};
use clearway_types::{Lsn, RowBatch, SqlError, SqlResult};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Maximum number of times a statement is planned again because others change the catalog.
const REPLANS: u32 = 50;
/// COMMIT's answer in a failed block.
pub const NO_COMMIT: &str = "ROLLBACK";

/// State shared by the sessions of a life.
pub struct Shared {
    /// The recorded transactions.
    pub history: History,
    /// The clock of the history: the execution's steps.
    pub signals: Arc<Signals>,
    /// The trace.
    pub trace: Trace,
    /// Whether no new statement may start: the disk is gone.
    pub stopping: std::sync::atomic::AtomicBool,
    /// Number of answers: while it grows, the engine is alive.
    pub progress: Arc<std::sync::atomic::AtomicU64>,
    /// Number of parts of results that sessions have received.
    pub parts: std::sync::atomic::AtomicU64,
    /// Number of times sessions asked for more rows of a cursor.
    pub fetches: std::sync::atomic::AtomicU64,
    /// Number of connections that ended in a block.
    pub hang_ups: std::sync::atomic::AtomicU64,
    /// Number of statements that other sessions cancelled.
    pub interrupted: std::sync::atomic::AtomicU64,
    /// The signals between sessions.
    pub mailboxes: Arc<Mailboxes>,
    /// Number of blocks that the engine ran again successfully.
    pub replays: std::sync::atomic::AtomicU64,
    /// What each running session is doing, to report when nothing moves any more.
    pub doing: std::sync::Mutex<std::collections::BTreeMap<String, String>>,
    /// Whether the disk may fail, so that any error is possible.
    pub faults: std::sync::atomic::AtomicBool,
    /// The disk's fault plan.
    pub plan: Option<Arc<FaultPlan>>,
    /// The completed backups.
    pub backups: std::sync::Mutex<Vec<Taken>>,
    /// The most recently exported snapshots.
    pub exports: std::sync::Mutex<Vec<exports::Export>>,
}

/// A backup.
#[derive(Clone, Debug)]
pub struct Taken {
    /// Its directory.
    pub target: String,
    /// The last acknowledged commit when it began.
    pub acknowledged: Lsn,
    /// The end of its log.
    pub end: Lsn,
}

impl Shared {
    /// Returns the time, in steps of all threads.
    pub fn now(&self) -> u64 {
        // Relaxed: there is one OS thread.
        self.signals.steps.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Returns the pages with a flipped bit, except for copies that nothing needs.
    pub fn rotten(&self) -> BTreeSet<Rotten> {
        let injected = self.plan.as_ref().map(|plan| plan.injected()).unwrap_or_default();
        let needed = injected.into_iter().filter(|hit| hit.duty == Duty::Detects);
        needed.filter_map(|hit| Some(Rotten::new(hit.path, hit.at? / PAGE_SIZE as u64))).collect()
    }

    /// Returns true if the engine stopped because a bit flipped in a page whose write was not yet
    /// known to be synced: it cannot tell that from a lost write.
    pub fn has_lost_a_write(&self, why: &str) -> bool {
        why.contains("the disk has lost a write")
            && self.rotten().iter().any(|page| page.explains(why))
    }

    /// Returns the completed backups.
    pub fn backups(&self) -> Vec<Taken> {
        self.backups.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Returns true if a session was cut off in a statement that may have committed. Its record may
    /// be in the log: between the record and the answer the engine frees dropped trees, and waits
    /// for their pages.
    pub fn commits_unanswered(&self) -> bool {
        let doing = self.doing.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let commits = ["runs COMMIT", "runs CREATE", "runs DROP", "runs TRUNCATE", "runs ALTER"];
        doing.values().any(|what| commits.iter().any(|commit| what.starts_with(commit)))
    }
}

enum State {
    Idle,
    Running {
        stmt: Stmt,
        replans: u32,
        /// The rows received so far, if they arrive in parts.
        rows: RowBatch,
    },
    /// The client gets no answer before the log is durable.
    Waiting {
        lsn: Lsn,
        number: Option<usize>,
    },
    Over,
}

/// A session.
pub struct Session {
    name: String,
    client: Option<Client>,
    script: Script,
    shared: Arc<Shared>,
    state: State,
    /// Statements of the open transaction.
    open: Vec<(Stmt, Answer)>,
    /// The snapshot of its queries.
    snapshot: Option<Lsn>,
    /// The block was behind others when one of its statements began. It may have been undone since.
    behind: bool,
    /// The snapshot of each statement, below SERIALIZABLE.
    views: Vec<Option<Lsn>>,
    /// The imported snapshot, which all statements must see.
    imported: Option<Lsn>,
    /// Number of transactions that imported snapshots.
    imports: u32,
    /// The step at which it began.
    began: u64,
    /// Turns of the event loop before the next statement: a client that waits, in a block with its
    /// locks.
    thinks: u64,
    /// Signals from other sessions.
    inbox: signals::Inbox,
    /// Its cursors.
    cursors: Vec<cursors::Cursor>,
    /// The savepoints of the open transaction.
    savepoints: Vec<u8>,
    /// The statement that runs when a conflicting cursor has been read.
    postponed: Option<Stmt>,
    /// The last acknowledged commit when the statement began.
    acknowledged: Lsn,
    /// Statements that are still to run.
    left: u64,
    number: u32,
}

impl Session {
    /// Creates a session that runs `statements` statements and then finishes its transaction.
    pub fn new(
        port: &mut Port,
        (number, pid): (u32, i32),
        name: String,
        mut script: Script,
        shared: Arc<Shared>,
        left: u64,
    ) -> Self {
        let client = Some(Client::new(port, number));
        let inbox = signals::Inbox::new(pid, &shared.mailboxes);
        script.set_others(shared.mailboxes.others(pid));
        Self {
            name,
            client,
            script,
            shared,
            state: State::Idle,
            open: Vec::new(),
            snapshot: None,
            behind: false,
            views: Vec::new(),
            imported: None,
            imports: 0,
            began: 0,
            thinks: 0,
            inbox,
            cursors: Vec::new(),
            savepoints: Vec::new(),
            postponed: None,
            acknowledged: Lsn(0),
            left,
            number,
        }
    }

    /// Returns true if it has nothing more to do.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    fn block(&self) -> Block {
        match self.client.as_ref().map(Client::status) {
            Some(TxnStatus::InBlock) => Block::Open,
            Some(TxnStatus::Failed) => Block::Failed,
            _ => Block::None,
        }
    }

    fn note_state(&self) {
        let text = match &self.state {
            State::Idle => "idle".into(),
            State::Running { stmt, .. } => format!("runs {}", stmt.short()),
            State::Waiting { lsn, .. } => format!("waits for {lsn}"),
            State::Over => "over".into(),
        };
        let mut doing = self.shared.doing.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        doing.insert(self.name.clone(), format!("{text} ({:?})", self.block()));
    }

    /// Advances as far as possible; returns whether it did anything. Fails if the engine's
    /// behaviour cannot be right.
    pub fn advance(&mut self, port: &mut Port) -> Result<bool, String> {
        self.take_signals();
        let moved = self.advance_all(port);
        self.note_state();
        moved
    }

    fn advance_all(&mut self, port: &mut Port) -> Result<bool, String> {
        let mut moved = false;
        if let Some(client) = &mut self.client
            && !client.is_running()
        {
            // The transaction may have been undone.
            drop(client.resume());
        }
        loop {
            // Relaxed: there is one OS thread.
            let stopping = self.shared.stopping.load(std::sync::atomic::Ordering::Relaxed);
            match std::mem::replace(&mut self.state, State::Over) {
                State::Over => return Ok(moved),
                State::Idle if self.thinks > 0 && !stopping => {
                    self.thinks -= 1;
                    self.state = State::Idle;
                    return Ok(true);
                }
                State::Idle => {
                    let block = self.block();
                    let Some(client) = self.client.as_mut() else { return Ok(moved) };
                    if (self.left == 0 || stopping) && block == Block::None {
                        if let Some(client) = self.client.take() {
                            client.close();
                        }
                        return Ok(true);
                    }
                    if self.inbox.take_end() || block != Block::None && self.script.hangs_up() {
                        self.hang_up(port, None);
                        continue;
                    }
                    self.left = self.left.saturating_sub(1);
                    self.inbox.forget();
                    self.script.set_cursors(cursors::numbers(&self.cursors));
                    self.acknowledged = self.shared.history.acknowledged_up_to();
                    let exported = self.shared.exported();
                    let stmt = match self.postponed.take() {
                        _ if stopping => Stmt::Rollback,
                        Some(stmt) => stmt,
                        None => self.script.next(block, &client.catalog(), &exported),
                    };
                    let stmt = self.before(stmt);
                    if self.open.is_empty() {
                        self.began = self.shared.now();
                    }
                    self.announce(port, &stmt);
                    self.start(port, stmt, 0)?;
                }
                State::Running { stmt, replans, rows } if self.thinks > 0 && !stopping => {
                    self.thinks -= 1;
                    self.state = State::Running { stmt, replans, rows };
                    return Ok(true);
                }
                State::Running { stmt, .. } if self.ends_in(&stmt) => {
                    self.hang_up(port, Some(stmt))
                }
                State::Running { stmt, replans, mut rows } => {
                    let Some(client) = self.client.as_mut() else { return Ok(moved) };
                    match client.resume() {
                        step if matches!(stmt, Stmt::Cursor(_))
                            && !matches!(step, Step::Pending) =>
                        {
                            self.cursor_step(port, stmt, replans, step)?;
                            // The other sessions run before it asks for more.
                            return Ok(true);
                        }
                        Step::Pending => {
                            self.cancel_at_times();
                            self.state = State::Running { stmt, replans, rows };
                            return Ok(moved);
                        }
                        Step::Rows(part) => {
                            self.shared.parts.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                            rows.append(&part.rows);
                            self.cancel_at_times();
                            self.thinks = self.script.leaves_unread();
                            self.state = State::Running { stmt, replans, rows };
                            // The other sessions run before it asks for more.
                            return Ok(true);
                        }
                        Step::Done(Ok(outcome)) => {
                            rows.append(&outcome.rows);
                            self.done(port, stmt, Ok(Outcome { rows, ..outcome }))?;
                        }
                        step => self.after(port, stmt, replans, step)?,
                    }
                }
                State::Waiting { lsn, number } => {
                    if port.engine().durable() >= lsn {
                        if let Some(number) = number {
                            self.shared.history.tell(number, self.shared.now());
                        }
                        self.state = State::Idle;
                    } else if stopping {
                        self.state = State::Idle;
                    } else {
                        port.want_durable(lsn);
                        self.state = State::Waiting { lsn, number };
                        return Ok(moved);
                    }
                }
            }
            moved = true;
        }
    }

    fn start(&mut self, port: &mut Port, stmt: Stmt, replans: u32) -> Result<(), String> {
        let text = match &stmt {
            Stmt::Cursor(what) => match what.query() {
                Some(query) => query,
                None => return self.use_cursor(port, stmt),
            },
            stmt => stmt.to_string(),
        };
        let Some(client) = self.client.as_mut() else { return Ok(()) };
        let planned = plan(&text, client);
        let plan = match planned {
            Ok(plan) => plan,
            Err(error) => {
                let step = client.fail(error);
                return self.after(port, stmt, replans, step);
            }
        };
        self.behind |= client.is_behind();
        let step = client.start(&plan, &self.inbox.env(), RunOptions::default());
        self.after(port, stmt, replans, step)
    }

    fn after(
        &mut self,
        port: &mut Port,
        stmt: Stmt,
        replans: u32,
        step: Step,
    ) -> Result<(), String> {
        match step {
            step if matches!(stmt, Stmt::Cursor(_)) => self.cursor_step(port, stmt, replans, step),
            Step::Pending => {
                self.state = State::Running { stmt, replans, rows: RowBatch::new() };
                Ok(())
            }
            Step::Rows(part) => {
                self.shared.parts.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                self.state = State::Running { stmt, replans, rows: part.rows };
                Ok(())
            }
            Step::Replan if replans < REPLANS => self.start(port, stmt, replans + 1),
            Step::Replan => Err(format!("{}: planned {REPLANS} times", stmt.short())),
            Step::Done(result) => self.done(port, stmt, result),
        }
    }

    fn done(
        &mut self,
        port: &mut Port,
        stmt: Stmt,
        result: Result<Outcome, Refusal>,
    ) -> Result<(), String> {
        use std::sync::atomic::Ordering::Relaxed; // there is one OS thread
        self.shared.progress.fetch_add(1, Relaxed);
        let (answer, wait) = match result {
            Ok(outcome) => {
                if let Stmt::Backup(target) = &stmt {
                    let taken = Taken {
                        target: target.clone(),
                        acknowledged: self.acknowledged,
                        end: end(&outcome.rows)?,
                    };
                    self.shared
                        .backups
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner)
                        .push(taken);
                }
                self.share(&stmt, &outcome)?;
                (answer(&stmt, &outcome)?, outcome.wait)
            }
            Err(refusal) => (self.refusal(port, &stmt, &refusal.error)?, refusal.wait),
        };
        let shown = show(&answer);
        self.shared.trace.event(
            "session",
            format!("{} {} {shown} {wait}", self.name, stmt.short()).as_bytes(),
            || format!("{} {} -> {shown:.200} (wait {wait})", self.name, stmt.short()),
        );
        self.state = State::Idle;
        self.follow_replay()?;
        self.think(&stmt);
        match self.block() {
            // An error in a block, ROLLBACK TO and the like: the transaction continues or has
            // failed.
            Block::Open
                if matches!(answer, Answer::Refused(_) | Answer::Duplicate | Answer::Violated) =>
            {
                let (number, stmt) = (self.number, stmt.short());
                return Err(format!("session {number}: {stmt}: the block continues after {shown}"));
            }
            Block::Open | Block::Failed => {
                let saw = self.client.as_ref().and_then(Client::reads_at);
                self.check_view(&stmt, &answer, saw)?;
                self.follow_savepoints(&stmt, &answer);
                self.open.push((stmt, answer));
                let mut alone = None;
                if let Some((Stmt::BeginAt { .. } | Stmt::BeginReadOnly { each: false }, _)) =
                    self.open.first()
                {
                    let looks = self.open.last().is_some_and(|(stmt, _)| stmt.looks());
                    self.views.push(saw.filter(|_| looks));
                } else if self.open.last().is_some_and(|(stmt, _)| stmt.finds()) {
                    self.snapshot = saw;
                    alone = self.write_down_alone();
                }
                self.write_down_cursors(alone);
            }
            Block::None => {
                self.end_cursors();
                let end = match (&stmt, &answer) {
                    (Stmt::Backup(_), _) => None,
                    _ if self.was_undone() => Some(End::Aborted),
                    // If it was undone, it had no locks when it was rolled back: its answers may be
                    // out of date.
                    (Stmt::Rollback, Answer::Done) | (Stmt::Commit, Answer::Refused(_))
                        if self.behind =>
                    {
                        Some(End::Aborted)
                    }
                    (Stmt::Rollback, Answer::Done) | (_, Answer::Duplicate | Answer::Violated) => {
                        Some(End::RolledBack)
                    }
                    (_, Answer::Refused(why)) if why == OVERFLOW => Some(End::RolledBack),
                    (Stmt::Commit, Answer::Refused(why)) if why == NO_COMMIT => {
                        Some(End::RolledBack)
                    }
                    (_, Answer::Refused(_)) => Some(End::Aborted),
                    _ => Some(End::Committed),
                };
                if self.open.is_empty() {
                    self.snapshot = self.client.as_ref().and_then(Client::reads_at);
                }
                self.open.push((stmt, answer));
                let number = end.map(|end| self.write_down(end, wait));
                self.open.clear();
                self.behind = false;
                self.state = State::Waiting { lsn: wait, number };
            }
        }
        Ok(())
    }

    /// Draws whether the connection ends during this statement. Not during COMMIT: its outcome
    /// would be unknown.
    fn ends_in(&mut self, stmt: &Stmt) -> bool {
        !self.open.is_empty() && *stmt != Stmt::Commit && self.script.hangs_up()
    }

    /// Ends the connection, in a statement if one is given. The next connection gets the same
    /// number at once.
    fn hang_up(&mut self, port: &mut Port, running: Option<Stmt>) {
        // Relaxed, here and below: there is one OS thread.
        self.shared.progress.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.shared
            .trace
            .event("session", self.name.as_bytes(), || format!("{} hangs up", self.name));
        self.shared.hang_ups.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if let Some(client) = self.client.replace(Client::new(port, self.number)) {
            client.close();
        }
        self.end_cursors();
        self.open.extend(running.map(|stmt| (stmt, Answer::Done)));
        if !self.open.is_empty() {
            self.write_down(End::Aborted, Lsn(0));
        }
        self.state = State::Idle;
    }

    /// Records the unfinished transaction at the end of the life.
    pub fn leave(&mut self) {
        self.end_cursors();
        let mut end = End::Aborted;
        if let State::Running { stmt, .. } = std::mem::replace(&mut self.state, State::Over) {
            let alone = self.open.is_empty() && !stmt.begins() && !matches!(stmt, Stmt::Backup(_));
            if alone || stmt == Stmt::Commit {
                end = End::Unanswered;
            }
            self.open.push((stmt, Answer::Done));
        }
        if !self.open.is_empty() {
            self.write_down(end, Lsn(0));
        }
    }
}

/// Plans a text with the client's catalog.
pub fn plan(sql: &str, client: &Client) -> SqlResult<Arc<Plan>> {
    let parsed = clearway_planner::parse(sql)?;
    let stmt = parsed.first().ok_or_else(|| SqlError::internal("no statement"))?;
    Ok(Arc::new(clearway_planner::plan(stmt, &client.catalog(), &[], &SessionEnv::default())?))
}
