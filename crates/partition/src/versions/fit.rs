//! Keeps the version store within its budget: removes what no snapshot needs, and spills the rest.
//!
//! A sweep visits the images in the order of trees and keys, packs those with a commit into blocks
//! (`spill`), and starts over at the end. It also takes those of active transactions while these
//! have more than half of the budget, and more than half as much again as it had to leave in the
//! last round. It skips an image that has made later images of its key
//! unnecessary since the last visit, because the next change of the key would leave another one. So
//! a row that changes all the time has one image per snapshot, in memory. A round that has freed
//! little is followed by one that skips nothing.
//!
//! Invariants
//! 1. A key's spilled images are older than those that stay in memory.
//! 2. One call of [`Versions::trim`] packs at most [`CUTS`] blocks, and visits at most [`VISITS`]
//!    keys for each, which bounds the delay for writers.
//! 3. The oldest snapshot fails, then the next, in these cases: the images are over the budget and
//!    there is no room in the file; the metadata of blocks takes more than half of the budget and
//!    more than [`KNOWN`] bytes; or [`BACKLOG`] bytes beyond the budget wait to be written. Images
//!    of active transactions and the metadata of blocks with such images count for at most half of
//!    the budget here, since failing a snapshot does not remove them.

use super::spill::{By, Entry, Loaded, Outcome, Packer, Room, Spill, WriterId, joined};
use super::{Image, Kept, Key, Versions, size_of_image};
use clearway_sync::canary::{self, Bug};
use clearway_types::{Lsn, TreeId};
use std::ops::Bound;

/// Maximum number of blocks packed and snapshots failed, together, in one call of
/// [`Versions::trim`].
const CUTS: usize = 8;

/// Maximum number of keys that the sweep visits for one block.
const VISITS: usize = 4096;

/// Minimum allowance for the metadata of blocks in bytes, however small the budget is.
const KNOWN: usize = 64 << 10;

/// Maximum number of bytes beyond the budget that may wait to be written.
const BACKLOG: usize = 128 << 20;

/// The position of the sweep.
#[derive(Default)]
pub(super) struct Sweep {
    /// The last visited key; `None` at the start of a round.
    last: Option<(TreeId, Key)>,
    /// Bytes freed in this round.
    freed: usize,
    /// Whether this round skips nothing.
    takes_all: bool,
    /// The bytes of active transactions' images that this round has visited but could not take.
    stuck: usize,
    /// The same of the last round.
    was_stuck: usize,
}

/// The next action.
enum Step {
    /// Do nothing: the store is within its budget, or nothing helps.
    Rest,
    /// Pack a block with this number of bytes.
    Cut(usize),
    /// Fail the oldest snapshot.
    Fail,
}

/// What the sweep has found for a block.
#[derive(Default)]
struct Found {
    packer: Packer,
    /// Keys, with the number of their images in the block.
    taken: Vec<(TreeId, Key, usize)>,
    /// The bytes of active transactions' images that it cannot take.
    stuck: usize,
    /// The last visited key; `None` if the round is complete.
    last: Option<(TreeId, Key)>,
}

impl Versions {
    /// Removes what no snapshot needs, and brings the rest within the budget.
    pub(super) fn trim(&mut self) {
        let oldest = match (self.snapshots.oldest(), self.snapshots.newest()) {
            (u64::MAX, _) => {
                self.kept = None;
                self.spill.clear();
                return;
            }
            // See `Snapshots`, invariant 2.
            (_, 0) => u64::MAX,
            (_, newest) if canary::on(Bug::EarlyFree) => newest,
            (oldest, _) => oldest,
        };
        self.spill.absorb();
        self.free(oldest);
        for _ in 0..CUTS {
            match self.step() {
                Step::Rest => return,
                Step::Cut(bytes) if self.cut(bytes) => {}
                Step::Cut(_) | Step::Fail => {
                    self.fail_oldest();
                    self.free(oldest);
                }
            }
        }
    }

    /// Removes what is needed only by snapshots below `oldest` or by failed ones.
    fn free(&mut self, oldest: u64) {
        let Some(kept) = &mut self.kept else { return };
        kept.births.trim(oldest);
        let horizon = oldest.max(kept.horizon);
        while let Some((commit, ..)) = kept.committed.first()
            && commit.0 <= horizon
            && let Some((commit, tree, key)) = kept.committed.pop_first()
        {
            kept.remove(tree, &key, |image| image.commit == Some(commit));
        }
        let early = canary::on(Bug::EarlyBlock)
            .then(|| self.snapshots.newest())
            .filter(|newest| *newest < u64::MAX);
        self.spill.trim(horizon.max(early.unwrap_or(0)));
    }

    fn step(&self) -> Step {
        let Some(kept) = &self.kept else { return Step::Rest };
        let known = self.spill.memory() - self.spill.active_memory();
        let active = kept.active_bytes() + self.spill.active_memory();
        let bytes = kept.stamped + active.min(self.budget / 2) + known;
        if self.takes_active()
            && self.spill.room() == Room::Yes
            && let Some(block) = self.spill.block_bytes().filter(|block| kept.bytes >= *block)
        {
            return Step::Cut(block);
        }
        if bytes <= self.budget || kept.committed.is_empty() && known == 0 {
            return Step::Rest;
        }
        let Some(block) = self.spill.block_bytes() else { return Step::Fail };
        if known > KNOWN.max(self.budget / 2) {
            return Step::Fail;
        }
        match self.spill.room() {
            Room::Yes if kept.stamped >= block => Step::Cut(block),
            Room::Yes => Step::Rest,
            Room::Later if bytes <= self.budget.saturating_add(BACKLOG) => Step::Rest,
            Room::Later | Room::No => Step::Fail,
        }
    }

    /// Returns true if the sweep takes images of active transactions.
    fn takes_active(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| {
            let stuck = kept.sweep.was_stuck;
            kept.active_bytes() > self.budget / 2 + stuck + stuck / 2
        })
    }

    /// Fails the oldest snapshot that has not failed here. If there is none, nothing with a commit
    /// is needed.
    fn fail_oldest(&mut self) {
        let Some(kept) = &mut self.kept else { return };
        if let Some(oldest) = self.snapshots.first_from(kept.lost) {
            kept.lost = Lsn(oldest.0 + 1);
        }
        self.lose(Lsn(0));
    }

    /// Fails the snapshots below this LSN.
    pub(super) fn lose(&mut self, below: Lsn) {
        let Some(kept) = &mut self.kept else { return };
        kept.lost = kept.lost.max(below);
        // A snapshot that is opened later sees the reported commits.
        let next = self.snapshots.first_from(kept.lost).unwrap_or(kept.newest);
        kept.horizon = kept.horizon.max(next.0);
    }

    /// Provides these blocks to the running task. Fails the snapshots that need blocks that could
    /// not be read for it.
    #[inline]
    pub(crate) fn lend(&mut self, loaded: Option<Box<Loaded>>) {
        for images in self.spill.lend(loaded) {
            self.lose(images.newest);
            images.writers.iter().for_each(|writer| self.lose_images_of(*writer));
        }
    }

    /// Fails the snapshots that need images of this transaction, of which some cannot be read.
    #[cold]
    fn lose_images_of(&mut self, writer: WriterId) {
        match self.spill.outcome(writer) {
            Some((_, Outcome::Committed(commit))) => self.lose(commit),
            Some((txn, Outcome::Active)) => {
                if let Some(kept) = &mut self.kept {
                    kept.unreadable.insert(txn);
                }
            }
            Some((_, Outcome::Undone)) | None => {}
        }
    }

    /// Packs images into a block, if the sweep finds any; returns false if there is no room for it.
    fn cut(&mut self, bytes: usize) -> bool {
        let takes_active = self.takes_active();
        let Some(kept) = &mut self.kept else { return true };
        let Found { packer, taken, stuck, last } = kept.find(bytes, takes_active, &mut self.spill);
        let found = !packer.is_empty();
        if found && !self.spill.add(packer) {
            return false;
        }
        for (tree, key, images) in taken {
            kept.sweep.freed += kept.spilled(tree, &key, images);
        }
        kept.sweep.last = last;
        kept.sweep.stuck += stuck;
        if kept.sweep.last.is_none() {
            self.spill.next_round();
            kept.sweep.takes_all = kept.sweep.freed < self.budget / 4;
            kept.sweep.freed = 0;
            kept.sweep.was_stuck = std::mem::take(&mut kept.sweep.stuck);
            kept.delist_spilled();
        }
        true
    }
}

impl Kept {
    /// Continues the sweep until it has a block of about this number of bytes.
    fn find(&mut self, bytes: usize, takes_active: bool, spill: &mut Spill) -> Found {
        let mut found = Found::default();
        let (tree, key) = match &self.sweep.last {
            Some((tree, key)) => (*tree, Bound::Excluded(key.clone())),
            None => (TreeId(0), Bound::Unbounded),
        };
        let takes_all = self.sweep.takes_all;
        let (mut visits, mut last) = (0, self.sweep.last.clone());
        for (&at, chains) in self.chains.range_mut(tree..) {
            // Snapshots that do not see the tree look for their own changes in memory.
            let takes_active = takes_active && self.births.get(at).is_none();
            let from = if at == tree { key.as_ref().map(|key| &**key) } else { Bound::Unbounded };
            for (key, chain) in chains.range_mut::<[u8], _>((from, Bound::Unbounded)) {
                let count = movable(chain, takes_all, takes_active);
                let size: usize = chain[..count].iter().map(|image| packed_size(key, image)).sum();
                visits += 1;
                if visits > VISITS || !found.packer.is_empty() && found.packer.size() + size > bytes
                {
                    found.last = last;
                    return found;
                }
                last = Some((at, key.clone()));
                let stuck = chain[count..].iter().filter(|image| image.commit.is_none());
                found.stuck += stuck.map(|image| size_of_image(key, image)).sum::<usize>();
                if let Some(stays) = chain.get_mut(count) {
                    stays.hot = false;
                }
                if count > 0 {
                    let joined = joined(at, key);
                    let mut addends = Vec::new();
                    for image in &chain[..count] {
                        let prior = image.change.packed(&mut addends);
                        found.packer.push(Entry {
                            key: &joined,
                            by: match image.commit {
                                Some(commit) => By::Commit(commit),
                                None => By::Writer(spill.writer(image.writer)),
                            },
                            moved: image.moved,
                            prior,
                        });
                    }
                    found.taken.push((at, key.clone(), count));
                }
            }
        }
        found
    }

    /// Removes the key's first images, which are now in a block; returns the freed bytes.
    fn spilled(&mut self, tree: TreeId, key: &Key, images: usize) -> usize {
        let Some(chain) = self.chain(tree, key) else { return 0 };
        let gone: Vec<Image> = chain.drain(..images).collect();
        let mut freed = 0;
        for image in &gone {
            let size = size_of_image(key, image);
            freed += size;
            self.stamped -= if image.commit.is_some() { size } else { 0 };
            image.commit.into_iter().for_each(|commit| self.delist(commit, tree, key));
        }
        self.bytes -= freed;
        if self.chain(tree, key).is_some_and(|chain| chain.is_empty()) {
            self.forget(tree, key);
        }
        freed
    }

    /// Removes what the lists of active transactions' images name but is not in memory.
    fn delist_spilled(&mut self) {
        let chains = &self.chains;
        for (writer, keys) in &mut self.active {
            keys.retain(|(tree, key)| {
                let chain = chains.get(tree).and_then(|chains| chains.get(key));
                chain.is_some_and(|chain| chain.iter().any(|image| image.is_of(*writer)))
            });
            if keys.len() < keys.capacity() / 4 {
                keys.shrink_to_fit();
            }
        }
    }

    /// Returns the bytes of images without a commit.
    fn active_bytes(&self) -> usize {
        self.bytes - self.stamped
    }
}

/// Returns how many of a key's images, oldest first, the sweep takes.
fn movable(chain: &[Image], takes_all: bool, takes_active: bool) -> usize {
    // An active transaction may undo some of its additions.
    let can_move = |image: &&Image| image.commit.is_some() || !image.change.is_added();
    if takes_active
        && let movable = chain.iter().take_while(can_move).count()
        && chain[..movable].iter().any(|image| image.commit.is_none())
    {
        return movable;
    }
    let committed = chain.iter().take_while(|image| image.commit.is_some()).count();
    let hot = chain[..committed].last().is_some_and(|newest| newest.hot);
    committed - usize::from(hot && !takes_all)
}

fn packed_size(key: &Key, image: &Image) -> usize {
    Entry::size(key.len(), image.change.packed_size())
}
