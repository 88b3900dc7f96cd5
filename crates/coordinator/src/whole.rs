//! Transactions that arrive whole: BEGIN ... COMMIT in one simple query, or in one pipeline before
//! its Sync. Nobody waits for the client before the transaction's end, so that it may have its
//! partitions to itself, as one-shot work has.
//!
//! It asks for all of them, in their order, before its first statement. Then its statements run
//! without locks, one message each, as does its rollback; all other work waits in line there. Its
//! end is that of any transaction: one commit record, and every partition is told.
//!
//! Invariants
//! 1. It has a partition to itself only while the engine works for it: a session that has to wait
//!    for its client tells so ([`Client::let_go`]). Then, and where the engine has to wait for the
//!    disk or for a lock, it keeps locks on what it has used.
//! 2. What the session announces is advice. A statement that goes to another partition, or of
//!    another kind, lets go of all and locks.
//! 3. Below SERIALIZABLE it asks only if each of its statements is about single rows by their keys.
//!    Where it is refused, the level that it has asked for holds as in any block. At REPEATABLE
//!    READ it reads what is newest, under the partition and then under locks, and so is
//!    serialisable.
//! 4. While it waits for others who have locks (`Body::AwaitQuiet`) it has neither locks nor
//!    partitions.
//!
//! Locking: none of its own. A crash leaves what is in the log.
//!
//! Source: Jones, Abadi, Madden, SIGMOD 2010, section 4.1.

use crate::client::{Client, Running};
use crate::core::{Arrival, Block, Core};
use crate::engine::Engine;
use crate::finish;
use crate::multi;
use crate::outcome::{Step, Stop, stopped};
use crate::port::{Port, control};
use crate::snapshot::{Needs, View};
use crate::statement::{controls, goes_on, writes};
use clearway_ir::program::Env;
use clearway_ir::statement::{Insert, Isolation, Query, Route, Source};
use clearway_ir::{OnConflict, Plan, Program, Statement};
use clearway_partition::Body;
use clearway_types::{PartitionId, SqlResult};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// How often a transaction that is refused its partitions asks again, when those who had locks
/// there are over. Then it locks.
const ROUNDS: usize = 8;

/// Partitions that it asks for at most: whoever needs more of them locks.
const MOST: usize = 16;

/// What is known of a transaction before it begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Whole {
    /// Where its statements go. In any order.
    pub partitions: Vec<PartitionId>,
    /// One of them changes or locks rows.
    pub writes: bool,
    /// Each of them is about single rows by their keys.
    pub points: bool,
}

impl Whole {
    /// A transaction without statements.
    pub fn new() -> Self {
        Self { partitions: Vec::new(), writes: false, points: true }
    }
}

/// Enters where a statement of a transaction goes. False if that is not known before it runs, or it
/// is none that may run without locks.
pub fn reach(whole: &mut Whole, engine: &Engine, plan: &Plan, env: &Env) -> bool {
    let here = match &plan.statement {
        Statement::Query(Query { source: Source::Rows(_) | Source::Series { .. }, .. }) => {
            return true;
        }
        Statement::Query(Query { source: Source::Table { program, route }, .. }) => {
            program_reach(whole, engine, program, route, env)
        }
        Statement::Modify { program, route } if !goes_on(program) => {
            program_reach(whole, engine, program, route, env)
        }
        Statement::Insert(insert) => insert_reach(whole, engine, insert, env),
        statement => return controls(statement) || matches!(statement, Statement::Explain(_)),
    };
    whole.writes |= writes(&plan.statement);
    // What cannot be evaluated fails in its turn.
    here.unwrap_or(true) && whole.partitions.len() <= MOST
}

fn program_reach(
    whole: &mut Whole,
    engine: &Engine,
    program: &Program,
    route: &Route,
    env: &Env,
) -> SqlResult<bool> {
    whole.points &= matches!(Needs::of(program, route), Needs::Committed | Needs::Locks);
    match route {
        Route::GlobalIndex { .. } => return Ok(false),
        Route::All => engine.all().for_each(|partition| whole.add(partition)),
        Route::Hash(_) => {
            route.partition(env, engine.partitions())?.into_iter().for_each(|p| whole.add(p))
        }
    }
    Ok(true)
}

fn insert_reach(whole: &mut Whole, engine: &Engine, insert: &Insert, env: &Env) -> SqlResult<bool> {
    let Query { once: None, source: Source::Rows(rows), .. } = &insert.source else {
        return Ok(false);
    };
    let fails = matches!(&*insert.program, Program::Insert { on_conflict: OnConflict::Fail, .. });
    if insert.table.has_global_index()
        || !insert.source.finish.is_empty()
        || !fails
        || rows.len() > MOST
    {
        return Ok(false);
    }
    for row in finish::values(rows, env)?.iter() {
        // A row that may live anywhere goes where its transaction is.
        insert.table.partition_of(row, engine.partitions())?.into_iter().for_each(|p| whole.add(p));
    }
    Ok(true)
}

impl Whole {
    fn add(&mut self, partition: PartitionId) {
        if !self.partitions.contains(&partition) {
            self.partitions.push(partition);
        }
    }
}

/// A transaction asks for its partitions before its first statement.
pub(crate) struct Asking {
    pub(crate) answer: Pin<Box<dyn Future<Output = Result<(), Stop>>>>,
    plan: Arc<Plan>,
    env: Arc<Env>,
}

/// Whether the transaction is to ask for its partitions before this statement.
pub(crate) fn asks_before(core: &Core, statement: &Statement) -> bool {
    let mut txn = core.txn();
    if !matches!(txn.arrival, Arrival::Whole(_)) || controls(statement) {
        return false;
    }
    let uses_rows = match statement {
        Statement::Query(query) => matches!(query.source, Source::Table { .. }),
        Statement::Insert(_) | Statement::Modify { .. } => true,
        _ => false,
    };
    let Arrival::Whole(whole) = &txn.arrival else { return false };
    let level = txn.characteristics.isolation;
    let fits = txn.block != Block::None
        && txn.participants.is_empty()
        // Their marks are set where it goes, before its statements.
        && txn.savepoints.is_empty()
        && matches!(txn.view, View::Undecided)
        && !txn.characteristics.read_only
        && !whole.partitions.is_empty()
        // Single rows that READ COMMITTED reads take no locks.
        && (level == Isolation::Serializable || whole.points && whole.writes);
    if uses_rows && !fits {
        txn.arrival = Arrival::Parts;
    }
    uses_rows && fits
}

/// Asks for the transaction's partitions; where others have locks for a short time it waits until
/// they are over, and asks again.
async fn ask(core: &Core) -> Result<(), Stop> {
    let Arrival::Whole(whole) = std::mem::take(&mut core.txn().arrival) else { return Ok(()) };
    let mut partitions = whole.partitions;
    partitions.sort_unstable();
    for _ in 0..ROUNDS {
        let Some(refused) = multi::ask(core, &partitions).await? else {
            let mut txn = core.txn();
            if txn.characteristics.isolation == Isolation::RepeatableRead {
                txn.view = View::Newest;
            }
            return Ok(());
        };
        core.check_cancelled()?;
        let id = core.txn().id;
        let seq = core.send(refused, id, Body::AwaitQuiet);
        if core.reply(seq).await?.count == 0 {
            break;
        }
    }
    Ok(())
}

/// The transaction waits for its client, or for somebody's lock: it keeps locks on what it has
/// used, and nobody waits for its end who could do otherwise.
pub(crate) fn let_go(core: &Core) {
    let (id, participants) = {
        let mut txn = core.txn();
        if !std::mem::take(&mut txn.short) {
            return;
        }
        txn.blocked.clear();
        (txn.id, txn.participants.clone())
    };
    for partition in participants {
        core.port.submit(partition, control(id, Body::AwaitsClient));
    }
}

impl Client {
    /// Tells what is known of the transaction that the next statement may begin: it has arrived as
    /// a whole. None: nothing is.
    pub fn announce(&mut self, whole: Option<Whole>) {
        self.core.announce(whole);
    }

    /// Whether a transaction is open: whether the next statement cannot begin one.
    pub fn in_transaction(&self) -> bool {
        self.core.txn().is_open()
    }

    /// The session has to wait for its client, or for anything else that the engine knows nothing
    /// of.
    pub fn let_go(&mut self, _port: &mut Port) {
        let_go(&self.core);
    }

    pub(crate) fn ask(&mut self, plan: &Arc<Plan>, env: &Arc<Env>) -> Step {
        let core = self.core.clone();
        let answer = Box::pin(async move { ask(&core).await });
        self.go_on_asking(Asking { answer, plan: plan.clone(), env: env.clone() })
    }

    pub(crate) fn go_on_asking(&mut self, mut asking: Asking) -> Step {
        match asking.answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => {
                self.running = Running::Asking(asking);
                Step::Pending
            }
            Poll::Ready(Ok(())) => self.go(&asking.plan, &asking.env),
            Poll::Ready(Err(stop)) => self.failed(stopped(stop)),
        }
    }
}
