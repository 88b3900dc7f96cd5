//! Measures a wrapper without a pool: the time to acquire and hold the latch, per access.
//!
//! Threads replay recorded accesses to the wrapper. Only the calls that take the latch are timed:
//! with exact batches of `n` hits, every `n`th call of a thread.

use super::systems::Sized;
use super::workload::Workload;
use crate::spinlock::Work;
use clearway_harness::Res;
use clearway_replacement::Replacement;
use clearway_testkit::Rng;
use clearway_types::FrameId;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Clock reads used to measure the cost of a clock read.
const CLOCK_READS: u32 = 1_000;

/// Returns the nanoseconds per access to acquire and hold the latch, with this many threads.
pub fn lock_ns(
    sized: &Sized,
    workload: &Workload,
    threads: usize,
    length: Duration,
    per_ns: f64,
) -> Res<f64> {
    let frames = workload.pages.len() as u32;
    let replacement = sized.kind().build(frames);
    for (frame, page) in workload.pages.iter().enumerate() {
        replacement.miss(FrameId(frame as u32), *page);
    }
    let replacement = &*replacement;
    let work = Work::of(workload.ns_per_access, per_ns);
    let stop = AtomicBool::new(false);
    let parts = thread::scope(|scope| {
        let part = |seed| {
            let stop = &stop;
            move || part(replacement, sized.queue.into(), workload, seed, work, stop)
        };
        let threads: Vec<_> = (0..threads as u64).map(|thread| scope.spawn(part(thread))).collect();
        let began = Instant::now();
        while let Some(left) = length.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
            thread::park_timeout(left);
        }
        // Relaxed: a stop flag; it publishes no data.
        stop.store(true, Ordering::Relaxed);
        threads
            .into_iter()
            .map(|t| t.join().map_err(|_| "a thread panicked".to_owned()))
            .collect::<Res<Vec<_>>>()
    })?;
    let accesses: u64 = parts.iter().map(|part| part.accesses).sum();
    let timed: f64 =
        parts.iter().map(|part| part.timed_ns - part.timed as f64 * clock_read_ns()).sum();
    Ok((timed / accesses.max(1) as f64).max(0.0))
}

#[derive(Default)]
struct Part {
    accesses: u64,
    timed: u64,
    timed_ns: f64,
}

fn part(
    to: &dyn Replacement,
    batch: u64,
    workload: &Workload,
    seed: u64,
    work: Work,
    stop: &AtomicBool,
) -> Part {
    let (mut rng, mut part) = (Rng::new(seed + 1), Part::default());
    loop {
        let transaction =
            &workload.transactions[rng.below(workload.transactions.len() as u64) as usize];
        for number in transaction {
            let page = workload.pages[*number as usize];
            part.accesses += 1;
            if part.accesses.is_multiple_of(batch) {
                let began = Instant::now();
                to.hit(FrameId(*number), page);
                part.timed_ns += began.elapsed().as_nanos() as f64;
                part.timed += 1;
            } else {
                to.hit(FrameId(*number), page);
            }
            work.run(part.accesses);
        }
        // At least one transaction, even if the thread got a core late.
        if stop.load(Ordering::Relaxed) {
            return part;
        }
    }
}

/// Returns the nanoseconds that a pair of clock reads adds to the interval between them.
fn clock_read_ns() -> f64 {
    let began = Instant::now();
    for _ in 0..CLOCK_READS {
        std::hint::black_box(Instant::now());
    }
    began.elapsed().as_nanos() as f64 / f64::from(CLOCK_READS)
}
