//! A worker's part in leases: see [`crate::lease`].

use super::RowWorker;
use crate::RemoteError;
use clearway_fabric::{FabricWorker, RemoteAddr, Request, ScratchRange, Verb};

/// Scratch words from which renewals are written.
pub(super) const LEASE_WORDS: usize = 1;

/// The id of a renewal is this minus the owner's number. No access has such an id.
const LAST_ID: u64 = u64::MAX;

/// A worker's leases.
pub(super) struct Leases {
    count: u64,
    /// By owner: whether a renewal is in flight.
    renewing: Vec<bool>,
}

impl Leases {
    pub fn new(owners: usize) -> Self {
        Self { count: 0, renewing: vec![false; owners] }
    }

    /// Forgets renewals in flight, because a pause has ended them.
    pub fn pause(&mut self) {
        self.renewing.fill(false);
    }

    /// Handles the completion of a renewal. Returns false if it belongs to another request.
    pub fn take(&mut self, id: u64) -> bool {
        let owner = LAST_ID - id;
        match usize::try_from(owner).ok().and_then(|owner| self.renewing.get_mut(owner)) {
            Some(renewing) => {
                *renewing = false;
                true
            }
            None => false,
        }
    }
}

impl<W: FabricWorker> RowWorker<'_, W> {
    /// Renews the worker's leases at all owners, except where the last renewal is still in flight.
    /// The caller decides how often: see [`LeaseWatch::new`](crate::LeaseWatch::new).
    ///
    /// # Errors
    /// Returns [`RemoteError::Post`] if the fabric rejects the batch. A renewal that fails is an
    /// error of the next [`RowClient::poll`](crate::RowClient::poll), like any verb: the owner's
    /// node is dead, or this worker was considered dead.
    ///
    /// # Panics
    /// Panics if the table has no log.
    pub fn renew_leases(&mut self) -> Result<(), RemoteError> {
        self.leases.count += 1;
        self.write_leases(self.leases.count)
    }

    /// Ends the worker's leases, so that it can no longer be considered dead. It should have no
    /// transactions. Poll until [`RowWorker::is_quiet`] before the worker is dropped. If that fails
    /// because of a fence, the leases have not ended: end them after [`RowWorker::resume`].
    ///
    /// # Errors
    /// As [`RowWorker::renew_leases`].
    pub fn end_leases(&mut self) -> Result<(), RemoteError> {
        // A renewal in flight cannot overtake this WRITE: both use the same queue pair.
        self.leases.pause();
        self.write_leases(0)
    }

    /// Returns true if no verb of the worker is in flight.
    pub fn is_quiet(&self) -> bool {
        self.outstanding == 0 && self.backlog.is_empty()
    }

    fn write_leases(&mut self, count: u64) -> Result<(), RemoteError> {
        assert!(self.table.is_logged(), "a table without a log has no leases");
        let word = self.table.lease(self.number) as u64;
        let start = self.limits.scratch_words(self.table.longest_payload()) - LEASE_WORDS;
        self.fabric.store(start, count);
        for number in 0..self.table.owners.len() {
            if std::mem::replace(&mut self.leases.renewing[number], true) {
                continue;
            }
            let remote = RemoteAddr { key: self.table.owners[number].region, word };
            let write = Verb::Write { local: ScratchRange::new(start, LEASE_WORDS), remote };
            self.stats.lease_renewals += 1;
            self.post(self.queues[number], vec![Request::new(LAST_ID - number as u64, write)])?;
        }
        Ok(())
    }
}
