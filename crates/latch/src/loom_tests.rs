//! Every interleaving of two or three threads at each latch. `RUSTFLAGS="--cfg loom" cargo test -p
//! clearway-latch --release --lib loom`
//!
//! Test-and-set is not here. A failed swap stores the value it has read. Loom lets that store
//! follow the holder's plain store in the modification order, which the atomicity of the swap
//! forbids. The stress tests cover it, natively and under Miri.

use crate::acquire::{Compare, Tested};
use crate::conformance::{Watched, bounded, excludes_in_every_interleaving as excludes};
use crate::{AtomicOptionBox, ParkLatch, SpinLatch, WaitQueue};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

#[test]
fn loom_compare_and_swap_excludes() {
    excludes::<SpinLatch<Compare>>(2, 2, 3);
    excludes::<SpinLatch<Tested<Compare>>>(2, 2, 3);
}

#[test]
fn loom_parking_latches_exclude_and_wake_sleepers() {
    excludes::<ParkLatch>(2, 3, 3);
    excludes::<ParkLatch>(3, 2, 2);
}

/// Invariants 1 and 2 of [`AtomicOptionBox`]: a value has one owner, which sees what the last one
/// did.
#[test]
fn loom_an_option_box_hands_over_whole_values() {
    bounded(3).check(|| {
        let place = Arc::new(AtomicOptionBox::<Watched>::empty());
        let add = |place: &AtomicOptionBox<Watched>| {
            let mut value = place.take().unwrap_or_else(|| Box::new(Watched::new()));
            value.add_one();
            place.swap(Some(value))
        };
        let other = place.clone();
        let adding = thread::spawn(move || add(&other));
        let mine = add(&place);
        let theirs = adding.join().unwrap();
        let left = [place.take(), mine, theirs].into_iter().flatten();
        // Each owner adds one more than it added to the previous value.
        let sum: u32 = left.map(|mut value| value.add_one() - 1).sum();
        assert_eq!(sum, 2);
    });
}

/// Shared or exclusive, with a queue: like the latch of a frame, without the rest of a frame.
struct Word {
    word: AtomicU32,
    queue: WaitQueue,
    content: UnsafeCell<u32>,
}

const READER: u32 = 1;
const WRITER: u32 = 1 << 8;
const WAITED: u32 = 1 << 9;

// SAFETY: loom checks the accesses to `content`; that is the purpose of the models.
unsafe impl Sync for Word {}
// SAFETY: as above.
unsafe impl Send for Word {}

impl Word {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            word: AtomicU32::new(0),
            queue: WaitQueue::new(),
            content: UnsafeCell::new(0),
        })
    }

    fn try_take(&self, add: u32, barred: u32, announce: bool) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let taken = word & barred != 0;
            let to = if taken { word | WAITED } else { (word & !WAITED) + add };
            if taken && (!announce || to == word) {
                return false;
            }
            match self.word.compare_exchange_weak(word, to, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return !taken,
                Err(now) => word = now,
            }
        }
    }

    fn take(&self, add: u32, barred: u32) {
        if !self.try_take(add, barred | WAITED, false) {
            self.queue.wait(|announce| self.try_take(add, barred, announce).then_some(()));
        }
    }

    fn release(&self, add: u32) {
        let old = self.word.fetch_sub(add, Ordering::Release);
        if old - add == WAITED {
            self.queue.wake();
        }
    }

    fn write(&self) {
        self.take(WRITER, WRITER | (WRITER - 1));
        // SAFETY: the latch is held exclusively.
        self.content.with_mut(|content| unsafe { *content += 1 });
        self.release(WRITER);
    }

    fn read(&self) -> u32 {
        self.take(READER, WRITER);
        // SAFETY: the latch is held shared.
        let content = self.content.with(|content| unsafe { *content });
        self.release(READER);
        content
    }
}

/// Every parked thread is woken: otherwise the model ends with a thread that waits forever.
#[test]
fn loom_waiters_in_a_queue_are_woken() {
    bounded(3).check(|| {
        let word = Word::new();
        let other = word.clone();
        let writer = thread::spawn(move || (0..2).for_each(|_| other.write()));
        word.write();
        assert!(word.read() >= 1);
        writer.join().unwrap();
        assert_eq!(word.read(), 3);
    });
    bounded(2).check(|| {
        let word = Word::new();
        let (one, two) = (word.clone(), word.clone());
        let others =
            [thread::spawn(move || one.write()), thread::spawn(move || assert!(two.read() <= 2))];
        word.write();
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!((word.read(), word.word.load(Ordering::Relaxed)), (2, 0));
    });
}

/// No later thread overtakes a writer that has announced itself, though readers were inside at
/// every moment before.
#[test]
fn loom_readers_that_overlap_let_a_waiting_writer_in() {
    bounded(2).check(|| {
        let word = Word::new();
        word.take(READER, WRITER);
        let other = word.clone();
        let writer = thread::spawn(move || other.write());
        // A reader that never releases before the next is inside.
        let mut passed = 0;
        while word.word.load(Ordering::Relaxed) & WAITED == 0 && passed < 2 {
            passed += 1;
            if word.try_take(READER, WRITER | WAITED, false) {
                word.release(READER);
            }
        }
        let waited = word.word.load(Ordering::Relaxed) & WAITED != 0;
        assert!(
            !(waited && word.try_take(READER, WRITER | WAITED, false)),
            "nobody goes before the writer"
        );
        word.release(READER);
        writer.join().unwrap();
        assert_eq!(word.read(), 1);
    });
}
