//! When a worker asks the log's flusher to sync, and which sessions continue after a sync.
//!
//! The flusher starts as soon as it is asked, so a worker that asks for its first commit at once
//! gets a sync for that commit alone, and the commits of the next microseconds wait for two. So the
//! worker asks when it has nothing else to do. A commit is put off by one turn at most, because
//! there may always be something to do.
//!
//! Invariants
//! 1. Every LSN that is wanted is requested before the worker sleeps, and at the latest at the end
//!    of the turn after the one in which it was wanted.
//! 2. While an LSN is wanted and not durable, each turn requests it again: the answer to an earlier
//!    request may replace the answer to this one.
//! 3. A session continues when its first held reply may be sent. Those that wait for a later sync
//!    are not touched.
//!
//! Locking: none; each worker has its own. A crash leaves nothing.

use clearway_types::Lsn;

/// The LSNs that the replies of a worker's sessions wait for.
#[derive(Default)]
pub struct GroupCommit {
    wanted: Lsn,
    requested: Lsn,
    /// `wanted` was put off at the end of the last turn.
    put_off: bool,
}

impl GroupCommit {
    /// Notes that a reply waits until the log is durable up to `lsn`.
    pub fn want(&mut self, lsn: Lsn) {
        self.wanted = self.wanted.max(lsn);
    }

    /// Returns the LSN to request at the end of a turn, if any.
    pub fn due(&mut self, durable: Lsn) -> Option<Lsn> {
        if self.gathers() && !self.put_off {
            self.put_off = true;
            return None;
        }
        self.before_sleep(durable)
    }

    /// Returns the LSN to request before the worker sleeps, if any.
    pub fn before_sleep(&mut self, durable: Lsn) -> Option<Lsn> {
        self.requested = self.wanted;
        self.put_off = false;
        (self.wanted > durable).then_some(self.wanted)
    }

    /// Returns true if something is wanted that has not been requested.
    pub fn gathers(&self) -> bool {
        self.wanted > self.requested
    }
}

/// The sessions of a worker whose replies wait for the log.
#[derive(Default)]
pub struct Awaiting {
    /// Each session's slot, with the LSN of its first held reply.
    slots: Vec<(Lsn, u32)>,
}

impl Awaiting {
    /// Adds a session that is not there yet.
    pub fn push(&mut self, first: Lsn, slot: u32) {
        self.slots.push((first, slot));
    }

    /// Takes out the sessions that can continue.
    pub fn take_due(&mut self, durable: Lsn) -> Vec<u32> {
        self.slots.extract_if(.., |(first, _)| *first <= durable).map(|(_, slot)| slot).collect()
    }

    /// Removes a session that ends.
    pub fn remove(&mut self, slot: u32) {
        self.slots.retain(|(_, other)| *other != slot);
    }

    /// Returns the number of sessions.
    pub fn len(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Lsn = Lsn(0);

    #[test]
    fn commits_of_two_turns_are_requested_at_once() {
        let mut group = GroupCommit::default();
        assert_eq!((group.due(NONE), group.gathers()), (None, false));
        group.want(Lsn(10));
        assert_eq!((group.due(NONE), group.gathers()), (None, true));
        group.want(Lsn(20));
        group.want(Lsn(15));
        assert_eq!((group.due(NONE), group.gathers()), (Some(Lsn(20)), false));
    }

    #[test]
    fn an_endless_stream_of_commits_is_requested_every_other_turn() {
        let mut group = GroupCommit::default();
        let requests = (1..7).map(|turn| {
            group.want(Lsn(turn));
            group.due(NONE).map(|lsn| lsn.0)
        });
        assert_eq!(requests.collect::<Vec<_>>(), [None, Some(2), None, Some(4), None, Some(6)]);
    }

    #[test]
    fn a_worker_that_would_sleep_requests_at_once() {
        let mut group = GroupCommit::default();
        group.want(Lsn(10));
        assert_eq!(group.before_sleep(NONE), Some(Lsn(10)));
        group.want(Lsn(20));
        assert_eq!(group.due(NONE), None);
        assert_eq!((group.before_sleep(NONE), group.gathers()), (Some(Lsn(20)), false));
    }

    #[test]
    fn a_request_is_repeated_each_turn_until_it_is_durable() {
        let mut group = GroupCommit::default();
        group.want(Lsn(10));
        assert_eq!(group.before_sleep(NONE), Some(Lsn(10)));
        assert_eq!((group.due(Lsn(9)), group.due(Lsn(9))), (Some(Lsn(10)), Some(Lsn(10))));
        assert_eq!((group.due(Lsn(10)), group.before_sleep(Lsn(10))), (None, None));
    }

    #[test]
    fn sessions_continue_after_the_sync_of_their_first_reply() {
        let mut awaiting = Awaiting::default();
        for (lsn, slot) in [(10, 0), (30, 1), (20, 2), (30, 3)] {
            awaiting.push(Lsn(lsn), slot);
        }
        awaiting.remove(3);
        assert!(awaiting.take_due(Lsn(9)).is_empty());
        assert_eq!((awaiting.take_due(Lsn(20)), awaiting.len()), (vec![0, 2], 1));
        assert_eq!((awaiting.take_due(Lsn(99)), awaiting.len()), (vec![1], 0));
    }
}
