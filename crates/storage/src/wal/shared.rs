//! What appenders, waiters and the flusher share, and how they wake one another.
//!
//! Invariants
//! 1. `durable <= ring.freed <= ring.reserved` and `requested <= ring.reserved`, at every moment;
//!    each only grows.
//! 2. `durable` is at the end of a record and all before it is on the disk.
//! 3. After a failure `durable` never grows again; the flusher goes on draining the ring into
//!    nothing, so that no appender blocks for ever.
//! 4. The flusher sleeps only when nothing above `durable` is requested and the ring is not half
//!    full.
//!
//! Locking: `waiters` and `rung` are held for moments; hooks are called in the monitor of their
//! list, by the flusher alone: no latch, since they wake threads. A crash leaves nothing of it.

use std::io;
use std::panic::Location;
use std::sync::OnceLock;

use clearway_latch::lockstat::Class;
use clearway_latch::{CachePadded, Monitor};
use clearway_sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use clearway_sync::panics::caught;
use clearway_types::Lsn;

use super::ring::{RING, Ring};
use super::room::{Room, SpaceWaits, Told};
use super::segments::Segments;

/// One part in so many of a segment is kept for those who must append.
const RESERVE_PART: u64 = 4;

type DurableHook = Box<dyn Fn(Lsn) + Send + Sync>;
type FailedHook = Box<dyn Fn(&str) + Send + Sync>;

/// Durability of what was appended: who needs it asks, whether the log has it already or not.
pub static DURABLE: Class = Class::new("log.durable");
static DURABLE_WAITERS: Class = Class::new("log.durable_waiters");
static BELL: Class = Class::new("log.bell");
/// The lists of hooks, of the log's room, too.
pub(super) static HOOKS: Class = Class::new("log.hooks");

/// See the module's text.
pub(super) struct Shared {
    pub(super) ring: Ring,
    pub(super) segments: Segments,
    pub(super) room: Room,
    durable: CachePadded<AtomicU64>,
    requested: CachePadded<AtomicU64>,
    /// Syncs of the log's files so far.
    syncs: AtomicU64,
    sleeping: AtomicBool,
    stopping: AtomicBool,
    /// The flusher has ended: the ring is not drained any more.
    closed: AtomicBool,
    /// A lack of space is waited for.
    waits_for_space: AtomicBool,
    /// Whether the sleeping flusher was woken.
    rung: Monitor<bool>,
    failure: OnceLock<Told>,
    /// How many threads wait for `durable` to grow.
    waiters: Monitor<u32>,
    durable_hooks: Monitor<Vec<DurableHook>>,
    failed_hooks: Monitor<Vec<FailedHook>>,
}

impl Shared {
    pub(super) fn new(capacity: usize, end: u64, segments: Segments, waits: SpaceWaits) -> Self {
        Self {
            ring: Ring::new(capacity, end),
            room: Room::new(segments.size() / RESERVE_PART, waits),
            segments,
            durable: CachePadded::new(AtomicU64::new(end)),
            requested: CachePadded::new(AtomicU64::new(end)),
            syncs: AtomicU64::new(0),
            sleeping: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            waits_for_space: AtomicBool::new(false),
            rung: Monitor::new(&BELL, false),
            failure: OnceLock::new(),
            waiters: Monitor::new(&DURABLE_WAITERS, 0),
            durable_hooks: Monitor::new(&HOOKS, Vec::new()),
            failed_hooks: Monitor::new(&HOOKS, Vec::new()),
        }
    }

    pub(super) fn durable(&self) -> u64 {
        // Acquire: pairs with the Release store in `set_durable`: who sees the place also sees what
        // the flusher did before, such as entering the segment that holds it.
        self.durable.load(Ordering::Acquire)
    }

    /// Counts a sync. Flusher only.
    pub(super) fn count_sync(&self) {
        // Relaxed, here and in `syncs`: a count that orders nothing.
        self.syncs.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    pub(super) fn requested(&self) -> u64 {
        // Relaxed: the fences in `sleep_unless` and `wake` see to it that no request is slept over.
        self.requested.load(Ordering::Relaxed)
    }

    /// Whether so many bytes in the ring are reason to write although nobody asks.
    pub(super) fn is_half_full(&self, filled: u64) -> bool {
        filled > self.ring.capacity() / 2
    }

    /// Asks for durability up to `upto`.
    pub(super) fn request(&self, upto: u64) {
        // Relaxed: a value that is there already was put by someone who also sees to the flusher's
        // waking.
        if upto <= self.requested.load(Ordering::Relaxed) {
            return;
        }
        // A request above what is reserved could not be met.
        let upto = upto.min(self.ring.reserved());
        // Relaxed: see `requested`.
        self.requested.fetch_max(upto, Ordering::Relaxed);
        self.wake();
    }

    /// Wakes the flusher if it sleeps. After the store that makes work for it.
    pub(super) fn wake(&self) {
        // SeqCst: pairs with the fence in `sleep_unless`; see there.
        fence(Ordering::SeqCst);
        // Relaxed: the fences order it. The flusher alone stores it.
        if self.sleeping.load(Ordering::Relaxed) {
            *self.rung.lock() = true;
            self.rung.notify_one();
        }
    }

    /// Puts the calling thread, which is the flusher, to sleep until it is woken, unless `work`
    /// finds some.
    pub(super) fn sleep_unless(&self, work: impl Fn() -> bool) {
        // Relaxed: the fence orders it before the look for work.
        self.sleeping.store(true, Ordering::Relaxed);
        // SeqCst: the flusher stores `sleeping`, then looks for work; another thread makes work
        // (`request`, `Ring::reserve`, `stop`), then loads `sleeping` in `wake`. Each has such a
        // fence between the two; whose comes later sees the other's store, so work is never left to
        // a sleeper. Without one of them both may miss.
        fence(Ordering::SeqCst);
        if !work() {
            // The bell may have been rung between the look and here, or be left from a time when
            // there was work.
            let mut rung = self.rung.lock();
            while !std::mem::take(&mut *rung) {
                rung = self.rung.wait(rung);
            }
        }
        // Relaxed: only for `wake` to save ringing; a wake-up for nothing is harmless.
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// Asks all threads of the log to end.
    pub(super) fn stop(&self) {
        // Release: pairs with the Acquire in `stopping`. The fence in `wake` orders it, too; see
        // `sleep_unless`.
        self.stopping.store(true, Ordering::Release);
        self.wake();
        self.room.wake();
    }

    pub(super) fn stopping(&self) -> bool {
        // Acquire: pairs with the Release in `stop`: who sees it sees all that was appended before.
        self.stopping.load(Ordering::Acquire)
    }

    /// Says that the flusher has ended, and lets go all who wait for it.
    pub(super) fn close(&self) {
        // Release: pairs with the Acquire in `closed`. We store it, then `wake_waiting` looks,
        // after its fence, at the count of those who wait for room; such a one counts itself, then,
        // after a fence, looks here: one sees the other.
        self.closed.store(true, Ordering::Release);
        self.ring.wake_waiting();
        {
            let _waiters = self.waiters.lock();
            self.waiters.notify_all();
        }
        self.release_room();
    }

    /// Makes appends wait when the disk is full, from now on.
    pub(super) fn set_wait_for_space(&self) {
        // Relaxed, here and in `waits_for_space`: it orders nothing.
        self.waits_for_space.store(true, Ordering::Relaxed);
    }

    pub(super) fn waits_for_space(&self) -> bool {
        self.waits_for_space.load(Ordering::Relaxed)
    }

    /// Why nothing will become durable any more, if so.
    pub(super) fn over(&self) -> Option<Told> {
        self.failure
            .get()
            .cloned()
            .or_else(|| self.closed().then(|| (io::ErrorKind::Other, "the log is closed".into())))
    }

    fn closed(&self) -> bool {
        // Acquire: pairs with the Release in `close`; see there. The last `durable` is then seen
        // too.
        self.closed.load(Ordering::Acquire)
    }

    /// Blocks until what ends at `end` has room in the ring; false if the log was closed before.
    #[cold]
    pub(super) fn wait_for_room(&self, end: u64, caller: &'static Location<'static>) -> bool {
        RING.timed(caller, || self.ring.wait_for_room(end, || self.wake(), || self.closed()))
    }

    /// See [`Wal::wait_durable`](super::Wal::wait_durable).
    #[track_caller]
    pub(super) fn wait_durable(&self, lsn: u64) -> io::Result<()> {
        DURABLE.request();
        if lsn <= self.durable() {
            return Ok(());
        }
        let appended = self.ring.reserved();
        if lsn > appended {
            let message = format!("the log ends at {appended}, before {lsn}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        self.request(lsn);
        DURABLE.timed(Location::caller(), || self.wait_until_durable(lsn))
    }

    fn wait_until_durable(&self, lsn: u64) -> io::Result<()> {
        let mut waiters = self.waiters.lock();
        *waiters += 1;
        let outcome = loop {
            let closed = self.closed();
            if lsn <= self.durable() {
                break Ok(());
            }
            if let Some((kind, text)) = self.over().filter(|_| closed || self.failure().is_some()) {
                break Err(io::Error::new(kind, text));
            }
            waiters = self.waiters.wait(waiters);
        };
        *waiters -= 1;
        outcome
    }

    /// Publishes that all before `lsn` is on the disk. Flusher only.
    pub(super) fn set_durable(&self, lsn: u64) {
        // Release: pairs with the Acquire load in `durable`.
        self.durable.store(lsn, Ordering::Release);
        // Who waits has looked at `durable` under the lock: before our store, and then it is
        // counted, or after it.
        if *self.waiters.lock() > 0 {
            self.waiters.notify_all();
        }
        for hook in self.durable_hooks.lock().iter() {
            hook(Lsn(lsn));
        }
    }

    /// Marks the log as failed, for good. By the log's own threads.
    pub(super) fn fail(&self, (kind, reason): Told) {
        // Under the lock of the hooks, so that each hook is called exactly once.
        let hooks = self.failed_hooks.lock();
        if self.failure().is_some() {
            return;
        }
        tracing::error!("the log has failed: {reason}");
        let (_, reason) = self.failure.get_or_init(|| (kind, reason));
        {
            let _waiters = self.waiters.lock();
            self.waiters.notify_all();
        }
        self.release_room();
        for hook in hooks.iter() {
            hook(reason);
        }
    }

    /// Runs a thread of the log; a panic of it fails the log.
    pub(super) fn or_fail(&self, doing: &str, work: impl FnOnce()) {
        if let Err(message) = caught(work) {
            self.fail((
                io::ErrorKind::Other,
                format!("a thread panicked while {doing}: {message}"),
            ));
        }
    }

    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.get().map(|(_, reason)| reason.as_str())
    }

    pub(super) fn on_durable(&self, hook: DurableHook) {
        self.durable_hooks.lock().push(hook);
    }

    pub(super) fn on_failed(&self, hook: FailedHook) {
        let mut hooks = self.failed_hooks.lock();
        match self.failure() {
            Some(reason) => hook(reason),
            None => hooks.push(hook),
        }
    }
}
