//! What a check found.

use crate::history::TxnIndex;
use std::collections::BTreeMap;
use std::fmt;

/// Steps and transactions of a cycle that a finding shows.
pub(crate) const SHOWN_STEPS: usize = 32;

/// A kind of anomaly, named as in Adya's and Elle's papers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Anomaly {
    /// A cycle of writes: the versions of several objects are in different orders.
    G0,
    /// A committed transaction read a write of an aborted one.
    G1a,
    /// A committed transaction read a write that its writer overwrote or appended to itself.
    G1b,
    /// A cycle of writes and reads of them: information flows in a circle.
    G1c,
    /// A cycle with exactly one anti-dependency: read skew, or a read of part of a transaction.
    GSingle,
    /// A cycle with several anti-dependencies: write skew.
    G2,
    /// Several transactions read the same version of an object and each replaced it.
    LostUpdate,
    /// A transaction's read contradicts its own earlier reads or writes.
    Internal,
    /// A read of an element or value that nobody wrote.
    Garbage,
    /// An element is in a list twice.
    Duplicate,
    /// Reads of a list that no single order explains, or appends that are missing or in a wrong
    /// order.
    IncompatibleOrder,
    /// The versions of a register cannot be put in an order.
    CyclicVersions,
}

impl Anomaly {
    /// The name that reports show.
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
        }
    }
}

/// Which orders a cycle needs besides the dependencies of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Order {
    /// None: the cycle contradicts serializability itself.
    Data,
    /// The order of a session: the cycle contradicts strong session serializability.
    Session,
    /// Real time: the cycle contradicts strict serializability.
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
pub struct Step {
    /// Must come first.
    pub from: TxnIndex,
    /// Must come later.
    pub to: TxnIndex,
    /// Why.
    pub reason: String,
}

/// One anomaly with its evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its kind.
    pub anomaly: Anomaly,
    /// What it contradicts.
    pub order: Order,
    /// The evidence in words; empty for a cycle, whose steps say it.
    pub text: String,
    /// The edges of the cycle, in order; empty where the anomaly is no cycle.
    pub steps: Vec<Step>,
    /// The transactions that take part, in short; the first ones of a long cycle.
    pub transactions: Vec<(TxnIndex, String)>,
}

impl Finding {
    /// The anomaly's name with what it needs: `G-single-realtime`.
    pub fn name(&self) -> String {
        format!("{}{}", self.anomaly.name(), self.order.suffix())
    }
}

impl fmt::Display for Finding {
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

/// How much was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Transactions whose commit was acknowledged.
    pub committed: u64,
    /// Transactions that were rolled back.
    pub aborted: u64,
    /// Transactions with an unknown outcome.
    pub unknown: u64,
    /// Of these: how many another transaction has seen, so that they did commit.
    pub unknown_seen: u64,
    /// Operations of all transactions.
    pub operations: u64,
    /// Edges of the graph, those of sessions and real time included.
    pub edges: u64,
}

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How much was checked.
    pub counts: Counts,
    /// Evidence: at most [`crate::CheckOptions::examples`] for each anomaly and order.
    pub findings: Vec<Finding>,
    /// How many of each were found. Of cycles: in how many strongly connected components of the
    /// graph.
    pub found: BTreeMap<(Anomaly, Order), u64>,
}

impl Report {
    /// Returns true if nothing was found.
    pub fn is_clean(&self) -> bool {
        self.found.is_empty()
    }

    /// The kinds of anomaly that were found, in whatever order they contradict.
    pub fn anomalies(&self) -> impl Iterator<Item = Anomaly> + '_ {
        let mut last = None;
        self.found.keys().map(|(anomaly, _)| *anomaly).filter(move |a| last.replace(*a) != Some(*a))
    }

    /// Takes in a finding; `build` is called only where one more example is wanted.
    pub(crate) fn add(
        &mut self,
        key: (Anomaly, Order),
        examples: usize,
        build: impl FnOnce() -> Finding,
    ) {
        let count = self.found.entry(key).or_default();
        *count += 1;
        if *count <= examples as u64 {
            self.findings.push(build());
        }
    }

    /// One line: how many of each anomaly.
    pub fn summary(&self) -> String {
        if self.is_clean() {
            return "no anomalies".into();
        }
        let each = self.found.iter().map(|((a, o), n)| format!("{}{}: {n}", a.name(), o.suffix()));
        each.collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Report {
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
