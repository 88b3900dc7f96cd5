//! The version store of a partition: what was there before changes that an open snapshot may not
//! see.
//!
//! Nothing is kept until a snapshot is opened, and again some time after the last one has closed
//! (see `snapshots`). In between every change leaves an *image*: the value that its key had before
//! its transaction's first change to it, or that there was none. A transaction that only adds to
//! integers of a row leaves what it has added instead (`change`), as others may add at the same
//! time. A reader takes the value in the tree and goes back over the key's images, from the newest
//! on, as long as their writers are invisible to its snapshot. Trees of indexes and of global
//! indexes have images like those of tables: the store knows keys and bytes only.
//!
//! A reader's own changes are visible to it, unless it has taken them back: then the value is the
//! one in the image.
//!
//! Invariants
//! 1. While images are kept, a key's images are in the order of their writers' first changes, at
//!    most one of each transaction; one that has first added to the row and then changed it has
//!    two, the second one with the value that its additions have made.
//! 2. An image without a commit belongs to a transaction that is active here: its end stamps or
//!    forgets it before its locks go. ROLLBACK TO takes what it undoes out of the image of
//!    additions, in the step that takes it out of the row.
//! 3. An image goes as soon as no snapshot can need it: when its commit is visible to the oldest,
//!    or when an older image has a value, and a commit that the newest does not see: whoever goes
//!    back over the one goes back over the other. Additions that the newest snapshot does not see
//!    are one image until the value is replaced. So a key has at most two images more than there
//!    are snapshots and active writers.
//! 4. Over the budget, images with a commit go to a temporary file (`spill`), a key's oldest first.
//!    Where there is no room for them, snapshots fail here, the oldest first, and what they alone
//!    need goes; writers never fail.
//!
//! Locking: none, it belongs to the partition; see `snapshots` for what is shared. A crash leaves
//! nothing.
//!
//! Source: multi-version concurrency control with before-images (Bernstein, Hadzilacos, Goodman
//! 1987, chapter 5; Oracle's rollback segments), in memory.

mod between;
mod births;
mod change;
mod fit;
mod needed;
mod spill;

pub(crate) use between::VisitAt;
pub(crate) use change::{Change, Sum, misfit, subtract};
pub(crate) use spill::{Lacking, Loaded};

use self::births::{Birth, Births};
use self::change::Back;
use self::spill::Spill;
use crate::exec::Stop;
use crate::snapshots::Snapshots;
use clearway_storage::Addends;
use clearway_sync::canary::{self, Bug};
use clearway_types::{Lsn, SqlError, SqlState, TreeId, TxnId};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A key. Most are short, and lie in the nodes of the tree: a search misses the cache once a node,
/// not once a key.
type Key = SmallVec<[u8; KEY]>;

/// Bytes of the longest key that takes nothing on the heap.
const KEY: usize = 16;

/// The images of a key, the oldest first. Most keys have one.
type Chain = SmallVec<[Image; 1]>;

/// A key's value before a change: none if it was not there.
pub(crate) type Before = Option<Box<[u8]>>;

/// What a statement sees: all that was committed up to a snapshot, and what its own transaction has
/// changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AsOf {
    /// The snapshot, or [`COMMITTED`].
    pub at: Lsn,
    /// The statement's transaction.
    pub me: TxnId,
    /// It changes nothing that others have changed since the snapshot.
    pub repeatable: bool,
}

/// What others have done to a key since a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// Nothing.
    Unchanged,
    /// They have changed, inserted or deleted it.
    Changed,
    /// They have given the row that was there another key, or another home.
    Moved,
}

/// Bytes that an image takes beside its value, about, if its key is no longer than [`KEY`]: 96 in
/// the tree of keys and 40 in the set of what is committed, both with the room that trees leave
/// free, and what the allocator adds to the value.
const IMAGE: usize = 216;

#[derive(Debug)]
struct Image {
    writer: TxnId,
    /// Where its writer's commit record ends, once it is known.
    commit: Option<Lsn>,
    change: Change,
    /// The row has got another key, or another home.
    moved: bool,
    /// A later change needed no image because of this one, since the sweep came by (`fit`).
    hot: bool,
}

/// See above.
pub(crate) struct Versions {
    snapshots: Arc<Snapshots>,
    kept: Option<Box<Kept>>,
    pub(crate) spill: Spill,
    budget: usize,
    linger: u32,
    /// Bytes of which all have been told.
    counted: usize,
}

/// What is kept from the first snapshot on, until it is retired.
#[derive(Default)]
struct Kept {
    generation: u64,
    /// Images by key, the oldest first.
    chains: BTreeMap<TreeId, BTreeMap<Key, Chain>>,
    /// Images without a commit, by writer.
    active: BTreeMap<TxnId, Vec<(TreeId, Key)>>,
    /// Images with a commit.
    committed: BTreeSet<(Lsn, TreeId, Key)>,
    births: Births,
    bytes: usize,
    /// Those of images with a commit.
    stamped: usize,
    /// Snapshots below this have lost images.
    lost: Lsn,
    /// The oldest snapshot that has lost none: images that this one sees may go.
    horizon: u64,
    /// The last commit that was told.
    newest: Lsn,
    sweep: fit::Sweep,
    /// Commits since a snapshot was seen.
    unseen: u32,
}

/// Whether a snapshot sees a change.
enum Seen {
    Yes,
    No,
    /// Its writer is committing: that is not known here yet.
    Undecided,
}

impl Versions {
    /// `budget`: [`crate::Limits::version_memory`], `linger`: [`crate::Limits::version_linger`].
    pub(crate) fn new(snapshots: Arc<Snapshots>, budget: usize, linger: u32) -> Self {
        Self { snapshots, kept: None, spill: Spill::new(), budget, linger, counted: 0 }
    }

    /// Whether changes leave images.
    #[inline]
    pub(crate) fn keeps(&self) -> bool {
        self.kept.is_some()
    }

    /// Which time it is that images are kept; 0: they are not.
    pub(crate) fn generation(&self) -> u64 {
        self.kept.as_ref().map_or(0, |kept| kept.generation)
    }

    /// Bytes that the images take in memory, about, and what is known there of those in the file.
    pub(crate) fn bytes(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.bytes) + self.spill.bytes()
    }

    /// Keeps images from now on. The ones that there are already: `active`, those of transactions
    /// that have changed something here, and who has made which trees.
    pub(crate) fn keep(
        &mut self,
        generation: u64,
        active: Vec<(TxnId, TreeId, Key, Change)>,
        made: Vec<(TreeId, TxnId)>,
    ) {
        let mut kept = Box::new(Kept { generation, ..Kept::default() });
        for (tree, maker) in made {
            kept.births.insert(tree, Birth { maker, commit: None, since: 0 });
        }
        for (writer, tree, key, change) in active {
            match change {
                Change::Added(sum) => kept.add(writer, tree, &key, &sum),
                change => kept.push(tree, key, Image::of(writer, change)),
            }
        }
        self.spill.clear();
        self.kept = Some(kept);
    }

    /// Lets go of what no snapshot needs. To be called now and then.
    #[inline]
    pub(crate) fn tidy(&mut self) {
        if self.kept.is_some() {
            self.trim();
            let (before, now) = (self.counted, self.bytes());
            if before != now {
                self.snapshots.count_bytes(before, now);
                self.counted = now;
            }
        }
    }

    /// Whether an active transaction has an image with a value of the key already, which is older
    /// than what it could leave now.
    pub(crate) fn has(&self, tree: TreeId, key: &[u8], writer: TxnId) -> bool {
        let newest = self.kept.as_ref().and_then(|kept| kept.chains.get(&tree)?.get(key)?.last());
        newest.is_some_and(|image| image.is_of(writer) && !image.change.is_added())
    }

    /// An active transaction has changed a key that had this value.
    pub(crate) fn changed(&mut self, writer: TxnId, tree: TreeId, key: &[u8], before: Before) {
        if let Some(kept) = &mut self.kept {
            kept.push(tree, key.into(), Image::of(writer, Change::Replaced(before)));
        }
        self.tidy();
    }

    /// An active transaction has added to integers of a row.
    pub(crate) fn added(&mut self, writer: TxnId, tree: TreeId, key: &[u8], addends: &Addends) {
        if let Some(kept) = &mut self.kept {
            kept.add(writer, tree, key, &Sum::of(addends));
        }
        self.tidy();
    }

    /// An active transaction has taken an addition back.
    pub(crate) fn taken_back(
        &mut self,
        writer: TxnId,
        tree: TreeId,
        key: &[u8],
        addends: &Addends,
    ) {
        if let Some(kept) = &mut self.kept
            && let Some(sum) = kept.sum_of(writer, tree, key)
        {
            sum.take_back(addends);
            // What it has done to the row after the addition is undone already. The value in that
            // image has the addition in it.
            kept.remove(tree, &key.into(), |image| image.is_of(writer) && !image.change.is_added());
        }
    }

    /// The row that an active transaction has just deleted comes back under another key, or at
    /// another partition.
    pub(crate) fn moves(&mut self, writer: TxnId, tree: TreeId, key: &[u8]) {
        let chain = self.kept.as_mut().and_then(|kept| kept.chains.get_mut(&tree)?.get_mut(key));
        if let Some(image) = chain.and_then(|chain| chain.last_mut())
            && image.is_of(writer)
        {
            image.moved = true;
        }
    }

    /// A change that was a transaction of its own is committed by the record that ends there.
    pub(crate) fn changed_for_good(
        &mut self,
        commit: Lsn,
        tree: TreeId,
        key: &[u8],
        before: Before,
    ) {
        let newest = self.snapshots.newest();
        let Some(kept) = &mut self.kept else { return };
        kept.newest = kept.newest.max(commit);
        if newest > 0 && !kept.is_unneeded(tree, key, newest) {
            let key: Key = key.into();
            kept.push(
                tree,
                key.clone(),
                Image { commit: Some(commit), ..Image::of(TxnId(0), Change::Replaced(before)) },
            );
            kept.committed.insert((commit, tree, key));
        }
        self.end(newest);
    }

    /// As [`Versions::changed_for_good`], of additions to integers of a row.
    pub(crate) fn added_for_good(
        &mut self,
        commit: Lsn,
        tree: TreeId,
        key: &[u8],
        addends: &Addends,
    ) {
        let newest = self.snapshots.newest();
        let Some(kept) = &mut self.kept else { return };
        kept.newest = kept.newest.max(commit);
        if newest > 0 && !kept.is_unneeded(tree, key, newest) {
            let (key, sum) = (Key::from(key), Sum::of(addends));
            let image = Image { commit: Some(commit), ..Image::of(TxnId(0), Change::Added(sum)) };
            kept.push(tree, key.clone(), image);
            if !kept.merge_last(tree, &key, newest) {
                kept.committed.insert((commit, tree, key));
            }
        }
        self.end(newest);
    }

    /// A tree was made by this transaction.
    pub(crate) fn made(&mut self, tree: TreeId, maker: TxnId) {
        let since = self.snapshots.newest();
        if let Some(kept) = &mut self.kept {
            kept.births.insert(tree, Birth { maker, commit: None, since });
        }
    }

    /// [`Snapshots::floor`]
    pub(crate) fn floor(&self) -> Lsn {
        self.snapshots.floor()
    }

    /// The transaction is committed by the record that ends there.
    pub(crate) fn committed(&mut self, writer: TxnId, commit: Lsn) {
        let newest = self.snapshots.newest();
        let Some(kept) = &mut self.kept else { return };
        kept.newest = kept.newest.max(commit);
        kept.births.committed(writer, commit);
        for (tree, key) in kept.active.remove(&writer).unwrap_or_default() {
            if kept.stamp(tree, &key, writer, commit, newest) {
                kept.committed.insert((commit, tree, key));
            }
        }
        self.end(newest);
    }

    /// A transaction has been committed; `newest`: [`Snapshots::newest`] since then.
    fn end(&mut self, newest: u64) {
        let Some(kept) = &mut self.kept else { return };
        kept.unseen = if newest > 0 { 0 } else { kept.unseen.saturating_add(1) };
        if kept.unseen > self.linger {
            self.snapshots.retire();
        }
        self.tidy();
    }

    /// The transaction has been undone.
    pub(crate) fn undone(&mut self, writer: TxnId) {
        let Some(kept) = &mut self.kept else { return };
        kept.births.undone(writer);
        for (tree, key) in kept.active.remove(&writer).unwrap_or_default() {
            kept.remove(tree, &key, |image| image.is_of(writer));
        }
    }

    /// Fails if images that such a snapshot needs are gone.
    pub(crate) fn check(&self, as_of: AsOf) -> Result<(), Stop> {
        if self.kept.as_ref().is_none_or(|kept| as_of.at >= kept.lost) {
            return Ok(());
        }
        let text = "snapshot too old";
        Err(SqlError::new(SqlState::SNAPSHOT_TOO_OLD, text)
            .hint("Run the transaction again.")
            .into())
    }

    /// The key's value as of a snapshot; `now`: the one in the tree.
    pub(crate) fn value_at<'v>(
        &'v self,
        tree: TreeId,
        key: &[u8],
        now: Option<&'v [u8]>,
        as_of: AsOf,
    ) -> Result<Option<Cow<'v, [u8]>>, Stop> {
        let chain = self.kept.as_ref().and_then(|kept| kept.chains.get(&tree)?.get(key));
        let (mut back, settled) =
            chain.map_or(Ok((Back::from(now), false)), |chain| self.along(chain, now, as_of))?;
        if !settled && !self.spill.is_empty() {
            self.spill.before(tree, key, as_of.at)?.apply(&mut back);
        }
        back.end()
    }

    /// The value of a key by its images in memory, and whether those in the file change nothing
    /// about it.
    fn along<'v>(
        &self,
        chain: &'v [Image],
        now: Option<&'v [u8]>,
        as_of: AsOf,
    ) -> Result<(Back<'v>, bool), Stop> {
        let mut back = Back::from(now);
        for image in chain.iter().rev() {
            if image.is_of(as_of.me) {
                // After ROLLBACK TO its change may be undone: then the others' are to be looked at.
                if let Change::Replaced(before) = &image.change
                    && back.value() != before.as_deref()
                {
                    return Ok((back, true));
                }
                continue;
            }
            match self.sees(as_of.at, image.writer, image.commit) {
                // Older additions may have been committed later.
                Seen::Yes if image.change.is_added() => {}
                Seen::Yes => return Ok((back, true)),
                Seen::No if image.change.is_added() && canary::on(Bug::UnsubtractedDelta) => {}
                Seen::No => back.over(&image.change),
                Seen::Undecided => return Err(Stop::Commit(image.writer)),
            }
        }
        Ok((back, false))
    }

    /// What others have done to the key since the snapshot, as far as they have committed it. To be
    /// asked by who has locked it.
    pub(crate) fn since(&self, tree: TreeId, key: &[u8], as_of: AsOf) -> Result<Since, Stop> {
        let chain = self.kept.as_ref().and_then(|kept| kept.chains.get(&tree)?.get(key));
        let mut since = Since::Unchanged;
        // What has filled a newer tree has left no images.
        if self.is_newer(tree, as_of)?
            && !chain.is_some_and(|chain| chain.iter().any(|image| image.is_of(as_of.me)))
        {
            since = Since::Changed;
        }
        for image in chain
            .into_iter()
            .flatten()
            .filter(|image| !image.is_of(as_of.me) && !image.is_nothing())
        {
            match self.sees(as_of.at, image.writer, image.commit) {
                Seen::Yes => {}
                Seen::No if image.moved => return Ok(Since::Moved),
                Seen::No => since = Since::Changed,
                Seen::Undecided => return Err(Stop::Commit(image.writer)),
            }
        }
        if self.spill.is_empty() {
            return Ok(since);
        }
        Ok(match self.spill.since(tree, key, as_of.at)? {
            (_, true) => Since::Moved,
            (true, _) => Since::Changed,
            _ => since,
        })
    }

    fn sees(&self, at: Lsn, writer: TxnId, commit: Option<Lsn>) -> Seen {
        match commit {
            Some(commit) if commit <= at => Seen::Yes,
            Some(_) => Seen::No,
            None if self.is_undecided(writer) => Seen::Undecided,
            None => Seen::No,
        }
    }

    /// Whether an active transaction may have been committed elsewhere.
    pub(crate) fn is_undecided(&self, writer: TxnId) -> bool {
        !canary::on(Bug::HalfCommit) && self.snapshots.is_committing(writer)
    }
}

impl Kept {
    fn push(&mut self, tree: TreeId, key: Key, image: Image) {
        let size = size_of_image(&key, &image);
        self.bytes += size;
        if image.commit.is_none() {
            self.active.entry(image.writer).or_default().push((tree, key.clone()));
        } else {
            self.stamped += size;
        }
        self.chains.entry(tree).or_default().entry(key).or_default().push(image);
    }
}

impl Image {
    fn of(writer: TxnId, change: Change) -> Self {
        Self { writer, commit: None, change, moved: false, hot: false }
    }

    /// Whether it is that of a change by this transaction, which has not ended.
    fn is_of(&self, txn: TxnId) -> bool {
        self.commit.is_none() && self.writer == txn
    }

    /// Whether all of it was undone.
    fn is_nothing(&self) -> bool {
        matches!(&self.change, Change::Added(sum) if sum.count == 0)
    }

    /// Whether it is committed, and this snapshot does not see it.
    fn is_behind(&self, newest: u64) -> bool {
        self.commit.is_some_and(|commit| commit.0 > newest)
    }
}

fn size_of_image(key: &Key, image: &Image) -> usize {
    // A long key is on the heap twice.
    let long = if key.spilled() { 2 * key.len() } else { 0 };
    IMAGE + long + image.change.heap()
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
