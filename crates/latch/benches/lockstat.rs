//! The cost of counting: `cargo bench -p clearway-latch --bench lockstat [-- --quick]`.
//!
//! Measures the instructions of an acquisition and release one by one: the processor's trap flag
//! raises a signal after each instruction. Then measures time, as a ratio to the same latch without
//! a count, and for two threads that share only a class as a ratio to one thread. The results are
//! medians of interleaved rounds. Fails if counting takes more than [`MOST`] instructions.

mod steps;

use clearway_latch::lockstat::{self, Class};
use clearway_latch::{Latch, Latched, Monitor, ParkLatch};
use std::hint::black_box;
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// The maximum number of instructions that counting may add to an acquisition and release.
const MOST: u64 = 12;

static LATCH: Class = Class::new("bench.latch");
static MONITOR: Class = Class::new("bench.monitor");

static BARE: Latched<u64, ParkLatch> = Latched::new(0);
static NAMED: Latch<u64> = Latch::new(&LATCH, 0);
static MUTEX: Mutex<u64> = Mutex::new(0);
static MONITORED: Monitor<u64> = Monitor::new(&MONITOR, 0);

#[inline(never)]
fn look() {
    black_box(&LATCH);
}

#[inline(never)]
fn bare() {
    *black_box(&BARE).lock() += 1;
}

#[inline(never)]
fn named() {
    *black_box(&NAMED).lock() += 1;
}

#[inline(never)]
fn mutex() {
    *black_box(&MUTEX).lock().unwrap_or_else(|poison| poison.into_inner()) += 1;
}

#[inline(never)]
fn monitored() {
    *black_box(&MONITORED).lock() += 1;
}

#[inline(never)]
fn request() {
    black_box(&LATCH).request();
}

/// Returns the nanoseconds of one call: the minimum over several threads.
fn time(f: fn(), threads: usize, calls: u64) -> f64 {
    let start = Barrier::new(threads);
    let run = || {
        // A thread's first request allocates its block.
        f();
        start.wait();
        let began = Instant::now();
        (0..calls).for_each(|_| f());
        began.elapsed()
    };
    let times: Vec<Duration> = thread::scope(|scope| {
        let others: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        others.into_iter().filter_map(|other| other.join().ok()).collect()
    });
    times.iter().min().map_or(f64::NAN, |time| time.as_nanos() as f64 / calls as f64)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the section's time, with counting on and off, as a ratio to that of `base` by one thread
/// in the same rounds.
fn ratios(section: fn(), base: fn(), threads: usize, rounds: usize, calls: u64) -> (f64, f64, f64) {
    let (mut on, mut off, mut ns) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let of_base = time(base, 1, calls);
        on.push(time(section, threads, calls) / of_base);
        lockstat::set_counting(false);
        off.push(time(section, threads, calls) / of_base);
        lockstat::set_counting(true);
        ns.push(of_base);
    }
    (median(ns), median(off), median(on))
}

fn main() {
    let quick = std::env::args().any(|a| a == "--quick" || a == "--test");
    let (rounds, calls) = if quick { (1, 10_000) } else { (15, 4_000_000) };
    println!(
        "{:<34} {:>7} {:>5} {:>5}",
        "instructions, acquire and release", "without", "off", "on"
    );
    let mut most = 0;
    for (name, without, with) in [
        ("latch", bare as fn(), named as fn()),
        ("monitor", mutex, monitored),
        ("a request alone", look, request),
    ] {
        let Some((base, on)) = steps::of(&without).zip(steps::of(&with)) else {
            println!("{name:<34} not here: no trap after each instruction");
            continue;
        };
        lockstat::set_counting(false);
        let off = steps::of(&with).unwrap_or_default();
        lockstat::set_counting(true);
        println!("{name:<34} {base:>7} {off:>5} {on:>5}");
        most = most.max(on - base.min(on));
    }
    println!("{:<34} {:>7} {:>5} {:>5}", "time, as a ratio", "ns", "off", "on");
    for (name, threads, without, with) in [
        ("latch, one thread", 1, bare as fn(), named as fn()),
        ("monitor, one thread", 1, mutex, monitored),
        ("a request alone, two threads : one", 2, request, request),
    ] {
        let (ns, off, on) = ratios(with, without, threads, rounds, calls);
        println!("{name:<34} {ns:>7.2} {off:>5.2} {on:>5.2}");
    }
    assert!(most <= MOST, "a count takes {most} instructions, more than {MOST}");
}
