//! State shared by a client's session and its running task: the transaction's state, and calls to
//! partitions with their replies.
//!
//! Invariants
//! 1. `calls` holds exactly the messages that [`Core::send`] has sent and whose answers have not
//!    been taken yet. A reply without a call is stale and is dropped.
//! 2. A partition is entered before the transaction's first message is sent to it.
//! 3. `shown` is at or after every commit revealed by an answer that [`Core::reply`] has taken
//!    since the last transaction end was answered. [`Core::answered`] tells each answer to the
//!    client what to wait for: nothing in an open block, everything at its end. An end that fails
//!    without revealing data leaves this to the next answer ([`Core::refused`]).

use crate::characteristics::{Characteristics, Progress, RunOptions};
use crate::engine::Engine;
use crate::exports::Exported;
use crate::message::control;
use crate::multi;
use crate::outcome::{Part, shows_data};
use crate::port::PortInner;
use crate::protocol::{Coordination, Outgoing};
use crate::replay::{self, Replays, Script};
use crate::snapshot::{ReadAt, View};
use crate::whole::{self, Whole};
use clearway_ir::statement::TxnOptions;
use clearway_ir::{Catalog, Requester};
use clearway_partition::{Body, Failure, Message, Reply, Snapshot, Stake};
use clearway_types::{
    Lsn, PartitionId, RowBatch, SqlError, SqlResult, SqlState, TableId, TreeId, TxnId,
};
use std::cell::{Cell, RefCell, RefMut};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::task::Poll;

/// The answer to a call.
pub(crate) type Answer = Result<Reply, Failure>;

struct Call {
    seq: u32,
    partition: PartitionId,
    txn: TxnId,
    /// With the commit that it depends on.
    answer: Option<(Answer, Lsn)>,
}

/// The kind of transaction that the session is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Block {
    /// None: a single statement commits by itself.
    #[default]
    None,
    /// Opened by several statements in one message; ends with the message.
    Implicit,
    /// Opened by BEGIN.
    Explicit,
}

/// How a transaction arrives: statement by statement, or whole. If it arrives whole, no one waits
/// for its client before its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Statement by statement: the client decides when it continues.
    #[default]
    Parts,
    /// Whole. The partitions have not been requested yet.
    Whole(Whole),
}

/// A savepoint: the coordinator state that ROLLBACK TO restores. Partitions keep their own marks
/// under the same id.
pub(crate) struct Savepoint {
    pub name: String,
    pub id: u32,
    pub overlay: Option<Arc<Catalog>>,
    pub drops: usize,
    pub changed: usize,
    /// The transaction's characteristics when the savepoint was set.
    pub characteristics: Characteristics,
}

/// The state of the session's transaction.
#[derive(Default)]
pub(crate) struct Txn {
    pub block: Block,
    pub failed: bool,
    /// Its partitions, and what the protocol knows of them.
    pub protocol: Coordination,
    /// How it arrived.
    pub arrival: Arrival,
    /// Its replay hides a deadlock ([`crate::replay`], invariant 6).
    pub deadlocked: bool,
    /// Its statements so far, if it can be replayed.
    pub script: Option<Box<Script>>,
    /// Rows that its statements have read and changed.
    pub rows: u64,
    pub savepoints: Vec<Savepoint>,
    pub next_savepoint: u32,
    pub characteristics: Characteristics,
    /// It has run a statement that may read data: most characteristics are fixed from then on.
    pub queried: bool,
    /// What its queries read.
    pub view: View,
    /// Snapshots that it has exported.
    pub exported: Vec<Exported>,
    /// Snapshots of suspended statements, some of which may have been closed.
    pub held: Vec<Weak<Snapshot>>,
    /// The catalog including this transaction's changes.
    pub overlay: Option<Arc<Catalog>>,
    /// Trees created by this transaction.
    pub created: Vec<TreeId>,
    /// Trees to drop at commit.
    pub drops: Vec<TreeId>,
    /// Tables whose definition changes at commit, with the new definitions' versions.
    pub changed: Vec<(TableId, u64)>,
}

impl Txn {
    /// Returns true if a transaction exists: a block, or a statement that has sent a message.
    pub(crate) fn is_open(&self) -> bool {
        self.block != Block::None || self.protocol.id() != TxnId(0)
    }

    /// Returns true for a block that has joined partitions and has no savepoint: after a failure it
    /// can only end.
    pub(crate) fn has_only_to_end(&self) -> bool {
        self.block == Block::Explicit
            && self.savepoints.is_empty()
            && !self.protocol.participants().is_empty()
    }

    /// Prepares for a statement with these options. It may open the implicit block; outside a block
    /// it is a transaction of its own.
    pub(crate) fn enter(&mut self, options: RunOptions) {
        if self.block == Block::None {
            self.characteristics = options.characteristics;
            self.queried = false;
            if options.implicit_block {
                self.block = Block::Implicit;
            }
        }
    }

    /// Applies SET TRANSACTION, or the options of BEGIN.
    ///
    /// # Errors
    /// See [`Characteristics::change`].
    pub(crate) fn change(&mut self, options: TxnOptions) -> SqlResult<()> {
        let at = Progress { queried: self.queried, savepoint: !self.savepoints.is_empty() };
        self.characteristics.change(options, at)
    }
}

pub(crate) struct Core {
    pub port: Rc<PortInner>,
    pub token: u32,
    pub session: u32,
    /// The client is in the port's list of clients to resume.
    pub listed: Cell<bool>,
    /// A send is in progress: the sender itself checks for a reply that arrives now.
    pub sending: Cell<bool>,
    txn: RefCell<Txn>,
    calls: RefCell<Vec<Call>>,
    next_seq: Cell<u32>,
    shown: Cell<Lsn>,
    /// What the current or last statement reads.
    pub read_at: Cell<ReadAt>,
    /// The last commit at the partition whose reply was taken last.
    replied: Cell<Lsn>,
    cancelled: RefCell<Option<SqlError>>,
    /// How many times a deadlock has aborted the running statement, or `None` if it cannot be
    /// retried.
    retries: Cell<Option<u32>>,
    /// The running statement may run behind undecided transactions, or optimistically.
    may_speculate: Cell<bool>,
    /// A partition to which it had exclusive access could not continue at once.
    stalled: Cell<bool>,
    /// What the session has announced about the transaction that the next statement may begin.
    announced: RefCell<Option<Whole>>,
    /// The requester of the current or last DDL statement.
    pub requester: RefCell<Option<Requester>>,
    /// Rows that the session has not taken yet.
    part: RefCell<Option<RowBatch>>,
    /// The running statement has handed out rows.
    has_handed_out: Cell<bool>,
    next_batch: Cell<u32>,
    outgoing: Cell<Vec<Outgoing>>,
    /// The session's replay state.
    pub replays: Replays,
    /// Notices of the running statement.
    notices: RefCell<Vec<(SqlState, String)>>,
}

impl Core {
    pub(crate) fn new(port: Rc<PortInner>, token: u32, session: u32) -> Self {
        Self {
            port,
            token,
            session,
            listed: Cell::new(false),
            sending: Cell::new(false),
            txn: RefCell::default(),
            calls: RefCell::default(),
            next_seq: Cell::new(0),
            shown: Cell::new(Lsn(0)),
            read_at: Cell::default(),
            replied: Cell::new(Lsn(0)),
            cancelled: RefCell::default(),
            notices: RefCell::default(),
            requester: RefCell::default(),
            retries: Cell::default(),
            may_speculate: Cell::default(),
            part: RefCell::default(),
            has_handed_out: Cell::default(),
            next_batch: Cell::default(),
            outgoing: Cell::default(),
            replays: Replays::default(),
            stalled: Cell::default(),
            announced: RefCell::default(),
        }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.port.engine
    }

    /// Returns the transaction's state. Never held across an await or a send.
    pub(crate) fn txn(&self) -> RefMut<'_, Txn> {
        self.txn.borrow_mut()
    }

    /// Returns the catalog as this session sees it.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        match &self.txn().overlay {
            Some(own) => own.clone(),
            None => self.port.catalog(),
        }
    }

    /// Returns the version of [`Core::catalog`].
    pub(crate) fn catalog_version(&self) -> u64 {
        match &self.txn().overlay {
            Some(own) => own.version,
            None => self.engine().catalog_version(),
        }
    }

    /// Sends a message. [`Core::reply`] or [`Core::try_reply`] takes its answer.
    #[track_caller]
    pub(crate) fn send(&self, partition: PartitionId, txn: TxnId, body: Body) -> u32 {
        let seq = self.next_seq.get();
        self.next_seq.set(seq.wrapping_add(1));
        self.port.turns.works();
        self.calls.borrow_mut().push(Call { seq, partition, txn, answer: None });
        self.sending.set(true);
        let stake = match body {
            Body::OneShot { .. } => Stake::Retry(0),
            Body::Settle => replay::stake_of_settle(self).unwrap_or_else(|| self.stake()),
            _ => self.stake(),
        };
        let origin = self.port.origin(self.token, seq);
        self.port.submit(partition, Message { txn, stake, origin, body });
        self.sending.set(false);
        seq
    }

    /// Records how many times a deadlock has aborted the running statement, or `None` if it cannot
    /// be retried.
    pub(crate) fn set_retries(&self, retries: Option<u32>) {
        self.retries.set(retries);
    }

    /// Records whether the running statement may run behind undecided transactions, or
    /// optimistically.
    pub(crate) fn allow_speculation(&self, yes: bool) {
        self.may_speculate.set(yes);
    }

    /// Returns true if the running statement may run behind undecided transactions, or
    /// optimistically.
    pub(crate) fn may_speculate(&self) -> bool {
        self.may_speculate.get()
    }

    /// Returns the transaction's stake. A statement without retries left counts as a block.
    fn stake(&self) -> Stake {
        if let Some(stake) = self.replays.stake() {
            return stake;
        }
        let txn = self.txn();
        match self.retries.get() {
            Some(retries) if txn.block == Block::None && multi::may_retry(self, retries) => {
                Stake::Retry(retries)
            }
            _ => Stake::Rows(txn.rows),
        }
    }

    /// Returns the transactions of the unanswered calls.
    pub(crate) fn calling(&self) -> Vec<TxnId> {
        self.calls.borrow().iter().filter(|c| c.answer.is_none()).map(|c| c.txn).collect()
    }

    pub(crate) fn deliver(&self, seq: u32, answer: Answer, depends_on: Lsn) {
        if let Some(call) = self.calls.borrow_mut().iter_mut().find(|c| c.seq == seq) {
            call.answer = Some((answer, depends_on));
        }
    }

    /// Records that the next answer to the client reveals this commit.
    pub(crate) fn show(&self, commit: Lsn) {
        self.shown.set(self.shown.get().max(commit));
    }

    /// Returns what an answer to the client must wait for. `wait` is the transaction's commit
    /// record, 0 if there is none. Invariant 3: while the transaction is open, only an error that
    /// ends an implicit one waits.
    pub(crate) fn answered(&self, wait: Lsn, failed: bool) -> Lsn {
        let txn = self.txn();
        match txn.block {
            Block::Explicit => Lsn(0),
            Block::None if txn.protocol.id() == TxnId(0) => wait.max(self.shown.take()),
            _ if failed => self.shown.get(),
            _ => Lsn(0),
        }
    }

    /// Like [`Core::answered`], for an error, which fails an open block. An error that reveals no
    /// data does not wait: the log may have failed, and then nothing becomes durable any more.
    pub(crate) fn refused(&self, error: &SqlError) -> Lsn {
        {
            let mut txn = self.txn();
            txn.failed |= txn.block != Block::None;
            if txn.failed && txn.savepoints.is_empty() {
                // No savepoint precedes the error: nothing needs the snapshots any more.
                txn.view = View::Undecided;
                txn.exported.iter().for_each(Exported::fail);
            }
        }
        // A later answer then waits for what the block has revealed (invariant 3).
        if shows_data(error.state()) { self.answered(Lsn(0), true) } else { Lsn(0) }
    }

    /// See [`clearway_partition::Out::Stalled`]. Noted until the task checks for replies. A notice
    /// about an answered call is late, and may belong to an earlier transaction.
    pub(crate) fn stall(&self, seq: u32) {
        let calls = self.calls.borrow();
        if calls.iter().any(|call| call.seq == seq && call.answer.is_none()) {
            self.stalled.set(true);
        }
    }

    /// Like [`Core::try_reply`], for a call whose answer reveals nothing: the end of a transaction.
    pub(crate) fn try_end(&self, seq: u32) -> Option<Answer> {
        self.take(seq).map(|(answer, _)| answer)
    }

    /// Gives up exclusive partitions if a call cannot continue at once, so that no one waits for
    /// this transaction meanwhile.
    pub(crate) fn unblock_if_stalled(&self) {
        if !self.stalled.take() {
            return;
        }
        multi::tell(self, Coordination::stalled);
    }

    /// Like [`Txn::enter`], with what was announced about the new transaction.
    pub(crate) fn enter(&self, options: RunOptions) {
        let announced = self.announced.take();
        let mut txn = self.txn();
        if txn.block == Block::None {
            txn.arrival = announced.map_or(Arrival::Parts, Arrival::Whole);
        }
        txn.enter(options);
    }

    /// See [`crate::Client::announce`].
    pub(crate) fn announce(&self, whole: Option<Whole>) {
        self.announced.replace(whole);
    }

    fn take(&self, seq: u32) -> Option<(Answer, Lsn)> {
        let mut calls = self.calls.borrow_mut();
        let at = calls.iter().position(|c| c.seq == seq && c.answer.is_some())?;
        calls.swap_remove(at).answer
    }

    pub(crate) fn try_reply(&self, seq: u32) -> Option<Answer> {
        let (answer, depends_on) = self.take(seq)?;
        self.show(depends_on);
        self.replied.set(depends_on);
        self.txn().protocol.note(&answer);
        Some(answer)
    }

    /// Returns the snapshot that the last statement read, or `None` if it read the newest state. A
    /// partition without commits since the start shows its state at the start.
    pub(crate) fn reads_at(&self) -> Option<Lsn> {
        match self.read_at.get() {
            ReadAt::Newest => None,
            ReadAt::Snapshot(at) => Some(at),
            ReadAt::Reply => Some(self.replied.get().max(self.engine().started_at())),
        }
    }

    pub(crate) async fn reply(&self, seq: u32) -> Answer {
        self.wait_for(|| self.try_reply(seq)).await
    }

    /// Like [`Core::reply`], for whichever of these calls is answered first. Also returns its
    /// index.
    pub(crate) async fn first_reply(&self, calls: &[u32]) -> (usize, Answer) {
        let first =
            || calls.iter().enumerate().find_map(|(at, seq)| Some((at, self.try_reply(*seq)?)));
        self.wait_for(first).await
    }

    /// Waits until [`Core::try_end`] returns an answer.
    pub(crate) async fn end(&self, seq: u32) -> Answer {
        self.wait_for(|| self.try_end(seq)).await
    }

    async fn wait_for<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        poll_fn(|_| {
            self.unblock_if_stalled();
            look().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Ends the unanswered ones of these calls with this error.
    pub(crate) fn cancel_calls(&self, calls: &[u32], error: &SqlError) {
        let unanswered = |c: &&Call| c.answer.is_none() && calls.contains(&c.seq);
        let waiting: Vec<_> =
            self.calls.borrow().iter().filter(unanswered).map(|c| (c.partition, c.txn)).collect();
        self.sending.set(true);
        for (partition, txn) in waiting {
            self.port.submit(partition, control(txn, Body::Cancel(error.clone())));
        }
        self.sending.set(false);
    }

    /// Like [`Core::cancel_calls`], for all calls.
    pub(crate) fn cancel_all(&self, error: &SqlError) {
        let calls: Vec<u32> = self.calls.borrow().iter().map(|c| c.seq).collect();
        self.cancel_calls(&calls, error);
    }

    /// Hands rows to the session. Returns when it wants more, with an error if the statement was
    /// cancelled meanwhile. A statement cancelled before this hands out nothing: the session may be
    /// gone.
    pub(crate) async fn hand_out(&self, rows: RowBatch) -> SqlResult<()> {
        self.check_cancelled()?;
        self.streams(true);
        // The client may take its time with the rows.
        whole::release_exclusive(self);
        self.part.replace(Some(rows));
        let mut first = true;
        poll_fn(|_| if std::mem::take(&mut first) { Poll::Pending } else { Poll::Ready(()) }).await;
        self.check_cancelled()
    }

    /// Records whether the client has rows of the running statement. If so, it cannot be retried.
    pub(crate) fn streams(&self, yes: bool) {
        self.has_handed_out.set(yes);
        if yes {
            self.set_retries(None);
        }
    }

    /// Returns true if the client has rows of the running statement.
    pub(crate) fn has_handed_out(&self) -> bool {
        self.has_handed_out.get()
    }

    /// Takes rows for the client. Inside a block, its end waits for the commits that they reveal.
    pub(crate) fn take_part(&self) -> Option<Part> {
        let rows = self.part.take()?;
        let wait = if self.txn().block == Block::Explicit { Lsn(0) } else { self.shown.get() };
        Some(Part { rows, wait })
    }

    /// Returns an empty list for the protocol's messages.
    pub(crate) fn take_outgoing(&self) -> Vec<Outgoing> {
        self.outgoing.take()
    }

    /// Keeps the list's memory for the next transaction's end.
    pub(crate) fn keep_outgoing(&self, mut list: Vec<Outgoing>) {
        list.clear();
        self.outgoing.set(list);
    }

    /// Returns an id for a statement's batches, unique within the transaction.
    pub(crate) fn next_batch(&self) -> u32 {
        let id = self.next_batch.get();
        self.next_batch.set(id.wrapping_add(1));
        id
    }

    /// Returns the last of these ids.
    pub(crate) fn last_batch(&self) -> u32 {
        self.next_batch.get().wrapping_sub(1)
    }

    /// Lets the worker's other sessions run. Returns an error if the statement was cancelled
    /// meanwhile.
    pub(crate) async fn yield_turn(&self) -> Result<(), SqlError> {
        let mut first = true;
        poll_fn(|_| {
            if std::mem::take(&mut first) {
                self.port.wake_later(self.token);
                Poll::Pending
            } else {
                Poll::Ready(())
            }
        })
        .await;
        self.check_cancelled()
    }

    pub(crate) fn check_cancelled(&self) -> Result<(), SqlError> {
        match self.cancelled.borrow_mut().take() {
            Some(e) => Err(e),
            None => Ok(()),
        }
    }

    /// Restores an error taken by [`Core::check_cancelled`], for the next caller.
    pub(crate) fn cancel_again(&self, error: SqlError) {
        self.cancelled.replace(Some(error));
    }

    /// Adds a notice for the client while the statement runs.
    pub(crate) fn notice(&self, state: SqlState, text: String) {
        self.notices.borrow_mut().push((state, text));
    }

    pub(crate) fn take_notices(&self) -> Vec<(SqlState, String)> {
        self.notices.take()
    }

    pub(crate) fn forget_cancel(&self) {
        self.cancelled.borrow_mut().take();
    }

    /// Ends the session's waits with this error.
    pub(crate) fn cancel(&self, error: &SqlError) {
        self.cancelled.replace(Some(error.clone()));
        self.cancel_all(error);
        // A task that waits for no partition checks for itself.
        self.port.wake_later(self.token);
    }
}
