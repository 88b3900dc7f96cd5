//! What a transaction reads: the newest state, under locks, or a snapshot, without.
//!
//! READ ONLY blocks read snapshots: at REPEATABLE READ and above one for the whole transaction, opened by its first query; below one for
//! each query. The commit record that a snapshot ends with is the reader's place in the serial order.
//!
//! Invariants
//! 1. A transaction that has read under locks, or changed something, reads no snapshot any more: it would miss its own changes, and its reads would be
//!    those of two places in the serial order.
//! 2. Before a snapshot's LSN is read, every partition keeps versions (`clearway_partition::Snapshots`). Where one cannot, since the undo of a large transaction is
//!    in the log only, the transaction reads under locks.
//!
//! Locking: none of its own. A crash leaves nothing.

use crate::core::{Block, Core, Txn};
use crate::outcome::Stop;
use crate::stream::{self, Rows};
use crate::txn::everywhere;
use clearway_partition::{Batch, Body, Failure, Snapshot};
use clearway_plan::Program;
use clearway_plan::program::Env;
use clearway_plan::statement::{Isolation, Query, Source};
use clearway_types::{Lsn, RowBatch, TxnId};
use std::rc::Rc;
use std::sync::Arc;

/// What the transaction reads.
#[derive(Default)]
pub(crate) enum View {
    /// It has read nothing.
    #[default]
    Undecided,
    /// What is newest, under locks.
    Newest,
    /// What was committed then.
    AsOf(Rc<Snapshot>),
    /// Each query another snapshot, and none now.
    Between,
}

impl Txn {
    /// Whether its next query is to read a snapshot that is not open yet.
    fn wants_snapshot(&self) -> bool {
        let fits = self.block != Block::None && self.characteristics.read_only && !self.wrote;
        match self.view {
            View::Undecided => fits && self.id == TxnId(0),
            View::Between => fits,
            View::AsOf(_) => self.reads_each(),
            View::Newest => false,
        }
    }

    /// Whether each of its queries reads a snapshot of its own.
    fn reads_each(&self) -> bool {
        self.characteristics.isolation < Isolation::RepeatableRead
    }

    fn snapshot(&self) -> Option<Rc<Snapshot>> {
        match &self.view {
            View::AsOf(snapshot) => Some(snapshot.clone()),
            _ => None,
        }
    }

    /// Whether its next query needs no snapshot, or has it.
    pub(crate) fn is_ready_to_read(&self) -> bool {
        !self.wants_snapshot()
    }

    /// The snapshot that its queries read.
    pub(crate) fn reads_at(&self) -> Option<Lsn> {
        match &self.view {
            View::AsOf(snapshot) => Some(snapshot.lsn()),
            _ => None,
        }
    }
}

/// A query whose rows the client is to have.
pub(crate) async fn read(core: &Core, query: &Query, env: &Arc<Env>) -> Result<Rows, Stop> {
    let Source::Table { .. } = query.source else { return stream::select(core, query, env).await };
    begin(core).await?;
    // The client may take its time for the rows, and run other queries meanwhile, which end this one's view.
    let held = core.txn().snapshot();
    let rows = stream::select(core, query, env).await;
    drop(held);
    end(core);
    rows
}

/// A query is about to run: opens a snapshot for it, if it is to read one.
async fn begin(core: &Core) -> Result<(), Failure> {
    if core.txn().is_ready_to_read() {
        let mut txn = core.txn();
        if let View::Undecided | View::Between = txn.view {
            txn.view = View::Newest;
        }
        txn.read_at = txn.reads_at();
        return Ok(());
    }
    let opening = core.engine().snapshots().begin();
    if let Some(generation) = opening.generation() {
        let kept = everywhere(core, core.engine().all(), |_| Body::KeepVersions(generation)).await?;
        if kept.iter().any(|reply| reply.count == 0) {
            let mut txn = core.txn();
            (txn.view, txn.read_at) = (View::Newest, None);
            return Ok(());
        }
    }
    let snapshot = opening.open(|| core.engine().appended());
    let mut txn = core.txn();
    txn.read_at = Some(snapshot.lsn());
    txn.view = View::AsOf(Rc::new(snapshot));
    Ok(())
}

/// The query is over: below REPEATABLE READ the next one reads another snapshot.
fn end(core: &Core) {
    let mut txn = core.txn();
    if matches!(txn.view, View::AsOf(_)) && txn.reads_each() {
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
}

impl Work<'_> {
    /// The message; `at`: [`Txn::reads_at`].
    pub(crate) fn body(self, at: Option<Lsn>) -> Body {
        let Self { program, env, rows, batch, fresh, learns } = self;
        let (program, env) = (program.clone(), env.clone());
        match at {
            Some(at) => Body::ReadAt { at, program, env, rows, batch },
            None => Body::Statement { program, env, rows, batch, fresh, learns },
        }
    }
}
