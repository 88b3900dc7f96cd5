//! How fast a cache is over a trace: its threads take the accesses in order, a block at a time, and
//! bring in what is not there.
//!
//! So no thread is more than a block behind, whoever has a core: what they hit is what the trace
//! lets them hit.

use super::contender::{Caching, Contender, Use};
use clearway_harness::Res;
use clearway_latch::CachePadded;
use clearway_traces::Trace;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

/// Accesses that a thread takes at a time: few beside a pool, many beside the one atomic
/// instruction that takes them.
const BLOCK: usize = 32;

/// What a run came to.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    /// Accesses a microsecond, by all threads.
    pub rate: f64,
    /// Hits in a hundred accesses.
    pub hit_percent: f64,
}

/// The accesses that threads make.
#[derive(Clone, Copy, Debug)]
pub struct Race<'a> {
    /// In this order.
    pub trace: &'a Trace,
    /// How many threads.
    pub threads: usize,
    /// How often the trace is run over.
    pub passes: usize,
}

impl Race<'_> {
    /// Runs it on a new cache of so many entries.
    pub fn run(self, contender: Contender, frames: u32) -> Res<Ran> {
        contender
            .with_new(frames, self)
            .map_err(|why| format!("{contender} on {}: {why}", self.trace.name))
    }

    /// One thread's accesses: how many of them hit. `taken` counts what threads have taken.
    fn part<C: Caching>(&self, cache: &C, taken: &AtomicUsize) -> u64 {
        let pages = &self.trace.pages;
        let mut hits = 0;
        loop {
            // Relaxed: nothing is handed over but the number.
            let from = taken.fetch_add(BLOCK, Ordering::Relaxed);
            if from >= pages.len().next_multiple_of(BLOCK) * self.passes {
                return hits;
            }
            // The last block of a pass is cut short, and none reaches into the next.
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

impl Use for Race<'_> {
    type Outcome = Res<Ran>;

    fn with<C: Caching>(self, cache: &C) -> Res<Ran> {
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
        Ok(Ran {
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
    fn every_cache_runs_the_whole_trace() {
        let trace = generate::zipf(500, 0.9, 5_000, 1);
        for contender in ReplacementKind::all().map(Contender::Ours).chain(PEERS) {
            for threads in [1, 2] {
                let ran = Race { trace: &trace, threads, passes: 2 }.run(contender, 100).unwrap();
                // 100 of 500 pages have half of the weight of this law; every policy finds most of
                // them. Moka holds more than its capacity while its housekeeping is behind.
                let most = if contender == Contender::Moka { 100.0 } else { 90.0 };
                assert!(
                    ran.rate > 0.0 && (25.0..most).contains(&ran.hit_percent),
                    "{contender} {threads}: {ran:?}"
                );
            }
        }
    }
}
