//! Picks the next thread: the seed decides at each step, with a drawn switching rate and
//! unevenness.
//!
//! Task 0 is the execution's main thread. The clock's thread is recognised by its name: it runs
//! when no other thread can (then `idle` is set), and occasionally besides.

use crate::rng::Rng;
use crate::world::Pace;
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The name of the thread that advances the virtual clock.
pub const TIME: &str = "time";

/// In one of this many steps the clock may advance although threads can run, if the world allows
/// that.
const TIME_STEPS: u64 = 2_000;

/// Steps after which the clock advances in any world: threads that only take pages from each other
/// would otherwise stop it forever.
const LONGEST_STANDSTILL: u64 = 100_000;

/// In one of this many steps a parked thread may wake spuriously.
const SPURIOUS_STEPS: u64 = 1_000;

/// If the world has stalls: in one of this many steps a thread is stalled; and the maximum number
/// of steps of a stall.
const STALL_STEPS: u64 = 300;
const LONGEST_STALL: u64 = 3_000;

/// State shared by the scheduler and the execution.
#[derive(Default)]
pub struct Signals {
    /// Only the clock's thread can run, or the others only spin: the clock should advance.
    pub idle: AtomicBool,
    /// Only the clock's thread can run.
    pub stuck: AtomicBool,
    /// Threads have run for long and the clock has not advanced.
    pub overdue: AtomicBool,
    /// Steps so far.
    pub steps: AtomicU64,
    /// The execution is over: the clock's thread ends.
    pub over: AtomicBool,
}

/// The scheduler of one seed's execution.
pub struct Seeded {
    rng: Rng,
    pace: Pace,
    weights: Vec<u64>,
    signals: Arc<Signals>,
    /// Which tasks are the clock's, by number; found by name.
    is_time: Vec<Option<bool>>,
    begun: bool,
    others: Vec<TaskId>,
    /// The stalled thread, and the step at which the stall ends.
    stalled: Option<(TaskId, u64)>,
    /// The step at which the clock's thread last ended a round.
    moved: u64,
}

impl Seeded {
    /// Creates a scheduler at this pace; the seed decides the rest.
    pub fn new(seed: u64, pace: Pace, signals: Arc<Signals>) -> Self {
        let mut rng = Rng::new(seed, "schedule");
        let weights =
            (0..64).map(|_| if pace.uneven { rng.pick(&[1, 4, 16, 64]) } else { 1 }).collect();
        let (is_time, others) = (Vec::new(), Vec::new());
        Self { rng, pace, weights, signals, is_time, begun: false, others, stalled: None, moved: 0 }
    }

    fn is_time(&mut self, task: &Task) -> bool {
        let number = usize::from(task.id());
        if number >= self.is_time.len() {
            self.is_time.resize(number + 1, None);
        }
        *self.is_time[number].get_or_insert_with(|| task.name().as_deref() == Some(TIME))
    }

    fn weight(&self, task: TaskId) -> u64 {
        self.weights[usize::from(task) % self.weights.len()]
    }

    fn choose(&mut self) -> Option<TaskId> {
        let total: u64 = self.others.iter().map(|t| self.weight(*t)).sum();
        let mut at = self.rng.below(total);
        self.others.iter().copied().find(|t| {
            let weight = self.weight(*t);
            let here = at < weight;
            at = at.saturating_sub(weight);
            here
        })
    }
}

impl Scheduler for Seeded {
    fn new_execution(&mut self) -> Option<Schedule> {
        // One execution a seed.
        (!std::mem::replace(&mut self.begun, true)).then(|| Schedule::new(0))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        // Relaxed, here and below: there is one OS thread.
        let step = self.signals.steps.fetch_add(1, Ordering::Relaxed);
        if self.pace.stalls && self.rng.below(STALL_STEPS) == 0 {
            self.stalled = current.map(|current| (current, step + self.rng.below(LONGEST_STALL)));
        }
        let stalled = self.stalled.filter(|(_, until)| step < *until).map(|(task, _)| task);
        if let Some(current) = current
            && stalled != Some(current)
            && !is_yielding
            && self.rng.below(1000) >= self.pace.switches
            && let Some(task) = runnable.iter().find(|t| t.id() == current)
            && !task.blocked()
            && !self.is_time(task)
        {
            return Some(current);
        }
        if is_yielding
            && current.is_some_and(|current| {
                runnable.iter().any(|t| t.id() == current && self.is_time(t))
            })
        {
            self.moved = step;
        }
        self.others.clear();
        let mut time = None;
        // A parked thread may wake spuriously, but rarely; that is no reason to stop the clock.
        let spurious = self.rng.below(SPURIOUS_STEPS) == 0;
        for task in runnable {
            if self.is_time(task) {
                time = Some(task.id());
            } else if spurious || !task.blocked() {
                self.others.push(task.id());
            }
        }
        if is_yielding && self.others.len() > 1 {
            self.others.retain(|t| Some(*t) != current);
        }
        if self.others.len() > 1 {
            self.others.retain(|t| Some(*t) != stalled);
        }
        // A thread that only spins may be waiting for a time.
        let waits =
            is_yielding && self.others.len() == 1 && self.others.first() == current.as_ref();
        let idle = self.others.is_empty() || (waits && time.is_some() && self.rng.below(4) == 0);
        self.signals.idle.store(idle, Ordering::Relaxed);
        self.signals.stuck.store(self.others.is_empty(), Ordering::Relaxed);
        // Stays set for the whole round: the clock's thread must not wait as long again in the
        // middle of it.
        let overdue = time.is_some() && step - self.moved > LONGEST_STANDSTILL;
        self.signals.overdue.store(overdue, Ordering::Relaxed);
        if idle
            || overdue
            || (time.is_some() && self.pace.impatient && self.rng.below(TIME_STEPS) == 0)
        {
            return time.or_else(|| runnable.first().map(|t| t.id()));
        }
        self.choose()
    }

    fn next_u64(&mut self) -> u64 {
        self.rng.u64()
    }
}
