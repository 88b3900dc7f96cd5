//! Leases detect dead workers.
//!
//! A table with a log has one word per worker in every owner's region. A worker renews its leases
//! by [`RowWorker::renew_leases`](crate::RowWorker::renew_leases), which writes an increased count,
//! and ends them by [`RowWorker::end_leases`](crate::RowWorker::end_leases). Each owner checks its
//! words with a [`LeaseWatch`]. A worker whose count has not changed for the lease time is
//! considered dead. Then [`crate::recovery`] begins at all owners.
//!
//! Where the fabric checks each verb at the owner, correctness does not depend on the leases. A
//! live worker that is considered dead is fenced off and loses only its transactions. So clocks are
//! never compared, and no bound on delays is assumed.
//!
//! On shared memory ([`clearway_fabric::shm`]) the worker's own process executes a verb, and the
//! fence does not stop one that has begun. A worker that is suspended in the middle of a verb is
//! reported as dead, too. If it continued after the fence, it would write to a row that another
//! transaction has locked. So its process must have ended before the fence: kill it first.
//!
//! In the other direction, a worker notices the death of an owner's node when a verb fails.
//! Renewals are such verbs, so a worker without transactions notices it, too. If the owner's host
//! has died, a verb over TCP fails after 5 s.
//!
//! # Invariants
//! 1. A word of 0 means that there is no lease that could expire. A worker's count is never 0 until
//!    it ends its lease.
//! 2. Only time between closely spaced checks counts. An owner that was suspended, possibly
//!    together with all workers of its machine, restarts all leases.
//!
//! # Locking and crashes
//! Each word is written by its worker alone, and by its owner after the fence. The word of a dead
//! worker stays until its owner clears it by [`LeaseWatch::clear`].

use crate::Table;
use clearway_fabric::Region;

/// The lease words of one owner, and how long each has been unchanged.
#[derive(Debug)]
pub struct LeaseWatch {
    first_word: usize,
    lease_ns: u64,
    /// By worker: its count, and when that was first seen.
    seen: Vec<(u64, u64)>,
    looked_ns: Option<u64>,
}

impl LeaseWatch {
    /// Creates a watch over the workers of a table, for one owner. A worker should renew its leases
    /// at least 4 times in `lease_ns`, and the owner should check as often.
    pub fn new(table: &Table, lease_ns: u64) -> Self {
        let seen = vec![(0, 0); table.log.workers as usize];
        Self { first_word: table.lease(0), lease_ns, seen, looked_ns: None }
    }

    /// Checks the owner's region and returns the workers considered dead. They are returned until
    /// their words are cleared. On shared memory, end their processes before the fence: a suspended
    /// one may continue. `now_ns` is this owner's monotonic time.
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

    /// Ends the lease of a dead worker, in a region that was fenced after the death was noticed.
    pub fn clear(&mut self, worker: u16, region: &dyn Region) {
        region.store(self.first_word + usize::from(worker), 0);
    }
}
