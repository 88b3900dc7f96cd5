//! What open snapshots may read of tables that have changed since: catalogs older than the
//! committed one, and trees that no table has any more.
//!
//! Invariants
//! 1. Every open snapshot has its catalog here: the last one whose transaction the snapshot sees.
//! 2. A catalog is entered here after its commit record is in the log, and before it becomes the
//!    committed one. One transaction at a time changes the catalog (`ddl`, invariant 1).
//! 3. An older catalog is here only if a snapshot that saw it was open at the last change. So there
//!    are at most as many as there were open snapshots then.
//! 4. A tree that the committed catalog does not have stays here while the catalog of an open
//!    snapshot has it; then the caller that takes it drops it. A crash, or a stop of the engine,
//!    leaves it to the next start, which drops the trees that no table owns.
//!
//! Which snapshots read which catalog: those from the end of its commit record to before the end of
//! the next one's. No snapshot enters this range after the next catalog is entered here: that one's
//! record is in the log by then, so a later snapshot sees it ([`Snapshots::first_from`]). So if no
//! snapshot in the range is open at that time or afterwards, nobody reads the catalog any more. The
//! ranges of the others stay as they are.
//!
//! Which snapshots read which tree: the catalogs that have it follow each other, from its creation
//! to the change that removes it, so their ranges are one range, too. Catalogs at its start may be
//! gone; then none of their snapshots is open. A snapshot older than the tree may run a plan that
//! contains it, but reads nothing from it (`clearway_partition`, `versions/births.rs`). When the
//! tree is dropped, that plan becomes stale.
//!
//! Locking: two latches, for the catalogs and for the trees. Only DDL and statements whose snapshot
//! is older than the committed catalog take the first. Only DDL and, while there are such trees,
//! ends of transactions take the second. Under them, only the latch of the open snapshots is taken.
//! A crash leaves nothing.

use crate::core::Core;
use crate::outcome::stopped;
use clearway_ir::{Catalog, TableDef};
use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_partition::{Body, Snapshots};
use clearway_sync::atomic::{AtomicBool, Ordering};
use clearway_sync::canary::{self, Bug};
use clearway_types::{Lsn, TreeId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

static PAST: Class = Class::new("coordinator.past");

/// See the module's documentation.
pub(crate) struct Past {
    catalogs: Latch<Catalogs>,
    /// By the start of the range of snapshots that see them: each with the end of that range, the
    /// end of the commit record that removed it from its table.
    trees: Latch<BTreeMap<Lsn, Vec<(Lsn, TreeId)>>>,
    /// True if `trees` may be non-empty.
    has_trees: AtomicBool,
}

struct Catalogs {
    /// With the end of its commit record.
    newest: (Lsn, Arc<Catalog>),
    /// Each with the snapshots that see it, oldest first.
    older: Vec<(Range<Lsn>, Arc<Catalog>)>,
}

impl Past {
    /// Creates the state before any change of this catalog.
    pub(crate) fn new(catalog: Arc<Catalog>) -> Self {
        Self {
            catalogs: Latch::new(&PAST, Catalogs { newest: (Lsn(0), catalog), older: Vec::new() }),
            trees: Latch::new(&PAST, BTreeMap::new()),
            has_trees: AtomicBool::new(false),
        }
    }

    /// Adds trees that no table has after the commit record that ends at `commit`. Called after
    /// [`Past::publish`].
    pub(crate) fn leave(&self, mut trees: Vec<TreeId>, commit: Lsn) {
        let older = self.catalogs.lock().older.clone();
        let mut left = BTreeMap::<Lsn, Vec<_>>::new();
        let mut add = |first, tree| left.entry(first).or_default().push((commit, tree));
        for (seen, catalog) in older {
            let has: BTreeSet<_> =
                catalog.tables.values().flat_map(|table| table.trees()).collect();
            let found = trees.extract_if(.., |tree| has.contains(tree));
            found.for_each(|tree| add(seen.start, tree));
        }
        // No open snapshot sees the others.
        trees.into_iter().for_each(|tree| add(commit, tree));
        let mut all = self.trees.lock();
        for (first, trees) in left {
            all.entry(first).or_default().extend(trees);
        }
        // Relaxed: a reader that misses it leaves the trees to the next one.
        self.has_trees.store(true, Ordering::Relaxed);
    }

    /// Takes the trees that no open snapshot sees. The caller drops them.
    pub(crate) fn take(&self, snapshots: &Snapshots) -> Vec<TreeId> {
        // Relaxed: see `leave`.
        if !self.has_trees.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut unseen = Vec::new();
        let mut all = self.trees.lock();
        all.retain(|first, trees| {
            let open = snapshots.first_from(*first).filter(|_| !canary::on(Bug::EarlyDrop));
            let gone = trees.extract_if(.., |(commit, _)| open.is_none_or(|open| *commit <= open));
            unseen.extend(gone.map(|(_, tree)| tree));
            !trees.is_empty()
        });
        // Relaxed: see `leave`. Both stores are under the latch.
        self.has_trees.store(!all.is_empty(), Ordering::Relaxed);
        unseen
    }

    /// Enters a catalog that is about to become the committed one. Its commit record is in the log.
    pub(crate) fn publish(&self, catalog: Arc<Catalog>, commit: Lsn, snapshots: &Snapshots) {
        let is_unseen = |seen: &Range<Lsn>| {
            snapshots.first_from(seen.start).is_none_or(|open| seen.end <= open)
        };
        let mut catalogs = self.catalogs.lock();
        let (first, last) = std::mem::replace(&mut catalogs.newest, (commit, catalog));
        catalogs.older.push((first..commit, last));
        let gone: Vec<_> = catalogs.older.extract_if(.., |(seen, _)| is_unseen(seen)).collect();
        drop(catalogs);
        // Dropped outside the latch, in case these are the last references.
        drop(gone);
    }

    /// Returns a table's definition as of an open snapshot, or `None` if the table did not exist.
    pub(crate) fn table(&self, table: &TableDef, at: Lsn) -> Option<Arc<TableDef>> {
        let catalogs = self.catalogs.lock();
        let (commit, newest) = &catalogs.newest;
        let then = if *commit <= at {
            newest
        } else {
            &catalogs.older.iter().find(|(seen, _)| seen.contains(&at))?.1
        };
        then.table(&table.name).filter(|then| then.id == table.id).cloned()
    }
}

/// Drops the trees that no open snapshot sees, in a transaction of its own.
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

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_ir::Distribution;
    use clearway_ir::statement::unnumbered_table;
    use clearway_partition::Snapshot;
    use clearway_testkit::Rng;
    use clearway_types::TableId;

    fn table(tree: u32) -> Arc<TableDef> {
        let table = unnumbered_table("t", Vec::new(), Vec::new(), Distribution::Random);
        Arc::new(TableDef { id: TableId(1), tree: TreeId(tree), ..table })
    }

    /// Returns a catalog with one table, which has this tree.
    fn catalog(tree: u32) -> Arc<Catalog> {
        let tables = [("t".to_owned(), table(tree))].into_iter().collect();
        Arc::new(Catalog { version: tree.into(), tables })
    }

    fn open(snapshots: &Arc<Snapshots>, at: u64) -> Snapshot {
        snapshots.begin().open(|| Lsn(at))
    }

    /// Truncates the table, whose last tree was the one before.
    fn truncate(past: &Past, tree: u32, commit: u64, snapshots: &Snapshots) {
        past.publish(catalog(tree), Lsn(commit), snapshots);
        past.leave(vec![TreeId(tree - 1)], Lsn(commit));
    }

    fn tree_at(past: &Past, at: Lsn) -> Option<TreeId> {
        past.table(&table(0), at).map(|table| table.tree)
    }

    /// Invariants 3 and 4.
    #[test]
    fn snapshot_keeps_only_its_own_catalog_and_trees() {
        let (past, snapshots) = (Past::new(catalog(1)), Arc::new(Snapshots::default()));
        truncate(&past, 2, 10, &snapshots);
        let snapshot = open(&snapshots, 15);
        for tree in 3..100 {
            truncate(&past, tree, 10 * u64::from(tree), &snapshots);
            // A short query.
            drop(open(&snapshots, 10 * u64::from(tree) + 5));
        }
        assert_eq!(past.catalogs.lock().older.len(), 1);
        assert_eq!(tree_at(&past, snapshot.lsn()), Some(TreeId(2)));
        let mut taken = past.take(&snapshots);
        taken.sort_unstable();
        let others: Vec<_> = (1..99).filter(|tree| *tree != 2).map(TreeId).collect();
        assert_eq!(taken, others);
        drop(snapshot);
        assert_eq!(past.take(&snapshots), [TreeId(2)]);
    }

    /// No catalog had the tree: its creation was undone.
    #[test]
    fn tree_of_no_catalog_is_taken_at_once() {
        let (past, snapshots) = (Past::new(catalog(1)), Arc::new(Snapshots::default()));
        let _snapshot = open(&snapshots, 5);
        past.leave(vec![TreeId(2)], Lsn(10));
        assert_eq!(past.take(&snapshots), [TreeId(2)]);
    }

    /// Compares with all catalogs. Tree n is in the catalogs from commit n to before commit n + 1.
    #[test]
    fn random_snapshots_find_their_catalogs_and_trees() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let (past, snapshots) = (Past::new(catalog(0)), Arc::new(Snapshots::default()));
            let (mut commits, mut end) = (vec![Lsn(0)], 1);
            let mut open_ones = Vec::new();
            let mut left = BTreeSet::new();
            for _ in 0..100 {
                match rng.below(4) {
                    0 => open_ones.push(open(&snapshots, end)),
                    1 if !open_ones.is_empty() => {
                        drop(open_ones.swap_remove(rng.below(open_ones.len() as u64) as usize))
                    }
                    2 => {
                        end += rng.below(2) + 1;
                        let tree = commits.len() as u32;
                        truncate(&past, tree, end, &snapshots);
                        left.insert(TreeId(tree - 1));
                        commits.push(Lsn(end));
                        let older = past.catalogs.lock().older.len();
                        assert!(older <= open_ones.len(), "seed {seed}");
                    }
                    _ => {
                        for tree in past.take(&snapshots) {
                            assert!(left.remove(&tree), "seed {seed}: {tree:?} is taken once");
                        }
                        let seen = open_ones.iter().map(|open| tree_at(&past, open.lsn()).unwrap());
                        let seen: BTreeSet<_> = seen.collect();
                        let needed: BTreeSet<_> = left.intersection(&seen).copied().collect();
                        assert_eq!(left, needed, "seed {seed}");
                        let newest = TreeId(commits.len() as u32 - 1);
                        let lost =
                            seen.iter().find(|tree| **tree != newest && !left.contains(tree));
                        assert_eq!(lost, None, "seed {seed}");
                    }
                }
                for open in &open_ones {
                    let then = commits.partition_point(|commit| *commit <= open.lsn()) - 1;
                    assert_eq!(
                        tree_at(&past, open.lsn()),
                        Some(TreeId(then as u32)),
                        "seed {seed}"
                    );
                }
            }
        }
    }
}
