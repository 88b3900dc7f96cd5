//! A worker whose transactions send requests to the owners of rows.
//!
//! # Invariants
//! 1. A transaction has one request in flight, or one end at each owner from which it has requested
//!    a row, also if it has released that row.
//! 2. [`WorkerEvent::Aborted`] and [`WorkerEvent::Committed`] come after every owner has released
//!    the transaction's locks.
//!
//! Waits and their bounds: each request gets a reply. WAIT_DIE makes an older transaction wait at
//! the owner.

use super::link::{Incoming, Link};
use super::wire::{Asked, Reply, Request};
use crate::{
    AbortCause, Phase, RemoteError, RemoteStats, RowClient, RowId, StartTimestamp, Table,
    TxnHandle, WorkerEvent, WorkerLimits,
};
use clearway_fabric::VerbError;
use std::collections::VecDeque;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Running,
    Committing,
    Aborting(AbortCause),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Not,
    Shared,
    Exclusive,
}

struct Access {
    row: RowId,
    held: Held,
    update: bool,
    dirty: bool,
    payload: Vec<u64>,
}

#[derive(Clone, Copy)]
enum Call {
    Lock { update: bool },
    Peek,
    Release,
}

struct Txn {
    state: State,
    handle: TxnHandle,
    start: StartTimestamp,
    accesses: Vec<Access>,
    /// The owners from which it has requested rows.
    owners: Vec<u32>,
    call: Option<(Call, RowId)>,
    /// Owners that have not confirmed the end.
    ending: usize,
}

/// One thread's access to a table whose owners serve messages.
pub struct MessageWorker<L> {
    link: L,
    table: Table,
    limits: WorkerLimits,
    txns: Vec<Txn>,
    number: u16,
    serial: u64,
    /// Logical time: newer than every start seen.
    newest: u64,
    incoming: Vec<Incoming>,
    events: VecDeque<WorkerEvent>,
    stats: RemoteStats,
}

impl<L: Link> MessageWorker<L> {
    /// Creates a worker on a link whose peers are the owners of the table, in their order. `number`
    /// is unique among all workers that use the table.
    pub fn new(link: L, table: Table, number: u16, limits: WorkerLimits) -> Self {
        let handle = TxnHandle { slot: 0, serial: 0 };
        let (start, state) = (StartTimestamp(0), State::Free);
        let free = || Txn {
            state,
            handle,
            start,
            accesses: Vec::new(),
            owners: Vec::new(),
            call: None,
            ending: 0,
        };
        Self {
            link,
            table,
            limits,
            txns: std::iter::repeat_with(free).take(limits.transactions).collect(),
            number,
            serial: 0,
            newest: 0,
            incoming: Vec::new(),
            events: VecDeque::new(),
            stats: RemoteStats::default(),
        }
    }

    /// Returns the link, to wait for messages.
    pub fn link(&mut self) -> &mut L {
        &mut self.link
    }

    fn txn(&self, txn: TxnHandle) -> &Txn {
        let of_txn = &self.txns[txn.slot];
        assert!(of_txn.handle == txn && of_txn.state != State::Free, "the transaction has ended");
        of_txn
    }

    fn known(&self, txn: TxnHandle, row: RowId) -> Option<&Access> {
        self.txn(txn).accesses.iter().find(|access| access.row == row)
    }

    fn assert_idle(&self, txn: TxnHandle) {
        let txn = self.txn(txn);
        assert!(txn.state == State::Running, "the transaction is not running");
        assert!(txn.call.is_none(), "the transaction has a call in flight");
    }

    /// Returns the transaction's access to a row. A new row takes the place of one that is not
    /// locked, if there is any.
    fn access(&mut self, txn: TxnHandle, row: RowId) -> &mut Access {
        self.assert_idle(txn);
        let limit = self.limits.rows;
        let payload = vec![0; self.table.payload_words_of(row)];
        let accesses = &mut self.txns[txn.slot].accesses;
        let place = accesses.iter().position(|access| access.row == row).unwrap_or_else(|| {
            let free = accesses.iter().position(|access| access.held == Held::Not);
            let place = free.unwrap_or(accesses.len());
            assert!(place < limit, "more than {limit} rows in one transaction");
            let access = Access { row, held: Held::Not, update: false, dirty: false, payload };
            match accesses.get_mut(place) {
                Some(old) => *old = access,
                None => accesses.push(access),
            }
            place
        });
        &mut accesses[place]
    }

    fn call(&mut self, txn: TxnHandle, row: RowId, call: Call) -> Result<(), RemoteError> {
        let of_txn = &mut self.txns[txn.slot];
        of_txn.call = Some((call, row));
        if !of_txn.owners.contains(&row.owner) {
            of_txn.owners.push(row.owner);
        }
        let index = row.index;
        let request = match call {
            Call::Lock { update } => Request::Lock { row: index, exclusive: update },
            Call::Peek => Request::Peek { row: index },
            Call::Release => Request::Release { row: index },
        };
        self.ask(txn.slot, row.owner as usize, request, Phase::Lock)
    }

    fn ask(
        &mut self,
        slot: usize,
        owner: usize,
        request: Request,
        phase: Phase,
    ) -> Result<(), RemoteError> {
        // The request and its reply.
        self.stats.count_batch(phase, 2);
        let asked = Asked { tag: slot as u64, start: self.txns[slot].start, request };
        self.link.send(owner, &asked.encode())
    }

    fn end(&mut self, slot: usize, state: State) -> Result<(), RemoteError> {
        self.txns[slot].state = state;
        let accesses = std::mem::take(&mut self.txns[slot].accesses);
        let phase = if state == State::Committing { Phase::Commit } else { Phase::Abort };
        let mut owners = std::mem::take(&mut self.txns[slot].owners);
        owners.sort_unstable();
        self.txns[slot].ending = owners.len();
        for owner in &owners {
            let changed = |access: &&Access| {
                access.row.owner == *owner && access.dirty && state == State::Committing
            };
            let write = |access: &Access| (access.row.index, access.payload.clone());
            let writes = accesses.iter().filter(changed).map(write).collect();
            self.ask(slot, *owner as usize, Request::End { writes }, phase)?;
        }
        if owners.is_empty() {
            self.ended(slot);
        }
        Ok(())
    }

    fn ended(&mut self, slot: usize) {
        let txn = &mut self.txns[slot];
        let event = match std::mem::replace(&mut txn.state, State::Free) {
            State::Committing => {
                self.stats.commits += 1;
                WorkerEvent::Committed(txn.handle)
            }
            State::Aborting(cause) => {
                self.stats.count_abort(cause);
                WorkerEvent::Aborted(txn.handle, txn.start, cause)
            }
            State::Free | State::Running => unreachable!("no end is in flight"),
        };
        self.events.push_back(event);
    }

    fn handle(&mut self, words: &[u64]) -> Result<(), RemoteError> {
        let (tag, reply) = Reply::decode(words).ok_or(RemoteError::BadMessage)?;
        let slot = usize::try_from(tag)
            .ok()
            .filter(|slot| *slot < self.txns.len())
            .ok_or(RemoteError::BadMessage)?;
        let txn = &mut self.txns[slot];
        if txn.ending > 0 && reply == Reply::Done {
            txn.ending -= 1;
            if txn.ending == 0 {
                self.ended(slot);
            }
            return Ok(());
        }
        let (call, row) = txn.call.take().ok_or(RemoteError::BadMessage)?;
        let handle = txn.handle;
        let access = txn
            .accesses
            .iter_mut()
            .find(|access| access.row == row)
            .expect("it was made for the call");
        match (call, reply) {
            (Call::Lock { update }, Reply::Locked { waited, payload })
                if payload.len() == access.payload.len() =>
            {
                access.held = if update || !self.table.mode.shares() {
                    Held::Exclusive
                } else {
                    Held::Shared
                };
                access.update = update;
                access.payload = payload;
                self.stats.wait_retries += u64::from(waited);
                self.events.push_back(WorkerEvent::Locked(handle, row));
            }
            (Call::Lock { .. }, Reply::Refused { cause, newest }) => {
                self.newest = self.newest.max(newest.count());
                return self.end(slot, State::Aborting(cause));
            }
            (Call::Peek, Reply::Payload(payload)) if payload.len() == access.payload.len() => {
                access.payload = payload;
                self.events.push_back(WorkerEvent::Peeked(handle, row));
            }
            (Call::Release, Reply::Done) => {
                access.held = Held::Not;
                self.events.push_back(WorkerEvent::Released(handle, row));
            }
            _ => return Err(RemoteError::BadMessage),
        }
        Ok(())
    }
}

impl<L: Link> RowClient for MessageWorker<L> {
    fn table(&self) -> &Table {
        &self.table
    }

    fn stats(&self) -> &RemoteStats {
        &self.stats
    }

    fn begin(&mut self) -> Option<TxnHandle> {
        self.newest += 1;
        self.restart(StartTimestamp::new(self.newest, self.number))
    }

    fn restart(&mut self, start: StartTimestamp) -> Option<TxnHandle> {
        let slot = self.txns.iter().position(|txn| txn.state == State::Free)?;
        self.serial += 1;
        let handle = TxnHandle { slot, serial: self.serial };
        let (state, accesses, owners, call) = (State::Running, Vec::new(), Vec::new(), None);
        self.txns[slot] = Txn { state, handle, start, accesses, owners, call, ending: 0 };
        Some(handle)
    }

    fn start(&self, txn: TxnHandle) -> StartTimestamp {
        self.txn(txn).start
    }

    fn attempt(&self, txn: TxnHandle) -> u64 {
        txn.serial << 16 | u64::from(self.number)
    }

    fn get(&mut self, txn: TxnHandle, row: RowId, update: bool) -> Result<(), RemoteError> {
        let access = self.access(txn, row);
        if access.held == Held::Exclusive || (access.held == Held::Shared && !update) {
            access.update |= update;
            self.events.push_back(WorkerEvent::Locked(txn, row));
            return Ok(());
        }
        self.call(txn, row, Call::Lock { update })
    }

    fn peek(&mut self, txn: TxnHandle, row: RowId) -> Result<(), RemoteError> {
        if self.access(txn, row).held != Held::Not {
            self.events.push_back(WorkerEvent::Peeked(txn, row));
            return Ok(());
        }
        self.call(txn, row, Call::Peek)
    }

    fn release(&mut self, txn: TxnHandle, row: RowId) -> Result<(), RemoteError> {
        self.assert_idle(txn);
        let access = self.known(txn, row).expect("the transaction has not requested this row");
        assert!(access.held != Held::Not && !access.dirty, "the row is not locked, or was changed");
        self.call(txn, row, Call::Release)
    }

    fn holds(&self, txn: TxnHandle, row: RowId) -> bool {
        self.known(txn, row).is_some_and(|access| access.held != Held::Not)
    }

    fn is_for_update(&self, txn: TxnHandle, row: RowId) -> bool {
        self.known(txn, row).is_some_and(|access| access.held == Held::Exclusive && access.update)
    }

    fn payload(&self, txn: TxnHandle, row: RowId, out: &mut [u64]) {
        let access = self.known(txn, row).expect("the transaction has not requested this row");
        let words = out.len();
        out.copy_from_slice(&access.payload[..words]);
    }

    fn set(&mut self, txn: TxnHandle, row: RowId, payload: &[u64]) {
        assert!(self.is_for_update(txn, row), "the row is not locked for update");
        assert_eq!(payload.len(), self.table.payload_words_of(row));
        let access = self.access(txn, row);
        access.dirty = true;
        access.payload.copy_from_slice(payload);
    }

    fn commit(&mut self, txn: TxnHandle) -> Result<(), RemoteError> {
        self.assert_idle(txn);
        self.end(txn.slot, State::Committing)
    }

    fn abort(&mut self, txn: TxnHandle) -> Result<(), RemoteError> {
        self.assert_idle(txn);
        self.end(txn.slot, State::Aborting(AbortCause::Requested))
    }

    fn poll(&mut self, events: &mut Vec<WorkerEvent>) -> Result<(), RemoteError> {
        let mut incoming = std::mem::take(&mut self.incoming);
        self.link.poll(&mut incoming)?;
        for incoming in incoming.drain(..) {
            match incoming {
                Incoming::Message(_, words) => self.handle(&words)?,
                Incoming::Gone(_) => return Err(RemoteError::Verb(VerbError::PeerDead)),
            }
        }
        self.incoming = incoming;
        events.extend(self.events.drain(..));
        Ok(())
    }

    fn is_ready(&self) -> bool {
        !self.events.is_empty()
    }
}
