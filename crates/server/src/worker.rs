//! A worker: one thread, its share of the sessions, and the partitions that it happens to run.
//!
//! Invariants
//! 1. The worker sleeps only after it has announced this to its doorbell and then found no work.
//! 2. A session that can continue is in `ready`, or will be announced by the socket, the engine, a
//!    deadline or the durable LSN.
//! 3. While other sessions wait, a session's turn handles a bounded number of messages.
//!
//! Locking: none of its own. A crash leaves nothing.

use crate::connections::Admission;
use crate::descriptors::DescriptorWatch;
use crate::group_commit::{Awaiting, GroupCommit};
use crate::io::Input;
use crate::net::{Listener, Stream};
use crate::plans::Plans;
use crate::polling::{Load, Polling};
use crate::session::{Context, Session, Turn};
use crate::sessions::Roll;
use crate::shared::{Note, Shared};
use crate::timers::Timers;
use crate::turn_clock::TurnClock;
use clearway_coordinator::{Engine, Event, Port};
use clearway_types::Lsn;
use mio::{Events, Poll, Token};
use slab::Slab;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The doorbell's token.
pub const BELL: Token = Token(usize::MAX);
const FIRST_LISTENER: usize = usize::MAX - 16;
/// Events taken from the system at once.
const EVENTS: usize = 512;
/// Connections accepted before sessions get a turn.
const ACCEPTS_PER_TURN: usize = 64;
/// Pause of accepting after an error, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Session slots examined per turn for one roll call.
const ROLL_SLOTS_PER_TURN: usize = 256;
/// A session counts as busy if it had work within this time.
const EPOCH: Duration = Duration::from_millis(5);
/// How long a stopping worker waits for running statements.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a stopping worker keeps serving the engine after its last session, so that aborts of
/// other workers' transactions complete.
const STOP_GRACE: Duration = Duration::from_millis(50);

/// A worker.
pub struct Worker {
    id: u16,
    shared: Arc<Shared>,
    poll: Poll,
    port: Port,
    sessions: Slab<Session>,
    listeners: Vec<Listener>,
    plans: Plans,
    timers: Timers,
    /// Sessions that can continue at once.
    ready: Vec<u32>,
    /// Those that have their turn; otherwise empty.
    driven: Vec<u32>,
    awaiting: Awaiting,
    durable: Lsn,
    group: GroupCommit,
    /// Received bytes of the session that has its turn; otherwise empty.
    input: Input,
    notes: Vec<Note>,
    events: Vec<Event>,
    /// Roll calls to answer, each from this slot on.
    rolls: Vec<(Arc<Roll>, usize)>,
    next_worker: usize,
    accept_after: Option<Instant>,
    descriptors: DescriptorWatch,
    polling: Polling,
    epoch: u64,
    epoch_ends: Instant,
    busy: usize,
    busy_published: usize,
}

impl Worker {
    /// Creates a worker with its event loop. It accepts connections from `listeners`, if any.
    pub fn new(
        id: u16,
        shared: Arc<Shared>,
        engine: &Arc<Engine>,
        poll: Poll,
        mut listeners: Vec<Listener>,
    ) -> io::Result<Self> {
        for (i, listener) in listeners.iter_mut().enumerate() {
            poll.registry().register(
                listener.source(),
                Token(FIRST_LISTENER + i),
                mio::Interest::READABLE,
            )?;
        }
        Ok(Self {
            id,
            shared,
            poll,
            port: engine.port(id),
            sessions: Slab::new(),
            listeners,
            plans: Plans::default(),
            timers: Timers::default(),
            ready: Vec::new(),
            driven: Vec::new(),
            awaiting: Awaiting::default(),
            durable: engine.durable(),
            group: GroupCommit::default(),
            input: Input::default(),
            notes: Vec::new(),
            events: Vec::new(),
            rolls: Vec::new(),
            next_worker: 0,
            accept_after: None,
            descriptors: DescriptorWatch::default(),
            polling: Polling::default(),
            epoch: 1,
            epoch_ends: Instant::now() + EPOCH,
            busy: 0,
            busy_published: 0,
        })
    }

    /// Runs until the server stops.
    pub fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS);
        let mut stop_by = None;
        let mut empty_since = None;
        loop {
            self.turn(&mut events);
            if self.shared.stopping() {
                let now = Instant::now();
                if stop_by.is_none() {
                    stop_by = Some(now + STOP_TIMEOUT);
                    self.stop_accepting();
                }
                self.stop_sessions(stop_by.is_some_and(|by| now >= by));
                if self.sessions.is_empty() {
                    let since = *empty_since.get_or_insert(now);
                    if now - since > STOP_GRACE {
                        return;
                    }
                }
            }
        }
    }

    fn turn(&mut self, events: &mut Events) {
        self.handle_engine_events();
        std::mem::swap(&mut self.ready, &mut self.driven);
        for at in 0..self.driven.len() {
            let slot = self.driven[at];
            if let Some(session) = self.sessions.get_mut(slot as usize) {
                session.schedule.scheduled = false;
                self.drive(slot);
            }
        }
        self.driven.clear();
        let now = Instant::now();
        self.deadlines(now);
        if let Some(lsn) = self.group.due(self.durable) {
            self.port.want_durable(lsn);
        }
        self.sleep(events, now);
        for event in events.iter() {
            match event.token() {
                BELL => {}
                Token(t) if t >= FIRST_LISTENER => self.accept(t - FIRST_LISTENER),
                Token(slot) => {
                    let Some(session) = self.sessions.get_mut(slot) else { continue };
                    if event.is_readable() || event.is_read_closed() {
                        session.set_readable(event.is_read_closed());
                    }
                    if event.is_writable() {
                        session.set_writable();
                    }
                    // A Unix socket whose client has closed it may still have messages to read.
                    // A client that is gone does not wait for a running statement.
                    let is_gone = event.is_write_closed() && !session.expects_messages();
                    if event.is_error() || is_gone {
                        self.close(slot as u32);
                    } else {
                        self.drive(slot as u32);
                    }
                }
            }
        }
        self.read_notes();
    }

    /// Waits for events: not at all if there is work; by polling for a short time if that pays;
    /// otherwise asleep.
    fn sleep(&mut self, events: &mut Events, now: Instant) {
        if !self.ready.is_empty() || self.port.has_work() || !self.rolls.is_empty() {
            return self.poll_events(events, Some(Duration::ZERO));
        }
        if self.group.gathers() {
            self.poll_events(events, Some(Duration::ZERO));
            if !events.is_empty() {
                return;
            }
            self.request_durable();
        }
        let Some(now) = self.poll_briefly(events, now) else { return };
        let bell = self.shared.bell(usize::from(self.id)).clone();
        bell.prepare_park();
        self.handle_engine_events();
        self.shared.take_notes(usize::from(self.id), &mut self.notes);
        self.request_durable();
        let has_work = !self.ready.is_empty() || !self.notes.is_empty() || self.port.has_work();
        let timeout = if has_work { Some(Duration::ZERO) } else { self.timeout(now) };
        self.poll_events(events, timeout);
        bell.end_park();
    }

    fn poll_events(&mut self, events: &mut Events, timeout: Option<Duration>) {
        if let Err(e) = self.poll.poll(events, timeout)
            && e.kind() != io::ErrorKind::Interrupted
        {
            tracing::error!("the event loop of worker {} failed: {e}", self.id);
        }
    }

    /// Polls without sleeping if that pays. Returns the time at the end; `None` if there is work.
    fn poll_briefly(&mut self, events: &mut Events, now: Instant) -> Option<Instant> {
        self.count_epoch(now);
        let load = Load {
            own_busy: self.busy + self.busy_published,
            awaiting: self.awaiting.len(),
            // Relaxed: a hint.
            busy: self.shared.busy.load(Ordering::Relaxed),
            workers: self.shared.workers(),
        };
        let spin = Duration::from_micros(self.shared.config.spin_us);
        if spin.is_zero() || !self.polling.pays(now, load) {
            return Some(now);
        }
        let until = now + spin;
        loop {
            self.poll_events(events, Some(Duration::ZERO));
            if !events.is_empty() {
                return None;
            }
            self.handle_engine_events();
            if !self.ready.is_empty() || self.port.has_work() {
                return None;
            }
            self.request_durable();
            let began = Instant::now();
            if began >= until {
                return Some(began);
            }
            std::thread::yield_now();
            let ended = Instant::now();
            if !self.polling.yielded(began, ended) {
                return Some(ended);
            }
        }
    }

    fn timeout(&self, now: Instant) -> Option<Duration> {
        if self.shared.stopping() {
            return Some(Duration::from_millis(10));
        }
        // A sleeping worker must not keep its sessions counted as busy: the others would poll while
        // theirs wait for syncs.
        let epoch = (self.busy + self.busy_published > 0).then_some(self.epoch_ends);
        let next = [self.timers.next(), self.accept_after, epoch].into_iter().flatten().min();
        // Rounded up to the system's millisecond; otherwise the worker would repeatedly wake a
        // little early.
        next.map(|at| at.saturating_duration_since(now) + Duration::from_micros(999))
    }

    fn count_epoch(&mut self, now: Instant) {
        if now < self.epoch_ends {
            return;
        }
        self.epoch += 1;
        self.epoch_ends = now + EPOCH;
        let (new, old) = (self.busy, self.busy_published);
        // Relaxed: a hint, as in `poll_briefly`.
        if new > old {
            self.shared.busy.fetch_add(new - old, Ordering::Relaxed);
        } else if old > new {
            self.shared.busy.fetch_sub(old - new, Ordering::Relaxed);
        }
        self.busy_published = new;
        self.busy = 0;
    }

    /// Handles the engine's events: sessions that can continue do so or are scheduled.
    fn handle_engine_events(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        self.port.poll(&mut events);
        for event in events.drain(..) {
            match event {
                Event::Continue { session } => {
                    self.with(session, |session, cx, _| session.resume(cx));
                    self.schedule(session);
                }
                Event::Durable(lsn) => {
                    self.durable = lsn;
                    for slot in self.awaiting.take_due(lsn) {
                        if let Some(session) = self.sessions.get_mut(slot as usize) {
                            session.schedule.awaits = false;
                        }
                        self.schedule(slot);
                    }
                    self.shared.counters(self.id).commits_waiting(self.awaiting.len());
                }
            }
        }
        self.events = events;
    }

    fn schedule(&mut self, slot: u32) {
        if let Some(session) = self.sessions.get_mut(slot as usize)
            && !session.schedule.scheduled
        {
            session.schedule.scheduled = true;
            self.ready.push(slot);
        }
    }

    fn with<R>(
        &mut self,
        slot: u32,
        f: impl FnOnce(&mut Session, &mut Context<'_>, &mut Input) -> R,
    ) -> Option<R> {
        let session = self.sessions.get_mut(slot as usize)?;
        let mut cx = Context {
            port: &mut self.port,
            shared: &self.shared,
            plans: &mut self.plans,
            timers: &mut self.timers,
            worker: self.id,
            durable: self.durable,
            clock: TurnClock::default(),
        };
        Some(f(session, &mut cx, &mut self.input))
    }

    fn drive(&mut self, slot: u32) {
        let Some(mut turn) = self.with(slot, Session::drive) else { return };
        let Some(session) = self.sessions.get_mut(slot as usize) else { return };
        if let Err(e) = session.watch(self.poll.registry(), Token(slot as usize)) {
            tracing::warn!("cannot watch a connection: {e}");
            turn = Turn::Over;
        }
        if session.schedule.epoch != self.epoch {
            session.schedule.epoch = self.epoch;
            self.busy += 1;
        }
        if let Some((first, last)) = session.waits_for() {
            self.group.want(last);
            if !std::mem::replace(&mut session.schedule.awaits, true) {
                self.awaiting.push(first, slot);
                self.shared.counters(self.id).commits_waiting(self.awaiting.len());
            }
        }
        match turn {
            Turn::Waits => {}
            Turn::Again => self.schedule(slot),
            Turn::Over => self.close(slot),
        }
    }

    /// Requests durability for all waiting replies at once: one flush of the log serves the group.
    fn request_durable(&mut self) {
        if let Some(lsn) = self.group.before_sleep(self.durable) {
            self.port.want_durable(lsn);
        }
    }

    fn deadlines(&mut self, now: Instant) {
        while let Some((slot, ticket)) = self.timers.due(now) {
            self.with(slot, |session, cx, _| session.deadline(cx, ticket));
            self.schedule(slot);
        }
    }

    fn accept(&mut self, listener: usize) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(l) = self.listeners.get(listener) else { return };
            match l.accept() {
                Ok(stream) if self.descriptors.is_reserved(&stream, stream.is_control()) => {}
                Ok(stream) => self.assign(stream),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e)
                    if e.kind() == io::ErrorKind::Interrupted
                        || e.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(e) => {
                    // Most likely no descriptor is left: retried when some may have been closed.
                    tracing::warn!("cannot accept a connection: {e}");
                    self.accept_after = Some(Instant::now() + ACCEPT_PAUSE);
                    return;
                }
            }
        }
        // There may be more connections, but the edge that announced them will not come again.
        self.accept_after = Some(Instant::now());
    }

    /// Assigns a connection to the workers in turn.
    fn assign(&mut self, stream: Stream) {
        let refused = match self.shared.connections.open(stream.is_control()) {
            Admission::Admitted => false,
            Admission::Refused => true,
            Admission::Closed => return,
        };
        let worker = self.next_worker;
        self.next_worker = (worker + 1) % self.shared.workers();
        if worker == usize::from(self.id) {
            self.open(stream, refused);
        } else {
            self.shared.post(worker, Note::Connection { stream, refused });
        }
    }

    fn open(&mut self, mut stream: Stream, refused: bool) {
        let entry = self.sessions.vacant_entry();
        let slot = entry.key();
        if let Err(e) = stream.register(self.poll.registry(), Token(slot)) {
            tracing::warn!("cannot register a connection: {e}");
            return self.shared.connections.close(refused);
        }
        let session = entry.insert(Session::new(stream, slot as u32, refused, &self.shared));
        let limit = Duration::from_millis(self.shared.config.startup_timeout_ms);
        session.expect_startup(self.timers.set(Instant::now() + limit, slot as u32));
        self.drive(slot as u32);
    }

    fn close(&mut self, slot: u32) {
        let Some(mut session) = self.sessions.try_remove(slot as usize) else { return };
        session.stream().deregister(self.poll.registry());
        if session.schedule.awaits {
            self.awaiting.remove(slot);
        }
        session.cancel_deadlines(&mut self.timers);
        debug_assert!(!self.timers.has_slot(slot), "a deadline of an ended wait is left");
        let mut cx = Context {
            port: &mut self.port,
            shared: &self.shared,
            plans: &mut self.plans,
            timers: &mut self.timers,
            worker: self.id,
            durable: self.durable,
            clock: TurnClock::default(),
        };
        session.close(&mut cx);
    }

    fn read_notes(&mut self) {
        if self.accept_after.is_some_and(|at| at <= Instant::now()) {
            self.accept_after = None;
            for i in 0..self.listeners.len() {
                self.accept(i);
            }
        }
        self.shared.take_notes(usize::from(self.id), &mut self.notes);
        for note in std::mem::take(&mut self.notes) {
            match note {
                Note::Connection { stream, refused } => self.open(stream, refused),
                Note::Cancel { slot, pid } => {
                    self.with(slot, |session, cx, _| {
                        if session.pid() == pid {
                            session.cancel(cx);
                        }
                    });
                    self.schedule(slot);
                }
                Note::Terminate { slot, pid } => {
                    self.with(slot, |session, cx, _| {
                        if session.pid() == pid {
                            session.terminate(cx);
                        }
                    });
                    self.schedule(slot);
                }
                Note::Ended { slot, pid, ended } => {
                    self.with(slot, |session, cx, _| {
                        if session.pid() == pid {
                            session.backend_has_ended(cx, ended);
                        }
                    });
                    self.schedule(slot);
                }
                Note::Roll(roll) => self.rolls.push((roll, 0)),
            }
        }
        self.answer_rolls();
    }

    /// Answers each roll call with a piece of the sessions.
    fn answer_rolls(&mut self) {
        for (roll, from) in std::mem::take(&mut self.rolls) {
            let end = (from + ROLL_SLOTS_PER_TURN).min(self.sessions.capacity());
            let described = (from..end).filter_map(|slot| self.sessions.get(slot)?.describe());
            let last = end == self.sessions.capacity();
            roll.add(described.collect(), last);
            if !last {
                self.rolls.push((roll, end));
            }
        }
    }

    fn stop_accepting(&mut self) {
        for mut listener in self.listeners.drain(..) {
            // An error does not matter: closing the socket deregisters it as well.
            let _ = self.poll.registry().deregister(listener.source());
        }
        self.accept_after = None;
    }

    fn stop_sessions(&mut self, by_force: bool) {
        let slots: Vec<u32> = self.sessions.iter().map(|(slot, _)| slot as u32).collect();
        for slot in slots {
            if by_force {
                self.close(slot);
            } else {
                self.with(slot, |session, cx, _| session.shut_down(cx));
                self.drive(slot);
            }
        }
    }
}
