//! Posts the batches of accesses.

use super::{RowWorker, direct};
use crate::{Phase, RemoteError};
use clearway_fabric::{FabricWorker, PostError, QueueId, Request};

impl<W: FabricWorker> RowWorker<'_, W> {
    pub(super) fn send(
        &mut self,
        txn: usize,
        access: usize,
        phase: Phase,
        batch: Vec<Request>,
    ) -> Result<(), RemoteError> {
        let owner = self.txns[txn].accesses[access].row.owner as usize;
        if let Some((node, region)) = self.local
            && self.table.owners[owner].address.node == node
        {
            self.stats.direct += batch.len() as u64;
            for request in &batch {
                direct::execute(&mut self.fabric, region, request.verb);
            }
            // Not 0: a call is in flight until `poll`.
            self.txns[txn].accesses[access].pending = 1;
            self.executed.push_back((txn, access));
            return Ok(());
        }
        if self.table.owners[owner].address.node == self.fabric.address().node {
            self.stats.count_own(batch.len());
        }
        self.send_to(self.queues[owner], txn, access, phase, batch)
    }

    pub(super) fn send_to(
        &mut self,
        queue: QueueId,
        txn: usize,
        access: usize,
        phase: Phase,
        mut batch: Vec<Request>,
    ) -> Result<(), RemoteError> {
        self.stats.count_batch(phase, batch.len());
        self.txns[txn].accesses[access].pending = batch.len();
        for request in &mut batch {
            request.id = (txn * self.limits.rows + access) as u64;
        }
        self.post(queue, batch)
    }

    /// Posts a batch behind those of the queue pair that wait for room. Otherwise a transaction
    /// that keeps retrying could starve them.
    pub(super) fn post(&mut self, queue: QueueId, batch: Vec<Request>) -> Result<(), RemoteError> {
        if self.backlog.iter().any(|(of, _)| *of == queue) || !self.try_post(queue, &batch)? {
            self.backlog.push_back((queue, batch));
        }
        Ok(())
    }

    /// Returns false if there is no room.
    fn try_post(&mut self, queue: QueueId, batch: &[Request]) -> Result<bool, RemoteError> {
        match self.fabric.post(queue, batch) {
            Ok(()) => {
                self.outstanding += batch.len();
                Ok(true)
            }
            Err(PostError::QueueFull) => Ok(false),
            Err(why) => Err(RemoteError::Post(why)),
        }
    }

    /// Posts waiting batches for which there is room now, in order for each queue pair.
    pub(super) fn post_backlog(&mut self) -> Result<(), RemoteError> {
        let mut full = Vec::new();
        for (queue, batch) in std::mem::take(&mut self.backlog) {
            if full.contains(&queue) || !self.try_post(queue, &batch)? {
                full.push(queue);
                self.backlog.push_back((queue, batch));
            }
        }
        Ok(())
    }
}
