//! For tests of what is built on this crate: checks of the guarantees of a [`RawLatch`], and one
//! thread that acts as many, for structures with a part for each thread
//! ([`crate::thread_index`]).

use crate::{Latched, RawLatch};

/// Runs `f` as the thread of this index. With it, one thread tests or simulates a structure that
/// many threads share, in an order that it chooses. Two threads that act as the same index at once
/// may each undo the other's changes to that thread's part of a structure.
///
/// # Panics
/// If `index` is one of the last two, which no thread can have.
pub fn as_thread<R>(index: u32, f: impl FnOnce() -> R) -> R {
    crate::thread_index::act_as(index, f)
}

/// Makes `threads` threads change a value `times` times each, in two steps that another thread in
/// between would corrupt.
///
/// # Panics
/// If the latch admits two threads at once, or a change is lost.
#[cfg(not(any(loom, shuttle)))]
pub fn excludes_many_threads<L: RawLatch>(threads: u64, times: u64) {
    let shared = Latched::<_, L>::new((0_u64, 0_u64));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for i in 0..times {
                    let mut pair = match i % 3 {
                        0 => shared.try_lock().unwrap_or_else(|| shared.lock()),
                        _ => shared.lock(),
                    };
                    assert_eq!(pair.0, pair.1, "{}: another thread is inside", L::NAME);
                    pair.0 += 1;
                    pair.1 += 1;
                }
            });
        }
    });
    assert_eq!(shared.into_inner(), (threads * times, threads * times), "{}", L::NAME);
}

/// Acquires a latch and tries to acquire it again: also in a memory transaction, on a processor
/// that has them.
///
/// # Panics
/// If the second attempt succeeds.
#[cfg(not(any(loom, shuttle)))]
pub fn excludes_its_holder<L: RawLatch>() {
    let latch = Latched::<_, L>::new(0);
    let mut held = latch.lock();
    *held += 1;
    assert!(latch.try_lock().is_none(), "{}: two exclusive references", L::NAME);
    drop(held);
    assert_eq!(latch.into_inner(), 1, "{}", L::NAME);
}

/// A number whose accesses loom watches. Two at once, or one that is not ordered after the last,
/// fail the model.
#[cfg(loom)]
pub(crate) struct Watched(loom::cell::UnsafeCell<u32>);

#[cfg(loom)]
impl Watched {
    pub(crate) fn new() -> Self {
        Self(loom::cell::UnsafeCell::new(0))
    }

    pub(crate) fn add_one(&mut self) -> u32 {
        // SAFETY: `&mut self`, if the latch is correct; loom checks it.
        self.0.with_mut(|number| unsafe {
            *number += 1;
            *number
        })
    }
}

/// Builds a model of at most this many preemptions.
#[cfg(loom)]
pub(crate) fn bounded(preemptions: usize) -> loom::model::Builder {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder
}

/// Runs every interleaving, up to the bound of preemptions, of threads that add 1 `times` times
/// each.
///
/// # Panics
/// If an addition is lost, a thread sees a partial change or sleeps forever, or the latch is not
/// free at the end.
#[cfg(loom)]
pub fn excludes_in_every_interleaving<L: RawLatch + 'static>(
    threads: u32,
    times: u32,
    preemptions: usize,
) {
    use loom::sync::Arc;

    bounded(preemptions).check(move || {
        let shared = Arc::new(Latched::<_, L>::new(Watched::new()));
        let work = move |shared: Arc<Latched<Watched, L>>| {
            for _ in 0..times {
                shared.lock().add_one();
            }
        };
        let others: Vec<_> = (1..threads)
            .map(|_| {
                let shared = shared.clone();
                loom::thread::spawn(move || work(shared))
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
