//! Frames: the pool's memory, and one state word per frame.
//!
//! The state word, from the lowest bit:
//!
//! | bits   | name    | meaning |
//! |--------|---------|---------|
//! | 0..18  | pins    | fetch pins (`Pin`), latch holders, waiters, and a write-back in progress; the page stays while > 0 |
//! | 18..27 | shared  | holders of the shared latch; each also has a pin; 256 at most |
//! | 27     | WAITED  | a thread is parked for the latch (`waits`); later requests queue |
//! | 28     | EXCL    | the exclusive latch is held; its holder also has a pin |
//! | 29     | DIRTY   | the page has changes that neither the disk nor a copy being written has |
//! | 30     | FREE    | the frame holds no page |
//! | 31..64 | version | counts the pages that the frame has held, and releases of its exclusive latch |
//!
//! A second word identifies the page, from the lowest bit:
//!
//! | bits   | name    | meaning |
//! |--------|---------|---------|
//! | 0..48  | page    | the page's id; all ones while the frame is free |
//! | 48..56 |         | zero; ones while the frame is free |
//! | 56..64 | colder  | the bound of the use count, minus the count; all ones if uses are not counted |
//!
//! One comparison therefore tells a reader that the page is here and that its next use changes
//! nothing: the page is *hot* (`uses`).
//!
//! | state     | FREE  | pins | shared | EXCL | DIRTY | who may change the bytes |
//! |-----------|-------|------|--------|------|-------|--------------------------|
//! | free      | 1     | 0    | 0      | 0    | 0     | the owner of its [`FreeFrame`] |
//! | idle      | 0     | 0    | 0      | 0    | 0/1   | nobody; can be evicted if clean |
//! | pinned    | 0     | > 0  | 0      | 0    | 0/1   | nobody |
//! | read      | 0     | > 0  | > 0    | 0    | 0/1   | nobody |
//! | written   | 0     | > 0  | 0      | 1    | 0/1   | the holder of EXCL |
//! | lost      | 0     | > 0  | ones   | 1    | 0/1   | nobody: a thread panicked during a change |
//!
//! WAITED may be set in each state with pins, because every waiter for the latch has a pin.
//!
//! # Invariants
//! 1. A frame has exactly one [`FreeFrame`] while it is free, and none otherwise.
//! 2. The page's id, FREE and the version change only under the page-table latch of the page.
//!    Exception: releasing the exclusive latch also changes the version.
//! 3. DIRTY and `rec_lsn` change only under a latch. The holder of EXCL sets them. The write-back
//!    clears them (or sets them again, if a write has failed) under a shared latch. DIRTY is set
//!    exactly while `rec_lsn` is not [`CLEAN`].
//! 4. A change that is not on disk is covered by `rec_lsn`, except while the write-back's turn is
//!    taken.
//! 5. A version with neither FREE nor EXCL identifies one page between two changes. The version is
//!    new when a page comes into the frame, and when the exclusive latch is released (up to 2^33
//!    times). A thread that reads a version, and later reads the same version with neither bit, has
//!    therefore read that page in between, and no change of it. This holds whichever bits were set
//!    at the first read.
//! 6. A lost page stays in its frame, latched: no thread reads or writes it. The pool has failed
//!    before the page is lost.
//! 7. At most [`FETCH_PINS`] pins are fetch pins. The rest exceeds the possible number of latch
//!    holders, waiting threads and write-backs of one page. The pins therefore do not overflow,
//!    however many clients request a page.
//!
//! # Locking
//! The latch of a page is the state word itself. Its holders wait for no I/O and no lock. An
//! optimistic reader acquires and writes nothing: it reads the word before and after (invariant 5;
//! see `optimistic`). A waiter for the latch queues, parks, and is woken by the last holder
//! (`waits`).

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
/// The maximum number of fetch pins of one page, and so of waiters for one read. A server may have
/// more connections than a page can have pins.
pub(crate) const FETCH_PINS: u64 = PINS - (1 << 13);
const SHARE: u64 = 1 << 18;
const SHARES: u64 = ((1 << 9) - 1) << 18;
/// The highest bit of `shared`. No more holders are admitted when it is set, so that the bits never
/// overflow.
const CROWDED: u64 = 1 << 26;
const WAITED: u64 = 1 << 27;
const EXCL: u64 = 1 << 28;
const DIRTY: u64 = 1 << 29;
const FREE: u64 = 1 << 30;
const VERSION: u64 = 1 << 31;
/// The bits that an optimistic reader records at the start and compares at the end.
const VERSIONS: u64 = !(VERSION - 1);
const STABLE: u64 = VERSIONS | FREE | EXCL;

/// The LSN that stands for "no change". It is above every real LSN, so that a minimum needs no
/// special case.
pub(crate) const CLEAN: u64 = u64::MAX;
const NO_PAGE: u64 = u64::MAX;
/// One missing use.
const COLDER: u64 = 1 << 56;
const UNCOUNTED: u64 = !(COLDER - 1);

/// Ownership of a frame that holds no page.
#[derive(Debug)]
pub(crate) struct FreeFrame(FrameId);

impl FreeFrame {
    pub fn id(&self) -> FrameId {
        self.0
    }
}

/// The result of [`Frame::try_latch`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TryLatch {
    Yes,
    /// Held in a conflicting mode, or a thread waits for it. It will be released soon.
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
    /// The lockstat class of readers and writers of a page. The write-back has its own class.
    #[inline]
    pub fn class(self) -> &'static Class {
        match self {
            Self::Shared => &SHARED,
            Self::Exclusive => &EXCLUSIVE,
        }
    }

    /// The bits that prevent the latch from being acquired.
    #[inline(always)]
    fn excluded(self) -> u64 {
        match self {
            Self::Shared => EXCL | CROWDED,
            Self::Exclusive => EXCL | SHARES,
        }
    }

    /// The amount added to the word when the latch is acquired.
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
    /// The start of the first log record whose change is neither on disk nor in a copy being
    /// written.
    rec_lsn: AtomicU64,
    /// The next frame in the page table's chain; only the page table uses it.
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

    /// Returns true if the frame holds the page. Only a hint.
    #[inline]
    pub fn holds(&self, id: PageId) -> bool {
        // Relaxed: a hint, which `try_latch` confirms.
        (self.page.load(Ordering::Relaxed) ^ id.to_u64()) & !UNCOUNTED == 0
    }

    /// Returns true if the frame holds the page and a use of it changes nothing. Only a hint.
    #[inline]
    pub fn is_hot(&self, id: PageId) -> bool {
        // Relaxed: as in `holds`.
        self.page.load(Ordering::Relaxed) == id.to_u64()
    }

    pub fn page(&self) -> PageId {
        // Relaxed: exact for a thread that has a pin or the page-table latch; a hint for others.
        PageId::from_u64(self.page.load(Ordering::Relaxed) & !UNCOUNTED)
    }

    /// Pins and latches the page, if the frame holds `id` and the latch is available now.
    #[inline]
    pub fn try_latch(&self, id: PageId, mode: Mode) -> TryLatch {
        // Acquire: pairs with the Release in `publish`. Without it, an old `page` could be read
        // after a new version.
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            // The page is read between two states of the word. If the frame took another page in
            // between, the version has changed and the exchange fails.
            if !self.holds(id) {
                return TryLatch::Gone;
            }
            // One test for all conditions, so that the common case is short.
            if word & (FREE | WAITED | mode.excluded()) != 0 {
                return if word & FREE != 0 { TryLatch::Gone } else { TryLatch::Busy };
            }
            debug_assert!(word & PINS < PINS, "too many pins of {id}");
            // Acquire: pairs with the Release in `unlatch`. It makes visible the bytes that the
            // last holder wrote, or orders us after its reads.
            match self.word.compare_exchange_weak(
                word,
                word + mode.added(),
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    if mode == Mode::Exclusive {
                        // A thread that sees a change made from now on also sees EXCL. Pairs with
                        // the fence in `unchanged_since`.
                        fence(Ordering::Release);
                    }
                    return TryLatch::Yes;
                }
                Err(now) => word = now,
            }
        }
    }

    /// Begins an optimistic read of a page for which `is_here` ([`Self::holds`] or
    /// [`Self::is_hot`]) is true. Returns the version that must be found at the end, or `None` if
    /// the page is not here. Whether a change is in progress is checked only at the end, where it
    /// must be checked anyway.
    #[inline]
    pub fn optimistic_version(&self, is_here: impl FnOnce(&Self) -> bool) -> Option<u64> {
        // Acquire: pairs with the Release in `publish` and in the `unlatch` of the last change.
        let version = self.word.load(Ordering::Acquire) & VERSIONS;
        is_here(self).then_some(version)
    }

    /// Returns true if everything read since `optimistic_version` returned `version`, including its
    /// check of the page's id, was of one page and not during a change (invariant 5).
    #[inline]
    pub fn unchanged_since(&self, version: u64) -> bool {
        // Orders the preceding reads before the following load. Pairs with the fences in
        // `try_latch` and `try_claim`.
        fence(Ordering::Acquire);
        self.word.load(Ordering::Relaxed) & STABLE == version
    }

    #[inline]
    pub fn unlatch(&self, mode: Mode) {
        let add = match mode {
            Mode::Shared => 0_u64.wrapping_sub(PIN + SHARE),
            // Invariant 5: the version has the highest bits, so its overflow affects no other
            // field.
            Mode::Exclusive => VERSION - PIN - EXCL,
        };
        // Release: pairs with the Acquire in `try_latch`, `try_claim` and `optimistic_version`.
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

    /// Adds up to `count` pins to a page that cannot be evicted: the caller has a pin or the
    /// page-table latch. Returns the number added, which [`FETCH_PINS`] limits.
    pub fn pin(&self, count: u64) -> u64 {
        let mut added = 0;
        let add = |word: u64| {
            added = count.min(FETCH_PINS.saturating_sub(word & PINS));
            Some(word + added * PIN)
        };
        // Relaxed: a pin alone gives no access to the bytes. An eviction sees it because it
        // exchanges the same word.
        let _always = self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        added
    }

    /// Returns true if the page is pinned or latched. A hint.
    pub fn is_pinned(&self) -> bool {
        self.word.load(Ordering::Relaxed) & PINS != 0 // Relaxed: a hint.
    }

    /// Marks the page as lost. The holder of EXCL calls this instead of releasing the latch: no
    /// thread may read or write the page again (invariant 6).
    pub fn lose(&self) {
        // Relaxed: a thread that sees EXCL does not access the bytes.
        if self.word.fetch_or(SHARES, Ordering::Relaxed) & WAITED != 0 {
            self.queue.wake();
        }
    }

    /// Returns true if the page was lost. This is permanent.
    pub fn is_lost(&self) -> bool {
        // Relaxed: no bytes are read because of it; a waiter checks again.
        self.word.load(Ordering::Relaxed) & (SHARES | EXCL) == SHARES | EXCL
    }

    pub fn unpin(&self) {
        // Release: pairs with the Acquire in `try_claim`: all accesses under the pin are complete.
        let old = self.word.fetch_sub(PIN, Ordering::Release);
        assert!(old & PINS != 0, "{} was not pinned", self.page());
    }

    /// Releases the shared latch but keeps the pin.
    pub fn release_latch_keep_pin(&self) {
        // Release: pairs with the Acquire of the next exclusive `try_latch`: the bytes have been
        // read.
        let old = self.word.fetch_sub(SHARE, Ordering::Release);
        if old & WAITED != 0 {
            self.wake_waiter(old - SHARE);
        }
    }

    /// Makes the frame hold `id`. Called under the page-table latch of `id`, before linking. With
    /// `mode`, the caller gets the latch in addition to `pins` pins.
    pub fn publish(&self, frame: FreeFrame, id: PageId, pins: u64, mode: Option<Mode>) -> FrameId {
        let add = match mode {
            None => 0,
            Some(mode) => mode.added(),
        };
        assert!(pins <= FETCH_PINS, "too many pins of {id}");
        // Relaxed: published by the Release below. Uses are counted once the replacement policy
        // enables it.
        self.page.store(UNCOUNTED | id.to_u64(), Ordering::Relaxed);
        // Invariant 5: the version has the highest bits, so its overflow affects no other field.
        // Relaxed: the caller owns the frame.
        let version = (self.word.load(Ordering::Relaxed) & VERSIONS).wrapping_add(VERSION);
        // Release: pairs with the Acquire in `try_latch` and `optimistic_version`. It publishes the
        // page's id and bytes.
        self.word.store(version + pins * PIN + add, Ordering::Release);
        frame.0
    }

    /// Takes the frame from its page, if the page is idle and clean. Called under the page-table
    /// latch of the page; the caller unlinks the frame.
    pub fn try_claim(&self, id: FrameId) -> Option<FreeFrame> {
        // Relaxed: the exchange decides.
        let word = self.word.load(Ordering::Relaxed);
        if word & (PINS | SHARES | EXCL | DIRTY | FREE) != 0 {
            return None;
        }
        // Acquire: pairs with the Release in `unlatch` and `unpin`: all accesses to the bytes are
        // complete.
        self.word.compare_exchange(word, word | FREE, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // A thread that sees the bytes loaded next also sees FREE or a later version. Pairs with
        // the fence in `unchanged_since`.
        fence(Ordering::Release);
        self.page.store(NO_PAGE, Ordering::Relaxed); // Relaxed: a hint for readers, see `try_latch`.
        Some(FreeFrame(id))
    }

    /// Returns whether the page is dirty, if it is idle, and `None` otherwise. A hint.
    pub fn idle(&self) -> Option<bool> {
        // Relaxed: a hint.
        let word = self.word.load(Ordering::Relaxed);
        (word & (PINS | SHARES | EXCL | FREE) == 0).then_some(word & DIRTY != 0)
    }

    pub fn is_dirty(&self) -> bool {
        // Relaxed: exact for the holder of the latch, since only latch holders change it (invariant
        // 3).
        self.word.load(Ordering::Relaxed) & DIRTY != 0
    }

    /// Marks the page dirty. The holder of EXCL calls this before the first change is logged.
    /// `appended` gives the rec-LSN if the page is clean.
    #[inline]
    pub fn mark_dirty(&self, appended: impl FnOnce() -> Lsn) {
        if self.is_dirty() {
            return;
        }
        // Release: pairs with the Acquire in `rec_lsn`. A thread that sees the log record of the
        // change sees this too, since the append comes later (see `WalBarrier::appended`).
        self.rec_lsn.store(appended().0, Ordering::Release);
        // Relaxed: published by the Release in `unlatch`.
        self.word.fetch_or(DIRTY, Ordering::Relaxed);
    }

    /// Marks the page clean and returns the rec-LSN. The write-back calls this under a shared
    /// latch: the page's current content goes into the copy being written.
    pub fn clean(&self) -> u64 {
        // Relaxed load: written under EXCL and visible through the latch. Release store: pairs with
        // the Acquire in `rec_lsn`.
        let rec_lsn = self.rec_lsn.load(Ordering::Relaxed);
        self.rec_lsn.store(CLEAN, Ordering::Release);
        // Relaxed: published by the Release in `release_latch_keep_pin`.
        self.word.fetch_and(!DIRTY, Ordering::Relaxed);
        rec_lsn
    }

    /// Marks the page as dirty as it was before. The write-back calls this under a shared latch
    /// when the copy was not written.
    pub fn dirty_again(&self, rec_lsn: u64) {
        // AcqRel: pairs with the Acquire in `rec_lsn`. A later change may have made the page dirty
        // in the meantime.
        self.rec_lsn.fetch_min(rec_lsn, Ordering::AcqRel);
        // Relaxed: published by the Release in `unlatch`.
        self.word.fetch_or(DIRTY, Ordering::Relaxed);
    }

    /// Returns the start of the first log record whose change is in no copy; [`CLEAN`] if there is
    /// none.
    pub fn rec_lsn(&self) -> u64 {
        // Acquire: pairs with the Release in `mark_dirty` and `clean`.
        self.rec_lsn.load(Ordering::Acquire)
    }
}

/// The frames' bytes, page aligned. They are untouched (and so not resident in memory) until used
/// or registered.
pub(crate) struct Arena {
    base: NonNull<u8>,
    frames: usize,
    memory: IoMemory,
}

// SAFETY: the bytes are reached only through `bytes`, whose callers guarantee exclusion; the struct
// itself never changes.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Allocates memory for `frames` frames, and a [`FreeFrame`] for each.
    pub fn new(frames: u32) -> (Self, Vec<FreeFrame>) {
        let count = frames as usize;
        let memory = IoMemory::new(count * PAGE_SIZE, PAGE_SIZE);
        prefer_huge_pages(&memory);
        (
            Self { base: memory.start(), frames: count, memory },
            (0..frames).rev().map(|f| FreeFrame(FrameId(f))).collect(),
        )
    }

    /// Returns the memory that holds the bytes in place.
    pub fn memory(&self) -> &IoMemory {
        &self.memory
    }

    /// Returns a pointer to the frame's bytes.
    #[inline]
    pub fn bytes(&self, frame: FrameId) -> NonNull<[u8; PAGE_SIZE]> {
        assert!((frame.0 as usize) < self.frames, "no such frame");
        // SAFETY: the frame exists, as just checked.
        unsafe { self.bytes_of(frame) }
    }

    /// Like `bytes`, without the check.
    ///
    /// # Safety
    /// The frame exists.
    #[inline]
    pub unsafe fn bytes_of(&self, frame: FrameId) -> NonNull<[u8; PAGE_SIZE]> {
        debug_assert!((frame.0 as usize) < self.frames, "no such frame");
        // SAFETY: the caller guarantees that the frame is inside the memory.
        unsafe { self.base.add(frame.0 as usize * PAGE_SIZE).cast() }
    }

    /// Returns the bytes of a free frame to its owner.
    pub fn free_bytes<'a>(&'a self, frame: &'a mut FreeFrame) -> &'a mut [u8; PAGE_SIZE] {
        // SAFETY: a frame has one `FreeFrame`, and no other thread accesses the bytes while it is
        // free (invariant 1 and the table of states). The borrow of it is exclusive.
        unsafe { self.bytes(frame.0).as_mut() }
    }
}

/// Requests huge pages: a pool of gigabytes has far more 4 KiB pages than a TLB has entries. If the
/// kernel refuses, only speed is lost.
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

    /// Invariant 5: a version recorded while the frame was free or the page was being changed never
    /// recurs.
    #[test]
    fn version_of_a_changing_or_free_frame_never_recurs() {
        let [a, b] = [1, 2].map(|no| PageId::new(PartitionId(0), no));
        let (_arena, mut free) = Arena::new(1);
        let frame = Frame::new();
        let version_of = |page| frame.optimistic_version(|frame| frame.holds(page));
        let id = frame.publish(free.remove(0), a, 0, Some(Mode::Exclusive));
        let changing = version_of(a).unwrap();
        assert!(!frame.unchanged_since(changing), "it is being changed");
        frame.unlatch(Mode::Exclusive);
        assert!(!frame.unchanged_since(changing), "it has been changed");
        let whole = version_of(a).unwrap();
        assert_eq!(frame.try_latch(a, Mode::Shared), TryLatch::Yes);
        assert!(frame.unchanged_since(whole), "it is only being read");
        frame.unlatch(Mode::Shared);
        assert!(frame.unchanged_since(whole) && version_of(b).is_none());

        let freed = frame.try_claim(id).unwrap();
        let while_free = frame.word.load(Ordering::Relaxed) & VERSIONS;
        assert!(
            version_of(a).is_none()
                && !frame.unchanged_since(whole)
                && !frame.unchanged_since(while_free)
        );
        frame.publish(freed, b, 0, None);
        assert!(!frame.unchanged_since(while_free), "another page has come");
        assert!(frame.unchanged_since(version_of(b).unwrap()));
    }
}
