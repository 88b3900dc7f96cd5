//! Wakes a thread out of its event loop, and costs almost nothing while the thread is awake.
//!
//! Invariant: if a thread publishes something and then rings, the receiver sees it: either it
//! checks again before it parks, or it is woken.
//!
//! Locking: none; one flag. A crash leaves nothing.

use clearway_sync::atomic::{AtomicBool, Ordering, fence};

/// The mechanism in which a thread parks: the other end of an event loop.
pub trait Wake: Send + Sync {
    /// Ends the thread's parking, or the next one if it is not parked now.
    fn wake(&self);
}

/// The doorbell of a thread that parks in `W`.
#[derive(Debug)]
pub struct Doorbell<W> {
    parked: AtomicBool,
    waker: W,
}

impl<W: Wake> Doorbell<W> {
    /// Creates a doorbell that wakes through `waker`.
    pub fn new(waker: W) -> Self {
        Self { parked: AtomicBool::new(false), waker }
    }

    /// Ensures that the thread sees everything that was published before this call.
    ///
    /// Two threads each write one place and then read the other's. The ringer writes its data and
    /// then reads `parked`; the other thread writes `parked` and then reads the data. Only a total
    /// order excludes that both reads miss. Hence the `SeqCst` fences here and in
    /// [`Doorbell::prepare_park`]; nothing weaker suffices. Without them a thread could stay parked
    /// until the next event although data is waiting.
    pub fn ring(&self) {
        // SeqCst: pairs with the fence in `prepare_park`.
        fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence above.
        if self.parked.load(Ordering::Relaxed) && self.parked.swap(false, Ordering::Relaxed) {
            self.waker.wake();
        }
    }

    /// Announces that the thread is about to park. It must check for data once more after this
    /// call, before it parks.
    pub fn prepare_park(&self) {
        // Relaxed: ordered by the fence below, which pairs with the one in `ring`.
        self.parked.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Records that the thread is awake.
    pub fn end_park(&self) {
        // Relaxed: pairs with nothing; a ring that still sees the thread parked costs one needless
        // wake-up.
        self.parked.store(false, Ordering::Relaxed);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::atomic::AtomicU32;
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    /// An event loop: a wake-up without a parked thread is kept for the next time, as an eventfd
    /// does.
    #[derive(Default)]
    struct EventLoop {
        woken: Mutex<bool>,
        changed: Condvar,
    }

    impl Wake for EventLoop {
        fn wake(&self) {
            *self.woken.lock().unwrap() = true;
            self.changed.notify_one();
        }
    }

    impl EventLoop {
        fn park(&self) {
            let mut woken = self.woken.lock().unwrap();
            while !*woken {
                woken = self.changed.wait(woken).unwrap();
            }
            *woken = false;
        }
    }

    /// A thread parks until it has seen the data of `ringers`, one from each. Relaxed: the doorbell
    /// orders the published data. A lost wake-up shows as a deadlock.
    fn data_of_all_ringers_is_seen(ringers: usize, preemptions: Option<usize>) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = preemptions;
        builder.check(move || {
            let bell = Arc::new(Doorbell::new(EventLoop::default()));
            let news: Vec<_> = (0..ringers).map(|_| Arc::new(AtomicU32::new(0))).collect();
            let ringers: Vec<_> = news
                .iter()
                .map(|news| {
                    let (bell, news) = (bell.clone(), news.clone());
                    thread::spawn(move || {
                        news.store(1, Ordering::Relaxed);
                        bell.ring();
                    })
                })
                .collect();
            let all_seen = || news.iter().all(|news| news.load(Ordering::Relaxed) == 1);
            let mut done = false;
            while !done {
                bell.prepare_park();
                done = all_seen();
                if !done {
                    bell.waker.park();
                }
                bell.end_park();
            }
            ringers.into_iter().for_each(|ringer| ringer.join().unwrap());
        });
    }

    #[test]
    fn data_published_before_a_ring_is_seen() {
        data_of_all_ringers_is_seen(1, None);
    }

    #[test]
    fn data_of_two_ringers_is_seen() {
        data_of_all_ringers_is_seen(2, Some(3));
    }
}
