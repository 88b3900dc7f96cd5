//! Frames: the pool's memory, and one state word for each.
//!
//! The state word, from the lowest bit:
//!
//! | bits   | name    | meaning |
//! |--------|---------|---------|
//! | 0..18  | pins    | keeps, latch holders, those who wait, and the write-back in progress; the page stays while > 0 |
//! | 18..27 | shared  | holders of the shared latch; each has a pin too; 256 at most |
//! | 27     | WAITED  | somebody is parked for the latch (`waits`): who wants it queues |
//! | 28     | EXCL    | the exclusive latch is held; its holder has a pin too |
//! | 29     | DIRTY   | the page has changes that no copy under way or on disk has |
//! | 30     | FREE    | the frame holds no page |
//! | 31..64 | version | counts the pages that the frame has held, and how often it was let go from exclusive |
//!
//! A second word says which page it is, from the lowest bit:
//!
//! | bits   | name    | meaning |
//! |--------|---------|---------|
//! | 0..48  | page    | the page's id; all ones while the frame is free |
//! | 48..56 |         | zero; ones while the frame is free |
//! | 56..64 | colder  | uses that the page is short of the bound to which they are counted; all ones if they are not counted |
//!
//! So who looks for a page finds by one comparison that it is here and that its next use changes
//! nothing: it is *hot* (`uses`).
//!
//! | state     | FREE  | pins | shared | EXCL | DIRTY | who may change the bytes |
//! |-----------|-------|------|--------|------|-------|--------------------------|
//! | free      | 1     | 0    | 0      | 0    | 0     | the owner of its [`FreeFrame`] |
//! | idle      | 0     | 0    | 0      | 0    | 0/1   | nobody; the victim of an eviction if clean |
//! | kept      | 0     | > 0  | 0      | 0    | 0/1   | nobody |
//! | read      | 0     | > 0  | > 0    | 0    | 0/1   | nobody |
//! | written   | 0     | > 0  | 0      | 1    | 0/1   | the holder of EXCL |
//! | lost      | 0     | > 0  | ones   | 1    | 0/1   | nobody: a thread panicked in the middle of a change |
//!
//! WAITED may be set in each state with pins: whoever waits for the latch has a pin.
//!
//! # Invariants
//! 1. There is one [`FreeFrame`] of a frame exactly while it is free.
//! 2. The page's id, and FREE and version, change only under the page-table latch of the page.
//! 3. DIRTY and `rec_lsn` change only under a latch: set by the holder of EXCL, cleared (or, if a
//!    write has failed, set again) by the write-back under a shared one. DIRTY is set exactly while
//!    `rec_lsn` is not [`CLEAN`].
//! 4. A change that is not on disk is covered by `rec_lsn`, unless the write-back's turn is taken.
//! 5. A version is that of one page between two changes from the moment when neither FREE nor EXCL
//!    is set with it: it is a new one when a page comes into the frame and when the latch is let go
//!    from exclusive (up to 2^33 times). So who sees it, and later sees it with neither, has seen
//!    that page in between, and no change of it, whatever was set the first time.
//! 6. A lost page stays in its frame, latched: nobody sees it or writes it. The pool has failed
//!    before it is lost.
//! 7. At most [`KEEPS`] pins are keeps. What is left of the pins is more than there can be latch
//!    holders, waiting threads and write-backs of one page, so that however many clients want a
//!    page, the pins do not overflow.
//!
//! # Locking
//! The latch of a page is the state word itself. Its holders wait for no I/O and no lock. An
//! optimistic reader takes nothing and writes nothing: it looks at the word before and after
//! (invariant 5; see `optimistic`). Who waits for the latch queues, parks, and is woken by the last
//! holder (`waits`).

mod uses;
mod waits;

pub(crate) use uses::FrameUses;

use clearway_env::IoMemory;
use clearway_latch::WaitQueue;
use clearway_latch::lockstat::Class;
use clearway_sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use clearway_types::{FrameId, Lsn, PageId};
use std::ptr::NonNull;

use crate::page::PAGE_SIZE;

const PIN: u64 = 1;
const PINS: u64 = (1 << 18) - 1;
/// The most keeps of one page, and so the most that may wait for one read: a server may have more
/// connections than a page can have pins.
pub(crate) const KEEPS: u64 = PINS - (1 << 13);
const SHARE: u64 = 1 << 18;
const SHARES: u64 = ((1 << 9) - 1) << 18;
/// The highest bit of `shared`: no more get in, so that the bits never overflow.
const CROWDED: u64 = 1 << 26;
const WAITED: u64 = 1 << 27;
const EXCL: u64 = 1 << 28;
const DIRTY: u64 = 1 << 29;
const FREE: u64 = 1 << 30;
const VERSION: u64 = 1 << 31;
/// What an optimistic reader notes at first, and what it compares with that at the end.
const VERSIONS: u64 = !(VERSION - 1);
const STABLE: u64 = VERSIONS | FREE | EXCL;

/// The LSN that stands for "no change": above every real one, so that a minimum needs no case for
/// it.
pub(crate) const CLEAN: u64 = u64::MAX;
const NO_PAGE: u64 = u64::MAX;
/// One use less.
const COLDER: u64 = 1 << 56;
const UNCOUNTED: u64 = !(COLDER - 1);

/// The right to a frame that holds no page.
#[derive(Debug)]
pub(crate) struct FreeFrame(FrameId);

impl FreeFrame {
    pub fn id(&self) -> FrameId {
        self.0
    }
}

/// How [`Frame::try_latch`] went.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TryLatch {
    Yes,
    /// Held in a way that excludes the wanted one, or somebody waits for it; soon let go.
    Busy,
    /// The frame does not hold the page, or has just changed.
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Shared,
    Exclusive,
}

static SHARED: Class = Class::new("buffer.page_shared");
static EXCLUSIVE: Class = Class::new("buffer.page_exclusive");

impl Mode {
    /// What lockstat counts those under who read or change a page; the write-back has a class of
    /// its own.
    #[inline]
    pub fn class(self) -> &'static Class {
        match self {
            Self::Shared => &SHARED,
            Self::Exclusive => &EXCLUSIVE,
        }
    }

    /// What keeps the latch from being taken.
    #[inline(always)]
    fn excluded(self) -> u64 {
        match self {
            Self::Shared => EXCL | CROWDED,
            Self::Exclusive => EXCL | SHARES,
        }
    }

    /// What is added to the word of a latch that is taken.
    #[inline(always)]
    fn added(self) -> u64 {
        match self {
            Self::Shared => PIN + SHARE,
            Self::Exclusive => PIN + EXCL,
        }
    }
}

#[repr(align(64))]
pub(crate) struct Frame {
    word: AtomicU64,
    page: AtomicU64,
    /// Where the first log record starts whose change is neither on disk nor in a copy being
    /// written.
    rec_lsn: AtomicU64,
    /// The next frame in the page table's chain; the page table's own.
    pub next: AtomicU32,
    queue: WaitQueue,
}

impl Frame {
    pub fn new() -> Self {
        Self {
            word: AtomicU64::new(FREE),
            page: AtomicU64::new(NO_PAGE),
            rec_lsn: AtomicU64::new(CLEAN),
            next: AtomicU32::new(0),
            queue: WaitQueue::new(),
        }
    }

    /// Whether the frame holds the page; by itself only a hint.
    #[inline]
    pub fn holds(&self, id: PageId) -> bool {
        // Relaxed: a hint, which `try_latch` confirms.
        (self.page.load(Ordering::Relaxed) ^ id.to_u64()) & !UNCOUNTED == 0
    }

    /// Whether the frame holds the page, and a use of it changes nothing; by itself only a hint.
    #[inline]
    pub fn is_hot(&self, id: PageId) -> bool {
        // Relaxed: as above.
        self.page.load(Ordering::Relaxed) == id.to_u64()
    }

    pub fn page(&self) -> PageId {
        // Relaxed: exact for who has a pin or the page-table latch; a hint for others.
        PageId::from_u64(self.page.load(Ordering::Relaxed) & !UNCOUNTED)
    }

    /// Pins and latches, if the frame holds `id` and the latch is to be had now.
    #[inline]
    pub fn try_latch(&self, id: PageId, mode: Mode) -> TryLatch {
        // Acquire: pairs with the Release in `publish`, else an old `page` could be read after a
        // new version.
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            // Read between two states of the word: if the frame took another page meanwhile, the
            // version has moved on and the exchange fails.
            if !self.holds(id) {
                return TryLatch::Gone;
            }
            // All in one test, so that the usual case is short.
            if word & (FREE | WAITED | mode.excluded()) != 0 {
                return if word & FREE != 0 { TryLatch::Gone } else { TryLatch::Busy };
            }
            debug_assert!(word & PINS < PINS, "too many pins of {id}");
            // Acquire: pairs with the Release in `unlatch`: the bytes that the last holder wrote,
            // or has done reading.
            match self.word.compare_exchange_weak(
                word,
                word + mode.added(),
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    if mode == Mode::Exclusive {
                        // Who sees a change that is made now sees EXCL, too: pairs with the fence
                        // in `unchanged_since`.
                        fence(Ordering::Release);
                    }
                    return TryLatch::Yes;
                }
                Err(now) => word = now,
            }
        }
    }

    /// Begins an optimistic read of a page that `is_here` ([`Self::holds`], or [`Self::is_hot`]):
    /// the version that is to be there at its end. `None` if it is not. Whether the page is just
    /// being changed is looked at only at the end, where it must be looked at anyway.
    #[inline]
    pub fn glimpse(&self, is_here: impl FnOnce(&Self) -> bool) -> Option<u64> {
        // Acquire: pairs with the Release in `publish` and in the `unlatch` of the last change.
        let version = self.word.load(Ordering::Acquire) & VERSIONS;
        is_here(self).then_some(version)
    }

    /// Whether all that was read since `glimpse` returned `version`, its look at the page's id
    /// included, was of one page and not in the middle of a change (invariant 5).
    #[inline]
    pub fn unchanged_since(&self, version: u64) -> bool {
        // The reads before are done before the load behind: pairs with the fences in `try_latch`
        // and `try_claim`.
        fence(Ordering::Acquire);
        self.word.load(Ordering::Relaxed) & STABLE == version
    }

    #[inline]
    pub fn unlatch(&self, mode: Mode) {
        let add = match mode {
            Mode::Shared => 0_u64.wrapping_sub(PIN + SHARE),
            // Invariant 5: the version has the highest bits, so that its overflow touches no other.
            Mode::Exclusive => VERSION - PIN - EXCL,
        };
        // Release: pairs with the Acquire in `try_latch`, `try_claim` and `glimpse`.
        let old = self.word.fetch_add(add, Ordering::Release);
        debug_assert!(
            old & PINS != 0 && old & (SHARES | EXCL) != 0,
            "{} was not latched",
            self.page()
        );
        if old & WAITED != 0 {
            self.wake_waiter(old.wrapping_add(add));
        }
    }

    /// Adds up to `count` pins to a page that cannot leave: the caller has a pin or the page-table
    /// latch. Returns how many: as many as [`KEEPS`] allows.
    pub fn pin(&self, count: u64) -> u64 {
        let mut added = 0;
        let add = |word: u64| {
            added = count.min(KEEPS.saturating_sub(word & PINS));
            Some(word + added * PIN)
        };
        // Relaxed: a pin by itself gives no right to the bytes; an eviction sees it because it
        // exchanges the same word.
        let _always = self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        added
    }

    /// Whether somebody keeps the page or has it latched. A hint.
    pub fn is_pinned(&self) -> bool {
        self.word.load(Ordering::Relaxed) & PINS != 0 // Relaxed: a hint.
    }

    /// By the holder of EXCL, instead of letting it go: nobody is to see the page again, or to
    /// write it (invariant 6).
    pub fn lose(&self) {
        // Relaxed: whoever sees EXCL keeps off the bytes.
        if self.word.fetch_or(SHARES, Ordering::Relaxed) & WAITED != 0 {
            self.queue.wake();
        }
    }

    /// Whether the page was lost, and stays so.
    pub fn is_lost(&self) -> bool {
        // Relaxed: no bytes are read for it; a waiter looks again.
        self.word.load(Ordering::Relaxed) & (SHARES | EXCL) == SHARES | EXCL
    }

    pub fn unpin(&self) {
        // Release: pairs with the Acquire in `try_claim`: what was done under the pin is done.
        let old = self.word.fetch_sub(PIN, Ordering::Release);
        assert!(old & PINS != 0, "{} was not pinned", self.page());
    }

    /// Gives up the shared latch but not the pin.
    pub fn keep_pin_only(&self) {
        // Release: pairs with the Acquire of the next exclusive `try_latch`: the bytes have been
        // read.
        let old = self.word.fetch_sub(SHARE, Ordering::Release);
        if old & WAITED != 0 {
            self.wake_waiter(old - SHARE);
        }
    }

    /// Makes the frame hold `id`. Under the page-table latch of `id`, before linking. With `mode`
    /// the caller gets the latch beside `pins` pins.
    pub fn publish(&self, frame: FreeFrame, id: PageId, pins: u64, mode: Option<Mode>) -> FrameId {
        let add = match mode {
            None => 0,
            Some(mode) => mode.added(),
        };
        assert!(pins <= KEEPS, "too many pins of {id}");
        // Relaxed: published by the Release below. Its uses are counted when the replacement says
        // so.
        self.page.store(UNCOUNTED | id.to_u64(), Ordering::Relaxed);
        // Invariant 5: the version has the highest bits, so that its overflow touches no other.
        let version = (self.word.load(Ordering::Relaxed) & VERSIONS).wrapping_add(VERSION);
        // Release: pairs with the Acquire in `try_latch` and `glimpse`: the page's id and bytes.
        self.word.store(version + pins * PIN + add, Ordering::Release);
        frame.0
    }

    /// Takes an idle, clean page's frame away from it. Under the page-table latch of the page; the
    /// caller unlinks it.
    pub fn try_claim(&self, id: FrameId) -> Option<FreeFrame> {
        // Relaxed: the exchange decides.
        let word = self.word.load(Ordering::Relaxed);
        if word & (PINS | SHARES | EXCL | DIRTY | FREE) != 0 {
            return None;
        }
        // Acquire: pairs with the Release in `unlatch` and `unpin`: nobody is at the bytes any
        // more.
        self.word.compare_exchange(word, word | FREE, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // Who sees what comes into the frame next sees FREE or a later version, too: pairs with the
        // fence in `unchanged_since`.
        fence(Ordering::Release);
        self.page.store(NO_PAGE, Ordering::Relaxed); // Relaxed: a hint for readers, see `try_latch`.
        Some(FreeFrame(id))
    }

    /// Whether this is an idle page, and if so, whether it is dirty. A hint.
    pub fn idle(&self) -> Option<bool> {
        // Relaxed: a hint.
        let word = self.word.load(Ordering::Relaxed);
        (word & (PINS | SHARES | EXCL | FREE) == 0).then_some(word & DIRTY != 0)
    }

    pub fn is_dirty(&self) -> bool {
        // Relaxed: exact for who has the latch, since only latch holders change it (invariant 3).
        self.word.load(Ordering::Relaxed) & DIRTY != 0
    }

    /// By the holder of EXCL, before the first change is logged; `appended` gives the rec-LSN if
    /// the page is clean.
    #[inline]
    pub fn mark_dirty(&self, appended: impl FnOnce() -> Lsn) {
        if self.is_dirty() {
            return;
        }
        // Release: pairs with the Acquire in `rec_lsn`; who sees the log record of the change sees
        // this too, since the append comes after (see `WalBarrier::appended`).
        self.rec_lsn.store(appended().0, Ordering::Release);
        // Relaxed: handed on by the Release in `unlatch`.
        self.word.fetch_or(DIRTY, Ordering::Relaxed);
    }

    /// By the write-back under a shared latch: what the page has now goes into the copy being
    /// written. Returns the rec-LSN.
    pub fn clean(&self) -> u64 {
        // Relaxed load: written under EXCL, seen through the latch. Release: pairs with the Acquire
        // in `rec_lsn`.
        let rec_lsn = self.rec_lsn.load(Ordering::Relaxed);
        self.rec_lsn.store(CLEAN, Ordering::Release);
        // Relaxed: handed on by the Release in `keep_pin_only`.
        self.word.fetch_and(!DIRTY, Ordering::Relaxed);
        rec_lsn
    }

    /// By the write-back under a shared latch: the copy was not written, so that the page is as
    /// dirty as it was.
    pub fn dirty_again(&self, rec_lsn: u64) {
        // AcqRel: pairs with the Acquire in `rec_lsn`; a later change may have made the page dirty
        // meanwhile.
        self.rec_lsn.fetch_min(rec_lsn, Ordering::AcqRel);
        // Relaxed: handed on by the Release in `unlatch`.
        self.word.fetch_or(DIRTY, Ordering::Relaxed);
    }

    /// Where the first log record starts whose change is in no copy; [`CLEAN`] if there is none.
    pub fn rec_lsn(&self) -> u64 {
        // Acquire: pairs with the Release in `mark_dirty` and `clean`.
        self.rec_lsn.load(Ordering::Acquire)
    }
}

/// The frames' bytes, page aligned, untouched (and so not resident in memory) until used or
/// registered.
pub(crate) struct Arena {
    base: NonNull<u8>,
    frames: usize,
    memory: IoMemory,
}

// SAFETY: the bytes are reached only through `bytes`, whose callers answer for exclusion; the
// struct itself never changes.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Memory for `frames` frames, and a [`FreeFrame`] for each.
    pub fn new(frames: u32) -> (Self, Vec<FreeFrame>) {
        let count = frames as usize;
        let memory = IoMemory::new(count * PAGE_SIZE, PAGE_SIZE);
        prefer_huge_pages(&memory);
        (
            Self { base: memory.start(), frames: count, memory },
            (0..frames).rev().map(|f| FreeFrame(FrameId(f))).collect(),
        )
    }

    /// What holds the bytes in place.
    pub fn memory(&self) -> &IoMemory {
        &self.memory
    }

    /// Where the frame's bytes are.
    #[inline]
    pub fn bytes(&self, frame: FrameId) -> NonNull<[u8; PAGE_SIZE]> {
        assert!((frame.0 as usize) < self.frames, "no such frame");
        // SAFETY: as just checked.
        unsafe { self.bytes_of(frame) }
    }

    /// As `bytes`.
    ///
    /// # Safety
    /// There is such a frame.
    #[inline]
    pub unsafe fn bytes_of(&self, frame: FrameId) -> NonNull<[u8; PAGE_SIZE]> {
        debug_assert!((frame.0 as usize) < self.frames, "no such frame");
        // SAFETY: the frame is inside the memory: the caller's.
        unsafe { self.base.add(frame.0 as usize * PAGE_SIZE).cast() }
    }

    /// The bytes of a free frame, for its owner.
    pub fn free_bytes<'a>(&'a self, frame: &'a mut FreeFrame) -> &'a mut [u8; PAGE_SIZE] {
        // SAFETY: there is one `FreeFrame` of a frame and nobody else reaches the bytes while it is
        // free (invariant 1 and the table of states); the borrow of it is exclusive.
        unsafe { self.bytes(frame.0).as_mut() }
    }
}

/// Asks for huge pages: a pool of gigabytes has far more 4 KiB pages than a TLB has entries. A
/// kernel that says no costs nothing but speed.
fn prefer_huge_pages(memory: &IoMemory) {
    #[cfg(all(target_os = "linux", not(miri)))]
    // SAFETY: the range is one live allocation, and this advice changes neither contents nor
    // validity.
    let _ = unsafe {
        rustix::mm::madvise(
            memory.start().as_ptr().cast(),
            memory.len(),
            rustix::mm::Advice::LinuxHugepage,
        )
    };
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = memory;
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use clearway_types::PartitionId;

    /// Invariant 5: a version that was noted while the frame was free or the page was being changed
    /// is never found again.
    #[test]
    fn only_what_was_begun_on_a_whole_page_counts() {
        let [a, b] = [1, 2].map(|no| PageId::new(PartitionId(0), no));
        let (_arena, mut free) = Arena::new(1);
        let frame = Frame::new();
        let glimpse = |page| frame.glimpse(|frame| frame.holds(page));
        let id = frame.publish(free.remove(0), a, 0, Some(Mode::Exclusive));
        let changing = glimpse(a).unwrap();
        assert!(!frame.unchanged_since(changing), "it is being changed");
        frame.unlatch(Mode::Exclusive);
        assert!(!frame.unchanged_since(changing), "it has been changed");
        let whole = glimpse(a).unwrap();
        assert_eq!(frame.try_latch(a, Mode::Shared), TryLatch::Yes);
        assert!(frame.unchanged_since(whole), "it is only being read");
        frame.unlatch(Mode::Shared);
        assert!(frame.unchanged_since(whole) && glimpse(b).is_none());

        let freed = frame.try_claim(id).unwrap();
        let while_free = frame.word.load(Ordering::Relaxed) & VERSIONS;
        assert!(
            glimpse(a).is_none()
                && !frame.unchanged_since(whole)
                && !frame.unchanged_since(while_free)
        );
        frame.publish(freed, b, 0, None);
        assert!(!frame.unchanged_since(while_free), "another page has come");
        assert!(frame.unchanged_since(glimpse(b).unwrap()));
    }
}
