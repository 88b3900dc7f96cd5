//! A word that threads can sleep on: Linux's futex, or a mutex and a condition variable under a
//! model checker or Miri.
//!
//! A sleeper passes the value it sleeps on. The kernel compares and puts it to sleep in one step,
//! so that a change followed by a wake-up is never missed. Wake-ups reach sleepers in the order in
//! which they went to sleep.
//!
//! A thread may sleep separately from the others: only separate wake-ups reach it, and those do not
//! reach the others.

use clearway_sync::atomic::AtomicU32;
#[cfg(any(loom, shuttle, miri))]
use clearway_sync::atomic::Ordering;
#[cfg(not(any(loom, shuttle, miri)))]
use rustix::thread::futex::{Flags, wait_bitset, wake_bitset};
#[cfg(not(any(loom, shuttle, miri)))]
use std::num::NonZeroU32;

#[derive(Debug)]
pub(crate) struct Futex {
    pub(crate) word: AtomicU32,
    #[cfg(any(loom, shuttle, miri))]
    lock: clearway_sync::Mutex<()>,
    #[cfg(any(loom, shuttle, miri))]
    sleepers: clearway_sync::Condvar,
    #[cfg(any(loom, shuttle, miri))]
    apart: clearway_sync::Condvar,
}

/// The target of a wait or a wake-up: a bit of the kernel's mask.
#[cfg(not(any(loom, shuttle, miri)))]
const TOGETHER: NonZeroU32 = NonZeroU32::MIN;
#[cfg(not(any(loom, shuttle, miri)))]
const APART: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

#[cfg(not(any(loom, shuttle, miri)))]
impl Futex {
    pub(crate) const fn new(value: u32) -> Self {
        Self { word: AtomicU32::new(value) }
    }

    /// Sleeps if the word is `value`. May return at any time.
    pub(crate) fn wait(&self, value: u32) {
        self.wait_among(value, TOGETHER);
    }

    /// Like [`Self::wait`], but separately from the others.
    pub(crate) fn wait_apart(&self, value: u32) {
        self.wait_among(value, APART);
    }

    pub(crate) fn wake_one(&self) {
        self.wake(TOGETHER);
    }

    /// Wakes one of the separate sleepers.
    pub(crate) fn wake_apart(&self) {
        self.wake(APART);
    }

    fn wait_among(&self, value: u32, whom: NonZeroU32) {
        // The errors mean that the word had already changed, or that a signal arrived. Both are
        // returns like any other.
        let _woken = wait_bitset(&self.word, Flags::PRIVATE, value, None, whom);
    }

    fn wake(&self, whom: NonZeroU32) {
        // It fails only for an unmapped word; a borrowed one is mapped.
        let _woken = wake_bitset(&self.word, Flags::PRIVATE, 1, whom);
    }
}

#[cfg(any(loom, shuttle, miri))]
impl Futex {
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) const fn new(value: u32) -> Self {
        Self {
            word: AtomicU32::new(value),
            lock: clearway_sync::Mutex::new(()),
            sleepers: clearway_sync::Condvar::new(),
            apart: clearway_sync::Condvar::new(),
        }
    }

    #[cfg(any(loom, shuttle))]
    pub(crate) fn new(value: u32) -> Self {
        Self {
            word: AtomicU32::new(value),
            lock: clearway_sync::Mutex::new(()),
            sleepers: clearway_sync::Condvar::new(),
            apart: clearway_sync::Condvar::new(),
        }
    }

    pub(crate) fn wait(&self, value: u32) {
        self.wait_among(value, &self.sleepers);
    }

    pub(crate) fn wait_apart(&self, value: u32) {
        self.wait_among(value, &self.apart);
    }

    pub(crate) fn wake_one(&self) {
        let held = self.lock.lock().unwrap_or_else(clearway_sync::PoisonError::into_inner);
        self.sleepers.notify_one();
        drop(held);
    }

    pub(crate) fn wake_apart(&self) {
        let held = self.lock.lock().unwrap_or_else(clearway_sync::PoisonError::into_inner);
        self.apart.notify_one();
        drop(held);
    }

    fn wait_among(&self, value: u32, sleepers: &clearway_sync::Condvar) {
        let held = self.lock.lock().unwrap_or_else(clearway_sync::PoisonError::into_inner);
        if self.word.load(Ordering::Relaxed) == value {
            drop(sleepers.wait(held));
        }
    }
}
