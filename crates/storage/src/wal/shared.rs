//! What appenders, waiters and the flusher share, and how they wake one another.
//!
//! Invariants
//! 1. `durable <= ring.freed <= ring.reserved` and `requested <= ring.reserved`, at every moment; each only grows.
//! 2. `durable` is at the end of a record and all before it is on the disk.
//! 3. After a failure `durable` never grows again; the flusher goes on draining the ring into nothing, so that no
//!    appender blocks for ever.
//! 4. The flusher sleeps only when nothing above `durable` is requested and the ring is not half full.
//!
//! Locking: `waiters` is held for moments; hooks are called under the lock of their list, by the flusher alone.
//! A crash leaves nothing of it.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;

use clearway_latch::CachePadded;
use clearway_types::Lsn;

use super::ring::Ring;
use super::segments::Segments;

type DurableHook = Box<dyn Fn(Lsn) + Send + Sync>;
type FailedHook = Box<dyn Fn(&str) + Send + Sync>;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See the module's text.
pub(super) struct Shared {
    pub(super) ring: Ring,
    pub(super) segments: Segments,
    durable: CachePadded<AtomicU64>,
    requested: CachePadded<AtomicU64>,
    sleeping: AtomicBool,
    stopping: AtomicBool,
    /// The flusher has ended: the ring is not drained any more.
    closed: AtomicBool,
    flusher: OnceLock<Thread>,
    failure: OnceLock<String>,
    /// How many threads wait for `durable` to grow.
    waiters: Mutex<u32>,
    grown: Condvar,
    durable_hooks: Mutex<Vec<DurableHook>>,
    failed_hooks: Mutex<Vec<FailedHook>>,
}

impl Shared {
    pub(super) fn new(capacity: usize, end: u64, segments: Segments) -> Self {
        Self {
            ring: Ring::new(capacity, end),
            segments,
            durable: CachePadded::new(AtomicU64::new(end)),
            requested: CachePadded::new(AtomicU64::new(end)),
            sleeping: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            flusher: OnceLock::new(),
            failure: OnceLock::new(),
            waiters: Mutex::new(0),
            grown: Condvar::new(),
            durable_hooks: Mutex::new(Vec::new()),
            failed_hooks: Mutex::new(Vec::new()),
        }
    }

    pub(super) fn durable(&self) -> u64 {
        // Acquire: pairs with the Release store in `set_durable`: who sees the place also sees what the flusher did
        // before, such as entering the segment that holds it.
        self.durable.load(Ordering::Acquire)
    }

    pub(super) fn requested(&self) -> u64 {
        // SeqCst: pairs with the update in `request`; see `sleep_unless`.
        self.requested.load(Ordering::SeqCst)
    }

    /// Whether so many bytes in the ring are reason to write although nobody asks.
    pub(super) fn presses(&self, filled: u64) -> bool {
        filled > self.ring.capacity() / 2
    }

    /// Asks for durability up to `upto`.
    pub(super) fn request(&self, upto: u64) {
        // Relaxed: a value that is there already was put by someone who also sees to the flusher's waking.
        if upto <= self.requested.load(Ordering::Relaxed) {
            return;
        }
        // A request above what is reserved could not be met.
        let upto = upto.min(self.ring.reserved());
        // SeqCst: pairs with `requested`; see `sleep_unless`.
        self.requested.fetch_max(upto, Ordering::SeqCst);
        self.wake();
    }

    /// Wakes the flusher if it sleeps.
    pub(super) fn wake(&self) {
        // SeqCst: pairs with the store in `sleep_unless`; see there. The swap lets one of many callers wake it.
        if self.sleeping.load(Ordering::SeqCst)
            && self.sleeping.swap(false, Ordering::SeqCst)
            && let Some(flusher) = self.flusher.get()
        {
            flusher.unpark();
        }
    }

    /// Puts the calling thread, which is the flusher, to sleep until it is woken, unless `work` finds some.
    pub(super) fn sleep_unless(&self, work: impl Fn() -> bool) {
        // SeqCst: the flusher stores `sleeping`, then looks for work; another thread makes work (`request`,
        // `Ring::reserve`, `stop`), then loads `sleeping` in `wake`. In the single order of these four accesses one
        // thread sees the other's store, so work is never left to a sleeper. Weaker orderings allow both to miss.
        self.sleeping.store(true, Ordering::SeqCst);
        if !work() {
            // Parking returns at once if the wake-up came between the look and here; a spurious return is harmless.
            std::thread::park();
        }
        // Relaxed: only for `wake` to save an unpark; a wake-up for nothing is harmless.
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// Makes `flusher` known to `wake`. Before any request.
    pub(super) fn set_flusher(&self, flusher: Thread) {
        self.flusher.get_or_init(|| flusher);
    }

    /// Asks all threads of the log to end; who parks must be unparked besides.
    pub(super) fn stop(&self) {
        // SeqCst: pairs with `stopping`; see `sleep_unless`.
        self.stopping.store(true, Ordering::SeqCst);
        self.wake();
    }

    pub(super) fn stopping(&self) -> bool {
        // SeqCst: pairs with the store in `stop`; see `sleep_unless`.
        self.stopping.load(Ordering::SeqCst)
    }

    /// Says that the flusher has ended, and lets go all who wait for it.
    pub(super) fn close(&self) {
        // SeqCst: pairs with the load in `closed`. We store it, then look at the count of those who wait for room; such a
        // one counts itself, then looks here. In the single order one sees the other; else it would wait for ever.
        self.closed.store(true, Ordering::SeqCst);
        self.ring.wake_waiting();
        let _waiters = locked(&self.waiters);
        self.grown.notify_all();
    }

    fn closed(&self) -> bool {
        // SeqCst: pairs with the store in `close`; see there. The last `durable` is then seen too.
        self.closed.load(Ordering::SeqCst)
    }

    /// Blocks until what ends at `end` has room in the ring; false if the log was closed before.
    #[cold]
    pub(super) fn wait_for_room(&self, end: u64) -> bool {
        self.ring.wait_for_room(end, || self.wake(), || self.closed())
    }

    /// See [`Wal::wait_durable`](super::Wal::wait_durable).
    pub(super) fn wait_durable(&self, lsn: u64) -> io::Result<()> {
        if lsn <= self.durable() {
            return Ok(());
        }
        let appended = self.ring.reserved();
        if lsn > appended {
            let message = format!("the log ends at {appended}, before {lsn}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        self.request(lsn);
        let mut waiters = locked(&self.waiters);
        *waiters += 1;
        let outcome = loop {
            let closed = self.closed();
            if lsn <= self.durable() {
                break Ok(());
            }
            if let Some(failure) = self.failure() {
                break Err(io::Error::other(failure.to_owned()));
            }
            if closed {
                break Err(io::Error::other("the log is closed"));
            }
            waiters = self.grown.wait(waiters).unwrap_or_else(PoisonError::into_inner);
        };
        *waiters -= 1;
        outcome
    }

    /// Publishes that all before `lsn` is on the disk. Flusher only.
    pub(super) fn set_durable(&self, lsn: u64) {
        // Release: pairs with the Acquire load in `durable`.
        self.durable.store(lsn, Ordering::Release);
        // Who waits has looked at `durable` under the lock: before our store, and then it is counted, or after it.
        if *locked(&self.waiters) > 0 {
            self.grown.notify_all();
        }
        for hook in locked(&self.durable_hooks).iter() {
            hook(Lsn(lsn));
        }
    }

    /// Marks the log as failed, for good. Flusher only.
    pub(super) fn fail(&self, reason: String) {
        tracing::error!("the log has failed: {reason}");
        // Under the lock of the hooks, so that each hook is called exactly once.
        let hooks = locked(&self.failed_hooks);
        let reason = self.failure.get_or_init(|| reason);
        {
            let _waiters = locked(&self.waiters);
            self.grown.notify_all();
        }
        for hook in hooks.iter() {
            hook(reason);
        }
    }

    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    pub(super) fn on_durable(&self, hook: DurableHook) {
        locked(&self.durable_hooks).push(hook);
    }

    pub(super) fn on_failed(&self, hook: FailedHook) {
        let mut hooks = locked(&self.failed_hooks);
        match self.failure() {
            Some(reason) => hook(reason),
            None => hooks.push(hook),
        }
    }
}
