//! The events of a run, as a hash and, on request, as lines that are printed or kept.
//!
//! Two runs of one seed are the same if their hashes are equal: the hash covers every operation on
//! the disk, with its bytes and result, and every answer of the engine, in order.

use clearway_types::hash::{FNV1A_EMPTY, fnv1a};
use std::sync::{Arc, Mutex, PoisonError};

/// Lines to show before and after the point where two traces diverge.
const BEFORE: usize = 8;
const AFTER: usize = 4;

/// A trace; clones share it.
#[derive(Clone, Default)]
pub struct Trace {
    shared: Arc<Mutex<State>>,
    lines: Lines,
}

/// What happens to the lines of events.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Lines {
    /// They are not formatted.
    #[default]
    Dropped,
    /// They are printed.
    Shown,
    /// They are kept for comparison.
    Kept,
}

#[derive(Default)]
struct State {
    hash: u64,
    events: u64,
    /// Each event's line, and the hash after it.
    kept: Vec<(u64, String)>,
}

impl Trace {
    /// Creates an empty trace.
    pub fn new(lines: Lines) -> Self {
        Self { shared: Arc::default(), lines }
    }

    /// Returns true if lines are printed.
    pub fn shown(&self) -> bool {
        self.lines == Lines::Shown
    }

    /// Adds an event. Calls `line` only if it is to be printed or kept.
    pub fn event(&self, kind: &str, bytes: &[u8], line: impl FnOnce() -> String) {
        let mut state = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        state.hash = fnv1a(fnv1a(state.hash ^ FNV1A_EMPTY, kind.as_bytes()), bytes);
        state.events += 1;
        match self.lines {
            Lines::Dropped => {}
            Lines::Shown => println!("{:>7} {kind:<9} {}", state.events, line()),
            Lines::Kept => {
                let line = (state.hash, format!("{:>7} {kind:<9} {}", state.events, line()));
                state.kept.push(line);
            }
        }
    }

    /// Returns the hash so far, and the number of events.
    pub fn hash(&self) -> (u64, u64) {
        let state = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        (state.hash, state.events)
    }

    /// Formats the point where two traces with kept lines diverge: the events before it, and how
    /// each continues.
    pub fn parting(&self, other: &Self) -> String {
        let [a, b] = [self, other]
            .map(|t| t.shared.lock().unwrap_or_else(PoisonError::into_inner).kept.clone());
        let same = a.iter().zip(&b).take_while(|(a, b)| a.0 == b.0).count();
        let some = |lines: &[(u64, String)], from: usize, to: usize| {
            let lines =
                lines.iter().take(to).skip(from).map(|(_, line)| format!("\n    {line:.160}"));
            lines.collect::<String>()
        };
        let before = some(&a, same.saturating_sub(BEFORE), same);
        let [first, second] = [a, b].map(|lines| some(&lines, same, same + AFTER));
        format!(
            "they diverge after {before}\n  the first continues with{first}\n  the second with{second}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_the_same_hash_in_every_release() {
        let trace = Trace::new(Lines::Dropped);
        trace.event("write", b"ab", String::new);
        trace.event("sync", b"", String::new);
        assert_eq!(trace.hash(), (0xbe4b_7495_361d_ef11, 2));
    }
}
