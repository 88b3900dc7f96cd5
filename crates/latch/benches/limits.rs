//! How long waiters should spin, with a few threads, as many as there are cores, and many: `cargo
//! bench -p clearway-latch --bench limits [-- --quick] [-- --rounds N]`.
//!
//! Compares spin limits of [`ParkLatch`], among them the calibrated one and the time that this
//! machine takes to yield a core and regain it, the engine's latch, which lockstat counts, and the
//! standard library's mutex. The contenders take turns, and the results are medians over the
//! rounds.

use clearway_latch::lockstat::Class;
use clearway_latch::{CachePadded, Latch, Latched, ParkLatch, calibrate, set_spin_limit};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Nanoseconds inside a section and between two.
const SECTIONS: [(f64, f64); 4] = [(0.0, 0.0), (50.0, 50.0), (100.0, 1000.0), (2000.0, 500.0)];
/// Limits in nanoseconds, beside the measured time of a yield.
const LIMITS_NS: [f64; 3] = [800.0, 1100.0, 1800.0];
/// Numbers of threads, beside the number of cores.
const THREADS: [usize; 3] = [2, 8, 64];
/// Rounds unless `--rounds` is given.
const ROUNDS: usize = 15;
/// One wait in this many is timed.
const SAMPLED: u64 = 16;

trait Contender: Sync {
    fn new() -> Self;
    fn with<R>(&self, section: impl FnOnce() -> R) -> R;
}

impl Contender for Latched<(), ParkLatch> {
    fn new() -> Self {
        Self::new(())
    }

    #[inline]
    fn with<R>(&self, section: impl FnOnce() -> R) -> R {
        let _held = self.lock();
        section()
    }
}

/// The class of the counted latch.
static CLASS: Class = Class::new("bench.limits");

impl Contender for Latch<()> {
    fn new() -> Self {
        Self::new(&CLASS, ())
    }

    #[inline]
    fn with<R>(&self, section: impl FnOnce() -> R) -> R {
        let _held = self.lock();
        section()
    }
}

impl Contender for Mutex<()> {
    fn new() -> Self {
        Self::new(())
    }

    #[inline]
    fn with<R>(&self, section: impl FnOnce() -> R) -> R {
        let _held = self.lock().unwrap_or_else(PoisonError::into_inner);
        section()
    }
}

fn work(steps: u64) {
    (0..steps).fold(1_u64, |x, _| black_box(x.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1));
}

/// Returns the steps of [`work`] per nanosecond: the best of many runs, since interruptions only
/// add time.
fn steps_per_ns() -> f64 {
    const STEPS: u64 = 10_000;
    let times = (0..200).map(|_| {
        let began = Instant::now();
        work(STEPS);
        began.elapsed().as_nanos() as f64
    });
    STEPS as f64 / times.fold(f64::MAX, f64::min).max(1.0)
}

/// The load of a round: threads, steps inside and outside, and the duration.
struct Load {
    threads: usize,
    inside: u64,
    outside: u64,
    length: Duration,
}

/// A round with one kind of latch.
type Round = fn(&Load) -> (f64, f64);

/// Returns the acquisitions per microsecond and the p99.9 wait in microseconds.
fn round<C: Contender>(load: &Load) -> (f64, f64) {
    let (latch, stop) = (CachePadded::new(C::new()), CachePadded::new(AtomicBool::new(false)));
    let (start, go) = (Barrier::new(load.threads + 1), AtomicBool::new(false));
    let run = || {
        let (mut taken, mut waits) = (0_u64, Vec::new());
        start.wait();
        // Relaxed, like the next: flags that publish no data.
        while !go.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        while !stop.load(Ordering::Relaxed) {
            if taken.is_multiple_of(SAMPLED) {
                let came = Instant::now();
                latch.with(|| {
                    waits.push(came.elapsed());
                    work(load.inside);
                });
            } else {
                latch.with(|| work(load.inside));
            }
            taken += 1;
            work(load.outside);
        }
        (taken, waits)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..load.threads).map(|_| scope.spawn(run)).collect();
        start.wait();
        let began = Instant::now();
        go.store(true, Ordering::Relaxed);
        // A loop: `park_timeout` may return early.
        while let Some(left) =
            load.length.checked_sub(began.elapsed()).filter(|left| !left.is_zero())
        {
            thread::park_timeout(left);
        }
        stop.store(true, Ordering::Relaxed);
        let elapsed_us = began.elapsed().as_nanos() as f64 / 1e3;
        let (mut taken, mut waits) = (0, Vec::new());
        for (n, of_thread) in threads.into_iter().filter_map(|thread| thread.join().ok()) {
            taken += n;
            waits.extend(of_thread);
        }
        waits.sort_unstable();
        let wait = waits.get(waits.len() * 999 / 1000).copied().unwrap_or_default();
        (taken as f64 / elapsed_us, wait.as_nanos() as f64 / 1e3)
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let quick = args.iter().any(|a| a == "--quick" || a == "--test");
    let asked = args.iter().skip_while(|a| *a != "--rounds").nth(1);
    let asked = asked.map_or(ROUNDS, |n| n.parse().expect("--rounds takes a number"));
    let (rounds, length) =
        if quick { (1, Duration::from_millis(2)) } else { (asked, Duration::from_millis(60)) };
    let mut crowds = THREADS.to_vec();
    crowds.extend(thread::available_parallelism().map(usize::from));
    crowds.sort_unstable();
    crowds.dedup();
    let (machine, per_ns) = (calibrate::calibrate(), steps_per_ns());
    machine.apply();
    println!("{machine}");
    let spins = |ns: f64| (ns / machine.pause_ns.max(0.1)) as u32;
    let limits = LIMITS_NS.into_iter().chain([machine.yield_ns]);
    let mut contenders: Vec<(String, u32, Round)> = limits
        .map(|ns| (format!("{ns:.0} ns"), spins(ns), round::<Latched<(), ParkLatch>> as Round))
        .collect();
    let calibrated = machine.spin_limit;
    contenders.push(("calibrated".into(), calibrated, round::<Latched<(), ParkLatch>>));
    contenders.push(("counted".into(), calibrated, round::<Latch<()>>));
    contenders.push(("std".into(), calibrated, round::<Mutex<()>>));
    for (inside_ns, outside_ns) in SECTIONS {
        let steps = |ns: f64| (ns * per_ns).round() as u64;
        for &threads in &crowds {
            let (inside, outside) = (steps(inside_ns), steps(outside_ns));
            let load = Load { threads, inside, outside, length };
            let mut results = vec![Vec::new(); contenders.len()];
            for _ in 0..rounds {
                for ((_, limit, round), results) in contenders.iter().zip(&mut results) {
                    set_spin_limit(*limit);
                    results.push(round(&load));
                }
            }
            println!("{inside_ns:.0}/{outside_ns:.0} ns, {threads} threads");
            for ((name, ..), results) in contenders.iter().zip(results) {
                let (rates, waits) = results.into_iter().unzip();
                let (rate, wait) = (median(rates), median(waits));
                println!("  {name:<12} {rate:>9.3} per us  p99.9 wait {wait:>11.2} us");
            }
        }
    }
}
