//! Leases: how the death of a worker is noticed.
//!
//! A table with a log has a word for each worker in every owner's region. A worker renews its
//! leases by [`RowWorker::renew_leases`](crate::RowWorker::renew_leases), which writes a count that
//! has moved on, and ends them by [`RowWorker::end_leases`](crate::RowWorker::end_leases). Each
//! owner looks at its words with a [`LeaseWatch`]: a worker whose count stands still for the
//! lease's time is taken for dead. Then [`crate::recovery`] begins, at all owners.
//!
//! Leases tell of dead workers, and nothing relies on their being right: a worker that lives and is
//! taken for dead is fenced off, and loses only its transactions. So no clock is compared with
//! another, and no bound on delays is assumed.
//!
//! The other way round: a worker notices the death of an owner's node when a verb fails. Renewals
//! are such verbs, so that a worker without transactions notices it, too.
//!
//! # Invariants
//! 1. A word of 0 belongs to nobody, who cannot die. A worker's count is never 0 until it ends its
//!    lease.
//! 2. Only time between looks that are close to each other counts: an owner that was stopped,
//!    perhaps with all workers of its machine, starts all leases anew.
//!
//! # Locking, and what a crash leaves
//! Each word is written by its worker alone, and by its owner after the fence. The word of a dead
//! worker stays until its owner clears it by [`LeaseWatch::clear`].

use crate::Table;
use clearway_fabric::Region;

/// The words of one owner's leases, and since when each has stood still.
#[derive(Debug)]
pub struct LeaseWatch {
    first_word: usize,
    lease_ns: u64,
    /// By worker: its count, and when it was first seen.
    seen: Vec<(u64, u64)>,
    looked_ns: Option<u64>,
}

impl LeaseWatch {
    /// A watch over the workers of a table, for one owner. A worker should renew its leases at
    /// least 4 times in `lease_ns`; the owner should look as often.
    pub fn new(table: &Table, lease_ns: u64) -> Self {
        let seen = vec![(0, 0); table.log.workers as usize];
        Self { first_word: table.lease(0), lease_ns, seen, looked_ns: None }
    }

    /// Looks at the owner's region, and returns the workers that are taken for dead: until their
    /// words are cleared. `now_ns` is this owner's monotonic time.
    pub fn look(&mut self, now_ns: u64, region: &dyn Region) -> Vec<u16> {
        let looked_ns = self.looked_ns.replace(now_ns).unwrap_or(now_ns);
        let slept = now_ns - looked_ns > self.lease_ns / 2;
        let mut dead = Vec::new();
        for (worker, (count, since_ns)) in (0_u16..).zip(&mut self.seen) {
            let found = region.load(self.first_word + usize::from(worker));
            if found != *count || slept {
                (*count, *since_ns) = (found, now_ns);
            } else if found != 0 && now_ns - *since_ns >= self.lease_ns {
                dead.push(worker);
            }
        }
        dead
    }

    /// Ends the lease of a dead worker, in a region that was fenced after its death was noticed.
    pub fn clear(&mut self, worker: u16, region: &dyn Region) {
        region.store(self.first_word + usize::from(worker), 0);
    }
}
