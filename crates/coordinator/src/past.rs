//! What open snapshots may see of tables that have been changed since: catalogs before the
//! committed one, and trees that no table has any more.
//!
//! Invariants
//! 1. There is a catalog for each snapshot that is open: the last one whose transaction the
//!    snapshot sees.
//! 2. A catalog is here before it is the committed one.
//! 3. A tree that the committed catalog does not have is here until every snapshot that is open
//!    sees that; then whoever takes it drops it. A crash, or a stop of the engine, leaves it to the
//!    next start, which drops the trees that no table owns.
//!
//! Locking: one latch, held to look at a few pointers; only DDL, and statements that see a snapshot
//! older than the committed catalog, take it. Nothing is taken under it. A crash leaves nothing.

use clearway_ir::{Catalog, TableDef};
use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_partition::Snapshots;
use clearway_sync::atomic::{AtomicBool, Ordering};
use clearway_sync::canary::{self, Bug};
use clearway_types::{Lsn, TreeId};
use std::collections::VecDeque;
use std::sync::Arc;

static PAST: Class = Class::new("coordinator.past");

/// See above.
pub(crate) struct Past {
    /// Each with the end of its commit record, the oldest first.
    catalogs: Latch<VecDeque<(Lsn, Arc<Catalog>)>>,
    /// Each with the end of the commit record that has taken them from their table.
    trees: Latch<Vec<(Lsn, Vec<TreeId>)>>,
    /// There are some.
    has_trees: AtomicBool,
}

impl Past {
    /// Before the first change of this catalog.
    pub(crate) fn new(catalog: Arc<Catalog>) -> Self {
        Self {
            catalogs: Latch::new(&PAST, VecDeque::from([(Lsn(0), catalog)])),
            trees: Latch::new(&PAST, Vec::new()),
            has_trees: AtomicBool::new(false),
        }
    }

    /// No table has these trees any more, by the commit record that ends there.
    pub(crate) fn leave(&self, trees: Vec<TreeId>, commit: Lsn) {
        self.trees.lock().push((commit, trees));
        // Relaxed: whoever does not see it leaves the trees to who comes next.
        self.has_trees.store(true, Ordering::Relaxed);
    }

    /// Takes the trees that no open snapshot sees, to drop them.
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
        self.has_trees.store(!trees.is_empty(), Ordering::Relaxed); // under the latch, as that of `leave` is not: see there
        passed
    }

    /// A catalog is about to be the committed one. Its commit record is in the log.
    pub(crate) fn publish(&self, catalog: Arc<Catalog>, commit: Lsn, snapshots: &Snapshots) {
        let floor = snapshots.floor();
        let mut catalogs = self.catalogs.lock();
        catalogs.push_back((commit, catalog));
        let passed = catalogs.iter().skip(1).take_while(|(next, _)| *next <= floor).count();
        let gone: Vec<_> = catalogs.drain(..passed).collect();
        drop(catalogs);
        // Not under the latch, should we be the last to have them.
        drop(gone);
    }

    /// The definition of a table as of a snapshot that is open; none if the table was not there.
    pub(crate) fn table(&self, table: &TableDef, at: Lsn) -> Option<Arc<TableDef>> {
        let catalogs = self.catalogs.lock();
        let (_, then) = catalogs.iter().rfind(|(commit, _)| *commit <= at)?;
        then.table(&table.name).filter(|then| then.id == table.id).cloned()
    }
}
