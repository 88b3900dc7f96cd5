//! The rows that several transactions hold or wait for, over all partitions, for monitoring.
//!
//! A request sends a message to every partition through its home worker. The thread that handles it
//! gathers that partition's rows, so statements pay nothing for being observed.
//!
//! Invariant: a request ends when every partition has reported its rows once, and its end is
//! reported once. It never ends if the workers stop meanwhile.
//!
//! Locking: the reported rows are behind a latch, held to append to them. A crash leaves nothing.

use crate::deadlock::{LockName, Names};
use crate::engine::Engine;
use crate::mailbox::Mail;
use crate::message::control;
use clearway_ir::Catalog;
use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_partition::{Body, TakeHotRows};
use clearway_types::{PartitionId, TxnId};
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

type Take = Box<dyn FnOnce(Vec<HotRowView>) + Send>;

struct Gathered {
    rows: Vec<HotRowView>,
    /// Partitions that have not reported yet.
    left: usize,
    take: Option<Take>,
}

static GATHERED: Class = Class::new("coordinator.hot_rows");

/// The transaction that a request's messages name. They do nothing for it.
const NO_TXN: TxnId = TxnId(u64::MAX);

impl Engine {
    /// Passes the hot rows of all partitions to `take`, those with the most holders and waiters
    /// first, at most [`clearway_partition::HotRow::MOST`] per partition. `take` is called in the
    /// thread of the worker that reports last.
    pub fn hot_rows(&self, take: impl FnOnce(Vec<HotRowView>) + Send + 'static) {
        let left = usize::from(self.partitions());
        let gathered = Gathered { rows: Vec::new(), left, take: Some(Box::new(take)) };
        let gathered = Arc::new(Latch::new(&GATHERED, gathered));
        let catalog = self.catalog();
        for partition in self.all() {
            let (gathered, catalog) = (gathered.clone(), catalog.clone());
            let report_rows =
                move |partition, rows| report(&gathered, named(&catalog, partition, rows));
            let body = Body::HotRows(TakeHotRows(Box::new(report_rows)));
            let message = control(NO_TXN, body);
            self.mailbox(self.home(partition)).post(Mail::Message { partition, message });
        }
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

fn report(gathered: &Latch<Gathered>, mut rows: Vec<HotRowView>) {
    let (mut all, take) = {
        let mut gathered = gathered.lock();
        gathered.rows.append(&mut rows);
        gathered.left -= 1;
        if gathered.left > 0 {
            return;
        }
        (std::mem::take(&mut gathered.rows), gathered.take.take())
    };
    let order = |row: &HotRowView| (Reverse(row.holders + row.waiters), row.partition);
    // Stable: a partition's rows keep their order.
    all.sort_by_key(order);
    if let Some(take) = take {
        take(all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_partition_ends_a_request() {
        let (send, receive) = std::sync::mpsc::channel();
        let take: Take = Box::new(move |all| send.send(all).unwrap());
        let gathered =
            Latch::new(&GATHERED, Gathered { rows: Vec::new(), left: 2, take: Some(take) });
        let row = |partition, holders| HotRowView {
            partition: PartitionId(partition),
            holders,
            ..HotRowView::default()
        };
        report(&gathered, vec![row(1, 3), row(1, 2)]);
        assert!(receive.try_recv().is_err());
        report(&gathered, vec![row(0, 5), row(0, 3)]);
        let wanted = [row(0, 5), row(0, 3), row(1, 3), row(1, 2)];
        assert_eq!(receive.recv().unwrap(), wanted);
    }
}
