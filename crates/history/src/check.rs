//! Runs the whole check.

use crate::cycles;
use crate::dependencies::{self, Facts};
use crate::graph::Builder;
use crate::history::History;
use crate::realtime;
use crate::report::{Anomaly, Counts, HistoryReport};
use crate::txn::TxnOutcome;

/// Options of a check.
#[derive(Clone, Copy, Debug)]
pub struct CheckerOptions {
    /// Whether the order must agree with real time (strict serializability) and with the order of
    /// each session.
    pub real_time: bool,
    /// Maximum number of examples kept for each anomaly.
    pub examples: usize,
}

impl Default for CheckerOptions {
    fn default() -> Self {
        Self { real_time: true, examples: 4 }
    }
}

impl History {
    /// Finds the anomalies. Takes time linear in the number of operations, except for sorting, the
    /// lengths of the lists and the additions in each sum, at most 63. Takes about 130 bytes per
    /// operation, including the history, and 20 per addition in each different sum of a counter.
    pub fn check(&mut self, options: &CheckerOptions) -> HistoryReport {
        let (committed, internal) = dependencies::resolve_unknown(self);
        let history = &*self;
        let mut report =
            HistoryReport { counts: history.counts(&committed), ..HistoryReport::default() };
        let mut builder = Builder::new(history.heads.len() as u32);
        let facts = Facts::new(history, committed, *options);
        for found in history.internal.iter().chain(&internal) {
            facts.report(&mut report, Anomaly::Internal, &[found.txn.0], || {
                let (txn, name) = (found.txn, history.name(found.key));
                format!(
                    "{txn} read {} from {name}, but its own operations imply {}",
                    found.found, found.expected
                )
            });
        }
        facts.add_all(&mut builder, &mut report);
        if options.real_time {
            realtime::add_sessions(&mut builder, &history.heads, &facts.committed);
            realtime::add_real_time(&mut builder, &history.heads, &facts.committed);
        }
        drop(facts);
        let graph = builder.build();
        report.counts.edges = graph.edge_count() as u64;
        for cycle in cycles::find(&graph) {
            report.add((cycle.anomaly, cycle.order), options.examples, || history.explain(&cycle));
        }
        report
    }

    fn counts(&self, committed: &[bool]) -> Counts {
        let mut counts = Counts { operations: self.ops.len() as u64, ..Counts::default() };
        for (head, committed) in self.heads.iter().zip(committed) {
            match head.outcome {
                TxnOutcome::Committed => counts.committed += 1,
                TxnOutcome::Aborted => counts.aborted += 1,
                TxnOutcome::Unknown => {
                    counts.unknown += 1;
                    counts.unknown_seen += u64::from(*committed);
                }
            }
        }
        counts
    }
}
