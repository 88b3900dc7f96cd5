//! The transactions of one node, several concurrent ones on one thread.

use clearway_env::{Clock, OsClock, SeededEntropy};
use clearway_remote::ycsb::{PAYLOAD_WORDS, Plans};
use clearway_remote::{
    RemoteError, RemoteStats, RowClient, RowId, StartTimestamp, TxnHandle, WorkerEvent,
};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The result of a node's run.
pub struct Done {
    pub stats: RemoteStats,
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
        write!(f, "wait_retries={wait_retries} waits={waits}")
    }
}

struct Running {
    plan: Vec<(RowId, bool)>,
    done: usize,
    begun: Duration,
}

/// Runs transactions through `client`.
pub struct Load<C> {
    pub client: C,
    pub plans: Plans,
    pub rng: SeededEntropy,
    /// Number of concurrent transactions.
    pub transactions: usize,
    /// Whether an index entry is read before each row.
    pub read_index: bool,
}

impl<C: RowClient> Load<C> {
    /// Runs transactions for this long and completes those that are running then. Calls `turn`
    /// after each poll, and tells it whether the thread has work to do at once.
    pub fn run(
        &mut self,
        time: Duration,
        mut turn: impl FnMut(&mut C, bool) -> Result<(), RemoteError>,
    ) -> Result<Done, RemoteError> {
        let begun = OsClock.monotonic();
        let mut all = All { running: BTreeMap::new(), updates: 0, latency: Duration::ZERO };
        let mut events = Vec::new();
        loop {
            let is_over = OsClock.monotonic() - begun >= time;
            if is_over && all.running.is_empty() {
                let (stats, took) = (*self.client.stats(), OsClock.monotonic() - begun);
                return Ok(Done { stats, updates: all.updates, latency: all.latency, took });
            }
            while !is_over && all.running.len() < self.transactions {
                let running = Running {
                    plan: self.plans.draw(&self.rng),
                    done: 0,
                    begun: OsClock.monotonic(),
                };
                self.begin(&mut all, running, None)?;
            }
            self.client.poll(&mut events)?;
            // After an abort, give up the core: the row's holder may be waiting for one.
            let aborts = events.iter().any(|event| matches!(event, WorkerEvent::Aborted(..)));
            let busy = !aborts && (!events.is_empty() || self.client.is_ready());
            for event in events.drain(..) {
                self.handle(&mut all, event, is_over)?;
            }
            turn(&mut self.client, busy)?;
        }
    }

    fn begin(
        &mut self,
        all: &mut All,
        running: Running,
        start: Option<StartTimestamp>,
    ) -> Result<(), RemoteError> {
        let txn = match start {
            Some(start) => self.client.restart(start),
            None => self.client.begin(),
        };
        let txn = txn.expect("no more transactions run than the limits allow");
        all.running.insert(txn, running);
        self.go_on(all, txn)
    }

    fn go_on(&mut self, all: &All, txn: TxnHandle) -> Result<(), RemoteError> {
        let running = &all.running[&txn];
        match running.plan.get(running.done) {
            None => self.client.commit(txn),
            Some((row, _)) if self.read_index => {
                let rows = self.client.table().rows;
                self.client.peek(txn, RowId { index: row.index + rows, ..*row })
            }
            Some((row, update)) => self.client.get(txn, *row, *update),
        }
    }

    fn handle(
        &mut self,
        all: &mut All,
        event: WorkerEvent,
        is_over: bool,
    ) -> Result<(), RemoteError> {
        match event {
            WorkerEvent::Peeked(txn, _) => {
                let running = &all.running[&txn];
                let (row, update) = running.plan[running.done];
                self.client.get(txn, row, update)
            }
            WorkerEvent::Locked(txn, row) => {
                let running = all.running.get_mut(&txn).expect("it runs");
                let (_, update) = running.plan[running.done];
                running.done += 1;
                if update {
                    let mut payload = [0; PAYLOAD_WORDS];
                    self.client.payload(txn, row, &mut payload);
                    payload.iter_mut().for_each(|word| *word += 1);
                    self.client.set(txn, row, &payload);
                }
                self.go_on(all, txn)
            }
            WorkerEvent::Committed(txn) => {
                let ended = all.running.remove(&txn).expect("it ran");
                all.updates += ended.plan.iter().filter(|(_, update)| *update).count() as u64;
                all.latency += OsClock.monotonic() - ended.begun;
                Ok(())
            }
            WorkerEvent::Aborted(txn, start, _) => {
                let aborted = all.running.remove(&txn).expect("it ran");
                if is_over {
                    Ok(())
                } else {
                    self.begin(all, Running { done: 0, ..aborted }, Some(start))
                }
            }
            WorkerEvent::Released(..) => unreachable!("no release is requested"),
        }
    }
}

/// The running transactions, and sums over the finished ones.
struct All {
    running: BTreeMap<TxnHandle, Running>,
    updates: u64,
    latency: Duration,
}
