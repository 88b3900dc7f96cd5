//! A client of a store: one transaction of random gets, puts, inserts and deletes of few keys, and
//! what it records for the checker.
//!
//! A read or written value is an operation on the key's register. An answer that a key is absent,
//! and a change of the index, is an operation on the register of each locked bucket, whose value is
//! the bucket's last change.

use super::Bucket;
use crate::{
    Mode, RemoteError, RowClient, RowId, StoreAnswer, StoreKey, StoreLayout, StoreWorker, TxnHandle,
};
use clearway_env::SeededEntropy;
use clearway_history::{History, Op};
use std::fmt;

/// Words of a value. All of them are equal, so that a torn value is visible.
const VALUE: usize = 2;
const KEYS: u64 = 6;
/// The largest number of operations of one transaction.
pub const OPERATIONS: usize = 3;

pub fn layout(mode: Mode) -> StoreLayout {
    StoreLayout { mode, value_words: VALUE, buckets: 2, entries: 2 }
}

#[derive(Clone, Copy, Debug)]
enum Wish {
    Get,
    Put,
    Insert { look_first: bool },
    Delete,
}

/// An operation on a register, with its value; 0 if the register was never written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreOp {
    Read(String, u64),
    Write(String, u64),
}

impl StoreOp {
    pub fn recorded(&self, history: &mut History) -> Op {
        match self {
            Self::Read(register, value) => {
                Op::Read { key: history.key(register), value: (*value > 0).then_some(*value) }
            }
            Self::Write(register, value) => Op::Write { key: history.key(register), value: *value },
        }
    }
}

/// `register=read` or `register=,written`.
impl fmt::Display for StoreOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(register, value) => write!(f, "{register}={value}"),
            Self::Write(register, value) => write!(f, "{register}=,{value}"),
        }
    }
}

fn register_of(bucket: Bucket) -> String {
    format!("bucket-{}.{}", bucket.owner, bucket.number)
}

/// A transaction of a store.
pub struct StoreClient {
    /// Remaining operations; the next one is last.
    plan: Vec<(StoreKey, Wish)>,
    /// The current operation has already read its key.
    looked: bool,
    pub ops: Vec<StoreOp>,
    /// Its commit has been requested.
    pub commits: bool,
}

impl StoreClient {
    pub fn new(rng: &SeededEntropy) -> Self {
        let count = 1 + rng.below(OPERATIONS as u64);
        let plan = (0..count).map(|_| {
            let key = StoreKey::new(1 + rng.below(KEYS)).unwrap();
            let wish = match rng.below(8) {
                0..3 => Wish::Get,
                3..5 => Wish::Put,
                5..7 => Wish::Insert { look_first: rng.below(2) == 0 },
                _ => Wish::Delete,
            };
            (key, wish)
        });
        Self { plan: plan.collect(), looked: false, ops: Vec::new(), commits: false }
    }

    /// Requests the next operation, or the end. `values` is the last value that this client's
    /// worker has written.
    pub fn go_on<R: RowClient>(
        &mut self,
        store: &mut StoreWorker<R>,
        txn: TxnHandle,
        rng: &SeededEntropy,
        values: &mut u64,
        before_commit: impl FnOnce(&[StoreOp]),
    ) -> Result<(), RemoteError> {
        let Some(&(key, wish)) = self.plan.last() else {
            self.commits = rng.below(20) > 0;
            if !self.commits {
                return store.abort(txn);
            }
            before_commit(&self.ops);
            return store.commit(txn);
        };
        *values += 1;
        let value = [*values; VALUE];
        match (wish, self.looked) {
            (Wish::Get, _) | (Wish::Insert { look_first: true }, false) => {
                store.get(txn, key, false)
            }
            (Wish::Put | Wish::Delete, false) => store.get(txn, key, true),
            (Wish::Put, true) => store.put(txn, key, &value),
            (Wish::Insert { .. }, _) => store.insert(txn, key, &value),
            (Wish::Delete, true) => store.delete(txn, key),
        }
    }

    /// Records the answer to the last operation. Returns an error if it cannot be true.
    pub fn record<R: RowClient>(
        &mut self,
        store: &mut StoreWorker<R>,
        txn: TxnHandle,
        key: StoreKey,
        answer: StoreAnswer,
        values: &mut u64,
    ) -> Result<(), String> {
        let &(planned, wish) = self.plan.last().unwrap();
        assert_eq!(planned, key);
        let register = key.to_string();
        let (looks, changes) = match wish {
            Wish::Get => (true, false),
            Wish::Put | Wish::Delete => (!self.looked, self.looked),
            Wish::Insert { look_first } => (look_first && !self.looked, !look_first || self.looked),
        };
        let mut value = [0; VALUE];
        if looks && answer == StoreAnswer::Present {
            assert!(store.value(txn, key, &mut value));
            if value[0] != value[1] || value[0] == 0 {
                return Err(format!("torn value of {key}: {value:?}"));
            }
            self.ops.push(StoreOp::Read(register, value[0]));
        } else if changes
            && matches!(wish, Wish::Insert { .. }) == (answer == StoreAnswer::Absent)
            && answer != StoreAnswer::NoRoom
        {
            let written = if let Wish::Delete = wish {
                // A value that nobody can read.
                *values += 1;
                *values
            } else {
                assert!(store.value(txn, key, &mut value));
                value[0]
            };
            self.ops.push(StoreOp::Write(register, written));
        }
        let changed_index = changes && !matches!(wish, Wish::Put);
        if answer != StoreAnswer::Present || changed_index {
            self.record_buckets(store, txn, key)?;
        }
        // A key is changed or deleted only if it was found, and inserted only if it was not.
        self.looked = looks
            && matches!(
                (wish, answer == StoreAnswer::Present),
                (Wish::Put | Wish::Delete, true) | (Wish::Insert { .. }, false)
            );
        if !self.looked {
            self.plan.pop();
        }
        Ok(())
    }

    /// Records what the transaction knows of the buckets that it has locked for a key.
    fn record_buckets<R: RowClient>(
        &mut self,
        store: &mut StoreWorker<R>,
        txn: TxnHandle,
        key: StoreKey,
    ) -> Result<(), String> {
        let rows = store.rows();
        let layout = layout(rows.table().mode);
        for probe in 0..layout.probes() {
            let bucket = layout.bucket(key, probe, rows.table().owners.len());
            if !rows.holds(txn, layout.bucket_row(bucket)) {
                if probe == 0 {
                    return Err(format!("{key} was reported absent, but its bucket is not locked"));
                }
                return Ok(());
            }
            let mut word = [0];
            rows.payload(txn, layout.bucket_row(bucket), &mut word);
            let change = word[0] >> 1;
            let write = StoreOp::Write(register_of(bucket), change);
            if change != rows.attempt(txn) {
                self.ops.push(StoreOp::Read(register_of(bucket), change));
            } else if !self.ops.contains(&write) {
                self.ops.push(write);
            }
        }
        Ok(())
    }
}

/// Verifies, after all transactions have ended, that the locks of an owner are free, that its index
/// and rows agree, and that each key is present at most once. `load` returns a word of a row,
/// counted from its metadata. `seen` has the keys of other owners.
///
/// Returns what a last transaction reads there.
pub fn read_owner(
    layout: StoreLayout,
    owner: u32,
    load: impl Fn(RowId, usize) -> u64,
    seen: &mut Vec<u64>,
) -> Result<Vec<StoreOp>, String> {
    let header = layout.mode.header_words();
    let is_free = |row| (0..header).all(|word| load(row, word) == 0);
    let mut ops = Vec::new();
    for number in 0..layout.buckets {
        let bucket = Bucket { owner, number };
        let index = layout.bucket_row(bucket);
        if !is_free(index) {
            return Err(format!("the lock of {bucket:?} leaked"));
        }
        ops.push(StoreOp::Read(register_of(bucket), load(index, header) >> 1));
        for entry in 0..layout.entries as usize {
            let row = layout.row(bucket, entry);
            let (named, key) = (load(index, header + 1 + entry), load(row, header));
            if named != key || (key != 0 && seen.contains(&key)) {
                return Err(format!("the index has {named} for {key} in {row:?}"));
            }
            if !is_free(row) {
                return Err(format!("the lock of {row:?} leaked"));
            }
            let value = load(row, header + 1);
            if (1..VALUE).any(|word| load(row, header + 1 + word) != value) {
                return Err(format!("torn value of {key} in {row:?}"));
            }
            if let Some(key) = StoreKey::new(key) {
                seen.push(key.get());
                ops.push(StoreOp::Read(key.to_string(), value));
            }
        }
    }
    Ok(ops)
}
