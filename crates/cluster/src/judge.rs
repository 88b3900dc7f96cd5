//! The judge: are the transactions that clients saw strictly serializable, and is the final state
//! that of their serial order?
//!
//! Every write also reads what it replaces, so the writes of a key form a chain from its first
//! state. The chain gives the order; the checker of histories looks for cycles between the chains
//! of different keys, and for orders that contradict real time.

use crate::session::Outcome;
use crate::table::Found;
use clearway_history::{CheckerOptions, History, HistoryReport, Op, Txn, TxnOutcome};
use hashbrown::{HashMap, HashSet};

/// A transaction as its client saw it.
#[derive(Debug)]
pub(crate) struct Seen {
    pub session: u32,
    /// What it wrote to each of its keys.
    pub number: u64,
    pub began: u64,
    pub ended: u64,
    pub outcome: Outcome,
    pub keys: Vec<u32>,
    /// What it found under these keys, if it was told.
    pub found: Vec<Found>,
}

/// Returns what is wrong; nothing if all is well.
pub(crate) fn judge(all: &[Seen], last: &[Found]) -> Result<HistoryReport, String> {
    let chains = chains(all, last);
    let mut history = History::new();
    for seen in all {
        push(&mut history, seen)?;
    }
    let end = all.iter().map(|seen| seen.ended).max().unwrap_or(0) + 1;
    let reads = last.iter().map(|found| Op::Read {
        key: history.key(&format!("k{}", found.key)),
        value: (found.writer > 0).then_some(found.writer),
    });
    let ops = reads.collect();
    let (start, end) = (end, Some(end + 1));
    let read = Txn { session: u32::MAX, start, end, outcome: TxnOutcome::Committed, ops };
    history.push(read).map_err(|error| error.to_string())?;
    let report = history.check(&CheckerOptions::default());
    if !report.is_clean() {
        return Err(format!("{report}"));
    }
    chains.map(|()| report)
}

fn push(history: &mut History, seen: &Seen) -> Result<(), String> {
    let mut ops = Vec::with_capacity(2 * seen.keys.len());
    for found in &seen.found {
        let key = history.key(&format!("k{}", found.key));
        ops.push(Op::Read { key, value: (found.writer > 0).then_some(found.writer) });
    }
    for key in &seen.keys {
        ops.push(Op::Write { key: history.key(&format!("k{key}")), value: seen.number });
    }
    let (outcome, end) = match seen.outcome {
        Outcome::Committed => (TxnOutcome::Committed, Some(seen.ended)),
        Outcome::Aborted => (TxnOutcome::Aborted, Some(seen.ended)),
        // A decision in the coordinator's log may take effect later.
        Outcome::Unknown => (TxnOutcome::Unknown, None),
    };
    let txn = Txn { session: seen.session, start: seen.began, end, outcome, ops };
    history.push(txn).map(drop).map_err(|error| error.to_string())
}

/// Checks that the last writer of each key is the end of its chain, and that all committed
/// transactions are in the chains of all of their keys.
fn chains(all: &[Seen], last: &[Found]) -> Result<(), String> {
    let mut next: HashMap<(u32, u64), u64> = HashMap::new();
    let mut committed: HashMap<u32, usize> = HashMap::new();
    // What a client was not told is known by its successors only: such a chain may have gaps.
    let mut unknown: HashSet<u32> = HashSet::new();
    for seen in all {
        match seen.outcome {
            Outcome::Committed => {}
            Outcome::Aborted => continue,
            Outcome::Unknown => {
                unknown.extend(&seen.keys);
                continue;
            }
        }
        if seen.found.len() != seen.keys.len() {
            return Err(format!("{} found {:?} under {:?}", seen.number, seen.found, seen.keys));
        }
        for found in &seen.found {
            *committed.entry(found.key).or_default() += 1;
            if let Some(other) = next.insert((found.key, found.writer), seen.number) {
                let (key, writer, number) = (found.key, found.writer, seen.number);
                return Err(format!("{other} and {number} replaced {writer} under key {key}"));
            }
        }
    }
    for found in last.iter().filter(|found| !unknown.contains(&found.key)) {
        let (mut at, mut passed) = (0, 0);
        while let Some(writer) = next.get(&(found.key, at)) {
            (at, passed) = (*writer, passed + 1);
        }
        let writers = committed.get(&found.key).copied().unwrap_or(0);
        if at != found.writer || passed != writers {
            let key = found.key;
            return Err(format!(
                "key {key} was last written by {}, but the serial order of its {writers} \
                 writers ends after {passed} with {at}",
                found.writer
            ));
        }
    }
    Ok(())
}
