//! Describes findings in words.

use crate::cycles::{Cycle, Link};
use crate::graph::{RW, RW_TIME, SESSION, TIME, WR, WW, WW_TIME};
use crate::history::{History, ObjectKind, OpKind, PackedOp};
use crate::report::{CycleStep, HistoryFinding, SHOWN_STEPS};
use crate::txn::{TxnIndex, TxnOutcome};
use std::fmt::Write;

/// Maximum operations that a transaction's description shows.
const SHOWN_OPS: usize = 12;
/// Maximum elements of a list that a description shows: the last ones.
const SHOWN_ELEMENTS: usize = 8;

impl History {
    /// Describes a transaction in one line.
    pub(crate) fn describe(&self, txn: u32) -> String {
        let head = self.heads[txn as usize];
        let outcome = match head.outcome {
            TxnOutcome::Committed => "committed",
            TxnOutcome::Aborted => "rolled back",
            TxnOutcome::Unknown => "outcome unknown",
        };
        let mut text = format!("session {}, {} to ", head.session, head.start);
        // Writing to a `String` cannot fail.
        let _ = if head.end == u64::MAX { write!(text, "?") } else { write!(text, "{}", head.end) };
        let _ = write!(text, ", {outcome}:");
        let ops = &self.ops[self.range(txn)];
        for op in ops.iter().take(SHOWN_OPS) {
            let name = &self.keys[op.key as usize].name;
            let _ = match op.kind {
                OpKind::Append => write!(text, " {name} append {};", op.value),
                OpKind::Prefix | OpKind::Divergent => {
                    write!(text, " {name} is {};", short(self.list(op)))
                }
                OpKind::Write => write!(text, " {name} := {};", op.value),
                OpKind::Read => write!(text, " {name} is {};", op.value),
                OpKind::ReadNothing => write!(text, " {name} is nothing;"),
                OpKind::Add => write!(text, " {name} += {};", op.value),
                OpKind::Sum => write!(text, " {name} is {};", op.value as i64),
            };
        }
        if ops.len() > SHOWN_OPS {
            let _ = write!(text, " and {} more", ops.len() - SHOWN_OPS);
        }
        text
    }

    /// Turns a cycle into a finding.
    pub(crate) fn explain(&self, cycle: &Cycle) -> HistoryFinding {
        let step = |link: &Link| CycleStep {
            from: TxnIndex(link.from),
            to: TxnIndex(link.to),
            reason: self.reason(link),
        };
        let links = cycle.links.iter();
        HistoryFinding {
            anomaly: cycle.anomaly,
            order: cycle.order,
            text: String::new(),
            steps: cycle.links.iter().map(step).collect(),
            transactions: links
                .take(SHOWN_STEPS)
                .map(|l| (TxnIndex(l.from), self.describe(l.from)))
                .collect(),
        }
    }

    fn reason(&self, link: &Link) -> String {
        let (from, to) = (TxnIndex(link.from), TxnIndex(link.to));
        let ends = (self.heads[link.from as usize], self.heads[link.to as usize]);
        match link.kind {
            SESSION => format!("session {} ran {to} after {from}", ends.0.session),
            TIME => {
                format!("{from} ended at {}, before {to} started at {}", ends.0.end, ends.1.start)
            }
            _ => match self.keys[link.key as usize].kind {
                Some(ObjectKind::List) => self.list_reason(link),
                Some(ObjectKind::Counter) => self.counter_reason(link),
                _ => self.register_reason(link),
            },
        }
    }

    fn list_reason(&self, link: &Link) -> String {
        let (from, to, name) =
            (TxnIndex(link.from), TxnIndex(link.to), &self.keys[link.key as usize].name);
        let longest = &self.keys[link.key as usize].longest;
        let (before, after) = (self.appends(link.from, link.key), self.appends(link.to, link.key));
        match link.kind {
            WW => {
                let neighbours =
                    longest.windows(2).find(|w| before.contains(&w[0]) && after.contains(&w[1]));
                match neighbours {
                    Some(pair) => format!(
                        "{from} appended {} to {name}, and {to} appended {} next",
                        pair[0], pair[1]
                    ),
                    None => format!("{from} appended to {name}, and {to} appended {after:?} later"),
                }
            }
            WR => {
                let seen = self.lists(link.to, link.key).find_map(|list| {
                    let value = list.iter().rev().find(|v| before.contains(v))?;
                    Some(format!(
                        "{to} read {} from {name}, where {from} appended {value}",
                        short(list)
                    ))
                });
                seen.unwrap_or_else(|| format!("{to} read what {from} appended to {name}"))
            }
            _ => {
                let missed = self.lists(link.from, link.key).find_map(|list| {
                    let value = after.iter().find(|v| !list.contains(v))?;
                    Some(format!(
                        "{from} read {} from {name}, without the {value} that {to} appended",
                        short(list)
                    ))
                });
                missed.unwrap_or_else(|| format!("{from} read {name} before {to} appended to it"))
            }
        }
    }

    fn register_reason(&self, link: &Link) -> String {
        let (from, to, name) =
            (TxnIndex(link.from), TxnIndex(link.to), &self.keys[link.key as usize].name);
        let written = |txn| {
            self.on_key(txn, link.key)
                .rev()
                .find(|op| op.kind == OpKind::Write)
                .map_or(0, |op| op.value)
        };
        let read = self
            .on_key(link.from, link.key)
            .find(|op| matches!(op.kind, OpKind::Read | OpKind::ReadNothing));
        let seen = match read {
            Some(op) if op.kind == OpKind::Read => op.value.to_string(),
            _ => "nothing".into(),
        };
        let (before, after) = (written(link.from), written(link.to));
        match link.kind {
            WW => format!("{from} wrote {before} to {name}, and {to} replaced it with {after}"),
            WR => format!("{to} read {before} from {name}, which {from} wrote"),
            RW => format!("{from} read {seen} from {name}, which {to} replaced with {after}"),
            WW_TIME => {
                format!("{from} wrote {before} to {name}, before {to} wrote {after} in real time")
            }
            RW_TIME => {
                format!(
                    "{from} read {seen} from {name}, which in real time precedes the {after} \
                     that {to} wrote"
                )
            }
            _ => String::new(),
        }
    }

    fn counter_reason(&self, link: &Link) -> String {
        let (from, to, name) =
            (TxnIndex(link.from), TxnIndex(link.to), &self.keys[link.key as usize].name);
        let is_seen = link.kind == WR;
        let (adder, reader) = if is_seen { (link.from, link.to) } else { (link.to, link.from) };
        let sums = self.on_key(reader, link.key).filter(|op| op.kind == OpKind::Sum);
        let shown = sums.map(|op| op.value).find_map(|sum| {
            let added = self.on_key(adder, link.key).filter(|op| op.kind == OpKind::Add);
            let amount = added.map(|op| op.value).find(|v| (sum & v != 0) == is_seen)?;
            Some((sum as i64, amount))
        });
        match (shown, is_seen) {
            (Some((sum, amount)), true) => {
                format!("{to} read {sum} from {name}, with the {amount} that {from} added")
            }
            (Some((sum, amount)), false) => {
                format!("{from} read {sum} from {name}, without the {amount} that {to} added")
            }
            (None, true) => format!("{to} read what {from} added to {name}"),
            (None, false) => format!("{from} read {name} before {to} added to it"),
        }
    }

    fn on_key(&self, txn: u32, key: u32) -> impl DoubleEndedIterator<Item = &PackedOp> {
        self.ops[self.range(txn)].iter().filter(move |op| op.key == key)
    }

    fn appends(&self, txn: u32, key: u32) -> Vec<u64> {
        self.on_key(txn, key).filter(|op| op.kind == OpKind::Append).map(|op| op.value).collect()
    }

    fn lists(&self, txn: u32, key: u32) -> impl Iterator<Item = &[u64]> {
        let is_list = |op: &&PackedOp| matches!(op.kind, OpKind::Prefix | OpKind::Divergent);
        self.on_key(txn, key).filter(is_list).map(|op| self.list(op))
    }
}

/// Formats a list, or the end of a long one.
fn short(list: &[u64]) -> String {
    match list.len().checked_sub(SHOWN_ELEMENTS) {
        Some(hidden) if hidden > 0 => {
            format!("[{hidden} more, {}", &format!("{:?}", &list[hidden..])[1..])
        }
        _ => format!("{list:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_shortened_to_their_end() {
        assert_eq!(short(&[1, 2]), "[1, 2]");
        assert_eq!(short(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]), "[2 more, 3, 4, 5, 6, 7, 8, 9, 10]");
    }
}
