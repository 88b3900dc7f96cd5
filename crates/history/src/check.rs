//! The check as a whole.

use crate::cycles;
use crate::dependencies::{self, Facts};
use crate::graph::Builder;
use crate::history::{History, Outcome};
use crate::realtime;
use crate::report::{Anomaly, Counts, Report};

/// What to check.
#[derive(Clone, Copy, Debug)]
pub struct CheckOptions {
    /// Whether transactions must appear to run in the order of real time (strict serializability),
    /// and each session's in its own order.
    pub real_time: bool,
    /// Examples to keep of each anomaly.
    pub examples: usize,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self { real_time: true, examples: 4 }
    }
}

impl History {
    /// Finds the anomalies. Needs time linear in the operations, sorting and the lengths of the
    /// lists aside, and about 130 bytes an operation, the history included.
    pub fn check(&mut self, options: &CheckOptions) -> Report {
        let (committed, internal) = dependencies::settle(self);
        let history = &*self;
        let mut report = Report { counts: history.counts(&committed), ..Report::default() };
        let mut builder = Builder::new(history.heads.len() as u32);
        let facts = Facts::new(history, committed, *options);
        for found in history.internal.iter().chain(&internal) {
            facts.report(&mut report, Anomaly::Internal, &[found.txn.0], || {
                let (txn, name) = (found.txn, history.name(found.key));
                format!(
                    "{txn} read {} from {name}, after operations that leave {}",
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
                Outcome::Committed => counts.committed += 1,
                Outcome::Aborted => counts.aborted += 1,
                Outcome::Unknown => {
                    counts.unknown += 1;
                    counts.unknown_seen += u64::from(*committed);
                }
            }
        }
        counts
    }
}
