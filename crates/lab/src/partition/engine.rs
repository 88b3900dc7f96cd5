//! The source's micro-benchmark on the real engine, in this process.
//!
//! A table has keys of 3 bytes and values of 4. A transaction reads and changes some of its rows by
//! one statement. The calling thread is the engine's only worker: it runs all sessions and all
//! partitions, so its CPU time is theirs. Only the log has a thread of its own. The disk is in
//! memory.

use clearway_coordinator::{
    Characteristics, Client, Engine, EngineConfig, Event, Limits, Port, Refusal, RunOptions,
    SchemeKind, Stall, Step, Waker,
};
use clearway_harness::Res;
use clearway_ir::program::Env;
use clearway_ir::statement::{Isolation, Route};
use clearway_ir::{Expr, Plan, SessionEnv, Statement};
use clearway_testkit::MemDisk;
use clearway_types::{Datum, Lsn, SqlType};
use std::path::Path;
use std::sync::Arc;

/// Partitions of the engine.
pub const PARTITIONS: u16 = 2;
/// Digits of a key.
const DIGITS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";
/// Rows of an INSERT.
const INSERTED: usize = 100;

/// The engine with some sessions, and its table.
pub struct MicroBenchmark {
    engine: Arc<Engine>,
    /// Becomes `None` when the engine stops.
    port: Option<Port>,
    sessions: Vec<Client>,
    /// The keys of each partition.
    keys: Vec<Vec<String>>,
    events: Vec<Event>,
}

/// The partitions of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The one that has all of its keys.
    One,
    /// All: each looks for all keys, and changes those that it has.
    All,
}

/// A statement with its parameters.
#[derive(Clone, Debug)]
pub struct Call {
    plan: Arc<Plan>,
    env: Arc<Env>,
}

impl Call {
    /// Creates the call of a plan with these keys.
    pub fn new<'a>(plan: &Arc<Plan>, keys: impl IntoIterator<Item = &'a String>) -> Self {
        let params = keys.into_iter().map(|key| Datum::Text(key.as_str().into())).collect();
        Self { plan: plan.clone(), env: Arc::new(Env { params, ..Env::default() }) }
    }
}

/// A session's statement runs, or has ended.
pub type Ended = Option<Result<Lsn, Refusal>>;

impl MicroBenchmark {
    /// Opens an engine with this number of sessions, and this number of keys at each partition.
    pub fn open(scheme: SchemeKind, stall: Stall, sessions: u32, keys: usize) -> Res<Self> {
        let mut config = EngineConfig::default();
        config.node.partitions = Some(PARTITIONS);
        // The source has no locks that additions share.
        config.partition = Limits { scheme, increments: false, ..Limits::default() };
        config.stall = stall;
        let (disk, waker): (_, Waker) = (Arc::new(MemDisk::new()), Arc::new(|| {}));
        let engine = Engine::open(disk, Path::new("/micro"), config, vec![waker])
            .map_err(|why| why.to_string())?;
        let mut port = engine.port(0);
        let sessions = (0..sessions).map(|session| Client::new(&mut port, session)).collect();
        let keys = keys_by_partition(keys)?;
        let mut opened = Self { engine, port: Some(port), sessions, keys, events: Vec::new() };
        opened.sql("create table kv (k text not null primary key, v int not null)")?;
        let all: Vec<String> = opened.keys.concat();
        for some in all.chunks(INSERTED) {
            let rows: Vec<String> = some.iter().map(|key| format!("('{key}', 1)")).collect();
            opened.sql(&format!("insert into kv values {}", rows.join(", ")))?;
        }
        Ok(opened)
    }

    /// Returns the keys of a partition.
    pub fn keys(&self, partition: usize) -> &[String] {
        &self.keys[partition]
    }

    /// Returns the partition of a key.
    pub fn home(key: &str) -> Res<usize> {
        let route = Route::Hash(vec![Expr::Literal(Datum::Text(key.into()))]);
        let home = route.partition(&Env::default(), PARTITIONS).map_err(|why| why.to_string())?;
        home.map(|home| usize::from(home.0)).ok_or_else(|| "a key without partition".into())
    }

    /// Returns the engine's port.
    fn port(&mut self) -> &mut Port {
        self.port.as_mut().expect("until it stops")
    }

    /// Plans a statement whose parameters are all texts.
    pub fn plan(&self, sql: &str) -> Res<Arc<Plan>> {
        let parsed = clearway_planner::parse(sql).map_err(|why| format!("{sql}: {why}"))?;
        let types = vec![SqlType::Text; sql.matches('$').count()];
        let [parsed] = &parsed[..] else { return Err(format!("{sql}: not one statement")) };
        let catalog = self.engine.catalog();
        clearway_planner::plan(parsed, &catalog, &types, &SessionEnv::default())
            .map(Arc::new)
            .map_err(|why| format!("{sql}: {why}"))
    }

    /// Plans the transaction that reads and changes this number of rows. It fails at a row whose
    /// value is 0.
    pub fn update(&self, rows: usize, reach: Reach) -> Res<Arc<Plan>> {
        let keys: Vec<String> = (1..=rows).map(|n| format!("${n}")).collect();
        let keys = keys.join(", ");
        let sql = format!("update kv set v = v + v / v where k in ({keys}) returning v");
        let plan = self.plan(&sql)?;
        // A stored procedure of the source knows its partition. The planner finds it only for a
        // single key.
        match (&plan.statement, reach) {
            (Statement::Modify { program, .. }, Reach::One) => {
                let route = Route::Hash(vec![Expr::Param(0)]);
                let statement = Statement::Modify { program: program.clone(), route };
                Ok(Arc::new(Plan { statement, ..(*plan).clone() }))
            }
            (Statement::Modify { .. }, Reach::All) => Ok(plan),
            _ => Err("an UPDATE has another plan than expected".into()),
        }
    }

    /// Starts a statement of a session. Returns its result if it has ended.
    pub fn start(&mut self, session: usize, call: &Call) -> Res<Ended> {
        let characteristics =
            Characteristics { isolation: Isolation::Serializable, ..Characteristics::default() };
        let options = RunOptions { characteristics, ..RunOptions::default() };
        let step = self.sessions[session].start(&call.plan, &call.env, options);
        self.proceed(session, step)
    }

    fn proceed(&mut self, session: usize, mut step: Step) -> Res<Ended> {
        loop {
            match step {
                Step::Pending => return Ok(None),
                Step::Rows(_) => step = self.sessions[session].resume(),
                Step::Done(result) => return Ok(Some(result.map(|outcome| outcome.wait))),
                Step::Replan => return Err("the table has changed".into()),
            }
        }
    }

    /// Has a turn of the worker's event loop. Passes each session whose statement has ended.
    pub fn turn(
        &mut self,
        mut ended: impl FnMut(usize, Result<Lsn, Refusal>) -> Res<()>,
    ) -> Res<()> {
        let mut events = std::mem::take(&mut self.events);
        self.port().poll(&mut events);
        for event in events.drain(..) {
            let Event::Continue { session } = event else { continue };
            let session = session as usize;
            let step = self.sessions[session].resume();
            if let Some(result) = self.proceed(session, step)? {
                ended(session, result)?;
            }
        }
        self.events = events;
        Ok(())
    }

    /// Runs a statement of a session to its end, while no other session runs one.
    pub fn run(&mut self, session: usize, call: &Call) -> Res<Result<Lsn, Refusal>> {
        let mut result = self.start(session, call)?;
        while result.is_none() {
            self.turn(|ended, with| {
                assert_eq!(ended, session, "no other session runs");
                result = Some(with);
                Ok(())
            })?;
        }
        Ok(result.expect("it has ended"))
    }

    /// Runs a statement of a session that must succeed. Returns what its answer waits for.
    pub fn succeed(&mut self, session: usize, call: &Call) -> Res<Lsn> {
        self.run(session, call)?.map_err(|refusal| refusal.error.to_string())
    }

    /// Runs a statement without parameters.
    pub fn sql(&mut self, sql: &str) -> Res<()> {
        let call = Call::new(&self.plan(sql)?, []);
        self.succeed(0, &call).map(drop)
    }

    /// Fails unless this is the sum of all values.
    pub fn check_sum(&mut self, sum: u64) -> Res<()> {
        // Divides by zero unless the sum is right.
        let sql = format!("select 1 / (case when sum(v) = {sum} then 1 else 0 end) from kv");
        self.sql(&sql).map_err(|why| format!("the values' sum is not {sum}: {why}"))
    }

    /// Waits until the log is durable up to here.
    pub fn wait_durable(&mut self, lsn: Lsn) {
        while self.engine.durable() < lsn {
            self.port().want_durable(lsn);
            let mut events = std::mem::take(&mut self.events);
            self.port().poll(&mut events);
            events.clear();
            self.events = events;
            std::thread::yield_now();
        }
    }

    /// Stops the engine.
    pub fn close(mut self) -> Res<()> {
        self.stop();
        self.engine.shutdown()
    }

    fn stop(&mut self) {
        self.sessions.drain(..).for_each(Client::close);
        if let Some(mut port) = self.port.take() {
            port.poll(&mut Vec::new());
        }
    }
}

/// Returns this number of keys of each partition.
fn keys_by_partition(each: usize) -> Res<Vec<Vec<String>>> {
    let mut keys = vec![Vec::new(); usize::from(PARTITIONS)];
    let digits = || DIGITS.iter().map(|digit| char::from(*digit));
    for first in digits() {
        for second in digits() {
            for third in digits() {
                let key: String = [first, second, third].iter().collect();
                let here = &mut keys[MicroBenchmark::home(&key)?];
                if here.len() < each {
                    here.push(key);
                }
            }
        }
    }
    match keys.iter().all(|here| here.len() == each) {
        true => Ok(keys),
        false => Err(format!("there are no {each} keys of 3 bytes for each partition")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_change_the_rows_that_they_name() {
        let mut micro = MicroBenchmark::open(SchemeKind::Speculative, Stall::None, 1, 8).unwrap();
        let (here, there) = (micro.keys(0).to_vec(), micro.keys(1).to_vec());
        let one = micro.update(8, Reach::One).unwrap();
        let all = micro.update(8, Reach::All).unwrap();
        micro.succeed(0, &Call::new(&one, &here)).unwrap();
        micro.succeed(0, &Call::new(&all, here[4..].iter().chain(&there[4..]))).unwrap();
        micro.check_sum(16 + 8 + 8).unwrap();
        assert!(micro.check_sum(16).is_err());
        micro.close().unwrap();
    }
}
