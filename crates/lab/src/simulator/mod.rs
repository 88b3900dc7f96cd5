//! A machine with N cores in virtual time, around the real code of the wrappers.
//!
//! One OS thread plays all threads of the machine, each with its own thread index. When a thread's
//! next access is due, the simulator calls the wrapper's real `hit`. The policy inside is a
//! [`timed::Timed`]: each operation runs and then consumes virtual time. During that time the other
//! threads' accesses are simulated, *while the caller is inside the wrapper and holds its real
//! latch*. Their `try_lock` therefore really fails, and queues really fill. Only waiting is
//! simulated: a thread whose access would block ([`Blocks`]) is not called before the latch is
//! free. With sublists, each with its own latch, a hit returns at once and then consumes its time.
//! All hits wait for their latch, so the result is the same.
//!
//! [`Costs`] gives the duration of each operation. Interrupts are not modelled, nor wake-ups that
//! preempt a running thread.
//!
//! # Invariants
//! 1. Accesses are simulated in the order of their virtual time.
//! 2. While a latch is held, no thread is called whose access would wait for it.
//! 3. A core runs one thread at a time. A thread is on a core, runnable, asleep at a latch, or
//!    spinning at one.
//!
//! Source: BP-Wrapper's question (Ding, Jiang, Zhang, ICDE 2009): the same system on more
//! processors.

pub mod costs;
mod schedule;
#[cfg(test)]
mod tests;
mod timed;

use crate::place::Placed;
use clearway_latch::conformance::as_thread;
use clearway_replacement::{Multilist, MultilistKind, Policy, PolicyKind, Replacement};
use clearway_types::{FrameId, PageId, PartitionId};
use costs::Costs;
use schedule::Schedule;
use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use timed::Timed;

/// The pages accessed by each transaction of a workload. Page `n` is in frame `n`: all are
/// resident.
pub type Transactions = Arc<[Box<[u32]>]>;

/// When a hit waits for the latch; the simulator must know this before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// Whenever the latch is held.
    Always,
    /// If the latch is held and the hit fills the thread's queue. The latch is tried from the
    /// `threshold`th hit on.
    Full {
        /// Queue capacity: the source's S.
        queue: u32,
        /// Hits after which the latch is tried: the source's T.
        threshold: u32,
    },
    /// Never.
    Never,
}

/// Maximum relative deviation of a simulated value from a published one that it meets.
pub const TOLERANCE: f64 = 0.1;

/// Wraps a policy of this many frames.
pub type Wrap = fn(Box<dyn Policy>, u32) -> Box<dyn Replacement>;

/// The code under test.
#[derive(Clone, Copy)]
pub enum Called {
    /// A policy in its wrapper, or a replacement without one. It has one latch.
    Wrapped(PolicyKind, Wrap),
    /// A policy with this many sublists, each with a latch.
    Sublists(MultilistKind, u32),
}

impl Called {
    /// Builds it for this many frames. Also returns, for each frame, the latch that its hits take.
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

/// The simulated system.
#[derive(Clone, Copy)]
pub struct System {
    /// Its code.
    pub called: Called,
    /// When its hits wait.
    pub blocks: Blocks,
    /// Whether it prefetches data before it requests the latch.
    pub prefetches: bool,
}

/// The simulated machine, and the length of the simulation.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Processors.
    pub cores: usize,
    /// Threads; at most `cores` of them run at a time.
    pub threads: usize,
    /// Costs of its operations.
    pub costs: Costs,
    /// Number of simulated accesses, over all threads.
    pub accesses: u64,
    /// Seed for transactions and work times.
    pub seed: u64,
}

impl Placed for Outcome {}

/// Result of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Simulated accesses.
    pub accesses: u64,
    /// Virtual time, in nanoseconds.
    pub elapsed_ns: f64,
    /// Finished transactions.
    pub transactions: u64,
    /// Mean time from the start of a transaction to its end, in nanoseconds; NaN if none ended.
    pub response_ns: f64,
    /// Requests for the latch that were not granted immediately; failed tries do not count.
    pub waits: u64,
    /// Granted tries and requests.
    pub acquisitions: u64,
    /// Total time waited for the latch, in nanoseconds.
    pub waited_ns: f64,
    /// Total time the latch was held, in nanoseconds.
    pub held_ns: f64,
}

impl Outcome {
    /// Returns the accesses per microsecond.
    pub fn rate(&self) -> f64 {
        self.accesses as f64 * 1e3 / self.elapsed_ns
    }

    /// Returns the requests for the latch that waited, per million accesses.
    pub fn contention(&self) -> f64 {
        self.waits as f64 * 1e6 / self.accesses as f64
    }

    /// Returns the time to acquire and hold the latch, per access, in nanoseconds.
    pub fn lock_ns(&self) -> f64 {
        (self.waited_ns + self.held_ns) / self.accesses as f64
    }
}

/// The simulation running on this thread: its schedule and the code under test.
struct Running {
    schedule: Schedule,
    replacement: Arc<dyn Replacement>,
    /// Whether a hit is one operation of the policy that consumes time after it returns.
    takes_time: bool,
}

thread_local! {
    static RUNNING: RefCell<Option<Running>> = const { RefCell::new(None) };
}

/// Simulates the system on the machine.
pub fn simulate(system: &System, machine: &Machine, transactions: &Transactions) -> Outcome {
    let frames =
        transactions.iter().flat_map(|pages| pages.iter()).max().map_or(1, |last| last + 1);
    let (replacement, latch_of) = system.called.build(frames);
    // The pool is filled before the clock starts.
    (0..frames).for_each(|frame| as_thread(0, || replacement.miss(FrameId(frame), page(frame))));
    let schedule = Schedule::new(system, machine, transactions.clone(), latch_of);
    let takes_time = matches!(system.called, Called::Sublists(..));
    RUNNING.set(Some(Running { schedule, replacement, takes_time }));
    run_until(u64::MAX);
    let played = RUNNING.take();
    played.map_or_else(Outcome::default, |running| running.schedule.outcome())
}

/// Calls `one` with 0 to `count` on as many OS threads as there are cores, and returns the results
/// in this order. A simulation depends on no other, so results do not depend on the cores.
pub fn on_all_cores<T: Send>(count: usize, one: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        loop {
            // Relaxed: only the number itself is shared.
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return;
            }
            let result = one(at);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    // The scope's end joins the threads, and panics if one of them did.
    thread::scope(|scope| (0..cores.min(count)).for_each(|_| drop(scope.spawn(work))));
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Returns the page with this number.
fn page(no: u32) -> PageId {
    PageId::new(PartitionId(0), no)
}

/// Simulates everything due before `limit`, or until the caller regains the core it lost. Runs
/// nested inside the wrapper while a thread is in its critical section.
fn run_until(limit: u64) {
    while let Some((thread, frame, replacement)) = with_running(|running| {
        let (thread, frame) = running.schedule.next_call(limit)?;
        Some((thread, frame, running.replacement.clone()))
    })
    .flatten()
    {
        as_thread(thread, || replacement.hit(FrameId(frame), page(frame)));
        with_running(|running| {
            if running.takes_time {
                running.schedule.operation(frame);
            }
            running.schedule.call_ended();
        });
    }
}

/// Returns `None` if no simulation is running: then a timed policy behaves like any other.
fn with_running<R>(f: impl FnOnce(&mut Running) -> R) -> Option<R> {
    RUNNING.with_borrow_mut(|running| running.as_mut().map(f))
}
