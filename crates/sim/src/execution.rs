//! One execution under shuttle: a seed's scheduler, a virtual clock, and the result.

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

/// Largest step of the clock while threads can run, in microseconds; and the largest step when the
/// clock is overdue, because that many steps take longer.
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
    /// How often each kind of event happened.
    pub counts: BTreeMap<&'static str, u64>,
}

impl Report {
    /// Adds `by` to the count of `what`.
    pub fn count(&mut self, what: &'static str, by: u64) {
        *self.counts.entry(what).or_default() += by;
    }
}

/// The result of an execution: its report and whether threads are left that do not end by
/// themselves; or a finding.
pub type Outcome = Result<(Report, bool), String>;

/// Runs `body` as the main thread of a seed's execution at this pace. An error, or a panic of any
/// thread, is a finding.
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
        // Threads of a killed or failed engine do not end by themselves: this panic ends the
        // execution.
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

/// Starts the thread that advances the virtual time until the execution is over, and calls `watch`
/// after each advance. After `most_steps` steps of all threads the execution counts as endless.
pub fn keep_time(
    seed: u64,
    signals: &Arc<Signals>,
    most_steps: u64,
    mut watch: impl FnMut() + Send + 'static,
) -> Result<JoinHandle<()>, String> {
    let (signals, mut rng) = (signals.clone(), Rng::new(seed, "time"));
    let keep = move || {
        // Relaxed, here and below: there is one OS thread.
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
