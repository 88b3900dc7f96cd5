//! The engine's latch beside the standard library's: `cargo bench -p clearway-latch --bench latches [-- --quick]`.
//!
//! Threads take the latch, add to a counter, let go and do a little of their own. Medians of five rounds, the latches in turns.

use clearway_latch::{Latched, ParkLatch, RawLatch, calibrate};
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What a bench asks of a latch.
trait Contender: Sync {
    fn section(&self);
}

impl<L: RawLatch> Contender for Latched<u64, L> {
    fn section(&self) {
        *self.lock() += 1;
    }
}

impl Contender for Mutex<u64> {
    fn section(&self) {
        if let Ok(mut value) = self.lock() {
            *value += 1;
        }
    }
}

/// Acquisitions in a microsecond, and the 99.9th percentile of the time to acquire and let go, in microseconds, sampled.
fn round(latch: &dyn Contender, threads: usize, length: Duration) -> (f64, f64) {
    let stop = AtomicBool::new(false);
    let total = AtomicU64::new(0);
    let waits = Mutex::new(Vec::new());
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let (mut n, mut sampled) = (0_u64, Vec::new());
                while !stop.load(Ordering::Relaxed) {
                    if n % 16 == 0 {
                        let at = Instant::now();
                        latch.section();
                        sampled.push(at.elapsed().as_nanos() as u64);
                    } else {
                        latch.section();
                    }
                    for i in 0..20_u64 {
                        black_box(i);
                    }
                    n += 1;
                }
                total.fetch_add(n, Ordering::Relaxed);
                if let Ok(mut waits) = waits.lock() {
                    waits.append(&mut sampled);
                }
            });
        }
        thread::park_timeout(length);
        stop.store(true, Ordering::Relaxed);
    });
    let rate = total.into_inner() as f64 / (began.elapsed().as_nanos() as f64 / 1e3);
    let mut waits = waits.into_inner().unwrap_or_default();
    waits.sort_unstable();
    (rate, waits.get(waits.len() * 999 / 1000).map_or(0.0, |ns| *ns as f64 / 1e3))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let quick = std::env::args().any(|a| a == "--quick" || a == "--test");
    let (rounds, length) = if quick { (1, Duration::from_millis(5)) } else { (5, Duration::from_millis(300)) };
    let calibration = calibrate::calibrate();
    println!("{calibration}");
    calibration.apply();
    println!(
        "{:>7}  {:>14} {:>14} {:>6}  {:>14} {:>14}",
        "threads", "park /us", "std /us", "ratio", "park p99.9 us", "std p99.9 us"
    );
    for threads in [1, 2, 8, 16, 64] {
        let (park, std) = (Latched::<u64, ParkLatch>::new(0), Mutex::new(0));
        let mut figures = [const { Vec::new() }; 4];
        for _ in 0..rounds {
            for (at, latch) in [(0, &park as &dyn Contender), (1, &std)] {
                let (rate, wait) = round(latch, threads, length);
                figures[at].push(rate);
                figures[at + 2].push(wait);
            }
        }
        let [a, b, c, d] = figures.map(median);
        println!("{threads:>7}  {a:>14.1} {b:>14.1} {:>6.2}  {c:>14.1} {d:>14.1}", a / b);
    }
}
