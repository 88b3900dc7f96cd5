//! The number of instructions of a transaction from its plan to its answer: the cost of the
//! uncontended path, independent of the machine's noise.
//!
//! `cargo bench -p clearway-coordinator --bench path`
//!
//! One session at one worker of an engine with pgbench's tables, on an in-memory disk. Plans are
//! made once, like prepared statements. This covers the whole path except for the wire and the
//! planner. The bench reports the median of the rounds, since some of them split a page or switch
//! the log segment. Only this thread's instructions are counted, by the processor's trap flag;
//! without trap support nothing is counted.

#[path = "../../latch/benches/steps/mod.rs"]
mod steps;

use clearway_coordinator::{Client, Engine, EngineConfig, Port, RunOptions, Step, Waker};
use clearway_ir::program::Env;
use clearway_ir::{Plan, SessionEnv};
use clearway_testkit::MemDisk;
use clearway_types::{Datum, SqlType};
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::sync::Arc;

/// Rows of the largest table, a tenth of pgbench's scale 1.
const ACCOUNTS: i32 = 10_000;
/// Counted transactions of a kind, an odd number.
const ROUNDS: usize = 31;
/// Warm-up transactions, for one-time work.
const WARM: usize = 50;

const TABLES: [&str; 4] = [
    "create table pgbench_branches (bid int not null primary key, bbalance int, filler char(88))",
    "create table pgbench_tellers (tid int not null primary key, bid int, tbalance int, filler char(84))",
    "create table pgbench_accounts (aid int not null primary key, bid int, abalance int, filler char(84))",
    "create table pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22))",
];
const ROWS: [&str; 2] = [
    "insert into pgbench_branches values (1, 0)",
    "insert into pgbench_tellers select tid, 1, 0 from generate_series(1, 10) as t(tid)",
];

const SELECT: &str = "select abalance from pgbench_accounts where aid = $1";
const UPDATE_ACCOUNT: &str = "update pgbench_accounts set abalance = abalance + $1 where aid = $2";
const UPDATE_TELLER: &str = "update pgbench_tellers set tbalance = tbalance + $1 where tid = $2";
const UPDATE_BRANCH: &str = "update pgbench_branches set bbalance = bbalance + $1 where bid = $2";
const HISTORY: &str = "insert into pgbench_history (tid, bid, aid, delta, mtime) values ($1, $2, $3, $4, current_timestamp)";

/// A session alone at its worker.
struct Session {
    port: Port,
    client: Client,
}

/// A statement with its parameters.
type Call = (Arc<Plan>, Vec<i32>);

impl Session {
    fn plan(&self, sql: &str) -> Arc<Plan> {
        let parsed = clearway_planner::parse(sql).expect("it parses");
        let types = vec![SqlType::Int4; sql.matches('$').count()];
        let plan = clearway_planner::plan(
            &parsed[0],
            &self.client.catalog(),
            &types,
            &SessionEnv::default(),
        );
        Arc::new(plan.expect("a valid statement"))
    }

    fn run(&mut self, (plan, params): &Call) {
        let env =
            Env { params: params.iter().map(|p| Datum::Int4(*p)).collect(), ..Env::default() };
        let mut step = self.client.start(plan, &Arc::new(env), RunOptions::default());
        while let Step::Pending = step {
            self.port.poll(&mut Vec::new());
            std::thread::yield_now();
            step = self.client.resume();
        }
        let Step::Done(result) = step else { panic!("no other session changes the tables") };
        assert!(result.is_ok(), "{:?}", result.err().map(|refusal| refusal.error));
    }

    fn sql(&mut self, sql: &str) {
        self.run(&(self.plan(sql), Vec::new()));
    }
}

/// Returns the median instruction count of the transactions that `calls` makes from their numbers.
fn count(session: &RefCell<Session>, calls: impl Fn(i32) -> Vec<Call>) -> Option<u64> {
    let number = Cell::new(0);
    let next = || {
        number.set(number.get() + 1);
        calls(number.get() * 37 % ACCOUNTS + 1)
    };
    let run = |calls: &[Call]| calls.iter().for_each(|call| session.borrow_mut().run(call));
    (0..WARM).for_each(|_| run(&next()));
    // Each counted transaction runs twice, once to warm up.
    let counts = (0..ROUNDS).map(|_| next()).map(|calls| steps::of(&|| run(&calls)));
    let mut counts = counts.collect::<Option<Vec<u64>>>()?;
    counts.sort_unstable();
    Some(counts[ROUNDS / 2])
}

fn main() {
    let waker: Waker = Arc::new(|| {});
    let engine = Engine::open(
        Arc::new(MemDisk::new()),
        Path::new("/path"),
        EngineConfig::default(),
        vec![waker],
    )
    .expect("it opens");
    let mut port = engine.port(0);
    let client = Client::new(&mut port, 0);
    let mut session = Session { port, client };
    TABLES.into_iter().chain(ROWS).for_each(|sql| session.sql(sql));
    session.sql(&format!(
        "insert into pgbench_accounts select aid, 1, 0, '' from generate_series(1, {ACCOUNTS}) as t(aid)"
    ));

    let [begin, end, select, account, teller, branch, history] =
        ["begin", "end", SELECT, UPDATE_ACCOUNT, UPDATE_TELLER, UPDATE_BRANCH, HISTORY]
            .map(|sql| session.plan(sql));
    let session = RefCell::new(session);
    let teller_of = |aid: i32| aid % 10 + 1;
    let tell = |what: &str, counted: Option<u64>| match counted {
        Some(count) => println!("{what}: {count} instructions"),
        None => println!("{what}: not counted: this machine does not trap after each instruction"),
    };
    tell("select-only", count(&session, |aid| vec![(select.clone(), vec![aid])]));
    tell(
        "one row updated in autocommit",
        count(&session, |aid| vec![(account.clone(), vec![1, aid])]),
    );
    let history_row = |aid: i32| (history.clone(), vec![teller_of(aid), 1, aid, 1]);
    tell("one row inserted in autocommit", count(&session, |aid| vec![history_row(aid)]));
    let block = |calls: Vec<Call>| {
        [vec![(begin.clone(), vec![])], calls, vec![(end.clone(), vec![])]].concat()
    };
    tell("an empty block", count(&session, |_| block(vec![])));
    tell(
        "a block that reads a row",
        count(&session, |aid| block(vec![(select.clone(), vec![aid])])),
    );
    tell(
        "a block that updates a row",
        count(&session, |aid| block(vec![(account.clone(), vec![1, aid])])),
    );
    let tpcb = count(&session, |aid| {
        let tid = teller_of(aid);
        block(vec![
            (account.clone(), vec![1, aid]),
            (select.clone(), vec![aid]),
            (teller.clone(), vec![1, tid]),
            (branch.clone(), vec![1, 1]),
            history_row(aid),
        ])
    });
    tell("tpcb-like", tpcb);
    let Session { mut port, client } = session.into_inner();
    client.close();
    port.poll(&mut Vec::new());
    drop(port);
    engine.shutdown().expect("it stops");
}
