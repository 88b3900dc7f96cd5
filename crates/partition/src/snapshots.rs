//! The snapshots of a node that are open, and who commits.
//!
//! A snapshot is an LSN: who reads as of it sees what commit records up to there have committed,
//! and nothing else. Partitions keep what was there before a change for as long as a snapshot may
//! need it, and only then (`versions`).
//!
//! When the last snapshot closes, images are kept for a while all the same, those of active
//! transactions only: then the next one costs no message. A partition that has committed
//! `Limits::version_linger` transactions without having seen a snapshot ends that for all
//! ([`Snapshots::retire`]).
//!
//! Invariants
//! 1. Images are kept everywhere before a snapshot's LSN is read: whoever opens one while they are
//!    not first has every partition keep them ([`crate::Body::KeepVersions`]), and a change that a
//!    partition made before that is either committed, with a record below the LSN, or has its image
//!    made from the undo of its transaction.
//! 2. `newest` is [`u64::MAX`] from before an LSN is read until the snapshot is entered. A
//!    partition looks at `newest` after it has appended a commit record. So, of a snapshot that it
//!    does not see there, the LSN is not below that record. If it sees none, no snapshot needs an
//!    image with a commit that the partition has been told of. `loom_tests` has the interleavings.
//! 3. `oldest` is never above the LSN of a snapshot that is open or being opened. It is
//!    [`u64::MAX`] only while nobody has images kept.
//! 4. A transaction that is not in `committing`, and whose commit a partition has not been told of,
//!    has no commit record below the LSN of any snapshot that was read before one looked: it is
//!    entered before its record is appended, and leaves when every partition has been told.
//!
//! Locking: `state` and each of `committing` are latches, held for a few instructions; none is held
//! while anything else is taken. A crash leaves nothing: there are no snapshots after a start.

use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_sync::atomic::{AtomicU64, Ordering, fence};
use clearway_sync::canary::{self, Bug};
use clearway_types::{Lsn, TxnId};
use std::collections::BTreeMap;
use std::sync::Arc;

static SNAPSHOTS: Class = Class::new("partition.snapshots");
static COMMITTING: Class = Class::new("partition.committing");

/// Latches over which those who commit are spread.
const SHARDS: usize = 16;

/// The snapshots of a node.
pub struct Snapshots {
    state: Latch<State>,
    /// The LSN of the oldest open snapshot; 0: unknown, or there is none, [`u64::MAX`]: images are
    /// not kept.
    oldest: AtomicU64,
    /// The LSN of the newest open snapshot; 0: there is none, [`u64::MAX`]: unknown.
    newest: AtomicU64,
    /// Bytes that the images of all partitions take, about.
    bytes: AtomicU64,
    committing: [Latch<Vec<TxnId>>; SHARDS],
}

#[derive(Default)]
struct State {
    /// Which time it is that images are kept.
    generation: u64,
    /// All partitions keep images of this generation.
    kept: bool,
    opening: usize,
    /// How many snapshots have this LSN.
    open: BTreeMap<u64, usize>,
}

impl Default for Snapshots {
    fn default() -> Self {
        Self {
            state: Latch::new(&SNAPSHOTS, State::default()),
            oldest: AtomicU64::new(u64::MAX),
            newest: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            committing: std::array::from_fn(|_| Latch::new(&COMMITTING, Vec::new())),
        }
    }
}

impl Snapshots {
    /// Begins to open a snapshot.
    pub fn begin(self: &Arc<Self>) -> Opening {
        let mut state = self.state.lock();
        if state.is_unused() && !state.kept {
            state.generation += 1;
        }
        state.opening += 1;
        self.publish(&state);
        Opening { snapshots: self.clone(), generation: state.generation, kept: state.kept }
    }

    /// Has nobody keep images any more, if there is no snapshot that needs them.
    pub(crate) fn retire(&self) {
        let mut state = self.state.lock();
        if state.is_unused() {
            state.kept = false;
            self.publish(&state);
        }
    }

    /// The LSN of the oldest snapshot that may need images; 0: unknown, [`u64::MAX`]: they are not
    /// kept.
    pub(crate) fn oldest(&self) -> u64 {
        // Relaxed: too old a value keeps an image longer. Generations start anew, so that MAX of an
        // earlier one is not taken for this one's: who has images kept publishes 0 before its
        // message is sent.
        self.oldest.load(Ordering::Relaxed)
    }

    /// The LSN of the newest open snapshot, for who has appended a commit record; 0: there is none,
    /// [`u64::MAX`]: unknown.
    pub(crate) fn newest(&self) -> u64 {
        // Invariant 2. SeqCst: pairs with that of `Opening::open`. The record was appended before,
        // the newest snapshot is looked for behind.
        fence(Ordering::SeqCst);
        self.newest.load(Ordering::Relaxed)
    }

    /// The oldest open snapshot at this LSN or above. Whoever opens one later sees all commits that
    /// were appended before this call.
    pub(crate) fn first_from(&self, lsn: Lsn) -> Option<Lsn> {
        self.state.lock().open.range(lsn.0..).next().map(|(lsn, _)| Lsn(*lsn))
    }

    /// Bytes that what is kept for snapshots takes in memory at all partitions, about.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed) // Relaxed: for people.
    }

    /// Replaces the `before` bytes that a partition has counted by `now` bytes.
    pub(crate) fn count_bytes(&self, before: usize, now: usize) {
        // Relaxed: as in `bytes`. Two's complement: less is added as well.
        self.bytes.fetch_add((now as u64).wrapping_sub(before as u64), Ordering::Relaxed);
    }

    /// Every snapshot that is open, or will be, sees what commit records up to here have committed,
    /// as far as they are in the log.
    pub fn floor(&self) -> Lsn {
        let state = self.state.lock();
        let oldest = state.open.first_key_value().map_or(u64::MAX, |(oldest, _)| *oldest);
        Lsn(if state.opening > 0 { 0 } else { oldest })
    }

    /// How many snapshots are open.
    pub fn open(&self) -> usize {
        self.state.lock().open.values().sum()
    }

    fn publish(&self, state: &State) {
        let (first, last) = (state.open.first_key_value(), state.open.last_key_value());
        let none = if state.opening > 0 || state.kept { 0 } else { u64::MAX };
        // Relaxed: see `oldest` and `newest`.
        self.oldest.store(first.map_or(none, |(lsn, _)| *lsn), Ordering::Relaxed);
        let newest = if state.opening > 0 { u64::MAX } else { last.map_or(0, |(lsn, _)| *lsn) };
        self.newest.store(newest, Ordering::Relaxed);
    }

    /// Says that the transaction commits, before its record is appended; drop what is returned when
    /// every partition has been told.
    pub fn commit(&self, txn: TxnId) -> Committing<'_> {
        self.shard(txn).lock().push(txn);
        Committing { snapshots: self, txn }
    }

    /// Whether the transaction's commit record may be in the log without every partition's having
    /// been told.
    pub(crate) fn is_committing(&self, txn: TxnId) -> bool {
        self.shard(txn).lock().contains(&txn)
    }

    fn shard(&self, txn: TxnId) -> &Latch<Vec<TxnId>> {
        &self.committing[txn.0 as usize % SHARDS]
    }
}

impl State {
    fn is_unused(&self) -> bool {
        self.opening == 0 && self.open.is_empty()
    }
}

/// A snapshot that is being opened: images are kept for it. To drop it gives it up.
pub struct Opening {
    snapshots: Arc<Snapshots>,
    generation: u64,
    kept: bool,
}

impl Opening {
    /// What every partition must be told ([`crate::Body::KeepVersions`]) before [`Opening::open`].
    /// None: all of them have been.
    pub fn generation(&self) -> Option<u64> {
        (!self.kept).then_some(self.generation)
    }

    /// Opens it; `appended` reads the log's end, which is not 0: no log begins there.
    pub fn open(self, appended: impl FnOnce() -> Lsn) -> Snapshot {
        let snapshots = self.snapshots.clone();
        let mut state = snapshots.state.lock();
        // Invariant 2. SeqCst: pairs with that of `newest`.
        fence(Ordering::SeqCst);
        let lsn = appended();
        debug_assert!(lsn > Lsn(0), "that would be no snapshot at all");
        state.kept = true;
        *state.open.entry(lsn.0).or_default() += 1;
        drop(state);
        drop(self);
        Snapshot { snapshots, lsn }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let mut state = self.snapshots.state.lock();
        state.opening -= 1;
        self.snapshots.publish(&state);
    }
}

/// An open snapshot. To drop it closes it.
pub struct Snapshot {
    snapshots: Arc<Snapshots>,
    lsn: Lsn,
}

impl Snapshot {
    /// What it sees: everything that commit records up to here have committed.
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }
}

impl Snapshot {
    /// Another share of it: it is open until the last has been dropped.
    pub fn share(self: &Arc<Self>) -> Arc<Self> {
        if canary::on(Bug::UnheldImport) {
            return Arc::new(Self { snapshots: Arc::default(), lsn: self.lsn });
        }
        self.clone()
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        let mut state = self.snapshots.state.lock();
        if let Some(count) = state.open.get_mut(&self.lsn.0) {
            *count -= 1;
            if *count == 0 {
                state.open.remove(&self.lsn.0);
            }
        }
        self.snapshots.publish(&state);
    }
}

/// A transaction that commits.
pub struct Committing<'a> {
    snapshots: &'a Snapshots,
    txn: TxnId,
}

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        let mut shard = self.snapshots.shard(self.txn).lock();
        if let Some(at) = shard.iter().position(|txn| *txn == self.txn) {
            shard.swap_remove(at);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_and_the_newest_are_known() {
        let snapshots = Arc::new(Snapshots::default());
        assert_eq!((snapshots.oldest(), snapshots.newest()), (u64::MAX, 0));
        let opening = snapshots.begin();
        assert_eq!(
            (snapshots.oldest(), snapshots.newest(), opening.generation()),
            (0, u64::MAX, Some(1))
        );
        let first = opening.open(|| Lsn(10));
        assert_eq!((snapshots.oldest(), snapshots.newest()), (10, 10));
        let second = snapshots.begin();
        assert_eq!(
            (snapshots.oldest(), snapshots.newest(), second.generation()),
            (10, u64::MAX, None)
        );
        let second = second.open(|| Lsn(20));
        assert_eq!((snapshots.oldest(), snapshots.newest(), snapshots.open()), (10, 20, 2));
        drop(first);
        assert_eq!((snapshots.oldest(), snapshots.newest(), second.lsn()), (20, 20, Lsn(20)));
        assert_eq!(snapshots.floor(), Lsn(20));
        let third = snapshots.begin();
        assert_eq!(snapshots.floor(), Lsn(0), "its place is not known");
        drop(second);
        snapshots.retire();
        assert_eq!(third.generation(), None, "images are still kept");
        drop(third);
        assert_eq!((snapshots.oldest(), snapshots.newest(), snapshots.open()), (0, 0, 0));
        assert_eq!(snapshots.floor(), Lsn(u64::MAX));
        assert_eq!(snapshots.begin().generation(), None);
        snapshots.retire();
        assert_eq!((snapshots.oldest(), snapshots.newest()), (u64::MAX, 0));
        assert_eq!(snapshots.begin().generation(), Some(2));
        assert_eq!(snapshots.oldest(), u64::MAX, "given up");
    }

    #[test]
    fn who_commits_is_known_until_all_have_been_told() {
        let snapshots = Snapshots::default();
        let commits = [TxnId(3), TxnId(3 + SHARDS as u64)].map(|txn| snapshots.commit(txn));
        assert!(snapshots.is_committing(TxnId(3)) && !snapshots.is_committing(TxnId(4)));
        drop(commits);
        assert!(!snapshots.is_committing(TxnId(3)));
    }
}
