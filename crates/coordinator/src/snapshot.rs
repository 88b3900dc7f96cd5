//! What a transaction sees: the newest state, under locks, or a snapshot, without.
//!
//! Blocks that are READ ONLY or below SERIALIZABLE see snapshots: at REPEATABLE READ and above one
//! for the whole transaction, opened by its first statement that is not a change of one row by its
//! key; below one for each statement that is about more than one row. So does a statement on its
//! own that only reads, unless a partition can answer it at once. The commit record that a snapshot
//! ends with is a reader's place in the serial order.
//!
//! Invariants
//! 1. A SERIALIZABLE transaction that has read under locks, or changed something, sees no snapshot
//!    any more: its reads would be those of two places in the serial order.
//! 2. Before a snapshot's LSN is read, every partition keeps versions
//!    (`clearway_partition::Snapshots`). Where one cannot, since the undo of a large transaction is
//!    in the log only, the transaction reads under locks.
//!
//! Locking: none of its own. A crash leaves nothing.

use crate::core::{Block, Core, Txn};
use crate::exports::Exported;
use crate::outcome::Stop;
use crate::stream::{self, Rows};
use crate::txn::{everywhere, settle, table_of};
use clearway_ir::program::Env;
use clearway_ir::statement::{Isolation, Query, Route, Source};
use clearway_ir::{Access, GlobalIndexOp, IndexDef, Path, Program, RowLock, TableDef};
use clearway_partition::{Batch, Body, COMMITTED, Failure, Snapshot};
use clearway_sync::canary::{self, Bug};
use clearway_types::{Lsn, RowBatch, SqlError, SqlResult, SqlState, TxnId};
use std::sync::{Arc, Weak};

/// What the transaction reads.
#[derive(Default)]
pub(crate) enum View {
    /// It has read nothing.
    #[default]
    Undecided,
    /// What is newest, under locks.
    Newest,
    /// What was committed then.
    AsOf(Arc<Snapshot>),
    /// Each statement another snapshot, and none now.
    Between,
}

impl Txn {
    /// Whether this statement is to see a snapshot that is not open yet.
    pub(crate) fn wants_snapshot(&self, needs: Needs) -> bool {
        let level = self.characteristics.isolation;
        let fits = match level {
            // On its own, it is serialisable at every level: what changes rows, or inserts what it
            // reads, finds them under locks.
            _ if self.block == Block::None => {
                needs == Needs::Export || needs == Needs::Snapshot && self.only_reads()
            }
            Isolation::Serializable => self.characteristics.read_only && !self.wrote,
            Isolation::RepeatableRead => needs != Needs::Locks,
            _ => needs.has_snapshot(),
        };
        fits && match self.view {
            View::Undecided => level < Isolation::Serializable || self.id == TxnId(0),
            View::Between => true,
            View::AsOf(_) => self.sees_each(),
            View::Newest => false,
        }
    }

    /// A statement begins that wants no snapshot, or has it.
    pub(crate) fn settle(&mut self, needs: Needs) {
        match self.view {
            View::Undecided if self.characteristics.isolation == Isolation::Serializable => {
                self.view = View::Newest
            }
            View::AsOf(_) if self.sees_each() && !needs.has_snapshot() => self.view = View::Between,
            _ => {}
        }
    }

    /// Whether each of its statements sees a snapshot of its own.
    pub(crate) fn sees_each(&self) -> bool {
        self.characteristics.isolation < Isolation::RepeatableRead
    }

    pub(crate) fn snapshot(&self) -> Option<Arc<Snapshot>> {
        match &self.view {
            View::AsOf(snapshot) => Some(snapshot.clone()),
            _ => None,
        }
    }

    /// What such a statement sees; `None`: what is newest, under locks.
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

    /// Returns true for a statement on its own that changes nothing.
    fn only_reads(&self) -> bool {
        !self.wrote || canary::on(Bug::SnapshotCopy)
    }

    /// Whether it reads single rows as they are committed, without a lock.
    fn sees_committed(&self) -> bool {
        match self.block {
            Block::None => self.only_reads(),
            Block::Implicit | Block::Explicit => self.sees_each(),
        }
    }

    /// Whether an UPDATE of it may change rows whose last change is not committed.
    pub(crate) fn goes_behind(&self, program: &Program) -> bool {
        matches!(program, Program::Update { .. }) && self.block != Block::None && self.sees_each()
    }

    /// Its statement is suspended: below REPEATABLE READ that alone keeps its snapshot.
    pub(crate) fn suspend_view(&mut self) {
        if let Some(snapshot) = self.snapshot().filter(|_| self.sees_each()) {
            self.held.retain(|held| held.strong_count() > 0);
            self.held.push(Arc::downgrade(&snapshot));
            self.view = View::Between;
        }
    }

    /// The oldest snapshot that it has open, and whether it may outlast the statement that runs.
    pub(crate) fn open_snapshot(&self) -> Option<(Lsn, bool)> {
        let own = self.snapshot().map(|snapshot| (snapshot.lsn(), !self.sees_each()));
        let exported = self.exported.iter().filter_map(Exported::snapshot);
        let held = self.held.iter().filter_map(Weak::upgrade);
        exported.chain(held).map(|snapshot| (snapshot.lsn(), true)).chain(own).min()
    }
}

/// What a statement sees that is not what is newest, and its own transaction's changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sees {
    /// As [`Body::StatementAt::at`].
    at: Option<Lsn>,
    /// As [`Body::StatementAt::repeatable`].
    repeatable: bool,
}

/// What a statement reads, for who judges its answer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum ReadAt {
    /// What was newest, under locks.
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

/// What a statement of a transaction below SERIALIZABLE reads by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// A snapshot.
    Snapshot,
    /// A snapshot that is to be exported: it reads no rows.
    Export,
    /// A snapshot for finding what it changes or locks, if that is still as it is to be.
    Recheck,
    /// It reads one row by its key at the one partition that can have it. At READ COMMITTED it sees
    /// what is committed there.
    Committed,
    /// The lock of the one row that it is about is enough, or it reads nothing.
    Locks,
}

impl Needs {
    /// Whether it sees a snapshot below REPEATABLE READ, too.
    fn has_snapshot(self) -> bool {
        matches!(self, Self::Snapshot | Self::Export | Self::Recheck)
    }

    /// `route`: to the partitions that the program runs at.
    pub(crate) fn of(program: &Program, route: &Route) -> Self {
        match (Self::at_home(program), route) {
            (Self::Recheck, Route::GlobalIndex { .. }) => Self::Locks,
            (Self::Committed, Route::GlobalIndex { .. } | Route::All) => Self::Snapshot,
            (needs, _) => needs,
        }
    }

    /// Of a program that runs at the one partition that its key leads to.
    pub(crate) fn at_home(program: &Program) -> Self {
        let access = match program {
            Program::Scan { access, .. }
            | Program::Update { access, .. }
            | Program::Delete { access, .. } => access,
            Program::Insert { .. } | Program::BuildIndex { .. } | Program::GlobalIndex { .. } => {
                return Self::Locks;
            }
        };
        match (&access.path, reads(program)) {
            (Path::Point(_), true) => Self::Committed,
            (Path::Point(_), false) => Self::Locks,
            (_, true) => Self::Snapshot,
            (_, false) => Self::Recheck,
        }
    }
}

/// Whether it neither changes nor locks what it finds.
fn reads(program: &Program) -> bool {
    matches!(program, Program::Scan { access, .. } if access.lock.is_none())
}

/// A query whose rows the client is to have.
pub(crate) async fn read(core: &Core, query: &Query, env: &Arc<Env>) -> Result<Rows, Stop> {
    seeing(core, &query.source, stream::select(core, query, env)).await
}

/// Does what a statement does that reads this, with the snapshot that it is to see.
pub(crate) async fn seeing<T>(
    core: &Core,
    source: &Source,
    work: impl Future<Output = Result<T, Stop>>,
) -> Result<T, Stop> {
    match source {
        Source::Table { program, route } => seeing_rows(core, program, route, work).await,
        Source::ExportSnapshot => seeing_at(core, Needs::Export, work).await,
        _ => work.await,
    }
}

/// As [`seeing`], of rows of a table.
pub(crate) async fn seeing_rows<T>(
    core: &Core,
    program: &Program,
    route: &Route,
    work: impl Future<Output = Result<T, Stop>>,
) -> Result<T, Stop> {
    seeing_at(core, Needs::of(program, route), work).await
}

async fn seeing_at<T>(
    core: &Core,
    needs: Needs,
    work: impl Future<Output = Result<T, Stop>>,
) -> Result<T, Stop> {
    begin(core, needs).await?;
    // The client may take its time for the rows, and run other statements meanwhile, which end this
    // one's view.
    let held = core.txn().snapshot().filter(|_| !canary::on(Bug::UnheldCursor));
    let done = work.await;
    drop(held);
    end(core);
    done
}

/// A statement is about to run: opens a snapshot for it, if it is to see one.
async fn begin(core: &Core, needs: Needs) -> Result<(), Failure> {
    if !core.txn().wants_snapshot(needs) {
        let mut txn = core.txn();
        txn.settle(needs);
        core.read_at.set(ReadAt::of(txn.sees(needs)));
        return Ok(());
    }
    // Its own rows may rest on transactions that are not committed yet: the snapshot has to see all
    // that these have done.
    settle(core).await?;
    let opening = core.engine().snapshots().begin();
    if let Some(generation) = opening.generation() {
        let kept =
            everywhere(core, core.engine().all(), |_| Body::KeepVersions(generation)).await?;
        if kept.iter().any(|reply| reply.count == 0) {
            core.txn().view = View::Newest;
            return Ok(());
        }
    }
    let snapshot = opening.open(|| core.engine().appended());
    core.read_at.set(ReadAt::Snapshot(snapshot.lsn()));
    core.txn().view = View::AsOf(Arc::new(snapshot));
    Ok(())
}

/// The statement is over: below REPEATABLE READ the next one sees another snapshot.
fn end(core: &Core) {
    let mut txn = core.txn();
    if txn.sees_each() && !matches!(txn.view, View::Undecided) {
        txn.view = View::Between;
    }
}

/// What a partition is told of a statement.
pub(crate) struct Work<'a> {
    pub program: &'a Arc<Program>,
    pub env: &'a Arc<Env>,
    pub rows: Option<RowBatch>,
    pub batch: Option<Batch>,
    /// As [`Body::Statement::fresh`].
    pub fresh: bool,
    /// As [`Body::Statement::learns`].
    pub learns: bool,
    /// As [`Body::Statement::goes_behind`].
    pub goes_behind: bool,
}

impl Work<'_> {
    /// The message; `sees`: [`Txn::sees`].
    pub(crate) fn body(self, sees: Option<Sees>) -> Body {
        let Self { program, env, rows, batch, fresh, learns, goes_behind } = self;
        let (program, env) = (program.clone(), env.clone());
        let batch = batch.unwrap_or(Batch::ALL);
        // What this transaction has made nobody else changes. A global index may lack keys of rows
        // that its snapshot has.
        let lacks = matches!(
            *program,
            Program::GlobalIndex { op: GlobalIndexOp::Find { .. } | GlobalIndexOp::Clash, .. }
        );
        match sees.filter(|sees| looks(&program, *sees) && (!fresh || lacks && sees.repeatable)) {
            Some(Sees { at, repeatable }) => {
                let at = at.unwrap_or(COMMITTED);
                Body::StatementAt { at, repeatable, program, env, rows, batch }
            }
            None => Body::Statement { program, env, rows, batch, fresh, learns, goes_behind },
        }
    }
}

/// Whether the statement sees a snapshot that is older than the committed catalog.
pub(crate) fn is_past(core: &Core, sees: Option<Sees>) -> bool {
    sees.and_then(|sees| sees.at).is_some_and(|at| at < core.engine().catalog_commit())
}

/// The program for a statement that sees this. If the table has got new trees since the snapshot,
/// by TRUNCATE, a read goes to the old ones. None: the program is good as it is.
///
/// # Errors
/// 40001 for what changes or locks rows of such a table, and for a table whose rows have been put
/// under another key.
pub(crate) fn program_at(
    core: &Core,
    program: &Program,
    sees: Option<Sees>,
) -> SqlResult<Option<Arc<Program>>> {
    let Some(at) = sees.and_then(|sees| sees.at).filter(|_| is_past(core, sees)) else {
        return Ok(None);
    };
    let table = table_of(program);
    // A plan that is older than the snapshot is stale, which the partitions say.
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

/// The table with the trees that it had then. Indexes that were not there keep theirs, which are
/// newer than the snapshot.
fn with_trees(table: &TableDef, then: &TableDef) -> TableDef {
    let TableDef { tree, version, primary_key_global_index, .. } = *then;
    let mut table = TableDef { tree, version, primary_key_global_index, ..table.clone() };
    for index in &mut table.indexes {
        if let Some(IndexDef { tree, global_index, .. }) =
            then.indexes.iter().find(|i| i.name == index.name)
        {
            (index.tree, index.global_index) = (*tree, *global_index);
        }
    }
    table
}

/// Whether it finds what it reads or changes, or is to fail where its snapshot does not have what
/// it finds, or has what it would hide.
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
