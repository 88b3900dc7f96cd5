//! Which images of a key are needed: what a change leaves, how its commit modifies that, and what
//! is removed.
//!
//! There are two rules, both for images without an open snapshot between their commits (`versions`,
//! invariant 3). A *value* makes later images of this kind unnecessary: a reader that goes back
//! over the value's image gets the same result without them. And *additions* of this kind without a
//! value between them look the same to every reader: they are kept as one image. An image of
//! additions makes no other one unnecessary.
//!
//! A commit applies the rules to its own image. For that it needs only the newest snapshot: no
//! snapshot is between commits that this one does not see. Later, snapshots close and make more
//! images unnecessary. So a chain is pruned when it has twice as many images as after the last
//! time. That costs each image a constant number of searches among the open snapshots.
//!
//! Source: the second part is the interval garbage collection of Steam (Böttcher et al., VLDB 2019)
//! and of SAP HANA (Lee et al., SIGMOD 2016).

use super::{Chain, Change, Image, Kept, Key, Sum, size_of_image};
use crate::snapshots::Snapshots;
use clearway_sync::canary::{self, Bug};
use clearway_types::{Lsn, TreeId, TxnId};
use smallvec::SmallVec;

/// An image that no open snapshot needs.
struct Unneeded {
    at: usize,
    /// An older image, which takes its place: a value, or additions that it is merged into.
    into: usize,
}

impl Kept {
    pub(super) fn chain(&mut self, tree: TreeId, key: &[u8]) -> Option<&mut Chain> {
        self.chains.get_mut(&tree)?.get_mut(key)
    }

    /// Returns what an active transaction has added to a row, if it has.
    pub(super) fn sum_of(&mut self, writer: TxnId, tree: TreeId, key: &[u8]) -> Option<&mut Sum> {
        self.chain(tree, key)?.iter_mut().rev().find_map(|image| match &mut image.change {
            Change::Added(sum) if image.commit.is_none() && image.writer == writer => Some(sum),
            _ => None,
        })
    }

    /// Records that an active transaction has added to a row.
    pub(super) fn add(&mut self, writer: TxnId, tree: TreeId, key: &[u8], more: &Sum) {
        match self.sum_of(writer, tree, key) {
            Some(sum) => {
                let before = sum.heap();
                sum.merge(more);
                let grown = sum.heap() - before;
                self.bytes += grown;
            }
            None => self.push(tree, key.into(), Image::of(writer, Change::Added(more.clone()))),
        }
    }

    /// Returns true if an older value of the key was replaced by a commit after every open
    /// snapshot, so that none needs an image of the current value.
    pub(super) fn is_unneeded(&mut self, tree: TreeId, key: &[u8], newest: u64) -> bool {
        let last = self
            .chain(tree, key)
            .and_then(|chain| chain.iter_mut().rfind(|image| !image.change.is_added()));
        let newer = last.filter(|image| image.is_behind(newest));
        newer.map(|image| image.hot = true).is_some()
    }

    /// Stamps the writer's newest image. Returns false if it was removed because no snapshot needs
    /// it, or merged into another one.
    pub(super) fn stamp(
        &mut self,
        tree: TreeId,
        key: &Key,
        writer: TxnId,
        commit: Lsn,
        newest: u64,
    ) -> bool {
        let Some(chain) = self.chain(tree, key) else { return false };
        let Some(at) = chain.iter().rposition(|image| image.is_of(writer)) else { return false };
        let value = chain[..at].iter().rposition(|image| !image.change.is_added());
        if let Some(value) = value.filter(|value| chain[*value].is_behind(newest)) {
            self.replace(tree, key, at, value);
            return false;
        }
        if chain[at].is_nothing() {
            self.take(tree, key, at);
            return false;
        }
        chain[at].commit = Some(commit);
        let size = size_of_image(key, &chain[at]);
        self.stamped += size;
        !self.merge(tree, key, at, newest)
    }

    /// Like [`Kept::merge`], for the newest image.
    pub(super) fn merge_last(&mut self, tree: TreeId, key: &Key, newest: u64) -> bool {
        let at = self.chain(tree, key).and_then(|chain| chain.len().checked_sub(1));
        at.is_some_and(|at| self.merge(tree, key, at, newest))
    }

    /// Merges an image of additions into another one if neither a snapshot nor a value is between
    /// their commits; returns true if it did. The other one's commit is kept: every snapshot, open
    /// now or later, sees both or neither.
    fn merge(&mut self, tree: TreeId, key: &Key, at: usize, newest: u64) -> bool {
        let Some(chain) = self.chain(tree, key) else { return false };
        if !chain[at].change.is_added() || !chain[at].is_behind(newest) {
            return false;
        }
        let from = chain[..at]
            .iter()
            .rposition(|image| !image.change.is_added())
            .map_or(0, |value| value + 1);
        let to = chain[at..]
            .iter()
            .position(|image| !image.change.is_added())
            .map_or(chain.len(), |value| at + value);
        let Some(other) = (from..to).find(|other| *other != at && chain[*other].is_behind(newest))
        else {
            return false;
        };
        self.replace(tree, key, at, other);
        true
    }

    /// Adds the amounts of an image of additions to another one, and removes it.
    fn merge_into(&mut self, tree: TreeId, key: &Key, at: usize, other: usize) {
        let Some(chain) = self.chain(tree, key) else { return };
        let Change::Added(more) = chain[at].change.clone() else { return };
        let before = size_of_image(key, &chain[other]);
        if let Change::Added(sum) = &mut chain[other].change {
            sum.merge(&more);
        }
        let grown = size_of_image(key, &chain[other]) - before;
        self.bytes += grown;
        self.stamped += grown;
        self.take(tree, key, at);
    }

    /// Removes the images of a grown chain that no open snapshot needs. Call it after the last
    /// commit of the chain was appended.
    pub(super) fn prune(&mut self, tree: TreeId, key: &Key, snapshots: &Snapshots) {
        let Some(chain) = self.chain(tree, key) else { return };
        if chain.len() < 2 * chain[0].length.max(1) as usize {
            return;
        }
        for Unneeded { at, into } in unneeded(chain, snapshots).into_iter().rev() {
            let commit = self.chain(tree, key).and_then(|chain| chain[at].commit);
            self.replace(tree, key, at, into);
            commit.into_iter().for_each(|commit| self.delist(commit, tree, key));
        }
        if let Some(chain) = self.chain(tree, key) {
            chain[0].length = chain.len() as u32;
        }
    }

    /// Lets another image take the place of this one: an older value, or additions.
    fn replace(&mut self, tree: TreeId, key: &Key, at: usize, into: usize) {
        let Some(chain) = self.chain(tree, key) else { return };
        chain[into].hot = true;
        if chain[into].change.is_added() {
            self.merge_into(tree, key, at, into);
        } else {
            // A snapshot that does not see the older change does not see this one.
            chain[into].moved |= chain[at].moved;
            self.take(tree, key, at);
        }
    }

    /// Removes the key from the list of committed images, unless the transaction has another image
    /// of it.
    pub(super) fn delist(&mut self, commit: Lsn, tree: TreeId, key: &Key) {
        let is_other = |image: &Image| image.commit == Some(commit);
        if !self.chain(tree, key).is_some_and(|chain| chain.iter().any(is_other)) {
            self.committed.remove(&(commit, tree, key.clone()));
        }
    }

    fn take(&mut self, tree: TreeId, key: &Key, at: usize) {
        let Some(chain) = self.chain(tree, key) else { return };
        let gone = chain.remove(at);
        if at == 0
            && let Some(first) = chain.first_mut()
        {
            first.length = gone.length;
        }
        let empty = chain.is_empty();
        let size = size_of_image(key, &gone);
        self.bytes -= size;
        self.stamped -= if gone.commit.is_some() { size } else { 0 };
        if empty {
            self.forget(tree, key);
        }
    }

    pub(super) fn forget(&mut self, tree: TreeId, key: &Key) {
        let Some(chains) = self.chains.get_mut(&tree) else { return };
        chains.remove(key);
        if chains.is_empty() {
            self.chains.remove(&tree);
        }
    }

    /// Removes the images of a key that satisfy `goes`.
    pub(super) fn remove(&mut self, tree: TreeId, key: &Key, goes: impl Fn(&Image) -> bool) {
        while let Some(at) = self.chain(tree, key).and_then(|chain| chain.iter().position(&goes)) {
            self.take(tree, key, at);
        }
    }
}

/// Returns the images of a chain that no open snapshot needs, in their order.
///
/// Snapshots may open and close meanwhile. One that opens sees all commits of the chain. If the
/// first snapshot to see one commit is the first to see another one, too, it is still open, or
/// there is none at the second look: either way none is between the two.
fn unneeded(chain: &Chain, snapshots: &Snapshots) -> SmallVec<[Unneeded; 8]> {
    let mut gone = SmallVec::new();
    // With the first snapshot that sees them: the last value that stays, and the additions after
    // it that stay.
    let mut value: Option<(Option<Lsn>, usize)> = None;
    let mut added: SmallVec<[(Option<Lsn>, usize); 4]> = SmallVec::new();
    for (at, image) in chain.iter().enumerate() {
        let is_added = image.change.is_added();
        let first = match image.commit {
            Some(_) if canary::on(Bug::PrunedImage) => None,
            Some(commit) => snapshots.first_from(commit),
            None if is_added => continue,
            // Nothing after it is committed.
            None => break,
        };
        let same = |(other, _): &&(Option<Lsn>, usize)| *other == first;
        let alike = added.iter().filter(|_| is_added);
        match value.iter().chain(alike).find(same) {
            Some((_, into)) => gone.push(Unneeded { at, into: *into }),
            None if is_added => added.push((first, at)),
            None => {
                value = Some((first, at));
                added.clear();
            }
        }
    }
    gone
}
