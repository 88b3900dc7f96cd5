//! Every interleaving of two or three threads at each latch. `RUSTFLAGS="--cfg loom" cargo test -p clearway-latch --release --lib loom`
//!
//! Test-and-set is not here: loom lets a failed swap, which stores what it has read, come behind the holder's plain store in the order of
//! modifications, which the atomicity of the swap forbids. The stress tests have it, natively and under Miri.

use crate::acquire::{Compare, Tested};
use crate::{ElidedLatch, HybridCell, Latched, McsLatch, ParkLatch, RawLatch, SLockCas, SpinLatch, TicketLatch};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// A number whose accesses loom watches: two at once, or one that is not ordered behind the last, fail the model.
struct Watched(UnsafeCell<u32>);

impl Watched {
    fn add_one(&mut self) -> u32 {
        // SAFETY: `&mut self`, if the latch is right; loom checks it.
        self.0.with_mut(|number| unsafe {
            *number += 1;
            *number
        })
    }
}

fn bounded(preemptions: usize) -> loom::model::Builder {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder
}

/// Threads add one, each `times`: nothing is lost, and nobody sees half a change or sleeps for ever.
fn excludes<L: RawLatch + 'static>(threads: u32, times: u32, preemptions: usize) {
    bounded(preemptions).check(move || {
        let shared = Arc::new(Latched::<_, L>::new(Watched(UnsafeCell::new(0))));
        let work = move |shared: Arc<Latched<Watched, L>>| {
            for _ in 0..times {
                shared.lock().add_one();
            }
        };
        let others: Vec<_> = (1..threads)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || work(shared))
            })
            .collect();
        work(shared.clone());
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(shared.lock().add_one(), threads * times + 1);
        let last = shared.try_lock();
        assert!(last.is_some(), "it is free again");
    });
}

#[test]
fn loom_compare_and_swap_excludes() {
    excludes::<SpinLatch<Compare>>(2, 2, 3);
    excludes::<SpinLatch<Tested<Compare>>>(2, 2, 3);
    excludes::<SLockCas>(2, 2, 3);
    excludes::<ElidedLatch>(2, 2, 3);
}

#[test]
fn loom_ticket_latches_exclude() {
    excludes::<TicketLatch>(2, 2, 3);
    excludes::<TicketLatch>(3, 1, 1);
}

#[test]
fn loom_queue_latches_exclude() {
    excludes::<McsLatch>(2, 2, 3);
    excludes::<McsLatch>(3, 1, 1);
}

#[test]
fn loom_parking_latches_exclude_and_wake_whoever_sleeps() {
    excludes::<ParkLatch>(2, 3, 3);
    excludes::<ParkLatch>(3, 2, 2);
}

#[test]
fn loom_what_a_hybrid_cell_shows_was_written_together() {
    bounded(3).check(|| {
        let cell = Arc::new(HybridCell::new([0, 0]));
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let cell = cell.clone();
                thread::spawn(move || cell.write(|words| words.iter_mut().for_each(|w| *w += 1)))
            })
            .collect();
        let [a, b] = cell.read();
        assert_eq!(a, b, "half a change");
        for writer in writers {
            writer.join().unwrap();
        }
        assert_eq!(cell.read(), [2, 2]);
    });
}
