//! The steps of one operation.

use super::{Call, Entry, Operation, Step, StoreAnswer, StoreEvent, StoreKey, StoreWorker};
use crate::traps::Trap;
use crate::{RemoteError, RowClient, RowId, TxnHandle, WorkerEvent};

/// Bit 0 of a bucket's word 0: keys of this bucket may be in the next bucket.
pub(super) const OVERFLOWED: u64 = 1;

impl<R: RowClient> StoreWorker<R> {
    pub(super) fn start_call(
        &mut self,
        txn: TxnHandle,
        key: StoreKey,
        operation: Operation,
    ) -> Result<(), RemoteError> {
        assert!(
            self.calls.iter().all(|call| call.txn != txn),
            "the transaction has a call in flight"
        );
        let call = Call { txn, key, operation, step: Step::Peek(0), free: None };
        if call.operation.changes_index() {
            return self.search(call, 0);
        }
        let known = self.found(txn, key).or_else(|| self.cache.get(key));
        match known {
            Some(row) => self.try_row(call, row, true),
            None => self.peek(call, 0),
        }
    }

    pub(super) fn found(&self, txn: TxnHandle, key: StoreKey) -> Option<RowId> {
        let found = self.found.iter().find(|(of, found, _)| *of == txn && *found == key);
        found.map(|(_, _, row)| *row)
    }

    pub(super) fn handle(&mut self, event: WorkerEvent) -> Result<(), RemoteError> {
        match event {
            WorkerEvent::Locked(txn, row) => {
                let call = self.take_call(txn);
                match call.step {
                    Step::TryRow { cached, held } => self.tried_row(call, row, cached, held),
                    Step::Search(probe) => self.search_bucket(call, row, probe),
                    Step::LockRow(entry) => self.locked_row(call, row, entry),
                    Step::Release { .. } | Step::Peek(_) => unreachable!("no lock was requested"),
                }
            }
            WorkerEvent::Peeked(txn, row) => {
                let call = self.take_call(txn);
                let Step::Peek(probe) = call.step else { unreachable!("no peek was requested") };
                self.peeked(call, row, probe)
            }
            WorkerEvent::Released(txn, _) => {
                let call = self.take_call(txn);
                let Step::Release { cached } = call.step else {
                    unreachable!("no release was requested")
                };
                self.look_elsewhere(call, cached)
            }
            WorkerEvent::Committed(txn) => {
                self.forget(txn);
                self.events.push_back(StoreEvent::Committed(txn));
                Ok(())
            }
            WorkerEvent::Aborted(txn, start, cause) => {
                self.forget(txn);
                self.events.push_back(StoreEvent::Aborted(txn, start, cause));
                Ok(())
            }
        }
    }

    fn take_call(&mut self, txn: TxnHandle) -> Call {
        let call =
            self.calls.iter().position(|call| call.txn == txn).expect("rows change by calls only");
        self.calls.swap_remove(call)
    }

    fn forget(&mut self, txn: TxnHandle) {
        self.calls.retain(|call| call.txn != txn);
        self.found.retain(|(of, _, _)| *of != txn);
    }

    fn end_call(&mut self, call: &Call, answer: StoreAnswer) -> Result<(), RemoteError> {
        self.events.push_back(StoreEvent::Done(call.txn, call.key, answer));
        Ok(())
    }

    // With a hint.

    fn try_row(&mut self, mut call: Call, row: RowId, cached: bool) -> Result<(), RemoteError> {
        let (txn, update) = (call.txn, call.operation.locks_exclusively());
        call.step = Step::TryRow { cached, held: self.rows.holds(txn, row) };
        self.calls.push(call);
        self.rows.get(txn, row, update)
    }

    fn tried_row(
        &mut self,
        mut call: Call,
        row: RowId,
        cached: bool,
        held: bool,
    ) -> Result<(), RemoteError> {
        if self.key_of(call.txn, row) == call.key.get()
            || (cached && self.planted.has(Trap::TrustLocation))
        {
            *(if cached { &mut self.stats.cached } else { &mut self.stats.peeked }) += 1;
            return self.has_row(&call, row);
        }
        self.stats.stale += u64::from(cached);
        self.cache.remove(call.key);
        if held {
            return self.look_elsewhere(call, cached);
        }
        let txn = call.txn;
        call.step = Step::Release { cached };
        self.calls.push(call);
        self.rows.release(txn, row)
    }

    /// Continues after a row has turned out to belong to another key.
    fn look_elsewhere(&mut self, call: Call, cached: bool) -> Result<(), RemoteError> {
        if cached { self.peek(call, 0) } else { self.search(call, 0) }
    }

    fn peek(&mut self, mut call: Call, probe: u32) -> Result<(), RemoteError> {
        let bucket = self.layout.bucket(call.key, probe, self.rows.table().owners.len());
        let txn = call.txn;
        call.step = Step::Peek(probe);
        self.calls.push(call);
        self.rows.peek(txn, self.layout.bucket_row(bucket))
    }

    fn peeked(&mut self, call: Call, row: RowId, probe: u32) -> Result<(), RemoteError> {
        let words = self.bucket_words(call.txn, row);
        if let Some(entry) = entry_of(&words, call.key.get()) {
            let bucket = self.layout.bucket(call.key, probe, self.rows.table().owners.len());
            return self.try_row(call, self.layout.row(bucket, entry), false);
        }
        if words[0] & OVERFLOWED != 0 && probe + 1 < self.layout.probes() {
            return self.peek(call, probe + 1);
        }
        if self.planted.has(Trap::TrustBucket) {
            return self.end_call(&call, StoreAnswer::Absent);
        }
        self.search(call, 0)
    }

    // Under the locks of buckets.

    fn search(&mut self, mut call: Call, probe: u32) -> Result<(), RemoteError> {
        let bucket = self.layout.bucket(call.key, probe, self.rows.table().owners.len());
        let (txn, update) = (call.txn, call.operation.changes_index());
        call.step = Step::Search(probe);
        self.stats.buckets_locked += 1;
        self.calls.push(call);
        self.rows.get(txn, self.layout.bucket_row(bucket), update)
    }

    fn search_bucket(&mut self, mut call: Call, row: RowId, probe: u32) -> Result<(), RemoteError> {
        let mut words = self.bucket_words(call.txn, row);
        let bucket = self.layout.bucket(call.key, probe, self.rows.table().owners.len());
        let is_insert = matches!(call.operation, Operation::Insert(_));
        if let Some(number) = entry_of(&words, call.key.get()) {
            if is_insert {
                return self.end_call(&call, StoreAnswer::Present);
            }
            return self.lock_row(call, Entry { bucket, number });
        }
        if is_insert && call.free.is_none() {
            call.free = entry_of(&words, 0).map(|number| Entry { bucket, number });
        }
        let more = probe + 1 < self.layout.probes();
        if words[0] & OVERFLOWED != 0 && more {
            return self.search(call, probe + 1);
        }
        match (is_insert, call.free) {
            (false, _) => self.end_call(&call, StoreAnswer::Absent),
            (true, Some(free)) => self.lock_row(call, free),
            (true, None) if more => {
                words[0] |= OVERFLOWED;
                self.rows.set(call.txn, row, &words);
                self.search(call, probe + 1)
            }
            (true, None) => self.end_call(&call, StoreAnswer::NoRoom),
        }
    }

    fn lock_row(&mut self, mut call: Call, entry: Entry) -> Result<(), RemoteError> {
        let (txn, update) = (call.txn, call.operation.locks_exclusively());
        call.step = Step::LockRow(entry);
        self.calls.push(call);
        self.rows.get(txn, self.layout.row(entry.bucket, entry.number), update)
    }

    fn locked_row(&mut self, call: Call, row: RowId, entry: Entry) -> Result<(), RemoteError> {
        let key = call.key.get();
        let expected = if matches!(call.operation, Operation::Insert(_)) { 0 } else { key };
        if self.key_of(call.txn, row) != expected {
            return Err(RemoteError::IndexBroken(row));
        }
        match &call.operation {
            Operation::Get { .. } | Operation::Put(_) => self.has_row(&call, row),
            Operation::Insert(value) => {
                self.set_row(call.txn, row, key, value);
                self.set_entry(call.txn, entry, key);
                self.remember(&call, row);
                self.end_call(&call, StoreAnswer::Absent)
            }
            Operation::Delete => {
                self.set_row(call.txn, row, 0, &vec![0; self.layout.value_words]);
                self.set_entry(call.txn, entry, 0);
                self.found.retain(|(txn, found, _)| (*txn, *found) != (call.txn, call.key));
                self.cache.remove(call.key);
                self.end_call(&call, StoreAnswer::Present)
            }
        }
    }

    // Locked rows and buckets.

    /// Ends a call for a key that is in this row.
    fn has_row(&mut self, call: &Call, row: RowId) -> Result<(), RemoteError> {
        if let Operation::Put(value) = &call.operation {
            self.set_row(call.txn, row, call.key.get(), value);
        }
        self.remember(call, row);
        self.end_call(call, StoreAnswer::Present)
    }

    fn remember(&mut self, call: &Call, row: RowId) {
        self.cache.insert(call.key, row);
        if self.found(call.txn, call.key).is_none() {
            self.found.push((call.txn, call.key, row));
        }
    }

    fn key_of(&self, txn: TxnHandle, row: RowId) -> u64 {
        let mut key = [0];
        self.rows.payload(txn, row, &mut key);
        key[0]
    }

    fn bucket_words(&self, txn: TxnHandle, row: RowId) -> Vec<u64> {
        let mut words = vec![0; self.layout.bucket_words()];
        self.rows.payload(txn, row, &mut words);
        words
    }

    fn set_row(&mut self, txn: TxnHandle, row: RowId, key: u64, value: &[u64]) {
        let payload: Vec<u64> = [&[key], value].concat();
        self.rows.set(txn, row, &payload);
    }

    fn set_entry(&mut self, txn: TxnHandle, entry: Entry, key: u64) {
        let row = self.layout.bucket_row(entry.bucket);
        let mut words = self.bucket_words(txn, row);
        words[0] = words[0] & OVERFLOWED | self.rows.attempt(txn) << 1;
        words[1 + entry.number] = key;
        self.rows.set(txn, row, &words);
    }
}

/// Returns the number of the entry with this key.
pub(super) fn entry_of(words: &[u64], key: u64) -> Option<usize> {
    words[1..].iter().position(|found| *found == key)
}
