//! A transactional key-value store on the rows of a table: get, put, insert and delete.
//!
//! The hash index is in registered memory, too: see the layout. A get locks the row at the key's
//! cached location and verifies that the row has the key. Without a cached location it reads the
//! bucket without a lock, as the source does. It locks the bucket only if that read finds no key,
//! or a row that has a different key by now. Then an absence is locked like a row.
//!
//! # Invariants
//! 1. An entry and the key of its row change together, in one transaction that has locked bucket
//!    and row exclusively.
//! 2. A key is in at most one entry, in one of its first [`PROBES`] buckets. It is in a later
//!    bucket only if bit 0 of word 0 is set in all earlier ones; that bit is never cleared. An
//!    insert of a key locks all buckets up to the first one without that bit.
//! 3. An unlocked read and a cached location are hints: the key of the locked row decides whether
//!    they were right. A wrong row is released at once, unless the transaction had locked it for
//!    another key. So an entry can be reused as soon as the transaction that deleted its key has
//!    committed. A worker that still has the old location cached finds another key, or none.
//! 4. An answer that a key is absent is given under locks on all buckets that could contain it.
//!    They are held to the end.
//!
//! After a crash, rows are in the state of a table's rows: see [`crate::recovery`] and
//! [`StoreLayout::log`]. A survivor calls `drain`, `pause` and `resume` of its
//! [`rows`](StoreWorker::rows), and continues its transactions. Its cached locations are still only
//! hints.
//!
//! Waits and their bounds: those of [`RowClient`]. An operation checks [`PROBES`] buckets at most
//! twice.

mod cache;
mod contents;
mod layout;
mod steps;

pub use contents::StoreContents;
pub use layout::{PROBES, StoreKey, StoreLayout};

use crate::traps::Planted;
#[cfg(test)]
use crate::traps::Trap;
use crate::{AbortCause, RemoteError, RowClient, RowId, StartTimestamp, TxnHandle, WorkerEvent};
use cache::LocationCache;
pub(crate) use layout::Bucket;
use std::collections::VecDeque;

/// The result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreAnswer {
    /// The key was present: it was read, changed or deleted, or it prevented an insert.
    Present,
    /// The key was absent: an insert has added it, other operations have done nothing.
    Absent,
    /// The key is absent, and an insert found no room for it. The insert has done nothing.
    NoRoom,
}

/// An event of [`StoreWorker::poll`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    /// The operation on this key has finished.
    Done(TxnHandle, StoreKey, StoreAnswer),
    /// The transaction has committed.
    Committed(TxnHandle),
    /// The transaction has been aborted: restart it by [`StoreWorker::restart`] with this
    /// timestamp.
    Aborted(TxnHandle, StartTimestamp, AbortCause),
}

/// How a store's worker located its rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Cached locations that were right.
    pub cached: u64,
    /// Cached locations whose row no longer had the key.
    pub stale: u64,
    /// Locations read from a bucket without a lock that were right.
    pub peeked: u64,
    /// Buckets locked.
    pub buckets_locked: u64,
}

enum Operation {
    Get { update: bool },
    Put(Vec<u64>),
    Insert(Vec<u64>),
    Delete,
}

impl Operation {
    fn changes_index(&self) -> bool {
        matches!(self, Self::Insert(_) | Self::Delete)
    }

    fn locks_exclusively(&self) -> bool {
        !matches!(self, Self::Get { update: false })
    }
}

/// An entry of a bucket.
#[derive(Clone, Copy)]
struct Entry {
    bucket: Bucket,
    number: usize,
}

/// What an operation waits for.
#[derive(Clone, Copy)]
enum Step {
    /// The lock of a row that should have the key. `held`: the transaction had locked it before.
    TryRow { cached: bool, held: bool },
    /// The release of a row that has a different key.
    Release { cached: bool },
    /// Words of a bucket, without a lock.
    Peek(u32),
    /// The lock of a bucket.
    Search(u32),
    /// The lock of the row that a locked bucket names, or that an insert fills.
    LockRow(Entry),
}

struct Call {
    txn: TxnHandle,
    key: StoreKey,
    operation: Operation,
    step: Step,
    /// The first entry without a key that an insert has seen.
    free: Option<Entry>,
}

/// One thread's access to a store.
pub struct StoreWorker<R> {
    rows: R,
    layout: StoreLayout,
    cache: LocationCache,
    /// At most one per transaction.
    calls: Vec<Call>,
    /// Rows that running transactions have locked, with their keys; at most one for each operation.
    found: Vec<(TxnHandle, StoreKey, RowId)>,
    row_events: Vec<WorkerEvent>,
    events: VecDeque<StoreEvent>,
    stats: StoreStats,
    planted: Planted,
}

impl<R: RowClient> StoreWorker<R> {
    /// Creates a store on the rows of a client, whose table is [`StoreLayout::table`] and whose
    /// limits are [`StoreLayout::limits`]. It caches the locations of at most `cached` keys.
    ///
    /// # Panics
    /// Panics if the client has a different table.
    pub fn new(rows: R, layout: StoreLayout, cached: usize) -> Self {
        let table = rows.table();
        let expected = layout.table(Vec::new());
        let same = (table.mode, table.payload_words, table.rows, table.buckets)
            == (expected.mode, expected.payload_words, expected.rows, expected.buckets);
        assert!(
            same && layout.value_words > 0 && layout.entries > 0,
            "the table is not that of the layout"
        );
        Self {
            rows,
            layout,
            cache: LocationCache::new(cached),
            calls: Vec::new(),
            found: Vec::new(),
            row_events: Vec::new(),
            events: VecDeque::new(),
            stats: StoreStats::default(),
            planted: Planted::default(),
        }
    }

    #[cfg(test)]
    pub(crate) fn plant(&mut self, trap: Trap) {
        self.planted = Planted(Some(trap));
    }

    /// Returns the underlying client, to read its counts or to wait for its fabric.
    pub fn rows(&mut self) -> &mut R {
        &mut self.rows
    }

    /// Returns how rows were located.
    pub fn stats(&self) -> &StoreStats {
        &self.stats
    }

    /// Caches the location of a key. A wrong location costs verbs, but no wrong answer.
    ///
    /// # Panics
    /// Panics if the table has no such row.
    pub fn learn(&mut self, key: StoreKey, row: RowId) {
        let table = self.rows.table();
        assert!((row.owner as usize) < table.owners.len() && row.index < table.rows);
        self.cache.insert(key, row);
    }

    /// Starts a transaction. Returns `None` if the limit of transactions is reached.
    pub fn begin(&mut self) -> Option<TxnHandle> {
        self.rows.begin()
    }

    /// Restarts an aborted transaction with its previous start timestamp. Returns `None` as
    /// [`StoreWorker::begin`] does.
    pub fn restart(&mut self, start: StartTimestamp) -> Option<TxnHandle> {
        self.rows.restart(start)
    }

    /// Reads a key's value, and locks it exclusively if `update`. Ends in [`StoreEvent::Done`] or
    /// [`StoreEvent::Aborted`], as do the calls below.
    ///
    /// # Errors
    /// This and all calls below: as [`RowClient`].
    ///
    /// # Panics
    /// As [`RowClient`]. The calls below also panic if the length of a value differs from the
    /// layout's.
    pub fn get(&mut self, txn: TxnHandle, key: StoreKey, update: bool) -> Result<(), RemoteError> {
        self.start_call(txn, key, Operation::Get { update })
    }

    /// Replaces the value of a key that is present.
    pub fn put(&mut self, txn: TxnHandle, key: StoreKey, value: &[u64]) -> Result<(), RemoteError> {
        assert_eq!(value.len(), self.layout.value_words);
        self.start_call(txn, key, Operation::Put(value.to_vec()))
    }

    /// Adds a key that is absent.
    pub fn insert(
        &mut self,
        txn: TxnHandle,
        key: StoreKey,
        value: &[u64],
    ) -> Result<(), RemoteError> {
        assert_eq!(value.len(), self.layout.value_words);
        self.start_call(txn, key, Operation::Insert(value.to_vec()))
    }

    /// Removes a key that is present.
    pub fn delete(&mut self, txn: TxnHandle, key: StoreKey) -> Result<(), RemoteError> {
        self.start_call(txn, key, Operation::Delete)
    }

    /// Copies the value of a key that the transaction has found present, including its own changes.
    /// Returns false if the transaction has not found it, or has deleted it since.
    pub fn value(&self, txn: TxnHandle, key: StoreKey, out: &mut [u64]) -> bool {
        let Some(row) = self.found(txn, key) else { return false };
        let mut payload = vec![0; 1 + self.layout.value_words];
        self.rows.payload(txn, row, &mut payload);
        out.copy_from_slice(&payload[1..]);
        true
    }

    /// Makes all changes visible. Ends in [`StoreEvent::Committed`].
    pub fn commit(&mut self, txn: TxnHandle) -> Result<(), RemoteError> {
        self.rows.commit(txn)
    }

    /// Discards all changes. Ends in [`StoreEvent::Aborted`].
    pub fn abort(&mut self, txn: TxnHandle) -> Result<(), RemoteError> {
        self.rows.abort(txn)
    }

    /// Processes arrivals, advances the transactions, and appends the new events. Never blocks.
    pub fn poll(&mut self, events: &mut Vec<StoreEvent>) -> Result<(), RemoteError> {
        let mut row_events = std::mem::take(&mut self.row_events);
        self.rows.poll(&mut row_events)?;
        for event in row_events.drain(..) {
            self.handle(event)?;
        }
        self.row_events = row_events;
        events.extend(self.events.drain(..));
        Ok(())
    }

    /// Returns true if [`StoreWorker::poll`] has work to do before anything arrives.
    pub fn is_ready(&self) -> bool {
        self.rows.is_ready() || !self.events.is_empty()
    }
}
