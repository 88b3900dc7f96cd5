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
//! 4. When a session is closed, its transaction is aborted and its cancel key is removed. The
//!    transaction is aborted already when the client's stream ends: replies that the client has not
//!    taken yet keep no locks.
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
use crate::turn_clock::TurnClock;
use clearway_coordinator::{Characteristics, Client, Port, TxnStatus};
use clearway_ir::{Catalog, Env, MemoryAccount, Plan, SessionEnv, Signal, StatementText};
use clearway_types::{Datum, Lsn, SqlError, SqlResult};
use clearway_wire::startup::EncryptionRequests;
use clearway_wire::{backend, frontend};
use emit::Emit;
use hashbrown::HashMap;
use prepared::{Portal, ResultColumns};
use run::{Run, Task};
use simple::SimpleQuery;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// Messages handled for one session before the others get a turn.
const MESSAGES_PER_TURN: usize = 256;

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
    /// The time.
    pub clock: TurnClock,
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
    /// Has no more input and no transaction: ends when the client has taken its replies.
    Draining,
    /// Ends when its output has been sent, or as soon as the client does not take it.
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

/// A session's place in its worker's lists.
pub struct Schedule {
    /// The session's slot.
    slot: u32,
    /// The epoch in which the worker last counted the session as busy.
    pub epoch: u64,
    /// It is among the sessions whose replies wait for the log.
    pub awaits: bool,
    /// It is in the list of sessions that can continue.
    pub scheduled: bool,
}

/// Who has connected, and how.
struct Login {
    /// There are too many connections: the login fails.
    refused: bool,
    /// Requests for TLS and GSSAPI encryption so far.
    asked: EncryptionRequests,
    /// The client uses the control socket.
    control: bool,
    /// The backend id; 0 before the login.
    pid: i32,
    user: String,
    database: String,
}

/// The settings and everything derived from them.
struct SessionConfig {
    settings: Settings,
    synchronous_commit: bool,
    /// Defaults for transactions that do not set their own.
    characteristics: Characteristics,
    /// The characteristics that the settings show.
    shown_characteristics: Characteristics,
    /// The session's part of the expression environment.
    env: Arc<SessionEnv>,
    /// Memory limit of a statement, in bytes.
    query_memory: u64,
    /// State of the generator behind random().
    seed: u64,
}

/// Prepared statements, and the text of the last statement.
#[derive(Default)]
struct Statements {
    named: HashMap<Box<str>, Rc<Prepared>>,
    unnamed: Option<Rc<Prepared>>,
    /// The text of the last statement that began; `None` means `simple_text`.
    last: Option<Arc<str>>,
    /// The text of the last simple query that ran from the plan cache; kept to reuse its memory.
    simple_text: Arc<String>,
}

/// The portals of the transaction.
#[derive(Default)]
struct Portals {
    named: HashMap<Box<str>, Portal>,
    unnamed: Option<Portal>,
}

impl Portals {
    /// Returns a portal; `None` names the unnamed one.
    fn get(&self, name: Option<&str>) -> Option<&Portal> {
        name.map_or(self.unnamed.as_ref(), |name| self.named.get(name))
    }

    /// Like [`Portals::get`].
    fn get_mut(&mut self, name: Option<&str>) -> Option<&mut Portal> {
        match name {
            None => self.unnamed.as_mut(),
            Some(name) => self.named.get_mut(name),
        }
    }

    /// Drops all portals, at the end of their transaction.
    fn clear(&mut self) {
        self.unnamed = None;
        if !self.named.is_empty() {
            self.named.clear();
        }
    }
}

/// The query or group of messages in progress.
#[derive(Default)]
struct Exchange {
    /// An error has occurred: messages are skipped up to the next Sync.
    skip_to_sync: bool,
    /// An implicit transaction is open; the Sync or the end of the query ends it.
    implicit_open: bool,
    /// A cancel request came while messages of the group were still to be executed. The statement
    /// it came for may end before it notices; then the next one fails.
    cancelled: bool,
    /// The rest of a simple query.
    simple: Option<SimpleQuery>,
    /// A COPY FROM STDIN in progress.
    copy: Option<copy::CopyIn>,
}

/// Times, in microseconds since 2000-01-01 UTC unless stated otherwise; 0 means none yet.
struct Times {
    /// Start of the transaction: now().
    transaction: i64,
    /// The next statement begins a transaction, also inside a query or a pipeline.
    transaction_ended: bool,
    /// Arrival of the message that requested the statement: statement_timestamp().
    statement: i64,
    /// Start of idle time.
    idle_since: i64,
    /// The session has waited since it was last idle.
    has_waited: bool,
    /// Start of the last statement, by the monotonic clock.
    began: Instant,
    /// The statement has not ended, so its latency is not counted yet.
    is_timed: bool,
}

/// One client's session.
pub struct Session {
    io: Io,
    /// What has been received and not consumed. Not here while the session has its turn.
    input: Input,
    /// The session's place in its worker's lists.
    pub schedule: Schedule,
    login: Login,
    /// The session's transactions in the engine; `None` before the login.
    client: Option<Client>,
    config: SessionConfig,
    deadlines: deadlines::Deadlines,
    signals: Arc<signals::Signals>,
    /// Another session has terminated this one.
    terminating: bool,
    statements: Statements,
    portals: Portals,
    phase: Phase,
    exchange: Exchange,
    times: Times,
}

impl Session {
    /// Creates a session on a new connection. If `refused`, the client gets an error that there are
    /// too many connections.
    pub fn new(stream: Stream, slot: u32, refused: bool, shared: &Arc<Shared>) -> Self {
        let control = stream.is_control();
        let config = &shared.config;
        Self {
            io: Io::new(stream),
            input: Input::default(),
            schedule: Schedule { slot, epoch: 0, awaits: false, scheduled: false },
            login: Login {
                refused,
                asked: EncryptionRequests::default(),
                control,
                pid: 0,
                user: String::new(),
                database: String::new(),
            },
            client: None,
            config: SessionConfig {
                settings: Settings::new(
                    "",
                    config.synchronous_commit,
                    config.default_transaction_isolation,
                ),
                synchronous_commit: true,
                characteristics: Characteristics::default(),
                shown_characteristics: Characteristics::default(),
                env: Arc::default(),
                query_memory: config.query_memory,
                seed: shared.entropy.u64(),
            },
            deadlines: deadlines::Deadlines::default(),
            signals: Arc::new(signals::Signals::new(shared.clone())),
            terminating: false,
            statements: Statements::default(),
            portals: Portals::default(),
            phase: Phase::Startup,
            exchange: Exchange::default(),
            times: Times {
                transaction: 0,
                transaction_ended: true,
                statement: 0,
                idle_since: 0,
                has_waited: true,
                began: Instant::now(),
                is_timed: false,
            },
        }
    }

    /// Returns the connection.
    pub fn stream(&mut self) -> &mut Stream {
        &mut self.io.stream
    }
    /// Lets the event loop announce what the session waits for from its socket.
    pub fn watch(&mut self, registry: &mio::Registry, token: mio::Token) -> std::io::Result<()> {
        self.io.watch(registry, token)
    }
    /// Returns the backend id; 0 before the client has logged in.
    pub fn pid(&self) -> i32 {
        self.login.pid
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
    /// Returns true if it waits for the client's next message, and for nothing else.
    pub fn expects_messages(&self) -> bool {
        matches!(self.phase, Phase::Startup | Phase::Idle | Phase::CopyIn)
    }
    /// Returns the LSNs that the first and the last held reply wait for, if any.
    pub fn waits_for(&self) -> Option<(Lsn, Lsn)> {
        self.io.waits_for()
    }

    /// Proceeds as far as possible and sends what may be sent. `input` is the worker's receive
    /// buffer, lent to the session for its turn.
    pub fn drive(&mut self, cx: &mut Context<'_>, input: &mut Input) -> Turn {
        input.take_back(&mut self.input);
        let mut turn = self.advance(cx, input);
        if self.flush(cx).is_err() {
            turn = Turn::Over;
        }
        if turn == Turn::Waits && !matches!(self.phase, Phase::Running { .. }) {
            self.release_partitions();
        }
        match self.phase {
            Phase::Draining | Phase::Closing if self.io.is_flushed() => turn = Turn::Over,
            Phase::Draining => self.limit_draining(cx),
            Phase::Closing if !self.io.writable => turn = Turn::Over,
            _ => {}
        }
        input.set_aside(&mut self.input);
        let (received, sent) = self.io.take_traffic();
        cx.counters().traffic(received, sent);
        turn
    }

    fn flush(&mut self, cx: &Context<'_>) -> std::io::Result<()> {
        if self.io.is_full() {
            self.io.release();
        }
        self.io.flush(cx.durable, cx.counters())
    }

    fn advance(&mut self, cx: &mut Context<'_>, input: &mut Input) -> Turn {
        for _ in 0..MESSAGES_PER_TURN {
            self.end_if_terminated(cx);
            if self.io.is_full() {
                cx.clock.forget();
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
                | Phase::Draining
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
            match self.take_message(cx, input.bytes()) {
                Ok(0) => {
                    let expected = frontend::expected_len(input.bytes());
                    match self.io.read(input, expected) {
                        Ok(ReadOutcome::Some) => {}
                        Ok(ReadOutcome::Nothing) => return Turn::Waits,
                        Ok(ReadOutcome::Closed) => self.end_of_input(cx),
                        Err(_) => return Turn::Over,
                    }
                }
                Ok(taken) => input.consume(taken),
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
                self.portals.clear();
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
            self.limit_idle_time(cx);
        }
    }

    fn status(&self) -> TxnStatus {
        self.client.as_ref().map_or(TxnStatus::Idle, Client::status)
    }

    fn catalog(&self, cx: &Context<'_>) -> Arc<Catalog> {
        self.client.as_ref().map_or_else(|| cx.port.catalog(), Client::catalog)
    }

    /// Plans the statement again if its plan does not fit the catalog or the search path any more.
    /// The client knows its columns, so they must not change.
    fn freshen(&self, cx: &mut Context<'_>, statement: &Prepared) -> SqlResult<()> {
        let version =
            self.client.as_ref().map_or_else(|| cx.port.catalog().version, Client::catalog_version);
        if statement.is_fresh(version, &self.config.env) {
            return Ok(());
        }
        cx.clock.forget();
        statement.replan(&self.catalog(cx), &self.config.env, ResultColumns::Fixed)
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

    /// Like [`Session::make_env`], for the last simple query.
    fn simple_env(&mut self, params: Vec<Datum>) -> Arc<Env> {
        let text = StatementText::Reused(self.statements.simple_text.clone());
        Arc::new(self.make_env(text, params))
    }

    /// Creates the environment of a statement's expressions.
    fn make_env(&mut self, text: StatementText, params: Vec<Datum>) -> Env {
        self.follow_transaction();
        let is_outside = !self.exchange.implicit_open && self.status() == TxnStatus::Idle;
        if std::mem::take(&mut self.times.transaction_ended) || is_outside {
            self.times.transaction = self.times.statement;
        }
        // A xorshift step: only makes random() differ between executions.
        self.config.seed ^= self.config.seed << 13;
        self.config.seed ^= self.config.seed >> 7;
        self.config.seed ^= self.config.seed << 17;
        let memory = MemoryAccount::new(self.config.query_memory);
        Env {
            params,
            now: self.times.transaction,
            statement_now: self.times.statement,
            session: Some(self.config.env.clone()),
            seed: self.config.seed,
            memory,
            text,
            acted: clearway_ir::Acted::default(),
            draws: clearway_ir::Draws::default(),
        }
    }

    /// Handles a cancel request: ends the running statement, or a simple query or pipeline between
    /// two statements.
    pub fn cancel(&mut self, cx: &mut Context<'_>) {
        if let Some(query) = &mut self.exchange.simple {
            query.cancel();
        } else if self.exchange.implicit_open
            && !self.exchange.skip_to_sync
            && !self.waits_for_a_message()
        {
            self.exchange.cancelled = true;
        }
        self.interrupt(cx, Signal::Cancel.error());
    }

    fn interrupt(&mut self, cx: &mut Context<'_>, error: SqlError) {
        self.cancel_wait(cx.timers);
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Running { task } => {
                if let Some(client) = &mut self.client {
                    client.cancel(&error);
                }
                self.phase = Phase::Running { task };
            }
            Phase::Sleeping { run, .. } => self.complete(cx, run, Err(error)),
            Phase::Ending(ending) => self.complete(cx, ending.into_run(), Err(error)),
            Phase::Emitting(emit) if !self.has_committed(&emit) => {
                self.abort_emit(cx, *emit, error)
            }
            Phase::CopyIn => {
                self.phase = Phase::CopyIn;
                self.fail_copy(cx, error);
            }
            other => self.phase = other,
        }
    }

    /// Handles the server's shutdown: an idle session ends at once; a busy one is interrupted and
    /// ends when it can.
    pub fn shut_down(&mut self, cx: &mut Context<'_>) {
        let e = Signal::Terminate.error();
        match self.phase {
            Phase::Startup | Phase::Draining | Phase::Closing => self.phase = Phase::Closing,
            Phase::Idle if !self.has_message() => self.fatal(cx, &e),
            Phase::Idle | Phase::NextStatement => {}
            _ => self.interrupt(cx, e),
        }
    }

    /// Closes the session and releases its transaction and backend id. The socket closes last: a
    /// client that sees the connection closed is no longer counted.
    pub fn close(mut self, cx: &mut Context<'_>) {
        if let Some(client) = self.client.take() {
            client.close();
        }
        if self.login.pid != 0 {
            cx.shared.unregister(self.login.pid);
        }
        cx.shared.connections.close(self.login.refused);
    }
}
