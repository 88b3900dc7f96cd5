//! Guards of latched pages: [`PageRef`] and [`PageMut`].

use crate::core::Core;
use crate::error::PageError;
use crate::frame::{Frame, Mode};
use crate::health::Health;
use crate::page::{self, PAGE_SIZE};
use clearway_types::{FrameId, Lsn, PageId};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A page under the shared latch. It cannot change or be evicted until this guard is dropped. Hold
/// it briefly: no I/O, no waiting.
pub struct PageRef<'a> {
    frame: &'a Frame,
    bytes: NonNull<[u8; PAGE_SIZE]>,
}

impl<'a> PageRef<'a> {
    /// Takes over a shared latch.
    #[inline]
    pub(crate) fn new<W>(core: &'a Core<W>, id: FrameId) -> Self {
        // SAFETY: the frame exists, as `Core::frame` has just checked, and the arena has memory for
        // all frames.
        Self { frame: core.frame(id), bytes: unsafe { core.arena.bytes_of(id) } }
    }

    /// Returns the page's id.
    pub fn id(&self) -> PageId {
        self.frame.page()
    }

    /// Returns the page's LSN.
    pub fn lsn(&self) -> Lsn {
        page::lsn(self)
    }
}

impl Deref for PageRef<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: this guard holds the shared latch, so no thread writes the bytes while it is
        // borrowed. The arena outlives the guard, which borrows from the pool.
        unsafe { self.bytes.as_ref() }
    }
}

impl Drop for PageRef<'_> {
    #[inline]
    fn drop(&mut self) {
        self.frame.unlatch(Mode::Shared);
    }
}

/// A page under the exclusive latch. A thread that already holds the page's latch must not acquire
/// this: it would wait for itself.
///
/// If a thread panics while it holds this guard, the page may be partly changed. The pool then
/// fails, and no thread reads or writes the page again.
pub struct PageMut<'a> {
    health: &'a Health,
    frame: &'a Frame,
    bytes: NonNull<[u8; PAGE_SIZE]>,
}

impl<'a> PageMut<'a> {
    /// Takes over an exclusive latch.
    #[inline]
    pub(crate) fn new<W>(core: &'a Core<W>, id: FrameId) -> Self {
        let frame = core.frame(id);
        // SAFETY: as in `PageRef::new`.
        let bytes = unsafe { core.arena.bytes_of(id) };
        Self { health: &core.health, frame, bytes }
    }

    /// Returns the page's id.
    pub fn id(&self) -> PageId {
        self.frame.page()
    }

    /// Returns the page's LSN.
    pub fn lsn(&self) -> Lsn {
        page::lsn(self)
    }

    /// Marks the page dirty. Must be called before the change's log record is appended, and so
    /// before the latch is released. A page that is not marked must not be changed: it may be
    /// evicted without being written.
    #[inline]
    pub fn mark_dirty_begin(&self) {
        self.frame.mark_dirty(|| self.health.wal.appended());
    }

    /// Sets the page's LSN to the end of the change's log record, so that the page is not written
    /// before the record is durable.
    #[inline]
    pub fn set_lsn(&mut self, lsn: Lsn) {
        page::set_lsn(self, lsn);
    }
}

impl Deref for PageMut<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: this guard holds the exclusive latch, so no other thread accesses the bytes; the
        // arena outlives the guard.
        unsafe { self.bytes.as_ref() }
    }
}

impl DerefMut for PageMut<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and this guard is borrowed exclusively.
        unsafe { self.bytes.as_mut() }
    }
}

impl PageMut<'_> {
    /// Loses a page that a panicking thread may have partly changed, instead of releasing its
    /// latch. Does not take the guard by reference, so that the guard stays in registers.
    #[cold]
    #[inline(never)]
    fn lose(health: &Health, frame: &Frame) {
        let thread = std::thread::current();
        let who = format!("{}, thread {}", frame.page(), thread.name().unwrap_or("without a name"));
        // First, so that a thread that finds the page lost also finds the reason.
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
