//! The state, the counts and the times of all partitions, for monitoring.

use crate::engine::Engine;
use crate::gather::Answers;
use clearway_latch::lockstat::Class;
use clearway_partition::{Body, PartitionReport, TakeReport};
use clearway_types::PartitionId;
use std::sync::Arc;

type Numbered = (PartitionId, PartitionReport);

static REPORTS: Class = Class::new("coordinator.partitions");

impl Engine {
    /// Passes the reports of all partitions to `take`, in the order of the partitions. `take` is
    /// called in the thread of the worker that reports last.
    pub fn partition_reports(
        &self,
        take: impl FnOnce(Vec<(PartitionId, PartitionReport)>) + Send + 'static,
    ) {
        let ask = |reports: Arc<Answers<Numbered>>| {
            let add = move |partition, report| reports.add(vec![(partition, report)]);
            Body::Report(TakeReport(Box::new(add)))
        };
        self.ask_all(&REPORTS, ask, |mut reports| {
            reports.sort_by_key(|(partition, _)| *partition);
            take(reports);
        });
    }
}
