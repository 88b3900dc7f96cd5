//! The rows that several transactions hold or wait for, over all partitions, for monitoring.

use crate::deadlock::{LockName, Names};
use crate::engine::Engine;
use crate::gather::Answers;
use clearway_ir::Catalog;
use clearway_latch::lockstat::Class;
use clearway_partition::{Body, TakeHotRows};
use clearway_types::PartitionId;
use std::cmp::Reverse;
use std::sync::Arc;

/// A row, or another key, that a transaction waits for, that several transactions add to, or whose
/// lock is retired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotRowView {
    /// Its partition.
    pub partition: PartitionId,
    /// Table, index and key, and how its holders hold it: a mode, or `retired`. The mode is empty
    /// if no transaction holds the key on its own.
    pub lock: LockName,
    /// Number of transactions that hold it.
    pub holders: usize,
    /// Number of transactions that wait for it.
    pub waiters: usize,
    /// Number of holders that changed it after another holder did.
    pub behind: usize,
    /// The holder only adds to it, and took the exclusive lock because the plan's history suggested
    /// it.
    pub learned: bool,
}

static HOT_ROWS: Class = Class::new("coordinator.hot_rows");

impl Engine {
    /// Passes the hot rows of all partitions to `take`, those with the most holders and waiters
    /// first, at most [`clearway_partition::HotRow::MOST`] per partition. `take` is called in the
    /// thread of the worker that reports last.
    pub fn hot_rows(&self, take: impl FnOnce(Vec<HotRowView>) + Send + 'static) {
        let catalog = self.catalog();
        let ask = |rows: Arc<Answers<HotRowView>>| {
            let catalog = catalog.clone();
            let add = move |partition, hot| rows.add(named(&catalog, partition, hot));
            Body::HotRows(TakeHotRows(Box::new(add)))
        };
        self.ask_all(&HOT_ROWS, ask, |rows| take(ordered(rows)));
    }
}

fn named(
    catalog: &Catalog,
    partition: PartitionId,
    rows: Vec<clearway_partition::HotRow>,
) -> Vec<HotRowView> {
    if rows.is_empty() {
        return Vec::new();
    }
    let names = Names::new(catalog);
    let named = |row: clearway_partition::HotRow| {
        let lock = names.of_key(row.tree, &row.key, row.locked.unwrap_or_default());
        let (holders, waiters, behind, learned) =
            (row.holders, row.waiters, row.behind, row.learned);
        HotRowView { partition, lock, holders, waiters, behind, learned }
    };
    rows.into_iter().map(named).collect()
}

fn ordered(mut rows: Vec<HotRowView>) -> Vec<HotRowView> {
    // Stable: a partition's rows keep their order.
    rows.sort_by_key(|row| (Reverse(row.holders + row.waiters), row.partition));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_with_the_most_holders_and_waiters_come_first() {
        let row = |partition, holders| HotRowView {
            partition: PartitionId(partition),
            holders,
            ..HotRowView::default()
        };
        let rows = vec![row(1, 3), row(1, 2), row(0, 5), row(0, 3)];
        assert_eq!(ordered(rows), [row(0, 5), row(0, 3), row(1, 3), row(1, 2)]);
    }
}
