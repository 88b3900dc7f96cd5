//! The rows that several transactions hold or want at once, of all partitions, for people who look.
//!
//! A look sends a message to every partition by way of its home worker. Whoever handles it gathers
//! that partition's rows, so a statement pays nothing for being seen.
//!
//! Invariant: a look is over when every partition has told its rows once, and its end is told once.
//! It never ends if the workers stop meanwhile.
//!
//! Locking: what has been told is behind a latch, held to append it. A crash leaves nothing.

use crate::deadlock::{LockName, Names};
use crate::engine::Engine;
use crate::mailbox::Mail;
use crate::port::control;
use clearway_ir::Catalog;
use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_partition::{Body, TakeHotRows};
use clearway_types::{PartitionId, TxnId};
use std::cmp::Reverse;
use std::sync::Arc;

/// A row, or another key, that somebody waits for, that several transactions add to, or whose lock
/// is retired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotRow {
    /// Where it is.
    pub partition: PartitionId,
    /// Table, index and key, and how its holders have it: a mode, or `retired`. An empty mode: no
    /// transaction holds the key by itself.
    pub lock: LockName,
    /// Transactions that hold it.
    pub holders: usize,
    /// Transactions that wait for it.
    pub waiters: usize,
    /// Holders that have changed it after another holder did.
    pub behind: usize,
    /// Its holder only adds to it, and has the exclusive lock because that was learned of its plan.
    pub learned: bool,
}

type Take = Box<dyn FnOnce(Vec<HotRow>) + Send>;

struct Gathered {
    rows: Vec<HotRow>,
    /// Partitions that have not told theirs.
    left: usize,
    take: Option<Take>,
}

static GATHERED: Class = Class::new("coordinator.hot_rows");

/// The transaction that a look's messages name: they do nothing for it.
const NO_TXN: TxnId = TxnId(u64::MAX);

impl Engine {
    /// Gives `take` the hot rows of all partitions, those with the most holders and waiters first,
    /// at most [`clearway_partition::HotRow::MOST`] of each. `take` is called in the thread of the
    /// worker that is the last to tell.
    pub fn hot_rows(&self, take: impl FnOnce(Vec<HotRow>) + Send + 'static) {
        let left = usize::from(self.partitions());
        let gathered = Gathered { rows: Vec::new(), left, take: Some(Box::new(take)) };
        let gathered = Arc::new(Latch::new(&GATHERED, gathered));
        let catalog = self.catalog();
        for partition in self.all() {
            let (gathered, catalog) = (gathered.clone(), catalog.clone());
            let told = move |partition, rows| tell(&gathered, named(&catalog, partition, rows));
            let body = Body::HotRows(TakeHotRows(Box::new(told)));
            let message = control(NO_TXN, body);
            self.mailbox(self.home(partition)).post(Mail::Message { partition, message });
        }
    }
}

fn named(
    catalog: &Catalog,
    partition: PartitionId,
    rows: Vec<clearway_partition::HotRow>,
) -> Vec<HotRow> {
    if rows.is_empty() {
        return Vec::new();
    }
    let names = Names::new(catalog);
    let named = |row: clearway_partition::HotRow| {
        let lock = names.of_key(row.tree, &row.key, row.locked.unwrap_or_default());
        let (holders, waiters, behind, learned) =
            (row.holders, row.waiters, row.behind, row.learned);
        HotRow { partition, lock, holders, waiters, behind, learned }
    };
    rows.into_iter().map(named).collect()
}

fn tell(gathered: &Latch<Gathered>, mut rows: Vec<HotRow>) {
    let (mut all, take) = {
        let mut gathered = gathered.lock();
        gathered.rows.append(&mut rows);
        gathered.left -= 1;
        if gathered.left > 0 {
            return;
        }
        (std::mem::take(&mut gathered.rows), gathered.take.take())
    };
    let order = |row: &HotRow| (Reverse(row.holders + row.waiters), row.partition);
    // Stable: those of a partition come in its order.
    all.sort_by_key(order);
    if let Some(take) = take {
        take(all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_partition_ends_a_look() {
        let (tell_all, hear) = std::sync::mpsc::channel();
        let take: Take = Box::new(move |all| tell_all.send(all).unwrap());
        let gathered =
            Latch::new(&GATHERED, Gathered { rows: Vec::new(), left: 2, take: Some(take) });
        let row = |partition, holders| HotRow {
            partition: PartitionId(partition),
            holders,
            ..HotRow::default()
        };
        tell(&gathered, vec![row(1, 3), row(1, 2)]);
        assert!(hear.try_recv().is_err());
        tell(&gathered, vec![row(0, 5), row(0, 3)]);
        let wanted = [row(0, 5), row(0, 3), row(1, 3), row(1, 2)];
        assert_eq!(hear.recv().unwrap(), wanted);
    }
}
