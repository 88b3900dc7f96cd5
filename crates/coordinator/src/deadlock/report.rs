//! Deadlock reports: to the client whose transaction gives up, and in the log.
//!
//! The cycle's waits are copied while the cycle exists, under the graph's latch. Names are resolved
//! afterwards.

use super::look::Names;
use super::{LineId, Victim, WaitsFor, one_line};
use clearway_ir::{Catalog, Requester};
use clearway_partition::{Stake, Wanted};
use clearway_types::{SqlError, SqlState, TxnId};
use std::sync::Arc;

/// Maximum number of transactions of a cycle that a report shows.
const SHOWN: usize = 20;

/// A cycle of waits, and its victim.
pub(crate) struct Deadlock {
    pub(crate) victim: Victim,
    /// The victim's statement will be retried.
    retried: bool,
    /// The victim first. Each waits for the next one, and the last for the victim.
    cycle: Vec<Member>,
}

struct Member {
    txn: TxnId,
    requester: Option<Requester>,
    wanted: Option<Arc<Wanted>>,
}

impl Member {
    /// Returns the name that users know. A disconnected client has no session any more.
    fn name(&self) -> String {
        match &self.requester {
            Some(requester) => format!("process {}", requester.pid),
            None => format!("transaction {}", self.txn.0),
        }
    }
}

impl WaitsFor {
    /// Copies a cycle as returned by [`WaitsFor::cycle`].
    pub(super) fn deadlock(&self, victim: Victim, cycle: &[(TxnId, LineId)]) -> Deadlock {
        let wait = |txn: &TxnId, line: &LineId| {
            self.waits.get(txn)?.iter().find(|wait| wait.edge() == Some(*line))
        };
        let first = cycle.iter().position(|(txn, _)| *txn == victim.txn).unwrap_or_default();
        let (after, before) = cycle.split_at(first + 1);
        let members = after.iter().rev().chain(before.iter().rev()).map(|(txn, line)| {
            let wait = wait(txn, line);
            Member {
                txn: *txn,
                requester: wait.and_then(|wait| wait.requester.clone()),
                wanted: wait.and_then(|wait| wait.wanted.clone()),
            }
        });
        let stake = cycle.get(first).and_then(|(txn, line)| Some(wait(txn, line)?.stake));
        Deadlock {
            victim,
            retried: matches!(stake, Some(Stake::Retry(_))),
            cycle: members.collect(),
        }
    }
}

impl Deadlock {
    /// Returns a line for each member, in PostgreSQL's words.
    fn lines(&self, catalog: &Catalog) -> Vec<String> {
        let names = Names::new(catalog);
        let next = self.cycle.iter().cycle().skip(1);
        let line = |(member, next): (&Member, &Member)| {
            let what = member
                .wanted
                .as_ref()
                .map_or_else(|| "a lock".to_owned(), |w| names.of(w).to_string());
            format!("{} waits for {what}; blocked by {}.", member.name(), next.name())
        };
        self.cycle.iter().zip(next).take(SHOWN).map(line).collect()
    }

    fn statements(&self) -> String {
        let statement = |member: &Member| {
            let text = one_line(member.requester.as_ref()?.text.as_ref());
            Some(format!("{}: {text}", member.name()))
        };
        self.cycle.iter().take(SHOWN).filter_map(statement).collect::<Vec<_>>().join(" | ")
    }

    /// Logs the deadlock. Returns the error for the victim's client, which is used unless its
    /// statement is retried.
    pub(crate) fn report(&self, catalog: &Catalog) -> SqlError {
        let mut lines = self.lines(catalog);
        if let left @ 1.. = self.cycle.len() - lines.len() {
            lines.push(format!("{left} more."));
        }
        let (statements, text) = (self.statements(), lines.join(" "));
        let victim = self.cycle.first().map(Member::name).unwrap_or_default();
        match self.retried {
            true => tracing::info!(
                statements,
                "deadlock detected: {victim} runs its statement again: {text}"
            ),
            false => tracing::warn!(statements, "deadlock detected: {victim} fails: {text}"),
        }
        let capital = |line: &String| line[..1].to_uppercase() + &line[1..];
        SqlError::new(SqlState::DEADLOCK, "deadlock detected")
            .detail(lines.iter().map(capital).collect::<Vec<_>>().join("\n"))
            .hint("Run the transaction again. The server's log has the statements.")
    }
}
