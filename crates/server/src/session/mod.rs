//! One client's session: a state machine driven by bytes from its socket and events from the
//! engine. It never blocks.
//!
//! Invariants
//! 1. Messages are handled in order; the next one is read only when the previous one has been
//!    answered as far as possible.
//! 2. After an error in the extended protocol everything up to the next Sync is skipped.
//! 3. Replies leave at ReadyForQuery, in one send. They leave earlier only at Flush, at an error of
//!    the extended protocol, when COPY data is requested, when a statement reports progress, or
//!    when the buffer is full. Replies that are not released when the client's stream ends are
//!    dropped.
//! 4. A closed session has told the engine: its transaction is aborted and its cancel key removed.
//!
//! Locking: none; a session lives in its worker's thread. A crash leaves nothing.
//!
//! Source: PostgreSQL's documentation, "Frontend/Backend Protocol", "Message Flow".

mod copy;
mod cursor;
mod deadlines;
mod describe;
mod emit;
mod extended;
mod local;
mod messages;
mod prepared;
mod rest;
mod run;
mod signals;
mod simple;
mod sleep;
mod startup;
mod terminate;
mod whole;

pub use prepared::Prepared;

use crate::counters::Counters;
use crate::io::{Input, Io, ReadOutcome};
use crate::net::Stream;
use crate::plans::Plans;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::timers::Timers;
use clearway_coordinator::{Characteristics, Client, Port, TxnStatus};
use clearway_ir::{Catalog, Env, MemoryAccount, Plan, SessionEnv, Signal, StatementText};
use clearway_types::{Datum, Lsn, SqlError};
use clearway_wire::{backend, frontend};
use emit::Emit;
use hashbrown::HashMap;
use prepared::Portal;
use run::{Run, Task};
use simple::SimpleQuery;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// Messages handled for one session before the others get a turn.
const MESSAGES_A_TURN: usize = 256;

/// What a session works with during its turn.
pub struct Context<'a> {
    /// Access to the engine.
    pub port: &'a mut Port,
    /// The state shared by all workers.
    pub shared: &'a Arc<Shared>,
    /// Plans that statements of this worker's sessions share.
    pub plans: &'a mut Plans,
    /// The worker's deadlines.
    pub timers: &'a mut Timers,
    /// The worker's number.
    pub worker: u16,
    /// The LSN up to which the log is durable.
    pub durable: Lsn,
}

impl Context<'_> {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn counters(&self) -> &Counters {
        self.shared.counters(self.worker)
    }
}

/// What a session is doing.
enum Phase {
    /// Waits for a startup packet.
    Startup,
    /// Waits for a message.
    Idle,
    /// Waits for the engine.
    Running { task: Task },
    /// Sleeps in pg_sleep until the deadline with this ticket.
    Sleeping { run: Run, ticket: u64 },
    /// Waits in pg_terminate_backend until another session has ended.
    Ending(Box<terminate::Ending>),
    /// Is between two statements of a simple query.
    NextStatement,
    /// Sends rows.
    Emitting(Box<Emit>),
    /// Waits for COPY data.
    CopyIn,
    /// Ends when its output has been sent.
    Closing,
}

/// How a session continues after its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// An event will announce that it can continue.
    Waits,
    /// It has more to do at once.
    Again,
    /// It has ended and must be closed.
    Over,
}

/// One client's session.
pub struct Session {
    io: Io,
    input: Input,
    slot: u32,
    refused: bool,
    /// The client has asked for TLS, and for GSSAPI encryption.
    asked: startup::Asked,
    /// It came through the control socket.
    control: bool,
    client: Option<Client>,
    pid: i32,
    user: String,
    database: String,
    settings: Settings,
    synchronous_commit: bool,
    /// Those of a transaction that does not give its own.
    characteristics: Characteristics,
    /// Those that the settings show.
    shown_characteristics: Characteristics,
    deadlines: deadlines::Deadlines,
    env: Arc<SessionEnv>,
    signals: Arc<signals::Signals>,
    /// Another session has ended it.
    terminating: bool,
    statements: HashMap<Box<str>, Rc<Prepared>>,
    unnamed: Option<Rc<Prepared>>,
    portals: HashMap<Box<str>, Portal>,
    unnamed_portal: Option<Portal>,
    phase: Phase,
    skip_to_sync: bool,
    implicit_open: bool,
    simple: Option<SimpleQuery>,
    /// The text of the simple query that runs from the plan cache; kept for its room.
    simple_text: Arc<String>,
    copy: Option<copy::CopyIn>,
    txn_now: i64,
    /// When the message came that asked for the statement.
    statement_now: i64,
    /// The last statement that was begun; `None`: `simple_text`.
    last: Option<Rc<Prepared>>,
    /// It has waited since it was idle.
    has_waited: bool,
    idle_since: i64,
    seed: u64,
    query_memory: u64,
    /// When the worker last counted it as busy.
    pub epoch: u64,
    /// Whether the worker has it among those whose replies wait for the log.
    pub awaits: bool,
    /// Whether the worker has it in a list of sessions to look at again.
    pub listed: bool,
}

impl Session {
    /// Creates a session on a new connection. If `refused`, the client is told that there are too
    /// many connections.
    pub fn new(stream: Stream, slot: u32, refused: bool, shared: &Arc<Shared>) -> Self {
        let control = matches!(stream, Stream::Control(_));
        Self {
            io: Io::new(stream),
            input: Input::default(),
            slot,
            refused,
            asked: startup::Asked::default(),
            control,
            client: None,
            pid: 0,
            user: String::new(),
            database: String::new(),
            settings: Settings::new(
                "",
                shared.config.synchronous_commit,
                shared.config.default_transaction_isolation,
            ),
            synchronous_commit: true,
            characteristics: Characteristics::default(),
            shown_characteristics: Characteristics::default(),
            deadlines: deadlines::Deadlines::default(),
            env: Arc::default(),
            signals: Arc::new(signals::Signals::new(shared.clone())),
            terminating: false,
            statements: HashMap::new(),
            unnamed: None,
            portals: HashMap::new(),
            unnamed_portal: None,
            phase: Phase::Startup,
            skip_to_sync: false,
            implicit_open: false,
            simple: None,
            simple_text: Arc::default(),
            copy: None,
            txn_now: 0,
            statement_now: 0,
            last: None,
            has_waited: true,
            idle_since: 0,
            seed: shared.entropy.u64(),
            query_memory: shared.config.query_memory,
            epoch: 0,
            awaits: false,
            listed: false,
        }
    }

    /// The connection.
    pub fn stream(&mut self) -> &mut Stream {
        &mut self.io.stream
    }
    /// The backend id; 0 before the client has logged in.
    pub fn pid(&self) -> i32 {
        self.pid
    }
    /// Notes that the socket is readable; `closed` means that the client has closed its side.
    pub fn set_readable(&mut self, closed: bool) {
        self.io.readable = true;
        self.io.read_closed |= closed;
    }
    /// Notes that the socket is writable.
    pub fn set_writable(&mut self) {
        self.io.writable = true;
    }
    /// Returns the LSN that replies wait for, if any.
    pub fn waits_for(&self) -> Option<Lsn> {
        self.io.waits_for()
    }

    /// Proceeds as far as possible and sends what may be sent. `spare` is the worker's input
    /// buffer, lent to the session while it has none of its own.
    pub fn drive(&mut self, cx: &mut Context<'_>, spare: &mut Input) -> Turn {
        if self.input.is_empty() {
            std::mem::swap(&mut self.input, spare);
        }
        let mut turn = self.advance(cx);
        if self.flush(cx).is_err() {
            turn = Turn::Over;
        }
        if turn == Turn::Waits && !matches!(self.phase, Phase::Running { .. }) {
            self.let_go(cx);
        }
        if matches!(self.phase, Phase::Closing) && (self.io.is_flushed() || !self.io.writable) {
            turn = Turn::Over;
        }
        if self.input.is_empty() {
            std::mem::swap(&mut self.input, spare);
            spare.shrink();
        }
        let (received, sent) = self.io.take_traffic();
        cx.counters().traffic(received, sent);
        turn
    }

    fn flush(&mut self, cx: &Context<'_>) -> std::io::Result<()> {
        if self.io.is_full() {
            self.io.release();
        }
        self.io.flush(cx.durable)
    }

    fn advance(&mut self, cx: &mut Context<'_>) -> Turn {
        for _ in 0..MESSAGES_A_TURN {
            self.end_if_terminated(cx);
            if self.io.is_full() {
                if self.flush(cx).is_err() {
                    return Turn::Over;
                }
                if self.io.is_full() {
                    return Turn::Waits;
                }
            }
            match &mut self.phase {
                Phase::Running { .. }
                | Phase::Sleeping { .. }
                | Phase::Ending(_)
                | Phase::Closing => {
                    return Turn::Waits;
                }
                Phase::Emitting(_) => {
                    if let Phase::Emitting(emit) = std::mem::replace(&mut self.phase, Phase::Idle) {
                        self.emit(cx, *emit);
                    }
                    if matches!(self.phase, Phase::Emitting(_)) {
                        // A large result: other sessions get a turn after each part.
                        return Turn::Again;
                    }
                    continue;
                }
                Phase::NextStatement => {
                    self.next_simple(cx);
                    continue;
                }
                Phase::Startup | Phase::Idle | Phase::CopyIn => {}
            }
            match self.take_message(cx) {
                Ok(true) => {}
                Ok(false) => {
                    let expected = frontend::expected_len(self.input.bytes());
                    match self.io.read(&mut self.input, expected) {
                        Ok(ReadOutcome::Some) => {}
                        Ok(ReadOutcome::Nothing) => return Turn::Waits,
                        Ok(ReadOutcome::Closed) => self.end_of_input(cx),
                        Err(_) => return Turn::Over,
                    }
                }
                Err(fatal) => self.fatal(cx, &fatal),
            }
        }
        Turn::Again
    }

    /// Ends the session with an error.
    fn fatal(&mut self, cx: &Context<'_>, error: &SqlError) {
        cx.counters().error(error.state());
        backend::error(&mut self.io.out, backend::Severity::Fatal, error);
        self.io.release();
        self.phase = Phase::Closing;
    }

    /// Sends ReadyForQuery and releases everything before it.
    fn ready(&mut self, cx: &mut Context<'_>) {
        let status = match self.status() {
            TxnStatus::Idle => {
                self.drop_portals();
                b'I'
            }
            TxnStatus::InBlock => b'T',
            TxnStatus::Failed => b'E',
        };
        backend::ready_for_query(&mut self.io.out, status);
        self.io.release();
        self.phase = Phase::Idle;
        self.becomes_idle(cx);
        if status != b'I' {
            self.limit_silence(cx);
        }
    }

    /// Drops all portals at the end of their transaction.
    fn drop_portals(&mut self) {
        self.unnamed_portal = None;
        if !self.portals.is_empty() {
            self.portals.clear();
        }
    }

    fn status(&self) -> TxnStatus {
        self.client.as_ref().map_or(TxnStatus::Idle, Client::status)
    }

    fn catalog(&self, cx: &Context<'_>) -> Arc<Catalog> {
        self.client.as_ref().map_or_else(|| cx.port.catalog(), Client::catalog)
    }

    /// Holds a reply that shows a plan, and so the catalog it was made with. Outside a block it
    /// waits until that catalog is durable; in a block the end of the block waits.
    #[track_caller]
    fn hold_for_catalog(&mut self, cx: &Context<'_>, plan: &Plan) {
        let commit = cx.port.catalog_commit();
        if plan.catalog.is_some() && commit > cx.durable && self.status() == TxnStatus::Idle {
            self.hold(cx, commit);
        }
    }

    fn portal(&self, name: Option<&str>) -> Option<&Portal> {
        name.map_or(self.unnamed_portal.as_ref(), |n| self.portals.get(n))
    }
    fn portal_mut(&mut self, name: Option<&str>) -> Option<&mut Portal> {
        match name {
            None => self.unnamed_portal.as_mut(),
            Some(n) => self.portals.get_mut(n),
        }
    }

    /// Like [`Session::make_env`], for the last simple query.
    fn simple_env(&mut self, params: Vec<Datum>) -> Arc<Env> {
        self.make_env(StatementText::Reused(self.simple_text.clone()), params)
    }

    /// Creates the environment of a statement's expressions.
    fn make_env(&mut self, text: StatementText, params: Vec<Datum>) -> Arc<Env> {
        self.follow_transaction();
        if self.txn_now == 0 || (!self.implicit_open && self.status() == TxnStatus::Idle) {
            self.txn_now = self.statement_now;
        }
        // A xorshift step: only makes random() differ between executions.
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        let memory = MemoryAccount::new(self.query_memory);
        Arc::new(Env {
            params,
            now: self.txn_now,
            statement_now: self.statement_now,
            session: Some(self.env.clone()),
            seed: self.seed,
            memory,
            text,
            acted: clearway_ir::Acted::default(),
        })
    }

    /// Handles a cancel request.
    pub fn cancel(&mut self, cx: &mut Context<'_>) {
        self.interrupt(cx, Signal::Cancel.error());
    }

    fn interrupt(&mut self, cx: &mut Context<'_>, error: SqlError) {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Running { task } => {
                if let Some(client) = &mut self.client {
                    client.cancel(cx.port, &error);
                }
                self.phase = Phase::Running { task };
            }
            Phase::Sleeping { run, .. } => self.complete(cx, run, Err(error)),
            Phase::Ending(ending) => self.complete(cx, ending.into_run(), Err(error)),
            Phase::Emitting(emit) if emit.is_running() => self.break_off(cx, *emit, error),
            Phase::CopyIn => {
                self.phase = Phase::CopyIn;
                self.give_copy_up(cx, error);
            }
            other => self.phase = other,
        }
    }

    /// Handles the server's shutdown: an idle session ends at once; a busy one is interrupted and
    /// ends when it can.
    pub fn shut_down(&mut self, cx: &mut Context<'_>) {
        let e = Signal::Terminate.error();
        match self.phase {
            Phase::Startup | Phase::Closing => self.phase = Phase::Closing,
            Phase::Idle if self.input.is_empty() => self.fatal(cx, &e),
            Phase::Idle | Phase::NextStatement => {}
            _ => self.interrupt(cx, e),
        }
    }

    /// Closes the session and releases its transaction and backend id.
    pub fn close(mut self, cx: &mut Context<'_>) {
        if let Some(client) = self.client.take() {
            client.close(cx.port);
        }
        if self.pid != 0 {
            cx.shared.unregister(self.pid);
        }
        cx.shared.disconnect();
    }
}
