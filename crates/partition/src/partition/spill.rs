//! Old versions of rows in the temporary file: what goes there, and what readers need of it.

use super::Partition;
use crate::message::{Out, Outbox};
use crate::trees::Trees;
use crate::txn::Task;
use crate::versions::Lacking;
use clearway_storage::SpillFile;
use clearway_types::TxnId;
use std::sync::Arc;

impl<T: Trees> Partition<T> {
    /// The same partition, which spills to this file what [`crate::Limits::version_memory`] does
    /// not hold of old versions. None: then snapshots fail.
    #[must_use]
    pub fn with_spill(mut self, file: Option<Arc<SpillFile>>) -> Self {
        self.trees.versions.spill.use_file(file);
        self
    }

    /// Bytes in memory that are kept for open snapshots, about.
    pub fn version_memory(&self) -> usize {
        self.trees.versions.bytes()
    }

    /// Hands out the blocks that are to be written.
    #[inline]
    pub(super) fn hand_out_writes(&mut self, out: &mut Outbox) {
        if let Some(write) = self.trees.versions.spill.take_writes() {
            out.push(Out::WriteSpill { write });
        }
    }

    /// What brings a task the blocks that it lacks.
    pub(super) fn read_spilled(
        &mut self,
        txn: TxnId,
        task: &mut Task,
        lacking: Vec<Lacking>,
    ) -> Out {
        let (read, loaded) = self.trees.versions.spill.read(task.loaded.take(), lacking);
        task.loaded = Some(loaded);
        Out::ReadSpill { partition: self.id, txn, read }
    }
}
