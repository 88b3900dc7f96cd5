//! The catalogs that open snapshots may see: those before the committed one.
//!
//! Invariants
//! 1. There is a catalog for each snapshot that is open: the last one whose transaction the snapshot sees.
//! 2. A catalog is here before it is the committed one.
//!
//! Locking: one latch, held to look at a few pointers; only DDL, and statements that see a snapshot older than the committed catalog, take it. Nothing is taken
//! under it. A crash leaves nothing.

use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_partition::Snapshots;
use clearway_plan::{Catalog, TableDef};
use clearway_types::Lsn;
use std::collections::VecDeque;
use std::sync::Arc;

static PAST: Class = Class::new("coordinator.past");

/// See above.
pub(crate) struct Past {
    /// Each with the end of its commit record, the oldest first.
    catalogs: Latch<VecDeque<(Lsn, Arc<Catalog>)>>,
}

impl Past {
    /// Before the first change of this catalog.
    pub(crate) fn new(catalog: Arc<Catalog>) -> Self {
        Self { catalogs: Latch::new(&PAST, VecDeque::from([(Lsn(0), catalog)])) }
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
