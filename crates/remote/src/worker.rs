//! A worker: several concurrent transactions, none of which blocks it.
//!
//! # Invariants
//! 1. A transaction has at most one call in flight, or the release of all its locks. An access has
//!    at most one batch in flight.
//! 2. [`WorkerEvent::Aborted`] and [`WorkerEvent::Committed`] come after every lock of the
//!    transaction has been released.
//! 3. Scratch words belong to one access of one transaction from its first batch until that event.
//!
//! Waits and their bounds: a batch that does not fit its queue pair waits in `backlog`, which holds
//! at most one batch per access. WAIT_DIE waits by retrying as long as younger transactions hold
//! the row.

pub(crate) mod direct;
mod lease;
mod log;
mod post;
mod recover;

use crate::access::{Access, Context, Held, Progress, SCRATCH_HEADER};
use crate::kinds::Kinds;
use crate::mailbox::{Connected, MAX_PLACES, Mailbox};
use crate::mode::MAX_COUNT;
use crate::traps::Planted;
#[cfg(test)]
use crate::traps::Trap;
use crate::{AbortCause, Phase, RemoteError, RemoteStats, RowClient, RowId, StartTimestamp, Table};
use clearway_fabric::{Completion, FabricNode, FabricWorker, QueueId, Region, Request, VerbError};
use lease::{LEASE_WORDS, Leases};
use std::collections::VecDeque;

/// A transaction of one worker. A handle is never reused, but its slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnHandle {
    pub(crate) slot: usize,
    pub(crate) serial: u64,
}

/// An event of [`RowClient::poll`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerEvent {
    /// The requested row is locked, and its payload can be read.
    Locked(TxnHandle, RowId),
    /// The row has been read without a lock: its words may be of several versions.
    Peeked(TxnHandle, RowId),
    /// The row is no longer locked.
    Released(TxnHandle, RowId),
    /// The transaction has committed.
    Committed(TxnHandle),
    /// The transaction has been aborted: restart it by [`RowClient::restart`] with this timestamp.
    Aborted(TxnHandle, StartTimestamp, AbortCause),
}

/// Limits of a worker.
#[derive(Clone, Copy, Debug)]
pub struct WorkerLimits {
    /// Concurrent transactions.
    pub transactions: usize,
    /// Rows of one transaction.
    pub rows: usize,
}

impl WorkerLimits {
    /// Returns the scratch words that the worker needs for payloads of at most `payload_words`.
    pub fn scratch_words(&self, payload_words: usize) -> usize {
        self.transactions * self.rows * (SCRATCH_HEADER + payload_words) + LEASE_WORDS
    }

    /// Returns the words of a worker's mailbox.
    pub fn mailbox_words(&self) -> usize {
        self.transactions * self.rows * 2
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Running,
    /// Its changes are being written to the log.
    Logging,
    /// Its records in the log are being made valid.
    Sealing,
    Committing,
    Aborting(AbortCause),
}

struct Txn {
    state: State,
    handle: TxnHandle,
    start: StartTimestamp,
    accesses: Vec<Access>,
    /// Accesses whose release, or record in the log, is in flight.
    releasing: usize,
}

/// One thread's access to a table.
pub struct RowWorker<'a, W> {
    fabric: W,
    table: Table,
    limits: WorkerLimits,
    /// This node's own rows, if its CPU may access them beside the fabric.
    local: Option<(FabricNode, &'a dyn Region)>,
    /// By owner.
    queues: Vec<QueueId>,
    txns: Vec<Txn>,
    number: u16,
    /// Transactions started so far, including restarts.
    serial: u64,
    /// Logical time: newer than every start seen.
    newest: u64,
    backlog: VecDeque<(QueueId, Vec<Request>)>,
    /// The last marks that this worker has set in its records, by transaction slot and owner.
    marks: Vec<u64>,
    kinds: Kinds,
    leases: Leases,
    mailbox: Option<Connected<'a>>,
    /// Accesses that wait for a word of the mailbox.
    parked: Vec<(usize, usize)>,
    /// Accesses whose batch the CPU has executed.
    executed: VecDeque<(usize, usize)>,
    completions: Vec<Completion>,
    /// Verbs posted and not completed.
    outstanding: usize,
    events: VecDeque<WorkerEvent>,
    stats: RemoteStats,
    planted: Planted,
}

/// Connects to all owners of a table, or to none.
fn connect<W: FabricWorker>(fabric: &mut W, table: &Table) -> Result<Vec<QueueId>, RemoteError> {
    let mut queues = Vec::new();
    for owner in &table.owners {
        match fabric.connect(owner.address) {
            Ok(queue) => queues.push(queue),
            Err(why) => {
                queues.into_iter().for_each(|queue| fabric.disconnect(queue));
                return Err(RemoteError::Fabric(why));
            }
        }
    }
    Ok(queues)
}

impl<'a, W: FabricWorker> RowWorker<'a, W> {
    /// Connects a worker to the owners of a table. `number` is unique among all workers of the
    /// table.
    ///
    /// `local` is the region of this node's own rows. The worker accesses it directly if the fabric
    /// says that CPU and fabric atomics exclude each other. Otherwise, and if it is `None`, the
    /// worker uses verbs.
    ///
    /// # Errors
    /// Returns [`RemoteError::Fabric`] if an owner cannot be reached.
    ///
    /// # Panics
    /// Panics if the scratch area is smaller than [`WorkerLimits::scratch_words`].
    pub fn new(
        mut fabric: W,
        table: Table,
        number: u16,
        limits: WorkerLimits,
        local: Option<&'a dyn Region>,
    ) -> Result<Self, RemoteError> {
        assert!(
            fabric.scratch_words() >= limits.scratch_words(table.longest_payload()),
            "scratch area too small"
        );
        assert!(
            !table.mode.has_line() || limits.transactions * limits.rows <= MAX_PLACES,
            "too many places in lines"
        );
        let queues = connect(&mut fabric, &table)?;
        let handle = TxnHandle { slot: 0, serial: 0 };
        let free = || Txn {
            state: State::Free,
            handle,
            start: StartTimestamp(0),
            accesses: Vec::new(),
            releasing: 0,
        };
        let node = fabric.address().node;
        if table.is_logged() {
            recover::assert_recoverable(&table, number, limits);
        }
        let marks = vec![0; limits.transactions * table.owners.len()];
        // With a log, even local rows need verbs, because a fence stops only verbs.
        let local = local
            .filter(|_| fabric.guarantees().cpu_atomics && !table.is_logged())
            .map(|region| (node, region));
        let leases = Leases::new(table.owners.len());
        Ok(Self {
            fabric,
            txns: std::iter::repeat_with(free).take(limits.transactions).collect(),
            table,
            limits,
            local,
            queues,
            number,
            serial: 0,
            newest: 0,
            backlog: VecDeque::new(),
            marks,
            kinds: Kinds::new(),
            leases,
            mailbox: None,
            parked: Vec::new(),
            executed: VecDeque::new(),
            completions: Vec::new(),
            outstanding: 0,
            events: VecDeque::new(),
            stats: RemoteStats::default(),
            planted: Planted::default(),
        })
    }

    /// Gives a worker the mailbox that it needs for [`LockKind::Line`](crate::LockKind::Line), and
    /// connects it to the other mailboxes.
    ///
    /// # Errors
    /// Returns [`RemoteError::Fabric`] if a node cannot be reached.
    pub fn with_mailbox(mut self, mailbox: Mailbox<'a>) -> Result<Self, RemoteError> {
        let (connected, result) = Connected::new(mailbox, &mut self.fabric);
        self.mailbox = Some(connected);
        result.map(|()| self)
    }

    #[cfg(test)]
    pub(crate) fn plant(&mut self, trap: Trap, local: Option<&'a dyn Region>) {
        self.planted = Planted(Some(trap));
        if trap == Trap::DirectLocal {
            self.local = local.map(|local| (self.fabric.address().node, local));
        }
    }

    /// Returns the worker's part of the fabric, to wait for completions.
    pub fn fabric(&mut self) -> &mut W {
        &mut self.fabric
    }

    fn assert_idle(&self, txn: TxnHandle) {
        let handle = txn;
        let txn = &self.txns[handle.slot];
        assert!(
            txn.handle == handle && txn.state == State::Running,
            "the transaction is not running"
        );
        assert!(
            txn.accesses.iter().all(|access| access.pending == 0),
            "the transaction has a call in flight"
        );
    }

    /// Returns the transaction's access to a row. A new row takes the place of a released one, if
    /// there is any.
    fn access(&mut self, txn: TxnHandle, row: RowId) -> usize {
        self.assert_idle(txn);
        if let Some(known) = self.known(txn, row) {
            return known;
        }
        let accesses = &mut self.txns[txn.slot].accesses;
        let index =
            accesses.iter().position(|access| access.held == Held::Not).unwrap_or(accesses.len());
        assert!(index < self.limits.rows, "more than {} rows in one transaction", self.limits.rows);
        let place = txn.slot * self.limits.rows + index;
        let access =
            Access::new(row, place, place * (SCRATCH_HEADER + self.table.longest_payload()));
        match accesses.get_mut(index) {
            Some(old) => *old = access,
            None => accesses.push(access),
        }
        index
    }

    fn known(&self, txn: TxnHandle, row: RowId) -> Option<usize> {
        assert!(self.txns[txn.slot].handle == txn, "the transaction has ended");
        self.txns[txn.slot].accesses.iter().position(|access| access.row == row)
    }

    fn release_all(&mut self, txn: usize, state: State) -> Result<(), RemoteError> {
        self.txns[txn].state = state;
        // The last released access ends the transaction, but not before all releases have been
        // started.
        self.txns[txn].releasing = self.txns[txn].accesses.len() + 1;
        let (phase, commit) = match state {
            State::Committing => (Phase::Commit, true),
            _ => (Phase::Abort, false),
        };
        for access in 0..self.txns[txn].accesses.len() {
            self.step(txn, access, phase, |access, cx| access.release(commit, cx))?;
        }
        self.released(txn);
        Ok(())
    }

    fn released(&mut self, slot: usize) {
        let txn = &mut self.txns[slot];
        txn.releasing -= 1;
        if txn.releasing > 0 {
            return;
        }
        txn.accesses.clear();
        let event = match std::mem::replace(&mut txn.state, State::Free) {
            State::Committing => {
                self.stats.commits += 1;
                WorkerEvent::Committed(txn.handle)
            }
            State::Aborting(cause) => {
                self.stats.count_abort(cause);
                WorkerEvent::Aborted(txn.handle, txn.start, cause)
            }
            State::Free | State::Running | State::Logging | State::Sealing => {
                unreachable!("no release is in flight")
            }
        };
        self.events.push_back(event);
    }

    fn complete(&mut self, txn: usize, access: usize) -> Result<(), RemoteError> {
        let phase = match self.txns[txn].state {
            State::Committing => Phase::Commit,
            State::Aborting(_) => Phase::Abort,
            State::Logging | State::Sealing => Phase::Log,
            State::Free | State::Running => Phase::Lock,
        };
        self.step(txn, access, phase, Access::advance)
    }

    /// Handles the success of a verb of an access.
    fn completed(&mut self, id: u64) -> Result<(), RemoteError> {
        let (txn, access) = (id as usize / self.limits.rows, id as usize % self.limits.rows);
        self.txns[txn].accesses[access].pending -= 1;
        if self.txns[txn].accesses[access].pending == 0 {
            self.complete(txn, access)?;
        }
        Ok(())
    }

    /// Runs one step of an access and processes the result.
    fn step(
        &mut self,
        txn: usize,
        access: usize,
        phase: Phase,
        step: impl FnOnce(&mut Access, &mut Context<'_, W>) -> Progress,
    ) -> Result<(), RemoteError> {
        let mut batch = Vec::new();
        let Txn { state, handle, start, accesses, .. } = &mut self.txns[txn];
        let running = *state == State::Running;
        let mut cx = Context {
            table: &self.table,
            txn: *start,
            fabric: &mut self.fabric,
            batch: &mut batch,
            stats: &mut self.stats,
            newest: &mut self.newest,
            planted: self.planted,
            kinds: &mut self.kinds,
            mailbox: self.mailbox.as_ref(),
        };
        let row = accesses[access].row;
        match step(&mut accesses[access], &mut cx) {
            Progress::Posted => self.send(txn, access, phase, batch)?,
            Progress::PostedTo(to) => {
                let queue = self.mailbox.as_ref().expect("it named the mailbox").queue(to);
                let queue = queue.ok_or(RemoteError::Verb(VerbError::PeerDead))?;
                self.send_to(queue, txn, access, phase, batch)?;
            }
            Progress::Parked => {
                // Not 0: a call is in flight until `poll`.
                accesses[access].pending = 1;
                self.parked.push((txn, access));
            }
            Progress::Locked => self.events.push_back(WorkerEvent::Locked(*handle, row)),
            Progress::Refused(cause) => self.release_all(txn, State::Aborting(cause))?,
            Progress::Peeked => self.events.push_back(WorkerEvent::Peeked(*handle, row)),
            Progress::Released if running => {
                self.events.push_back(WorkerEvent::Released(*handle, row))
            }
            Progress::Released => self.released(txn),
            Progress::Logged => self.logged(txn)?,
            Progress::LockLost => return Err(RemoteError::LockLost(row)),
        }
        Ok(())
    }
}

impl<W: FabricWorker> RowClient for RowWorker<'_, W> {
    fn table(&self) -> &Table {
        &self.table
    }

    fn stats(&self) -> &RemoteStats {
        &self.stats
    }

    fn begin(&mut self) -> Option<TxnHandle> {
        self.newest += 1;
        let names = self.table.mode.has_line() || self.table.mode.is_one_round();
        assert!(!names || self.newest <= MAX_COUNT, "no more start timestamps");
        self.restart(StartTimestamp::new(self.newest, self.number))
    }

    fn restart(&mut self, start: StartTimestamp) -> Option<TxnHandle> {
        let slot = self.txns.iter().position(|txn| txn.state == State::Free)?;
        self.txns[slot].state = State::Running;
        self.txns[slot].start = start;
        self.serial += 1;
        let handle = TxnHandle { slot, serial: self.serial };
        self.txns[slot].handle = handle;
        Some(handle)
    }

    fn start(&self, txn: TxnHandle) -> StartTimestamp {
        let of_txn = &self.txns[txn.slot];
        assert!(of_txn.handle == txn && of_txn.state != State::Free, "the transaction has ended");
        of_txn.start
    }

    fn attempt(&self, txn: TxnHandle) -> u64 {
        txn.serial << 16 | u64::from(self.number)
    }

    fn get(&mut self, txn: TxnHandle, row: RowId, update: bool) -> Result<(), RemoteError> {
        let access = self.access(txn, row);
        let of_row = &mut self.txns[txn.slot].accesses[access];
        if of_row.held == Held::Exclusive || (of_row.held == Held::Shared && !update) {
            // A mutual lock acquired for reading also serves an update.
            of_row.exclusive |= update;
            self.events.push_back(WorkerEvent::Locked(txn, row));
            return Ok(());
        }
        self.step(txn.slot, access, Phase::Lock, |access, cx| access.lock(update, cx))
    }

    fn peek(&mut self, txn: TxnHandle, row: RowId) -> Result<(), RemoteError> {
        let access = self.access(txn, row);
        if self.txns[txn.slot].accesses[access].held != Held::Not {
            self.events.push_back(WorkerEvent::Peeked(txn, row));
            return Ok(());
        }
        self.step(txn.slot, access, Phase::Lock, Access::peek)
    }

    fn release(&mut self, txn: TxnHandle, row: RowId) -> Result<(), RemoteError> {
        self.assert_idle(txn);
        let access = self.known(txn, row).expect("the transaction has not requested this row");
        assert!(!self.txns[txn.slot].accesses[access].dirty, "the row was changed");
        self.step(txn.slot, access, Phase::Lock, |access, cx| access.release(false, cx))
    }

    fn holds(&self, txn: TxnHandle, row: RowId) -> bool {
        self.known(txn, row)
            .is_some_and(|access| self.txns[txn.slot].accesses[access].held != Held::Not)
    }

    fn is_for_update(&self, txn: TxnHandle, row: RowId) -> bool {
        self.known(txn, row).is_some_and(|access| {
            let access = &self.txns[txn.slot].accesses[access];
            access.held == Held::Exclusive && access.exclusive
        })
    }

    fn payload(&self, txn: TxnHandle, row: RowId, out: &mut [u64]) {
        let access = self.known(txn, row).expect("the transaction has not requested this row");
        self.fabric.load_range(self.txns[txn.slot].accesses[access].payload(), out);
    }

    fn set(&mut self, txn: TxnHandle, row: RowId, payload: &[u64]) {
        self.assert_idle(txn);
        assert!(self.is_for_update(txn, row), "the row is not locked for update");
        assert_eq!(payload.len(), self.table.payload_words_of(row));
        let access = self.known(txn, row).expect("it is locked");
        let access = &mut self.txns[txn.slot].accesses[access];
        access.dirty = true;
        self.fabric.store_range(access.payload(), payload);
    }

    fn commit(&mut self, txn: TxnHandle) -> Result<(), RemoteError> {
        self.assert_idle(txn);
        if self.table.is_logged() && self.txns[txn.slot].accesses.iter().any(|access| access.dirty)
        {
            return self.log(txn.slot);
        }
        self.release_all(txn.slot, State::Committing)
    }

    fn abort(&mut self, txn: TxnHandle) -> Result<(), RemoteError> {
        self.assert_idle(txn);
        self.release_all(txn.slot, State::Aborting(AbortCause::Requested))
    }

    fn poll(&mut self, events: &mut Vec<WorkerEvent>) -> Result<(), RemoteError> {
        // One round of each: an access that the CPU executes must not keep the worker from its
        // completions.
        for _ in 0..self.executed.len() {
            let (txn, access) = self.executed.pop_front().expect("counted above");
            self.txns[txn].accesses[access].pending = 0;
            self.complete(txn, access)?;
        }
        for (txn, access) in std::mem::take(&mut self.parked) {
            self.txns[txn].accesses[access].pending = 0;
            self.complete(txn, access)?;
        }
        let mut completions = std::mem::take(&mut self.completions);
        self.fabric.poll(&mut completions);
        self.outstanding -= completions.len();
        // The others of the batch count, too, after one has failed: leases are renewed until the
        // worker is told to pause.
        let mut failed = None;
        for completion in completions.drain(..) {
            let is_renewal = self.leases.take(completion.id);
            let handled = match completion.result {
                Err(why) => Err(RemoteError::Verb(why)),
                Ok(_) if is_renewal => Ok(()),
                Ok(_) => self.completed(completion.id),
            };
            failed = failed.or(handled.err());
        }
        self.completions = completions;
        failed.map_or(Ok(()), Err)?;
        self.post_backlog()?;
        events.extend(self.events.drain(..));
        Ok(())
    }

    fn is_ready(&self) -> bool {
        !self.executed.is_empty() || !self.events.is_empty()
    }

    fn watches_memory(&self) -> bool {
        !self.parked.is_empty()
    }
}
