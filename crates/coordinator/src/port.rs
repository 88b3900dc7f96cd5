//! A worker's access to the engine: submits messages to partitions, executes what partitions
//! request, and delivers replies.
//!
//! Invariants
//! 1. Every [`Out`] that a partition produces while this worker holds its baton is executed before
//!    [`PortInner::submit`] returns.
//! 2. A reply reaches the client that waits for it, at whichever worker that lives, or is dropped
//!    because the client is gone.
//! 3. Messages are submitted one after the other, never from inside another submission's handler: a
//!    partition is never re-entered.
//!
//! Locking: none of its own; a port stays in its worker's thread.

use crate::core::Core;
use crate::deadlock::{Change, Effects, Ended, Victim};
use crate::engine::Engine;
use crate::fetch;
use crate::mailbox::Mail;
use crate::message::control;
use crate::slices::Turns;
use clearway_ir::Catalog;
use clearway_latch::lockstat::Wait;
use clearway_partition::{Body, Failure, FragmentOrigin, Message, NOBODY, Out, Outbox, Reply};
use clearway_types::{Lsn, PartitionId, SqlState, TxnId};
use hashbrown::HashMap;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

/// An event for a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Call [`crate::Client::resume`] for this session.
    Continue {
        /// The session, as given to [`crate::Client::new`].
        session: u32,
    },
    /// The log is durable up to here: replies that waited for a smaller LSN may be sent.
    Durable(Lsn),
}

/// A worker's access to the engine. One per worker; it stays in the worker's thread.
pub struct Port {
    pub(crate) inner: Rc<PortInner>,
}

pub(crate) struct PortInner {
    pub(crate) engine: Arc<Engine>,
    worker: u16,
    outbox: RefCell<Outbox>,
    backlog: RefCell<VecDeque<(PartitionId, Message)>>,
    submitting: Cell<bool>,
    clients: RefCell<HashMap<u32, Rc<Core>>>,
    next_token: Cell<u32>,
    /// Clients whose task may be able to continue, by token.
    ready: RefCell<Vec<u32>>,
    /// When it takes the next slice of a long fragment.
    pub(crate) turns: Turns,
    durable_seen: Cell<Lsn>,
    catalog: RefCell<Arc<Catalog>>,
    /// Transaction ids reserved from the node in blocks: the next one, and the end.
    txn_ids: Cell<(u64, u64)>,
    /// Tasks of disconnected clients, by token.
    orphans: RefCell<HashMap<u32, crate::outcome::Task>>,
}

impl Port {
    pub(crate) fn new(engine: Arc<Engine>, worker: u16) -> Self {
        let catalog = engine.catalog();
        Self {
            inner: Rc::new(PortInner {
                engine,
                worker,
                outbox: RefCell::default(),
                backlog: RefCell::default(),
                submitting: Cell::new(false),
                clients: RefCell::default(),
                next_token: Cell::new(1),
                ready: RefCell::default(),
                turns: Turns::default(),
                durable_seen: Cell::new(Lsn(0)),
                catalog: RefCell::new(catalog),
                txn_ids: Cell::new((0, 0)),
                orphans: RefCell::default(),
            }),
        }
    }

    /// Handles the mailbox's mail, and appends to `events` the sessions that may continue. Call it
    /// once per turn of the event loop.
    pub fn poll(&mut self, events: &mut Vec<Event>) {
        let inner = &self.inner;
        inner.engine.mailbox(inner.worker).drain(|mail| inner.handle(mail));
        inner.run_slice();
        loop {
            let ready = std::mem::take(&mut *inner.ready.borrow_mut());
            if ready.is_empty() {
                break;
            }
            for token in ready {
                if inner.orphans.borrow().contains_key(&token) {
                    inner.poll_orphan(token);
                } else if let Some(core) = inner.clients.borrow().get(&token) {
                    core.listed.set(false);
                    events.push(Event::Continue { session: core.session });
                }
            }
        }
        let durable = inner.engine.durable();
        if durable > inner.durable_seen.get() {
            inner.durable_seen.set(durable);
            events.push(Event::Durable(durable));
        }
    }

    /// Returns true if [`Port::poll`] has work that no wake-up announces: do not sleep.
    pub fn has_work(&self) -> bool {
        !self.inner.ready.borrow().is_empty() || !self.inner.engine.slices().is_empty()
    }

    /// Returns true while transactions of disconnected clients are being undone here. Call
    /// [`Port::poll`] until it returns false.
    pub fn has_orphans(&self) -> bool {
        !self.inner.orphans.borrow().is_empty()
    }

    /// Returns the engine.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.inner.engine
    }

    /// Requests that the log soon become durable up to `lsn`. An [`Event::Durable`] then reports
    /// it.
    pub fn want_durable(&self, lsn: Lsn) {
        self.inner.engine.want_durable(self.inner.worker, lsn);
    }

    /// Returns the committed catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.inner.catalog()
    }

    /// Returns the LSN that must be durable before anything is shown that depends on a catalog
    /// taken before this call.
    pub fn catalog_commit(&self) -> Lsn {
        self.inner.engine.catalog_commit()
    }
}

impl Engine {
    /// Returns a worker's access to the engine. Call it once per worker, in its thread.
    pub fn port(self: &Arc<Self>, worker: u16) -> Port {
        Port::new(self.clone(), worker)
    }
}

impl Drop for Port {
    /// Drops all tasks. What is not undone by now stays locked until the next start. Tasks own the
    /// port, so without this neither would be freed.
    fn drop(&mut self) {
        drop(self.inner.orphans.take());
        self.inner.clients.take();
    }
}

impl PortInner {
    /// Returns the committed catalog: a clone of a cached `Arc` unless it has changed.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        let mut cached = self.catalog.borrow_mut();
        if cached.version != self.engine.catalog_version() {
            *cached = self.engine.catalog();
        }
        cached.clone()
    }

    /// Counts a transaction that has ended at this worker.
    pub(crate) fn count_end(&self, committed: bool) {
        self.engine.ended()[usize::from(self.worker)].count(committed);
    }

    /// Counts a replay of a block that was undone.
    pub(crate) fn count_replay(&self) {
        self.engine.ended()[usize::from(self.worker)].count_replay();
    }

    pub(crate) fn next_txn(&self) -> TxnId {
        let (next, end) = self.txn_ids.get();
        let (next, end) = if next == end { self.engine.txn_id_block() } else { (next, end) };
        self.txn_ids.set((next + 1, end));
        TxnId(next)
    }

    pub(crate) fn register(&self, make: impl FnOnce(u32) -> Rc<Core>) -> Rc<Core> {
        let mut clients = self.clients.borrow_mut();
        let mut token = self.next_token.get();
        while clients.contains_key(&token) {
            token = token.wrapping_add(1);
        }
        self.next_token.set(token.wrapping_add(1));
        let core = make(token);
        clients.insert(token, core.clone());
        core
    }

    pub(crate) fn unregister(&self, token: u32) {
        self.clients.borrow_mut().remove(&token);
    }

    /// Drives a disconnected client's task to its end.
    pub(crate) fn adopt(&self, token: u32, task: crate::outcome::Task) {
        self.orphans.borrow_mut().insert(token, task);
        self.make_ready(token);
    }

    fn poll_orphan(&self, token: u32) {
        let Some(mut task) = self.orphans.borrow_mut().remove(&token) else { return };
        if let Some(core) = self.clients.borrow().get(&token) {
            core.listed.set(false);
        }
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        match task.as_mut().poll(&mut cx) {
            std::task::Poll::Ready(_) => self.unregister(token),
            std::task::Poll::Pending => {
                self.orphans.borrow_mut().insert(token, task);
            }
        }
    }

    fn make_ready(&self, token: u32) {
        if let Some(core) = self.clients.borrow().get(&token) {
            self.list(core, token);
        }
    }

    /// Adds the client to the list of those that may continue, once.
    fn list(&self, core: &Core, token: u32) {
        if !core.listed.replace(true) {
            self.ready.borrow_mut().push(token);
        }
    }

    /// Like [`PortInner::list`], but a client that is sending checks its replies itself afterwards.
    fn list_unless_sending(&self, core: &Core, token: u32) {
        if !core.sending.get() {
            self.list(core, token);
        }
    }

    pub(crate) fn origin(&self, token: u32, seq: u32) -> FragmentOrigin {
        FragmentOrigin { worker: self.worker, session: token, seq }
    }

    /// Schedules another poll after the other sessions have run.
    pub(crate) fn wake_later(&self, token: u32) {
        self.engine.mailbox(self.worker).post(Mail::Wake { token });
    }

    pub(crate) fn waker(&self, token: u32) -> impl Fn() + Send + 'static {
        let (engine, worker) = (self.engine.clone(), self.worker);
        move || engine.mailbox(worker).post(Mail::Wake { token })
    }

    /// Submits a message to a partition: runs it here if the partition is free, otherwise the
    /// partition's holder runs it.
    #[track_caller]
    pub(crate) fn submit(self: &Rc<Self>, partition: PartitionId, message: Message) {
        if self.submitting.get() {
            self.backlog.borrow_mut().push_back((partition, message));
            return;
        }
        self.submitting.set(true);
        self.run(partition, message);
        loop {
            let next = self.backlog.borrow_mut().pop_front();
            let Some((partition, message)) = next else { break };
            self.run(partition, message);
        }
        self.submitting.set(false);
    }

    #[inline]
    #[track_caller]
    fn run(self: &Rc<Self>, partition: PartitionId, message: Message) {
        let mut outbox = self.outbox.take();
        let leftover = self.engine.submit(partition, message, &mut outbox);
        self.carry_out(partition, leftover, &mut outbox);
        self.outbox.replace(outbox);
    }

    fn carry_out(self: &Rc<Self>, partition: PartitionId, leftover: bool, outbox: &mut Outbox) {
        for out in outbox.drain(..) {
            self.carry_out_one(out);
        }
        if leftover {
            self.engine.mailbox(self.worker).post(Mail::Leftover(partition));
        }
    }

    fn carry_out_one(self: &Rc<Self>, out: Out) {
        match out {
            Out::Reply { to, reply, depends_on, .. } if to.worker == self.worker => {
                self.deliver(to, reply, depends_on)
            }
            Out::Reply { to, reply, depends_on, .. } => {
                self.engine.mailbox(to.worker).post(Mail::Reply { to, reply, depends_on });
            }
            Out::Stalled { to } if to.worker == self.worker => self.stall(to),
            Out::Stalled { to } => self.engine.mailbox(to.worker).post(Mail::Stalled { to }),
            Out::Undone { to, txn } if to.worker == self.worker => self.undone(to, txn),
            Out::Undone { to, txn } => {
                self.engine.mailbox(to.worker).post(Mail::Undone { to, txn })
            }
            Out::Fetch { partition, txn, request, wants } => {
                fetch::fetch(&self.engine, self.worker, (partition, txn, request), wants)
            }
            Out::ReadLog { partition, txn, read } => {
                let (engine, worker) = (self.engine.clone(), self.worker);
                self.engine.node().io().submit(Box::new(move || {
                    read.run();
                    engine.mailbox(worker).post(Mail::Resume { partition, txn });
                }));
            }
            Out::ReadSpill { partition, txn, read } => {
                let (engine, worker) = (self.engine.clone(), self.worker);
                self.engine.node().io().submit(Box::new(move || {
                    read.run();
                    engine.mailbox(worker).post(Mail::Resume { partition, txn });
                }));
            }
            Out::HotRows { partition, rows, take } => (take.0)(partition, rows),
            Out::Scheme { partition, order, scheme } => {
                self.engine.schemes().note(partition, order, scheme);
            }
            Out::Report { partition, report, take } => (take.0)(partition, report),
            Out::WriteSpill { write } => {
                self.engine.node().io().submit(Box::new(move || write.run()))
            }
            Out::Yield { partition, txn } if txn == NOBODY => {
                self.engine.mailbox(self.worker).post(Mail::Resume { partition, txn });
            }
            Out::Yield { partition, txn } => self.put_slice(partition, txn),
            Out::Waits {
                txn,
                partition,
                order,
                wait,
                stake,
                requester,
                line,
                wanted,
                class,
                caller,
            } => {
                let counted = class.wait(caller);
                self.change_waits(
                    partition,
                    order,
                    Change::Waits { txn, wait, stake, requester, line, wanted, counted },
                );
            }
            Out::Line { partition, order, line, on } => {
                self.change_waits(partition, order, Change::Line { line, on })
            }
            Out::Over { txn, partition, order, wait, granted } => {
                self.change_waits(partition, order, Change::Over { txn, wait, granted });
            }
        }
    }

    fn change_waits(&self, partition: PartitionId, order: u64, change: Change) {
        match change {
            Change::Waits { .. } => self.engine.count_wait(partition, true),
            Change::Over { .. } => self.engine.count_wait(partition, false),
            Change::Line { .. } => {}
        }
        let mut effects = Effects::default();
        self.engine.waits_for().take(partition, order, change, &mut effects);
        effects.over.into_iter().for_each(Wait::end);
        effects.ended.iter().for_each(Ended::log);
        for deadlock in effects.deadlocks {
            let Victim { txn, partition, wait } = deadlock.victim;
            let message =
                control(txn, Body::GiveUp { wait, error: deadlock.report(&self.engine.catalog()) });
            self.backlog.borrow_mut().push_back((partition, message));
        }
    }

    fn stall(&self, to: FragmentOrigin) {
        if let Some(core) = self.clients.borrow().get(&to.session) {
            core.stall(to.seq);
            self.list_unless_sending(core, to.session);
        }
    }

    fn undone(&self, to: FragmentOrigin, txn: TxnId) {
        if let Some(core) = self.clients.borrow().get(&to.session)
            && core.note_undone(txn)
        {
            self.list(core, to.session);
        }
    }

    fn deliver(&self, to: FragmentOrigin, reply: Result<Reply, Failure>, depends_on: Lsn) {
        if let Some(core) = self.clients.borrow().get(&to.session) {
            core.deliver(to.seq, reply, depends_on);
            self.list_unless_sending(core, to.session);
        }
    }

    fn handle(self: &Rc<Self>, mail: Mail) {
        match mail {
            Mail::Reply { to, reply, depends_on } => self.deliver(to, reply, depends_on),
            Mail::Stalled { to } => self.stall(to),
            Mail::Undone { to, txn } => self.undone(to, txn),
            Mail::Message { partition, message } => self.submit(partition, message),
            Mail::Fetched { partition, txn, request, held } => {
                match &held {
                    // Nothing was read: the statement needs new pages.
                    Err(e) if e.state() == SqlState::DISK_FULL => {
                        tracing::warn!(%partition, %txn, "statement refused: {}", e.message());
                    }
                    Err(e) => {
                        tracing::error!(%partition, %txn, "page read failed: {}", e.message())
                    }
                    Ok(_) => {}
                }
                self.submit(partition, fetch::wake_up(txn, request, held));
            }
            Mail::Leftover(partition) => {
                let mut outbox = self.outbox.take();
                let leftover = self.engine.poll_partition(partition, &mut outbox);
                self.carry_out(partition, leftover, &mut outbox);
                self.outbox.replace(outbox);
                self.drain_backlog();
            }
            Mail::Resume { partition, txn } => {
                self.submit(partition, control(txn, Body::Resume(Vec::new())))
            }
            Mail::Wake { token } => self.make_ready(token),
        }
    }

    /// Continues one long fragment, if one is waiting: [`crate::slices`].
    fn run_slice(self: &Rc<Self>) {
        if let Some((partition, txn)) = self.engine.slices().take(&self.turns) {
            self.submit(partition, control(txn, Body::Resume(Vec::new())));
        }
    }

    /// Leaves a long fragment to whichever worker has time.
    fn put_slice(&self, partition: PartitionId, txn: TxnId) {
        let several = self.engine.slices().put(partition, txn);
        let home = self.engine.home(partition);
        if several && home != self.worker {
            self.engine.mailbox(home).wake();
        }
    }

    fn drain_backlog(self: &Rc<Self>) {
        let next = self.backlog.borrow_mut().pop_front();
        if let Some((partition, message)) = next {
            self.submit(partition, message);
        }
    }
}
