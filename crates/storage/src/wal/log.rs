//! The log as appenders, waiters and the flusher share it, and how they wake each other.
//!
//! Invariants
//! 1. `durable <= ring.freed <= ring.reserved` and `requested <= ring.reserved` always hold; each
//!    value only grows.
//! 2. `durable` is the end of a record, and everything before it is on disk.
//! 3. After a failure `durable` never grows again. The flusher keeps draining the ring and discards
//!    the bytes, so that no appender blocks forever.
//! 4. The flusher sleeps only when nothing above `durable` is requested and the ring is not half
//!    full.
//!
//! Locking: `waiters` and `rung` are held briefly. Hooks are called while the monitor of their list
//! is held. It is a monitor, not a latch, since hooks wake threads. The flusher calls the hooks for
//! what is durable. The thread that fails the log calls those for a failure; one that is registered
//! later is called at once. A crash leaves nothing of this state.

use std::io;
use std::panic::Location;
use std::sync::OnceLock;

use clearway_latch::lockstat::Class;
use clearway_latch::{CachePadded, Monitor};
use clearway_sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use clearway_sync::panics::caught;
use clearway_types::Lsn;

use super::back::BackReader;
use super::record::{self, HEADER, MAX_RECORD};
use super::record_size;
use super::ring::{RING, Ring};
use super::room::{FailureReason, Room, SpaceWaits};
use super::segments::Segments;
use super::span::Span;

/// 1/4 of a segment is reserved for appends that must not be refused.
const RESERVE_PART: u64 = 4;
/// Bytes of a record that undoes a change which are left for pages that must be split for it.
const SPLIT_ROOM: usize = 64 << 10;

/// Returns the maximum record size, header included, of a ring of `capacity` bytes.
fn max_record(capacity: usize) -> usize {
    MAX_RECORD.min(capacity / 2)
}

/// Returns [`Log::max_undo`] of a ring of `capacity` bytes.
fn max_undo(capacity: usize) -> u64 {
    let max = max_record(capacity) - HEADER;
    (max - SPLIT_ROOM.min(max / 2)) as u64
}

/// Returns the size of the smallest ring of at least `capacity` bytes that has space for an undo of
/// `undo` bytes.
pub(super) fn capacity_for_undo(capacity: usize, undo: u64) -> usize {
    let mut capacity = capacity;
    while max_undo(capacity) < undo && max_record(capacity) < MAX_RECORD {
        capacity *= 2;
    }
    capacity
}

type DurableHook = Box<dyn Fn(Lsn) + Send + Sync>;
type FailedHook = Box<dyn Fn(&str) + Send + Sync>;

/// Contention class for waits for durability: counts every request, also one for log that is
/// already durable.
pub static DURABLE: Class = Class::new("log.durable");
static DURABLE_WAITERS: Class = Class::new("log.durable_waiters");
static BELL: Class = Class::new("log.bell");
/// The lists of hooks, including those of `Room`.
pub(super) static HOOKS: Class = Class::new("log.hooks");

/// The log: what its owner ([`Wal`](super::Wal)), its users and its threads share.
pub struct Log {
    pub(super) ring: Ring,
    pub(super) segments: Segments,
    pub(super) room: Room,
    max_record: usize,
    back_window: u64,
    durable: CachePadded<AtomicU64>,
    requested: CachePadded<AtomicU64>,
    /// Number of syncs of the log's files.
    syncs: AtomicU64,
    sleeping: AtomicBool,
    stopping: AtomicBool,
    /// The flusher has ended, so the ring is no longer drained.
    closed: AtomicBool,
    /// Appends wait when the disk is full, instead of failing.
    waits_for_space: AtomicBool,
    /// True if the sleeping flusher was woken.
    rung: Monitor<bool>,
    failure: OnceLock<FailureReason>,
    /// Number of threads waiting for `durable` to grow.
    waiters: Monitor<u32>,
    durable_hooks: Monitor<Vec<DurableHook>>,
    failed_hooks: Monitor<Vec<FailedHook>>,
}

impl Log {
    pub(super) fn new(
        capacity: usize,
        end: u64,
        segments: Segments,
        waits: SpaceWaits,
        back_window: u64,
    ) -> Self {
        Self {
            ring: Ring::new(capacity, end),
            max_record: max_record(capacity),
            back_window,
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

    /// Returns the maximum payload for [`Log::append`], in bytes.
    pub fn max_payload(&self) -> usize {
        self.max_record - HEADER
    }

    /// Returns the maximum of [`Undo::cost`](crate::undo::Undo::cost) of a change: its undo must
    /// fit in a record, even if it has to split pages.
    pub(crate) fn max_undo(&self) -> u64 {
        max_undo(self.ring.capacity() as usize)
    }

    /// Appends a record with the concatenation of `payload`; returns its end. Its start is the end
    /// minus [`record_size`](super::record_size). Blocks only while the ring is full: see
    /// [`Log::has_room`].
    ///
    /// Threads may interleave in any order between reserving and filling, so a later record may be
    /// filled first. But no record becomes durable before the records ahead of it.
    ///
    /// # Panics
    /// If the payload is larger than [`Log::max_payload`].
    #[track_caller]
    pub fn append(&self, payload: &[&[u8]]) -> Lsn {
        RING.request();
        let len = HEADER + payload.iter().map(|part| part.len()).sum::<usize>();
        assert!(
            len <= self.max_record,
            "a log record of {len} bytes, more than {}",
            self.max_record
        );
        let crc = record::payload_crc(payload);
        let start = self.ring.reserve(record_size(len - HEADER));
        let end = start + record_size(len - HEADER);
        let mut filled = self.ring.filled_to(end);
        if filled > self.ring.capacity() {
            if !self.wait_for_room(end, Location::caller()) {
                // The log is closed: the record never becomes durable, and nobody is notified that
                // it did.
                return Lsn(end);
            }
            filled = self.ring.filled_to(end);
        }
        self.ring.fill(start, record::seal(crc, len, start, self.durable().0), payload);
        if self.is_half_full(filled) {
            self.wake();
        }
        Lsn(end)
    }

    /// Returns the end of the last reserved record: every later record ends above it. A caller that
    /// sees a record's end here sees what its appender did before: `Ring::reserved` is the Acquire
    /// side of the Release in `Ring::reserve`.
    pub fn appended(&self) -> Lsn {
        Lsn(self.ring.reserved())
    }

    /// Returns the durable end: every record that ends at or before it survives a crash.
    pub fn durable(&self) -> Lsn {
        // Acquire: pairs with the Release store in `set_durable`. A thread that sees the LSN also
        // sees what the flusher did before, such as entering the segment that holds it.
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// Counts a sync. Flusher only.
    pub(super) fn count_sync(&self) {
        // Relaxed, here and in `syncs`: a counter that orders nothing.
        self.syncs.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how often a file of the log was synced for appenders: syncs that commits share.
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    pub(super) fn requested(&self) -> u64 {
        // Relaxed: the fences in `sleep_unless` and `wake` ensure that the flusher does not sleep
        // through a request.
        self.requested.load(Ordering::Relaxed)
    }

    /// Returns true if the ring is full enough for a write that nobody requested.
    pub(super) fn is_half_full(&self, filled: u64) -> bool {
        filled > self.ring.capacity() / 2
    }

    /// Requests that the log become durable up to `upto`, or up to its current end if that is less.
    /// Does not wait.
    pub fn request_flush(&self, upto: Lsn) {
        let upto = upto.0;
        // Relaxed: the thread that stored the current value also wakes the flusher.
        if upto <= self.requested.load(Ordering::Relaxed) {
            return;
        }
        // A request above the reserved LSN could never be met.
        let upto = upto.min(self.ring.reserved());
        // Relaxed: see `requested`.
        self.requested.fetch_max(upto, Ordering::Relaxed);
        self.wake();
    }

    /// Wakes the flusher if it sleeps. Call this after the store that creates work for it.
    pub(super) fn wake(&self) {
        // SeqCst: pairs with the fence in `sleep_unless`; see there.
        fence(Ordering::SeqCst);
        // Relaxed: the fences order it. Only the flusher stores it.
        if self.sleeping.load(Ordering::Relaxed) {
            *self.rung.lock() = true;
            self.rung.notify_one();
        }
    }

    /// Parks the calling thread, which must be the flusher, until it is woken. Returns at once if
    /// `work` returns true.
    pub(super) fn sleep_unless(&self, work: impl Fn() -> bool) {
        // Relaxed: the fence orders it before the check for work.
        self.sleeping.store(true, Ordering::Relaxed);
        // SeqCst: pairs with the fence in `wake`. The flusher stores `sleeping`, then checks for
        // work. Another thread creates work (`request_flush`, `Ring::reserve`, `stop`), then loads
        // `sleeping` in `wake`. Each has this fence in between. The thread whose fence comes later
        // sees the other's store, so the flusher never sleeps while there is work. Without either
        // fence both could miss.
        fence(Ordering::SeqCst);
        if !work() {
            // The bell may have been rung after the check for work. It may also be left over from
            // an earlier time when there was work.
            let mut rung = self.rung.lock();
            while !std::mem::take(&mut *rung) {
                rung = self.rung.wait(rung);
            }
        }
        // Relaxed: it only saves `wake` the ringing. A spurious wake-up is harmless.
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// Asks all threads of the log to end.
    pub(super) fn stop(&self) {
        // Release: pairs with the Acquire in `stopping`. The fence in `wake` also orders it; see
        // `sleep_unless`.
        self.stopping.store(true, Ordering::Release);
        self.wake();
        self.room.wake();
    }

    pub(super) fn stopping(&self) -> bool {
        // Acquire: pairs with the Release in `stop`. A thread that sees it also sees everything
        // appended before.
        self.stopping.load(Ordering::Acquire)
    }

    /// Marks the flusher as ended, and wakes all its waiters.
    pub(super) fn close(&self) {
        // Release: pairs with the Acquire in `closed`. We store it, then `wake_waiting` loads,
        // after its fence, the number of threads waiting for space. A waiter counts itself, then,
        // after a fence, loads this flag. One of the two sees the other.
        self.closed.store(true, Ordering::Release);
        self.ring.wake_waiting();
        {
            let _waiters = self.waiters.lock();
            self.waiters.notify_all();
        }
        self.release_room();
    }

    /// Makes the log wait, from now on, for space for the next segment when even its reserve is
    /// used up, instead of failing. Until then nobody depends on the log, and failing is clearer.
    pub(crate) fn set_wait_for_space(&self) {
        // Relaxed, here and in `waits_for_space`: it orders nothing.
        self.waits_for_space.store(true, Ordering::Relaxed);
    }

    pub(super) fn waits_for_space(&self) -> bool {
        self.waits_for_space.load(Ordering::Relaxed)
    }

    /// Returns the reason if nothing will become durable any more.
    pub(super) fn over(&self) -> Option<FailureReason> {
        self.failure
            .get()
            .cloned()
            .or_else(|| self.closed().then(|| (io::ErrorKind::Other, "the log is closed".into())))
    }

    fn closed(&self) -> bool {
        // Acquire: pairs with the Release in `close`. The caller then also sees the last `durable`.
        self.closed.load(Ordering::Acquire)
    }

    /// Blocks until the ring has space up to `end`. Returns false if the log was closed first.
    #[cold]
    pub(super) fn wait_for_room(&self, end: u64, caller: &'static Location<'static>) -> bool {
        RING.timed(caller, || self.ring.wait_for_room(end, || self.wake(), || self.closed()))
    }

    /// Returns when every record that ends at or before `lsn` is durable.
    ///
    /// # Errors
    /// The log has failed or is closed; then it is unknown what survives. `InvalidInput` if `lsn`
    /// is above the end of the log.
    #[track_caller]
    pub fn wait_durable(&self, lsn: Lsn) -> io::Result<()> {
        DURABLE.request();
        if lsn <= self.durable() {
            return Ok(());
        }
        let appended = self.appended();
        if lsn > appended {
            let message = format!("the log ends at {}, before {}", appended.0, lsn.0);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        self.request_flush(lsn);
        DURABLE.timed(Location::caller(), || self.wait_until_durable(lsn))
    }

    fn wait_until_durable(&self, lsn: Lsn) -> io::Result<()> {
        let mut waiters = self.waiters.lock();
        *waiters += 1;
        let outcome = loop {
            let closed = self.closed();
            if lsn <= self.durable() {
                break Ok(());
            }
            if let Some((kind, text)) = self.over().filter(|_| closed || self.failed().is_some()) {
                break Err(io::Error::new(kind, text));
            }
            waiters = self.waiters.wait(waiters);
        };
        *waiters -= 1;
        outcome
    }

    /// Publishes that everything before `lsn` is on disk. Called by the flusher only.
    pub(super) fn set_durable(&self, lsn: u64) {
        // Release: pairs with the Acquire load in `durable`.
        self.durable.store(lsn, Ordering::Release);
        // A waiter checks `durable` under the lock: either before our store, and then it is
        // counted, or after it.
        if *self.waiters.lock() > 0 {
            self.waiters.notify_all();
        }
        for hook in self.durable_hooks.lock().iter() {
            hook(Lsn(lsn));
        }
    }

    /// Marks the log as failed, permanently. Called by the log's own threads.
    pub(super) fn fail(&self, (kind, reason): FailureReason) {
        // Hold the lock of the hooks, so that each hook is called exactly once.
        let hooks = self.failed_hooks.lock();
        if self.failed().is_some() {
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

    /// Runs a thread of the log. A panic in it fails the log.
    pub(super) fn or_fail(&self, doing: &str, work: impl FnOnce()) {
        if let Err(message) = caught(work) {
            self.fail((
                io::ErrorKind::Other,
                format!("a thread panicked while {doing}: {message}"),
            ));
        }
    }

    /// Returns why the log has failed, if it has.
    pub fn failed(&self) -> Option<&str> {
        self.failure.get().map(|(_, reason)| reason.as_str())
    }

    /// Registers a hook that the flusher calls each time after [`Log::durable`] has grown. It
    /// should be brief, because it delays the next group of commits. It must not register hooks.
    pub fn on_durable(&self, hook: DurableHook) {
        self.durable_hooks.lock().push(hook);
    }

    /// Registers a hook that is called once if the log fails; at once if it has already failed. A
    /// failed log never becomes durable again: the process should stop and recover.
    pub fn on_failed(&self, hook: FailedHook) {
        let mut hooks = self.failed_hooks.lock();
        match self.failed() {
            Some(reason) => hook(reason),
            None => hooks.push(hook),
        }
    }

    /// Removes or recycles the segments that contain nothing at or after `lsn`. Blocks; for the
    /// checkpointer.
    pub fn remove_before(&self, lsn: Lsn) -> io::Result<()> {
        let removed = self.segments.remove_before(lsn.min(self.durable()).0);
        self.room.helped();
        self.release_room();
        removed
    }

    /// Returns a reader of durable records, from later to earlier ones. It reads nothing before
    /// `from`; the log from there on must be kept while it is used.
    pub(crate) fn read_back(&self, from: Lsn) -> BackReader {
        BackReader::new(self.segments.source(), from, self.back_window)
    }

    /// Returns a reader of ranges of the log, usable while the log grows.
    pub(crate) fn span(&self) -> Span {
        Span::new(self.segments.source())
    }
}
