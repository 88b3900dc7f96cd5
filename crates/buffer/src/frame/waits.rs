//! Waiting for the latch of a page. Waiters queue in the frame; the head of the queue spins briefly
//! and then parks.
//!
//! # Invariants
//! 1. Every thread in the queue holds a pin, so all threads in a queue wait for the same page.
//! 2. WAITED is set only while the head of the queue waits for the latch, or the page is lost.
//! 3. While WAITED is set, only the head can acquire the latch. The last holder wakes it on
//!    release, and so does a thread that loses the page. Overlapping readers therefore delay a
//!    writer only until it parks.
//!
//! # Locking
//! A waiter may hold latches of other pages (in their order). It must not hold this page's latch,
//! not even shared: behind a waiting writer it would wait for itself.

use super::{EXCL, FREE, Frame, Mode, PIN, PINS, SHARES, TryLatch, WAITED};
use clearway_sync::atomic::{Ordering, fence};
use clearway_sync::canary::{self, Bug};
use clearway_types::PageId;

impl Frame {
    /// Like [`Frame::try_latch`], but waits for its turn. Returns `Busy` only if the page is lost.
    #[cold]
    pub fn latch_in_turn(&self, id: PageId, mode: Mode) -> TryLatch {
        if !self.pin_to_wait(id) {
            return TryLatch::Gone;
        }
        let latched = self.queue.wait(|announce| self.attempt(mode, announce));
        if latched != TryLatch::Yes {
            self.unpin();
        }
        latched
    }

    /// Pins the page, if the frame holds it.
    fn pin_to_wait(&self, id: PageId) -> bool {
        let mut word = self.word.load(Ordering::Acquire);
        while word & FREE == 0 && self.holds(id) {
            assert!(word & PINS < PINS, "too many threads wait for {id}");
            // Acquire, here and above: pairs with the Releases of the word, as in `try_latch`, like
            // the check of the page between two states of the word.
            match self.word.compare_exchange_weak(
                word,
                word + PIN,
                // Pairs as said above, on failure too.
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Makes one attempt for the head of the queue, whose pin the latch uses. Returns `None` if it
    /// has to wait; with `announce`, WAITED is set then.
    fn attempt(&self, mode: Mode, announce: bool) -> Option<TryLatch> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & (SHARES | EXCL) == SHARES | EXCL {
                return Some(TryLatch::Busy);
            }
            let busy = word & mode.excluded() != 0;
            let to = if busy { word | WAITED } else { (word & !WAITED) + mode.added() - PIN };
            if busy && (!announce || to == word) {
                return None;
            }
            // Acquire: pairs with the Releases of the word, as in `try_latch`.
            match self.word.compare_exchange_weak(word, to, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) if busy => return None,
                Ok(_) => {
                    if mode == Mode::Exclusive {
                        // Pairs as in `try_latch`.
                        fence(Ordering::Release);
                    }
                    return Some(TryLatch::Yes);
                }
                Err(now) => word = now,
            }
        }
    }

    /// Wakes the head of the queue, if the caller was the last holder. The caller has released the
    /// latch, found WAITED set, and passes the word after its release.
    #[cold]
    #[inline(never)]
    pub(super) fn wake_waiter(&self, left: u64) {
        if left & (SHARES | EXCL) == 0 && !canary::on(Bug::LostLatch) {
            self.queue.wake();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::frame::{Arena, CROWDED, SHARE};
    use clearway_types::PartitionId;

    const A: PageId = PageId::new(PartitionId(0), 1);

    fn frame_with_a() -> Frame {
        let (_arena, mut free) = Arena::new(1);
        let frame = Frame::new();
        frame.publish(free.remove(0), A, 0, None);
        frame
    }

    fn word(frame: &Frame) -> u64 {
        frame.word.load(Ordering::Relaxed)
    }

    /// Invariant 3: at every moment until the writer parks, a reader holds the latch. Without its
    /// turn, the writer would never acquire it.
    #[test]
    fn overlapping_readers_let_a_waiting_writer_in() {
        let frame = frame_with_a();
        assert_eq!(frame.try_latch(A, Mode::Shared), TryLatch::Yes);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| frame.latch_in_turn(A, Mode::Exclusive));
            while frame.try_latch(A, Mode::Shared) == TryLatch::Yes {
                frame.unlatch(Mode::Shared);
                std::thread::yield_now();
            }
            assert_eq!(
                word(&frame) & (WAITED | EXCL),
                WAITED,
                "the writer is parked, and goes first"
            );
            frame.unlatch(Mode::Shared);
            assert!(matches!(writer.join(), Ok(TryLatch::Yes)));
        });
        assert_eq!(frame.try_latch(A, Mode::Shared), TryLatch::Busy);
        frame.unlatch(Mode::Exclusive);
        assert_eq!(word(&frame) & (PINS | WAITED), 0, "nobody waits any more");
    }

    #[test]
    fn waiters_of_a_lost_page_are_answered() {
        let frame = frame_with_a();
        assert_eq!(frame.try_latch(A, Mode::Exclusive), TryLatch::Yes);
        std::thread::scope(|scope| {
            let wait = |mode| frame.latch_in_turn(A, mode);
            let waiters =
                [Mode::Shared, Mode::Exclusive].map(|mode| scope.spawn(move || wait(mode)));
            while word(&frame) & WAITED == 0 {
                std::thread::yield_now();
            }
            frame.lose();
            assert!(waiters.into_iter().all(|waiter| matches!(waiter.join(), Ok(TryLatch::Busy))));
        });
        assert!(frame.is_lost());
    }

    #[test]
    fn readers_beyond_what_the_word_can_count_wait() {
        let frame = frame_with_a();
        let most = CROWDED / SHARE;
        (0..most).for_each(|_| assert_eq!(frame.try_latch(A, Mode::Shared), TryLatch::Yes));
        assert_eq!(frame.try_latch(A, Mode::Shared), TryLatch::Busy);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| frame.latch_in_turn(A, Mode::Shared));
            while word(&frame) & WAITED == 0 {
                std::thread::yield_now();
            }
            (0..most).for_each(|_| frame.unlatch(Mode::Shared));
            assert!(matches!(waiter.join(), Ok(TryLatch::Yes)));
        });
    }
}
