//! The layout of a table's rows.

use crate::mode::{NAME_SHIFT, is_exclusive};
use crate::{Mode, StartTimestamp};
use clearway_fabric::{Region, RegionKey, RemoteAddr, WorkerAddr};

/// A row, identified by its owner and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId {
    /// Index of the owner in [`Table::owners`].
    pub owner: u32,
    /// Number of the row in the owner's region.
    pub index: u32,
}

/// A node that has rows of a table.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// The address to connect to. The worker need not exist.
    pub address: WorkerAddr,
    /// The registered region with the rows: [`Table::region_words`] words that are initially zero.
    pub region: RegionKey,
}

/// Rows after those of a table, in which a store keeps its index. None by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buckets {
    /// Words of a payload.
    pub payload_words: usize,
    /// Rows of each owner.
    pub rows: u32,
}

/// Space after the rows of each owner for the log of committing transactions, and for leases: see
/// [`recovery`](crate::recovery) and [`LeaseWatch`](crate::LeaseWatch). None by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogLayout {
    /// Number of workers that write, numbered from 0.
    pub workers: u32,
    /// Limit of concurrent transactions of each worker.
    pub transactions: u32,
    /// Limit of rows per transaction of each worker, at most 64.
    pub rows: u32,
}

/// Words of a record before its entries: the mark, the bit set of owners that have a record, and
/// the bit set of entries in use.
pub(crate) const RECORD_HEADER: usize = 3;

/// A table of fixed-size rows in registered memory. The same for every user.
#[derive(Clone, Debug)]
pub struct Table {
    /// Protocol and kind of lock.
    pub mode: Mode,
    /// Words of a row without its metadata, at least 1.
    pub payload_words: usize,
    /// Rows of each owner.
    pub rows: u32,
    /// Rows with payloads of another size, numbered and placed after the others.
    pub buckets: Buckets,
    /// Space for the changes of commits, so that recovery can complete them.
    pub log: LogLayout,
    /// The nodes that have the rows.
    pub owners: Vec<Owner>,
}

impl Table {
    /// Returns the words of a region with `rows` rows, each with its metadata and payload.
    pub fn region_words(mode: Mode, payload_words: usize, rows: u32) -> usize {
        (mode.header_words() + payload_words) * rows as usize
    }

    /// Returns the words of a row without its metadata.
    ///
    /// # Panics
    /// Panics if there is no such row.
    pub fn payload_words_of(&self, row: RowId) -> usize {
        assert!(row.index < self.rows + self.buckets.rows, "row {} of {}", row.index, self.rows);
        if row.index < self.rows { self.payload_words } else { self.buckets.payload_words }
    }

    /// Returns the words of the longest payload.
    pub fn longest_payload(&self) -> usize {
        self.payload_words.max(self.buckets.payload_words)
    }

    /// Writes a row's payload into its owner's region. Only before any worker uses the table.
    ///
    /// # Panics
    /// Panics if there is no such row, or if the payload has a different length.
    pub fn write_payload(&self, region: &dyn Region, row: u32, payload: &[u64]) {
        let row = RowId { owner: 0, index: row };
        assert_eq!(payload.len(), self.payload_words_of(row));
        let first = self.word(row, self.mode.header_words()).word as usize;
        (first..).zip(payload).for_each(|(word, value)| region.store(word, *value));
    }

    /// Reads the metadata and the payload of a row from its owner's region. Only while no worker
    /// uses the table.
    ///
    /// # Panics
    /// Panics if there is no such row.
    pub fn read_row(&self, region: &dyn Region, row: u32) -> (Vec<u64>, Vec<u64>) {
        let row = RowId { owner: 0, index: row };
        let (first, header) = (self.word(row, 0).word as usize, self.mode.header_words());
        let words = header + self.payload_words_of(row);
        let mut words: Vec<u64> = (first..first + words).map(|word| region.load(word)).collect();
        let payload = words.split_off(header);
        (words, payload)
    }

    /// Returns the words of each owner's region, including buckets, log and leases.
    pub fn words(&self) -> usize {
        self.lease(0) + self.log.workers as usize
    }

    /// Returns the word of a worker's lease, which is the same in every owner's region.
    pub(crate) fn lease(&self, worker: u16) -> usize {
        let records = self.log.workers as usize * self.log.transactions as usize;
        self.log_start() + records * self.record_words() + usize::from(worker)
    }

    fn log_start(&self) -> usize {
        let buckets = Self::region_words(self.mode, self.buckets.payload_words, self.buckets.rows);
        Self::region_words(self.mode, self.payload_words, self.rows) + buckets
    }

    fn record_words(&self) -> usize {
        RECORD_HEADER + self.log.rows as usize * self.entry_words()
    }

    /// Returns the words of a record's entry: a row's number and payload.
    pub(crate) fn entry_words(&self) -> usize {
        1 + self.longest_payload()
    }

    /// Returns true if changes are logged before rows are written.
    pub(crate) fn is_logged(&self) -> bool {
        self.log.workers > 0
    }

    /// Returns the lock word while `txn` holds a row exclusively and no other transaction requests
    /// it.
    pub(crate) fn exclusive_word(&self, txn: StartTimestamp) -> u64 {
        self.mode.exclusive_word(txn, self.is_logged())
    }

    /// Returns true if a lock word says that `txn` holds the row exclusively. A one-round lock may
    /// count readers beside it.
    pub(crate) fn says_exclusive(&self, word: u64, txn: StartTimestamp) -> bool {
        match (self.mode.is_one_round(), self.is_logged()) {
            (true, true) => is_exclusive(word) && word >> NAME_SHIFT == txn.0,
            (true, false) => is_exclusive(word),
            _ => word == self.exclusive_word(txn),
        }
    }

    /// Returns the first word of the record of a worker's transaction slot, which is the same in
    /// every owner's region.
    pub(crate) fn record(&self, worker: u16, slot: usize) -> usize {
        self.log_start()
            + (usize::from(worker) * self.log.transactions as usize + slot) * self.record_words()
    }

    /// Returns the address of a row's lock word, or of a word after it.
    ///
    /// # Panics
    /// Panics if there is no such row.
    pub(crate) fn word(&self, row: RowId, offset: usize) -> RemoteAddr {
        let length = (self.mode.header_words() + self.payload_words_of(row)) as u64;
        let first = if row.index < self.rows {
            length * u64::from(row.index)
        } else {
            let rows = Self::region_words(self.mode, self.payload_words, self.rows) as u64;
            rows + length * u64::from(row.index - self.rows)
        };
        RemoteAddr { key: self.owners[row.owner as usize].region, word: first + offset as u64 }
    }
}
