//! The contents of a store before any worker uses it.

use super::layout::{Bucket, StoreKey, StoreLayout};
use super::steps::{OVERFLOWED, entry_of};
use crate::RowId;

/// Keys of a new store, in the rows and buckets where inserts in the same order would put them. All
/// values are zero.
///
/// Owners write the payloads before they announce their regions, so a large store begins without a
/// transaction for each key.
pub struct StoreContents {
    layout: StoreLayout,
    owners: usize,
    /// Payloads of all owners' buckets, one owner after another.
    buckets: Vec<u64>,
}

impl StoreContents {
    /// Creates the contents of an empty store.
    pub fn new(layout: StoreLayout, owners: usize) -> Self {
        let buckets = vec![0; owners * layout.buckets as usize * layout.bucket_words()];
        Self { layout, owners, buckets }
    }

    /// Returns the index of the owner that has a key's row.
    pub fn owner(&self, key: StoreKey) -> u32 {
        self.layout.bucket(key, 0, self.owners).owner
    }

    /// Adds a key. Returns its row, or `None` if there is no room for the key.
    pub fn add(&mut self, key: StoreKey) -> Option<RowId> {
        for probe in 0..self.layout.probes() {
            let bucket = self.layout.bucket(key, probe, self.owners);
            let words = self.bucket(bucket);
            if let Some(entry) = entry_of(words, key.get()).or_else(|| entry_of(words, 0)) {
                words[1 + entry] = key.get();
                return Some(self.layout.row(bucket, entry));
            }
            words[0] |= OVERFLOWED;
        }
        None
    }

    /// Returns the payloads that an owner's rows and buckets begin with, by their numbers. All
    /// others are zero.
    pub fn payloads(&self, owner: u32) -> Vec<(u32, Vec<u64>)> {
        let mut payloads = Vec::new();
        for number in 0..self.layout.buckets {
            let bucket = Bucket { owner, number };
            let words = &self.buckets[self.range(bucket)];
            if words.iter().all(|word| *word == 0) {
                continue;
            }
            payloads.push((self.layout.bucket_row(bucket).index, words.to_vec()));
            for (entry, key) in words[1..].iter().enumerate().filter(|(_, key)| **key != 0) {
                let mut row = vec![0; 1 + self.layout.value_words];
                row[0] = *key;
                payloads.push((self.layout.row(bucket, entry).index, row));
            }
        }
        payloads
    }

    fn range(&self, bucket: Bucket) -> std::ops::Range<usize> {
        let number = bucket.owner as usize * self.layout.buckets as usize + bucket.number as usize;
        let words = self.layout.bucket_words();
        number * words..(number + 1) * words
    }

    fn bucket(&mut self, bucket: Bucket) -> &mut [u64] {
        let range = self.range(bucket);
        &mut self.buckets[range]
    }
}
