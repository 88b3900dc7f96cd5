//! What holds a page under a latch: [`PageRef`] and [`PageMut`].

use crate::core::Core;
use crate::error::PageError;
use crate::frame::{Frame, Mode};
use crate::health::Health;
use crate::page::{self, PAGE_SIZE};
use clearway_types::{FrameId, Lsn, PageId};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A page under the shared latch. It cannot change or leave until this is dropped. Hold it for a
/// short time: no I/O, no wait.
pub struct PageRef<'a> {
    frame: &'a Frame,
    bytes: NonNull<[u8; PAGE_SIZE]>,
}

impl<'a> PageRef<'a> {
    /// Takes over a shared latch.
    #[inline]
    pub(crate) fn new<W>(core: &'a Core<W>, id: FrameId) -> Self {
        // SAFETY: there is such a frame, as `Core::frame` has just checked, and the arena has been
        // made for as many.
        Self { frame: core.frame(id), bytes: unsafe { core.arena.bytes_of(id) } }
    }

    /// The page's id.
    pub fn id(&self) -> PageId {
        self.frame.page()
    }

    /// The page's LSN.
    pub fn lsn(&self) -> Lsn {
        page::lsn(self)
    }
}

impl Deref for PageRef<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: we hold the shared latch, so that nobody writes the bytes while the borrow of us
        // lasts; the arena outlives us because we borrow from the pool.
        unsafe { self.bytes.as_ref() }
    }
}

impl Drop for PageRef<'_> {
    #[inline]
    fn drop(&mut self) {
        self.frame.unlatch(Mode::Shared);
    }
}

/// A page under the exclusive latch. A thread that has the page latched already must not ask for
/// this: it would wait for itself.
///
/// If a thread panics while it has one, the page may be half changed: the pool has failed then, and
/// nobody sees or writes the page again.
pub struct PageMut<'a> {
    health: &'a Health,
    frame: &'a Frame,
    bytes: NonNull<[u8; PAGE_SIZE]>,
}

impl<'a> PageMut<'a> {
    /// Takes over an exclusive latch.
    #[inline]
    pub(crate) fn new<W>(core: &'a Core<W>, id: FrameId) -> Self {
        // SAFETY: as in `PageRef::new`.
        let bytes = unsafe { core.arena.bytes_of(id) };
        Self { health: &core.health, frame: core.frame(id), bytes }
    }

    /// The page's id.
    pub fn id(&self) -> PageId {
        self.frame.page()
    }

    /// The page's LSN.
    pub fn lsn(&self) -> Lsn {
        page::lsn(self)
    }

    /// Must be called before the change's log record is appended, and so before the latch is let
    /// go. A page that is not marked must not be changed: it may be dropped from the pool without
    /// being written.
    #[inline]
    pub fn mark_dirty_begin(&self) {
        self.frame.mark_dirty(|| self.health.wal.appended());
    }

    /// Sets the page's LSN to the end of the change's log record, so that the page is not written
    /// before that is durable.
    #[inline]
    pub fn set_lsn(&mut self, lsn: Lsn) {
        page::set_lsn(self, lsn);
    }
}

impl Deref for PageMut<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: we hold the exclusive latch, so that nobody else reaches the bytes; the arena
        // outlives us.
        unsafe { self.bytes.as_ref() }
    }
}

impl DerefMut for PageMut<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the borrow of us is exclusive.
        unsafe { self.bytes.as_mut() }
    }
}

impl PageMut<'_> {
    /// Instead of letting go of a page that a panicking thread may have half changed. Not by
    /// reference to the guard, which stays in registers.
    #[cold]
    #[inline(never)]
    fn lose(health: &Health, frame: &Frame) {
        let thread = std::thread::current();
        let who = format!("{}, thread {}", frame.page(), thread.name().unwrap_or("without a name"));
        // First, so that whoever finds the page lost finds the reason, too.
        health.fail(PageError::panicked("changing a page", &who));
        frame.lose();
    }
}

impl Drop for PageMut<'_> {
    #[inline]
    fn drop(&mut self) {
        if std::thread::panicking() {
            return Self::lose(self.health, self.frame);
        }
        self.frame.unlatch(Mode::Exclusive);
    }
}
