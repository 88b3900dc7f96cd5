//! Old row versions in the temporary file: writes and reads.

use super::Partition;
use crate::message::{Out, Outbox};
use crate::txn::Task;
use crate::versions::MissingBlock;
use clearway_storage::{SpillFile, Trees};
use clearway_types::TxnId;
use std::sync::Arc;

impl<T: Trees> Partition<T> {
    /// Makes the partition spill to this file the old versions that exceed
    /// [`crate::Limits::version_memory`]. With `None`, snapshots fail in that case.
    #[must_use]
    pub fn with_spill(mut self, file: Option<Arc<SpillFile>>) -> Self {
        self.trees.versions.spill.use_file(file);
        self
    }

    /// Returns the approximate memory kept for open snapshots, in bytes.
    pub fn version_memory(&self) -> usize {
        self.trees.versions.bytes()
    }

    /// Requests the pending block writes.
    #[inline]
    pub(super) fn issue_writes(&mut self, out: &mut Outbox) {
        if let Some(write) = self.trees.versions.spill.take_writes() {
            out.push(Out::WriteSpill { write });
        }
    }

    /// Returns the request for the blocks that a task needs.
    pub(super) fn read_spilled(
        &mut self,
        txn: TxnId,
        task: &mut Task,
        missing: Vec<MissingBlock>,
    ) -> Out {
        let (read, loaded) = self.trees.versions.spill.read(task.loaded.take(), missing);
        task.loaded = Some(loaded);
        Out::ReadSpill { partition: self.id, txn, read }
    }
}
