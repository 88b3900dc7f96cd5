//! A hybrid latch: exclusive, shared, or optimistic with a version.
//!
//! | bits   | name      | meaning |
//! |--------|-----------|---------|
//! | 0..16  | readers   | how many hold it shared |
//! | 16     | EXCLUSIVE | somebody holds it exclusively; then there are no readers |
//! | 17     | WAITING   | somebody sleeps on `gate` |
//! | 18     | WRITER    | a writer waits: new readers let it go first |
//! | 19..64 | version   | how often it was let go from exclusive |
//!
//! An optimistic reader writes nothing: it notes the version, reads, and looks whether the version is the same. What it reads
//! meanwhile may be in the middle of a change, so that in Rust's model it must be read by atomic operations: [`HybridCell`] does, with
//! relaxed loads and stores of whole words between the two fences that a seqlock needs.
//!
//! Invariants
//! 1. EXCLUSIVE is never set together with readers.
//! 2. The version changes with every release from exclusive, so that two equal ones without EXCLUSIVE enclose no change (up to 2^45 of
//!    them).
//! 3. Who sets WAITING sleeps only if the gate has not been opened since; who clears it opens the gate.
//!
//! Source: Leis, Haubenschild, Neumann, "Optimistic Lock Coupling", IEEE Data Eng. Bull. 2019; Böttcher and others, "Scalable and Robust
//! Latches for Database Systems", DaMoN 2020; Boehm, "Can Seqlocks Get Along with Programming Language Memory Models?", MSPC 2012.

use crate::futex::Futex;
use clearway_sync::atomic::{AtomicU64, Ordering, fence};
use clearway_sync::hint;

const ONE_READER: u64 = 1;
const READERS: u64 = 0xffff;
const EXCLUSIVE: u64 = 1 << 16;
const WAITING: u64 = 1 << 17;
const WRITER: u64 = 1 << 18;
const ONE_VERSION: u64 = 1 << 19;
const VERSION: u64 = !(ONE_VERSION - 1);

/// Spins before a thread sleeps.
const SPINS: u32 = 100;
/// Optimistic attempts before [`HybridCell::read`] takes the latch.
const ATTEMPTS: u32 = 4;

/// The state that an optimistic reader has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(u64);

/// Exclusive, shared or optimistic: 16 bytes.
#[derive(Debug)]
pub struct HybridLatch {
    word: AtomicU64,
    /// How often waiters have been called.
    gate: Futex,
}

impl Default for HybridLatch {
    fn default() -> Self {
        Self::new()
    }
}

impl HybridLatch {
    /// A free latch.
    #[cfg(not(any(loom, shuttle)))]
    pub const fn new() -> Self {
        Self { word: AtomicU64::new(0), gate: Futex::new(0) }
    }

    /// A free latch.
    #[cfg(any(loom, shuttle))]
    pub fn new() -> Self {
        Self { word: AtomicU64::new(0), gate: Futex::new(0) }
    }

    /// Begins an optimistic read; `None` while somebody holds it exclusively.
    #[inline]
    pub fn optimistic(&self) -> Option<Version> {
        // Acquire: pairs with the Release of the last `unlock_exclusive`.
        let word = self.word.load(Ordering::Acquire);
        (word & EXCLUSIVE == 0).then_some(Version(word & VERSION))
    }

    /// Whether nothing was changed since `version` was seen: what was read in between is whole.
    #[inline]
    pub fn validate(&self, version: Version) -> bool {
        // The reads before are done before the load behind: pairs with the fence in `lock_exclusive`.
        fence(Ordering::Acquire);
        self.word.load(Ordering::Relaxed) & (VERSION | EXCLUSIVE) == version.0
    }

    /// Takes it exclusively if it is free and nothing was changed since `version` was seen.
    pub fn try_upgrade(&self, version: Version) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        word & (VERSION | EXCLUSIVE | READERS) == version.0 && self.enter(word, (word & !WRITER) | EXCLUSIVE)
    }

    /// Takes it exclusively if it is free.
    pub fn try_lock_exclusive(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        word & (EXCLUSIVE | READERS) == 0 && self.enter(word, (word & !WRITER) | EXCLUSIVE)
    }

    /// Takes it exclusively; waits as long as it takes.
    pub fn lock_exclusive(&self) {
        self.acquire(EXCLUSIVE | READERS, WRITER, |word| (word & !WRITER) | EXCLUSIVE);
    }

    /// Takes it shared; waits while a writer has it or waits for it.
    pub fn lock_shared(&self) {
        self.acquire(EXCLUSIVE | WRITER, 0, |word| word + ONE_READER);
    }

    /// Waits until none of the bits in `not` is set, asking for `ask` meanwhile, and makes the word what `to` says.
    fn acquire(&self, not: u64, ask: u64, to: impl Fn(u64) -> u64) {
        let mut spins = 0;
        loop {
            // Relaxed, both: the gate's value is only compared by the sleep; if it is opened after this load, there is no sleep.
            let called = self.gate.word.load(Ordering::Acquire);
            let word = self.word.load(Ordering::Relaxed);
            if word & not == 0 {
                if self.enter(word, to(word)) {
                    return;
                }
                continue;
            }
            if spins < SPINS {
                spins += 1;
                hint::spin_loop();
                continue;
            }
            let asleep = word | WAITING | ask;
            // Release: whoever clears WAITING, which reads this, opens the gate after we have looked at it.
            if word == asleep
                || self.word.compare_exchange_weak(word, asleep, Ordering::Release, Ordering::Relaxed).is_ok()
            {
                self.gate.wait(called);
            }
        }
    }

    fn enter(&self, from: u64, to: u64) -> bool {
        // Acquire: pairs with the Release of the release that left `from`.
        let entered = self.word.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if entered && to & EXCLUSIVE != 0 {
            // The changes behind are seen by nobody who does not see EXCLUSIVE, too: pairs with the fence in `validate`.
            fence(Ordering::Release);
        }
        entered
    }

    /// Lets go from exclusive; the version is a new one.
    ///
    /// # Safety
    /// The caller holds it exclusively.
    pub unsafe fn unlock_exclusive(&self) {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let to = (word & !(EXCLUSIVE | WAITING | WRITER)).wrapping_add(ONE_VERSION);
            // AcqRel: the Release half shows the changes; the Acquire half orders the gate's opening behind the waiter's look at it.
            match self.word.compare_exchange_weak(word, to, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        self.call(word);
    }

    /// Lets go from shared.
    ///
    /// # Safety
    /// The caller holds it shared.
    pub unsafe fn unlock_shared(&self) {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let left = word - ONE_READER;
            let last = left & READERS == 0;
            let to = if last { left & !(WAITING | WRITER) } else { left };
            match self.word.compare_exchange_weak(word, to, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) if last => break,
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
        self.call(word);
    }

    fn call(&self, word: u64) {
        if word & WAITING != 0 {
            self.gate.word.fetch_add(1, Ordering::Release);
            self.gate.wake_all();
        }
    }
}

/// Words behind a hybrid latch, read without a store while nobody writes.
#[derive(Debug)]
pub struct HybridCell<const N: usize> {
    latch: HybridLatch,
    words: [AtomicU64; N],
}

impl<const N: usize> HybridCell<N> {
    /// With these words.
    pub fn new(words: [u64; N]) -> Self {
        Self { latch: HybridLatch::new(), words: words.map(AtomicU64::new) }
    }

    /// What the last writer left: optimistically, and under the shared latch if writers keep getting in between.
    pub fn read(&self) -> [u64; N] {
        for _ in 0..ATTEMPTS {
            if let Some(version) = self.latch.optimistic() {
                let words = self.load();
                if self.latch.validate(version) {
                    return words;
                }
            }
            hint::spin_loop();
        }
        self.latch.lock_shared();
        let words = self.load();
        // SAFETY: taken above.
        unsafe { self.latch.unlock_shared() };
        words
    }

    /// Changes the words; readers see all of it or nothing.
    pub fn write(&self, change: impl FnOnce(&mut [u64; N])) {
        self.latch.lock_exclusive();
        let mut words = self.load();
        change(&mut words);
        for (place, word) in self.words.iter().zip(words) {
            // Relaxed: between the fence in `lock_exclusive` and the Release in `unlock_exclusive`.
            place.store(word, Ordering::Relaxed);
        }
        // SAFETY: taken above.
        unsafe { self.latch.unlock_exclusive() };
    }

    fn load(&self) -> [u64; N] {
        // Relaxed: between `optimistic` and `validate`, or under the latch.
        std::array::from_fn(|i| self.words[i].load(Ordering::Relaxed))
    }
}
