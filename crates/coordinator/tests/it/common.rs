//! Support for the engine's tests: a table of accounts with hand-made plans, and workers without a
//! network.

use clearway_coordinator::{
    Characteristics, Client, Engine, EngineConfig, Event, Limits, Outcome, Port, RunOptions, Step,
    Suspended, TxnStatus, Waker,
};
use clearway_ir::expr::BinaryOp;
use clearway_ir::program::{AggFunc, Aggregate, Env, Group};
use clearway_ir::statement::{
    Finish, Insert, Isolation, Query, Route, Source, TxnOptions, unnumbered_table,
};
use clearway_ir::{
    Access, Column, Distribution, Expr, OnConflict, Path, Plan, Program, RowLock, RowLocking,
    Statement, TableDef,
};
use clearway_storage::NodeConfig;
use clearway_testkit::MemDisk;
use clearway_types::{Datum, Lsn, PartitionId, RowBatch, SqlError, SqlResult, SqlState, SqlType};
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

/// Opens an engine on the disk. Workers are the test's own threads. They poll their ports, so their
/// wakers do nothing.
pub fn open(disk: &MemDisk, partitions: u16, workers: usize) -> Arc<Engine> {
    open_with(disk, partitions, workers, Limits::default())
}

/// Like [`open`], with other partition limits.
pub fn open_with(
    disk: &MemDisk,
    partitions: u16,
    workers: usize,
    partition: Limits,
) -> Arc<Engine> {
    open_config(disk, partitions, workers, |config| config.partition = partition)
}

/// Like [`open`], with another configuration.
pub fn open_config(
    disk: &MemDisk,
    partitions: u16,
    workers: usize,
    change: impl FnOnce(&mut EngineConfig),
) -> Arc<Engine> {
    open_woken(disk, partitions, (0..workers).map(|_| Arc::new(|| {}) as Waker).collect(), change)
}

/// Like [`open_config`], with other wakers, one per worker.
pub fn open_woken(
    disk: &MemDisk,
    partitions: u16,
    wakers: Vec<Waker>,
    change: impl FnOnce(&mut EngineConfig),
) -> Arc<Engine> {
    let mut config = EngineConfig {
        node: NodeConfig {
            partitions: Some(partitions),
            frames: 256,
            wal_segment_size: 1 << 20,
            // A few changes: larger rollbacks read the log.
            undo_memory: 100,
            ..NodeConfig::default()
        },
        checkpoint_interval: Duration::from_secs(3600),
        checkpoint_log: 8 << 20,
        ..EngineConfig::default()
    };
    change(&mut config);
    Engine::open(Arc::new(disk.clone()), FilePath::new("/data"), config, wakers).unwrap()
}

/// One session with its own worker.
pub struct Worker {
    pub port: Port,
    client: Option<Client>,
    /// The session does not wait for the log.
    pub lazy: bool,
    /// What the last answer had to wait for.
    pub wait: Lsn,
}

impl Worker {
    pub fn new(engine: &Arc<Engine>, worker: u16) -> Self {
        let mut port = engine.port(worker);
        let client = Some(Client::new(&mut port, 0));
        Self { port, client, lazy: false, wait: Lsn(0) }
    }
    pub fn client(&mut self) -> &mut Client {
        self.client.as_mut().unwrap()
    }
    pub fn status(&mut self) -> TxnStatus {
        self.client().status()
    }
    pub fn run(&mut self, plan: &Arc<Plan>) -> SqlResult<Outcome> {
        let step = self.start(plan);
        self.end(step)
    }
    /// Runs a statement to its end.
    pub fn end(&mut self, mut step: Step) -> SqlResult<Outcome> {
        let Self { port, client, lazy, wait } = self;
        let client = client.as_mut().unwrap();
        let mut events = Vec::new();
        let mut rows = RowBatch::new();
        loop {
            match step {
                Step::Done(result) => {
                    *wait =
                        result.as_ref().map_or_else(|refusal| refusal.wait, |outcome| outcome.wait);
                    if !*lazy {
                        wait_durable(port, *wait, &mut events);
                    }
                    return result.map_err(SqlError::from).map(|outcome| {
                        rows.append(&outcome.rows);
                        Outcome { rows, ..outcome }
                    });
                }
                Step::Rows(part) => {
                    rows.append(&part.rows);
                    step = client.resume();
                }
                Step::Replan => panic!("no other session changes the table"),
                Step::Pending => {
                    port.poll(&mut events);
                    std::thread::yield_now();
                    step = client.resume();
                }
            }
        }
    }
    /// Ends an implicit transaction.
    pub fn end_implicit(&mut self, commit: bool) -> SqlResult<Outcome> {
        let step = self.client.as_mut().unwrap().end_implicit(commit);
        self.end(step)
    }
    /// Starts a statement of an implicit transaction.
    pub fn start_implicit(&mut self, plan: &Arc<Plan>) -> Step {
        let options = RunOptions { implicit_block: true, ..serializable() };
        self.client.as_mut().unwrap().start(plan, &Arc::new(Env::default()), options)
    }
    /// Starts a statement without waiting for it.
    pub fn start(&mut self, plan: &Arc<Plan>) -> Step {
        self.start_with(plan, serializable())
    }
    /// Like [`Worker::start`], with these options.
    pub fn start_with(&mut self, plan: &Arc<Plan>, options: RunOptions) -> Step {
        self.client.as_mut().unwrap().start(plan, &Arc::new(Env::default()), options)
    }
    pub fn resume(&mut self) -> Step {
        self.client.as_mut().unwrap().resume()
    }
    /// Continues a suspended statement.
    pub fn resume_suspended(&mut self, suspended: Suspended) -> Step {
        self.client.as_mut().unwrap().resume_suspended(suspended)
    }
    /// Tells the engine that the session waits for its client.
    pub fn release_exclusive(&mut self) {
        self.client.as_mut().unwrap().release_exclusive();
    }
    pub fn cancel(&mut self, error: &SqlError) {
        self.client.as_mut().unwrap().cancel(error);
    }
    pub fn plain(&mut self, statement: Statement) -> SqlResult<Outcome> {
        self.run(&plan(statement))
    }
    pub fn begin(&mut self) {
        self.plain(Statement::Begin(TxnOptions::default())).unwrap();
    }
    pub fn commit(&mut self) -> SqlResult<Outcome> {
        self.plain(Statement::Commit)
    }
    pub fn rollback(&mut self) {
        self.plain(Statement::Rollback).unwrap();
    }
    pub fn savepoint(&mut self, name: &str) {
        self.plain(Statement::Savepoint(name.into())).unwrap();
    }
    pub fn rollback_to(&mut self, name: &str) {
        self.plain(Statement::RollbackTo(name.into())).unwrap();
    }
    /// Closes the client in any state. The port still has to undo its transaction.
    pub fn leave(mut self) -> Port {
        let client = self.client.take().unwrap();
        client.close();
        self.port
    }
    pub fn close(mut self) {
        let client = self.client.take().unwrap();
        client.close();
        self.port.poll(&mut Vec::new());
    }
}

fn wait_durable(port: &mut Port, lsn: Lsn, events: &mut Vec<Event>) {
    while port.engine().durable() < lsn {
        port.want_durable(lsn);
        port.poll(events);
        std::thread::yield_now();
    }
}

/// Sets SERIALIZABLE for transactions without a requested level: these tests are about locks.
pub fn serializable() -> RunOptions {
    let characteristics =
        Characteristics { isolation: Isolation::Serializable, ..Characteristics::default() };
    RunOptions { characteristics, ..RunOptions::default() }
}

pub fn plan(statement: Statement) -> Arc<Plan> {
    Arc::new(Plan { params: Vec::new(), columns: Vec::new(), statement, catalog: None })
}

/// The balance plus this amount.
fn sum(amount: i32) -> Expr {
    Expr::Binary(BinaryOp::Add, Box::new(Expr::Column(1)), Box::new(int(amount)))
}
pub fn int(v: i32) -> Expr {
    Expr::Literal(Datum::Int4(v))
}

/// A table `(id int, balance int)`.
pub struct Bank {
    name: String,
}

impl Bank {
    pub fn create(worker: &mut Worker, accounts: i32, balance: i32) -> Self {
        Self::make(worker, "accounts", vec![0], Distribution::Hash(vec![0]), accounts, balance)
    }
    pub fn create_without_key(
        worker: &mut Worker,
        name: &str,
        accounts: i32,
        balance: i32,
    ) -> Self {
        Self::make(worker, name, Vec::new(), Distribution::Random, accounts, balance)
    }
    pub fn find(engine: &Arc<Engine>) -> Self {
        assert!(engine.catalog().table("accounts").is_some(), "the table survives a crash");
        Self { name: "accounts".into() }
    }
    fn make(
        worker: &mut Worker,
        name: &str,
        key: Vec<usize>,
        distribution: Distribution,
        accounts: i32,
        balance: i32,
    ) -> Self {
        let column = |name: &str| Column {
            name: name.into(),
            ty: SqlType::Int4,
            not_null: true,
            default: None,
        };
        let table =
            unnumbered_table(name, vec![column("id"), column("balance")], key, distribution);
        worker.plain(Statement::CreateTable { table, if_not_exists: false }).unwrap();
        let bank = Self { name: name.into() };
        let series = Source::Series {
            start: int(0),
            stop: int(accounts - 1),
            step: int(1),
            ty: SqlType::Int4,
        };
        let finish = vec![Finish::Project(vec![Expr::Column(0), int(balance)])];
        bank.insert_from(worker, Query { once: None, source: series, finish }).unwrap();
        bank
    }
    fn table(&self, worker: &mut Worker) -> Arc<TableDef> {
        worker.client().catalog().table(&self.name).unwrap().clone()
    }
    fn insert_from(&self, worker: &mut Worker, source: Query) -> SqlResult<Outcome> {
        let plan = self.inserting_from(worker, source);
        worker.run(&plan)
    }
    fn inserting_from(&self, worker: &mut Worker, source: Query) -> Arc<Plan> {
        let table = self.table(worker);
        let program = Arc::new(Program::Insert {
            table: table.clone(),
            returning: Vec::new(),
            on_conflict: OnConflict::Fail,
        });
        plan(Statement::Insert(Insert { table, source, program }))
    }
    pub fn insert(&self, worker: &mut Worker, id: i32, balance: i32) -> SqlResult<Outcome> {
        self.insert_rows(worker, &[(id, balance)])
    }
    /// Inserts several rows by one statement.
    pub fn insert_rows(&self, worker: &mut Worker, rows: &[(i32, i32)]) -> SqlResult<Outcome> {
        let plan = self.inserting(worker, rows);
        worker.run(&plan)
    }
    /// Returns the statement that inserts these rows.
    pub fn inserting(&self, worker: &mut Worker, rows: &[(i32, i32)]) -> Arc<Plan> {
        let rows = rows.iter().map(|(id, balance)| vec![int(*id), int(*balance)]).collect();
        self.inserting_values(worker, rows)
    }
    /// Returns the statement that inserts rows with these values.
    pub fn inserting_values(&self, worker: &mut Worker, rows: Vec<Vec<Expr>>) -> Arc<Plan> {
        let source = Source::Rows(rows);
        self.inserting_from(worker, Query { once: None, source, finish: Vec::new() })
    }
    /// Returns the account's partition out of `partitions`.
    pub fn home(id: i32, partitions: u16) -> PartitionId {
        Route::Hash(vec![int(id)]).partition(&Env::default(), partitions).unwrap().unwrap()
    }
    pub fn access(&self, worker: &mut Worker, path: Path) -> Access {
        Access {
            table: self.table(worker),
            path,
            filter: None,
            lock: None,
            learned: Default::default(),
        }
    }
    pub fn balance(&self, worker: &mut Worker, id: i32) -> Option<i32> {
        let plan = self.reading(worker, id);
        let rows = worker.run(&plan).unwrap().rows;
        (!rows.is_empty()).then(|| rows.get(0).get(0).unwrap().to_owned().as_i64().unwrap() as i32)
    }
    /// Returns the statement that reads an account's balance.
    pub fn reading(&self, worker: &mut Worker, id: i32) -> Arc<Plan> {
        self.reading_with(worker, id, None)
    }
    /// Like [`Bank::reading`], FOR SHARE.
    pub fn sharing(&self, worker: &mut Worker, id: i32) -> Arc<Plan> {
        self.reading_with(worker, id, Some(RowLock::Share))
    }
    /// Like [`Bank::reading`], FOR UPDATE.
    pub fn locking(&self, worker: &mut Worker, id: i32) -> Arc<Plan> {
        self.reading_with(worker, id, Some(RowLock::Update))
    }
    fn reading_with(&self, worker: &mut Worker, id: i32, lock: Option<RowLock>) -> Arc<Plan> {
        let access = Access {
            lock: lock.map(RowLocking::of),
            ..self.access(worker, Path::Point(vec![int(id)]))
        };
        let program =
            Program::Scan { access, group: None, project: vec![Expr::Column(1)], limit: None };
        let source =
            Source::Table { program: Arc::new(program), route: Route::Hash(vec![int(id)]) };
        plan(Statement::Query(Query { once: None, source, finish: Vec::new() }))
    }
    pub fn add(&self, worker: &mut Worker, id: i32, amount: i32) -> SqlResult<Outcome> {
        let plan = self.adding(worker, id, amount);
        worker.run(&plan)
    }
    /// Returns the statement that adds to an account.
    pub fn adding(&self, worker: &mut Worker, id: i32, amount: i32) -> Arc<Plan> {
        self.adding_along(worker, Path::Point(vec![int(id)]), id, amount)
    }
    /// Like [`Bank::adding`], concurrently with other additions to the account.
    pub fn adding_beside(&self, worker: &mut Worker, id: i32, amount: i32) -> Arc<Plan> {
        let access = self.access(worker, Path::Point(vec![int(id)]));
        let access = Access { lock: Some(RowLocking::of(RowLock::NoKeyUpdate)), ..access };
        let set = vec![(1, sum(amount))];
        let program = Arc::new(Program::update(access, set, Vec::new(), false));
        plan(Statement::Modify { program, route: Route::Hash(vec![int(id)]) })
    }
    /// Returns the statement that adds to accounts which all have this one's home.
    pub fn adding_to(&self, worker: &mut Worker, ids: &[i32], home: i32, amount: i32) -> Arc<Plan> {
        self.adding_along(
            worker,
            Path::Points(ids.iter().map(|id| int(*id)).collect()),
            home,
            amount,
        )
    }
    fn adding_along(&self, worker: &mut Worker, path: Path, home: i32, amount: i32) -> Arc<Plan> {
        let access = self.access(worker, path);
        // Not `adds`: two of these conflict, as many tests require.
        let (set, returning) = (vec![(1, sum(amount))], Vec::new());
        let checks = access.table.checks_of_update(&set);
        let program =
            Arc::new(Program::Update { access, set, returning, checks, moves: false, adds: None });
        plan(Statement::Modify { program, route: Route::Hash(vec![int(home)]) })
    }
    /// Adds to every account by one statement.
    pub fn add_to_all(&self, worker: &mut Worker, amount: i32) -> SqlResult<Outcome> {
        let plan = self.adding_to_all(worker, amount);
        worker.run(&plan)
    }
    /// Returns the statement that adds to every account.
    pub fn adding_to_all(&self, worker: &mut Worker, amount: i32) -> Arc<Plan> {
        let access = self.access(worker, Path::Full);
        let program = Arc::new(Program::update(access, vec![(1, sum(amount))], Vec::new(), false));
        plan(Statement::Modify { program, route: Route::All })
    }
    /// Like [`Bank::add`], without waiting for the log.
    pub fn add_lazily(&self, worker: &mut Worker, id: i32, amount: i32) {
        worker.lazy = true;
        self.add(worker, id, amount).unwrap();
        worker.lazy = false;
    }
    pub fn total(&self, worker: &mut Worker) -> i64 {
        let plan = self.totalling(worker);
        let rows = worker.run(&plan).unwrap().rows;
        rows.get(0).get(0).unwrap().to_owned().as_i64().unwrap_or(0)
    }
    /// Returns the statement that inserts an account with the sum of all balances.
    pub fn inserting_total(&self, worker: &mut Worker, id: i32) -> Arc<Plan> {
        let mut source = self.sum(worker);
        let sum = Expr::Cast { expr: Box::new(Expr::Column(0)), to: SqlType::Int4, explicit: true };
        source.finish.push(Finish::Project(vec![int(id), sum]));
        self.inserting_from(worker, source)
    }
    /// Returns the statement that sums all balances.
    pub fn totalling(&self, worker: &mut Worker) -> Arc<Plan> {
        plan(Statement::Query(self.sum(worker)))
    }
    fn sum(&self, worker: &mut Worker) -> Query {
        let sum = Aggregate {
            func: AggFunc::Sum,
            arg: Some(Expr::Column(1)),
            distinct: false,
            ty: SqlType::Int8,
        };
        let group = Group { keys: Vec::new(), aggregates: vec![sum] };
        let access = self.access(worker, Path::Full);
        let program =
            Program::Scan { access, group: Some(group.clone()), project: Vec::new(), limit: None };
        let source = Source::Table { program: Arc::new(program), route: Route::All };
        Query { once: None, source, finish: vec![Finish::Merge(group)] }
    }
    pub fn truncate(&self, worker: &mut Worker) {
        worker.plain(Statement::Truncate { names: vec![self.name.clone()] }).unwrap();
    }
    pub fn add_primary_key(&self, worker: &mut Worker) {
        let statement =
            Statement::AddPrimaryKey { table: self.name.clone(), name: None, columns: vec![0] };
        worker.plain(statement).unwrap();
    }
}

/// Moves money at random between accounts in several sessions of one worker, in blocks of two
/// updates. Returns how many commit.
pub fn transfers(
    engine: &Arc<Engine>,
    bank: &Bank,
    worker: u16,
    sessions: u32,
    rounds: u32,
) -> u64 {
    let mut random = u64::from(worker) + 1;
    let mut next = move |below: i32| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((random >> 33) % below as u64) as i32
    };
    let mut lone = Worker::new(engine, worker);
    let mut clients: Vec<Transfer> =
        (0..sessions).map(|s| Transfer::new(&mut lone.port, s + 1)).collect();
    let mut committed = 0;
    let mut events = Vec::new();
    let mut left = rounds * sessions;
    while left > 0 || clients.iter().any(|c| c.stage != 0) {
        for client in &mut clients {
            if client.stage == 0 && left > 0 {
                left -= 1;
                client.from = next(20);
                client.to = (client.from + 1 + next(19)) % 20;
                client.amount = next(50);
                client.stage = 1;
            }
            committed += client.advance(bank, &mut lone);
        }
        events.clear();
        lone.port.poll(&mut events);
    }
    for client in clients {
        client.client.close();
    }
    lone.port.poll(&mut events);
    committed
}

/// One session's transfer: BEGIN, two updates, COMMIT; ROLLBACK after a deadlock.
struct Transfer {
    client: Client,
    stage: u8,
    from: i32,
    to: i32,
    amount: i32,
}

impl Transfer {
    fn new(port: &mut Port, session: u32) -> Self {
        Self { client: Client::new(port, session), stage: 0, from: 0, to: 0, amount: 0 }
    }

    /// Runs as far as possible. Returns 1 if a transfer has committed.
    fn advance(&mut self, bank: &Bank, worker: &mut Worker) -> u64 {
        let mut committed = 0;
        while self.stage != 0 {
            let step = if self.client.is_running() {
                self.client.resume()
            } else {
                let plan = match self.stage {
                    1 => plan(Statement::Begin(TxnOptions::default())),
                    2 => bank.adding(worker, self.from, -self.amount),
                    3 => bank.adding(worker, self.to, self.amount),
                    4 => plan(Statement::Commit),
                    _ => plan(Statement::Rollback),
                };
                self.client.start(&plan, &Arc::new(Env::default()), serializable())
            };
            match step {
                Step::Pending => return committed,
                Step::Rows(_) | Step::Replan => panic!("no other session changes the table"),
                Step::Done(Err(refusal)) => {
                    assert_eq!(refusal.error.state(), SqlState::DEADLOCK, "{}", refusal.error);
                    self.stage = 5;
                }
                Step::Done(Ok(_)) => {
                    committed += u64::from(self.stage == 4);
                    self.stage = if self.stage >= 4 { 0 } else { self.stage + 1 };
                }
            }
        }
        committed
    }
}

/// Polls the workers, and resumes those that run a statement, until none does.
pub fn end_all(workers: &mut [Worker]) {
    while workers.iter_mut().any(|worker| worker.client().is_running()) {
        for worker in &mut *workers {
            worker.port.poll(&mut Vec::new());
            if worker.client().is_running() {
                assert!(!matches!(worker.resume(), Step::Done(Err(_)) | Step::Replan));
            }
        }
        std::thread::yield_now();
    }
}
