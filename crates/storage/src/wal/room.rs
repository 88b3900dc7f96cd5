//! Room for what is to be appended: on the disk, and in the ring.
//!
//! A record that was reserved in the ring must be written, so that room is asked for before. On the
//! disk there is room up to the end of the last segment that is there: segments have all their
//! blocks from the start. Of that room a reserve is kept for those who must append whatever happens
//! (commits, undo, ends of transactions), and every undoable change pledges the bytes that its undo
//! will take. Who may be refused asks first, and waits, without a thread, until the maker of
//! segments has made room, a checkpoint has given segments back, or both have failed to: then the
//! log is *full*.
//!
//! Invariants
//! 1. Whoever asks is let go if there is room for him and his pledge above the reserve and all that
//!    is pledged. Those who ask at the same time may both be: what they exceed comes out of the
//!    reserve, and there is one such record a thread.
//! 2. Whoever waits is answered: with room, or because the log is full, has failed, or is closed.
//!    Who must append (`must`: half of the reserve is his, too) is not refused because the log is
//!    full.
//! 3. A full log is not full for good: the maker tries again every [`SpaceWaits::retry`] and after
//!    each checkpoint. As long as someone waits or was refused it asks for checkpoints, at most one
//!    in that time: they end at once where they help nobody.
//!
//! Locking: one monitor, held for moments, nothing is called under it. A crash leaves nothing of
//! it.
//!
//! Source: reserving log space for rollbacks is common practice (Gray and Reuter, "Transaction
//! Processing", 1993, 11.3).

use std::io;
use std::panic::Location;

use clearway_latch::lockstat::{Class, Wait};
use clearway_latch::{CachePadded, Monitor, MonitorGuard};
use clearway_sync::atomic::{AtomicU64, Ordering};
use clearway_sync::time::{Duration, Instant};

use super::shared::{HOOKS, Shared};

/// How long the log waits for space on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceWaits {
    /// After this a segment that could not be made for lack of space is tried again; at least a
    /// millisecond. Default 250 ms.
    pub retry: Duration,
    /// How long those who wait are left waiting, if no checkpoint has ended meanwhile. Default 3 s.
    pub patience: Duration,
    /// How long the flusher waits, all reserves being used up, before the log fails. Default a
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

/// Room on the disk and in the ring for who may wait: every change asks for it.
static ROOM: Class = Class::new("log.room");
static ROOM_STATE: Class = Class::new("log.room_state");

/// Gets the answer: there is room, or why there will be none.
pub(crate) type RoomDone = Box<dyn FnOnce(io::Result<()>) + Send>;

/// An error's kind and text: errors themselves cannot be told twice.
pub(super) type Told = (io::ErrorKind, String);

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
    /// Since when a segment cannot be made for lack of space.
    short: Option<Instant>,
    /// A checkpoint has ended since.
    helped: bool,
    /// When a checkpoint was last asked for.
    asked: Option<Instant>,
    /// Who waits for space is refused with this.
    full: Option<Told>,
    /// The maker has something to look at.
    news: bool,
}

/// See the module's text.
pub(super) struct Room {
    reserve: u64,
    waits: SpaceWaits,
    pledged: CachePadded<AtomicU64>,
    waiting: AtomicU64,
    state: Monitor<State>,
    short_hooks: Monitor<Vec<Box<dyn Fn() + Send + Sync>>>,
}

impl Room {
    /// With so many bytes kept for those who must append.
    pub(super) fn new(reserve: u64, waits: SpaceWaits) -> Self {
        // Who tries again at once does nothing else.
        let retry = waits.retry.max(Duration::from_millis(1));
        Self {
            reserve,
            waits: SpaceWaits { retry, ..waits },
            pledged: CachePadded::new(AtomicU64::new(0)),
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

    /// Has the maker look again, and a flusher that waits for space.
    pub(super) fn wake(&self) {
        self.state().news = true;
        self.state.notify_all();
    }

    /// See [`Wal::on_short`](super::Wal::on_short).
    pub(super) fn on_short(&self, hook: Box<dyn Fn() + Send + Sync>) {
        self.short_hooks.lock().push(hook);
    }

    fn wait_for_news(&self, limit: Option<Duration>) {
        let mut state = self.state();
        match limit {
            Some(limit) => state = self.state.wait_timeout_while(state, limit, |s| !s.news).0,
            None => state = self.state.wait_while(state, |s| !s.news),
        }
        state.news = false;
    }

    /// The segments that are wanted are there.
    fn plenty(&self) {
        let mut state = self.state();
        (state.full, state.helped) = (None, false);
        if state.short.take().is_some() {
            tracing::info!("there is room for the log again");
        }
    }

    /// A segment cannot be made for lack of space. Whether to ask for a checkpoint.
    fn short(&self, error: &io::Error) -> bool {
        let mut state = self.state();
        let since = *state.short.get_or_insert_with(|| {
            tracing::warn!("there is no room to make a segment of the log ahead of need: {error}");
            Instant::now()
        });
        let needed = !state.waiters.is_empty();
        if needed
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

    /// A checkpoint has ended.
    pub(super) fn helped(&self) {
        let mut state = self.state();
        state.helped = state.short.is_some();
        state.news = true;
        self.state.notify_all();
    }
}

impl Shared {
    fn has_room_on_disk(&self, bytes: u64, must: bool) -> bool {
        let kept = if must { self.room.reserve / 2 } else { self.room.reserve };
        // Relaxed: invariant 1 allows for what others do meanwhile.
        let pledged = self.room.pledged.load(Ordering::Relaxed);
        self.ring.reserved_about() + bytes + kept + pledged <= self.segments.limit()
    }

    /// A quarter of the ring is left to those who must append.
    fn has_room_in_ring(&self, bytes: u64) -> bool {
        let capacity = self.ring.capacity();
        // No record takes more; the rest is a pledge.
        let bytes = bytes.min(capacity / 2);
        self.ring.filled_to(self.ring.reserved_about() + bytes) <= capacity - capacity / 4
    }

    /// See [`Wal::has_room`](super::Wal::has_room).
    #[inline]
    pub(super) fn has_room(&self, bytes: u64, must: bool) -> bool {
        ROOM.request();
        self.has_room_on_disk(bytes, must)
            && self.has_room_in_ring(bytes)
            && self.failure().is_none()
    }

    /// See [`Wal::when_room`](super::Wal::when_room).
    #[track_caller]
    pub(super) fn when_room(&self, bytes: u64, must: bool, done: RoomDone) {
        let waiter = Waiter { bytes, must, done, wait: ROOM.wait(Location::caller()) };
        {
            let mut state = self.room.state();
            state.waiters.push(waiter);
            // SeqCst: pairs with the load in `release_room`. We count ourselves, then look for
            // room; who makes room does so, then looks at the count. One of us sees the other.
            self.room.waiting.fetch_add(1, Ordering::SeqCst);
        }
        // The flusher leaves a ring alone that is less than half full.
        self.request(self.ring.reserved());
        self.release_room();
        if self.room.waiting.load(Ordering::SeqCst) > 0 {
            self.room.wake();
        }
    }

    /// Answers those who wait and can be answered. Called whenever there may be more room, or none
    /// any more.
    pub(super) fn release_room(&self) {
        // SeqCst: see `when_room`.
        if self.room.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let over = self.over();
        let mut answers = Vec::new();
        {
            let mut state = self.room.state();
            let (full, mut lacking) = (state.full.clone(), false);
            for waiter in std::mem::take(&mut state.waiters) {
                let on_disk = self.has_room_on_disk(waiter.bytes, waiter.must);
                let refusal = over.as_ref().or(full.as_ref().filter(|_| !on_disk && !waiter.must));
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
            // Others may have pledged or appended since the maker asked how much is wanted. For
            // lack of space it tries again by itself.
            if lacking && state.short.is_none() {
                state.news = true;
                self.room.state.notify_all();
            }
            self.room.waiting.fetch_sub(answers.len() as u64, Ordering::SeqCst);
        }
        for (waiter, answer) in answers {
            waiter.answer(answer);
        }
    }

    /// Replaces a pledge of `old` bytes by one of `new` bytes.
    pub(super) fn pledge(&self, old: u64, new: u64) {
        if new >= old {
            // Relaxed: see `has_room_on_disk`.
            self.room.pledged.fetch_add(new - old, Ordering::Relaxed);
        } else {
            // SeqCst: see `when_room`.
            self.room.pledged.fetch_sub(old - new, Ordering::SeqCst);
            self.release_room();
        }
    }

    /// Up to where there should be segments.
    fn wanted(&self) -> u64 {
        let widest = self.room.state().waiters.iter().map(|waiter| waiter.bytes).max().unwrap_or(0);
        let pledged = self.room.pledged.load(Ordering::Relaxed); // Relaxed: see `has_room_on_disk`.
        self.ring.reserved() + widest + pledged + 2 * self.room.reserve
    }

    /// Makes segments as they are wanted until the log stops or has failed.
    pub(super) fn keep_making_segments(&self) {
        let over = || self.stopping() || self.failure().is_some();
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
                // A segment that may or may not be there is nothing to go on with.
                Err(error) => self.fail((error.kind(), format!("cannot make a segment: {error}"))),
            }
            self.release_room();
            if !over() {
                self.room.wait_for_news(again);
            }
        }
    }

    /// Has the flusher wait until it is worth trying again to make a segment; false: it shall fail.
    /// Flusher only.
    pub(super) fn wait_for_space(&self, error: &io::Error, since: Instant) -> bool {
        if !clearway_env::is_full(error)
            || !self.waits_for_space()
            || self.stopping()
            || since.elapsed() >= self.room.waits.stall
        {
            return false;
        }
        tracing::error!("the log waits for room for its next segment: {error}");
        let state = self.room.state();
        // Whoever makes room wakes all; the maker may take the news for itself, hence the time.
        drop(self.room.state.wait_timeout_while(state, self.room.waits.retry, |s| !s.news));
        true
    }
}
