//! What happened, as a hash and, if asked for, as lines.
//!
//! Two runs of one seed are the same if they have the same hash: it takes in every operation on the disk, with its bytes and result,
//! and every answer of the engine, in their order.

use std::sync::{Arc, Mutex, PoisonError};

/// A trace; clones are the same one.
#[derive(Clone, Default)]
pub struct Trace {
    shared: Arc<Mutex<State>>,
    shown: bool,
}

#[derive(Default)]
struct State {
    hash: u64,
    events: u64,
}

impl Trace {
    /// An empty trace; `shown`: each event is also printed.
    pub fn new(shown: bool) -> Self {
        Self { shared: Arc::default(), shown }
    }

    /// Whether lines are printed.
    pub fn shown(&self) -> bool {
        self.shown
    }

    /// Takes in an event. `line` is called only if it is to be printed.
    pub fn event(&self, kind: &str, bytes: &[u8], line: impl FnOnce() -> String) {
        let mut state = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let mix = |h: u64, b: &u8| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3);
        state.hash = kind.as_bytes().iter().chain(bytes).fold(state.hash ^ 0xcbf2_9ce4_8422_2325, mix);
        state.events += 1;
        if self.shown {
            println!("{:>7} {kind:<9} {}", state.events, line());
        }
    }

    /// The hash so far, and how many events it is of.
    pub fn hash(&self) -> (u64, u64) {
        let state = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        (state.hash, state.events)
    }
}
