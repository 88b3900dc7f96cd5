//! A word that threads can sleep on: Linux's futex, or a mutex and a condition variable under a model checker or Miri.
//!
//! A sleeper says which value it sleeps on; the kernel compares and puts it to sleep in one step, so that a change followed by a
//! wake-up is never missed. Wake-ups go to sleepers in the order in which they went to sleep.

use clearway_sync::atomic::AtomicU32;
#[cfg(any(loom, shuttle, miri))]
use clearway_sync::atomic::Ordering;

#[derive(Debug)]
pub(crate) struct Futex {
    pub(crate) word: AtomicU32,
    #[cfg(any(loom, shuttle, miri))]
    lock: clearway_sync::Mutex<()>,
    #[cfg(any(loom, shuttle, miri))]
    sleepers: clearway_sync::Condvar,
}

#[cfg(not(any(loom, shuttle, miri)))]
impl Futex {
    pub(crate) const fn new(value: u32) -> Self {
        Self { word: AtomicU32::new(value) }
    }

    /// Sleeps if the word is `value`. May return at any time.
    pub(crate) fn wait(&self, value: u32) {
        // The errors say that the word was another already, or that a signal came: both are returns like any other.
        let _woken = rustix::thread::futex::wait(&self.word, rustix::thread::futex::Flags::PRIVATE, value, None);
    }

    pub(crate) fn wake_one(&self) {
        self.wake(1);
    }

    pub(crate) fn wake_all(&self) {
        self.wake(i32::MAX as u32);
    }

    fn wake(&self, n: u32) {
        // It fails only for a word that is not mapped, which a borrowed one is.
        let _woken = rustix::thread::futex::wake(&self.word, rustix::thread::futex::Flags::PRIVATE, n);
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
        }
    }

    #[cfg(any(loom, shuttle))]
    pub(crate) fn new(value: u32) -> Self {
        Self {
            word: AtomicU32::new(value),
            lock: clearway_sync::Mutex::new(()),
            sleepers: clearway_sync::Condvar::new(),
        }
    }

    pub(crate) fn wait(&self, value: u32) {
        let held = self.lock.lock().unwrap_or_else(clearway_sync::PoisonError::into_inner);
        if self.word.load(Ordering::Relaxed) == value {
            drop(self.sleepers.wait(held));
        }
    }

    pub(crate) fn wake_one(&self) {
        let held = self.lock.lock().unwrap_or_else(clearway_sync::PoisonError::into_inner);
        self.sleepers.notify_one();
        drop(held);
    }

    pub(crate) fn wake_all(&self) {
        let held = self.lock.lock().unwrap_or_else(clearway_sync::PoisonError::into_inner);
        self.sleepers.notify_all();
        drop(held);
    }
}
