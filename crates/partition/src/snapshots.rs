//! The open snapshots of a node, and the committing transactions.
//!
//! A snapshot is an LSN: its readers see what commit records up to there have committed, and
//! nothing else. Partitions keep the value before a change while a snapshot may need it, and only
//! then (`versions`).
//!
//! After the last snapshot closes, images are still kept for a while, but only those of active
//! transactions: then the next snapshot costs no message. A partition that has committed
//! `Limits::version_linger` transactions without seeing a snapshot ends this for all partitions
//! ([`Snapshots::retire`]).
//!
//! Invariants
//! 1. Images are kept everywhere before a snapshot's LSN is read: a transaction that opens one
//!    while they are not kept first makes every partition keep them
//!    ([`crate::Body::KeepVersions`]). A change that a partition made before that is either
//!    committed, with a record below the LSN, or its image is created from the undo of its
//!    transaction.
//! 2. `newest` is [`u64::MAX`] from before an LSN is read until the snapshot is entered. A
//!    partition reads `newest` after it has appended a commit record. So if it does not see a
//!    snapshot there, that snapshot's LSN is not below the record. If it sees none, no snapshot
//!    needs an image whose commit is known to the partition. `loom_tests` covers the interleavings.
//! 3. `oldest` is never above the LSN of a snapshot that is open or being opened. It is
//!    [`u64::MAX`] only while images are not kept.
//! 4. A transaction is entered in `committing` before its commit record is appended, and leaves
//!    when every partition has received its outcome. So if it is not in `committing`, and a
//!    partition has not received its commit, its record is not below the LSN of any snapshot read
//!    before that check.
//!
//! Locking: `state` and each shard of `committing` are latches, held for a few instructions;
//! nothing else is acquired under them. A crash leaves nothing: there are no snapshots after a
//! start.

use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_sync::atomic::{AtomicU64, Ordering, fence};
use clearway_sync::canary::{self, Bug};
use clearway_types::{Lsn, TxnId};
use std::collections::BTreeMap;
use std::sync::Arc;

static SNAPSHOTS: Class = Class::new("partition.snapshots");
static COMMITTING: Class = Class::new("partition.committing");

/// Number of latches over which committing transactions are spread.
const SHARDS: usize = 16;

/// The snapshots of a node.
pub struct Snapshots {
    state: Latch<State>,
    /// The LSN of the oldest open snapshot; 0: unknown, or there is none; [`u64::MAX`]: images are
    /// not kept.
    oldest: AtomicU64,
    /// The LSN of the newest open snapshot; 0: there is none; [`u64::MAX`]: unknown.
    newest: AtomicU64,
    /// The approximate size of all partitions' images in bytes.
    bytes: AtomicU64,
    committing: [Latch<Vec<TxnId>>; SHARDS],
}

#[derive(Default)]
struct State {
    /// The number of times that keeping images has begun.
    generation: u64,
    /// Whether all partitions keep images of this generation.
    kept: bool,
    opening: usize,
    /// The number of snapshots by LSN.
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

    /// Stops the keeping of images, unless a snapshot needs them.
    pub(crate) fn retire(&self) {
        let mut state = self.state.lock();
        if state.is_unused() {
            state.kept = false;
            self.publish(&state);
        }
    }

    /// Returns the LSN of the oldest snapshot that may need images; 0: unknown; [`u64::MAX`]: they
    /// are not kept.
    pub(crate) fn oldest(&self) -> u64 {
        // Relaxed: a value that is too old only keeps an image longer. MAX of an earlier generation
        // cannot be mistaken for this one's: 0 is published before the message that starts a
        // generation is sent.
        self.oldest.load(Ordering::Relaxed)
    }

    /// Returns the LSN of the newest open snapshot, to be called after appending a commit record;
    /// 0: there is none; [`u64::MAX`]: unknown.
    pub(crate) fn newest(&self) -> u64 {
        // SeqCst: pairs with the fence in `Opening::open` (invariant 2). Each side writes one
        // location and then reads the other's: the record was appended before this fence, and
        // `newest` is read after it. Without the fences, both sides could miss each other's write.
        fence(Ordering::SeqCst);
        self.newest.load(Ordering::Relaxed)
    }

    /// Returns the oldest open snapshot at or above this LSN. A snapshot opened later sees all
    /// commits that were appended before this call.
    pub fn first_from(&self, lsn: Lsn) -> Option<Lsn> {
        self.state.lock().open.range(lsn.0..).next().map(|(lsn, _)| Lsn(*lsn))
    }

    /// Returns the approximate memory kept for snapshots at all partitions, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed) // Relaxed: for the views.
    }

    /// Replaces a partition's previous count of `before` bytes by `now` bytes.
    pub(crate) fn count_bytes(&self, before: usize, now: usize) {
        // Relaxed: as in `bytes`. Two's complement, so a decrease works, too.
        self.bytes.fetch_add((now as u64).wrapping_sub(before as u64), Ordering::Relaxed);
    }

    /// Returns the LSN up to which every snapshot, open now or later, sees all commits that are in
    /// the log.
    pub fn floor(&self) -> Lsn {
        let state = self.state.lock();
        let oldest = state.open.first_key_value().map_or(u64::MAX, |(oldest, _)| *oldest);
        Lsn(if state.opening > 0 { 0 } else { oldest })
    }

    /// Returns the number of open snapshots.
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

    /// Enters a committing transaction, before its record is appended. Drop the result when every
    /// partition has received the outcome.
    pub fn commit(&self, txn: TxnId) -> Committing<'_> {
        self.shard(txn).lock().push(txn);
        Committing { snapshots: self, txn }
    }

    /// Returns true if the transaction's commit record may be in the log although some partition
    /// has not received the outcome.
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

/// A snapshot that is being opened; images are kept for it. Dropping it cancels the opening.
pub struct Opening {
    snapshots: Arc<Snapshots>,
    generation: u64,
    kept: bool,
}

impl Opening {
    /// Returns what every partition must receive ([`crate::Body::KeepVersions`]) before
    /// [`Opening::open`]; `None` if all have received it.
    pub fn generation(&self) -> Option<u64> {
        (!self.kept).then_some(self.generation)
    }

    /// Opens the snapshot. `appended` reads the log's end, which is never 0.
    pub fn open(self, appended: impl FnOnce() -> Lsn) -> Snapshot {
        let snapshots = self.snapshots.clone();
        let mut state = snapshots.state.lock();
        // SeqCst: pairs with the fence in `Snapshots::newest` (invariant 2). `begin` has stored MAX
        // in `newest` before this fence, and the log's end is read after it.
        fence(Ordering::SeqCst);
        let lsn = appended();
        debug_assert!(lsn > Lsn(0), "LSN 0 means that there is no snapshot");
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

/// An open snapshot. Dropping it closes it.
pub struct Snapshot {
    snapshots: Arc<Snapshots>,
    lsn: Lsn,
}

impl Snapshot {
    /// Returns the LSN up to which it sees all commits.
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }
}

impl Snapshot {
    /// Returns another reference to it; it stays open until the last one is dropped.
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

/// A committing transaction.
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
    fn oldest_and_newest_follow_open_snapshots() {
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
        assert_eq!(snapshots.floor(), Lsn(0), "its LSN is unknown");
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
        assert_eq!(snapshots.oldest(), u64::MAX, "the opening was dropped");
    }

    #[test]
    fn committing_transactions_are_listed_until_dropped() {
        let snapshots = Snapshots::default();
        let commits = [TxnId(3), TxnId(3 + SHARDS as u64)].map(|txn| snapshots.commit(txn));
        assert!(snapshots.is_committing(TxnId(3)) && !snapshots.is_committing(TxnId(4)));
        drop(commits);
        assert!(!snapshots.is_committing(TxnId(3)));
    }
}
