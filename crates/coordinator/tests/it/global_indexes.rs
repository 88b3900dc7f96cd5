//! Unique keys with global indexes. A single session behaves exactly like a model. With many
//! sessions and after crashes there are no duplicates, and the global indexes agree with the rows.

use crate::check::{checked, findings};
use crate::common::{Worker, open, plan, serializable};
use crate::users::{N, Rows, User, Users, Who, no_duplicates, rows_of};
use clearway_coordinator::{CheckReport, Client, Engine, Port, Step};
use clearway_ir::program::Env;
use clearway_ir::statement::{Maintain, TxnOptions};
use clearway_ir::{Distribution, Plan, Statement};
use clearway_testkit::{MemDisk, Rng};
use clearway_types::{SqlError, SqlState};
use std::collections::VecDeque;
use std::sync::Arc;

const PARTITIONS: u16 = 4;
const IDS: i32 = 12;
const EMAILS: i32 = 16;

struct Random(Rng);

impl Random {
    fn new(seed: u64) -> Self {
        Self(Rng::new(seed))
    }
    fn below(&mut self, n: i32) -> i32 {
        self.0.below(n as u64) as i32
    }
    fn email(&mut self) -> Option<i32> {
        Some(self.below(EMAILS)).filter(|_| self.below(8) > 0)
    }
    fn user(&mut self) -> User {
        (self.below(IDS), self.email(), self.below(3))
    }
    fn who(&mut self) -> Who {
        if self.below(2) == 0 { Who::Id(self.below(IDS)) } else { Who::Email(self.below(EMAILS)) }
    }
}

/// A statement and its meaning in the model.
#[derive(Clone, Debug)]
enum Stmt {
    Insert { users: Vec<User>, ignore: bool },
    SetEmail(Who, Option<i32>),
    SetId(Who, i32),
    AddToN(Who, i32),
    Shift(Who, i32),
    Delete(Who),
}

impl Stmt {
    fn random(r: &mut Random) -> Self {
        match r.below(16) {
            0..=3 => Self::Insert { users: vec![r.user()], ignore: false },
            4 => Self::Insert { users: (0..3).map(|_| r.user()).collect(), ignore: false },
            5 => Self::Insert { users: (0..3).map(|_| r.user()).collect(), ignore: true },
            6..=8 => Self::SetEmail(r.who(), r.email()),
            9 => Self::SetId(r.who(), r.below(IDS)),
            10 => Self::AddToN(r.who(), 1),
            11 => Self::AddToN(Who::All, 1),
            12 => Self::Shift(Who::All, if r.below(2) == 0 { 1 } else { -1 }),
            13 => Self::Shift(r.who(), 1),
            _ => Self::Delete(r.who()),
        }
    }

    fn plan(&self, users: &Users) -> Arc<Plan> {
        match self {
            Self::Insert { users: rows, ignore } => users.insert(rows, *ignore),
            Self::SetEmail(who, email) => users.set_email(*who, *email),
            Self::SetId(who, id) => users.set_id(*who, *id),
            Self::AddToN(who, by) => users.add_to_n(*who, *by),
            Self::Shift(who, by) => users.add_to_email(*who, *by),
            Self::Delete(who) => users.delete(*who),
        }
    }

    /// Applies the statement to the model. Returns the number of affected rows, or an error for a
    /// duplicate.
    fn apply(&self, rows: &mut Rows) -> Result<u64, ()> {
        let ids = |rows: &Rows, who: Who| -> Vec<i32> {
            let is = |id: i32, email: Option<i32>| match who {
                Who::Id(wanted) => wanted == id,
                Who::Email(wanted) => email == Some(wanted),
                Who::All => true,
            };
            rows.iter().filter(|(id, (email, _))| is(**id, *email)).map(|(id, _)| *id).collect()
        };
        let there = |rows: &Rows, user: &User| {
            rows.contains_key(&user.0)
                || user.1.is_some() && rows.values().any(|(email, _)| *email == user.1)
        };
        let mut update = |who: Who, change: &dyn Fn(User) -> User| {
            let ids = ids(rows, who);
            let olds: Vec<User> = ids
                .iter()
                .map(|id| rows.remove(id).map(|(email, n)| (*id, email, n)).unwrap())
                .collect();
            for user in olds.into_iter().map(change) {
                if there(rows, &user) {
                    return Err(());
                }
                rows.insert(user.0, (user.1, user.2));
            }
            Ok(ids.len() as u64)
        };
        match self {
            Self::SetEmail(who, email) => update(*who, &|u| (u.0, *email, u.2)),
            Self::SetId(who, id) => update(*who, &|u| (*id, u.1, u.2)),
            Self::AddToN(who, by) => update(*who, &|u| (u.0, u.1, u.2 + by)),
            Self::Shift(who, by) => update(*who, &|u| (u.0, u.1.map(|e| e + by), u.2)),
            Self::Delete(who) => {
                let gone = ids(rows, *who);
                rows.retain(|id, _| !gone.contains(id));
                Ok(gone.len() as u64)
            }
            Self::Insert { users, ignore } => {
                let mut count = 0;
                for user in users {
                    match there(rows, user) {
                        true if *ignore => {}
                        true => return Err(()),
                        false => {
                            rows.insert(user.0, (user.1, user.2));
                            count += 1;
                        }
                    }
                }
                Ok(count)
            }
        }
    }
}

fn affected(tag: clearway_coordinator::Tag) -> u64 {
    use clearway_coordinator::Tag::{Delete, Insert, Update};
    match tag {
        Insert(n) | Update(n) | Delete(n) => n,
        other => panic!("{other}"),
    }
}

fn all(worker: &mut Worker, users: &Users) -> Rows {
    rows_of(&worker.run(&users.select(Who::All)).unwrap().rows)
}

/// Checks that the global indexes agree with the rows: every key leads to its row, and no other key
/// is taken. Returns the rows.
fn sound(worker: &mut Worker, users: &Users) -> Rows {
    let rows = all(worker, users);
    no_duplicates(&rows);
    for id in 0..IDS {
        let found = rows_of(&worker.run(&users.select(Who::Id(id))).unwrap().rows);
        assert_eq!(found.get(&id), rows.get(&id), "by id {id}");
    }
    for email in -EMAILS..3 * EMAILS {
        let by_scan = rows_of(&worker.run(&users.select_without_index(email)).unwrap().rows);
        assert_eq!(
            rows_of(&worker.run(&users.select(Who::Email(email))).unwrap().rows),
            by_scan,
            "by address {email}"
        );
        worker.begin();
        match worker.run(&users.insert(&[(IDS + 1, Some(email), 0)], false)) {
            Ok(_) => assert!(by_scan.is_empty(), "address {email} could be taken twice"),
            Err(e) => assert!(
                e.state() == SqlState::UNIQUE_VIOLATION && by_scan.len() == 1,
                "address {email}: {e}"
            ),
        }
        worker.rollback();
    }
    rows
}

/// Checks the trees: every entry of every global index and index has its row, and every row its
/// entries.
fn nothing_wrong(disk: &MemDisk) {
    let report = nothing_damaged(disk);
    assert_eq!(findings(&report), Vec::<String>::new());
}

/// Like [`nothing_wrong`] after a crash: half-written pages are reported, but are not damage.
fn nothing_damaged(disk: &MemDisk) -> CheckReport {
    let report = checked(disk);
    assert!(report.storage.is_sound(), "{:#?}", findings(&report));
    assert!(
        report.tables == 1 && report.not_compared == 0 && report.indexes > u64::from(PARTITIONS)
    );
    report
}

/// Runs one session alone and compares every answer with the model.
fn against_the_model(distribution: &Distribution, seed: u64) {
    let engine = open(&MemDisk::new(), PARTITIONS, 1);
    let mut worker = Worker::new(&engine, 0);
    let users = Users::create(&mut worker, distribution.clone());
    let mut r = Random::new(seed);
    let mut model = Rows::new();
    let one = |worker: &mut Worker, model: &mut Rows, r: &mut Random| -> bool {
        let stmt = Stmt::random(r);
        let mut after = model.clone();
        match (worker.run(&stmt.plan(&users)), stmt.apply(&mut after)) {
            (Ok(outcome), Ok(n)) => {
                assert_eq!(affected(outcome.tag), n, "seed {seed}: {stmt:?} on {model:?}");
                *model = after;
                true
            }
            (Err(e), Err(())) => {
                assert_eq!(e.state(), SqlState::UNIQUE_VIOLATION, "seed {seed}: {stmt:?}: {e}");
                false
            }
            (got, want) => panic!("seed {seed}: {stmt:?} on {model:?}: {got:?}, not {want:?}"),
        }
    };
    for _ in 0..60 {
        if r.below(3) > 0 {
            one(&mut worker, &mut model, &mut r);
            continue;
        }
        worker.begin();
        let before = model.clone();
        let mut healthy = one(&mut worker, &mut model, &mut r);
        if healthy {
            worker.savepoint("s");
            let saved = model.clone();
            healthy = one(&mut worker, &mut model, &mut r) && one(&mut worker, &mut model, &mut r);
            if r.below(2) == 0 {
                worker.rollback_to("s");
                model = saved;
                healthy = one(&mut worker, &mut model, &mut r);
            }
        }
        if healthy && r.below(4) > 0 {
            worker.commit().unwrap();
        } else {
            worker.rollback();
            model = before;
        }
        assert_eq!(all(&mut worker, &users), model, "seed {seed}");
    }
    assert_eq!(sound(&mut worker, &users), model, "seed {seed}");
    engine.shutdown().unwrap();
}

#[test]
fn single_session_matches_the_model() {
    for seed in 0..20 {
        against_the_model(&Distribution::Hash(vec![0]), seed);
    }
}

#[test]
fn global_primary_key_matches_the_model() {
    for seed in 0..20 {
        against_the_model(&Distribution::Hash(vec![N]), 100 + seed);
    }
}

/// A session that runs random statements, alone or in blocks, one after the other.
struct Session {
    client: Client,
    random: Random,
    left: u32,
    script: VecDeque<Arc<Plan>>,
    /// The running statement reads all rows.
    reads: bool,
    committed: u64,
    refused: u64,
}

impl Session {
    fn new(port: &mut Port, number: u32, left: u32, seed: u64) -> Self {
        let client = Client::new(port, number);
        Self {
            client,
            random: Random::new(seed),
            left,
            script: VecDeque::new(),
            reads: false,
            committed: 0,
            refused: 0,
        }
    }

    fn over(&self) -> bool {
        self.left == 0 && self.script.is_empty() && !self.client.is_running()
    }

    fn think(&mut self, users: &Users) {
        self.left -= 1;
        let r = &mut self.random;
        self.reads = r.below(6) == 0;
        if self.reads {
            self.script.push_back(users.select(Who::All));
        } else if r.below(2) == 0 {
            self.script.push_back(Stmt::random(r).plan(users));
        } else {
            self.script.push_back(plan(Statement::Begin(TxnOptions::default())));
            for _ in 0..1 + r.below(3) {
                self.script.push_back(Stmt::random(r).plan(users));
            }
            let end = if r.below(5) == 0 { Statement::Rollback } else { Statement::Commit };
            self.script.push_back(plan(end));
        }
    }

    /// Runs as far as possible.
    fn advance(&mut self, engine: &Engine, users: &Users) {
        loop {
            let step = if self.client.is_running() {
                self.client.resume()
            } else {
                if self.script.is_empty() {
                    if self.left == 0 {
                        return;
                    }
                    self.think(users);
                }
                let Some(plan) = self.script.pop_front() else { return };
                self.client.start(&plan, &Arc::new(Env::default()), serializable())
            };
            match step {
                Step::Pending => return,
                Step::Rows(_) | Step::Replan => panic!("no other session changes the table"),
                Step::Done(Ok(outcome)) => {
                    if self.reads {
                        no_duplicates(&rows_of(&outcome.rows));
                    }
                    self.committed += u64::from(self.script.is_empty());
                }
                // A statement that needs the log may fail because the log has failed, before this
                // test notices.
                Step::Done(Err(r))
                    if r.error.state() == SqlState::IO && engine.failed().is_some() =>
                {
                    return;
                }
                Step::Done(Err(r)) => self.failed(&r.error),
            }
        }
    }

    fn failed(&mut self, e: &SqlError) {
        assert!(matches!(e.state(), SqlState::UNIQUE_VIOLATION | SqlState::DEADLOCK), "{e}");
        self.refused += 1;
        let in_block = !self.script.is_empty();
        self.script.clear();
        if in_block {
            self.script.push_back(plan(Statement::Rollback));
        }
    }
}

/// Runs one worker's sessions until they are done or the log has failed. Returns how many units
/// committed and how many were refused.
fn run_worker(
    engine: &Arc<Engine>,
    users: &Users,
    worker: u16,
    sessions: u32,
    rounds: u32,
    seed: u64,
) -> (u64, u64) {
    let mut port = engine.port(worker);
    let seed = |n: u32| {
        seed ^ (u64::from(worker) << 32 | u64::from(n + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    let mut sessions: Vec<Session> =
        (0..sessions).map(|n| Session::new(&mut port, n, rounds, seed(n))).collect();
    let mut events = Vec::new();
    while !sessions.iter().all(Session::over) && engine.failed().is_none() {
        for session in &mut sessions {
            session.advance(engine, users);
        }
        events.clear();
        port.poll(&mut events);
        if !port.has_work() {
            std::thread::yield_now();
        }
    }
    let sum = |f: fn(&Session) -> u64| sessions.iter().map(f).sum();
    let counts = (sum(|s| s.committed), sum(|s| s.refused));
    for session in sessions {
        session.client.close();
    }
    while engine.failed().is_none() && port.has_work() {
        port.poll(&mut events);
    }
    counts
}

fn run_workers(engine: &Arc<Engine>, users: &Users, rounds: u32, seed: u64) -> (u64, u64) {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|worker| scope.spawn(move || run_worker(engine, users, worker, 6, rounds, seed)))
            .collect();
        let counts = threads.into_iter().map(|t| t.join().unwrap());
        counts.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    })
}

#[test]
fn concurrent_sessions_create_no_duplicates() {
    for (seed, by) in [(1, 0), (2, N), (3, 0), (4, N)] {
        let disk = MemDisk::new();
        let engine = open(&disk, PARTITIONS, 2);
        let mut worker = Worker::new(&engine, 0);
        let users = Users::create(&mut worker, Distribution::Hash(vec![by]));
        worker.close();
        let (committed, refused) = run_workers(&engine, &users, 150, seed);
        assert!(
            committed > 100 && refused > 10,
            "seed {seed}: {committed} committed, {refused} refused"
        );
        let mut worker = Worker::new(&engine, 0);
        sound(&mut worker, &users);
        worker.close();
        engine.shutdown().unwrap();
        drop(engine);
        nothing_wrong(&disk);
    }
}

#[test]
fn rows_and_global_indexes_agree_after_a_crash() {
    for seed in 0..12 {
        let disk = MemDisk::new();
        let engine = open(&disk, PARTITIONS, 2);
        let by = if seed % 2 == 0 { 0 } else { N };
        let mut worker = Worker::new(&engine, 0);
        let users = Users::create(&mut worker, Distribution::Hash(vec![by]));
        // Takes the checkpoint that follows the start now: otherwise it could be the disk's only
        // work before the failure.
        worker
            .plain(Statement::Maintain { kind: Maintain::Checkpoint, skipped: Vec::new() })
            .unwrap();
        let mut random = Random::new(seed);
        disk.fail_after(disk.operations() + 20 + random.below(400) as u64);
        let (committed, _) = run_workers(&engine, &users, 100_000, seed);
        assert!(
            committed > 0 && engine.failed().is_some(),
            "seed {seed}: the disk failed while they worked"
        );

        let disk = disk.crash(seed);
        nothing_damaged(&disk);
        let engine = open(&disk, PARTITIONS, 1);
        let users = Users::find(&engine.catalog());
        let mut worker = Worker::new(&engine, 0);
        sound(&mut worker, &users);
        worker.run(&users.delete(Who::All)).unwrap();
        assert_eq!(sound(&mut worker, &users), Rows::new(), "seed {seed}");
        engine.shutdown().unwrap();
    }
}

/// More rows than a chunk, than the keys after which locks are packed, and than a slice.
#[test]
fn large_statement_maintains_its_index_entries() {
    const MANY: i32 = 6000;
    let engine = open(&MemDisk::new(), PARTITIONS, 1);
    let mut worker = Worker::new(&engine, 0);
    let users = Users::create(&mut worker, Distribution::Hash(vec![0]));
    worker.run(&users.insert_series(100, MANY, 1000)).unwrap();
    let e = worker.run(&users.insert_series(100_000, MANY, 1000 + MANY - 1)).unwrap_err();
    assert_eq!(
        e.get_detail(),
        Some(format!("Key (email)=({}) already exists.", 1000 + MANY - 1).as_str())
    );
    assert_eq!(affected(worker.run(&users.add_to_email(Who::All, 1)).unwrap().tag), MANY as u64);
    assert_eq!(worker.run(&users.select(Who::Email(1000))).unwrap().rows.len(), 0);
    assert_eq!(worker.run(&users.select(Who::Email(1000 + MANY))).unwrap().rows.len(), 1);
    worker.run(&users.insert(&[(1, Some(1000), 0)], false)).unwrap();
    assert_eq!(affected(worker.run(&users.delete(Who::All)).unwrap().tag), MANY as u64 + 1);
    worker.run(&users.insert_series(100, MANY, 1000)).unwrap();
    worker.begin();
    worker.run(&users.delete(Who::All)).unwrap();
    worker.rollback();
    assert_eq!(worker.run(&users.select(Who::Email(1000))).unwrap().rows.len(), 1);
    engine.shutdown().unwrap();
}

/// The second of two transactions that want one key waits for the first, and gets it if the first
/// is rolled back.
#[test]
fn second_insert_of_a_key_waits_for_the_first() {
    let engine = open(&MemDisk::new(), PARTITIONS, 2);
    let users = Users::create(&mut Worker::new(&engine, 0), Distribution::Hash(vec![0]));
    let mut first = Worker::new(&engine, 0);
    let mut port = engine.port(1);
    let mut second = Client::new(&mut port, 0);
    for (n, commits) in [(0, true), (1, false)] {
        first.begin();
        first.run(&users.insert(&[(10 * n, Some(n), 0)], false)).unwrap();
        let wanted = users.insert(&[(10 * n + 1, Some(n), 0)], false);
        let mut step = second.start(&wanted, &Arc::new(Env::default()), serializable());
        for _ in 0..100 {
            assert!(matches!(step, Step::Pending), "waits for the first");
            port.poll(&mut Vec::new());
            step = second.resume();
        }
        if commits {
            first.commit().unwrap();
        } else {
            first.rollback();
        }
        let result = loop {
            match step {
                Step::Done(result) => break result,
                Step::Rows(_) | Step::Replan => panic!("no other session changes the table"),
                Step::Pending => {
                    first.port.poll(&mut Vec::new());
                    port.poll(&mut Vec::new());
                    step = second.resume();
                }
            }
        };
        match result {
            Ok(_) => assert!(!commits),
            Err(refusal) => {
                assert!(
                    commits && refusal.error.state() == SqlState::UNIQUE_VIOLATION,
                    "{}",
                    refusal.error
                );
            }
        }
    }
    second.close();
    engine.shutdown().unwrap();
}
