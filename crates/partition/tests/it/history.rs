//! Random transactions, interleaved randomly. Each reply must be the one that results when the
//! committed transactions run serially in commit order. That is serializability, including
//! phantoms; strict two-phase locking determines the order.

use crate::driver::{Driver, Paged, state_of};
use crate::readers::Readers;
use crate::sql::{
    BY_A, BY_B, Expected, Find, Model, ROWS, Row, Stmt, as_expected, plain_table, table,
};
use crate::trees::{MemTrees, Paging};
use clearway_ir::{RowLock, TableDef};
use clearway_partition::{Body, Committing, Failure, SchemeCounts, SchemeKind};
use clearway_testkit::Rng;
use clearway_types::{Lsn, SqlError, SqlState, TxnId};
use std::sync::Arc;

fn int(rng: &mut Rng, n: i32) -> i32 {
    rng.below(n as u64) as i32
}

fn maybe(rng: &mut Rng, n: i32) -> Option<i32> {
    (rng.below(3) > 0).then(|| int(rng, n))
}

const IDS: i32 = 14;
const VALUES: i32 = 24;

fn random_find(rng: &mut Rng) -> Find {
    let reverse = rng.below(2) == 0;
    match rng.below(10) {
        0..=3 => Find::Point(int(rng, IDS)),
        4 => Find::Points((0..3).map(|_| int(rng, IDS)).collect()),
        5 | 6 => {
            let low = int(rng, IDS);
            let high = maybe(rng, 4).map(|n| low + n);
            Find::Ids { low: Some(low), high, reverse }
        }
        7 => Find::ByA { low: maybe(rng, VALUES), high: maybe(rng, VALUES), reverse },
        8 => Find::ByB(int(rng, VALUES)),
        _ => Find::All { a_less: maybe(rng, VALUES) },
    }
}

/// `plain`: the table has no index.
fn random_find_in(rng: &mut Rng, plain: bool) -> Find {
    match random_find(rng) {
        Find::ByA { .. } | Find::ByB(_) if plain => Find::Point(int(rng, IDS)),
        find => find,
    }
}

fn random_stmt(rng: &mut Rng, plain: bool) -> Stmt {
    let random_find = |rng: &mut Rng| random_find_in(rng, plain);
    let row = |rng: &mut Rng| -> Row { (int(rng, IDS), maybe(rng, VALUES), int(rng, VALUES)) };
    if plain && rng.below(3) == 0 {
        // A few rows are hot.
        return Stmt::Bump {
            id: int(rng, 3),
            column: 1 + rng.below(2) as usize,
            by: int(rng, 7) - 3,
        };
    }
    match rng.below(10) {
        0..=2 => {
            Stmt::Select { find: random_find(rng), limit: maybe(rng, 3), lock: random_lock(rng) }
        }
        3..=5 => {
            Stmt::Add { find: random_find(rng), column: rng.below(3) as usize, by: 1 + int(rng, 3) }
        }
        6 => Stmt::Delete(random_find(rng)),
        _ => Stmt::Insert {
            rows: (0..=rng.below(3)).map(|_| row(rng)).collect(),
            ignore: rng.below(2) == 0,
        },
    }
}

/// Reads of whole rows take at least FOR SHARE.
fn random_lock(rng: &mut Rng) -> Option<RowLock> {
    [Some(RowLock::Share), Some(RowLock::NoKeyUpdate), Some(RowLock::Update), None]
        [rng.below(8).min(3) as usize]
}

/// What a transaction has done, for the replay when it commits.
enum Done {
    Ran(Stmt, Expected),
    Savepoint(u32),
    RolledBackTo(u32),
}

enum Call {
    Block {
        one_round: bool,
    },
    Settle,
    Run(Stmt),
    Savepoint(u32),
    RollbackTo(u32),
    /// Already committed; the partition receives the outcome.
    Commit,
    Abort,
}

struct Client {
    txn: TxnId,
    one_shot: bool,
    done: Vec<Done>,
    savepoints: Vec<u32>,
    pending: Option<(u32, Call)>,
    doomed: bool,
    /// Whether it starts by requesting the whole partition.
    asks: bool,
    /// It was granted the partition for one statement. What it does next.
    round: Option<Round>,
    /// Set if its commit record is in the log but the partition has not received the outcome.
    committed: Option<(Lsn, Committing<'static>)>,
}

/// The state of a transaction of one statement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    Run,
    /// It is behind others.
    Settle,
    End,
}

/// What clients do, in percent.
#[derive(Clone, Copy)]
pub struct Mix {
    pub one_shots: u64,
    /// Of the others, those that request the whole partition.
    pub asks: u64,
    /// Those that would request it for one statement run optimistically instead.
    pub optimistic: bool,
    /// Steps that change the scheme.
    pub changes: u64,
}

struct World<T: Paged> {
    driver: Driver<T>,
    clients: Vec<Option<Client>>,
    readers: Readers,
    model: Model,
    rng: Rng,
    seed: u64,
    committed: u64,
    blocked: u64,
    /// Number of transactions that were undone because of another one.
    undone: u64,
    mix: Mix,
    /// Changes of the scheme without an answer.
    changes: Vec<u32>,
}

impl<T: Paged> World<T> {
    fn table(&self) -> Arc<TableDef> {
        if self.model.1 { Arc::new(plain_table()) } else { table() }
    }

    fn check(&mut self, stmt: &Stmt, got: &Expected) {
        let before = self.model.clone();
        let expected = self.model.run(stmt);
        assert_eq!(got, &expected, "seed {}: {stmt:?} on {before:?}", self.seed);
    }

    fn replay(&mut self, done: Vec<Done>) {
        let mut marks: Vec<(u32, Model)> = Vec::new();
        for step in done {
            match step {
                Done::Ran(stmt, got) => self.check(&stmt, &got),
                Done::Savepoint(id) => marks.push((id, self.model.clone())),
                Done::RolledBackTo(id) => {
                    let at = marks.iter().position(|(i, _)| *i == id).unwrap();
                    marks.truncate(at + 1);
                    self.model = marks[at].1.clone();
                }
            }
        }
        self.committed += 1;
    }

    /// Makes the next call of a client without a pending call.
    fn next_call(&mut self, at: usize) {
        let table = self.table();
        let rng = &mut self.rng;
        if self.clients[at].is_none() {
            let txn = self.driver.txn();
            let one_shot = rng.below(100) < self.mix.one_shots;
            let asks = rng.below(100) < self.mix.asks;
            self.clients[at] = Some(Client {
                txn,
                one_shot,
                done: vec![],
                savepoints: vec![],
                pending: None,
                doomed: false,
                asks,
                round: None,
                committed: None,
            });
        }
        let Some(client) = &mut self.clients[at] else { return };
        let stmt = random_stmt(rng, self.model.1);
        let (body, call) = if client.one_shot {
            (stmt.one_shot(&table), Call::Run(stmt))
        } else if client.asks {
            client.asks = false;
            let one_round = rng.below(3) > 0;
            if one_round && self.mix.optimistic {
                let mut stmt = stmt;
                while matches!(stmt, Stmt::Select { .. }) {
                    stmt = random_stmt(rng, self.model.1);
                }
                client.round = Some(Round::Run);
                (stmt.optimistic(&table), Call::Run(stmt))
            } else {
                (Body::Block { one_round }, Call::Block { one_round })
            }
        } else if let Some((commit, _)) = &client.committed {
            (Body::Finish { commit: Some(*commit) }, Call::Commit)
        } else if client.doomed {
            (Body::Finish { commit: None }, Call::Abort)
        } else {
            let choice = match client.round {
                None => rng.below(10),
                Some(Round::Run) => 9,
                Some(Round::Settle) => 10,
                Some(Round::End) => rng.below(3),
            };
            match choice {
                0 => (Body::Finish { commit: None }, Call::Abort),
                1 | 2 => {
                    let committing = self.driver.snapshots.commit(client.txn);
                    client.committed = Some((self.driver.append_commit(client.txn), committing));
                    let done = std::mem::take(&mut client.done);
                    return self.replay(done);
                }
                3 => {
                    let id = client.savepoints.last().map_or(0, |i| i + 1);
                    (Body::Savepoint(id), Call::Savepoint(id))
                }
                4 if !client.savepoints.is_empty() => {
                    let id = client.savepoints[rng.below(client.savepoints.len() as u64) as usize];
                    (Body::RollbackTo(id), Call::RollbackTo(id))
                }
                10 => (Body::Settle, Call::Settle),
                _ => (stmt.statement(&table), Call::Run(stmt)),
            }
        };
        let txn = client.txn;
        // The reply may come immediately, and in any order with others: `answers` has the
        // serialization order.
        let seq = self.driver.send(txn, body);
        if let Some(client) = &mut self.clients[at] {
            client.pending = Some((seq, call));
        }
        self.take_answers();
    }

    fn take_answers(&mut self) {
        let answers = std::mem::take(&mut self.driver.answers);
        for txn in std::mem::take(&mut self.driver.undone) {
            let clients = self.clients.iter_mut().flatten();
            clients.filter(|c| c.txn == txn).for_each(|c| c.doomed = true);
            self.undone += 1;
        }
        let (to_readers, answers): (Vec<_>, _) =
            answers.into_iter().partition(|(seq, _)| self.readers.is_awaited(*seq));
        for (seq, answer) in answers {
            if let Some(at) = self.changes.iter().position(|call| *call == seq) {
                self.changes.swap_remove(at);
                assert!(answer.is_ok(), "seed {}: {answer:?}", self.seed);
                continue;
            }
            let at = self
                .clients
                .iter()
                .position(|c| {
                    c.as_ref().is_some_and(|c| c.pending.as_ref().is_some_and(|(s, _)| *s == seq))
                })
                .expect("the reply of a known call");
            let Some(mut client) = self.clients[at].take() else { continue };
            let Some((_, call)) = client.pending.take() else { continue };
            match (call, state_of(&answer)) {
                (_, Some(SqlState::SERIALIZATION_FAILURE)) => {
                    client.doomed = true;
                    self.undone += 1;
                }
                (
                    Call::Block { .. } | Call::Run(_) | Call::RollbackTo(_) | Call::Savepoint(_),
                    Some(SqlState::DEADLOCK),
                ) => client.doomed = true,
                (Call::Block { one_round }, None) => {
                    let granted = answer.is_ok_and(|reply| reply.count == 1);
                    client.round = (granted && one_round).then_some(Round::Run);
                    self.blocked += u64::from(granted);
                }
                (Call::Settle, None) => client.round = Some(Round::End),
                // A statement that was cancelled has run.
                (Call::Run(_) | Call::Settle, Some(SqlState::QUERY_CANCELED))
                    if client.round.is_some() =>
                {
                    client.doomed = true
                }
                (
                    Call::Block { .. } | Call::Run(_) | Call::Savepoint(_) | Call::RollbackTo(_),
                    Some(SqlState::QUERY_CANCELED),
                ) => {}
                (Call::Run(_), None) if answer == Err(Failure::NeedsSnapshot) => {}
                (Call::Run(stmt), _) if client.one_shot => {
                    self.check(&stmt, &as_expected(&answer));
                    self.committed += 1;
                }
                (Call::Run(stmt), _) => {
                    let behind = answer.as_ref().is_ok_and(|reply| reply.behind.is_some());
                    let next = if behind { Round::Settle } else { Round::End };
                    client.round = client.round.map(|_| next);
                    client.done.push(Done::Ran(stmt, as_expected(&answer)));
                }
                (Call::Savepoint(id), None) => {
                    client.savepoints.push(id);
                    client.done.push(Done::Savepoint(id));
                }
                (Call::RollbackTo(id), None) => {
                    client.savepoints.retain(|s| *s <= id);
                    client.done.push(Done::RolledBackTo(id));
                }
                (Call::Commit | Call::Abort, None) => continue,
                (_, state) => panic!("seed {}: {state:?} {answer:?}", self.seed),
            }
            if !client.one_shot {
                self.clients[at] = Some(client);
            }
        }
        // After all commits whose replies arrived together with theirs.
        for (seq, answer) in to_readers {
            self.readers.answered(&mut self.driver, &self.model, seq, &answer);
        }
    }

    fn change_scheme(&mut self) {
        let scheme = SchemeKind::ALL[self.rng.below(SchemeKind::ALL.len() as u64) as usize];
        let txn = self.driver.txn();
        // The answer may come with this call.
        self.changes.push(self.driver.next_call());
        self.driver.send(txn, Body::SetScheme(scheme));
        self.take_answers();
    }

    fn step(&mut self) {
        if self.mix.changes > 0 && self.rng.below(100) < self.mix.changes {
            return self.change_scheme();
        }
        let suspended = self.driver.suspended.len() as u64;
        if suspended > 0 && self.rng.below(3) > 0 {
            let at = self.rng.below(suspended) as usize;
            self.driver.resume(at);
            return self.take_answers();
        }
        if self.seed.is_multiple_of(2) && self.rng.below(5) == 0 {
            let find = random_find_in(&mut self.rng, self.model.1);
            let table = self.table();
            self.readers.step(&mut self.driver, &mut self.rng, &self.model, find, &table);
            return self.take_answers();
        }
        let at = self.rng.below(self.clients.len() as u64) as usize;
        match &self.clients[at] {
            Some(c) if c.pending.is_some() => {
                if self.rng.below(40) == 0 {
                    let txn = c.txn;
                    let error = SqlError::new(
                        SqlState::QUERY_CANCELED,
                        "canceling statement due to user request",
                    );
                    self.driver.send(txn, Body::Cancel(error));
                    self.take_answers();
                }
            }
            _ => self.next_call(at),
        }
    }

    /// Ends everything that runs.
    fn drain(&mut self) {
        for round in 0.. {
            assert!(round < 100_000, "seed {}: no progress", self.seed);
            if !self.driver.suspended.is_empty() {
                self.driver.resume(0);
                self.take_answers();
                continue;
            }
            let idle = |c: &Option<Client>| c.as_ref().is_some_and(|c| c.pending.is_none());
            let Some(at) = self.clients.iter().position(idle) else {
                if self.readers.close(&mut self.driver) {
                    self.take_answers();
                    continue;
                }
                break;
            };
            if let Some(c) = &mut self.clients[at] {
                c.doomed = true;
            }
            self.next_call(at);
        }
        assert!(self.clients.iter().all(Option::is_none), "seed {}", self.seed);
        assert!(self.driver.nothing_pending(), "seed {}", self.seed);
        assert_eq!(self.driver.partition.active(), 0, "seed {}", self.seed);
        assert!(
            self.driver.partition.trees().idle(),
            "seed {}: an undo log was forgotten",
            self.seed
        );
        assert_eq!(self.driver.snapshots.open(), 0, "seed {}", self.seed);
        let nobody = self.driver.txn();
        self.driver.call(nobody, Body::Finish { commit: None }).expect("nothing");
        assert_eq!(
            self.driver.partition.version_memory(),
            0,
            "seed {}: versions are left over",
            self.seed
        );
    }

    /// Checks that every path finds the rows of the model.
    fn check_all(&mut self) {
        let indexed = !self.model.1;
        for find in [
            Find::All { a_less: None },
            Find::Ids { low: None, high: None, reverse: true },
            Find::ByA { low: None, high: None, reverse: false },
        ] {
            if !indexed && matches!(find, Find::ByA { .. }) {
                continue;
            }
            let stmt = Stmt::Select { find, limit: None, lock: None };
            let table = self.table();
            let answer = self.driver.alone(|one_shot| {
                if one_shot { stmt.one_shot(&table) } else { stmt.statement(&table) }
            });
            self.check(&stmt, &as_expected(&answer));
        }
        for b in 0..if indexed { VALUES + 20 } else { 0 } {
            let stmt = Stmt::Select { find: Find::ByB(b), limit: None, lock: None };
            let table = self.table();
            let answer = self.driver.alone(|one_shot| {
                if one_shot { stmt.one_shot(&table) } else { stmt.statement(&table) }
            });
            self.check(&stmt, &as_expected(&answer));
        }
    }
}

/// Counters of a history.
#[derive(Debug, Default)]
pub struct Seen {
    pub committed: u64,
    pub suspensions: u64,
    pub deadlocks: u64,
    /// Number of times that a transaction got the partition to itself, and lost it.
    pub blocked: u64,
    pub stalls: u64,
    /// One-shots that ran behind others, were discarded, and put back in line.
    pub counts: SchemeCounts,
    /// Number of transactions that were undone because of another one.
    pub undone: u64,
    /// Snapshots opened and refused, their reads, and replies that differ from the newest state.
    pub snapshots: u64,
    pub refused: u64,
    pub reads: u64,
    pub old: u64,
    /// Number of times that they missed blocks of the temporary file.
    pub spill_reads: u64,
}

impl Seen {
    pub fn add(&mut self, other: &Self) {
        self.committed += other.committed;
        self.suspensions += other.suspensions;
        self.deadlocks += other.deadlocks;
        self.blocked += other.blocked;
        self.stalls += other.stalls;
        self.counts.speculated += other.counts.speculated;
        self.counts.validated += other.counts.validated;
        self.counts.discarded += other.counts.discarded;
        self.counts.retried += other.counts.retried;
        self.undone += other.undone;
        self.snapshots += other.snapshots;
        self.refused += other.refused;
        self.reads += other.reads;
        self.old += other.old;
        self.spill_reads += other.spill_reads;
    }
}

/// Runs one history. Every second one has readers under snapshots. Every third one uses the table
/// without indexes, where one-shots of one row commit by themselves.
pub fn run<T: Paged>(driver: Driver<T>, seed: u64, clients: usize, steps: usize) -> Seen {
    let mix = Mix { one_shots: 33, asks: 25, optimistic: false, changes: 0 };
    run_mixed(driver, seed, clients, steps, mix)
}

/// Like [`run`], with this mix.
pub fn run_mixed<T: Paged>(
    mut driver: Driver<T>,
    seed: u64,
    clients: usize,
    steps: usize,
    mix: Mix,
) -> Seen {
    let ddl = driver.txn();
    driver.call(ddl, Body::CreateTrees(vec![ROWS, BY_A, BY_B])).expect("trees");
    driver.call(ddl, Body::Finish { commit: Some(Lsn(1)) }).expect("commit");
    let clients = (0..clients).map(|_| None).collect();
    let mut world = World {
        driver,
        clients,
        readers: Readers::new(seed),
        model: Model(Default::default(), seed.is_multiple_of(3)),
        rng: Rng::new(seed),
        seed,
        committed: 0,
        blocked: 0,
        undone: 0,
        mix,
        changes: Vec::new(),
    };
    for _ in 0..steps {
        world.step();
    }
    world.drain();
    world.check_all();
    Seen {
        committed: world.committed,
        suspensions: world.driver.suspensions,
        deadlocks: world.driver.deadlocks,
        blocked: world.blocked,
        stalls: world.driver.stalls,
        counts: world.driver.partition.counts(),
        undone: world.undone,
        spill_reads: world.driver.spill_reads,
        ..world.readers.seen
    }
}

fn run_all(paging: Option<Paging>, seeds: u64) -> Seen {
    run_each(paging, seeds, |driver| driver)
}

/// Runs histories on drivers prepared by `ready`.
pub fn run_each(
    paging: Option<Paging>,
    seeds: u64,
    mut ready: impl FnMut(Driver<MemTrees>) -> Driver<MemTrees>,
) -> Seen {
    let mut seen = Seen::default();
    for seed in 1..=seeds {
        let driver = ready(Driver::new(MemTrees::new(paging), ()));
        seen.add(&run(driver, seed, 2 + (seed % 5) as usize, 300));
    }
    assert!(
        seen.committed > 10 * seeds && seen.deadlocks > 0 && seen.blocked > seeds / 2,
        "{seen:?}"
    );
    assert!(seen.snapshots > seeds && seen.reads > 10 * seeds && seen.old > seeds, "{seen:?}");
    seen
}

#[test]
fn committed_transactions_are_serializable() {
    let seen = run_all(None, 400);
    assert_eq!(seen.suspensions, 0);
}

#[test]
fn histories_with_page_misses_are_serializable() {
    let seen = run_all(Some(Paging { pages: 40, frames: 5 }), 400);
    assert!(seen.suspensions > 1000 && seen.stalls > 100, "{seen:?}");
}
