//! One-sided verbs on words that this CPU can access: used by `shm` and by the software adapter of
//! `tcp`.
//!
//! # Invariants
//! 1. Words are accessed as atomics with acquire and release. WRITEs become visible word by word in
//!    ascending order and in posting order. Reads happen in program order.
//! 2. An earlier WRITE is visible to everybody before a later READ, CAS or FAA reads (rule 2 of the
//!    crate's order).

use std::sync::atomic::{AtomicU64, Ordering};

/// A word of memory. loom's tests run the code below on loom's words.
pub(crate) trait Word {
    fn load(&self, ordering: Ordering) -> u64;
    fn store(&self, value: u64, ordering: Ordering);
    fn compare_exchange(
        &self,
        expected: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64>;
    fn fetch_add(&self, add: u64, ordering: Ordering) -> u64;
    fn fence(ordering: Ordering);
}

/// Implements [`Word`] by an atomic type's own methods, and a fence of the same origin.
macro_rules! word {
    ($word:ty, $fence:path) => {
        impl Word for $word {
            fn load(&self, ordering: Ordering) -> u64 {
                self.load(ordering)
            }

            fn store(&self, value: u64, ordering: Ordering) {
                self.store(value, ordering);
            }

            fn compare_exchange(
                &self,
                expected: u64,
                new: u64,
                success: Ordering,
                failure: Ordering,
            ) -> Result<u64, u64> {
                self.compare_exchange(expected, new, success, failure)
            }

            fn fetch_add(&self, add: u64, ordering: Ordering) -> u64 {
                self.fetch_add(add, ordering)
            }

            fn fence(ordering: Ordering) {
                $fence(ordering);
            }
        }
    };
}

word!(AtomicU64, std::sync::atomic::fence);
#[cfg(all(test, loom))]
word!(loom::sync::atomic::AtomicU64, loom::sync::atomic::fence);

/// Executes the verbs of one worker or connection, in order.
#[derive(Default)]
pub(crate) struct Executor {
    /// A WRITE came after the last fence.
    wrote: bool,
}

impl Executor {
    /// Reads every word into `out`, which has the same length.
    pub fn read<W: Word>(&mut self, words: &[W], out: &mut [u64]) {
        self.fence_writes::<W>();
        for (word, out) in words.iter().zip(out) {
            // Acquire: pairs with the Release of `write` and the atomics. Everything written before
            // a value is visible with it, and later verbs are executed after this load.
            *out = word.load(Ordering::Acquire);
        }
    }

    /// Writes every word.
    pub fn write<W: Word>(&mut self, words: &[W], values: &[u64]) {
        self.wrote = true;
        for (word, value) in words.iter().zip(values) {
            // Release: pairs with the Acquire of `read`. Earlier words and WRITEs are visible with
            // this one.
            word.store(*value, Ordering::Release);
        }
    }

    /// Compare-and-swap. Returns the value found.
    pub fn cas<W: Word>(&mut self, word: &W, expected: u64, new: u64) -> u64 {
        self.fence_writes::<W>();
        compare_exchange(word, expected, new)
    }

    /// Fetch-and-add. Returns the previous value.
    pub fn faa<W: Word>(&mut self, word: &W, add: u64) -> u64 {
        self.fence_writes::<W>();
        // AcqRel: both of the pairs above.
        word.fetch_add(add, Ordering::AcqRel)
    }

    /// Orders an earlier WRITE before the next read.
    ///
    /// SeqCst: with release and acquire alone, a store may wait in the CPU's store buffer while a
    /// later load is answered. Two workers that each WRITE their word and then READ the other's
    /// could both find it unwritten. A sequentially consistent fence between the two forbids that;
    /// it pairs with the other worker's.
    fn fence_writes<W: Word>(&mut self) {
        if std::mem::take(&mut self.wrote) {
            W::fence(Ordering::SeqCst);
        }
    }
}

/// Compare-and-swap. Returns the value found.
pub(crate) fn compare_exchange<W: Word>(word: &W, expected: u64, new: u64) -> u64 {
    // AcqRel and Acquire: pair with the orderings of `Executor`.
    match word.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(found) | Err(found) => found,
    }
}

/// Implements the owner's accesses to a region in memory, with [`crate::Region`]'s names.
macro_rules! region_in_memory {
    () => {
        fn load(&self, word: usize) -> u64 {
            // Acquire: pairs with the Release of `Executor::write`.
            self.memory()[word].load(std::sync::atomic::Ordering::Acquire)
        }

        fn store(&self, word: usize, value: u64) {
            // Release: pairs with the Acquire of `Executor::read`.
            self.memory()[word].store(value, std::sync::atomic::Ordering::Release);
        }

        fn compare_exchange(&self, word: usize, expected: u64, new: u64) -> u64 {
            crate::words::compare_exchange(&self.memory()[word], expected, new)
        }

        fn fetch_add(&self, word: usize, add: u64) -> u64 {
            // AcqRel: pairs with the orderings of `Executor`.
            self.memory()[word].fetch_add(add, std::sync::atomic::Ordering::AcqRel)
        }

        fn words(&self) -> usize {
            self.memory().len()
        }
    };
}
pub(crate) use region_in_memory;

#[cfg(all(test, loom))]
mod loom_tests;
