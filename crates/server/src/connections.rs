//! The number of connections, and what happens to a new one.
//!
//! Invariants
//! 1. At most `limit` connections are admitted at a time, and those of the control socket. So its
//!    owner can always take a backup, or terminate sessions.
//! 2. At most [`MAX_REFUSED`] others are open. They do not keep later clients out.
//!
//! Locking: none. A crash leaves nothing.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of open connections that are refused: each waits for its startup packet, which
/// may be a cancel request. Further ones are closed at once.
const MAX_REFUSED: usize = 1000;

/// What happens to a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It may log in.
    Admitted,
    /// Its login fails: there are too many connections.
    Refused,
    /// It is closed at once.
    Closed,
}

/// The open connections.
#[derive(Debug)]
pub(crate) struct Connections {
    limit: usize,
    admitted: AtomicUsize,
    refused: AtomicUsize,
}

/// Counts one more if there are fewer than `limit`.
fn count(counter: &AtomicUsize, limit: usize) -> bool {
    // Relaxed, as everywhere here: a counter that orders nothing else.
    let counted = counter.fetch_add(1, Ordering::Relaxed) < limit;
    if !counted {
        counter.fetch_sub(1, Ordering::Relaxed);
    }
    counted
}

impl Connections {
    /// Creates the counters. `limit` is the maximum number of connections that may log in, except
    /// for the control socket's.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, admitted: AtomicUsize::new(0), refused: AtomicUsize::new(0) }
    }

    /// Counts a new connection, unless it is to be closed.
    pub(crate) fn open(&self, control: bool) -> Admission {
        let limit = if control { usize::MAX } else { self.limit };
        if count(&self.admitted, limit) {
            Admission::Admitted
        } else if count(&self.refused, MAX_REFUSED) {
            Admission::Refused
        } else {
            Admission::Closed
        }
    }

    /// Counts a closed connection.
    pub(crate) fn close(&self, refused: bool) {
        let counter = if refused { &self.refused } else { &self.admitted };
        // Relaxed: as in `count`.
        counter.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number of open connections.
    pub(crate) fn total(&self) -> usize {
        // Relaxed: as in `count`.
        self.admitted.load(Ordering::Relaxed) + self.refused.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invariants_1_and_2_connections_are_bounded() {
        let connections = Connections::new(2);
        let open = |n| (0..n).map(|_| connections.open(false)).collect::<Vec<_>>();
        assert_eq!(open(2), [Admission::Admitted; 2]);
        assert_eq!(open(MAX_REFUSED), [Admission::Refused; MAX_REFUSED]);
        assert_eq!((open(1), connections.total()), (vec![Admission::Closed], 2 + MAX_REFUSED));
        connections.close(false);
        assert_eq!(open(2), [Admission::Admitted, Admission::Closed]);
        connections.close(true);
        assert_eq!(open(2), [Admission::Refused, Admission::Closed]);
        assert_eq!([(); 3].map(|()| connections.open(true)), [Admission::Admitted; 3]);
    }
}
