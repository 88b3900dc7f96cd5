//! What a client's session and its running task share: the transaction's state, and calls to
//! partitions with their replies.
//!
//! Invariants
//! 1. `calls` holds exactly the messages sent and not yet taken by [`Core::reply`]; a reply whose
//!    call is not there is stale and dropped.
//! 2. `txn.participants` holds every partition that may hold locks or effects of the transaction:
//!    it is entered before the first message is sent.
//! 3. `shown` is at or behind every commit that an answer showed which [`Core::reply`] has taken
//!    since the last transaction's end was answered. Every answer to the session's client gets from
//!    [`Core::answered`] what it must wait for: in an open block nothing, at its end all of it.

use crate::characteristics::{Characteristics, Progress};
use crate::client::RunOptions;
use crate::engine::Engine;
use crate::exports::Exported;
use crate::multi;
use crate::outcome::{Part, shows_data};
use crate::port::{PortInner, control};
use crate::replay::{Replays, Script};
use crate::snapshot::{ReadAt, View};
use crate::whole::{self, Whole};
use clearway_ir::statement::TxnOptions;
use clearway_ir::{Asker, Catalog};
use clearway_partition::{Body, Failure, Message, Reply, Snapshot, Stake};
use clearway_types::{
    Lsn, PartitionId, RowBatch, SqlError, SqlResult, SqlState, TableId, TreeId, TxnId,
};
use std::cell::{Cell, RefCell, RefMut};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::task::Poll;

/// A call's answer.
pub(crate) type Answer = Result<Reply, Failure>;

struct Call {
    seq: u32,
    partition: PartitionId,
    txn: TxnId,
    /// With the commit that it depends on.
    answer: Option<(Answer, Lsn)>,
}

/// What kind of transaction the session is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Block {
    /// None: a statement on its own commits by itself.
    #[default]
    None,
    /// Opened by several statements in one message; ends with it.
    Implicit,
    /// BEGIN.
    Explicit,
}

/// How a transaction arrives: statement by statement, or as a whole, so that nobody waits for its
/// client before its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Its client decides when it goes on.
    #[default]
    Parts,
    /// As a whole. It has not asked for its partitions yet.
    Whole(Whole),
}

/// A savepoint: what ROLLBACK TO goes back to at the coordinator; partitions keep their own marks
/// under the same id.
pub(crate) struct Savepoint {
    pub name: String,
    pub id: u32,
    pub overlay: Option<Arc<Catalog>>,
    pub drops: usize,
    pub changed: usize,
    /// The transaction's when it was set.
    pub characteristics: Characteristics,
}

/// The state of the session's transaction.
#[derive(Default)]
pub(crate) struct Txn {
    pub block: Block,
    pub failed: bool,
    /// 0 until the first message to a partition.
    pub id: TxnId,
    pub participants: Vec<PartitionId>,
    /// Those of them that it has to itself, in their order.
    pub blocked: Vec<PartitionId>,
    /// It has been given all partitions that it asked for, which take it for one that is soon over.
    pub short: bool,
    /// How it arrived.
    pub arrival: Arrival,
    pub wrote: bool,
    /// Where it has changed rows whose last change was not committed:
    /// [`clearway_partition::Reply::behind`].
    pub behind: Vec<PartitionId>,
    /// One that it was behind has been undone, and so has this one: [`Failure::Undone`].
    pub undone: bool,
    /// What it has done so far, if it may be run again.
    pub script: Option<Box<Script>>,
    /// Rows that its statements have read and changed.
    pub rows: u64,
    pub savepoints: Vec<Savepoint>,
    pub next_savepoint: u32,
    pub characteristics: Characteristics,
    /// It has run a statement that may look at data: most characteristics are fixed from then on.
    pub queried: bool,
    /// What its queries read.
    pub view: View,
    /// The snapshots that it has exported.
    pub exported: Vec<Exported>,
    /// Those that suspended statements see, and that may have been closed.
    pub held: Vec<Weak<Snapshot>>,
    /// The catalog with this transaction's own changes.
    pub overlay: Option<Arc<Catalog>>,
    /// Trees made by this transaction.
    pub created: Vec<TreeId>,
    /// Trees to drop when it commits.
    pub drops: Vec<TreeId>,
    /// Tables whose definition changes when it commits, with the versions of the new definitions.
    pub changed: Vec<(TableId, u64)>,
}

impl Txn {
    /// Whether there is a transaction: a block, or a statement that has been to a partition.
    pub(crate) fn is_open(&self) -> bool {
        self.block != Block::None || self.id != TxnId(0)
    }

    /// Whether a failure leaves a block nothing to go back to, but work and locks.
    pub(crate) fn has_only_to_end(&self) -> bool {
        self.block == Block::Explicit && self.savepoints.is_empty() && !self.participants.is_empty()
    }

    /// A statement with these options is about to run: it may open the implicit block, and where
    /// there is no block it is a transaction of its own.
    pub(crate) fn enter(&mut self, options: RunOptions) {
        if self.block == Block::None {
            self.characteristics = options.characteristics;
            self.queried = false;
            if options.implicit_block {
                self.block = Block::Implicit;
            }
        }
    }

    /// SET TRANSACTION, and the options of BEGIN.
    ///
    /// # Errors
    /// As [`Characteristics::change`].
    pub(crate) fn change(&mut self, options: TxnOptions) -> SqlResult<()> {
        let at = Progress { queried: self.queried, savepoint: !self.savepoints.is_empty() };
        self.characteristics.change(options, at)
    }
}

pub(crate) struct Core {
    pub port: Rc<PortInner>,
    pub token: u32,
    pub session: u32,
    /// It is in the port's list of clients that may go on.
    pub listed: Cell<bool>,
    /// It is sending: a reply that comes now is seen by the sender itself.
    pub sending: Cell<bool>,
    txn: RefCell<Txn>,
    calls: RefCell<Vec<Call>>,
    next_seq: Cell<u32>,
    shown: Cell<Lsn>,
    /// What the statement that runs, or was the last to run, reads.
    pub read_at: Cell<ReadAt>,
    /// The last commit at the partition whose reply was taken last.
    replied: Cell<Lsn>,
    cancelled: RefCell<Option<SqlError>>,
    /// How often the statement that runs has been given up in a deadlock; `None`: it cannot be run
    /// again.
    retries: Cell<Option<u32>>,
    /// A partition that it had to itself could not go on at once.
    stalled: Cell<bool>,
    /// What the session knows of the transaction that the next statement may begin.
    announced: RefCell<Option<Whole>>,
    /// Whose DDL statement runs, or was the last to run.
    pub asker: RefCell<Option<Asker>>,
    /// Rows that the session has not taken yet.
    part: RefCell<Option<RowBatch>>,
    /// The statement that runs has handed out rows.
    has_handed_out: Cell<bool>,
    next_batch: Cell<u32>,
    /// Of blocks that are run again.
    pub replays: Replays,
    /// What the running statement has to say before it ends.
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
            asker: RefCell::default(),
            retries: Cell::default(),
            part: RefCell::default(),
            has_handed_out: Cell::default(),
            next_batch: Cell::default(),
            replays: Replays::default(),
            stalled: Cell::default(),
            announced: RefCell::default(),
        }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.port.engine
    }

    /// The transaction's state. Never held over an await or a send.
    pub(crate) fn txn(&self) -> RefMut<'_, Txn> {
        self.txn.borrow_mut()
    }

    /// The catalog as this session sees it.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        match &self.txn().overlay {
            Some(own) => own.clone(),
            None => self.port.catalog(),
        }
    }

    /// Sends a message; its answer is taken by [`Core::reply`] or [`Core::try_reply`].
    #[track_caller]
    pub(crate) fn send(&self, partition: PartitionId, txn: TxnId, body: Body) -> u32 {
        let seq = self.next_seq.get();
        self.next_seq.set(seq.wrapping_add(1));
        self.port.turns.works();
        self.calls.borrow_mut().push(Call { seq, partition, txn, answer: None });
        self.sending.set(true);
        let stake =
            if matches!(body, Body::OneShot { .. }) { Stake::Retry(0) } else { self.stake() };
        let origin = self.port.origin(self.token, seq);
        self.port.submit(partition, Message { txn, stake, origin, body });
        self.sending.set(false);
        seq
    }

    /// Says how often the statement that runs has been given up in a deadlock; `None`: it cannot be
    /// run again.
    pub(crate) fn set_retries(&self, retries: Option<u32>) {
        self.retries.set(retries);
    }

    /// What the transaction has at stake. Whoever has been run again as often as is allowed is as a
    /// block.
    fn stake(&self) -> Stake {
        let txn = self.txn();
        match self.retries.get() {
            Some(retries) if txn.block == Block::None && multi::may_retry(self, retries) => {
                Stake::Retry(retries)
            }
            _ => Stake::Rows(txn.rows),
        }
    }

    /// The transactions of the calls that wait for an answer.
    pub(crate) fn calling(&self) -> Vec<TxnId> {
        self.calls.borrow().iter().filter(|c| c.answer.is_none()).map(|c| c.txn).collect()
    }

    pub(crate) fn deliver(&self, seq: u32, answer: Answer, depends_on: Lsn) {
        if let Some(call) = self.calls.borrow_mut().iter_mut().find(|c| c.seq == seq) {
            call.answer = Some((answer, depends_on));
        }
    }

    /// What the session's client is told next shows what was committed there.
    pub(crate) fn show(&self, commit: Lsn) {
        self.shown.set(self.shown.get().max(commit));
    }

    /// What an answer to the client must wait for; `wait`: its transaction's commit record, 0 if
    /// there is none. Invariant 3: as long as the transaction is open, only an error that ends an
    /// implicit one waits.
    pub(crate) fn answered(&self, wait: Lsn, failed: bool) -> Lsn {
        let txn = self.txn();
        match txn.block {
            Block::Explicit => Lsn(0),
            Block::None if txn.id == TxnId(0) => wait.max(self.shown.take()),
            _ if failed => self.shown.get(),
            _ => Lsn(0),
        }
    }

    /// As [`Core::answered`], of an error, which fails an open block. One that says nothing about
    /// data does not wait for any: the log may have failed, and then nothing becomes durable any
    /// more.
    pub(crate) fn refused(&self, error: &SqlError) -> Lsn {
        {
            let mut txn = self.txn();
            txn.failed |= txn.block != Block::None;
            if txn.failed && txn.savepoints.is_empty() {
                // Nothing goes back to before the error: nobody needs what it has seen.
                txn.view = View::Undecided;
                txn.exported.iter().for_each(Exported::fail);
            }
        }
        let wait = self.answered(Lsn(0), true);
        if shows_data(error.state()) { wait } else { Lsn(0) }
    }

    /// See [`clearway_partition::Out::Stalled`]: noted until the task looks for its replies.
    pub(crate) fn stall(&self) {
        self.stalled.set(true);
    }

    /// As [`Core::try_reply`], of a call whose answer shows nothing: the end of a transaction.
    pub(crate) fn try_end(&self, seq: u32) -> Option<Answer> {
        self.take(seq).map(|(answer, _)| answer)
    }

    /// A call cannot go on at once: nobody is to wait for the transaction meanwhile.
    pub(crate) fn let_go_if_stalled(&self) {
        if !self.stalled.take() {
            return;
        }
        let has_partitions = !self.txn().blocked.is_empty();
        if has_partitions { multi::unblock(self) } else { whole::let_go(self) }
    }

    /// As [`Txn::enter`], with what was announced of the transaction that begins.
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
        match &answer {
            Ok(reply) => self.txn().behind.extend(reply.behind),
            Err(Failure::Undone) => self.txn().undone = true,
            Err(_) => {}
        }
        Some(answer)
    }

    /// The snapshot that the last statement read; `None`: what was newest. A partition where
    /// nothing was committed since the start shows what there was then.
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

    /// As [`Core::reply`], of the call among these that is answered first, and which of them that
    /// is.
    pub(crate) async fn first_reply(&self, calls: &[u32]) -> (usize, Answer) {
        let first =
            || calls.iter().enumerate().find_map(|(at, seq)| Some((at, self.try_reply(*seq)?)));
        self.wait_for(first).await
    }

    /// As [`Core::try_end`], when it has come.
    pub(crate) async fn end(&self, seq: u32) -> Answer {
        self.wait_for(|| self.try_end(seq)).await
    }

    async fn wait_for<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        poll_fn(|_| {
            self.let_go_if_stalled();
            look().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Has those of the calls that have no answer end with this error.
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

    /// As [`Core::cancel_calls`], of all.
    pub(crate) fn cancel_all(&self, error: &SqlError) {
        let calls: Vec<u32> = self.calls.borrow().iter().map(|c| c.seq).collect();
        self.cancel_calls(&calls, error);
    }

    /// Gives rows to the session. Goes on when it wants more, with an error if the statement has
    /// been cancelled meanwhile. If it was cancelled before, nobody may be there to want more.
    pub(crate) async fn hand_out(&self, rows: RowBatch) -> SqlResult<()> {
        self.check_cancelled()?;
        self.streams(true);
        // The client may take its time for them.
        whole::let_go(self);
        self.part.replace(Some(rows));
        let mut first = true;
        poll_fn(|_| if std::mem::take(&mut first) { Poll::Pending } else { Poll::Ready(()) }).await;
        self.check_cancelled()
    }

    /// Notes whether the client has rows of the statement that runs: then it cannot be run again.
    pub(crate) fn streams(&self, yes: bool) {
        self.has_handed_out.set(yes);
        if yes {
            self.set_retries(None);
        }
    }

    /// Whether the client has rows of the statement that runs.
    pub(crate) fn has_handed_out(&self) -> bool {
        self.has_handed_out.get()
    }

    /// Rows for the client. In a block what they show counts at its end, as that of answers does.
    pub(crate) fn take_part(&self) -> Option<Part> {
        let rows = self.part.take()?;
        let wait = if self.txn().block == Block::Explicit { Lsn(0) } else { self.shown.get() };
        Some(Part { rows, wait })
    }

    /// An id for the batches of a statement, unlike those of the transaction's other statements.
    pub(crate) fn next_batch(&self) -> u32 {
        let id = self.next_batch.get();
        self.next_batch.set(id.wrapping_add(1));
        id
    }

    /// The last of these ids.
    pub(crate) fn last_batch(&self) -> u32 {
        self.next_batch.get().wrapping_sub(1)
    }

    /// Lets other sessions of the worker have a turn, and ends with an error if the statement has
    /// been cancelled meanwhile.
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

    /// Puts back what [`Core::check_cancelled`] has taken, for who looks next.
    pub(crate) fn cancel_again(&self, error: SqlError) {
        self.cancelled.replace(Some(error));
    }

    /// Tells the client something while the statement goes on.
    pub(crate) fn notice(&self, state: SqlState, text: String) {
        self.notices.borrow_mut().push((state, text));
    }

    pub(crate) fn take_notices(&self) -> Vec<(SqlState, String)> {
        self.notices.take()
    }

    pub(crate) fn forget_cancel(&self) {
        self.cancelled.borrow_mut().take();
    }

    /// Ends what the session waits for with this error.
    pub(crate) fn cancel(&self, error: &SqlError) {
        self.cancelled.replace(Some(error.clone()));
        self.cancel_all(error);
        // What waits for no partition looks by itself.
        self.port.wake_later(self.token);
    }
}
