//! What open snapshots may read of tables that have changed since: catalogs older than the
//! committed one, and trees that no table has any more.
//!
//! Invariants
//! 1. Every open snapshot has its catalog here: the last one whose transaction the snapshot sees.
//! 2. A catalog is entered here before it becomes the committed one.
//! 3. A tree that the committed catalog does not have stays here until every open snapshot sees
//!    that catalog; then the caller that takes it drops it. A crash, or a stop of the engine,
//!    leaves it to the next start, which drops the trees that no table owns.
//!
//! Locking: two latches, for the catalogs and for the trees, each held to look at a few pointers.
//! Only DDL and statements whose snapshot is older than the committed catalog take the first. Only
//! DDL and, while there are such trees, ends of transactions take the second. Nothing is taken
//! under them. A crash leaves nothing.

use crate::core::Core;
use crate::outcome::stopped;
use clearway_ir::{Catalog, TableDef};
use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_partition::{Body, Snapshots};
use clearway_sync::atomic::{AtomicBool, Ordering};
use clearway_sync::canary::{self, Bug};
use clearway_types::{Lsn, TreeId};
use std::collections::VecDeque;
use std::sync::Arc;

static PAST: Class = Class::new("coordinator.past");

/// See the module's documentation.
pub(crate) struct Past {
    /// Each with the end of its commit record, oldest first.
    catalogs: Latch<VecDeque<(Lsn, Arc<Catalog>)>>,
    /// Each with the end of the commit record that removed it from its table.
    trees: Latch<Vec<(Lsn, Vec<TreeId>)>>,
    /// True if `trees` may be non-empty.
    has_trees: AtomicBool,
}

impl Past {
    /// Creates the state before any change of this catalog.
    pub(crate) fn new(catalog: Arc<Catalog>) -> Self {
        Self {
            catalogs: Latch::new(&PAST, VecDeque::from([(Lsn(0), catalog)])),
            trees: Latch::new(&PAST, Vec::new()),
            has_trees: AtomicBool::new(false),
        }
    }

    /// Adds trees that no table has after the commit record that ends at `commit`.
    pub(crate) fn leave(&self, trees: Vec<TreeId>, commit: Lsn) {
        self.trees.lock().push((commit, trees));
        // Relaxed: a reader that misses it leaves the trees to the next one.
        self.has_trees.store(true, Ordering::Relaxed);
    }

    /// Takes the trees that no open snapshot sees. The caller drops them.
    pub(crate) fn take(&self, snapshots: &Snapshots) -> Vec<TreeId> {
        // Relaxed: see `leave`.
        if !self.has_trees.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let floor = if canary::on(Bug::EarlyDrop) { Lsn(u64::MAX) } else { snapshots.floor() };
        let mut trees = self.trees.lock();
        let passed = trees
            .extract_if(.., |(commit, _)| *commit <= floor)
            .flat_map(|(_, trees)| trees)
            .collect();
        // Relaxed: see `leave`. This store is under the latch; the one in `leave` is not.
        self.has_trees.store(!trees.is_empty(), Ordering::Relaxed);
        passed
    }

    /// Enters a catalog that is about to become the committed one. Its commit record is in the log.
    pub(crate) fn publish(&self, catalog: Arc<Catalog>, commit: Lsn, snapshots: &Snapshots) {
        let floor = snapshots.floor();
        let mut catalogs = self.catalogs.lock();
        catalogs.push_back((commit, catalog));
        let passed = catalogs.iter().skip(1).take_while(|(next, _)| *next <= floor).count();
        let gone: Vec<_> = catalogs.drain(..passed).collect();
        drop(catalogs);
        // Dropped outside the latch, in case these are the last references.
        drop(gone);
    }

    /// Returns a table's definition as of an open snapshot, or `None` if the table did not exist.
    pub(crate) fn table(&self, table: &TableDef, at: Lsn) -> Option<Arc<TableDef>> {
        let catalogs = self.catalogs.lock();
        let (_, then) = catalogs.iter().rfind(|(commit, _)| *commit <= at)?;
        then.table(&table.name).filter(|then| then.id == table.id).cloned()
    }
}

/// Drops the trees that no snapshot sees any more, in a transaction of its own.
pub(crate) async fn drop_unseen(core: &Core) {
    let trees = core.engine().past().take(core.engine().snapshots());
    if trees.is_empty() {
        return;
    }
    // Boxed: it is rare, and would enlarge every task.
    Box::pin(drop_trees(core, trees)).await;
}

async fn drop_trees(core: &Core, trees: Vec<TreeId>) {
    let id = core.port.next_txn();
    let bodies: [&dyn Fn() -> Body; 2] =
        [&|| Body::DropTreesAtCommit(trees.clone()), &|| Body::Finish { commit: Some(Lsn(0)) }];
    for body in bodies {
        let calls: Vec<u32> =
            core.engine().all().map(|partition| core.send(partition, id, body())).collect();
        for call in calls {
            if let Err(f) = core.end(call).await {
                let error = stopped(f.into());
                tracing::error!("trees without a table remain until the next start: {error}");
            }
        }
    }
}
