//! A queue of threads that wait for a state word of the caller, such as the latch of a buffer
//! frame, which consists of bits beside others.
//!
//! One thread at a time, *the head*, makes attempts at the word. The others wait for its place, at
//! a [`ParkLatch`]. The word has a bit for the queue, WAITED, which excludes all threads that do
//! not come through the queue.
//!
//! | WAITED | state |
//! |--------|-------|
//! | 0      | no thread waits, or the head still spins or yields; the first thread to come gets the word |
//! | 1      | the head has announced itself, and may be parked; the thread that makes the word free wakes it |
//!
//! Invariants
//! 1. Only the head sets WAITED, in the step in which it finds the word taken, and clears it in the
//!    step in which it takes the word.
//! 2. If the head parks, a release that finds WAITED set comes after its last attempt, and wakes
//!    it: `called` was read before that attempt and has changed when the head goes to sleep, or the
//!    head is asleep and is woken.
//! 3. A waiter is overtaken only until it is the head and has made [`spin_limit`] + [`YIELDS`]
//!    attempts. From then on no thread acquires before it, and the current holders leave. It
//!    becomes the head as [`ParkLatch`] guarantees.
//!
//! Locking: the head holds the latch of the queue until it has the word, and acquires nothing else
//! in the meantime. A crash leaves nothing.
//!
//! Source: Reed and Kanodia, "Synchronization with Eventcounts and Sequencers", CACM 1979
//! (`called`).

use crate::futex::Futex;
use crate::park::YIELDS;
#[cfg(not(any(loom, shuttle)))]
use crate::{Latched, ParkLatch, spin_limit};
use clearway_sync::atomic::Ordering;
use clearway_sync::{hint, thread};

/// As in [`crate::Latch`], the checkers' mutex replaces the latch.
#[cfg(not(any(loom, shuttle)))]
type Line = Latched<(), ParkLatch>;
#[cfg(any(loom, shuttle))]
type Line = clearway_sync::Mutex<()>;

/// A place where threads wait for a word: 12 bytes.
#[derive(Debug)]
pub struct WaitQueue {
    line: Line,
    /// How many times the head was called.
    called: Futex,
}

impl Default for WaitQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl WaitQueue {
    /// Creates a queue without waiters.
    pub fn new() -> Self {
        Self { line: Line::new(()), called: Futex::new(0) }
    }

    /// Makes attempts at the word until one returns a value.
    ///
    /// The argument of an attempt says whether to announce the head: if the word is taken, the
    /// attempt then sets WAITED, in one step with the read. An attempt that takes the word clears
    /// WAITED. Attempts neither block nor panic.
    pub fn wait<T>(&self, mut attempt: impl FnMut(bool) -> Option<T>) -> T {
        let _head = self.line.lock();
        let spins = spins();
        let mut attempts = 0;
        loop {
            // Acquire: pairs with the Release in `wake`: the attempt sees at least the release
            // before that call.
            let called = self.called.word.load(Ordering::Acquire);
            let parks = attempts >= spins + yields();
            if let Some(taken) = attempt(parks) {
                return taken;
            }
            if parks {
                self.called.wait(called);
                continue;
            }
            if attempts < spins {
                hint::spin_loop();
            } else {
                thread::yield_now();
            }
            attempts += 1;
        }
    }

    /// Wakes the head. A thread that has made the word free and found WAITED set calls it.
    pub fn wake(&self) {
        // Release: pairs with the Acquire in `wait`.
        self.called.word.fetch_add(1, Ordering::Release);
        self.called.wake_one();
    }
}

/// Attempts between which the head pauses. None in a model, where they would hide the parking.
fn spins() -> u32 {
    #[cfg(not(any(loom, shuttle)))]
    return spin_limit();
    #[cfg(any(loom, shuttle))]
    return 0;
}

/// Attempts between which the head then yields.
fn yields() -> u32 {
    if cfg!(any(loom, shuttle)) { 0 } else { YIELDS }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU32};

    /// Invariant 3.
    #[test]
    fn attempts_before_the_head_parks_are_bounded() {
        let (queue, free, announced) =
            (WaitQueue::new(), AtomicBool::new(false), AtomicBool::new(false));
        let before = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                queue.wait(|parks| {
                    before.fetch_add(u32::from(!parks), Ordering::Relaxed);
                    announced.fetch_or(parks, Ordering::Release);
                    free.load(Ordering::Acquire).then_some(7)
                })
            });
            while !announced.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            free.store(true, Ordering::Release);
            queue.wake();
            assert!(matches!(waiter.join(), Ok(7)));
        });
        // Another test may have set the limit in the meantime: the calibration's maximum is 1000.
        assert!(before.into_inner() <= spin_limit().max(1000) + YIELDS);
        assert!(cfg!(miri) || size_of::<WaitQueue>() == 12);
    }
}
