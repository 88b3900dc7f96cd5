//! An owner's rows behind a link.
//!
//! # Invariants
//! 1. The end of a transaction writes all its changes at this owner at once, before its locks are
//!    released.
//! 2. Every request gets exactly one reply. An invalid request is reported as such and changes
//!    nothing.
//! 3. A peer that is gone holds no locks: its transactions are rolled back here by releasing their
//!    locks. A transaction whose end has arrived is committed here.

use super::link::{Incoming, Link};
use super::locks::{LockTable, Verdict};
use super::wire::{Asked, Reply, Request};
use crate::{AbortCause, Protocol, RemoteError, RowId, StartTimestamp, Table};
use std::collections::BTreeMap;
use std::ops::Range;

/// A transaction that holds locks here, or waits for one.
struct Held {
    peer: usize,
    rows: Vec<u32>,
    /// Its tag and row, while it waits.
    waiting: Option<(u64, u32)>,
}

/// The rows of one owner, and the connections of their users.
pub struct MessageServer<L> {
    link: L,
    table: Table,
    locks: LockTable,
    /// The payloads of all rows, one after another.
    payloads: Vec<u64>,
    txns: BTreeMap<StartTimestamp, Held>,
    incoming: Vec<Incoming>,
    bad: u64,
}

impl<L: Link> MessageServer<L> {
    /// Creates a server whose rows are zero.
    pub fn new(link: L, table: Table) -> Self {
        let of_buckets = table.buckets.payload_words * table.buckets.rows as usize;
        let payloads = vec![0; table.payload_words * table.rows as usize + of_buckets];
        let locks = LockTable::new(table.mode);
        Self { link, locks, payloads, table, txns: BTreeMap::new(), incoming: Vec::new(), bad: 0 }
    }

    /// Returns the link, to wait for messages.
    pub fn link(&mut self) -> &mut L {
        &mut self.link
    }

    /// Returns the number of invalid requests.
    pub fn bad_requests(&self) -> u64 {
        self.bad
    }

    /// Returns true if there is no holder and no waiter of any lock.
    pub fn is_free(&self) -> bool {
        self.txns.is_empty() && self.locks.is_free()
    }

    /// Returns a row's payload as of the last commit.
    pub fn payload(&self, row: u32) -> &[u64] {
        &self.payloads[self.place(row)]
    }

    /// Sets a row's payload. Only for a server that has not been polled.
    ///
    /// # Panics
    /// Panics if there is no such row, or if the payload has a different length.
    pub fn set_payload(&mut self, row: u32, payload: &[u64]) {
        let place = self.place(row);
        self.payloads[place].copy_from_slice(payload);
    }

    /// Returns the range of a row's payload.
    fn place(&self, row: u32) -> Range<usize> {
        let (in_table, behind) =
            (row.min(self.table.rows) as usize, row.saturating_sub(self.table.rows) as usize);
        let first = in_table * self.table.payload_words + behind * self.table.buckets.payload_words;
        first..first + self.table.payload_words_of(RowId { owner: 0, index: row })
    }

    /// Executes the requests that have arrived.
    ///
    /// # Errors
    /// Returns an error if the link is unusable.
    pub fn poll(&mut self) -> Result<(), RemoteError> {
        let mut incoming = std::mem::take(&mut self.incoming);
        self.link.poll(&mut incoming)?;
        for incoming in incoming.drain(..) {
            match incoming {
                Incoming::Message(peer, words) => self.handle(peer, &words)?,
                Incoming::Gone(peer) => self.forget(peer)?,
            }
        }
        self.incoming = incoming;
        Ok(())
    }

    fn handle(&mut self, peer: usize, words: &[u64]) -> Result<(), RemoteError> {
        let tag = words.get(1).copied().unwrap_or(0);
        let asked = Asked::decode(words, &self.table).filter(|asked| self.is_valid(peer, asked));
        let Some(Asked { start, request, .. }) = asked else {
            self.bad += 1;
            return self.reply(peer, tag, Reply::Bad);
        };
        match request {
            Request::Lock { row, exclusive } => self.lock(peer, tag, start, row, exclusive),
            Request::Peek { row } => {
                let payload = self.payload(row).to_vec();
                self.reply(peer, tag, Reply::Payload(payload))
            }
            Request::Release { row } => {
                if let Some(held) = self.txns.get_mut(&start) {
                    held.rows.retain(|held| *held != row);
                }
                self.release(start, row)?;
                self.reply(peer, tag, Reply::Done)
            }
            Request::End { writes } => {
                for (row, payload) in writes {
                    let place = self.place(row);
                    self.payloads[place].copy_from_slice(&payload);
                }
                self.end(start)?;
                self.reply(peer, tag, Reply::Done)
            }
        }
    }

    /// Returns true if this peer may send that request now.
    fn is_valid(&self, peer: usize, asked: &Asked) -> bool {
        let held = self.txns.get(&asked.start);
        let own = held.is_none_or(|held| held.peer == peer && held.waiting.is_none());
        own && match &asked.request {
            Request::Lock { .. } | Request::Peek { .. } => true,
            Request::Release { row } => self.locks.holds(*row, asked.start, false),
            Request::End { writes } => {
                writes.iter().all(|(row, _)| self.locks.holds(*row, asked.start, true))
            }
        }
    }

    fn lock(
        &mut self,
        peer: usize,
        tag: u64,
        start: StartTimestamp,
        row: u32,
        exclusive: bool,
    ) -> Result<(), RemoteError> {
        let held = self.txns.entry(start).or_insert(Held { peer, rows: Vec::new(), waiting: None });
        if !held.rows.contains(&row) {
            held.rows.push(row);
        }
        let verdict = self.locks.lock(row, start, exclusive);
        if verdict == Verdict::Waits {
            held.waiting = Some((tag, row));
            return Ok(());
        }
        self.answer(start, tag, row, verdict, false)?;
        self.settle(row)
    }

    fn answer(
        &mut self,
        start: StartTimestamp,
        tag: u64,
        row: u32,
        verdict: Verdict,
        waited: bool,
    ) -> Result<(), RemoteError> {
        let peer = self.txns[&start].peer;
        let reply = match verdict {
            Verdict::Granted => Reply::Locked { waited, payload: self.payload(row).to_vec() },
            Verdict::Refused { older, newest } => {
                let older = older.filter(|_| self.table.mode.protocol == Protocol::WaitDie);
                // Its other locks stay until its end.
                let cause = older.map_or(AbortCause::Conflict, AbortCause::Older);
                Reply::Refused { cause, newest }
            }
            Verdict::Waits => return Ok(()),
        };
        self.reply(peer, tag, reply)
    }

    fn release(&mut self, start: StartTimestamp, row: u32) -> Result<(), RemoteError> {
        self.locks.release(row, start);
        self.settle(row)
    }

    /// Replies to the waiters of a row whose wait is over.
    fn settle(&mut self, row: u32) -> Result<(), RemoteError> {
        while let Some((start, verdict)) = self.locks.settle(row) {
            let waiting = self.txns.get_mut(&start).and_then(|held| held.waiting.take());
            let (tag, _) = waiting.expect("a waiter has sent a request");
            self.answer(start, tag, row, verdict, true)?;
        }
        Ok(())
    }

    fn end(&mut self, start: StartTimestamp) -> Result<(), RemoteError> {
        let Some(held) = self.txns.remove(&start) else { return Ok(()) };
        for row in held.rows {
            self.release(start, row)?;
        }
        Ok(())
    }

    fn forget(&mut self, peer: usize) -> Result<(), RemoteError> {
        let of_peer = self.txns.iter().filter(|(_, held)| held.peer == peer);
        let starts: Vec<StartTimestamp> = of_peer.map(|(start, _)| *start).collect();
        for start in starts {
            self.end(start)?;
        }
        Ok(())
    }

    fn reply(&mut self, peer: usize, tag: u64, reply: Reply) -> Result<(), RemoteError> {
        self.link.send(peer, &reply.encode(tag))
    }
}
