//! The results of a check.

use crate::txn::TxnIndex;
use std::collections::BTreeMap;
use std::fmt;

/// Maximum steps and transactions of a cycle that a finding shows.
pub(crate) const SHOWN_STEPS: usize = 32;

/// A kind of anomaly, named as in Adya's and Elle's papers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Anomaly {
    /// A cycle of writes: the versions of several objects are in different orders.
    G0,
    /// A committed transaction read a write of an aborted one.
    G1a,
    /// A committed transaction read a value that its writer itself overwrote or extended, or some
    /// but not all of what a transaction added to a counter.
    G1b,
    /// A cycle of writes and reads of them: circular information flow.
    G1c,
    /// A cycle with exactly one anti-dependency: read skew, or a read of part of a transaction.
    GSingle,
    /// A cycle with several anti-dependencies: write skew.
    G2,
    /// Several transactions read the same version of an object and each replaced it.
    LostUpdate,
    /// A transaction's read contradicts its own other reads or writes: it lacks an earlier one, or
    /// shows a later one.
    Internal,
    /// A read of an element, a value or an amount that no transaction wrote or added.
    Garbage,
    /// A list contains an element twice.
    Duplicate,
    /// Reads of a list that no single order explains, or appends that are missing or in the wrong
    /// order.
    IncompatibleOrder,
    /// The versions of a register cannot be ordered.
    CyclicVersions,
    /// A read of a counter without an addition whose transaction had committed before the reader
    /// started.
    LostAddition,
}

impl Anomaly {
    /// Returns the name that reports show.
    pub fn name(self) -> &'static str {
        match self {
            Self::G0 => "G0",
            Self::G1a => "G1a",
            Self::G1b => "G1b",
            Self::G1c => "G1c",
            Self::GSingle => "G-single",
            Self::G2 => "G2",
            Self::LostUpdate => "lost-update",
            Self::Internal => "internal",
            Self::Garbage => "garbage-read",
            Self::Duplicate => "duplicate-elements",
            Self::IncompatibleOrder => "incompatible-order",
            Self::CyclicVersions => "cyclic-versions",
            Self::LostAddition => "lost-addition",
        }
    }
}

/// The orders that a cycle needs besides the data dependencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Order {
    /// None: the cycle violates serializability itself.
    Data,
    /// The order of a session: the cycle violates strong session serializability.
    Session,
    /// Real time: the cycle violates strict serializability.
    RealTime,
}

impl Order {
    fn suffix(self) -> &'static str {
        match self {
            Self::Data => "",
            Self::Session => "-session",
            Self::RealTime => "-realtime",
        }
    }
}

/// One edge of a cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CycleStep {
    /// The transaction that must come first.
    pub from: TxnIndex,
    /// The transaction that must come later.
    pub to: TxnIndex,
    /// The reason for the order.
    pub reason: String,
}

/// One anomaly with its evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryFinding {
    /// The kind of anomaly.
    pub anomaly: Anomaly,
    /// The order that it contradicts.
    pub order: Order,
    /// The evidence in words; empty for a cycle, whose steps are the evidence.
    pub text: String,
    /// The edges of the cycle, in order; empty if the anomaly is not a cycle.
    pub steps: Vec<CycleStep>,
    /// Short descriptions of the transactions involved; only the first ones of a long cycle.
    pub transactions: Vec<(TxnIndex, String)>,
}

impl HistoryFinding {
    /// Returns the anomaly's name with the order that it contradicts, for example
    /// `G-single-realtime`.
    pub fn name(&self) -> String {
        format!("{}{}", self.anomaly.name(), self.order.suffix())
    }
}

impl fmt::Display for HistoryFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name())?;
        if !self.text.is_empty() {
            write!(f, ": {}", self.text)?;
        }
        for (index, text) in &self.transactions {
            write!(f, "\n  {index}: {text}")?;
        }
        for step in self.steps.iter().take(SHOWN_STEPS) {
            write!(f, "\n  {} before {}: {}", step.from, step.to, step.reason)?;
        }
        if self.steps.len() > SHOWN_STEPS {
            write!(f, "\n  and {} more steps", self.steps.len() - SHOWN_STEPS)?;
        }
        if let Some(last) = self.steps.last() {
            write!(f, "\n  so {} would have to run before itself", last.to)?;
        }
        Ok(())
    }
}

/// The size of the checked history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Transactions whose commit was acknowledged.
    pub committed: u64,
    /// Transactions that were rolled back.
    pub aborted: u64,
    /// Transactions with an unknown outcome.
    pub unknown: u64,
    /// Transactions with an unknown outcome whose writes were seen, so that they did commit.
    pub unknown_seen: u64,
    /// Operations of all transactions.
    pub operations: u64,
    /// Edges of the graph, including those of sessions and real time.
    pub edges: u64,
}

/// The results of a check.
#[derive(Clone, Debug, Default)]
pub struct HistoryReport {
    /// The size of the checked history.
    pub counts: Counts,
    /// Evidence: at most [`crate::CheckerOptions::examples`] for each anomaly and order.
    pub findings: Vec<HistoryFinding>,
    /// The number of findings for each anomaly and order. For cycles: the number of strongly
    /// connected components of the graph that have one.
    pub found: BTreeMap<(Anomaly, Order), u64>,
}

impl HistoryReport {
    /// Returns true if no anomalies were found.
    pub fn is_clean(&self) -> bool {
        self.found.is_empty()
    }

    /// Returns the kinds of anomalies that were found, regardless of the order that they
    /// contradict.
    pub fn anomalies(&self) -> impl Iterator<Item = Anomaly> + '_ {
        let mut last = None;
        self.found.keys().map(|(anomaly, _)| *anomaly).filter(move |a| last.replace(*a) != Some(*a))
    }

    /// Counts a finding. Calls `build` only if another example is needed.
    pub(crate) fn add(
        &mut self,
        key: (Anomaly, Order),
        examples: usize,
        build: impl FnOnce() -> HistoryFinding,
    ) {
        let count = self.found.entry(key).or_default();
        *count += 1;
        if *count <= examples as u64 {
            self.findings.push(build());
        }
    }

    /// Summarises the number of each anomaly in one line.
    pub fn summary(&self) -> String {
        if self.is_clean() {
            return "no anomalies".into();
        }
        let each = self.found.iter().map(|((a, o), n)| format!("{}{}: {n}", a.name(), o.suffix()));
        each.collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for HistoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}\n")?;
        }
        let c = &self.counts;
        writeln!(
            f,
            "{} committed, {} aborted, {} unknown ({} of them seen by others), {} operations, {} edges",
            c.committed, c.aborted, c.unknown, c.unknown_seen, c.operations, c.edges
        )?;
        write!(f, "{}", self.summary())
    }
}
