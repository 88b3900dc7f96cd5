//! Measures a cache's throughput on a trace. Threads take the accesses in order, a block at a time,
//! and insert missing keys.
//!
//! No thread falls more than a block behind, even if it loses its core. The hit ratio therefore
//! reflects the trace's order.

use super::contender::{CacheTask, Contender, SharedCache};
use clearway_harness::Res;
use clearway_latch::CachePadded;
use clearway_traces::Trace;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Accesses that a thread takes at a time: few compared with a pool, many compared with the one
/// atomic instruction that takes them.
const BLOCK: usize = 32;
/// A run that was too short is repeated with this many times the passes that would have sufficed.
const PASSES_MARGIN: f64 = 1.2;
/// Maximum factor on the passes in one step.
const MAX_FACTOR: f64 = 1_000.0;

/// Result of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunResult {
    /// Accesses per microsecond, over all threads.
    pub rate: f64,
    /// Hit ratio in percent.
    pub hit_percent: f64,
    /// Length of the run.
    pub elapsed: Duration,
}

/// A trace and the threads that replay it.
#[derive(Clone, Copy, Debug)]
pub struct Race<'a> {
    /// The accesses, in order.
    pub trace: &'a Trace,
    /// Number of threads.
    pub threads: usize,
    /// Number of times the trace is replayed.
    pub passes: usize,
}

impl Race<'_> {
    /// Runs on a new cache of this many entries.
    pub fn run(self, contender: Contender, frames: u32) -> Res<RunResult> {
        contender
            .with_new(frames, self)
            .flatten()
            .map_err(|why| format!("{contender} on {}: {why}", self.trace.name))
    }

    /// Runs until a run lasts at least `min`: a shorter one is repeated with more passes, which
    /// are kept for the next call.
    pub fn run_at_least(
        &mut self,
        min: Duration,
        contender: Contender,
        frames: u32,
    ) -> Res<RunResult> {
        loop {
            let result = self.run(contender, frames)?;
            if result.elapsed >= min {
                return Ok(result);
            }
            let factor = min.as_secs_f64() / result.elapsed.as_secs_f64() * PASSES_MARGIN;
            self.passes = (self.passes as f64 * factor.min(MAX_FACTOR)).ceil() as usize;
        }
    }

    /// Runs one thread's share and returns its hits. `taken` counts the accesses taken by all
    /// threads.
    fn part<C: SharedCache>(&self, cache: &C, taken: &AtomicUsize) -> u64 {
        let pages = &self.trace.pages;
        let mut hits = 0;
        loop {
            // Relaxed: only the number itself is shared.
            let from = taken.fetch_add(BLOCK, Ordering::Relaxed);
            if from >= pages.len().next_multiple_of(BLOCK) * self.passes {
                return hits;
            }
            // The last block of a pass is shorter; no block crosses into the next pass.
            let from = from % pages.len().next_multiple_of(BLOCK);
            for no in pages.iter().skip(from).take(BLOCK) {
                let key = u64::from(*no);
                match cache.get(key) {
                    Some(value) => {
                        assert_eq!(value, !key, "a value of another key");
                        hits += 1;
                    }
                    None => cache.insert(key, !key),
                }
            }
        }
    }
}

impl CacheTask for Race<'_> {
    type Outcome = Res<RunResult>;

    fn with<C: SharedCache>(self, cache: &C) -> Res<RunResult> {
        let start = Barrier::new(self.threads);
        let taken = CachePadded::new(AtomicUsize::new(0));
        let timed = || {
            start.wait();
            let began = Instant::now();
            let hits = self.part(cache, &taken);
            (began, Instant::now(), hits)
        };
        let parts: Result<Vec<_>, _> = thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads).map(|_| scope.spawn(timed)).collect();
            threads.into_iter().map(|thread| thread.join()).collect()
        });
        let parts = parts.map_err(|_| "a thread panicked")?;
        let began = parts.iter().map(|part| part.0).min().ok_or("no thread")?;
        let ended = parts.iter().map(|part| part.1).max().ok_or("no thread")?;
        let hits: u64 = parts.iter().map(|part| part.2).sum();
        let accesses = (self.trace.pages.len() * self.passes) as f64;
        Ok(RunResult {
            elapsed: ended - began,
            rate: accesses / (ended - began).as_secs_f64() / 1e6,
            hit_percent: hits as f64 / accesses * 100.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::contender::PEERS;
    use super::*;
    use clearway_replacement::ReplacementKind;
    use clearway_traces::generate;

    #[test]
    fn caches_replay_the_whole_trace() {
        let trace = generate::zipf(500, 0.9, 5_000, 1);
        for contender in ReplacementKind::all().map(Contender::Ours).chain(PEERS) {
            for threads in [1, 2] {
                let ran = Race { trace: &trace, threads, passes: 2 }.run(contender, 100).unwrap();
                // By this distribution 100 of 500 pages get half of the accesses, and every policy
                // keeps most of them. Moka exceeds its capacity while its housekeeping lags.
                let most = if contender == Contender::Moka { 100.0 } else { 90.0 };
                assert!(
                    ran.rate > 0.0 && (25.0..most).contains(&ran.hit_percent),
                    "{contender} {threads}: {ran:?}"
                );
            }
        }
    }

    #[test]
    fn short_runs_are_repeated_with_more_passes() {
        let trace = generate::zipf(500, 0.9, 5_000, 1);
        let mut race = Race { trace: &trace, threads: 1, passes: 1 };
        let min = Duration::from_millis(30);
        let result = race.run_at_least(min, Contender::QuickCache, 100).unwrap();
        assert!(result.elapsed >= min && race.passes > 1, "{result:?} {race:?}");
        let mut once = Race { passes: 1, ..race };
        once.run_at_least(Duration::ZERO, Contender::QuickCache, 100).unwrap();
        assert_eq!(once.passes, 1);
    }
}
