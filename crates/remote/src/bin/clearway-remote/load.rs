//! The transactions of one node, several concurrent ones on one thread.

use crate::keys::Keys;
use clearway_env::{Clock, OsClock, SeededEntropy};
use clearway_remote::ycsb::{PAYLOAD_WORDS, Plans};
use clearway_remote::{
    RemoteError, RemoteStats, RowClient, StartTimestamp, StoreAnswer, StoreEvent, StoreKey,
    StoreStats, StoreWorker, TxnHandle,
};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The result of a node's run.
pub struct Done {
    pub stats: RemoteStats,
    pub located: StoreStats,
    /// Updates of transactions that committed.
    pub updates: u64,
    /// Sum over commits of the time from a transaction's first start to its commit.
    pub latency: Duration,
    pub took: Duration,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RemoteStats {
            commits,
            aborts,
            conflicts,
            older,
            too_many_readers,
            wait_retries,
            waits,
            ..
        } = self.stats;
        let (took, latency) = (self.took.as_nanos(), self.latency.as_nanos());
        write!(
            f,
            "took_ns={took} commits={commits} updates={} latency_ns={latency} aborts={aborts} ",
            self.updates
        )?;
        write!(f, "conflicts={conflicts} older={older} too_many_readers={too_many_readers} ")?;
        let StoreStats { cached, stale, peeked, buckets_locked } = self.located;
        write!(f, "wait_retries={wait_retries} waits={waits} cached={cached} stale={stale} ")?;
        write!(f, "peeked={peeked} buckets_locked={buckets_locked}")
    }
}

/// What a node's thread does beside its own transactions.
pub trait Duty<C> {
    /// Executes requests of other nodes. Returns false if this thread never has to.
    fn serve(&mut self) -> Result<bool, RemoteError>;

    /// Waits for a bounded time until something may have arrived for the thread.
    fn wait(&mut self, client: &mut C) -> Result<(), RemoteError>;
}

struct Running {
    /// Keys, and whether they are updated.
    plan: Vec<(StoreKey, bool)>,
    done: usize,
    /// The value of the next key has been read, and is being replaced.
    putting: bool,
    begun: Duration,
}

/// Runs transactions through `store`.
pub struct Load<'a, C> {
    pub store: &'a mut StoreWorker<C>,
    pub keys: &'a Keys,
    pub plans: Plans,
    pub rng: SeededEntropy,
    /// Number of concurrent transactions.
    pub transactions: usize,
}

impl<C: RowClient> Load<'_, C> {
    /// Runs transactions for this long and completes those that are running then.
    pub fn run(&mut self, time: Duration, duty: &mut impl Duty<C>) -> Result<Done, RemoteError> {
        let begun = OsClock.monotonic();
        let mut all = All { running: BTreeMap::new(), updates: 0, latency: Duration::ZERO };
        let mut events = Vec::new();
        loop {
            let is_over = OsClock.monotonic() - begun >= time;
            if is_over && all.running.is_empty() {
                let All { updates, latency, .. } = all;
                let (located, stats) = (*self.store.stats(), *self.store.rows().stats());
                let took = OsClock.monotonic() - begun;
                return Ok(Done { stats, located, updates, latency, took });
            }
            while !is_over && all.running.len() < self.transactions {
                let plan = self.plans.draw(&self.rng).into_iter();
                let running = Running {
                    plan: plan.map(|(place, update)| (self.keys.key(place), update)).collect(),
                    done: 0,
                    putting: false,
                    begun: OsClock.monotonic(),
                };
                self.begin(&mut all, running, None)?;
            }
            self.store.poll(&mut events)?;
            // After an abort, give up the core: the row's holder may be waiting for one.
            let aborts = events.iter().any(|event| matches!(event, StoreEvent::Aborted(..)));
            let busy = !aborts && (!events.is_empty() || self.store.is_ready());
            for event in events.drain(..) {
                self.handle(&mut all, event, is_over)?;
            }
            duty.serve()?;
            if !busy {
                duty.wait(self.store.rows())?;
            }
        }
    }

    fn begin(
        &mut self,
        all: &mut All,
        running: Running,
        start: Option<StartTimestamp>,
    ) -> Result<(), RemoteError> {
        let txn = match start {
            Some(start) => self.store.restart(start),
            None => self.store.begin(),
        };
        let txn = txn.expect("no more transactions run than the limits allow");
        all.running.insert(txn, running);
        self.go_on(all, txn)
    }

    fn go_on(&mut self, all: &All, txn: TxnHandle) -> Result<(), RemoteError> {
        let running = &all.running[&txn];
        match running.plan.get(running.done) {
            None => self.store.commit(txn),
            Some((key, update)) => self.store.get(txn, *key, *update),
        }
    }

    fn handle(
        &mut self,
        all: &mut All,
        event: StoreEvent,
        is_over: bool,
    ) -> Result<(), RemoteError> {
        match event {
            StoreEvent::Done(txn, key, answer) => {
                // Clients may delete keys of the start. Then there is nothing to update.
                let running = all.running.get_mut(&txn).expect("it runs");
                let (_, update) = &mut running.plan[running.done];
                *update &= answer == StoreAnswer::Present;
                if *update && !running.putting {
                    running.putting = true;
                    let mut value = [0; PAYLOAD_WORDS];
                    self.store.value(txn, key, &mut value);
                    return self.store.put(txn, key, &value.map(|word| word.wrapping_add(1)));
                }
                (running.putting, running.done) = (false, running.done + 1);
                self.go_on(all, txn)
            }
            StoreEvent::Committed(txn) => {
                let ended = all.running.remove(&txn).expect("it ran");
                all.updates += ended.plan.iter().filter(|(_, update)| *update).count() as u64;
                all.latency += OsClock.monotonic() - ended.begun;
                Ok(())
            }
            StoreEvent::Aborted(txn, start, _) => {
                let aborted = all.running.remove(&txn).expect("it ran");
                if is_over {
                    Ok(())
                } else {
                    self.begin(all, Running { done: 0, putting: false, ..aborted }, Some(start))
                }
            }
        }
    }
}

/// The running transactions, and sums over the finished ones.
struct All {
    running: BTreeMap<TxnHandle, Running>,
    updates: u64,
    latency: Duration,
}
