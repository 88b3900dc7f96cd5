//! Runs programs: row by row, leaving off wherever a page or a lock is missing and going on there
//! later.
//!
//! Invariants
//! 1. An [`Exec`] that stopped with [`Stop::MissingPage`], [`Stop::Wait`] or [`Stop::Slice`] has
//!    done whole steps only: running it again goes on with the step that it stopped at. A row's
//!    change may consist of several steps (its table, its indexes); they are noted before the first
//!    is taken.
//! 2. With [`Locking::Take`] everything that a later step relies on is locked before an earlier
//!    step stops.
//! 3. A statement does not meet its own changes: keys that it may move ahead of its scan are
//!    collected before the first change.

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

pub use change::not_null_violation;
pub(crate) use fast::{Scratch, is_atomic, run_atomic};
pub(crate) use learning::Learning;
pub(crate) use path::{is_blind, push_blind, push_point};
pub(crate) use raw::run_raw;

use crate::limits::Limits;
use crate::lock::{Acquired, LockTable, Mode, Target, Wait, class};
use crate::message::{Batch, Failure};
use crate::trees::Trees;
use crate::txn::RowKey;
use crate::versioned::Versioned;
use crate::versions::{AsOf, Before, Lacking};
use clearway_buffer::MissingPage;
use clearway_ir::program::Env;
use clearway_ir::{Charge, Expr, GlobalIndexOp, LockWait, Path, Program, RowLock, TableDef};
use clearway_storage::{Blocked, LogRead, TxnMode};
use clearway_sync::canary::{self, Bug};
use clearway_types::{RowBatch, RowView, SqlError, SqlResult, SqlState, TableId, TreeId, TxnId};
use std::panic::Location;
use std::sync::Arc;

/// Why a run left off.
#[derive(Debug)]
pub(crate) enum Stop {
    /// These must be in the pool.
    MissingPage(Vec<MissingPage>),
    /// This piece of the log must have been read.
    Log(LogRead),
    /// Others must let go of their locks.
    Wait(Wait),
    /// It is retired on this key, and wants it again.
    Reclaim(TreeId, Box<[u8]>),
    /// With [`Locking::Check`]: somebody's lock is in the way.
    Conflict,
    /// It has had its turn.
    Slice,
    /// This transaction commits, and what that means for a snapshot is known when this partition
    /// has been told.
    Commit(TxnId),
    /// These blocks of the temporary file must have been read.
    Spilled(Vec<Lacking>),
    /// It cannot go on.
    Fail(Failure),
}

impl From<Blocked> for Stop {
    #[cold]
    fn from(blocked: Blocked) -> Self {
        match blocked {
            Blocked::MissingPage(wants) => Self::MissingPage(wants),
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

/// What a run does about locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locking {
    /// Nothing: nobody else is active, or nobody else can see the trees.
    None,
    /// Looks whether it could have them; it ends before anyone else runs.
    Check,
    /// Takes them.
    Take,
}

/// What a run works on.
pub(crate) struct Cx<'a, T: Trees> {
    pub trees: &'a mut Versioned<T>,
    pub locks: &'a mut LockTable,
    pub txn: TxnId,
    pub log: &'a mut T::Log,
    pub mode: TxnMode,
    pub locking: Locking,
    pub limits: &'a Limits,
    /// `None`: a transaction of its own, or one that is not a client's.
    pub learning: Option<Learning<'a>>,
    /// As [`crate::txn::Txn::moved`]. `None`: it moves nothing.
    pub moved: Option<&'a mut Vec<RowKey>>,
    /// Rows that it may still visit in this turn.
    pub budget: usize,
    /// Sees the database like this, not as it is now.
    pub as_of: Option<AsOf>,
    /// The index, or the global index, that the program uses lacks rows of that: they are looked
    /// for in the table itself.
    pub by_table: bool,
    /// What a transaction that is not over has replaced under the one key that is read.
    pub replaced: Option<Before>,
    /// It may go on with rows that others have changed and are retired on.
    pub goes_behind: bool,
}

impl<T: Trees> Cx<'_, T> {
    /// Shows the key's value, as of the snapshot if there is one; false if it is not there.
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
            Locking::Take => granted(self.locks.acquire(self.txn, target, mode), target, mode),
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

    /// Locks a key or a range of a table whose intent is held.
    #[track_caller]
    fn lock_in(&mut self, table: TableId, target: Target<'_>, mode: Mode) -> Result<(), Stop> {
        if let Target::Key(tree, key) = target
            && self.locks.is_retired(self.txn, tree, key)
        {
            return Err(Stop::Reclaim(tree, key.into()));
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

    /// Locks a key or a range of a table whose intent is held; false if it is to be skipped.
    #[track_caller]
    fn try_lock_in(
        &mut self,
        table: &TableDef,
        target: Target<'_>,
        mode: Mode,
        wait: LockWait,
    ) -> Result<bool, Stop> {
        if wait != LockWait::Wait && !self.is_free_in(table, target, mode) {
            return unavailable(table, wait);
        }
        self.lock_in(table.id, target, mode).map(|()| true)
    }

    /// Locks a table; false if all of it is to be skipped. Who may not wait for locks of rows waits
    /// for a change of the table itself, which then comes after the transaction.
    #[track_caller]
    fn try_lock_table(
        &mut self,
        table: &TableDef,
        mode: Mode,
        wait: LockWait,
    ) -> Result<bool, Stop> {
        let whole = Target::Table(table.id);
        if wait != LockWait::Wait && !self.is_free_in(table, whole, mode) {
            self.lock(whole, Mode::AccessShared)?;
            return unavailable(table, wait);
        }
        self.lock(whole, mode).map(|()| true)
    }

    /// Whether a lock could be had at once.
    fn is_free_in(&self, table: &TableDef, target: Target<'_>, mode: Mode) -> bool {
        let covered = |target, mode| self.locks.covered(self.txn, target, mode);
        self.locking == Locking::None
            || covered(Target::Table(table.id), mode.of_table())
            || covered(target, mode)
            || self.locks.free(self.txn, target, mode)
    }

    /// The row that it has just deleted gets another key, or another home.
    fn moves(&mut self, tree: TreeId, key: &[u8]) {
        self.trees.versions.moves(self.txn, tree, key);
        if let Some(moved) = &mut self.moved {
            moved.push((tree, key.into()));
        }
    }

    /// Whether an UPDATE that only adds may do so beside others.
    fn adds_beside_others(&self) -> bool {
        self.limits.increments && self.locking == Locking::Take && self.mode == TxnMode::Logged
    }

    /// Counts a row; stops if the turn is over.
    fn spend(&mut self) -> Result<(), Stop> {
        self.budget = self.budget.checked_sub(1).ok_or(Stop::Slice)?;
        Ok(())
    }
}

/// Somebody else has locked what may not be waited for.
#[cold]
fn unavailable(table: &TableDef, wait: LockWait) -> Result<bool, Stop> {
    if wait == LockWait::Skip {
        return Ok(false);
    }
    let text = format!("could not obtain lock on row in relation \"{}\"", table.name);
    Err(SqlError::new(SqlState::LOCK_NOT_AVAILABLE, text).into())
}

/// What a request for a lock led to.
#[track_caller]
pub(crate) fn granted(acquired: Acquired, target: Target<'_>, mode: Mode) -> Result<(), Stop> {
    match acquired {
        Acquired::Granted => Ok(()),
        Acquired::Waits(line) => {
            Err(Stop::Wait(Wait { line, class: class(target, mode), caller: Location::caller() }))
        }
    }
}

/// One run of a program, between its steps.
pub(crate) struct Exec {
    pub program: Arc<Program>,
    pub env: Arc<Env>,
    rows: Option<RowBatch>,
    batch: Batch,
    out: Output,
    work: Work,
}

/// What a run has to answer so far.
#[derive(Default)]
struct Output {
    rows: RowBatch,
    count: u64,
    /// What the statement's account was charged for the rows, and for what they are made of.
    charge: Charge,
}

impl Output {
    fn project(&mut self, exprs: &[Expr], row: RowView<'_>, env: &Env) -> SqlResult<()> {
        self.rows
            .try_push_with(|out| exprs.iter().try_for_each(|expr| expr.push_to(out, row, env)))?;
        self.account(0, env)
    }

    /// Whether the statement pauses before the next row.
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

/// The table that a program works on.
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

/// Whether a program changes nothing.
pub(crate) fn only_reads(program: &Program) -> bool {
    matches!(program, Program::Scan { .. })
}

/// Whether a program takes no lock if it sees a snapshot: it changes nothing and asks for no row
/// lock.
pub(crate) fn reads_freely(program: &Program) -> bool {
    match program {
        Program::Scan { access, .. } => access.lock.is_none(),
        Program::GlobalIndex { op, .. } => {
            matches!(op, GlobalIndexOp::Find { lock: RowLock::Share, .. })
        }
        _ => false,
    }
}

/// Whether a program looks for one row by its key.
pub(crate) fn is_point(program: &Program) -> bool {
    matches!(program, Program::Scan { access, .. } if matches!(access.path, Path::Point(_)))
}

impl Exec {
    pub(crate) fn new(
        program: Arc<Program>,
        env: Arc<Env>,
        rows: Option<RowBatch>,
        batch: Batch,
    ) -> Self {
        let work = Work::new(&program);
        Self { program, env, rows, batch, out: Output::default(), work }
    }

    /// Names it while it has paused.
    pub(crate) fn id(&self) -> u32 {
        self.batch.id
    }

    /// Forgets all progress: nothing was changed, or it has been undone.
    pub(crate) fn reset(&mut self) {
        self.out.charge.release(&self.env.memory);
        self.out = Output::default();
        self.work = Work::new(&self.program);
    }

    /// Rows found or changed since the last answer.
    pub(crate) fn count(&self) -> u64 {
        self.out.count
    }

    /// The rows that the message brought.
    pub(crate) fn rows(&self) -> Option<&RowBatch> {
        self.rows.as_ref()
    }

    /// Takes what there is to answer. The rows stay charged to the statement, unless they are one
    /// batch of many: those do not add up.
    pub(crate) fn take_output(&mut self) -> (RowBatch, u64) {
        let mut out = std::mem::take(&mut self.out);
        if self.batch != Batch::ALL {
            out.charge.release(&self.env.memory);
        }
        (out.rows, out.count)
    }

    /// Runs until it has ended (false), has a batch of rows (true), or must stop.
    pub(crate) fn run<T: Trees>(&mut self, cx: &mut Cx<'_, T>) -> Result<bool, Stop> {
        let (program, env, out) = (&*self.program, &*self.env, &mut self.out);
        match &mut self.work {
            Work::Scan(scan) => scan.run(cx, program, env, out, &self.batch),
            Work::Insert(insert) => {
                insert.run(cx, program, env, self.rows.as_ref(), out, &self.batch)
            }
            Work::Modify(modify) => modify.run(cx, program, env, out, &self.batch),
            Work::Build(build) => build.run(cx, program, env),
            Work::GlobalIndex(global_index) => {
                global_index.run(cx, program, env, self.rows.as_ref(), out)
            }
        }
    }
}
