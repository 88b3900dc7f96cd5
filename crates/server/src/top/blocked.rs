//! The waits for locks at one moment, as a tree of sessions.
//!
//! A root is a session that waits for no lock. Below each session are the sessions that wait for
//! it, the longest wait first.

use std::collections::{BTreeSet, HashMap, HashSet};

/// The query for the waits, the longest first. A line shows no more than the first characters of a
/// key or statement, which may have many MiB.
pub(super) const LOCKS: &str = "SELECT waiter, blocked_by, waited_s, table_name, index_name, left(key, 300), mode, \
     left(statement, 300), left(blocker_statement, 300) FROM clearway.locks";
/// The query for the sessions' states.
pub(super) const STATES: &str = "SELECT pid, state FROM clearway.sessions";

/// Waiters shown below one session; for the others only their number is shown.
const BELOW: usize = 4;
/// Maximum depth of indentation.
const INDENTED: usize = 6;
/// The label of a root without a session.
const NO_SESSION: &str = "(no session: a statement has the partition, or the client has gone)";

/// One wait.
#[derive(Clone, Debug, PartialEq)]
struct Wait {
    waiter: String,
    waited_s: f64,
    /// Mode, table, index and key.
    what: String,
    statement: String,
}

/// The waits at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Blocked {
    /// Waits by blocker.
    below: HashMap<String, Vec<Wait>>,
    /// Blockers that wait for no lock, and the number of sessions behind each; the largest number
    /// first.
    roots: Vec<(String, usize)>,
    statements: HashMap<String, String>,
    states: HashMap<String, String>,
    /// Number of waiting sessions.
    pub(super) waiters: usize,
}

impl Blocked {
    /// Parses the answers to [`LOCKS`] and [`STATES`]; `None` if they are malformed.
    pub(super) fn read(locks: &[Vec<String>], states: &[Vec<String>]) -> Option<Self> {
        let mut read = Self::default();
        let mut waiters = HashSet::new();
        for row in locks {
            let [waiter, blocker, waited_s, table, index, key, mode, statement, blocker_statement] =
                row.as_slice()
            else {
                return None;
            };
            let place = [mode, table, index, key].map(String::as_str);
            let words: Vec<&str> = place.into_iter().filter(|word| !word.is_empty()).collect();
            let what = if words.is_empty() { "partition".to_owned() } else { words.join(" ") };
            let wait = Wait {
                waiter: waiter.clone(),
                waited_s: waited_s.parse().ok()?,
                what,
                statement: statement.clone(),
            };
            read.below.entry(blocker.clone()).or_default().push(wait);
            read.statements.insert(blocker.clone(), blocker_statement.clone());
            waiters.insert(waiter.clone());
        }
        for row in states {
            let [pid, state] = row.as_slice() else { return None };
            read.states.insert(pid.clone(), state.clone());
        }
        read.waiters = waiters.len();
        let blockers: BTreeSet<&String> = read.below.keys().collect();
        let mut seen = HashSet::new();
        let mut roots = Vec::new();
        for root in blockers.iter().filter(|pid| !waiters.contains(**pid)) {
            roots.push(((*root).clone(), read.reach(root, &mut seen)));
        }
        // In a deadlock that is not resolved yet, no session is a root.
        for at in &blockers {
            if !seen.contains(*at) && waiters.contains(*at) {
                roots.push(((*at).clone(), read.reach(at, &mut seen)));
            }
        }
        roots.sort_by_key(|(_, behind)| std::cmp::Reverse(*behind));
        read.roots = roots;
        Some(read)
    }

    /// Counts the sessions behind `root` that are not in `seen` yet.
    fn reach<'a>(&'a self, root: &'a str, seen: &mut HashSet<String>) -> usize {
        let (before, mut stack) = (seen.len(), vec![root]);
        while let Some(at) = stack.pop() {
            for wait in self.below.get(at).into_iter().flatten() {
                if seen.insert(wait.waiter.clone()) {
                    stack.push(&wait.waiter);
                }
            }
        }
        seen.len() - before
    }

    /// Formats the tree in at most `most` lines. Statements come last on a line, because the screen
    /// cuts lines at its edge. The last line says what is left out.
    pub(super) fn lines(&self, most: usize) -> Vec<String> {
        let mut out = Vec::new();
        let mut shown = HashSet::new();
        for (root, _) in &self.roots {
            let label = match (root.as_str(), self.states.get(root)) {
                ("", _) => NO_SESSION.to_owned(),
                (pid, None) => format!("{pid}: {}", self.statement(root)),
                (pid, Some(state)) => format!("{pid} {state}: {}", self.statement(root)),
            };
            out.push(label);
            self.branch(root, &mut shown, &mut out);
        }
        if out.len() > most {
            out.truncate(most.saturating_sub(1));
            // One omitted line may stand for many waiters.
            out.push("... more: SELECT * FROM clearway.locks".to_owned());
        }
        out
    }

    fn branch<'a>(&'a self, root: &'a str, shown: &mut HashSet<&'a str>, out: &mut Vec<String>) {
        enum Next<'a> {
            Wait(&'a Wait),
            Left(&'a [Wait]),
        }
        let below = |at: &str, depth: usize, stack: &mut Vec<(usize, Next<'a>)>| {
            let Some(waits) = self.below.get(at) else { return };
            // "and 1 more" would take as many lines as the waiter itself.
            let first = if waits.len() > BELOW + 1 { BELOW } else { waits.len() };
            if let left @ [_, ..] = &waits[first..] {
                stack.push((depth, Next::Left(left)));
            }
            stack.extend(waits[..first].iter().rev().map(|wait| (depth, Next::Wait(wait))));
        };
        let mut stack = Vec::new();
        shown.insert(root);
        below(root, 1, &mut stack);
        while let Some((depth, next)) = stack.pop() {
            let indent = "  ".repeat(depth.min(INDENTED));
            match next {
                Next::Wait(Wait { waiter, waited_s, what, statement }) => {
                    let statement = one_line(statement);
                    out.push(format!(
                        "{indent}{waiter} waits {}, {what}: {statement}",
                        time(*waited_s)
                    ));
                    if shown.insert(waiter.as_str()) {
                        below(waiter, depth + 1, &mut stack);
                    }
                }
                Next::Left(waits) => {
                    let shortest = waits.last().map_or(0.0, |wait| wait.waited_s);
                    out.push(format!(
                        "{indent}and {} more, the last for {}",
                        waits.len(),
                        time(shortest)
                    ));
                }
            }
        }
    }

    fn statement(&self, pid: &str) -> String {
        self.statements.get(pid).map_or_else(String::new, |statement| one_line(statement))
    }
}

fn one_line(statement: &str) -> String {
    statement.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 100.0 => format!("{s:.1} s"),
        s => format!("{:.0} min", s / 60.0),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Builds waits from `waiter,blocker,seconds,table,key`.
    pub(in crate::top) fn blocked(waits: &[&str]) -> Blocked {
        let locks: Vec<Vec<String>> = waits
            .iter()
            .map(|wait| {
                let [waiter, blocker, seconds, table, key] =
                    wait.split(',').collect::<Vec<_>>().try_into().unwrap();
                let statement = format!("update {table}\n  set n = {waiter}");
                let mode = if table.is_empty() { "" } else { "exclusive" };
                let row = [waiter, blocker, seconds, table, "", key, mode, &statement, "update\tt"];
                row.map(str::to_owned).to_vec()
            })
            .collect();
        Blocked::read(&locks, &[vec!["1".to_owned(), "idle in transaction".to_owned()]]).unwrap()
    }

    #[test]
    fn waiters_are_below_their_blockers() {
        let waits = ["2,1,70.25,t,(1)", "5,4,3,u,(9)", "3,2,0.012,t,(2)", "6,,1,,"];
        let tree = blocked(&waits);
        let expected = [
            "1 idle in transaction: update t",
            "  2 waits 70.2 s, exclusive t (1): update t set n = 2",
            "    3 waits 12 ms, exclusive t (2): update t set n = 3",
            NO_SESSION,
            "  6 waits 1.0 s, partition: update set n = 6",
            "4: update t",
            "  5 waits 3.0 s, exclusive u (9): update u set n = 5",
        ];
        assert_eq!((tree.lines(7), tree.waiters), (expected.map(str::to_owned).to_vec(), 4));
        let cut = tree.lines(3);
        assert_eq!((cut.len(), cut[2].as_str()), (3, "... more: SELECT * FROM clearway.locks"));
        assert_eq!(blocked(&[]).lines(9), [""; 0]);
    }

    #[test]
    fn many_waiters_are_summarized() {
        let waits: Vec<String> =
            (2..1002).map(|at| format!("{at},1,{},t,(1)", 2000 - at)).collect();
        let waits: Vec<&str> = waits.iter().map(String::as_str).collect();
        let lines = blocked(&waits).lines(99);
        assert_eq!((lines.len(), lines[5].as_str()), (6, "  and 996 more, the last for 17 min"));
        assert!(lines[1].starts_with("  2 waits 33 min, "), "{lines:?}");
        assert_eq!(blocked(&waits[..5]).lines(99).len(), 6);
    }

    #[test]
    fn deadlocked_sessions_are_shown_once_each() {
        let lines = blocked(&["2,1,5,t,(1)", "1,2,4,t,(2)", "3,1,1,t,(1)"]).lines(99);
        let pids: Vec<&str> =
            lines.iter().map(|line| line.trim_start().split(' ').next().unwrap()).collect();
        assert_eq!(pids, ["1", "2", "1", "3"]);
    }

    #[test]
    fn malformed_answers_are_rejected() {
        assert!(Blocked::read(&[vec!["1".to_owned()]], &[]).is_none());
        assert!(Blocked::read(&[], &[vec!["1".to_owned()]]).is_none());
        assert!(Blocked::read(&[], &[]).is_some());
    }
}
