//! Space for records to append: on the disk, and in the ring.
//!
//! A record reserved in the ring must be written, so space is requested first. The disk has space
//! up to the end of the last existing segment, because segments have all their blocks from the
//! start. Part of that space is a reserve for records that must be appended in any case (commits,
//! undo, ends of transactions). Every undoable change also reserves the bytes that its undo is
//! expected to need. A change or an undo asks first. If it may be refused, it waits, without
//! blocking a thread, until the segment maker has made space, or a checkpoint has freed segments,
//! or both have failed. In the last case the log is *full*.
//!
//! Invariants
//! 1. A request is granted if there is space for it and its undo above the reserve and everything
//!    reserved for undo. Concurrent requests may both be granted; the excess comes out of the
//!    reserve, and there is one such record per thread. An undo is granted what is left, except for
//!    a quarter of the reserve, which commits and ends of transactions keep.
//! 2. Every waiter gets an answer: space, or an error because the log is full, has failed, or is
//!    closed. A record that must be appended (`must`: it may also use half of the reserve) is not
//!    refused because the log is full, once a hook takes checkpoints. At a start, without hooks, it
//!    is: nobody else would free log.
//! 3. A full log does not stay full: the maker retries every [`SpaceWaits::retry`] and after each
//!    checkpoint. While a request waits or was refused, the maker asks for checkpoints, at most one
//!    per retry interval. A checkpoint that cannot help ends at once.
//!
//! Locking: `state` is held briefly, and nothing is called under it. The maker calls the hooks for
//! a lack of space while it holds the monitor of their list. A crash leaves nothing of this state.
//!
//! Source: reserving log space for rollbacks is common practice (Gray and Reuter, "Transaction
//! Processing", 1993, 11.3).

use std::io;
use std::panic::Location;

use clearway_latch::lockstat::{Class, Wait};
use clearway_latch::{CachePadded, Monitor, MonitorGuard};
use clearway_sync::atomic::{AtomicU64, Ordering};
use clearway_sync::time::{Duration, Instant};

use super::log::{HOOKS, Log};

/// How long the log waits for space on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceWaits {
    /// Delay before retrying to make a segment after a lack of space; at least 1 ms. Default 250
    /// ms.
    pub retry: Duration,
    /// How long requests wait if no checkpoint ends meanwhile. Default 3 s.
    pub patience: Duration,
    /// How long the flusher waits, with all reserves used up, before the log fails. Default 1
    /// minute.
    pub stall: Duration,
}

impl Default for SpaceWaits {
    fn default() -> Self {
        Self {
            retry: Duration::from_millis(250),
            patience: Duration::from_secs(3),
            stall: Duration::from_secs(60),
        }
    }
}

/// Contention class for space on the disk and in the ring, for changes that may wait; every change
/// requests it.
static ROOM: Class = Class::new("log.room");
static ROOM_STATE: Class = Class::new("log.room_state");

/// Receives the answer: there is space, or why there will be none.
pub(crate) type RoomDone = Box<dyn FnOnce(io::Result<()>) + Send>;

/// An error's kind and text. `io::Error` cannot be cloned, and several callers get this error.
pub(super) type FailureReason = (io::ErrorKind, String);

struct Waiter {
    bytes: u64,
    must: bool,
    done: RoomDone,
    wait: Wait,
}

impl Waiter {
    fn answer(self, answer: io::Result<()>) {
        self.wait.end();
        (self.done)(answer);
    }
}

#[derive(Default)]
struct State {
    waiters: Vec<Waiter>,
    /// A segment cannot be made for lack of space.
    short: bool,
    /// Since when requests wait for one.
    needed: Option<Instant>,
    /// True if a checkpoint has ended since.
    helped: bool,
    /// True once there is a hook that takes checkpoints.
    hooked: bool,
    /// When a checkpoint was last requested.
    asked: Option<Instant>,
    /// The error with which requests for space are refused.
    full: Option<FailureReason>,
    /// True if the maker has something to check.
    news: bool,
}

/// The space of the log.
pub(super) struct Room {
    reserve: u64,
    waits: SpaceWaits,
    undo_reserved: CachePadded<AtomicU64>,
    waiting: AtomicU64,
    state: Monitor<State>,
    short_hooks: Monitor<Vec<Box<dyn Fn() + Send + Sync>>>,
}

impl Room {
    /// Reserves `reserve` bytes for records that must be appended.
    pub(super) fn new(reserve: u64, waits: SpaceWaits) -> Self {
        // Retrying without a delay would be a busy loop.
        let retry = waits.retry.max(Duration::from_millis(1));
        Self {
            reserve,
            waits: SpaceWaits { retry, ..waits },
            undo_reserved: CachePadded::new(AtomicU64::new(0)),
            waiting: AtomicU64::new(0),
            state: Monitor::new(&ROOM_STATE, State::default()),
            short_hooks: Monitor::new(&HOOKS, Vec::new()),
        }
    }

    #[track_caller]
    fn state(&self) -> MonitorGuard<'_, State> {
        // Nothing panics in this monitor.
        self.state.lock()
    }

    /// Makes the maker check again, and a flusher that waits for space.
    pub(super) fn wake(&self) {
        self.state().news = true;
        self.state.notify_all();
    }

    fn wait_for_news(&self, limit: Option<Duration>) {
        let mut state = self.state();
        match limit {
            Some(limit) => state = self.state.wait_timeout_while(state, limit, |s| !s.news).0,
            None => state = self.state.wait_while(state, |s| !s.news),
        }
        state.news = false;
    }

    /// The wanted segments exist.
    fn plenty(&self) {
        let mut state = self.state();
        (state.full, state.helped, state.needed) = (None, false, None);
        if std::mem::take(&mut state.short) {
            tracing::info!("there is room for the log again");
        }
    }

    /// Records that a segment cannot be made for lack of space. Returns true if a checkpoint should
    /// be requested.
    fn short(&self, error: &io::Error) -> bool {
        let mut state = self.state();
        if !std::mem::replace(&mut state.short, true) {
            tracing::warn!("there is no space to make a log segment ahead of need: {error}");
        }
        let needed = !state.waiters.is_empty();
        // Existing segments may have sufficed so far: patience begins with the first request.
        state.needed = needed.then(|| state.needed.unwrap_or_else(Instant::now));
        if let Some(since) = state.needed
            && state.full.is_none()
            && (state.helped || since.elapsed() >= self.waits.patience)
        {
            tracing::error!("the log is full, statements that write are refused: {error}");
            state.full = Some((error.kind(), error.to_string()));
        }
        state.helped = false;
        let asks = (needed || state.full.is_some())
            && state.asked.is_none_or(|at| at.elapsed() >= self.waits.retry);
        if asks {
            state.asked = Some(Instant::now());
        }
        asks
    }

    /// Records that a checkpoint has ended.
    pub(super) fn helped(&self) {
        let mut state = self.state();
        state.helped = state.short;
        state.news = true;
        self.state.notify_all();
    }
}

impl Log {
    /// Returns true if an undo's record of `bytes` bytes can be appended without waiting for the
    /// disk. It may use what is reserved for undo, and most of the reserve.
    #[inline]
    pub(crate) fn has_room_for_undo(&self, bytes: u64) -> bool {
        // A start that lacks space fails, so it may use all of it first.
        let kept = if self.waits_for_space() { self.room.reserve / 4 } else { 0 };
        self.ring.reserved_about() + bytes + kept <= self.segments.limit()
    }

    fn has_room_on_disk(&self, bytes: u64, must: bool) -> bool {
        let kept = if must { self.room.reserve / 2 } else { self.room.reserve };
        // Relaxed: invariant 1 allows for concurrent changes.
        let undo_reserved = self.room.undo_reserved.load(Ordering::Relaxed);
        self.ring.reserved_about() + bytes + kept + undo_reserved <= self.segments.limit()
    }

    /// Leaves a quarter of the ring to records that must be appended.
    fn has_room_in_ring(&self, bytes: u64) -> bool {
        let capacity = self.ring.capacity();
        // No record uses more; the rest is reserved for undo.
        let bytes = bytes.min(capacity / 2);
        self.ring.filled_to(self.ring.reserved_about() + bytes) <= capacity - capacity / 4
    }

    /// Returns true if a record of `bytes` bytes ([`record_size`](super::record_size), plus what it
    /// reserves for its undo) can be appended without waiting for the disk and without using the
    /// reserve. With `must`, half of the reserve may be used, too. A change that may wait or be
    /// refused calls this before [`Log::append`]; one that must append just appends.
    #[inline]
    pub fn has_room(&self, bytes: u64, must: bool) -> bool {
        ROOM.request();
        self.has_room_on_disk(bytes, must)
            && self.has_room_in_ring(bytes)
            && self.failed().is_none()
    }

    /// Calls `done` when [`Log::has_room`] is or may be true: at once, or later on a thread of the
    /// log, for which it must be brief. Calls it with an error if the log fails, is closed, or is
    /// full: the disk has no space, and checkpoints do not free enough. With `must`, it keeps
    /// waiting when the log is full, if there is a hook ([`Log::on_short`]).
    #[track_caller]
    pub fn when_room(&self, bytes: u64, must: bool, done: RoomDone) {
        let waiter = Waiter { bytes, must, done, wait: ROOM.wait(Location::caller()) };
        {
            let mut state = self.room.state();
            state.waiters.push(waiter);
            // SeqCst: pairs with the SeqCst loads of `waiting` in `release_room` and below. We
            // count ourselves, then look for space. A thread that makes space does that first, then
            // loads the count. One of us sees the other.
            self.room.waiting.fetch_add(1, Ordering::SeqCst);
        }
        // The flusher does not drain a ring that is less than half full without a request.
        self.request_flush(self.appended());
        // SeqCst: pairs with the `fetch_sub` in `release_room`, which another thread may have run.
        self.release_room();
        if self.room.waiting.load(Ordering::SeqCst) > 0 {
            self.room.wake();
        }
    }

    /// Answers the waiters that can be answered. Called whenever there may be more space, or none
    /// any more.
    pub(super) fn release_room(&self) {
        // SeqCst: pairs with the `fetch_add` in `when_room`; see there.
        if self.room.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let over = self.over();
        let mut answers = Vec::new();
        {
            let mut state = self.room.state();
            let (full, hooked, mut lacking) = (state.full.clone(), state.hooked, false);
            for waiter in std::mem::take(&mut state.waiters) {
                let on_disk = self.has_room_on_disk(waiter.bytes, waiter.must);
                let waits = on_disk || (waiter.must && hooked);
                let refusal = over.as_ref().or(full.as_ref().filter(|_| !waits));
                match refusal {
                    Some((kind, text)) => {
                        answers.push((waiter, Err(io::Error::new(*kind, text.clone()))))
                    }
                    None if on_disk && self.has_room_in_ring(waiter.bytes) => {
                        answers.push((waiter, Ok(())))
                    }
                    None => {
                        lacking |= !on_disk;
                        state.waiters.push(waiter);
                    }
                }
            }
            // Others may have reserved or appended since the maker computed how much is wanted.
            // After a lack of space the maker retries by itself.
            if lacking && !state.short {
                state.news = true;
                self.room.state.notify_all();
            }
            // SeqCst: pairs with the loads in `when_room` and at the top of this function.
            self.room.waiting.fetch_sub(answers.len() as u64, Ordering::SeqCst);
        }
        for (waiter, answer) in answers {
            waiter.answer(answer);
        }
    }

    /// Registers a hook that is called repeatedly while someone waits for space that the disk does
    /// not have: a checkpoint may help. It must be brief.
    pub fn on_short(&self, hook: Box<dyn Fn() + Send + Sync>) {
        self.room.short_hooks.lock().push(hook);
        self.room.state().hooked = true;
    }

    /// Changes a reservation of log space for undo from `old` to `new` bytes.
    pub(crate) fn reserve_for_undo(&self, old: u64, new: u64) {
        if new >= old {
            // Relaxed: see `has_room_on_disk`.
            self.room.undo_reserved.fetch_add(new - old, Ordering::Relaxed);
        } else {
            // SeqCst: pairs with the `fetch_add` of `waiting` in `when_room`: the space is free
            // before the load in `release_room`.
            self.room.undo_reserved.fetch_sub(old - new, Ordering::SeqCst);
            self.release_room();
        }
    }

    /// Returns the LSN up to which there should be segments.
    fn wanted(&self) -> u64 {
        let widest = self.room.state().waiters.iter().map(|waiter| waiter.bytes).max().unwrap_or(0);
        // Relaxed: see `has_room_on_disk`.
        let undo_reserved = self.room.undo_reserved.load(Ordering::Relaxed);
        self.ring.reserved() + widest + undo_reserved + 2 * self.room.reserve
    }

    /// Makes segments as they are wanted, until the log stops or has failed.
    pub(super) fn keep_making_segments(&self) {
        let over = || self.stopping() || self.failed().is_some();
        while !over() {
            let made = self.segments.make_ahead(self.wanted(), &over);
            let mut again = None;
            match made {
                Ok(()) => self.room.plenty(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if clearway_env::is_full(&error) => {
                    if self.room.short(&error) {
                        let hooks = self.room.short_hooks.lock();
                        hooks.iter().for_each(|hook| hook());
                    }
                    again = Some(self.room.waits.retry);
                }
                // The log cannot continue with a segment that may or may not exist.
                Err(error) => self.fail((error.kind(), format!("cannot make a segment: {error}"))),
            }
            self.release_room();
            if !over() {
                self.room.wait_for_news(again);
            }
        }
    }

    /// Blocks the flusher until it should retry to make a segment. Returns false if the log must
    /// fail instead. Called only by the flusher.
    pub(super) fn wait_for_space(&self, error: &io::Error, since: Instant) -> bool {
        if !clearway_env::is_full(error)
            || !self.waits_for_space()
            || self.stopping()
            || since.elapsed() >= self.room.waits.stall
        {
            return false;
        }
        tracing::error!("the log waits for space for its next segment: {error}");
        let state = self.room.state();
        // A thread that makes space wakes all. The maker may consume the news itself, hence the
        // timeout.
        drop(self.room.state.wait_timeout_while(state, self.room.waits.retry, |s| !s.news));
        true
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// Patience begins with the first request that waits, however long the disk has been full.
    #[test]
    fn requests_wait_for_a_checkpoint_on_a_full_disk() {
        let patience = Duration::from_secs(60);
        let waits = SpaceWaits { patience, retry: Duration::ZERO, ..SpaceWaits::default() };
        let error = io::Error::from(io::ErrorKind::StorageFull);
        for helped in [true, false] {
            let room = Room::new(1 << 20, waits);
            assert!(!room.short(&error) && room.state().needed.is_none(), "nobody waits");
            let wait = ROOM.wait(Location::caller());
            room.state().waiters.push(Waiter { bytes: 1, must: false, done: Box::new(drop), wait });
            assert!(room.short(&error), "a checkpoint is requested");
            assert!(room.state().full.is_none() && room.state().needed.is_some());
            if helped {
                room.helped();
            } else {
                room.state().needed = Instant::now().checked_sub(patience);
            }
            room.short(&error);
            assert!(room.state().full.is_some(), "it has not helped, or takes too long");
            room.state().waiters.drain(..).for_each(|waiter| waiter.answer(Ok(())));
        }
    }
}
