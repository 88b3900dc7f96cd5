//! The location of a store's keys.
//!
//! Each owner's region has the rows, followed by the buckets of its hash index. Both are rows of a
//! [`Table`] with their own locks.
//!
//! | row | payload |
//! |---|---|
//! | row `b * entries + e` | key, or 0 for none; value |
//! | bucket `b` | word 0; then for each entry the key of its row, or 0 for none |
//!
//! | word 0 of a bucket | |
//! |---|---|
//! | bit 0 | keys of this bucket may be in the next bucket |
//! | bits 1 to 63 | [`RowClient::attempt`](crate::RowClient::attempt) of the last transaction that changed an entry |

use crate::{Buckets, LogLayout, Mode, Owner, RowId, Table, WorkerLimits};
use clearway_env::split_mix;
use std::num::NonZeroU64;
use std::ops::Range;

/// Number of buckets that may contain a key: its home bucket and the following ones. An insert that
/// finds no room in them is refused.
pub const PROBES: u32 = 4;

/// A key of a store.
pub type StoreKey = NonZeroU64;

/// Sizes of a store; the same for all users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLayout {
    /// Protocol and kind of lock.
    pub mode: Mode,
    /// Words of a value, at least 1.
    pub value_words: usize,
    /// Buckets of each owner, at least 1.
    pub buckets: u32,
    /// Keys of one bucket, at least 1.
    pub entries: u32,
}

impl StoreLayout {
    /// Returns the words of each owner's region.
    pub fn region_words(&self) -> usize {
        let buckets = Table::region_words(self.mode, self.bucket_words(), self.buckets);
        Table::region_words(self.mode, 1 + self.value_words, self.buckets * self.entries) + buckets
    }

    /// Creates the table that holds rows and buckets.
    pub fn table(&self, owners: Vec<Owner>) -> Table {
        let buckets = Buckets { payload_words: self.bucket_words(), rows: self.buckets };
        let rows = self.buckets * self.entries;
        Table {
            mode: self.mode,
            payload_words: 1 + self.value_words,
            rows,
            buckets,
            log: LogLayout::default(),
            owners,
        }
    }

    /// Returns the limits of a worker that runs `transactions` concurrent transactions with at most
    /// `operations` operations each.
    pub fn limits(&self, transactions: usize, operations: usize) -> WorkerLimits {
        // An operation uses its row and all buckets of its key. One more row is checked and
        // released.
        WorkerLimits { transactions, rows: operations * (1 + PROBES as usize) + 1 }
    }

    /// Returns the log layout for such workers, numbered from 0, as the table's [`Table::log`].
    /// With it the store survives their death, and regions have [`Table::words`] words. Rows are
    /// recovered as those of any [table](crate::recovery): an index entry changes in the
    /// transaction that changes its row.
    pub fn log(&self, workers: u32, transactions: usize, operations: usize) -> LogLayout {
        let limits = self.limits(transactions, operations);
        LogLayout { workers, transactions: limits.transactions as u32, rows: limits.rows as u32 }
    }

    pub(crate) fn bucket_words(&self) -> usize {
        1 + self.entries as usize
    }

    /// Returns the bucket that is searched for a key after `probe` others.
    pub(crate) fn bucket(&self, key: StoreKey, probe: u32, owners: usize) -> Bucket {
        let hash = split_mix::mix(key.get());
        let owner = (hash >> 32) % owners as u64;
        let home = (hash & u64::from(u32::MAX)) % u64::from(self.buckets);
        Bucket {
            owner: owner as u32,
            number: ((home + u64::from(probe)) % u64::from(self.buckets)) as u32,
        }
    }

    /// Returns the number of distinct buckets that may contain a key.
    pub(crate) fn probes(&self) -> u32 {
        PROBES.min(self.buckets)
    }

    /// Returns the number of each bucket's row, with the numbers of the rows of its entries; the
    /// same for every owner.
    pub fn rows_by_bucket(&self) -> impl Iterator<Item = (u32, Range<u32>)> {
        let entries = self.entries as usize;
        (0..self.buckets).map(move |number| {
            let bucket = Bucket { owner: 0, number };
            let rows = self.row(bucket, 0).index..self.row(bucket, entries).index;
            (self.bucket_row(bucket).index, rows)
        })
    }

    /// Returns the row of a bucket.
    pub(crate) fn bucket_row(&self, bucket: Bucket) -> RowId {
        RowId { owner: bucket.owner, index: self.buckets * self.entries + bucket.number }
    }

    /// Returns the row of a bucket's entry.
    pub(crate) fn row(&self, bucket: Bucket, entry: usize) -> RowId {
        RowId { owner: bucket.owner, index: bucket.number * self.entries + entry as u32 }
    }
}

/// A bucket of an owner's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    pub owner: u32,
    pub number: u32,
}
