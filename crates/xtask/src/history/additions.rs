//! Additions to counters: who adds which power of two, and whether the server lets transactions
//! share the rows that they add to.
//!
//! An UPDATE that only adds locks its row exclusively until the server has learned that its
//! transactions do not read afterwards (docs/decisions/increments.md). So clients send two texts:
//! one where reads may follow, and one where they never do.

use super::control::Isolation;
use super::steps::{self, COUNTERS, KEYS, Step};
use crate::options::Options;
use clearway_harness::batch::MessageBatch;
use clearway_harness::client::PgClient;
use clearway_harness::{Endpoint, Res};
use clearway_history::{CheckerOptions, History, Op, Txn, TxnOutcome};

/// Counters in use at the same time.
pub const HOT: usize = 4;
/// Additions to one counter: each power of two up to 2^61.
const ADDITIONS: u32 = 62;
/// Maximum number of blocks from which the server learns to share rows. It needs about 100.
const LESSONS: u32 = 1_000;

/// Hands out the additions to all counters.
pub struct Additions {
    /// The counters in use, each with the number of additions so far.
    hot: [(u64, u32); HOT],
    /// The first counter that was never used.
    fresh: u64,
}

impl Additions {
    /// Starts with the first counters.
    pub fn new() -> Self {
        Self { hot: std::array::from_fn(|slot| (slot as u64, 0)), fresh: HOT as u64 }
    }

    /// Returns the counter in this slot and an amount that was never added to it, unless all
    /// counters are full.
    pub fn take(&mut self, slot: usize) -> Option<(u64, u64)> {
        let (id, used) = &mut self.hot[slot];
        if *used == ADDITIONS && self.fresh < KEYS {
            (*id, *used) = (self.fresh, 0);
            self.fresh += 1;
        }
        (*used < ADDITIONS).then(|| {
            *used += 1;
            (*id, 1 << (*used - 1))
        })
    }

    /// Returns the counter in this slot.
    pub fn current(&self, slot: usize) -> u64 {
        self.hot[slot].0
    }

    /// Returns the last counter used so far.
    pub fn last_used(&self) -> u64 {
        self.fresh - 1
    }
}

/// Returns true if transactions share rows at this level, and the server has its default settings.
fn are_shared(options: &Options, isolation: Isolation) -> bool {
    !options.postgres && options.serve_args.is_empty() && isolation != Isolation::RepeatableRead
}

/// Checks that two transactions add to one row at the same time, and that the rollback of one keeps
/// the addition of the other.
pub fn run(endpoint: &Endpoint, options: &Options, isolation: Isolation) -> Res<()> {
    if !are_shared(options, isolation) {
        return Ok(());
    }
    let mut history = History::new();
    let keys = steps::Keys::new(&mut history);
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(steps::connect(endpoint)?);
    }
    let add = |value| Step::Add { id: 0, value, then_reads: false };
    let control = Step::Control;
    teach(&mut clients[0], &add(0))?;
    let mut ops: [Vec<Op>; 3] = Default::default();
    let mut one = |who: usize, step: Step| -> Res<()> {
        let (mut batch, mut answers) = (MessageBatch::default(), Vec::new());
        step.add(&mut batch);
        clients[who]
            .run(&mut batch, &mut answers)
            .map_err(|e| format!("additions: {step:?}: {e}"))?;
        step.record(&answers[0], &keys, &mut ops[who])
    };
    one(0, control("begin"))?;
    one(1, control("begin"))?;
    one(0, add(1))?;
    // Under an exclusive lock this one would wait for the other.
    one(1, add(2))?;
    let holders = PgClient::connect(endpoint, steps::LIMIT)?
        .number("select max(holders) from clearway.hot_rows where locked = 'increment'")?;
    one(0, control("rollback"))?;
    one(1, control("commit"))?;
    one(2, Step::Read { table: COUNTERS, first: 0, last: 0 })?;
    for (session, ops) in ops.into_iter().enumerate() {
        let outcome = if session == 0 { TxnOutcome::Aborted } else { TxnOutcome::Committed };
        let (session, start) = (session as u32, session as u64 / 2 * 20);
        let txn = Txn { session, start, end: Some(start + 10), outcome, ops };
        history.push(txn).map_err(|e| e.to_string())?;
    }
    let report = history.check(&CheckerOptions::default());
    if holders != 2 || !report.is_clean() {
        return Err(format!("history: additions by {holders} transactions at a time\n{report}"));
    }
    println!("history: schedule of additions at {}: shared by {holders}", isolation.name());
    // The load starts with 0 everywhere.
    clients[0].query("update h_count set n = 0 where id = 0").map(drop).map_err(String::from)
}

/// Runs blocks that only add 0, until the server lets them share rows.
fn teach(client: &mut PgClient, add: &Step) -> Res<()> {
    let (mut batch, mut answers) = (MessageBatch::default(), Vec::new());
    for _ in 0..LESSONS / 10 {
        for _ in 0..10 {
            batch.clear();
            [&Step::Control("begin"), add, &Step::Control("commit")]
                .iter()
                .for_each(|step| step.add(&mut batch));
            client.run(&mut batch, &mut answers).map_err(|e| format!("additions: {e}"))?;
        }
        if client.number("select count(*) from clearway.plans where read_lock = 'increment'")? > 0 {
            return Ok(());
        }
    }
    Err(format!("history: the server has not learned to share rows from {LESSONS} additions"))
}

/// Prints how many additions of the load have shared their rows. That depends on the speed of the
/// machine, so it is [`run`] that checks that they can.
pub fn count(endpoint: &Endpoint, options: &Options) -> Res<()> {
    if options.postgres {
        return Ok(());
    }
    let mut client = PgClient::connect(endpoint, steps::LIMIT)?;
    let mut sum = |of: &str| {
        client.number(&format!(
            "select coalesce(sum({of}), 0)::bigint from clearway.plans where plan like '%h_count%' \
             and plan like 'UPDATE%'"
        ))
    };
    let (all, exclusive) = (sum("reads")?, sum("read_exclusively")?);
    let shared = all - exclusive;
    println!("history: {all} additions in blocks since the last start, {shared} of them shared");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_amount_is_added_once_to_each_counter() {
        let (mut additions, mut seen) = (Additions::new(), HashSet::new());
        for step in 0..KEYS * u64::from(ADDITIONS) {
            // The last counters fill up while others have space.
            let slots = (0..HOT).map(|slot| (slot + step as usize) % HOT);
            let (id, value) = slots.filter_map(|slot| additions.take(slot)).next().unwrap();
            assert!(id < KEYS && value.is_power_of_two() && value <= 1 << 61);
            assert!(seen.insert((id, value)) && id <= additions.last_used());
        }
        assert_eq!((additions.take(0), additions.last_used()), (None, KEYS - 1));
    }
}
