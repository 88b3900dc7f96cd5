//! The trees created while images are kept, and the snapshots that are older.
//!
//! A snapshot that is older than a table's tree sees the table as empty, except for the changes of
//! its own transaction. A snapshot that is older than an index does not use it: the index has no
//! entries for rows that were deleted before it was built.
//!
//! Invariant: a tree without an entry is older than every open snapshot. An entry is removed when
//! its tree is older than the oldest snapshot, or when its creator is undone.
//!
//! Locking: none, it belongs to the partition. A crash leaves nothing.
//!
//! Source: PostgreSQL's manual, 13.6, and `indcheckxmin` of its `pg_index`.

use super::between::is_empty;
use super::{AsOf, Change, Image, Key, Seen, Versions};
use crate::exec::Stop;
use clearway_sync::canary::{self, Bug};
use clearway_types::{Lsn, TreeId, TxnId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// When a tree was created.
#[derive(Clone, Copy, Debug)]
pub(super) struct Birth {
    pub creator: TxnId,
    /// The end of the creator's commit record, once it is known.
    pub commit: Option<Lsn>,
    /// Snapshots above this LSN were opened after the creation.
    pub since: u64,
}

/// The births of trees; see the module.
#[derive(Default)]
pub(super) struct Births {
    all: BTreeMap<TreeId, Birth>,
    /// Those without a commit, by creator.
    active: BTreeMap<TxnId, Vec<TreeId>>,
    /// Those with a commit.
    committed: BTreeSet<(Lsn, TreeId)>,
}

impl Births {
    /// Returns the birth of a tree that some snapshots may not see.
    pub(super) fn get(&self, tree: TreeId) -> Option<&Birth> {
        self.all.get(&tree)
    }

    /// Enters a tree whose creator is active. Snapshots above `since` were opened afterwards.
    pub(super) fn insert(&mut self, tree: TreeId, creator: TxnId, since: u64) {
        self.all.insert(tree, Birth { creator, commit: None, since });
        self.active.entry(creator).or_default().push(tree);
    }

    /// Records that the creator has committed, with a record that ends at `commit`.
    pub(super) fn committed(&mut self, creator: TxnId, commit: Lsn) {
        for tree in self.active.remove(&creator).unwrap_or_default() {
            if let Some(birth) = self.all.get_mut(&tree) {
                birth.commit = Some(commit);
                self.committed.insert((commit, tree));
            }
        }
    }

    /// Removes the trees of a creator that has been undone.
    pub(super) fn undone(&mut self, creator: TxnId) {
        for tree in self.active.remove(&creator).unwrap_or_default() {
            self.all.remove(&tree);
        }
    }

    /// Removes the trees that are older than this snapshot.
    pub(super) fn trim(&mut self, oldest: u64) {
        while self.committed.first().is_some_and(|(commit, _)| commit.0 <= oldest)
            && let Some((_, tree)) = self.committed.pop_first()
        {
            self.all.remove(&tree);
        }
    }
}

impl Versions {
    /// Returns the birth of a tree that is newer than the snapshot.
    fn newer(&self, tree: TreeId, as_of: AsOf) -> Result<Option<&Birth>, Stop> {
        let Some(birth) = self.kept.as_ref().and_then(|kept| kept.births.get(tree)) else {
            return Ok(None);
        };
        match self.sees(as_of.at, birth.creator, birth.commit) {
            Seen::Yes => Ok(None),
            Seen::No => Ok(Some(birth)),
            Seen::Undecided => Err(Stop::Commit(birth.creator)),
        }
    }

    /// Returns true if others have created the tree since the snapshot, which then sees only its
    /// own transaction's changes in it.
    pub(crate) fn is_newer(&self, tree: TreeId, as_of: AsOf) -> Result<bool, Stop> {
        let newer = self.newer(tree, as_of)?.is_some_and(|birth| birth.creator != as_of.me);
        Ok(newer && !canary::on(Bug::NewTable))
    }

    /// Returns true if an index or global index has an entry for each row that the snapshot sees.
    pub(crate) fn is_complete(&self, index: TreeId, as_of: AsOf) -> Result<bool, Stop> {
        let Some(birth) = self.newer(index, as_of)? else { return Ok(true) };
        // Rows that were deleted between the snapshot and the creation have no entries.
        let own = birth.creator == as_of.me && (!as_of.repeatable || as_of.at.0 > birth.since);
        Ok(own || canary::on(Bug::NewIndex))
    }

    /// Returns the value that the reader itself has put into a tree that is newer than its
    /// snapshot; `now` is the value in the tree.
    pub(crate) fn own<'v>(
        &self,
        tree: TreeId,
        key: &[u8],
        now: Option<&'v [u8]>,
        me: TxnId,
    ) -> Option<&'v [u8]> {
        let chain = self.kept.as_ref().and_then(|kept| kept.chains.get(&tree)?.get(key));
        let mut own = chain?.iter().rev().filter(|image| image.is_of(me) && !image.is_nothing());
        // After ROLLBACK TO its change may be undone. A transaction that replaced a value did so
        // after its additions.
        now.filter(|_| match own.next() {
            Some(Image { change: Change::Replaced(before), .. }) => {
                now != before.as_deref() || own.next().is_some()
            }
            Some(_) => true,
            None => false,
        })
    }

    /// Returns the keys between the bounds that an active transaction has changed, in order.
    pub(crate) fn changed_by(
        &self,
        tree: TreeId,
        (from, to): (Bound<&[u8]>, Bound<&[u8]>),
        writer: TxnId,
    ) -> Vec<Key> {
        let chains = self.kept.as_ref().and_then(|kept| kept.chains.get(&tree));
        let between = chains
            .filter(|_| !is_empty(from, to))
            .map(|chains| chains.range::<[u8], _>((from, to)));
        let changed = between
            .into_iter()
            .flatten()
            .filter(|(_, chain)| chain.iter().any(|image| image.is_of(writer)));
        changed.map(|(key, _)| key.clone()).collect()
    }
}
