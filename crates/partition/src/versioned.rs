//! Trees with versions: every change leaves an image while snapshots are open, and reads can return
//! earlier values.
//!
//! Invariant: an image is in the version store before the partition releases its baton.

use crate::exec::Stop;
use crate::versions::{AsOf, Before, Versions, VisitAt};
use clearway_storage::{
    Addends, Blocked, Compute, EachUndone, Incremented, Inserted, Trees, TxnMode, UndoLog,
};
use clearway_types::{Lsn, TreeId};
use std::borrow::Cow;
use std::ops::{Bound, ControlFlow, Deref};

/// A partition's trees and their earlier contents. Dereferences to the trees for reads of the
/// current contents; what changes values must go through its own methods.
pub(crate) struct Versioned<T> {
    pub current: T,
    pub versions: Versions,
}

impl<T> Deref for Versioned<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.current
    }
}

impl<T: Trees> Versioned<T> {
    fn before(&self, tree: TreeId, key: &[u8]) -> Result<Before, Blocked> {
        let mut before = None;
        self.current.get(tree, key, &mut |value| before = Some(value.into()))?;
        Ok(before)
    }

    /// Returns the image that a change by the transaction would leave; `None` if it leaves none.
    fn image(
        &self,
        log: &T::Log,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
    ) -> Result<Option<Before>, Blocked> {
        if !self.versions.keeps()
            || mode == TxnMode::Fresh
            || self.versions.has(tree, key, log.txn())
        {
            return Ok(None);
        }
        self.before(tree, key).map(Some)
    }

    fn changed(&mut self, log: &T::Log, tree: TreeId, key: &[u8], image: Option<Before>) {
        if let Some(before) = image {
            self.versions.changed(log.txn(), tree, key, before);
        }
    }

    /// Like [`Trees::update_autocommit`], with a value that differs from the current one only by
    /// these additions.
    pub(crate) fn add_autocommit(
        &mut self,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
        addends: &Addends,
    ) -> Result<Option<Lsn>, Blocked> {
        let commit = self.current.update_autocommit(tree, key, value)?;
        if self.versions.keeps()
            && let Some(commit) = commit
        {
            self.versions.added_autocommit(commit, tree, key, addends);
        }
        Ok(commit)
    }

    /// Like [`Trees::get`], as of a snapshot.
    pub(crate) fn get_at(
        &self,
        tree: TreeId,
        key: &[u8],
        as_of: AsOf,
        f: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, Stop> {
        let is_newer = self.versions.is_newer(tree, as_of)?;
        let mut found = Ok(false);
        let mut read = |now: Option<&[u8]>| {
            let value = match is_newer {
                true => Ok(self.versions.own(tree, key, now, as_of.me).map(Cow::Borrowed)),
                false => self.versions.value_at(tree, key, now, as_of),
            };
            found = value.map(|value| value.as_deref().map(&mut *f).is_some());
        };
        if !self.current.get(tree, key, &mut |now| read(Some(now)))? {
            read(None);
        }
        found
    }

    /// Like [`Trees::scan`], as of a snapshot. Keys that do not exist as of the snapshot, but are
    /// or were in the tree, are passed without a value.
    pub(crate) fn scan_at(
        &self,
        tree: TreeId,
        (from, to): (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
        as_of: AsOf,
        visit: &mut VisitAt<'_>,
    ) -> Result<(), Stop> {
        if self.versions.is_newer(tree, as_of)? {
            return self.scan_own(tree, (from, to), reverse, as_of, visit);
        }
        let mut images = self.versions.between(tree, from, to, reverse, as_of);
        let mut broken = Ok(false);
        self.current.scan(tree, from, to, reverse, &mut |key, now| {
            broken = images.before(Some(key), visit);
            if matches!(broken, Ok(false)) {
                broken =
                    images.value(key, now).map(|value| visit(key, value.as_deref()).is_break());
            }
            if matches!(broken, Ok(false)) {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        if !broken? {
            images.before(None, visit)?;
        }
        Ok(())
    }

    /// Like [`Versioned::scan_at`], for a tree that is newer than the snapshot.
    fn scan_own(
        &self,
        tree: TreeId,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
        as_of: AsOf,
        visit: &mut VisitAt<'_>,
    ) -> Result<(), Stop> {
        let mut keys = self.versions.changed_by(tree, bounds, as_of.me);
        if reverse {
            keys.reverse();
        }
        for key in keys {
            let mut flow = ControlFlow::Continue(());
            let mut read = |now: Option<&[u8]>| {
                flow = visit(&key, self.versions.own(tree, &key, now, as_of.me))
            };
            if !self.current.get(tree, &key, &mut |now| read(Some(now)))? {
                read(None);
            }
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// The methods of [`Trees`] that change values or end transactions.
impl<T: Trees> Versioned<T> {
    pub(crate) fn insert(
        &mut self,
        log: &mut T::Log,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Inserted, Blocked> {
        let image = self.image(log, mode, tree, key)?;
        let inserted = self.current.insert(log, mode, tree, key, value)?;
        if inserted == Inserted::Ok {
            self.changed(log, tree, key, image);
        }
        Ok(inserted)
    }
    pub(crate) fn update(
        &mut self,
        log: &mut T::Log,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, Blocked> {
        let image = self.image(log, mode, tree, key)?;
        let updated = self.current.update(log, mode, tree, key, value)?;
        if updated {
            self.changed(log, tree, key, image);
        }
        Ok(updated)
    }
    pub(crate) fn delete(
        &mut self,
        log: &mut T::Log,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
    ) -> Result<bool, Blocked> {
        let image = self.image(log, mode, tree, key)?;
        let deleted = self.current.delete(log, mode, tree, key)?;
        if deleted {
            self.changed(log, tree, key, image);
        }
        Ok(deleted)
    }
    #[inline]
    pub(crate) fn insert_autocommit(
        &mut self,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Lsn>, Blocked> {
        let commit = self.current.insert_autocommit(tree, key, value)?;
        if self.versions.keeps()
            && let Some(commit) = commit
        {
            self.versions.changed_autocommit(commit, tree, key, None);
        }
        Ok(commit)
    }
    #[inline]
    pub(crate) fn update_autocommit(
        &mut self,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Lsn>, Blocked> {
        let before = if self.versions.keeps() { self.before(tree, key)? } else { None };
        let commit = self.current.update_autocommit(tree, key, value)?;
        if self.versions.keeps()
            && let Some(commit) = commit
        {
            self.versions.changed_autocommit(commit, tree, key, before);
        }
        Ok(commit)
    }
    #[inline]
    pub(crate) fn delete_autocommit(
        &mut self,
        tree: TreeId,
        key: &[u8],
    ) -> Result<Option<Lsn>, Blocked> {
        let before = if self.versions.keeps() { self.before(tree, key)? } else { None };
        let commit = self.current.delete_autocommit(tree, key)?;
        if self.versions.keeps()
            && let Some(commit) = commit
        {
            self.versions.changed_autocommit(commit, tree, key, before);
        }
        Ok(commit)
    }
    pub(crate) fn commit_local(&mut self, log: T::Log) -> Lsn {
        let txn = log.txn();
        let commit = self.current.commit_local(log);
        self.versions.committed(txn, commit);
        commit
    }
    pub(crate) fn rollback(
        &mut self,
        log: &mut T::Log,
        to: usize,
        undone: &mut EachUndone<'_>,
    ) -> Result<(), Blocked> {
        let (txn, versions) = (log.txn(), &mut self.versions);
        self.current.rollback(log, to, &mut |tree, key, addends| {
            versions.addition_undone(txn, tree, key, addends);
            undone(tree, key, addends);
        })
    }
    pub(crate) fn increment(
        &mut self,
        log: &mut T::Log,
        mode: TxnMode,
        tree: TreeId,
        key: &[u8],
        compute: &mut Compute<'_>,
    ) -> Result<Incremented, Blocked> {
        let done = self.current.increment(log, mode, tree, key, compute)?;
        if let Incremented::Done(addends) = &done
            && self.versions.keeps()
        {
            self.versions.added(log.txn(), tree, key, addends);
        }
        Ok(done)
    }
    pub(crate) fn aborted(&mut self, log: T::Log) {
        self.versions.undone(log.txn());
        self.current.aborted(log);
    }
}
