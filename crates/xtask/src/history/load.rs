//! The clients: transactions of random steps over a sliding window of keys, recorded as their
//! clients saw them.
//!
//! Writes of a transaction that ended with an error, with ROLLBACK or with the connection are
//! recorded as aborted: nobody may ever see them. Only a transaction whose COMMIT was sent and not
//! answered has an unknown outcome. What is rolled back to a savepoint is recorded as an aborted
//! transaction of its own.

use super::additions::{Additions, HOT};
use super::steps::{COUNTERS, GROUP, KEYS, Keys, REGISTERS, ROWS, Step, connect};
use clearway_harness::batch::MessageBatch;
use clearway_harness::client::{Answer, PgClient, QueryError};
use clearway_harness::{Endpoint, Res};
use clearway_history::{History, Op, Txn, TxnOutcome};
use clearway_testkit::Rng;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, SyncSender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Keys of a table that are in use at once.
const WINDOW: u64 = 32;
/// Values after which the window moves by one key: each key of each table gets about 16 of them.
const VALUES_A_KEY: u64 = 64;
/// Errors after which a client retries: serialization failures, deadlocks, and keys that another
/// client has just inserted.
const RETRY: [&str; 3] = ["40001", "40P01", "23505"];

/// State shared by the clients.
pub struct Shared {
    pub history: Mutex<History>,
    pub keys: Keys,
    pub clock: Instant,
    /// Values used so far; each is written once.
    pub values: AtomicU64,
    /// Additions to counters.
    pub additions: Mutex<Additions>,
    /// Transactions recorded so far, and the number that ends the run.
    pub done: AtomicU64,
    pub target: u64,
    /// Tells the clients to end after their transaction. Relaxed: it orders nothing, the threads
    /// are joined.
    pub stop: AtomicBool,
    /// Whether reads of a block without writes count even if it ends with ROLLBACK: PostgreSQL does
    /// not promise this.
    pub counts_rollbacks: bool,
}

impl Shared {
    /// Returns nanoseconds since the start of the run.
    pub fn now(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    /// Returns the last key used so far. After the last key of all, the window starts again at 0.
    pub fn last_used(&self) -> u64 {
        (self.values.load(Ordering::Relaxed) / VALUES_A_KEY + WINDOW).min(KEYS - 1)
    }

    /// Returns the additions to counters.
    pub fn additions(&self) -> MutexGuard<'_, Additions> {
        self.additions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a transaction.
    pub fn push(&self, txn: Txn) -> Res<()> {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.push(txn).map(|_| ()).map_err(|e| e.to_string())
    }
}

/// What happened to a transaction.
enum Event {
    /// Committed, by COMMIT or alone.
    Committed,
    /// Rolled back by the client.
    RolledBack,
    /// The server refused a statement; the transaction is rolled back.
    Refused,
    /// The connection was lost before or after the client sent COMMIT.
    Lost { asked: bool },
}

/// One client.
pub struct Worker<'s> {
    shared: &'s Shared,
    session: u32,
    rng: Rng,
    client: PgClient,
    batch: MessageBatch,
    answers: Vec<Answer>,
    ops: Vec<Op>,
    /// Writes that must never be visible: rolled back to a savepoint, or without a COMMIT.
    undone: Vec<Op>,
}

/// How a client ended.
#[derive(Debug, Default)]
pub struct End {
    /// When the connection was lost, if it was.
    pub lost: Option<u64>,
    /// The transaction with an unknown outcome, if any.
    pub unknown: Option<Txn>,
}

/// Runs transactions until the run ends or the connection is lost.
pub fn run(
    shared: &Shared,
    endpoint: &Endpoint,
    session: u32,
    seed: u64,
    end: &SyncSender<()>,
    ready: Sender<()>,
) -> Res<End> {
    let client = connect(endpoint)?;
    drop(ready);
    let (batch, answers, ops, undone) = Default::default();
    let mut worker =
        Worker { shared, session, rng: Rng::new(seed), client, batch, answers, ops, undone };
    while !shared.stop.load(Ordering::Relaxed) {
        let start = shared.now();
        worker.ops.clear();
        worker.undone.clear();
        let event = worker.transaction()?;
        let is_lost = matches!(event, Event::Lost { .. });
        let unknown = worker.finish(event, start)?;
        if is_lost {
            return Ok(End { lost: Some(shared.now()), unknown });
        }
        if shared.done.fetch_add(1, Ordering::Relaxed) + 1 == shared.target {
            // The channel has space for this one message.
            let _ = end.try_send(());
        }
    }
    Ok(End::default())
}

impl Worker<'_> {
    /// Records the result.
    fn finish(&mut self, event: Event, start: u64) -> Res<Option<Txn>> {
        let (session, end) = (self.session, Some(self.shared.now()));
        let txn = |outcome, ops| Txn { session, start, end, outcome, ops };
        let (ops, undone) = (std::mem::take(&mut self.ops), std::mem::take(&mut self.undone));
        let is_only_read = undone.is_empty() && !ops.iter().any(Op::is_write);
        if !undone.is_empty() {
            self.shared.push(txn(TxnOutcome::Aborted, undone))?;
        }
        let outcome = match event {
            Event::Lost { asked: true } => return Ok(Some(txn(TxnOutcome::Unknown, ops))),
            Event::Committed => TxnOutcome::Committed,
            Event::RolledBack if is_only_read && self.shared.counts_rollbacks => {
                TxnOutcome::Committed
            }
            Event::RolledBack | Event::Refused | Event::Lost { asked: false } => {
                TxnOutcome::Aborted
            }
        };
        if outcome == TxnOutcome::Committed || ops.iter().any(Op::is_write) {
            self.shared.push(txn(outcome, ops))?;
        }
        Ok(None)
    }

    fn transaction(&mut self) -> Res<Event> {
        match self.rng.between(1, 100) {
            1..=30 => {
                let step = self.any_step();
                self.pipeline(vec![step])
            }
            31..=44 => self.adding(),
            45..=80 => {
                let mut steps = self.block();
                steps.insert(0, Step::Control("begin"));
                steps.push(Step::Control("commit"));
                self.pipeline(steps)
            }
            // Without BEGIN: an implicit transaction up to the Sync.
            81..=86 => {
                let steps = self.block();
                self.pipeline(steps)
            }
            _ => self.interactive(),
        }
    }

    /// Sends all steps at once; the last one commits.
    fn pipeline(&mut self, steps: Vec<Step>) -> Res<Event> {
        self.batch.clear();
        steps.iter().for_each(|step| step.add(&mut self.batch));
        match self.client.run(&mut self.batch, &mut self.answers) {
            Ok(()) => {
                for (step, answer) in steps.iter().zip(&self.answers) {
                    step.record(answer, &self.shared.keys, &mut self.ops)?;
                }
                let last = self.answers.last().map_or("", |answer| &answer.tag);
                if last == "ROLLBACK" { Ok(Event::Refused) } else { Ok(Event::Committed) }
            }
            Err(error) => {
                self.ops.extend(steps.iter().flat_map(|step| step.writes(&self.shared.keys)));
                self.failed(&error, true)
            }
        }
    }

    /// Runs a block whose last steps are additions, at once or one step at a time, so that others
    /// can add to the same counters before it ends.
    fn adding(&mut self) -> Res<Event> {
        let mut steps = vec![Step::Control("begin")];
        if self.rng.between(1, 3) == 1 {
            steps.push(self.any_read());
        }
        let count = self.rng.between(1, 3);
        let mut additions: Vec<Step> = (0..count).map(|_| self.addition(false)).collect();
        // In one order: where they do not share the rows, they would mostly deadlock.
        additions.sort_unstable_by_key(|step| match step {
            Step::Add { id, .. } => *id,
            _ => u64::MAX,
        });
        steps.extend(additions);
        if self.rng.between(1, 3) == 1 {
            let (table, id) = (self.rng.between(0, 1) as usize, self.id());
            steps.push(Step::Append { table, id, value: self.value() });
        }
        let ending = if self.rng.between(1, 6) == 1 { "rollback" } else { "commit" };
        steps.push(Step::Control(ending));
        if self.rng.between(1, 2) == 1 {
            return self.pipeline(steps);
        }
        Ok(self.all(&steps)?.unwrap_or_else(|| self.ended()))
    }

    /// Returns what the last step did, if it was COMMIT or ROLLBACK.
    fn ended(&self) -> Event {
        let tag = self.answers.last().map_or("", |answer| &answer.tag);
        if tag == "COMMIT" { Event::Committed } else { Event::RolledBack }
    }

    /// Runs one step at a time, with reads that decide about writes, savepoints and rollbacks.
    fn interactive(&mut self) -> Res<Event> {
        if let Some(event) = self.one(&Step::Control("begin"))? {
            return Ok(event);
        }
        // One in four only reads.
        let writes = self.rng.between(1, 4) > 1;
        for _ in 0..self.rng.between(1, 3) {
            let id = self.id();
            let event = match self.rng.between(1, 5) {
                _ if !writes => {
                    let read = self.any_read();
                    self.one(&read)?
                }
                1 => {
                    let lock = Step::Lock { table: self.rng.between(0, 1) as usize, id };
                    let append = self.append();
                    self.all(&[lock, append])?
                }
                2 => {
                    let read = self.any_read();
                    self.one(&read)?
                }
                3 => self.count()?,
                _ => self.replace(id)?,
            };
            if let Some(event) = event {
                return Ok(event);
            }
        }
        if writes
            && self.rng.between(1, 3) == 1
            && let Some(event) = self.savepoint()?
        {
            return Ok(event);
        }
        let ending = if self.rng.between(1, if writes { 6 } else { 2 }) == 1 {
            "rollback"
        } else {
            "commit"
        };
        let event = self.one(&Step::Control(ending))?;
        Ok(event.unwrap_or_else(|| self.ended()))
    }

    /// Adds to a counter, between a read of it with or without a lock and another read.
    fn count(&mut self) -> Res<Option<Event>> {
        let add = self.addition(true);
        let Step::Add { id, .. } = add else { return self.one(&add) };
        let read = Step::Read { table: COUNTERS, first: id, last: id };
        let first = match self.rng.between(1, 3) {
            1 => Step::Lock { table: COUNTERS, id },
            _ => read.clone(),
        };
        self.all(&[first, add, read])
    }

    /// Reads a register and then writes it, in one of three ways.
    fn replace(&mut self, id: u64) -> Res<Option<Event>> {
        if let Some(event) = self.one(&Step::Read { table: REGISTERS, first: id, last: id })? {
            return Ok(Some(event));
        }
        let is_absent = matches!(self.ops.last(), Some(Op::Read { value: None, .. }));
        let value = self.value();
        if !is_absent && self.rng.between(1, 3) > 1 {
            return self.one(&Step::Update { id, value });
        }
        if !is_absent && let Some(event) = self.one(&Step::Delete { id })? {
            return Ok(Some(event));
        }
        self.one(&Step::Insert { id, value })
    }

    /// Appends or adds after a savepoint, which is rolled back or released, then reads the result.
    fn savepoint(&mut self) -> Res<Option<Event>> {
        let write = if self.rng.between(1, 2) == 1 { self.append() } else { self.addition(true) };
        let (table, id) = match write {
            Step::Append { table, id, .. } => (table, id),
            Step::Add { id, .. } => (COUNTERS, id),
            _ => return Ok(None),
        };
        let keep = self.rng.between(1, 2) == 1;
        let kept = self.ops.len();
        if let Some(event) = self.all(&[Step::Control("savepoint"), write])? {
            return Ok(Some(event));
        }
        if !keep {
            // From here on these writes are rolled back, whatever happens.
            self.undone.extend(self.ops.drain(kept..));
        }
        self.all(&[
            Step::Control(if keep { "release" } else { "undo" }),
            Step::Read { table, first: id, last: id },
        ])
    }

    /// Runs steps; returns `Some` if the transaction is over.
    fn all(&mut self, steps: &[Step]) -> Res<Option<Event>> {
        for step in steps {
            if let Some(event) = self.one(step)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// Runs one step; returns `Some` if the transaction is over.
    fn one(&mut self, step: &Step) -> Res<Option<Event>> {
        self.batch.clear();
        step.add(&mut self.batch);
        match self.client.run(&mut self.batch, &mut self.answers) {
            Ok(()) => {
                let answer = self.answers.last().ok_or("no answer")?;
                step.record(answer, &self.shared.keys, &mut self.ops)?;
                Ok(None)
            }
            Err(error) => {
                let commits = matches!(step, Step::Control("commit"));
                if !commits {
                    // The write may have happened before the connection was lost, and must never be
                    // visible.
                    self.undone.extend(step.writes(&self.shared.keys));
                }
                self.failed(&error, commits).map(Some)
            }
        }
    }

    /// Returns what an error does to the transaction. `asked`: the failed message included COMMIT.
    fn failed(&mut self, error: &QueryError, asked: bool) -> Res<Event> {
        match error {
            QueryError::Lost(_) => Ok(Event::Lost { asked }),
            QueryError::Sql { code, .. } if RETRY.contains(&code.as_str()) => {
                if self.client.status() != 'I' && self.client.query("rollback").is_err() {
                    return Ok(Event::Lost { asked: false });
                }
                Ok(Event::Refused)
            }
            QueryError::Sql { .. } => Err(format!("session {}: {error}", self.session)),
        }
    }

    fn value(&mut self) -> u64 {
        self.shared.values.fetch_add(1, Ordering::Relaxed)
    }

    /// Draws a key of the window, more often from its middle.
    fn id(&mut self) -> u64 {
        let base = self.shared.values.load(Ordering::Relaxed) / VALUES_A_KEY;
        let offset = self.rng.between(0, WINDOW / 2) + self.rng.between(0, WINDOW / 2);
        (base + offset) % KEYS
    }

    fn append(&mut self) -> Step {
        let table = self.rng.between(0, ROWS as u64) as usize;
        Step::Append { table, id: self.id(), value: self.value() }
    }

    /// Draws an addition to one of the counters in use, or an append if all are full.
    fn addition(&mut self, then_reads: bool) -> Step {
        let slot = self.rng.between(0, HOT as u64 - 1) as usize;
        let taken = self.shared.additions().take(slot);
        match taken {
            Some((id, value)) => Step::Add { id, value, then_reads },
            None => self.append(),
        }
    }

    fn any_read(&mut self) -> Step {
        let table = self.rng.between(0, 4) as usize;
        let first = if table == COUNTERS {
            let slot = self.rng.between(0, HOT as u64 - 1) as usize;
            self.shared.additions().current(slot)
        } else {
            self.id()
        };
        match self.rng.between(1, 5) {
            1 if table % 2 == 1 => Step::Group { table, group: first / GROUP },
            2 => Step::Read { table, first, last: (first + self.rng.between(1, 7)).min(KEYS - 1) },
            _ => Step::Read { table, first, last: first },
        }
    }

    fn any_step(&mut self) -> Step {
        match self.rng.between(1, 17) {
            15.. => self.addition(false),
            1..=4 => self.any_read(),
            5..=8 => self.append(),
            9 => Step::Insert { id: self.id(), value: self.value() },
            10 => Step::Update { id: self.id(), value: self.value() },
            11 => self.pair(),
            _ => self.spread(),
        }
    }

    /// Draws an append to neighbouring keys, which mostly are in several partitions.
    fn spread(&mut self) -> Step {
        let (table, first) = (self.rng.between(0, 1) as usize, self.id());
        let last = (first + self.rng.between(1, 5)).min(KEYS - 1);
        Step::Spread { table, first, last, value: self.value() }
    }

    /// Draws an INSERT of two keys. If there is already a row with one of them, the other one's row
    /// must not be seen.
    fn pair(&mut self) -> Step {
        let id = self.id();
        let ids = [id, (id + self.rng.between(1, 3)) % KEYS];
        Step::Pair { ids, value: self.value() }
    }

    /// Draws the steps of a block that is sent at once. Without the answers, the client knows only
    /// writes that are certain to happen: an UPDATE that may find nothing is the only write of its
    /// block.
    fn block(&mut self) -> Vec<Step> {
        let mut steps: Vec<Step> = (0..self.rng.between(1, 3)).map(|_| self.any_read()).collect();
        if self.rng.between(1, 4) == 1 {
            steps.push(Step::Update { id: self.id(), value: self.value() });
        } else {
            steps.extend((0..self.rng.between(0, 2)).map(|_| self.append()).collect::<Vec<_>>());
            if self.rng.between(1, 5) == 1 {
                steps.push(self.addition(true));
            }
        }
        // Reads before and after writes.
        if steps.len() > 1 && self.rng.between(1, 2) == 1 {
            steps.rotate_right(1);
        }
        steps
    }
}
