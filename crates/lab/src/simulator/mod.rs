//! A machine of N cores in virtual time, around the real code of the wrappers.
//!
//! One thread of the operating system plays all threads of the machine, each by its own thread
//! index. When a thread's next access is due, the wrapper's real `hit` is called. The policy inside
//! is a [`timed::Timed`] one: each of its operations is done and then takes virtual time, in which
//! the other threads' accesses are played, *while the caller is inside the wrapper and has the
//! wrapper's real latch*. So a `try_lock` of theirs really fails, and queues really fill. Only
//! waiting is played: a thread whose access would block ([`Blocks`]) is not called before the latch
//! is free. Over sublists, each with a latch of its own, a hit returns at once and then takes its
//! time: as all hits wait for their latch, nobody could tell the difference.
//!
//! What time things take are [`Costs`]. What is not modelled: interrupts, and that who is woken may
//! take a core from who runs.
//!
//! # Invariants
//! 1. Accesses are played in the order of their virtual time.
//! 2. While a latch is held, no thread is called whose access would wait for it.
//! 3. A core runs one thread at a time; a thread is on a core, ready, asleep at a latch, or
//!    spinning there.
//!
//! Source: the question of BP-Wrapper (Ding, Jiang, Zhang, ICDE 2009): the same system on more
//! processors.

pub mod costs;
mod schedule;
#[cfg(test)]
mod tests;
mod timed;

use clearway_latch::thread_index::act_as;
use clearway_replacement::{Multilist, MultilistKind, Policy, PolicyKind, Replacement};
use clearway_types::{FrameId, PageId, PartitionId};
use costs::Costs;
use schedule::Schedule;
use std::cell::RefCell;
use std::sync::Arc;
use timed::Timed;

/// Pages that a workload's transactions access, one after the other. Page `n` is in frame `n`: all
/// are resident.
pub type Transactions = Arc<[Box<[u32]>]>;

/// When a hit waits for the latch, which the simulator has to know before it calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// Whenever the latch is held.
    Always,
    /// When the latch is held and the thread's queue, which has room for `queue` hits, becomes
    /// full; it is tried from the `threshold`th on.
    Full {
        /// The source's S.
        queue: u32,
        /// The source's T.
        threshold: u32,
    },
    /// Never.
    Never,
}

/// A tenth: how far a simulated value may be from a published one that it meets.
pub const TOLERANCE: f64 = 0.1;

/// Puts a policy of so many frames into its wrapper.
pub type Wrap = fn(Box<dyn Policy>, u32) -> Box<dyn Replacement>;

/// The code that is called.
#[derive(Clone, Copy)]
pub enum Called {
    /// A policy in its wrapper, or what is there without one. It has one latch.
    Wrapped(PolicyKind, Wrap),
    /// A policy over so many sublists, each with a latch.
    Sublists(MultilistKind, u32),
}

impl Called {
    /// For so many frames; and for each of them the latch that its hits take.
    fn build(self, frames: u32) -> (Arc<dyn Replacement>, Vec<u32>) {
        match self {
            Self::Wrapped(policy, wrap) => (
                wrap(Box::new(Timed::new(policy.build(frames))), frames).into(),
                vec![0; frames as usize],
            ),
            Self::Sublists(kind, sublists) => {
                let multilist = Multilist::with_sublists(kind, frames, sublists);
                let latch_of = (0..frames).map(|frame| multilist.sublist_of(page(frame))).collect();
                (Arc::new(multilist), latch_of)
            }
        }
    }
}

/// The system that is simulated.
#[derive(Clone, Copy)]
pub struct System {
    /// Its code.
    pub called: Called,
    /// When its hits wait.
    pub blocks: Blocks,
    /// Whether it asks for what it will touch before it asks for the latch.
    pub prefetches: bool,
}

/// The machine, and how long it is watched.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Processors.
    pub cores: usize,
    /// Threads, of which at most so many as there are cores run at a time.
    pub threads: usize,
    /// What time things take.
    pub costs: Costs,
    /// Accesses of all threads that are played.
    pub accesses: u64,
    /// Draws transactions and how long work takes.
    pub seed: u64,
}

/// What came of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Accesses that were played.
    pub accesses: u64,
    /// Virtual time, in nanoseconds.
    pub elapsed_ns: f64,
    /// Transactions that ended.
    pub transactions: u64,
    /// From the beginning of a transaction to its end, in nanoseconds, the mean; no number if none
    /// ended.
    pub response_ns: f64,
    /// Requests for the latch that were not granted at once; tries that failed are none.
    pub waits: u64,
    /// Tries and requests that were granted.
    pub acquisitions: u64,
    /// How long was waited for the latch, all together, in nanoseconds.
    pub waited_ns: f64,
    /// How long the latch was held, all together, in nanoseconds.
    pub held_ns: f64,
}

impl Outcome {
    /// Accesses in a microsecond.
    pub fn rate(&self) -> f64 {
        self.accesses as f64 * 1e3 / self.elapsed_ns
    }

    /// Requests for the latch that waited, in a million accesses.
    pub fn contention(&self) -> f64 {
        self.waits as f64 * 1e6 / self.accesses as f64
    }

    /// Time to acquire and to hold the latch, by access, in nanoseconds.
    pub fn lock_ns(&self) -> f64 {
        (self.waited_ns + self.held_ns) / self.accesses as f64
    }
}

/// What is being played on this thread: the schedule, and what is called.
struct Playing {
    schedule: Schedule,
    replacement: Arc<dyn Replacement>,
    /// Whether a hit is one operation of the policy that takes time when it has returned.
    takes_time: bool,
}

thread_local! {
    static PLAYING: RefCell<Option<Playing>> = const { RefCell::new(None) };
}

/// Plays the system on the machine.
pub fn simulate(system: &System, machine: &Machine, transactions: &Transactions) -> Outcome {
    let frames =
        transactions.iter().flat_map(|pages| pages.iter()).max().map_or(1, |last| last + 1);
    let (replacement, latch_of) = system.called.build(frames);
    // Filled before the clock runs.
    (0..frames).for_each(|frame| act_as(0, || replacement.miss(FrameId(frame), page(frame))));
    let schedule = Schedule::new(system, machine, transactions.clone(), latch_of);
    let takes_time = matches!(system.called, Called::Sublists(..));
    PLAYING.set(Some(Playing { schedule, replacement, takes_time }));
    play_until(u64::MAX);
    let played = PLAYING.take();
    played.map_or_else(Outcome::default, |playing| playing.schedule.outcome())
}

/// The page of that number.
fn page(no: u32) -> PageId {
    PageId::new(PartitionId(0), no)
}

/// Plays all that is due before `limit`, or until who called it has the core again that it had
/// lost. Called again, from inside the wrapper, while a thread is in its critical section.
fn play_until(limit: u64) {
    while let Some((thread, frame, replacement)) = with_playing(|playing| {
        let (thread, frame) = playing.schedule.next_call(limit)?;
        Some((thread, frame, playing.replacement.clone()))
    })
    .flatten()
    {
        act_as(thread, || replacement.hit(FrameId(frame), page(frame)));
        with_playing(|playing| {
            if playing.takes_time {
                playing.schedule.operation(frame);
            }
            playing.schedule.call_ended();
        });
    }
}

/// Nothing where nothing is being played: then a timed policy is like any other.
fn with_playing<R>(f: impl FnOnce(&mut Playing) -> R) -> Option<R> {
    PLAYING.with_borrow_mut(|playing| playing.as_mut().map(f))
}
