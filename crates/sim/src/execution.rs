//! One execution under shuttle: a seed's scheduler, a virtual time, and what it was found to be.

use crate::panics;
use crate::rng::Rng;
use crate::schedule::{Seeded, Signals, TIME};
use crate::world::Pace;
use clearway_sync::thread::{self, JoinHandle};
use clearway_sync::virtual_time;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The time moves by less than this while threads can go on, in microseconds; and where it is
/// overdue, since so many steps take longer.
const MOVE_US: u64 = 2_000;
const LONG_MOVE_US: u64 = 200_000;
/// Bytes of each thread's stack.
const STACK: usize = 1 << 20;

/// What a run of a seed did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The hash of all that happened, and the number of events.
    pub trace: (u64, u64),
    /// Steps of all threads.
    pub steps: u64,
    /// How often what has happened.
    pub counts: BTreeMap<&'static str, u64>,
}

impl Report {
    /// Counts what has happened `by` times more.
    pub fn count(&mut self, what: &'static str, by: u64) {
        *self.counts.entry(what).or_default() += by;
    }
}

/// What an execution has come to: its report, and whether threads are left that do not end by
/// themselves; or a finding.
pub type Outcome = Result<(Report, bool), String>;

/// Runs `body` as the main thread of a seed's execution at this pace. An error is a finding, and so
/// is a panic of any thread.
pub fn run(
    seed: u64,
    pace: Pace,
    body: impl Fn(&Arc<Signals>) -> Outcome + Send + Sync + 'static,
) -> Result<Report, String> {
    let signals = Arc::new(Signals::default());
    let outcome: Arc<Mutex<Option<Result<Report, String>>>> = Arc::default();
    let mut config = shuttle::Config::new();
    config.stack_size = STACK;
    config.max_steps = shuttle::MaxSteps::None;
    config.failure_persistence = shuttle::FailurePersistence::None;
    config.silence_warnings = true;
    let runner = shuttle::Runner::new(Seeded::new(seed, pace, signals.clone()), config);
    let (put, steps) = (outcome.clone(), signals.clone());
    let main = move || {
        virtual_time::reset();
        let result = body(&signals);
        let threads_left = result.as_ref().map_or(true, |(_, leaks)| *leaks);
        let result = match (result, panics::take()) {
            (Ok((report, _)), None) => Ok(report),
            (Ok(_), Some(panic)) => Err(format!("a thread panicked: {panic}")),
            (Err(finding), None) => Err(finding),
            (Err(finding), Some(panic)) => {
                Err(format!("{finding}\n  and a thread panicked: {panic}"))
            }
        };
        *put.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        // Threads of an engine that was killed, or has been found wrong, do not end by themselves:
        // the panic ends the execution.
        assert!(!threads_left, "the end");
    };
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runner.run(main)));
    let found = outcome.lock().unwrap_or_else(PoisonError::into_inner).take();
    let panicked = panics::take();
    let report = match (ended, found) {
        (Ok(_), Some(Ok(report))) => report,
        // Ended by the panic above.
        (Err(_), Some(Ok(report))) if panicked.as_ref().is_some_and(|p| p.ends_with("the end")) => {
            report
        }
        (_, Some(Err(finding))) => return Err(finding),
        (Err(_), _) => return Err(format!("a thread panicked: {}", panicked.unwrap_or_default())),
        (Ok(_), None) => return Err("the execution ended without a result".into()),
    };
    Ok(Report { steps: steps.steps.load(Ordering::Relaxed), ..report })
}

/// Starts the thread that moves the virtual time until the execution is over, and calls `watch`
/// after each move. After `most_steps` of all threads the execution is taken for endless.
pub fn keep_time(
    seed: u64,
    signals: &Arc<Signals>,
    most_steps: u64,
    mut watch: impl FnMut() + Send + 'static,
) -> Result<JoinHandle<()>, String> {
    let (signals, mut rng) = (signals.clone(), Rng::new(seed, "time"));
    let keep = move || {
        // Relaxed, here and below: all in one thread of the operating system.
        while !signals.over.load(Ordering::Relaxed) {
            if signals.idle.load(Ordering::Relaxed) {
                let moved = virtual_time::advance_to_next();
                assert!(
                    moved || !signals.stuck.load(Ordering::Relaxed),
                    "every thread waits, and none for a time"
                );
            } else {
                let most =
                    if signals.overdue.load(Ordering::Relaxed) { LONG_MOVE_US } else { MOVE_US };
                virtual_time::advance(Duration::from_micros(rng.below(most)));
            }
            watch();
            assert!(
                signals.steps.load(Ordering::Relaxed) < most_steps,
                "{most_steps} steps, and no end"
            );
            thread::yield_now();
        }
    };
    thread::Builder::new().name(TIME.into()).spawn(keep).map_err(|e| e.to_string())
}
