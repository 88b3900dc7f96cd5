//! Clients on their own threads, in real time: for fabrics without a simulation.

use super::PAYLOAD;
use crate::{RemoteError, RowClient, RowId, WorkerEvent};
use clearway_env::SeededEntropy;
use clearway_history::{CheckerOptions, History, HistoryReport, Op, Txn, TxnOutcome};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

pub const ROWS_PER_TXN: usize = 3;

/// A transaction with its rows and the values read and written.
pub type Record = (Txn, Vec<(RowId, Option<u64>, Option<u64>)>);

/// Unique values, and a common clock.
pub struct Shared {
    values: AtomicU64,
    begun: Instant,
}

impl Shared {
    pub fn new() -> Self {
        Self { values: AtomicU64::new(0), begun: Instant::now() }
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }
}

/// Commits `commits` transactions on `rows` rows of each owner, one at a time. `wait` waits for the
/// client's messages.
pub fn work<C: RowClient>(
    client: &mut C,
    session: u32,
    (owners, rows): (u32, u32),
    commits: usize,
    shared: &Shared,
    mut wait: impl FnMut(&mut C) -> Result<(), RemoteError>,
) -> Result<Vec<Record>, RemoteError> {
    let rng = SeededEntropy::new(u64::from(session));
    let mut records = Vec::new();
    let mut committed = 0;
    let mut start = None;
    let mut events = Vec::new();
    while committed < commits {
        let begun = shared.now();
        let txn = match start {
            Some(start) => client.restart(start).unwrap(),
            None => client.begin().unwrap(),
        };
        let draw = |_| RowId {
            owner: rng.below(owners.into()) as u32,
            index: rng.below(rows.into()) as u32,
        };
        let mut plan: Vec<RowId> = (0..1 + rng.below(ROWS_PER_TXN as u64)).map(draw).collect();
        let mut ops = Vec::new();
        let outcome = loop {
            match plan.last() {
                Some(row) => client.get(txn, *row, rng.below(2) == 0)?,
                None => client.commit(txn)?,
            }
            while events.is_empty() {
                client.poll(&mut events)?;
                if events.is_empty() && !client.is_ready() {
                    wait(client)?;
                }
            }
            match events.pop() {
                Some(WorkerEvent::Locked(_, row)) => {
                    let mut payload = [0; PAYLOAD];
                    client.payload(txn, row, &mut payload);
                    assert!(
                        payload.iter().all(|word| *word == payload[0]),
                        "torn read: {payload:?}"
                    );
                    let mut written = None;
                    if client.is_for_update(txn, row) {
                        // Relaxed: only uniqueness matters.
                        let value = 1 + shared.values.fetch_add(1, Ordering::Relaxed);
                        client.set(txn, row, &[value; PAYLOAD]);
                        written = Some(value);
                    }
                    ops.push((row, Some(payload[0]), written));
                    plan.pop();
                }
                Some(WorkerEvent::Committed(_)) => break TxnOutcome::Committed,
                Some(WorkerEvent::Aborted(_, kept, _)) => {
                    start = Some(kept);
                    break TxnOutcome::Aborted;
                }
                other => panic!("{other:?}"),
            }
        };
        if outcome == TxnOutcome::Committed {
            (start, committed) = (None, committed + 1);
        }
        let txn = Txn { session, start: begun, end: Some(shared.now()), outcome, ops: Vec::new() };
        records.push((txn, ops));
    }
    Ok(records)
}

/// Checks the records of all clients. A last transaction reads `left`, the values of all rows.
pub fn check(records: Vec<Record>, left: impl Iterator<Item = (RowId, u64)>) -> HistoryReport {
    let mut history = History::new();
    let mut keys = BTreeMap::new();
    // After the ends of all others.
    let start = 1 + records.iter().filter_map(|(txn, _)| txn.end).max().unwrap_or(0);
    let (session, end, outcome) = (u32::MAX, Some(start), TxnOutcome::Committed);
    let last = Txn { session, start, end, outcome, ops: Vec::new() };
    let reads = left.map(|(row, value)| (row, Some(value), None)).collect();
    for (mut txn, ops) in records.into_iter().chain([(last, reads)]) {
        for (row, read, written) in ops {
            let name = format!("{}.{}", row.owner, row.index);
            let key = *keys.entry(row).or_insert_with(|| history.key(&name));
            let read = read.map(|value| Op::Read { key, value: (value > 0).then_some(value) });
            txn.ops.extend(read.into_iter().chain(written.map(|value| Op::Write { key, value })));
        }
        history.push(txn).unwrap();
    }
    history.check(&CheckerOptions::default())
}
