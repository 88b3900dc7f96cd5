//! Benchmarks the wrappers: CPU time per hit, waits for the policy's latch, and hit ratio with many
//! threads.
//!
//! `cargo bench -p clearway-replacement --bench wrappers -- [--millis N] [--threads N] [--policy NAME] [--ratios | --all-ratios]`.
//! Without arguments, each measurement takes 5 ms, which only checks that the benchmark runs. Hits
//! are on random frames of a pool that holds every page, as in the source. Contention is the number
//! of latch requests that found the latch taken and waited, per million hits, counted by lockstat.
//!
//! `--ratios` instead replays the short traces of the literature with 1, 64 and 128 simulated
//! threads. `--all-ratios` adds the long traces.

#[path = "../tests/wrappers/replay.rs"]
mod replay;

use clearway_latch::lockstat;
use clearway_replacement::{
    Batched, PolicyKind, Prefetching, QUEUE, Replacement, ReplacementKind, WrapperKind,
};
use clearway_types::FrameId;
use replay::page;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const FRAMES: u32 = 16_384;
/// Hits between two checks of the clock.
const BURST: u32 = 1_000;

struct Args {
    run: Duration,
    threads: u32,
    policy: PolicyKind,
    /// The longest trace whose hit ratios are measured.
    ratios: Option<usize>,
}

fn args() -> Args {
    let given: Vec<String> = std::env::args().collect();
    let value =
        |name: &str| given.iter().position(|arg| arg == name).and_then(|at| given.get(at + 1));
    let has = |name: &str| given.iter().any(|arg| arg == name);
    let tiny = value("--millis").is_none();
    Args {
        run: Duration::from_millis(value("--millis").map_or(5, |v| v.parse().expect("a number"))),
        threads: value("--threads")
            .map_or(if tiny { 2 } else { 16 }, |v| v.parse().expect("a number")),
        policy: value("--policy").map_or(PolicyKind::Lru, |v| v.parse().expect("a policy")),
        ratios: if has("--all-ratios") {
            Some(usize::MAX)
        } else {
            has("--ratios").then_some(140_000)
        },
    }
}

/// A cheap generator, so that the wrapper dominates the measurement.
fn next(random: &mut u32) -> u32 {
    *random ^= *random << 13;
    *random ^= *random >> 17;
    *random ^= *random << 5;
    *random
}

struct Measured {
    ns: f64,
    hits: u64,
    waits: u64,
    requests: u64,
}

/// Returns the CPU time of the calling thread in ns, or the wall-clock time if the system does not
/// report it.
fn cpu_ns(began: Instant) -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let cpu_time = stat.split_whitespace().next().and_then(|ns| ns.parse().ok());
    cpu_time.unwrap_or_else(|| began.elapsed().as_nanos() as u64)
}

fn measure(pages: &dyn Replacement, threads: u32, run: Duration) -> Measured {
    lockstat::reset();
    let (stop, hits, ns) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let began = Instant::now();
    let rows = std::thread::scope(|scope| {
        let (stop, hits, ns) = (&stop, &hits, &ns);
        let play = |thread| {
            scope.spawn(move || {
                let mut random = 0x9e37_79b9 ^ (thread + 1);
                let before = cpu_ns(began);
                while !stop.load(Relaxed) {
                    for _ in 0..BURST {
                        let frame = next(&mut random) % FRAMES;
                        pages.hit(FrameId(frame), page(frame));
                    }
                    hits.fetch_add(u64::from(BURST), Relaxed);
                }
                ns.fetch_add(cpu_ns(began) - before, Relaxed);
            })
        };
        let playing: Vec<_> = (0..threads).map(play).collect();
        while began.elapsed() < run {
            std::thread::park_timeout(run.saturating_sub(began.elapsed()));
        }
        // Read before the threads end: a thread's exit may wait for the latch, and only hits are
        // counted.
        let rows = lockstat::contention();
        stop.store(true, Relaxed);
        // Join explicitly: the scope does not wait for thread-local destructors, which would run
        // during the next measurement.
        playing.into_iter().for_each(|thread| thread.join().expect("played"));
        rows
    });
    let rows: Vec<_> = rows.into_iter().filter(|row| row.name == "buffer.policy").collect();
    let hits = hits.load(Relaxed);
    Measured {
        ns: ns.load(Relaxed) as f64 / hits as f64,
        hits,
        waits: rows.iter().map(|row| row.contended).sum(),
        requests: rows.first().map_or(0, |row| row.requests),
    }
}

fn filled(pages: Box<dyn Replacement>) -> Box<dyn Replacement> {
    (0..FRAMES).for_each(|frame| pages.miss(FrameId(frame), page(frame)));
    pages
}

/// Returns the cost of the loop around the hits, in ns per hit, including the computation of the
/// page.
fn bare(run: Duration) -> f64 {
    let (mut random, mut hits) = (1, 0_u64);
    let began = Instant::now();
    let before = cpu_ns(began);
    while began.elapsed() < run {
        for _ in 0..BURST {
            let frame = next(&mut random) % FRAMES;
            black_box((FrameId(frame), page(frame)));
        }
        hits += u64::from(BURST);
    }
    (cpu_ns(began) - before) as f64 / hits as f64
}

fn costs(args: &Args) {
    println!(
        "{FRAMES} frames, {}; the empty loop takes {:.1} ns per hit",
        args.policy,
        bare(args.run)
    );
    println!(
        "| wrapper | threads | CPU ns per hit | latch requests per million hits \
         | waits per million hits |"
    );
    println!("|---|---|---|---|---|");
    let kinds =
        WrapperKind::ALL.iter().map(|wrapper| ReplacementKind::Wrapped(args.policy, *wrapper));
    for kind in std::iter::once(ReplacementKind::ClockSweep).chain(kinds) {
        for threads in [1, 2, 4, 8, 16].into_iter().filter(|threads| *threads <= args.threads) {
            let pages = filled(kind.build(FRAMES));
            let m = measure(&*pages, threads, args.run);
            let millions = m.hits as f64 / 1e6;
            let (requests, waits) = (m.requests as f64 / millions, m.waits as f64 / millions);
            println!("| {kind} | {threads} | {:.1} | {requests:.0} | {waits:.2} |", m.ns);
        }
    }
}

/// Prints hit ratios compared with the plain policy: for combining, and for batching with its
/// source's 64 hits per thread.
fn ratios(longest: usize) {
    println!(
        "| trace | frames | policy | plain | combining, 64 threads | 128 | batched with {QUEUE}, 64 threads | 128 |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let (mut worst, mut seen) = ([0_f64; 4], 0);
    for figure in clearway_traces::FIGURES {
        let Some(trace) = clearway_traces::load(figure.trace) else {
            println!("SKIPPED {}: trace not found", figure.trace);
            continue;
        };
        let trace = trace.expect("a trace");
        if trace.pages.len() > longest {
            continue;
        }
        for policy in PolicyKind::ALL {
            let plain = ReplacementKind::Wrapped(*policy, WrapperKind::Locked);
            let exact = replay::hit_percent(plain, figure.frames, &trace, 1);
            let ours = [64, 128].map(|threads| {
                let kind = ReplacementKind::Wrapped(*policy, WrapperKind::Combining);
                replay::hit_percent(kind, figure.frames, &trace, threads)
            });
            let fixed = [64, 128].map(|threads| {
                let pages =
                    Batched::new(policy.build(figure.frames), figure.frames, Prefetching::Off);
                trace.hit_percent(replay::misses(&pages, figure.frames, &trace, threads))
            });
            let [a, b] = ours;
            let [c, d] = fixed;
            println!(
                "| {} | {} | {policy} | {exact:.2} | {a:.2} | {b:.2} | {c:.2} | {d:.2} |",
                trace.name, figure.frames
            );
            for (worst, ratio) in worst.iter_mut().zip([a, b, c, d]) {
                *worst = worst.max(exact - ratio);
            }
            seen += 1;
        }
    }
    let [a, b, c, d] = worst;
    println!(
        "largest loss in percentage points over {seen} runs: combining {a:.2} and {b:.2}, \
         batched with {QUEUE} {c:.2} and {d:.2}"
    );
}

fn main() {
    let args = args();
    match args.ratios {
        Some(longest) => ratios(longest),
        None => costs(&args),
    }
}
