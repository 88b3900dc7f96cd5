//! A worker's counters, for the metrics.
//!
//! Invariant: only the worker's thread writes its counters, by a load and a store, on cache lines
//! of their own. Readers add up the counters of all workers; the sum may miss concurrent
//! increments.

use crate::latency::{Histogram, Latency};
use clearway_types::SqlState;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The classes of SQLSTATE by which errors are counted; the last one counts all others.
pub(crate) const CLASSES: [&str; 22] = [
    "08", "0A", "0B", "21", "22", "23", "25", "26", "28", "34", "3B", "3D", "3F", "40", "42", "53",
    "54", "55", "57", "58", "XX", "other",
];

/// One worker's counters.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    statements: AtomicU64,
    errors: [AtomicU64; CLASSES.len()],
    received: AtomicU64,
    sent: AtomicU64,
    commits_waiting: AtomicU64,
    statement_latency: Histogram,
    commit_latency: Histogram,
}

/// The counters of all workers, added up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Statements started.
    pub(crate) statements: u64,
    /// Errors sent to clients, by [`CLASSES`].
    pub(crate) errors: [u64; CLASSES.len()],
    /// Bytes received from clients.
    pub(crate) received: u64,
    /// Bytes sent to clients.
    pub(crate) sent: u64,
    /// Sessions whose replies are waiting for the log.
    pub(crate) commits_waiting: u64,
    /// Time from a statement's start until its result is complete.
    pub(crate) statement_latency: Latency,
    /// Time from a statement's start until its reply is durable, for replies that waited for the
    /// log.
    pub(crate) commit_latency: Latency,
}

fn add(counter: &AtomicU64, by: u64) {
    // Relaxed, here and below: a statistic that orders nothing. A load and a store suffice, because
    // there is only one writer.
    counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn statement(&self) {
        add(&self.statements, 1);
    }

    pub(crate) fn error(&self, state: SqlState) {
        let class = state.as_str().get(..2).unwrap_or_default();
        let at = CLASSES.iter().position(|known| *known == class).unwrap_or(CLASSES.len() - 1);
        add(&self.errors[at], 1);
    }

    pub(crate) fn traffic(&self, received: u64, sent: u64) {
        add(&self.received, received);
        add(&self.sent, sent);
    }

    pub(crate) fn commits_waiting(&self, sessions: usize) {
        self.commits_waiting.store(sessions as u64, Ordering::Relaxed);
    }

    pub(crate) fn statement_took(&self, time: Duration) {
        self.statement_latency.record(time);
    }

    pub(crate) fn commit_took(&self, time: Duration) {
        self.commit_latency.record(time);
    }

    /// Adds these counters to a sum.
    pub(crate) fn add_to(&self, totals: &mut Totals) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        totals.statements += load(&self.statements);
        totals.errors.iter_mut().zip(&self.errors).for_each(|(sum, counter)| *sum += load(counter));
        totals.received += load(&self.received);
        totals.sent += load(&self.sent);
        totals.commits_waiting += load(&self.commits_waiting);
        totals.statement_latency.add(&self.statement_latency);
        totals.commit_latency.add(&self.commit_latency);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_class_of_sqlstate() {
        let (one, other) = (Counters::default(), Counters::default());
        one.error(SqlState::SYNTAX);
        other.error(SqlState::UNDEFINED_TABLE);
        other.error(SqlState(*b"P0001"));
        let mut totals = Totals::default();
        [one, other].iter().for_each(|counters| counters.add_to(&mut totals));
        let of = |class: &str| totals.errors[CLASSES.iter().position(|c| *c == class).unwrap()];
        assert_eq!((of("42"), of("other"), of("40")), (2, 1, 0));
    }

    #[test]
    fn classes_are_sorted_and_distinct() {
        assert!(CLASSES[..CLASSES.len() - 1].is_sorted_by(|a, b| a < b));
    }
}
