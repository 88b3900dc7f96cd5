//! Runs programs row by row. A run stops where a page or a lock is missing, and later resumes
//! there.
//!
//! Invariants
//! 1. An [`Exec`] that stopped for a reason other than [`Stop::Fail`] has executed whole steps
//!    only: the next run resumes with the step that it stopped at. A row's change may consist of
//!    several steps (its table, its indexes); they are noted before the first is executed.
//! 2. With [`Locking::Take`], whatever was read before a stop, and is relied on after it, is
//!    locked. With [`Locking::Record`] it is in the read set, which is locked before the next run.
//! 3. A statement does not see its own changes: keys that it may move ahead of its scan are
//!    collected before the first change.

mod buffers;
mod build;
mod change;
mod fast;
mod global_index;
mod increment;
mod insert;
mod learning;
mod modify;
mod newer;
mod path;
mod raw;
mod recheck;
mod scan;
mod sets;
mod violation;

pub(crate) use buffers::Buffers;
pub(crate) use fast::{Scratch, is_atomic, run_atomic};
pub(crate) use learning::Learning;
pub(crate) use path::{is_blind, push_blind, push_point};
pub(crate) use raw::run_raw;
pub(crate) use sets::AccessSets;
pub use violation::{not_null_violation, satisfies_checks};

use crate::limits::Limits;
use crate::lock::{Acquired, LockTable, Mode, Target, Wait, class};
use crate::message::{Batch, Failure};
use crate::txn::RowKey;
use crate::versioned::Versioned;
use crate::versions::{AsOf, Before, MissingBlock};
use clearway_buffer::MissingPage;
use clearway_ir::program::Env;
use clearway_ir::{Charge, Expr, GlobalIndexOp, LockWait, Path, Program, RowLock, TableDef};
use clearway_storage::{Blocked, LogRead, Trees, TxnMode};
use clearway_sync::canary::{self, Bug};
use clearway_types::{RowBatch, RowView, SqlError, SqlResult, SqlState, TableId, TreeId, TxnId};
use std::panic::Location;
use std::sync::Arc;

/// Why a run stopped.
#[derive(Debug)]
pub(crate) enum Stop {
    /// These pages must be in the pool.
    MissingPage(Vec<MissingPage>),
    /// This part of the log must be read.
    Log(LogRead),
    /// Others must release their locks.
    Wait(Wait),
    /// The transaction is retired on this key and needs its lock again.
    Reclaim(TreeId, Box<[u8]>),
    /// With [`Locking::Check`] or [`Locking::Record`]: another transaction holds a conflicting
    /// lock, or waits for one.
    Conflict,
    /// Its turn is over.
    Slice,
    /// Those before it in the partition's chain must end.
    Ahead,
    /// This transaction is committing. Whether a snapshot sees it is known once this partition has
    /// received its outcome.
    Commit(TxnId),
    /// These blocks of the temporary file must be read.
    Spilled(Vec<MissingBlock>),
    /// It failed.
    Fail(Failure),
}

impl From<Blocked> for Stop {
    #[cold]
    fn from(blocked: Blocked) -> Self {
        match blocked {
            Blocked::MissingPage(pages) => Self::MissingPage(pages),
            Blocked::Log(read) => Self::Log(read),
            Blocked::Failed(e) => Self::Fail(Failure::Sql(e.into())),
        }
    }
}
impl From<SqlError> for Stop {
    #[cold]
    fn from(e: SqlError) -> Self {
        Self::Fail(Failure::Sql(e))
    }
}

/// How a run treats locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locking {
    /// Takes none: no one else is active, or no one else can see the trees.
    None,
    /// Checks that the locks are available; the run ends before another starts.
    Check,
    /// Takes none, and records what is read and changed. The run is validated before another
    /// transaction runs.
    Record,
    /// Takes them.
    Take,
}

/// The context of a run.
pub(crate) struct Cx<'a, T: Trees> {
    pub trees: &'a mut Versioned<T>,
    pub locks: &'a mut LockTable,
    /// For [`Locking::Record`].
    pub sets: &'a mut AccessSets,
    pub txn: TxnId,
    pub log: &'a mut T::Log,
    pub mode: TxnMode,
    pub locking: Locking,
    pub limits: &'a Limits,
    /// `None` for a one-shot, and for a transaction that is not a client's.
    pub learning: Option<Learning<'a>>,
    /// Same as [`crate::txn::Txn::moved`]. `None` if it moves no rows.
    pub moved: Option<&'a mut Vec<RowKey>>,
    /// Rows that it may still visit in this turn.
    pub budget: usize,
    /// The snapshot to read; `None` reads the current state.
    pub as_of: Option<AsOf>,
    /// The program's index or global index lacks rows of the snapshot: they are searched for in the
    /// table itself.
    pub by_table: bool,
    /// The value that an unfinished transaction has replaced under the single key that is read.
    pub replaced: Option<Before>,
    /// Whether it may use rows that retired transactions have changed.
    pub may_use_retired: bool,
    /// Same as [`crate::Body::Statement::may_add`].
    pub may_add: bool,
}

impl<T: Trees> Cx<'_, T> {
    /// Reads the key's value, as of the snapshot if there is one; returns false if it does not
    /// exist.
    fn get(&self, tree: TreeId, key: &[u8], f: &mut dyn FnMut(&[u8])) -> Result<bool, Stop> {
        match (&self.replaced, self.as_of) {
            (Some(before), _) => Ok(before.as_deref().map(f).is_some()),
            (None, None) => Ok(self.trees.get(tree, key, f)?),
            (None, Some(as_of)) => self.trees.get_at(tree, key, as_of, f),
        }
    }

    #[track_caller]
    fn lock(&mut self, target: Target<'_>, mode: Mode) -> Result<(), Stop> {
        match self.locking {
            Locking::None => Ok(()),
            _ if canary::on(Bug::SkippedRangeLock) && matches!(target, Target::Range(..)) => Ok(()),
            Locking::Check
                if canary::on(Bug::UncheckedLock) || self.locks.free(self.txn, target, mode) =>
            {
                class(target, mode).request();
                Ok(())
            }
            Locking::Check => Err(Stop::Conflict),
            Locking::Record => {
                self.sets.read(target, mode);
                Ok(())
            }
            Locking::Take => granted(self.locks.acquire(self.txn, target, mode), target, mode),
        }
    }

    /// Adds a key to the write set before it is changed.
    fn record_write(&mut self, tree: TreeId, key: &[u8], mode: Mode) -> Result<(), Stop> {
        match self.sets.write((self.txn, &*self.locks), (tree, key), mode) {
            true => Ok(()),
            false => Err(Stop::Conflict),
        }
    }

    #[track_caller]
    fn lock_row(
        &mut self,
        table: TableId,
        tree: TreeId,
        key: &[u8],
        mode: Mode,
    ) -> Result<(), Stop> {
        self.lock_in(table, Target::Key(tree, key), mode)
    }

    /// Stops if the transaction is retired on the key: it is to use the row again.
    fn check_retired(&self, tree: TreeId, key: &[u8]) -> Result<(), Stop> {
        match self.locks.is_retired(self.txn, tree, key) {
            true => Err(Stop::Reclaim(tree, key.into())),
            false => Ok(()),
        }
    }

    /// Locks a key or a range of a table; the caller holds the table's intent lock.
    #[track_caller]
    fn lock_in(&mut self, table: TableId, target: Target<'_>, mode: Mode) -> Result<(), Stop> {
        if let Target::Key(tree, key) = target {
            self.check_retired(tree, key)?;
        }
        match self.locking {
            Locking::Take
                if !canary::on(Bug::SkippedRangeLock) || !matches!(target, Target::Range(..)) =>
            {
                granted(self.locks.acquire_in(self.txn, table, target, mode), target, mode)
            }
            _ => self.lock(target, mode),
        }
    }

    /// Locks a key or a range of a table whose intent lock is held; returns false if it must be
    /// skipped.
    #[track_caller]
    fn try_lock_in(
        &mut self,
        table: &TableDef,
        target: Target<'_>,
        mode: Mode,
        wait: LockWait,
    ) -> Result<bool, Stop> {
        if !self.may_request(table, target, mode, wait)? {
            return unavailable(table, wait);
        }
        self.lock_in(table.id, target, mode).map(|()| true)
    }

    /// Locks a table; returns false if all of it must be skipped. NOWAIT and SKIP LOCKED apply to
    /// row locks only: the statement still waits for a change of the table itself, and keeps later
    /// changes waiting until its transaction ends.
    #[track_caller]
    fn try_lock_table(
        &mut self,
        table: &TableDef,
        mode: Mode,
        wait: LockWait,
    ) -> Result<bool, Stop> {
        let whole = Target::Table(table.id);
        if !self.may_request(table, whole, mode, wait)? {
            self.lock(whole, Mode::AccessShared)?;
            return unavailable(table, wait);
        }
        self.lock(whole, mode).map(|()| true)
    }

    /// Returns true if the statement waits for locks, or the lock is free.
    ///
    /// A transaction behind this one may be what makes the lock unavailable. So before the lock is
    /// refused, the statement stops for each lock that its transaction has retired in the table. It
    /// is then tried again without those behind.
    fn may_request(
        &self,
        table: &TableDef,
        target: Target<'_>,
        mode: Mode,
        wait: LockWait,
    ) -> Result<bool, Stop> {
        if wait == LockWait::Wait || self.is_free_in(table, target, mode) {
            return Ok(true);
        }
        match self.locks.first_retired(self.txn, table.tree) {
            Some(key) => Err(Stop::Reclaim(table.tree, key.into())),
            None => Ok(false),
        }
    }

    /// Returns true if a lock is available without waiting.
    fn is_free_in(&self, table: &TableDef, target: Target<'_>, mode: Mode) -> bool {
        let covered = |target, mode| self.locks.covered(self.txn, target, mode);
        self.locking == Locking::None
            || covered(Target::Table(table.id), mode.of_table())
            || covered(target, mode)
            || self.locks.free(self.txn, target, mode)
    }

    /// Records that the row it has just deleted gets another key or another home.
    fn moves(&mut self, tree: TreeId, key: &[u8]) {
        self.trees.versions.moves(self.txn, tree, key);
        if let Some(moved) = &mut self.moved {
            moved.push((tree, key.into()));
        }
    }

    /// Returns true if an UPDATE that only adds may run concurrently with others.
    pub(crate) fn adds_concurrently(&self) -> bool {
        self.may_add
            && self.limits.increments
            && self.locking == Locking::Take
            && self.mode == TxnMode::Logged
    }

    /// Counts a row; stops if the turn is over.
    fn spend(&mut self) -> Result<(), Stop> {
        self.budget = self.budget.checked_sub(1).ok_or(Stop::Slice)?;
        Ok(())
    }
}

/// Handles a lock that is unavailable and must not be waited for.
#[cold]
fn unavailable(table: &TableDef, wait: LockWait) -> Result<bool, Stop> {
    if wait == LockWait::Skip {
        return Ok(false);
    }
    let text = format!("could not obtain lock on row in relation \"{}\"", table.name);
    Err(SqlError::new(SqlState::LOCK_NOT_AVAILABLE, text).into())
}

/// Converts the result of a lock request.
#[track_caller]
pub(crate) fn granted(acquired: Acquired, target: Target<'_>, mode: Mode) -> Result<(), Stop> {
    match acquired {
        Acquired::Granted => Ok(()),
        Acquired::Waits(line) => {
            Err(Stop::Wait(Wait { line, class: class(target, mode), caller: Location::caller() }))
        }
    }
}

/// A program's execution, between its steps.
pub(crate) struct Exec {
    pub program: Arc<Program>,
    pub env: Arc<Env>,
    rows: Option<RowBatch>,
    batch: Batch,
    out: Output,
    work: Work,
    buffers: Option<Box<Buffers>>,
}

/// The output of a run so far.
#[derive(Default)]
struct Output {
    rows: RowBatch,
    count: u64,
    /// The charge for the rows and for what they are computed from.
    charge: Charge,
}

impl Output {
    fn project(&mut self, exprs: &[Expr], row: RowView<'_>, env: &Env) -> SqlResult<()> {
        self.rows
            .try_push_with(|out| exprs.iter().try_for_each(|expr| expr.push_to(out, row, env)))?;
        self.account(0, env)
    }

    /// Returns true if the statement pauses before the next row.
    fn is_full(&self, batch: &Batch) -> bool {
        let (rows, bytes) = (self.rows.len() as u64, self.rows.memory() as u64);
        *batch != Batch::ALL
            && rows > 0
            && (rows >= u64::from(batch.rows) || bytes >= u64::from(batch.bytes))
    }

    /// Charges the statement for the rows, and for `more` bytes that are not rows yet.
    fn account(&mut self, more: usize, env: &Env) -> SqlResult<()> {
        self.charge.grow(&env.memory, self.rows.memory() + more)
    }
}

enum Work {
    Scan(scan::Scan),
    Insert(insert::Insert),
    Modify(modify::Modify),
    Build(build::Build),
    GlobalIndex(global_index::GlobalIndex),
}

impl Work {
    fn new(program: &Program) -> Self {
        match program {
            Program::Scan { .. } => Self::Scan(Default::default()),
            Program::Insert { .. } => Self::Insert(Default::default()),
            Program::Update { .. } | Program::Delete { .. } => Self::Modify(Default::default()),
            Program::BuildIndex { .. } => Self::Build(Default::default()),
            Program::GlobalIndex { .. } => Self::GlobalIndex(Default::default()),
        }
    }
}

/// Returns the program's table.
pub(crate) fn table_of(program: &Program) -> &Arc<TableDef> {
    match program {
        Program::Scan { access, .. }
        | Program::Update { access, .. }
        | Program::Delete { access, .. } => &access.table,
        Program::Insert { table, .. }
        | Program::BuildIndex { table, .. }
        | Program::GlobalIndex { table, .. } => table,
    }
}

/// Returns true if a program changes nothing.
pub(crate) fn only_reads(program: &Program) -> bool {
    matches!(program, Program::Scan { .. })
}

/// Returns true if a program inserts, changes or deletes rows of its table.
pub(crate) fn changes_rows(program: &Program) -> bool {
    matches!(program, Program::Insert { .. } | Program::Update { .. } | Program::Delete { .. })
}

/// Returns true if a program takes no locks under a snapshot: it changes nothing and requests no
/// row lock.
pub(crate) fn reads_freely(program: &Program) -> bool {
    match program {
        Program::Scan { access, .. } => access.lock.is_none(),
        Program::GlobalIndex { op, .. } => {
            matches!(op, GlobalIndexOp::Find { lock: RowLock::Share, .. })
        }
        _ => false,
    }
}

/// Returns true if a program looks up one row by its key.
pub(crate) fn is_point(program: &Program) -> bool {
    matches!(program, Program::Scan { access, .. } if matches!(access.path, Path::Point(_)))
}

impl Exec {
    pub(crate) fn new(
        program: Arc<Program>,
        env: Arc<Env>,
        rows: Option<RowBatch>,
        batch: Batch,
        buffers: Option<Box<Buffers>>,
    ) -> Self {
        let work = Work::new(&program);
        Self { program, env, rows, batch, out: Output::default(), work, buffers }
    }

    /// Creates the execution of a one-shot. A query whose output exceeds this many bytes stops.
    pub(crate) fn of_one_shot(
        program: Arc<Program>,
        env: Arc<Env>,
        rows: Option<RowBatch>,
        most_bytes: u32,
    ) -> Self {
        let bytes = if only_reads(&program) { most_bytes } else { u32::MAX };
        Self::new(program, env, rows, Batch { bytes, ..Batch::ALL }, None)
    }

    /// Identifies the execution while it is paused.
    pub(crate) fn id(&self) -> u32 {
        self.batch.id
    }

    /// Discards all progress: nothing was changed, or the change has been undone.
    pub(crate) fn reset(&mut self) {
        self.out.charge.release(&self.env.memory);
        self.out = Output::default();
        self.work = Work::new(&self.program);
        self.buffers = None;
    }

    /// Takes the buffers of an execution that has ended, if they are small, for the next one.
    pub(crate) fn take_buffers(&mut self) -> Option<Box<Buffers>> {
        let mut buffers = self.buffers.take()?;
        if let Work::Scan(scan) = &mut self.work {
            scan.return_keys(&mut buffers);
        }
        buffers.empty().then_some(buffers)
    }

    /// Returns the number of rows found or changed since the last reply.
    pub(crate) fn count(&self) -> u64 {
        self.out.count
    }

    /// Returns the rows in the message.
    pub(crate) fn rows(&self) -> Option<&RowBatch> {
        self.rows.as_ref()
    }

    /// Returns the program, its environment and the rows in the message.
    pub(crate) fn into_call(self) -> (Arc<Program>, Arc<Env>, Option<RowBatch>) {
        (self.program, self.env, self.rows)
    }

    /// Takes the output. The rows stay charged to the statement, unless they are one of several
    /// batches, since batches do not accumulate.
    pub(crate) fn take_output(&mut self) -> (RowBatch, u64) {
        let mut out = std::mem::take(&mut self.out);
        if self.batch != Batch::ALL {
            out.charge.release(&self.env.memory);
        }
        (out.rows, out.count)
    }

    /// Runs until it ends (false), has a batch of rows (true), or must stop.
    pub(crate) fn run<T: Trees>(&mut self, cx: &mut Cx<'_, T>) -> Result<bool, Stop> {
        let (program, env) = (&*self.program, &*self.env);
        let (out, buffers) = (&mut self.out, self.buffers.get_or_insert_default());
        match &mut self.work {
            Work::Scan(scan) => scan.run(cx, program, env, (out, buffers), &self.batch),
            Work::Insert(insert) => {
                insert.run(cx, program, env, self.rows.as_ref(), (out, buffers), &self.batch)
            }
            Work::Modify(modify) => modify.run(cx, program, env, (out, buffers), &self.batch),
            Work::Build(build) => build.run(cx, program, env),
            Work::GlobalIndex(global_index) => {
                global_index.run(cx, program, env, self.rows.as_ref(), out)
            }
        }
    }
}
