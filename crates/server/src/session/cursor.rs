//! SQL cursors: DECLARE, FETCH, MOVE, CLOSE.
//!
//! A cursor is a portal with an SQL name. DECLARE starts its query, so that it sees the snapshot of
//! that moment, and keeps the first part of the result. FETCH returns rows from that part and reads
//! the next part when it is used up. So a cursor costs one part, the snapshot of its query, and no
//! lock beyond those that its query takes. A FETCH whose Execute may return only some of its rows
//! keeps all of them, within the memory limit of a statement (53200 beyond it).
//!
//! Invariants
//! 1. While a FETCH runs, its cursor's portal is `Done`: the FETCH owns the rows and the suspended
//!    statement, and returns the rest to the portal when it ends. If it fails, the cursor cannot be
//!    run any more, as in PostgreSQL.
//! 2. A cursor is declared in a transaction block and ends before it: COMMIT and ROLLBACK close all
//!    portals before they run. ROLLBACK TO ends the portals that were created after the savepoint.
//! 3. If a block has failed and has no savepoint to return to, no portal keeps a suspended
//!    statement, and so none keeps a snapshot.
//!
//! Locking: none. A crash leaves nothing.
//!
//! Source: PostgreSQL 15, portalcmds.c and `DoPortalRunFetch` in pquery.c.

use super::prepared::{Portal, PortalState, Rest, ResultColumns, ResultFormats};
use super::run::{Origin, Run};
use super::{Context, Session};
use clearway_coordinator::{Outcome, Tag, TxnStatus};
use clearway_ir::statement::{Fetch, FetchRows};
use clearway_ir::{Charge, Plan, Statement};
use clearway_types::{Lsn, RowBatch, SqlError, SqlResult, SqlState};
use clearway_wire::row::Format;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// The part of a portal that only DECLARE sets.
#[derive(Default)]
pub struct Declared {
    no_scroll: bool,
    binary: bool,
    /// Number of rows before the current position.
    position: u64,
    /// The current row, encoded; `None` before the first row and after the last.
    current: Option<Box<[u8]>>,
}

/// How a statement uses a cursor.
pub(super) enum CursorUse {
    /// Creates it.
    Declare {
        name: Box<str>,
        declared: Declared,
    },
    Fetch(Fetching),
}

/// A FETCH or MOVE in progress.
pub(super) struct Fetching {
    cursor: Box<str>,
    /// Rows still to be skipped.
    skip: usize,
    /// Rows to take after that.
    take: usize,
    /// A MOVE: takes rows without returning them.
    moves: bool,
    /// Rows skipped so far.
    skipped: usize,
    /// The rows of a FETCH whose Execute may return only some of them.
    kept: RowBatch,
    charge: Charge,
}

/// The direction of a FETCH.
enum Motion {
    Stay,
    Forward { skip: usize, take: usize },
}

fn no_cursor(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_CURSOR, format!("cursor \"{name}\" does not exist"))
}

fn not_ready(text: String) -> SqlError {
    SqlError::new(SqlState(*b"55000"), text)
}

fn cannot_run(name: &str) -> SqlError {
    not_ready(format!("portal \"{name}\" cannot be run"))
}

impl Declared {
    fn motion(&self, rows: FetchRows) -> SqlResult<Motion> {
        let skip = |rows: i64| usize::try_from(rows).unwrap_or(usize::MAX);
        match rows {
            FetchRows::By(n) if n > 0 => Ok(Motion::Forward { skip: 0, take: skip(n) }),
            FetchRows::AllForward => Ok(Motion::Forward { skip: 0, take: usize::MAX }),
            FetchRows::Relative(n) if n > 0 => Ok(Motion::Forward { skip: skip(n - 1), take: 1 }),
            FetchRows::Absolute(n) if u64::try_from(n).is_ok_and(|n| n > self.position) => {
                Ok(Motion::Forward { skip: skip(n - 1 - self.position as i64), take: 1 })
            }
            FetchRows::By(0) | FetchRows::Relative(0) => Ok(Motion::Stay),
            _ => Err(self.backward()),
        }
    }

    fn backward(&self) -> SqlError {
        if self.no_scroll {
            return not_ready("cursor can only scan forward".to_owned())
                .hint("Declare it with SCROLL option to enable backward scan.");
        }
        SqlError::unsupported("a backward scan of a cursor").hint("A cursor moves forward only.")
    }
}

impl Run {
    fn fetching(&self) -> Option<&Fetching> {
        match &self.cursor {
            Some(CursorUse::Fetch(fetching)) => Some(fetching),
            _ => None,
        }
    }

    /// Returns true for a DECLARE whose query is running.
    pub(super) fn declares(&self) -> bool {
        matches!(self.cursor, Some(CursorUse::Declare { .. }))
    }

    /// Returns true for a FETCH or MOVE.
    pub(super) fn fetches(&self) -> bool {
        self.fetching().is_some()
    }

    /// Returns true for a MOVE.
    pub(super) fn moves(&self) -> bool {
        self.fetching().is_some_and(|fetching| fetching.moves)
    }

    /// Returns true if the client receives no message about rows, unless there are rows.
    pub(super) fn returns_nothing(&self) -> bool {
        self.plan.columns.is_empty()
            && self.cursor.is_none()
            && !matches!(self.plan.statement, Statement::Copy(_))
    }

    /// Returns true if the client receives the rows.
    pub(super) fn shows_rows(&self) -> bool {
        !self.plan.columns.is_empty() && !self.moves()
    }

    /// Returns the maximum number of rows to return now, or to take from the cursor.
    pub(super) fn row_limit(&self) -> usize {
        self.fetching().map_or(self.execute_limit(), |fetching| fetching.take)
    }

    /// Returns the row limit of the Execute.
    fn execute_limit(&self) -> usize {
        match self.origin {
            // COPY has neither columns nor a row limit.
            Origin::Portal { max_rows, .. } if max_rows > 0 && self.shows_rows() => {
                max_rows as usize
            }
            _ => usize::MAX,
        }
    }

    /// Returns true for a FETCH whose Execute may return only some of its rows. It takes all of
    /// them from the cursor before it returns the first: the cursor moves at once, as in
    /// PostgreSQL, and the rest does not depend on it any more.
    pub(super) fn keeps_rows(&self) -> bool {
        let limit = self.execute_limit();
        limit < usize::MAX && self.fetching().is_some_and(|fetching| fetching.take >= limit)
    }

    /// Takes rows that are not sent now: those of a MOVE, and those of a FETCH that keeps them.
    /// Returns false if the rows are to be sent.
    pub(super) fn takes(&mut self, rows: &RowBatch, range: Range<usize>) -> SqlResult<bool> {
        let keeps = self.keeps_rows();
        let Some(CursorUse::Fetch(fetching)) = &mut self.cursor else { return Ok(false) };
        if keeps {
            range.for_each(|i| fetching.kept.push_encoded(rows.get(i).bytes()));
            fetching.charge.grow(&self.env.memory, fetching.kept.memory())?;
        }
        Ok(keeps || fetching.moves)
    }

    /// Returns true if the maximum number of rows for now has been returned.
    pub(super) fn is_full(&self) -> bool {
        self.sent >= self.row_limit()
    }

    /// Returns the range of rows to send now, out of `rows` rows of which those before `pos` have
    /// been sent.
    pub(super) fn window(&mut self, rows: usize, mut pos: usize) -> (usize, usize) {
        if let Some(CursorUse::Fetch(fetching)) = &mut self.cursor {
            let skipped = fetching.skip.min(rows - pos);
            fetching.skip -= skipped;
            fetching.skipped += skipped;
            pos += skipped;
        }
        (pos, pos + (rows - pos).min(self.row_limit().saturating_sub(self.sent)))
    }
}

impl Session {
    /// Executes DECLARE: runs the query up to its first rows.
    pub(super) fn run_declare(&mut self, cx: &mut Context<'_>, mut run: Run) {
        match self.begin_declare(&mut run) {
            Ok(()) => self.carry_out(cx, run),
            Err(e) => self.complete(cx, run, Err(e)),
        }
    }

    fn begin_declare(&self, run: &mut Run) -> SqlResult<()> {
        let Statement::Declare { name, plan, binary, no_scroll } = &run.plan.statement else {
            return Ok(());
        };
        // Several statements in one message count as a block here, as in PostgreSQL.
        let in_block = matches!(run.origin, Origin::Simple) && run.implicit_block;
        if !in_block && self.status() != TxnStatus::InBlock {
            let text = "DECLARE CURSOR can only be used in transaction blocks";
            return Err(SqlError::new(SqlState::NO_ACTIVE_TRANSACTION, text));
        }
        if self.portals.named.contains_key(name.as_str()) {
            return Err(SqlError::new(
                SqlState(*b"42P03"),
                format!("cursor \"{name}\" already exists"),
            ));
        }
        let outer = run
            .statement
            .as_ref()
            .ok_or_else(|| SqlError::internal("DECLARE has no statement text"))?;
        run.statement = Some(Rc::new(outer.inner(plan.clone())));
        let declared = Declared { no_scroll: *no_scroll, binary: *binary, ..Declared::default() };
        run.cursor = Some(CursorUse::Declare { name: name.as_str().into(), declared });
        run.plan = plan.clone();
        Ok(())
    }

    /// Creates the cursor when its query has produced its first part, or all of its rows.
    pub(super) fn declared(&mut self, cx: &mut Context<'_>, run: Run, rows: RowBatch, rest: Rest) {
        self.statement_ended(cx);
        self.warn_about_unknown_pids();
        let Run { statement, plan, env, origin, cursor, .. } = run;
        let Some(CursorUse::Declare { name, declared }) = cursor else { return };
        let formats =
            ResultFormats::All(if declared.binary { Format::Binary } else { Format::Text });
        let (state, depth) =
            (PortalState::Rows { rows, pos: 0, rest }, self.config.settings.savepoints());
        let portal =
            Portal { statement, plan, env, formats, state, depth, declared: Some(declared) };
        self.portals.named.insert(name, portal);
        self.send_completion(cx, &origin, Tag::Plain("DECLARE CURSOR"));
    }

    /// Executes FETCH or MOVE.
    pub(super) fn run_fetch(&mut self, cx: &mut Context<'_>, run: Run) {
        let Statement::Fetch(fetch) = &run.plan.statement else { return };
        let fetch = fetch.clone();
        match self.motion(&fetch) {
            Err(e) => self.complete(cx, run, Err(e)),
            Ok(Motion::Stay) => self.fetch_current(cx, run, &fetch),
            Ok(Motion::Forward { skip, take }) => {
                let Fetch { cursor, moves, .. } = fetch;
                let fetching = Fetching {
                    cursor: cursor.as_str().into(),
                    skip,
                    take,
                    moves,
                    skipped: 0,
                    kept: RowBatch::new(),
                    charge: Charge::default(),
                };
                self.fetch_forward(cx, run, fetching);
            }
        }
    }

    fn motion(&self, fetch: &Fetch) -> SqlResult<Motion> {
        let portal = self
            .portals
            .named
            .get(fetch.cursor.as_str())
            .ok_or_else(|| no_cursor(&fetch.cursor))?;
        let can_run = match portal.state {
            PortalState::New => matches!(portal.plan.statement, Statement::Query(_)),
            PortalState::Rows { .. } | PortalState::Done { tag: Some(_) } => {
                !portal.plan.columns.is_empty()
            }
            PortalState::Undefined | PortalState::Done { tag: None } => false,
        };
        if !can_run {
            return Err(cannot_run(&fetch.cursor));
        }
        portal.declared.as_ref().unwrap_or(&Declared::default()).motion(fetch.rows)
    }

    /// Executes FETCH 0: returns the current row again, if there is one.
    fn fetch_current(&mut self, cx: &mut Context<'_>, mut run: Run, fetch: &Fetch) {
        let Some(portal) = self.portals.named.get(fetch.cursor.as_str()) else { return };
        let declared = portal.declared.as_ref();
        let current = declared.and_then(|declared| declared.current.as_deref());
        let count = u64::from(current.is_some());
        if fetch.moves {
            self.statement_ended(cx);
            return self.send_completion(cx, &run.origin, Tag::Move(count));
        }
        let mut rows = RowBatch::new();
        if let Some(row) = current {
            if let Some(declared) = declared.filter(|declared| declared.no_scroll) {
                let e = declared.backward();
                return self.complete(cx, run, Err(e));
            }
            rows.push_encoded(row);
        }
        run.binary = declared.is_some_and(|declared| declared.binary);
        run.plan = portal.plan.clone();
        self.deliver(
            cx,
            run,
            Outcome { rows, tag: Tag::Fetch(count), wait: Lsn(0), notices: Vec::new() },
        );
    }

    fn fetch_forward(&mut self, cx: &mut Context<'_>, mut run: Run, fetching: Fetching) {
        let Some(portal) = self.portals.named.get_mut(&*fetching.cursor) else { return };
        run.binary = portal.declared.as_ref().is_some_and(|declared| declared.binary);
        run.plan = portal.plan.clone();
        run.statement.clone_from(&portal.statement);
        run.columns = ResultColumns::Fixed;
        run.cursor = Some(CursorUse::Fetch(fetching));
        let state = std::mem::replace(&mut portal.state, PortalState::Done { tag: None });
        let (rows, pos, rest) = match state {
            PortalState::Rows { rows, pos, rest } => (rows, pos, rest),
            PortalState::Done { tag: Some(tag) } => (RowBatch::new(), 0, Rest::End(tag)),
            PortalState::New | PortalState::Undefined | PortalState::Done { tag: None } => {
                // A portal of the extended protocol that has not been executed.
                run.env = portal.env.clone();
                return self.carry_out(cx, run);
            }
        };
        self.hand_out(cx, run, rows, pos, rest);
    }

    /// Ends a FETCH that has all rows it asked for, or all that there are. `state` is the rest of
    /// the cursor and `last` the last row passed. `at_end` means that the FETCH asked for more rows
    /// than there are.
    pub(super) fn fetched(
        &mut self,
        cx: &mut Context<'_>,
        mut run: Run,
        state: PortalState,
        last: Option<Box<[u8]>>,
        at_end: bool,
    ) {
        let keeps = run.keeps_rows();
        let Some(CursorUse::Fetch(fetching)) = run.cursor.take() else { return };
        if let Some(portal) = self.portals.named.get_mut(&*fetching.cursor) {
            portal.state = state;
            if let Some(declared) = &mut portal.declared {
                declared.position += (fetching.skipped + run.sent) as u64;
                declared.current = last.filter(|_| !at_end);
            }
        }
        self.warn_about_unknown_pids();
        let sent = run.sent as u64;
        let tag = if fetching.moves { Tag::Move(sent) } else { Tag::Fetch(sent) };
        if keeps {
            run.sent = 0;
            return self.hand_out(cx, run, fetching.kept, 0, Rest::End(tag));
        }
        run.cursor = Some(CursorUse::Fetch(fetching));
        self.ended(cx, &run, tag);
    }

    /// Executes CLOSE. It cannot close the portal that runs it.
    pub(super) fn close_cursor(
        &mut self,
        name: Option<&str>,
        origin: &Origin,
    ) -> SqlResult<&'static str> {
        let active = match origin {
            Origin::Portal { name, .. } => name.as_deref(),
            Origin::Simple => None,
        };
        let Some(name) = name else {
            self.portals.named.retain(|name, _| Some(&**name) == active);
            return Ok("CLOSE CURSOR ALL");
        };
        if Some(name) == active {
            let text = format!("cannot drop active portal \"{name}\"");
            return Err(SqlError::new(SqlState(*b"24000"), text));
        }
        self.portals.named.remove(name).map(|_| "CLOSE CURSOR").ok_or_else(|| no_cursor(name))
    }

    /// Returns the plan; for a FETCH with the columns of its cursor, for an EXECUTE with those of
    /// its statement. It has no columns if there is no such cursor or statement: only Execute
    /// reports that, as in PostgreSQL.
    pub(super) fn with_columns(&self, plan: Arc<Plan>) -> Arc<Plan> {
        let columns = match &plan.statement {
            Statement::Fetch(Fetch { cursor, moves: false, .. }) => {
                let portal = self.portals.named.get(cursor.as_str());
                portal.map_or(Vec::new(), |portal| portal.columns().to_vec())
            }
            Statement::Execute { name, .. } => match self.statement(name).map(|s| s.plan()) {
                // Two EXECUTEs may name each other; they fail when they are executed.
                Ok(plan) if !matches!(plan.statement, Statement::Execute { .. }) => {
                    self.with_columns(plan).columns.clone()
                }
                _ => Vec::new(),
            },
            _ => return plan,
        };
        Arc::new(Plan { columns, ..Plan::clone(&plan) })
    }

    /// Applies RELEASE: portals that were created after the savepoint now belong to the level
    /// before it.
    pub(super) fn release_portals(&mut self, savepoint: &str) {
        let Some(at) = self.config.settings.find_savepoint(savepoint) else { return };
        for portal in self.portals.named.values_mut().chain(&mut self.portals.unnamed) {
            portal.depth = portal.depth.min(at);
        }
    }

    /// Applies ROLLBACK TO: ends the portals that were created after the savepoint.
    pub(super) fn end_portals_after(&mut self, savepoint: &str) {
        let Some(at) = self.config.settings.find_savepoint(savepoint) else { return };
        let ends = |portal: &Portal| portal.depth > at;
        self.portals.named.retain(|_, portal| !ends(portal));
        if self.portals.unnamed.as_ref().is_some_and(ends) {
            self.portals.unnamed = None;
        }
    }

    /// Drops suspended statements of portals in a failed block: invariant 3.
    pub(super) fn abandon_portals(&mut self) {
        if self.status() != TxnStatus::Failed || self.config.settings.savepoints() > 0 {
            return;
        }
        for portal in self.portals.named.values_mut().chain(&mut self.portals.unnamed) {
            if matches!(portal.state, PortalState::Rows { .. }) {
                portal.state = PortalState::Done { tag: None };
            }
        }
    }
}
