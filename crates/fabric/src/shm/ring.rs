//! A ring of words from one worker to another.
//!
//! # Invariants
//! 1. Head and tail count words from the start and never wrap to the ring's size. The producer
//!    alone changes the head, the consumer alone the tail.
//! 2. The tail is at most the head, and the head at most a ring's size more.

use crate::words::Word;
use std::sync::atomic::Ordering;

/// A ring and its counts.
pub(super) struct Ring<'a, W> {
    pub words: &'a [W],
    pub head: &'a W,
    pub tail: &'a W,
}

impl<W: Word> Ring<'_, W> {
    /// Copies as many of the words into the ring as fit and returns their number. `head` is the
    /// producer's own count.
    pub fn push(&self, head: &mut u64, words: &[u64]) -> usize {
        let size = self.words.len();
        let used = head.wrapping_sub(self.consumed()).min(size as u64);
        let count = words.len().min(size - used as usize);
        for (index, word) in words[..count].iter().enumerate() {
            // Relaxed: published by the head.
            self.at(head.wrapping_add(index as u64)).store(*word, Ordering::Relaxed);
        }
        *head = head.wrapping_add(count as u64);
        // Release: pairs with the Acquire in `pull`. Publishes the words, and earlier WRITEs of
        // this worker.
        self.head.store(*head, Ordering::Release);
        count
    }

    /// Returns how many of the words the consumer has taken.
    pub fn consumed(&self) -> u64 {
        // Acquire: pairs with the Release in `pull`. The consumer has read the words before they
        // are overwritten.
        self.tail.load(Ordering::Acquire)
    }

    /// Copies words that are available into `out` and returns their number. `tail` is the
    /// consumer's own count.
    pub fn pull(&self, tail: &mut u64, out: &mut [u64]) -> usize {
        // Acquire: pairs with the Release in `push`.
        let available = self.head.load(Ordering::Acquire).wrapping_sub(*tail);
        let available = available.min(self.words.len() as u64);
        let count = out.len().min(available as usize);
        if count == 0 {
            return 0;
        }
        for (index, out) in out[..count].iter_mut().enumerate() {
            // Relaxed: published by the head.
            *out = self.at(tail.wrapping_add(index as u64)).load(Ordering::Relaxed);
        }
        *tail = tail.wrapping_add(count as u64);
        // Release: pairs with the Acquire in `consumed`.
        self.tail.store(*tail, Ordering::Release);
        count
    }

    fn at(&self, count: u64) -> &W {
        &self.words[(count % self.words.len() as u64) as usize]
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::words::Executor;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64;
    use loom::thread;

    struct Memory {
        words: [AtomicU64; 2],
        counts: [AtomicU64; 2],
        row: AtomicU64,
    }

    impl Memory {
        fn ring(&self) -> Ring<'_, AtomicU64> {
            let [head, tail] = &self.counts;
            Ring { words: &self.words, head, tail }
        }
    }

    /// Three words pass through a ring of two, and a WRITE before them is visible after them.
    #[test]
    fn words_and_earlier_writes_arrive() {
        loom::model(|| {
            let word = || AtomicU64::new(0);
            let memory =
                Arc::new(Memory { words: [word(), word()], counts: [word(), word()], row: word() });
            let of_consumer = Arc::clone(&memory);
            let consumer = thread::spawn(move || {
                let (mut tail, mut taken, mut out) = (0, 0, [0; 3]);
                while taken < 3 {
                    let count = of_consumer.ring().pull(&mut tail, &mut out[taken..]);
                    taken += count;
                    if count == 0 {
                        thread::yield_now();
                    }
                }
                assert_eq!(out, [5, 6, 7]);
                let mut row = [0];
                Executor::default().read(std::slice::from_ref(&of_consumer.row), &mut row);
                assert_eq!(row, [9], "the WRITE before the SEND");
            });
            let (mut head, mut sent) = (0, 0);
            Executor::default().write(std::slice::from_ref(&memory.row), &[9]);
            while sent < 3 {
                let count = memory.ring().push(&mut head, &[5, 6, 7][sent..]);
                sent += count;
                if count == 0 {
                    thread::yield_now();
                }
            }
            consumer.join().unwrap();
            assert_eq!(memory.ring().consumed(), 3);
        });
    }
}
