//! A small number for each thread, returned when it exits. A structure finds its part for a thread
//! by this index.
//!
//! Invariants
//! 1. No two live threads have the same index. A thread keeps its own from the first request to its
//!    end.
//! 2. The indices in use are the smallest that were free when they were requested: there are as
//!    many indices as the maximum number of concurrent threads.
//! 3. An [`attach`]ed structure is notified of the thread's end on that thread, before another
//!    thread can get the index.
//!
//! Locking: a latch around the free indices, at a thread's first request and at its end. Its holder
//! acquires nothing else, and it is not held during notifications.
//!
//! Under a model checker an index belongs to a modelled thread, and the free ones to the operating
//! system's thread, in which an execution stays. So concurrent executions do not change each
//! other's indices.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Weak;

/// No index yet.
const NONE: u32 = u32::MAX;
/// The thread is exiting and no longer has an index.
const ENDED: u32 = u32::MAX - 1;

#[cfg(not(any(loom, shuttle)))]
std::thread_local! {
    /// This thread's index. Without a destructor, so that access costs one instruction.
    static INDEX: Cell<u32> = const { Cell::new(NONE) };
    static PLACE: Place = const { Place::new() };
}
#[cfg(any(loom, shuttle))]
clearway_sync::thread_local! {
    static INDEX: Cell<u32> = Cell::new(NONE);
    static PLACE: Place = Place::new();
}

/// Something that has a part for each thread.
pub trait Attached: Send + Sync {
    /// Notifies that the thread of this index, which is the caller, ends. Another thread may get
    /// the index next.
    fn thread_ends(&self, index: u32);
}

/// Returns the calling thread's index, from 0; `None` at the end of its life, when its thread-local
/// values are being dropped.
#[inline]
pub fn current() -> Option<u32> {
    match INDEX.try_with(Cell::get) {
        Ok(index) if index < ENDED => Some(index),
        Ok(NONE) => first(),
        _ => None,
    }
}

#[cold]
fn first() -> Option<u32> {
    // Before another thread gets the index, so that the destructor that returns it is sure to run.
    PLACE
        .try_with(|place| {
            let index = numbers::take();
            place.index.set(index);
            INDEX.set_to(index);
            index
        })
        .ok()
}

/// Registers `whom` for a notification when the calling thread ends. `index` is the calling
/// thread's, or one that it acts as.
pub fn attach(index: u32, whom: Weak<dyn Attached>) {
    // An exiting thread has no index to attach with.
    let _late = PLACE.try_with(|place| {
        let mut attached = place.attached.borrow_mut();
        // Also removes structures that no longer exist.
        attached.retain(|(_, whom)| whom.strong_count() > 0);
        attached.push((index, whom));
    });
}

/// See [`crate::conformance::as_thread`].
#[cfg(not(shuttle))]
pub(crate) fn act_as<R>(index: u32, f: impl FnOnce() -> R) -> R {
    struct Back(u32);
    impl Drop for Back {
        fn drop(&mut self) {
            INDEX.set_to(self.0);
        }
    }
    assert!(index < ENDED, "no index of a thread");
    let _back = Back(INDEX.try_with(Cell::get).unwrap_or(ENDED));
    INDEX.set_to(index);
    f()
}

trait SetTo {
    fn set_to(&'static self, index: u32);
}

#[cfg(not(any(loom, shuttle)))]
type Local = std::thread::LocalKey<Cell<u32>>;
#[cfg(any(loom, shuttle))]
type Local = clearway_sync::thread::LocalKey<Cell<u32>>;

impl SetTo for Local {
    fn set_to(&'static self, index: u32) {
        // Under a checker the thread's values are dropped in any order: no later access happens
        // then.
        let _gone = self.try_with(|own| own.set(index));
    }
}

/// The actions at the thread's end: return the index, and notify attached structures, each with its
/// index.
struct Place {
    /// Equal to `INDEX`, which under a checker may be dropped earlier.
    index: Cell<u32>,
    attached: RefCell<Vec<(u32, Weak<dyn Attached>)>>,
}

impl Place {
    const fn new() -> Self {
        Self { index: Cell::new(NONE), attached: RefCell::new(Vec::new()) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        INDEX.set_to(ENDED);
        for (index, whom) in self.attached.take() {
            if let Some(whom) = whom.upgrade() {
                whom.thread_ends(index);
            }
        }
        if self.index.get() < ENDED {
            numbers::give_back(self.index.get());
        }
    }
}

/// The free indices.
struct Numbers {
    given_back: BTreeSet<u32>,
    /// All indices from here on are free.
    next: u32,
}

impl Numbers {
    const fn new() -> Self {
        Self { given_back: BTreeSet::new(), next: 0 }
    }

    fn take(&mut self) -> u32 {
        self.given_back.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

#[cfg(not(any(loom, shuttle)))]
mod numbers {
    use super::Numbers;
    use crate::Latch;
    use crate::lockstat::Class;

    static THREAD_INDEX: Class = Class::new("latch.thread_index");
    static FREE: Latch<Numbers> = Latch::new(&THREAD_INDEX, Numbers::new());

    pub fn take() -> u32 {
        FREE.lock().take()
    }

    pub fn give_back(index: u32) {
        FREE.lock().given_back.insert(index);
    }
}

#[cfg(any(loom, shuttle))]
mod numbers {
    use super::Numbers;
    use std::cell::RefCell;

    std::thread_local! {
        static FREE: RefCell<Numbers> = const { RefCell::new(Numbers::new()) };
    }

    pub fn take() -> u32 {
        FREE.with_borrow_mut(Numbers::take)
    }

    pub fn give_back(index: u32) {
        FREE.with_borrow_mut(|free| free.given_back.insert(index));
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::{Arc, Barrier, Mutex};

    #[derive(Default)]
    struct Ended(Mutex<Vec<u32>>);

    impl Attached for Ended {
        fn thread_ends(&self, index: u32) {
            assert_eq!(current(), None, "at its end a thread has no index");
            self.0.lock().unwrap().push(index);
        }
    }

    /// Invariants 1 and 3. Other tests' threads take indices, too: so the test expects no
    /// particular index (invariant 2).
    #[test]
    fn live_threads_differ_and_their_ends_are_notified() {
        let ended = Arc::new(Ended::default());
        let all_there = Barrier::new(8);
        let indices: Vec<u32> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        let index = current().unwrap();
                        attach(index, Arc::downgrade(&ended) as Weak<dyn Attached>);
                        all_there.wait();
                        assert_eq!(current(), Some(index));
                        index
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(indices.iter().collect::<HashSet<_>>().len(), 8);
        // A scope does not wait for the destructors of its threads' values; the last of these is
        // the index's.
        while ended.0.lock().unwrap().len() < 8 {
            std::thread::yield_now();
        }
        let mut ended = ended.0.lock().unwrap().clone();
        ended.sort_unstable();
        let mut had = indices.clone();
        had.sort_unstable();
        assert_eq!(ended, had);
    }

    /// Invariant 2.
    #[test]
    fn returned_indices_are_reused_first() {
        let mut numbers = Numbers::new();
        assert_eq!([numbers.take(), numbers.take(), numbers.take()], [0, 1, 2]);
        numbers.given_back.extend([1, 0]);
        assert_eq!([numbers.take(), numbers.take(), numbers.take()], [0, 1, 3]);
    }

    #[test]
    fn a_thread_may_act_as_another() {
        let own = current();
        assert_eq!(act_as(7, || act_as(9, current).and(current())), Some(7));
        assert_eq!(current(), own);
        let ended = Arc::new(Ended::default());
        let whom = Arc::downgrade(&ended) as Weak<dyn Attached>;
        let acting = std::thread::spawn(move || act_as(100, || attach(100, whom)));
        acting.join().unwrap();
        assert_eq!(*ended.0.lock().unwrap(), [100]);
    }
}
