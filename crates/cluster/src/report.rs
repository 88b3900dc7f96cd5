//! The result of a run.

use std::fmt::{self, Display, Formatter};

/// What happened in a run without findings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterReport {
    /// Transactions whose clients were told a commit.
    pub committed: u64,
    /// Transactions whose clients were told an abort.
    pub aborted: u64,
    /// Transactions whose coordinators crashed.
    pub unknown: u64,
    /// Aborted transactions that were repeated, because another one had prevented them.
    pub repeated: u64,
    /// Crashes of coordinators, primaries and backups.
    pub crashes: u64,
    /// Lost messages.
    pub lost: u64,
    /// Doubled messages.
    pub doubled: u64,
    /// Questions of partitions about the outcome of a transaction.
    pub inquiries: u64,
    /// Changes of a partition's scheme.
    pub scheme_changes: u64,
    /// Operations that the checker of histories has checked.
    pub operations: u64,
    /// Events of the simulation.
    pub events: u64,
    /// Virtual time until the last client was told, in nanoseconds.
    pub virtual_ns: u64,
    /// Sum of the latencies of the committed transactions in virtual time, in nanoseconds.
    pub latency_ns: u64,
}

impl ClusterReport {
    /// Returns the committed transactions in a second of virtual time.
    pub fn throughput(&self) -> f64 {
        self.committed as f64 * 1e9 / self.virtual_ns.max(1) as f64
    }

    /// Adds another run.
    pub fn add(&mut self, other: &Self) {
        let fields = [
            (&mut self.committed, other.committed),
            (&mut self.aborted, other.aborted),
            (&mut self.unknown, other.unknown),
            (&mut self.repeated, other.repeated),
            (&mut self.crashes, other.crashes),
            (&mut self.lost, other.lost),
            (&mut self.doubled, other.doubled),
            (&mut self.inquiries, other.inquiries),
            (&mut self.scheme_changes, other.scheme_changes),
            (&mut self.operations, other.operations),
            (&mut self.events, other.events),
            (&mut self.virtual_ns, other.virtual_ns),
            (&mut self.latency_ns, other.latency_ns),
        ];
        fields.into_iter().for_each(|(sum, value)| *sum += value);
    }

    /// Returns the number of transactions with any outcome.
    pub fn transactions(&self) -> u64 {
        self.committed + self.aborted + self.unknown
    }
}

impl Display for ClusterReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} committed, {} aborted ({} repeated), {} unknown; {} crashes, {} messages lost, \
             {} doubled, {} inquiries; {} operations checked",
            self.committed,
            self.aborted,
            self.repeated,
            self.unknown,
            self.crashes,
            self.lost,
            self.doubled,
            self.inquiries,
            self.operations
        )
    }
}
