//! The version store of a partition: the values before changes that an open snapshot may not see.
//!
//! Nothing is kept until a snapshot is opened, and again some time after the last one has closed
//! (see `snapshots`). In between, every change leaves an *image*: the value of its key before its
//! transaction's first change to it, or the fact that there was none. A transaction that only adds
//! to integers of a row leaves the amounts instead (`change`), because others may add concurrently.
//! A reader takes the value in the tree and goes back over the key's images, newest first, while
//! their writers are invisible to its snapshot. Trees of indexes and global indexes have images
//! like those of tables: the store deals with keys and bytes only.
//!
//! A reader sees its own changes, unless it has undone them: then the value is the one in the
//! image.
//!
//! Invariants
//! 1. While images are kept, a key's images are in the order of their writers' first changes, in
//!    memory at most one per transaction. A transaction that has first added to the row and then
//!    changed it has two; the second one has the value that includes its additions.
//! 2. An image without a commit belongs to a transaction that is active here: its end stamps or
//!    removes it before its locks are released. ROLLBACK TO subtracts what it undoes from the image
//!    of additions in the same step in which it subtracts it from the row.
//! 3. An image is removed when its commit is visible to the oldest snapshot. It is also removed
//!    when an older image has a value and there is no open snapshot between the two commits: a
//!    reader that goes back over one goes back over the other. Additions are one image if there is
//!    neither an open snapshot nor a value between them. This is checked when a change leaves an
//!    image, and again when a key has twice as many images as after the last check (`needed`). So
//!    the number of a key's images is proportional to that of the snapshots that were open
//!    together, and of active writers.
//! 4. Over the budget, images go to a temporary file (`spill`), a key's oldest first. Those of
//!    active transactions follow if they take much of the budget; the additions among them, and
//!    images in trees that some snapshot may not see, stay. Then a transaction may have several
//!    images of a key, since the one in the file is not looked up: a reader goes back over all of
//!    them. If there is no room for images with a commit, snapshots fail here, oldest first, and
//!    the images that only they need are removed; writers never fail.
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
pub(crate) use change::{Change, Sum, mismatch, subtract};
pub(crate) use spill::{Loaded, MissingBlock};

use self::births::Births;
use self::change::Rewind;
use self::spill::{Outcome, Reader, Spill};
use crate::exec::Stop;
use crate::snapshots::Snapshots;
use clearway_storage::Addends;
use clearway_sync::canary::{self, Bug};
use clearway_types::{Lsn, SqlError, SqlState, TreeId, TxnId};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A key. Most are short and stored in the nodes of the tree: a search has one cache miss per node,
/// not per key.
type Key = SmallVec<[u8; KEY]>;

/// Length of the longest key that needs no heap memory, in bytes.
const KEY: usize = 16;

/// The images of a key, oldest first. Most keys have one.
type Chain = SmallVec<[Image; 1]>;

/// A key's value before a change; none if the key did not exist.
pub(crate) type Before = Option<Box<[u8]>>;

/// What a statement sees: everything committed up to a snapshot, and its own transaction's changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AsOf {
    /// The snapshot, or [`crate::COMMITTED`].
    pub at: Lsn,
    /// The statement's transaction.
    pub me: TxnId,
    /// Whether it must not change anything that others have changed since the snapshot.
    pub repeatable: bool,
}

/// What others have done to a key since a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// Nothing.
    Unchanged,
    /// They have changed, inserted or deleted it.
    Changed,
    /// They have moved its row to another key or another home.
    Moved,
}

/// Approximate bytes of an image without its value, if its key is no longer than [`KEY`]: 96 in the
/// tree of keys and 40 in the set of committed images, both with the free space in tree nodes, and
/// the allocator's overhead for the value.
const IMAGE: usize = 216;

#[derive(Debug)]
struct Image {
    writer: TxnId,
    /// The end of its writer's commit record, once known.
    commit: Option<Lsn>,
    change: Change,
    /// Whether the row was moved to another key or another home.
    moved: bool,
    /// Whether a later change needed no image because of this one, since the sweep last visited it
    /// (`fit`).
    hot: bool,
    /// Of a key's first image: the number of its images when they were last pruned, or 0
    /// (`needed`).
    length: u32,
}

/// The version store; see the module.
pub(crate) struct Versions {
    snapshots: Arc<Snapshots>,
    kept: Option<Box<Kept>>,
    pub(crate) spill: Spill,
    budget: usize,
    linger: u32,
    /// Bytes reported to [`Snapshots`].
    counted: usize,
}

/// What is kept from the first snapshot until retirement.
#[derive(Default)]
struct Kept {
    generation: u64,
    /// Images by key, oldest first.
    chains: BTreeMap<TreeId, BTreeMap<Key, Chain>>,
    /// Images without a commit, by writer.
    active: BTreeMap<TxnId, Vec<(TreeId, Key)>>,
    /// Images with a commit.
    committed: BTreeSet<(Lsn, TreeId, Key)>,
    births: Births,
    bytes: usize,
    /// The bytes of images with a commit.
    stamped: usize,
    /// Snapshots below this LSN have lost images.
    lost: Lsn,
    /// Active transactions with images that cannot be read.
    unreadable: BTreeSet<TxnId>,
    /// The oldest snapshot that has lost none: images that it sees can be removed.
    horizon: u64,
    /// The last reported commit.
    newest: Lsn,
    sweep: fit::Sweep,
    /// Number of commits since a snapshot was last seen.
    unseen: u32,
}

/// Whether a snapshot sees a change.
enum Seen {
    Yes,
    No,
    /// Its writer is committing; the outcome is not known here yet.
    Undecided,
}

impl Versions {
    /// Creates an empty store. `budget` is [`crate::Limits::version_memory`], `linger` is
    /// [`crate::Limits::version_linger`].
    pub(crate) fn new(snapshots: Arc<Snapshots>, budget: usize, linger: u32) -> Self {
        Self { snapshots, kept: None, spill: Spill::new(), budget, linger, counted: 0 }
    }

    /// Returns true if changes leave images.
    #[inline]
    pub(crate) fn keeps(&self) -> bool {
        self.kept.is_some()
    }

    /// Returns the current generation of kept images; 0 if none are kept.
    pub(crate) fn generation(&self) -> u64 {
        self.kept.as_ref().map_or(0, |kept| kept.generation)
    }

    /// Returns the approximate memory of the images, including the metadata of those in the file,
    /// in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.bytes) + self.spill.bytes()
    }

    /// Starts keeping images. `active` are the existing ones of transactions that have changed
    /// something here, `made` the trees with their creators.
    pub(crate) fn keep(
        &mut self,
        generation: u64,
        active: Vec<(TxnId, TreeId, Key, Change)>,
        made: Vec<(TreeId, TxnId)>,
    ) {
        let mut kept = Box::new(Kept { generation, ..Kept::default() });
        for (tree, creator) in made {
            kept.births.insert(tree, creator, 0);
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

    /// Removes what no snapshot needs. Called regularly.
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

    /// Returns true if the active transaction already has an image in memory with a value of the
    /// key, which is older than any it could leave now.
    pub(crate) fn has(&self, tree: TreeId, key: &[u8], writer: TxnId) -> bool {
        let newest = self.kept.as_ref().and_then(|kept| kept.chains.get(&tree)?.get(key)?.last());
        newest.is_some_and(|image| image.is_of(writer) && !image.change.is_added())
    }

    /// Records that an active transaction has changed a key that had the value `before`.
    pub(crate) fn changed(&mut self, writer: TxnId, tree: TreeId, key: &[u8], before: Before) {
        if let Some(kept) = &mut self.kept {
            kept.push(tree, key.into(), Image::of(writer, Change::Replaced(before)));
        }
        self.tidy();
    }

    /// Records that an active transaction has added to integers of a row.
    pub(crate) fn added(&mut self, writer: TxnId, tree: TreeId, key: &[u8], addends: &Addends) {
        if let Some(kept) = &mut self.kept {
            kept.add(writer, tree, key, &Sum::of(addends));
        }
        self.tidy();
    }

    /// Records that an active transaction has undone an addition.
    pub(crate) fn addition_undone(
        &mut self,
        writer: TxnId,
        tree: TreeId,
        key: &[u8],
        addends: &Addends,
    ) {
        if let Some(kept) = &mut self.kept
            && let Some(sum) = kept.sum_of(writer, tree, key)
        {
            sum.undo(addends);
            // Its changes to the row after the addition are already undone. The value in their
            // image includes the addition.
            kept.remove(tree, &key.into(), |image| image.is_of(writer) && !image.change.is_added());
        }
    }

    /// Records that the row just deleted by an active transaction reappears under another key or at
    /// another partition.
    pub(crate) fn moves(&mut self, writer: TxnId, tree: TreeId, key: &[u8]) {
        let Some(kept) = &mut self.kept else { return };
        match kept.chain(tree, key).and_then(|chain| chain.last_mut()) {
            Some(image) if image.is_of(writer) => image.moved = true,
            // Its image may be in the file.
            _ if self.spill.has_active(writer) => {
                let image = Image::of(writer, Change::Replaced(None));
                kept.push(tree, key.into(), Image { moved: true, ..image });
            }
            _ => {}
        }
    }

    /// Records an autocommit change, whose commit record ends at `commit`.
    pub(crate) fn changed_autocommit(
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
            kept.committed.insert((commit, tree, key.clone()));
            kept.prune(tree, &key, &self.snapshots);
        }
        self.end(newest);
    }

    /// Like [`Versions::changed_autocommit`], for additions to integers of a row.
    pub(crate) fn added_autocommit(
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
                kept.committed.insert((commit, tree, key.clone()));
                kept.prune(tree, &key, &self.snapshots);
            }
        }
        self.end(newest);
    }

    /// Records that the transaction has created a tree.
    pub(crate) fn tree_created(&mut self, tree: TreeId, creator: TxnId) {
        let since = self.snapshots.newest();
        if let Some(kept) = &mut self.kept {
            kept.births.insert(tree, creator, since);
        }
    }

    /// Returns [`Snapshots::floor`].
    pub(crate) fn floor(&self) -> Lsn {
        self.snapshots.floor()
    }

    /// Records that the transaction has committed, with a record that ends at `commit`.
    pub(crate) fn committed(&mut self, writer: TxnId, commit: Lsn) {
        let newest = self.snapshots.newest();
        let Some(kept) = &mut self.kept else { return };
        kept.newest = kept.newest.max(commit);
        kept.births.committed(writer, commit);
        for (tree, key) in kept.active.remove(&writer).unwrap_or_default() {
            if newest == 0 {
                // No snapshot needs it (`snapshots`, invariant 2).
                kept.remove(tree, &key, |image| image.is_of(writer));
            } else if kept.stamp(tree, &key, writer, commit, newest) {
                kept.committed.insert((commit, tree, key.clone()));
                kept.prune(tree, &key, &self.snapshots);
            }
        }
        if kept.unreadable.remove(&writer) {
            self.lose(commit);
        }
        self.spill.ended(writer, Outcome::Committed(commit));
        self.end(newest);
    }

    /// Completes a commit; `newest` is [`Snapshots::newest`], read after the commit record was
    /// appended.
    fn end(&mut self, newest: u64) {
        let Some(kept) = &mut self.kept else { return };
        kept.unseen = if newest > 0 { 0 } else { kept.unseen.saturating_add(1) };
        if kept.unseen > self.linger {
            self.snapshots.retire();
        }
        self.tidy();
    }

    /// Removes the images of a transaction that has been undone.
    pub(crate) fn undone(&mut self, writer: TxnId) {
        let Some(kept) = &mut self.kept else { return };
        kept.births.undone(writer);
        for (tree, key) in kept.active.remove(&writer).unwrap_or_default() {
            kept.remove(tree, &key, |image| image.is_of(writer));
        }
        kept.unreadable.remove(&writer);
        self.spill.ended(writer, Outcome::Undone);
    }

    /// Fails if images that such a snapshot needs have been removed.
    pub(crate) fn check(&self, as_of: AsOf) -> Result<(), Stop> {
        let has_all = |kept: &Kept| as_of.at >= kept.lost && kept.unreadable.is_empty();
        if self.kept.as_deref().is_none_or(has_all) {
            return Ok(());
        }
        let text = "snapshot too old";
        Err(SqlError::new(SqlState::SNAPSHOT_TOO_OLD, text)
            .hint("Run the transaction again.")
            .into())
    }

    /// Returns the key's value as of a snapshot; `now` is the value in the tree.
    pub(crate) fn value_at<'v>(
        &'v self,
        tree: TreeId,
        key: &[u8],
        now: Option<&'v [u8]>,
        as_of: AsOf,
    ) -> Result<Option<Cow<'v, [u8]>>, Stop> {
        let chain = self.kept.as_ref().and_then(|kept| kept.chains.get(&tree)?.get(key));
        let (mut back, settled) =
            chain.map_or(Ok((Rewind::from(now), false)), |chain| self.rewind(chain, now, as_of))?;
        if !settled && !self.spill.is_empty() {
            self.spill.before(tree, key, self.reader(as_of))?.apply(&mut back)?;
        }
        back.end()
    }

    /// Returns the value of a key according to its images in memory, and true if the images in the
    /// file cannot affect it.
    fn rewind<'v>(
        &self,
        chain: &'v [Image],
        now: Option<&'v [u8]>,
        as_of: AsOf,
    ) -> Result<(Rewind<'v>, bool), Stop> {
        let mut back = Rewind::from(now);
        for image in chain.iter().rev() {
            if image.is_of(as_of.me) {
                // After ROLLBACK TO its change may be undone: then other transactions' images
                // matter.
                if let Change::Replaced(before) = &image.change
                    && back.value() != before.as_deref()
                {
                    back.stays = true;
                }
                continue;
            }
            // If the file had an older image of its own, these would be there, too.
            if back.stays {
                return Ok((back, true));
            }
            match self.sees(as_of.at, image.writer, image.commit) {
                // Older additions may have committed later.
                Seen::Yes if image.change.is_added() => {}
                Seen::Yes => return Ok((back, true)),
                Seen::No if image.change.is_added() && canary::on(Bug::UnsubtractedDelta) => {}
                Seen::No => back.over(&image.change),
                Seen::Undecided => return Err(Stop::Commit(image.writer)),
            }
        }
        Ok((back, false))
    }

    /// Returns what others have done to the key since the snapshot. The caller must have locked the
    /// key. Changes of active transactions that its lock admits count if `open` is true.
    pub(crate) fn since(
        &self,
        tree: TreeId,
        key: &[u8],
        as_of: AsOf,
        open: bool,
    ) -> Result<Since, Stop> {
        let chain = self.kept.as_ref().and_then(|kept| kept.chains.get(&tree)?.get(key));
        let mut since = Since::Unchanged;
        // The creation of a newer tree has left no images.
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
                Seen::No if image.commit.is_none() && !open => {}
                Seen::No if image.moved => return Ok(Since::Moved),
                Seen::No => since = Since::Changed,
                Seen::Undecided => return Err(Stop::Commit(image.writer)),
            }
        }
        if self.spill.is_empty() {
            return Ok(since);
        }
        Ok(match self.spill.since(tree, key, self.reader(as_of), open)? {
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

    /// Returns true if an active transaction may have been committed elsewhere.
    pub(crate) fn is_undecided(&self, writer: TxnId) -> bool {
        is_undecided(&self.snapshots, writer)
    }

    fn reader(&self, as_of: AsOf) -> Reader<'_> {
        Reader { as_of, snapshots: &self.snapshots }
    }
}

fn is_undecided(snapshots: &Snapshots, writer: TxnId) -> bool {
    !canary::on(Bug::HalfCommit) && snapshots.is_committing(writer)
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
        Self { writer, commit: None, change, moved: false, hot: false, length: 0 }
    }

    /// Returns true if it belongs to this transaction, which has not ended.
    fn is_of(&self, txn: TxnId) -> bool {
        self.commit.is_none() && self.writer == txn
    }

    /// Returns true if all of it was undone.
    fn is_nothing(&self) -> bool {
        matches!(&self.change, Change::Added(sum) if sum.count == 0)
    }

    /// Returns true if it is committed and this snapshot does not see it.
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
