//! The free list: free frames, threads that wait for them, and when the cooler must work.
//!
//! # Invariants
//! 1. Every frame is in this list, in a [`crate::Reservation`], held by one read job, or holds a
//!    page.
//! 2. Frames promised to a `MissingPage::Frames` stay free for creations and reservations: reads
//!    leave that many in the list. Exception: a read that has waited [`FrameWaits::promise_rounds`]
//!    may take them, because the holder of a promise could be waiting for that page.
//! 3. Every waiter gets an answer: a frame; an error after [`FrameWaits::starved_rounds`] rounds of
//!    the cooler in which no frame became free; or an error when the pool fails or shuts down.
//! 4. Frames that become free are collected for the oldest waiting `MissingPage::Frames`: later
//!    reads leave that many, with the exception of invariant 2. Otherwise it might wait forever
//!    while frames become free one by one, because each read that gets one makes its round
//!    successful.
//!
//! # Locking
//! One monitor, the last in the order. The holder acquires nothing else, calls nothing back, and
//! does not panic. A hit does not use it.

use crate::error::PageError;
use crate::frame::FreeFrame;
use clearway_latch::Monitor;
use clearway_latch::lockstat::{Class, Wait};
use clearway_sync::canary::{self, Bug};
use clearway_types::PageId;
use std::collections::VecDeque;
use std::panic::Location;
use std::time::Duration;

/// How long to wait for a free frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameWaits {
    /// Rounds of the cooler without success, `retry` apart, after which a waiter gets
    /// [`PageError::NoFrames`]. All such rounds since it began to wait count. Default 5000.
    pub starved_rounds: u32,
    /// Rounds without success after which a read may take promised frames. Default 20.
    pub promise_rounds: u32,
    /// How long the cooler waits after a round without success while threads wait for frames. It
    /// must poll: unpinning wakes nobody, since a hit must be cheap. At least 0.1 ms; default 1 ms.
    pub retry: Duration,
    /// The same while no thread waits for a frame. At least 0.1 ms; default 20 ms.
    pub idle_retry: Duration,
}

impl Default for FrameWaits {
    fn default() -> Self {
        Self {
            starved_rounds: 5_000,
            promise_rounds: 20,
            retry: Duration::from_millis(1),
            idle_retry: Duration::from_millis(20),
        }
    }
}

impl FrameWaits {
    /// Enforces the minimum: if rounds followed at once, other threads would have no time to
    /// release anything.
    fn at_least(self) -> Self {
        let least = Duration::from_micros(100);
        Self { retry: self.retry.max(least), idle_retry: self.idle_retry.max(least), ..self }
    }
}

static FREE_LIST: Class = Class::new("buffer.free_list");
/// Waits of reads and promises that found too few free frames.
static FREE_FRAME: Class = Class::new("buffer.free_frame");

pub(crate) struct FreeList<W> {
    /// The cooler waits here for work.
    state: Monitor<State<W>>,
    /// The cooler works when fewer frames than this are free, until twice as many are.
    low: usize,
}

struct State<W> {
    limits: FrameWaits,
    frames: Vec<FreeFrame>,
    promised: usize,
    starved: VecDeque<Starved<W>>,
    cooler_awake: bool,
    /// Why frames are no longer granted.
    stopped: Option<PageError>,
    /// The number of needs that had to wait for frames.
    waits: u64,
}

struct Starved<W> {
    need: Need<W>,
    rounds: u32,
    wait: Wait,
}

pub(crate) enum Need<W> {
    /// A frame to read the page into.
    Page(PageId),
    /// This many free frames.
    Frames(u32, W),
}

impl<W> Need<W> {
    /// Returns the number of frames that must be granted together; zero for a page.
    fn many(&self) -> usize {
        match self {
            Self::Page(_) => 0,
            Self::Frames(n, _) => *n as usize,
        }
    }
}

/// The outcome of a need. The caller acts on it without holding a latch.
pub(crate) enum Granted<W> {
    Page(PageId, FreeFrame),
    Frames(u32, W),
    Refused(Need<W>, PageError),
}

impl<W> State<W> {
    fn wanting(&self, low: usize) -> bool {
        self.frames.len() < low + self.promised || !self.starved.is_empty()
    }

    /// Returns how many frames must be free to grant the need, including promised and collected
    /// frames, which it must leave. `starved` holds the needs that wait longer.
    fn least(&self, need: &Need<W>, over_promises: bool) -> usize {
        match need {
            Need::Page(_) if over_promises => 1,
            Need::Page(_) => {
                // Checking the oldest is enough: while it waits for a page, no more frames are free
                // than are promised, and none are collected.
                let collected = self.starved.front().map_or(0, |oldest| oldest.need.many());
                self.promised + collected + 1
            }
            Need::Frames(n, _) => self.promised + *n as usize,
        }
    }

    /// Grants a need for which enough frames are free.
    fn grant(&mut self, need: Need<W>) -> Option<Granted<W>> {
        match need {
            Need::Page(id) => self.frames.pop().map(|frame| Granted::Page(id, frame)),
            Need::Frames(n, done) => {
                self.promised += n as usize;
                Some(Granted::Frames(n, done))
            }
        }
    }

    /// Grants every need that can be granted, oldest first. A need that must wait longer does not
    /// block those behind it.
    fn serve(&mut self) -> Vec<Granted<W>> {
        let (mut granted, mut at) = (Vec::new(), 0);
        // Usually the oldest needs take all free frames, however many wait behind them.
        while !self.frames.is_empty()
            && let Some(Starved { need, rounds, .. }) = self.starved.get(at)
        {
            if self.frames.len() < self.least(need, *rounds > self.limits.promise_rounds) {
                at += 1;
            } else if let Some(Starved { need, wait, .. }) = self.starved.remove(at) {
                wait.end();
                granted.extend(self.grant(need));
            }
        }
        granted
    }
}

impl<W> FreeList<W> {
    pub fn new(frames: Vec<FreeFrame>, waits: FrameWaits) -> Self {
        let low = (frames.len() / 16).clamp(2, 1024);
        let starved = VecDeque::new();
        let limits = waits.at_least();
        let state = State {
            limits,
            frames,
            promised: 0,
            starved,
            cooler_awake: true,
            stopped: None,
            waits: 0,
        };
        Self { state: Monitor::new(&FREE_LIST, state), low }
    }

    /// Replaces the limits, also for current waiters.
    pub fn set_waits(&self, waits: FrameWaits) {
        self.state.lock().limits = waits.at_least();
    }

    fn wake_cooler(&self, state: &mut State<W>) {
        if !state.cooler_awake && state.wanting(self.low) {
            state.cooler_awake = true;
            if !canary::on(Bug::LostWakeUp) {
                self.state.notify_one();
            }
        }
    }

    /// Grants the need now, or later through [`FreeList::put`] and similar methods.
    #[track_caller]
    pub fn request(&self, need: Need<W>) -> Option<Granted<W>> {
        FREE_FRAME.request();
        let mut state = self.state.lock();
        let granted = if state.frames.len() >= state.least(&need, false) {
            state.grant(need)
        } else if let Some(error) = &state.stopped {
            Some(Granted::Refused(need, error.clone()))
        } else {
            state.waits += 1;
            state.starved.push_back(Starved {
                need,
                rounds: 0,
                wait: FREE_FRAME.wait(Location::caller()),
            });
            self.state.notify_one();
            None
        };
        self.wake_cooler(&mut state);
        granted
    }

    /// Takes `n` free frames now, promised or not.
    pub fn take(&self, n: usize) -> Option<Vec<FreeFrame>> {
        let mut state = self.state.lock();
        let taken = state.frames.len().checked_sub(n).map(|left| state.frames.split_off(left));
        self.wake_cooler(&mut state);
        taken
    }

    /// Takes one free frame now, promised or not.
    pub fn take_one(&self) -> Option<FreeFrame> {
        let mut state = self.state.lock();
        let taken = state.frames.pop();
        self.wake_cooler(&mut state);
        taken
    }

    #[must_use]
    pub fn put(&self, frames: impl IntoIterator<Item = FreeFrame>) -> Vec<Granted<W>> {
        let mut state = self.state.lock();
        state.frames.extend(frames);
        state.serve()
    }

    #[must_use]
    pub fn end_promise(&self, n: u32) -> Vec<Granted<W>> {
        let mut state = self.state.lock();
        state.promised -= n as usize;
        state.serve()
    }

    /// Returns the number of free frames, and the number of needs that had to wait.
    pub fn counts(&self) -> (usize, u64) {
        let state = self.state.lock();
        (state.frames.len(), state.waits)
    }

    /// Returns how many frames the cooler should free now.
    pub fn deficit(&self) -> usize {
        let state = self.state.lock();
        let wanted: usize = state.starved.iter().map(|starved| starved.need.many().max(1)).sum();
        (2 * self.low + state.promised + wanted).saturating_sub(state.frames.len())
    }

    /// Called after a round without success. Returns the needs that have waited too long, or all of
    /// them if the pool has failed.
    #[must_use]
    pub fn age(&self, failed: Option<&PageError>) -> Vec<Granted<W>> {
        let mut state = self.state.lock();
        let (mut refused, mut waiting) = (Vec::new(), VecDeque::new());
        for Starved { need, rounds, wait } in std::mem::take(&mut state.starved) {
            let error = match failed {
                Some(error) => error.clone(),
                None if rounds >= state.limits.starved_rounds => PageError::NoFrames,
                None => {
                    waiting.push_back(Starved { need, rounds: rounds + 1, wait });
                    continue;
                }
            };
            wait.end();
            refused.push(Granted::Refused(need, error));
        }
        state.starved = waiting;
        refused.extend(state.serve());
        refused
    }

    /// Blocks the cooler until there is work. Returns true if the pool has stopped.
    pub fn wait_for_work(&self, last_round_fruitful: bool) -> bool {
        let mut state = self.state.lock();
        if !last_round_fruitful && state.stopped.is_none() && state.wanting(self.low) {
            let pause =
                if state.starved.is_empty() { state.limits.idle_retry } else { state.limits.retry };
            state = self.state.wait_timeout(state, pause).0;
        }
        while state.stopped.is_none() && !state.wanting(self.low) {
            state.cooler_awake = false;
            state = self.state.wait(state);
        }
        state.cooler_awake = true;
        state.stopped.is_some()
    }

    /// Stops the cooler and refuses all current and later waiters. The first error is the one they
    /// get.
    #[must_use]
    pub fn stop(&self, why: PageError) -> Vec<Granted<W>> {
        let mut state = self.state.lock();
        let why = state.stopped.get_or_insert(why).clone();
        self.state.notify_all();
        let refuse = |Starved { need, wait, .. }| {
            wait.end();
            Granted::Refused(need, why.clone())
        };
        std::mem::take(&mut state.starved).into_iter().map(refuse).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Arena;
    use clearway_env::SeededEntropy;
    use clearway_types::PartitionId;

    /// Invariant 3: no waiter waits forever.
    #[test]
    fn waits_fail_after_the_limit() {
        let list = FreeList::new(Vec::new(), FrameWaits::default());
        let id = PageId::new(PartitionId(0), 0);
        assert!(list.request(Need::Page(id)).is_none());
        assert!(list.request(Need::Frames(2, ())).is_none());
        for _ in 0..FrameWaits::default().starved_rounds {
            assert!(list.age(None).is_empty());
        }
        let refused = list.age(None);
        assert!(refused.iter().all(|g| matches!(g, Granted::Refused(_, PageError::NoFrames))));
        assert_eq!(refused.len(), 2);
        assert!(list.request(Need::Page(id)).is_none());
        assert!(matches!(
            list.stop(PageError::Closed)[..],
            [Granted::Refused(Need::Page(_), PageError::Closed)]
        ));
        assert!(matches!(
            list.request(Need::Page(id)),
            Some(Granted::Refused(_, PageError::Closed))
        ));
    }

    /// Invariant 4.
    #[test]
    fn later_reads_do_not_take_collected_frames() {
        let list = FreeList::new(Arena::new(4).1, FrameWaits::default());
        let mut frames = list.take(4).unwrap();
        let id = PageId::new(PartitionId(0), 0);
        assert!(
            list.request(Need::Page(id)).is_none() && list.request(Need::Frames(2, ())).is_none()
        );
        assert_eq!(list.deficit(), 2 * list.low + 3);
        assert!(matches!(list.put(frames.pop())[..], [Granted::Page(..)]), "it came before");
        assert!(list.put(frames.pop()).is_empty());
        assert!(list.request(Need::Page(id)).is_none(), "it comes later");
        assert!(matches!(list.put(frames.pop())[..], [Granted::Frames(2, _)]));
        assert!(list.end_promise(2).iter().all(|granted| matches!(granted, Granted::Page(..))));
    }

    /// Invariant 2, and its exception.
    #[test]
    fn reads_leave_promised_frames_until_they_have_waited() {
        let list = FreeList::new(Arena::new(4).1, FrameWaits::default());
        let id = PageId::new(PartitionId(0), 0);
        assert!(matches!(list.request(Need::Frames(4, ())), Some(Granted::Frames(4, _))));
        assert!(list.request(Need::Page(id)).is_none());
        assert!(list.put([]).is_empty());
        assert_eq!(list.take(1).map(|f| f.len()), Some(1), "a creation may take it");
        let granted =
            (0..=FrameWaits::default().promise_rounds + 1).find_map(|_| list.age(None).pop());
        assert!(matches!(granted, Some(Granted::Page(..))));
        assert!(list.end_promise(4).is_empty());
        assert!(matches!(list.request(Need::Page(id)), Some(Granted::Page(..))));
    }

    /// What the list should grant, taken literally from invariants 2 and 4. A need is its number of
    /// frames; a page's is 0.
    struct Model {
        free: usize,
        promised: usize,
        waiting: Vec<usize>,
    }

    impl Model {
        fn grants(&mut self) -> Vec<usize> {
            let (mut granted, mut at) = (Vec::new(), 0);
            while let Some(&many) = self.waiting.get(at) {
                let collected =
                    self.waiting[..at].iter().copied().find(|many| *many > 0).unwrap_or(0);
                let left = self.promised + if many == 0 { collected + 1 } else { many };
                if self.free < left {
                    at += 1;
                    continue;
                }
                self.free -= usize::from(many == 0);
                self.promised += many;
                granted.push(self.waiting.remove(at));
            }
            granted
        }
    }

    /// Invariants 2 and 4, for any order of waiters.
    #[test]
    fn grants_are_those_of_the_model() {
        const FRAMES: usize = 12;
        for seed in 0..200 {
            let random = SeededEntropy::new(seed);
            let list = FreeList::new(Arena::new(FRAMES as u32).1, FrameWaits::default());
            let mut model = Model { free: FRAMES, promised: 0, waiting: Vec::new() };
            let (mut used, mut promises) = (Vec::new(), Vec::new());
            for step in 0..300 {
                let granted = match random.below(6) {
                    0 | 1 => {
                        model.waiting.push(0);
                        list.request(Need::Page(PageId::new(PartitionId(0), step)))
                            .into_iter()
                            .collect()
                    }
                    2 => {
                        let many = 1 + random.below(4);
                        model.waiting.push(many as usize);
                        list.request(Need::Frames(many as u32, ())).into_iter().collect()
                    }
                    3 if !promises.is_empty() => {
                        let many: u32 =
                            promises.swap_remove(random.below(promises.len() as u64) as usize);
                        model.promised -= many as usize;
                        list.end_promise(many)
                    }
                    4 => {
                        used.extend(list.take_one());
                        model.free = list.counts().0;
                        Vec::new()
                    }
                    _ => {
                        let put = used.split_off(
                            used.len() - random.below(used.len() as u64 + 1).min(3) as usize,
                        );
                        model.free += put.len();
                        list.put(put)
                    }
                };
                let mut grants = Vec::new();
                for one in granted {
                    match one {
                        Granted::Page(_, frame) => {
                            used.push(frame);
                            grants.push(0);
                        }
                        Granted::Frames(many, _) => {
                            promises.push(many);
                            grants.push(many as usize);
                        }
                        Granted::Refused(_, why) => panic!("seed {seed}, step {step}: {why}"),
                    }
                }
                assert_eq!(grants, model.grants(), "seed {seed}, step {step}");
                assert_eq!(list.counts().0, model.free, "seed {seed}, step {step}");
            }
        }
    }
}
