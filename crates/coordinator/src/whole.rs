//! Transactions that arrive whole: BEGIN ... COMMIT in one simple query, or in one pipeline before
//! its Sync. No one waits for the client before the transaction's end, so it may have exclusive
//! access to its partitions, like one-shot work.
//!
//! It requests all of them, in ascending order, before its first statement. Its statements then run
//! without locks, one message each, as does its rollback; all other work there waits in line. It
//! ends like any transaction: one commit record, and every partition is notified.
//!
//! Invariants
//! 1. It has exclusive access to a partition only while the engine works for it. A session that has
//!    to wait for its client says so ([`Client::release_exclusive`]). Then, and when the engine has
//!    to wait for the disk or for a lock, the transaction keeps locks on what it has used.
//! 2. What the session announces is advice. A statement that goes to another partition, or is of
//!    another kind, gives up all partitions and uses locks.
//! 3. Below SERIALIZABLE it requests partitions only if each of its statements concerns single rows
//!    by their keys. If it is refused, its isolation level applies as in any block. At REPEATABLE
//!    READ it reads the newest state, first under the partition and then under locks, and so is
//!    serializable.
//!
//! Locking: none of its own. A crash leaves the state in the log.
//!
//! Source: Jones, Abadi, Madden, SIGMOD 2010, section 4.1.

use crate::client::{Client, Running};
use crate::core::{Arrival, Block, Core};
use crate::engine::Engine;
use crate::multi;
use crate::outcome::{Step, Stop, stopped};
use crate::protocol::{AccessRequest, Coordination};
use crate::snapshot::{Needs, View};
use crate::statement::{controls, has_more_work, writes};
use clearway_ir::program::Env;
use clearway_ir::statement::{Insert, Isolation, Query, Route, Source};
use clearway_ir::{Distribution, Expr, OnConflict, Plan, Program, Statement};
use clearway_partition::ExclusiveAccess;
use clearway_types::{PartitionId, SqlResult};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Maximum number of partitions that it requests. A transaction that needs more uses locks.
const MOST: usize = 16;

/// What is known of a transaction before it begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Whole {
    /// The partitions of its statements, in any order.
    pub partitions: Vec<PartitionId>,
    /// One of the statements changes or locks rows.
    pub writes: bool,
    /// Each statement concerns single rows by their keys.
    pub points: bool,
}

impl Whole {
    /// Creates an announcement without statements.
    pub fn new() -> Self {
        Self { partitions: Vec::new(), writes: false, points: true }
    }
}

/// Adds the partitions of a transaction's statement. Returns false if they are not known before it
/// runs, or if the statement may not run without locks.
pub fn reach(whole: &mut Whole, engine: &Engine, plan: &Plan, env: &Env) -> bool {
    let here = match &plan.statement {
        Statement::Query(Query { source: Source::Rows(_) | Source::Series { .. }, .. }) => {
            return true;
        }
        Statement::Query(Query { source: Source::Table { program, route }, .. }) => {
            program_reach(whole, engine, program, route, env)
        }
        Statement::Modify { program, route } if !has_more_work(program) => {
            program_reach(whole, engine, program, route, env)
        }
        Statement::Insert(insert) => insert_reach(whole, engine, insert, env),
        statement => return controls(statement) || matches!(statement, Statement::Explain(_)),
    };
    whole.writes |= writes(&plan.statement);
    // What cannot be evaluated fails when the statement runs.
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
    // A row without a distribution key goes where its transaction is.
    let Distribution::Hash(key) = &insert.table.distribution else { return Ok(true) };
    for row in rows {
        // The statement evaluates the values again, and may find others or have effects.
        if !key.iter().all(|column| row.get(*column).is_some_and(Expr::is_constant)) {
            return Ok(false);
        }
        let partition = insert.table.partition_of_values(row, env, engine.partitions())?;
        partition.into_iter().for_each(|p| whole.add(p));
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

/// A transaction that is requesting its partitions before its first statement.
pub(crate) struct Acquiring {
    pub(crate) answer: Pin<Box<dyn Future<Output = Result<(), Stop>>>>,
    plan: Arc<Plan>,
    env: Arc<Env>,
}

/// Returns true if the transaction should request its partitions before this statement.
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
    let fits = core.engine().schemes().exclusive(&whole.partitions) != ExclusiveAccess::Never
        && txn.block != Block::None
        && txn.protocol.participants().is_empty()
        // Savepoint marks are set at a partition before its statements.
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

/// Requests the transaction's partitions. While others hold locks there for a short time, waits
/// until they have ended and requests again.
async fn acquire(core: &Core) -> Result<(), Stop> {
    let Arrival::Whole(whole) = std::mem::take(&mut core.txn().arrival) else { return Ok(()) };
    let mut partitions = whole.partitions;
    partitions.sort_unstable();
    let request = AccessRequest { partitions: &partitions, awaits_quiet: true, one_round: false };
    if multi::acquire(core, request).await? {
        let mut txn = core.txn();
        if txn.characteristics.isolation == Isolation::RepeatableRead {
            txn.view = View::Newest;
        }
    }
    // The first statement begins now. Its first message is sent without a check.
    Ok(core.check_cancelled()?)
}

/// Gives up exclusive access because the transaction waits for its client or for a lock. It keeps
/// locks on what it has used, so that only conflicting work waits for its end.
pub(crate) fn release_exclusive(core: &Core) {
    if core.txn().protocol.is_short() {
        multi::tell(core, Coordination::await_client);
    }
}

impl Client {
    /// Announces what is known of the transaction that the next statement may begin: it has arrived
    /// whole. `None`: nothing is known.
    pub fn announce(&mut self, whole: Option<Whole>) {
        self.core.announce(whole);
    }

    /// Returns true if a transaction is open, so that the next statement cannot begin one.
    pub fn in_transaction(&self) -> bool {
        self.core.txn().is_open()
    }

    /// Tells the engine that the session has to wait for its client, or for anything else that the
    /// engine does not control.
    pub fn release_exclusive(&mut self) {
        release_exclusive(&self.core);
    }

    pub(crate) fn acquire_partitions(&mut self, plan: &Arc<Plan>, env: &Arc<Env>) -> Step {
        let core = self.core.clone();
        let answer = Box::pin(async move { acquire(&core).await });
        self.poll_acquiring(Acquiring { answer, plan: plan.clone(), env: env.clone() })
    }

    pub(crate) fn poll_acquiring(&mut self, mut acquiring: Acquiring) -> Step {
        match acquiring.answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => {
                self.running = Running::Acquiring(acquiring);
                Step::Pending
            }
            Poll::Ready(Ok(())) => self.go(&acquiring.plan, &acquiring.env),
            Poll::Ready(Err(stop)) => self.failed(stopped(stop)),
        }
    }
}
