//! What a transaction sees: the newest state, under locks, or a snapshot, without locks.
//!
//! Blocks that are READ ONLY or below SERIALIZABLE see snapshots. At REPEATABLE READ and above
//! there is one for the whole transaction, opened by its first statement that is not a change of
//! one row by its key. Below that, each statement on more than one row opens its own. So does a
//! single statement that only reads, unless one partition can answer it at once. The commit record
//! with which a snapshot ends is the reader's place in the serial order.
//!
//! Invariants
//! 1. A SERIALIZABLE transaction that has read under locks, or changed something, gets no snapshot
//!    afterwards: its reads would have two places in the serial order.
//! 2. Every partition keeps versions before a snapshot's LSN is read
//!    (`clearway_partition::Snapshots`). If one cannot, because the undo of a large transaction is
//!    only in the log, a statement that reads the whole of a table used by it waits for its end and
//!    tries again. Another statement reads under locks, and so does its transaction from then on.
//!
//! Locking: none of its own. A crash leaves nothing.

use crate::core::{Block, Core, Txn};
use crate::exports::Exported;
use crate::outcome::Stop;
use crate::stream::{self, Rows};
use crate::txn::{everywhere, prepare_to_read, table_of};
use clearway_ir::program::Env;
use clearway_ir::statement::{Isolation, Query, Route, Source};
use clearway_ir::{Access, GlobalIndexOp, IndexDef, Path, Program, RowLock, TableDef};
use clearway_partition::{Batch, Body, COMMITTED, Failure, Opening, Snapshot};
use clearway_sync::canary::{self, Bug};
use clearway_types::{Lsn, PartitionId, RowBatch, SqlError, SqlResult, SqlState, TableId, TxnId};
use std::sync::{Arc, Weak};

/// Maximum number of times that a statement tries to open a snapshot beside large transactions.
const ROUNDS: usize = 8;

/// What the transaction reads.
#[derive(Default)]
pub(crate) enum View {
    /// It has read nothing yet.
    #[default]
    Undecided,
    /// The newest state, under locks.
    Newest,
    /// The state committed at this snapshot.
    AsOf(Arc<Snapshot>),
    /// A new snapshot per statement, and none at the moment.
    Between,
}

impl Txn {
    /// Returns true if this statement needs a snapshot that is not open yet.
    pub(crate) fn wants_snapshot(&self, needs: Needs) -> bool {
        let level = self.characteristics.isolation;
        let fits = match level {
            // A single statement is serializable at every level: if it changes rows, or inserts
            // what it reads, it finds them under locks.
            _ if self.block == Block::None => {
                needs == Needs::Export || needs == Needs::Snapshot && self.only_reads()
            }
            Isolation::Serializable => self.stays_read_only() && !self.protocol.has_written(),
            Isolation::RepeatableRead => needs != Needs::Locks,
            _ => needs.has_snapshot(),
        };
        fits && match self.view {
            View::Undecided => level < Isolation::Serializable || self.protocol.id() == TxnId(0),
            View::Between => true,
            View::AsOf(_) => self.sees_each(),
            View::Newest => false,
        }
    }

    /// Returns true if the transaction is READ ONLY until its end: READ ONLY that was set after a
    /// savepoint ends with RELEASE or ROLLBACK TO.
    fn stays_read_only(&self) -> bool {
        self.characteristics.read_only
            && self.savepoints.iter().all(|savepoint| savepoint.characteristics.read_only)
    }

    /// Prepares for a statement that needs no new snapshot.
    pub(crate) fn settle(&mut self, needs: Needs) {
        match self.view {
            View::Undecided if self.characteristics.isolation == Isolation::Serializable => {
                self.view = View::Newest
            }
            View::AsOf(_) if self.sees_each() && !needs.has_snapshot() => self.view = View::Between,
            _ => {}
        }
    }

    /// Returns true if each of its statements sees a snapshot of its own.
    pub(crate) fn sees_each(&self) -> bool {
        self.characteristics.isolation < Isolation::RepeatableRead
    }

    pub(crate) fn snapshot(&self) -> Option<Arc<Snapshot>> {
        match &self.view {
            View::AsOf(snapshot) => Some(snapshot.clone()),
            _ => None,
        }
    }

    /// Returns what such a statement sees. `None`: the newest state, under locks.
    pub(crate) fn sees(&self, needs: Needs) -> Option<Sees> {
        match &self.view {
            View::AsOf(snapshot) => {
                Some(Sees { at: Some(snapshot.lsn()), repeatable: !self.sees_each() })
            }
            _ if needs == Needs::Committed && self.sees_committed() => {
                Some(Sees { at: None, repeatable: false })
            }
            _ => None,
        }
    }

    /// Returns true for a single statement that changes nothing.
    fn only_reads(&self) -> bool {
        !self.protocol.has_written() || canary::on(Bug::SnapshotCopy)
    }

    /// Returns true if it reads single rows in their committed state, without a lock.
    fn sees_committed(&self) -> bool {
        match self.block {
            Block::None => self.only_reads(),
            Block::Implicit | Block::Explicit => self.sees_each(),
        }
    }

    /// Returns true if such a statement of a block reads without locks, and not the snapshot of the
    /// whole block.
    pub(crate) fn reads_freely(&self, needs: Needs) -> bool {
        self.block != Block::None && self.sees_each() && needs != Needs::Locks
    }

    /// Returns true if its UPDATE may add to a row concurrently with others.
    pub(crate) fn may_add(&self) -> bool {
        self.characteristics.isolation != Isolation::RepeatableRead
    }

    /// Returns true if its UPDATE may change rows whose last change is not committed.
    pub(crate) fn may_use_retired(&self, program: &Program) -> bool {
        matches!(program, Program::Update { .. })
            && self.block != Block::None
            && self.sees_each()
            && !self.deadlocked
    }

    /// Records that its statement is suspended. Below REPEATABLE READ only that statement keeps the
    /// snapshot.
    pub(crate) fn suspend_view(&mut self) {
        if let Some(snapshot) = self.snapshot().filter(|_| self.sees_each()) {
            self.held.retain(|held| held.strong_count() > 0);
            self.held.push(Arc::downgrade(&snapshot));
            self.view = View::Between;
        }
    }

    /// Returns its oldest open snapshot, and whether it may outlive the running statement.
    pub(crate) fn open_snapshot(&self) -> Option<(Lsn, bool)> {
        let own = self.snapshot().map(|snapshot| (snapshot.lsn(), !self.sees_each()));
        let exported = self.exported.iter().filter_map(Exported::snapshot);
        let held = self.held.iter().filter_map(Weak::upgrade);
        exported.chain(held).map(|snapshot| (snapshot.lsn(), true)).chain(own).min()
    }
}

/// What a statement sees, apart from its own transaction's changes, if not the newest state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sees {
    /// See [`Body::StatementAt::at`].
    at: Option<Lsn>,
    /// See [`Body::StatementAt::repeatable`].
    repeatable: bool,
}

/// What a statement read, for judging its answer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum ReadAt {
    /// The newest state, under locks.
    #[default]
    Newest,
    Snapshot(Lsn),
    /// All that was committed when its partition answered.
    Reply,
}

impl ReadAt {
    pub(crate) fn of(sees: Option<Sees>) -> Self {
        match sees {
            None => Self::Newest,
            Some(Sees { at: Some(at), .. }) => Self::Snapshot(at),
            Some(Sees { at: None, .. }) => Self::Reply,
        }
    }
}

/// How a statement of a transaction below SERIALIZABLE reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// By a snapshot.
    Snapshot,
    /// By a snapshot to be exported: it reads no rows.
    Export,
    /// By a snapshot, to find what it changes or locks if that still qualifies.
    Recheck,
    /// It reads one row by its key at the only partition that can have it. At READ COMMITTED it
    /// sees the committed state there.
    Committed,
    /// By the lock of the only row that it concerns, or it reads nothing.
    Locks,
}

impl Needs {
    /// Returns true if it sees a snapshot below REPEATABLE READ, too.
    fn has_snapshot(self) -> bool {
        matches!(self, Self::Snapshot | Self::Export | Self::Recheck)
    }

    /// Classifies a program; `route` leads to the partitions where it runs.
    pub(crate) fn of(program: &Program, route: &Route) -> Self {
        match (Self::at_home(program), route) {
            (Self::Recheck, Route::GlobalIndex { .. }) => Self::Locks,
            (Self::Committed, Route::GlobalIndex { .. } | Route::All) => Self::Snapshot,
            (needs, _) => needs,
        }
    }

    /// Classifies a program that runs at the only partition to which its key leads.
    pub(crate) fn at_home(program: &Program) -> Self {
        let Some(access) = program.access() else { return Self::Locks };
        match (&access.path, reads(program)) {
            (Path::Point(_), true) => Self::Committed,
            (Path::Point(_), false) => Self::Locks,
            (_, true) => Self::Snapshot,
            (_, false) => Self::Recheck,
        }
    }
}

/// Returns true if the program neither changes nor locks what it finds.
fn reads(program: &Program) -> bool {
    matches!(program, Program::Scan { access, .. } if access.lock.is_none())
}

/// Runs a query whose rows go to the client.
pub(crate) async fn read(core: &Core, query: &Query, env: &Arc<Env>) -> Result<Rows, Stop> {
    seeing(core, &query.source, stream::select(core, query, env)).await
}

/// Runs a statement's work on this source, with the snapshot that it needs.
pub(crate) async fn seeing<T>(
    core: &Core,
    source: &Source,
    work: impl Future<Output = Result<T, Stop>>,
) -> Result<T, Stop> {
    match source {
        Source::Table { program, route } => seeing_rows(core, program, route, work).await,
        Source::ExportSnapshot => seeing_at(core, Needs::Export, None, work).await,
        _ => work.await,
    }
}

/// Like [`seeing`], for rows of a table.
pub(crate) async fn seeing_rows<T>(
    core: &Core,
    program: &Program,
    route: &Route,
    work: impl Future<Output = Result<T, Stop>>,
) -> Result<T, Stop> {
    seeing_at(core, Needs::of(program, route), read_whole(program), work).await
}

/// Returns the table of which the program reads all rows.
fn read_whole(program: &Program) -> Option<TableId> {
    let access = program.access().filter(|access| matches!(access.path, Path::Full));
    access.map(|access| access.table.id)
}

async fn seeing_at<T>(
    core: &Core,
    needs: Needs,
    whole: Option<TableId>,
    work: impl Future<Output = Result<T, Stop>>,
) -> Result<T, Stop> {
    begin(core, needs, whole).await?;
    // The client may take its time with the rows, and run other statements meanwhile, which end
    // this one's view.
    let held = core.txn().snapshot().filter(|_| !canary::on(Bug::UnheldCursor));
    let done = work.await;
    drop(held);
    end(core);
    done
}

/// Begins a statement: opens a snapshot for it, if it needs one. `whole` is the table of which it
/// reads all rows.
async fn begin(core: &Core, needs: Needs, whole: Option<TableId>) -> Result<(), Failure> {
    if core.txn().reads_freely(needs) {
        prepare_to_read(core).await?;
    }
    if !core.txn().wants_snapshot(needs) {
        let mut txn = core.txn();
        txn.settle(needs);
        core.read_at.set(ReadAt::of(txn.sees(needs)));
        return Ok(());
    }
    let rows = core.txn().rows;
    let opening = opening(core, whole).await?;
    // The replies counted no rows.
    core.txn().rows = rows;
    let Some(opening) = opening else {
        core.txn().view = View::Newest;
        return Ok(());
    };
    let snapshot = opening.open(|| core.engine().appended());
    core.read_at.set(ReadAt::Snapshot(snapshot.lsn()));
    core.txn().view = View::AsOf(Arc::new(snapshot));
    Ok(())
}

/// Makes every partition keep versions; `None` if one cannot.
async fn opening(core: &Core, whole: Option<TableId>) -> Result<Option<Opening>, Failure> {
    for _ in 0..ROUNDS {
        let opening = core.engine().snapshots().begin();
        let Some(generation) = opening.generation() else { return Ok(Some(opening)) };
        let kept =
            everywhere(core, core.engine().all(), |_| Body::KeepVersions(generation)).await?;
        let refused = core.engine().all().zip(&kept).filter(|(_, reply)| reply.count == 0);
        let refused: Vec<PartitionId> = refused.map(|(partition, _)| partition).collect();
        if refused.is_empty() {
            return Ok(Some(opening));
        }
        let Some(table) = whole else { return Ok(None) };
        // While a snapshot is being opened, no version is dropped.
        drop(opening);
        let waited = everywhere(core, refused, |_| Body::AwaitLarge(table)).await?;
        if waited.iter().any(|reply| reply.count == 0) {
            return Ok(None);
        }
    }
    Ok(None)
}

/// Ends a statement: below REPEATABLE READ the next one sees another snapshot.
fn end(core: &Core) {
    let mut txn = core.txn();
    if txn.sees_each() && !matches!(txn.view, View::Undecided) {
        txn.view = View::Between;
    }
}

/// A statement's message to a partition.
pub(crate) struct Work<'a> {
    pub program: &'a Arc<Program>,
    pub env: &'a Arc<Env>,
    pub rows: Option<RowBatch>,
    pub batch: Option<Batch>,
    /// See [`Body::Statement::fresh`].
    pub fresh: bool,
    /// See [`Body::Statement::learns`].
    pub learns: bool,
    /// See [`Body::Statement::may_use_retired`].
    pub may_use_retired: bool,
    /// See [`Body::Statement::may_add`].
    pub may_add: bool,
    /// See [`Body::Statement::optimistic`].
    pub optimistic: bool,
}

impl<'a> Work<'a> {
    /// Returns a statement without rows, in one batch, that nothing else is known about.
    pub(crate) fn plain(program: &'a Arc<Program>, env: &'a Arc<Env>) -> Self {
        Self {
            program,
            env,
            rows: None,
            batch: None,
            fresh: false,
            learns: false,
            may_use_retired: false,
            may_add: false,
            optimistic: false,
        }
    }

    /// Builds the message; `sees` is from [`Txn::sees`].
    pub(crate) fn body(self, sees: Option<Sees>) -> Body {
        let Self { program, env, rows, batch, fresh, learns, may_use_retired, may_add, optimistic } =
            self;
        let (program, env) = (program.clone(), env.clone());
        let batch = batch.unwrap_or(Batch::ALL);
        // No other transaction changes what this one has created. A global index may lack keys of
        // rows that its snapshot has.
        let lacks = matches!(
            *program,
            Program::GlobalIndex { op: GlobalIndexOp::Find { .. } | GlobalIndexOp::Clash, .. }
        );
        match sees.filter(|sees| looks(&program, *sees) && (!fresh || lacks && sees.repeatable)) {
            Some(Sees { at, repeatable }) => {
                let at = at.unwrap_or(COMMITTED);
                Body::StatementAt { at, repeatable, program, env, rows, batch }
            }
            None => Body::Statement {
                program,
                env,
                rows,
                batch,
                fresh,
                learns,
                may_use_retired,
                may_add,
                optimistic,
            },
        }
    }
}

/// Returns true if the statement sees a snapshot older than the committed catalog.
pub(crate) fn is_past(core: &Core, sees: Option<Sees>) -> bool {
    sees.and_then(|sees| sees.at).is_some_and(|at| at < core.engine().catalog_commit())
}

/// Returns the program for a statement that sees this snapshot. If TRUNCATE has given the table new
/// trees since, a read uses the old ones. `None`: the program can be used as it is.
///
/// # Errors
/// 40001 for a statement that changes or locks rows of such a table, and for a table whose rows
/// have been moved under another key.
pub(crate) fn program_at(
    core: &Core,
    program: &Program,
    sees: Option<Sees>,
) -> SqlResult<Option<Arc<Program>>> {
    let Some(at) = sees.and_then(|sees| sees.at).filter(|_| is_past(core, sees)) else {
        return Ok(None);
    };
    let table = table_of(program);
    // A plan that is older than the snapshot is stale; the partitions detect that.
    let then = core.engine().past().table(table, at);
    let Some(then) = then.filter(|then| then.tree != table.tree && then.version < table.version)
    else {
        return Ok(None);
    };
    let is_free = match program {
        Program::GlobalIndex { op, .. } => {
            matches!(op, GlobalIndexOp::Find { lock: RowLock::Share, .. })
        }
        program => reads(program),
    };
    if !is_free || then.primary_key != table.primary_key {
        let text = "could not serialize access: the table has been emptied or rewritten since the snapshot";
        let error =
            SqlError::new(SqlState::SERIALIZATION_FAILURE, text).hint("Run the transaction again.");
        return Err(error.table(&table.name));
    }
    let mut program = program.clone();
    if let Program::GlobalIndex { table, .. } | Program::Scan { access: Access { table, .. }, .. } =
        &mut program
    {
        *table = Arc::new(with_trees(table, &then));
    }
    Ok(Some(Arc::new(program)))
}

/// Returns the table with its trees as of that time. Indexes that did not exist keep theirs, which
/// are newer than the snapshot. One of the same name may have had other columns.
fn with_trees(table: &TableDef, then: &TableDef) -> TableDef {
    let TableDef { tree, version, primary_key_global_index, .. } = *then;
    let mut table = TableDef { tree, version, primary_key_global_index, ..table.clone() };
    for index in &mut table.indexes {
        let same = |then: &&IndexDef| {
            (&then.name, &then.columns, then.unique) == (&index.name, &index.columns, index.unique)
        };
        if let Some(IndexDef { tree, global_index, .. }) = then.indexes.iter().find(same) {
            (index.tree, index.global_index) = (*tree, *global_index);
        }
    }
    table
}

/// Returns true if the program searches for what it reads or changes, or must fail if the snapshot
/// lacks what it finds, or has what it would hide.
fn looks(program: &Program, sees: Sees) -> bool {
    match program {
        Program::Scan { .. } | Program::Update { .. } | Program::Delete { .. } => true,
        Program::GlobalIndex { op: GlobalIndexOp::Find { .. } | GlobalIndexOp::Clash, .. } => true,
        Program::GlobalIndex { op: GlobalIndexOp::Insert, .. } | Program::Insert { .. } => {
            sees.repeatable
        }
        Program::GlobalIndex { op: GlobalIndexOp::Delete, .. } | Program::BuildIndex { .. } => {
            false
        }
    }
}
