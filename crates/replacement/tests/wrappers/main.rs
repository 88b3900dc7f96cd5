//! Measures what sharing a policy costs in hit ratio, with very many threads for the size of the
//! pool.
//!
//! A single thread acts as each thread in turn (see `replay`), so that results are deterministic.

mod replay;

use clearway_replacement::{
    Batched, Multilist, MultilistKind, PolicyKind, Prefetching, ReplacementKind, UseCountedKind,
    WrapperKind,
};
use clearway_traces::Trace;
use std::io::Write;

/// The maximum loss of our wrapper against the plain policy, in percentage points.
const OURS: f64 = 0.1;
/// The maximum loss on a generated trace in a pool where hits are kept back: 200 hits of 100,000, a
/// difference that also occurs by chance.
const OURS_BY_CHANCE: f64 = 0.2;
const THREADS: [u32; 2] = [64, 128];

/// Reports a skipped test. Writes directly to stderr, which the test harness does not capture.
fn skipped(what: &str) {
    writeln!(
        std::io::stderr(),
        "SKIPPED {what}: trace not found; generated traces are used anyway"
    )
    .expect("stderr is writable");
}

/// Checks that the default wrapper stays within the loss limit under every policy.
fn check(trace: &Trace, frames: u32, may_lose: f64) {
    for policy in PolicyKind::ALL {
        let exact = replay::hit_percent(
            ReplacementKind::Wrapped(*policy, WrapperKind::Locked),
            frames,
            trace,
            1,
        );
        for threads in THREADS {
            let kind = ReplacementKind::Wrapped(*policy, WrapperKind::default());
            let ours = replay::hit_percent(kind, frames, trace, threads);
            assert!(
                ours > exact - may_lose,
                "{} at {frames}, {kind}, {threads} threads: {ours}, expected {exact}",
                trace.name
            );
        }
    }
}

#[test]
fn default_wrapper_keeps_hit_ratios_on_generated_traces() {
    // Pool sizes for which 64 threads keep back no hits, and some hits.
    for (frames, accesses, may_lose) in
        [(100, 10_000, OURS), (700, 10_000, OURS), (16_384, 100_000, OURS_BY_CHANCE)]
    {
        clearway_traces::generate::all(frames, accesses, 7)
            .iter()
            .for_each(|trace| check(trace, frames, may_lose));
    }
}

#[test]
fn default_wrapper_keeps_hit_ratios_on_known_traces() {
    const LONGEST: usize = 20_000;
    for figure in clearway_traces::FIGURES {
        match clearway_traces::load(figure.trace) {
            Some(trace) => {
                let trace = trace.expect("a trace");
                if trace.pages.len() < LONGEST {
                    check(&trace, figure.frames, OURS);
                }
            }
            None => skipped(figure.trace),
        }
    }
}

/// No hit is applied late: the results equal those of the plain policy, whichever thread hits.
#[test]
fn use_counted_wrapper_keeps_hit_ratios_exactly() {
    for (frames, accesses) in [(100, 10_000), (700, 10_000), (4_096, 60_000)] {
        for trace in clearway_traces::generate::all(frames, accesses, 7) {
            for kind in UseCountedKind::ALL {
                let plain = ReplacementKind::Wrapped(kind.policy(), WrapperKind::Locked);
                let exact = replay::hit_percent(plain, frames, &trace, 1);
                let ours = THREADS.map(|n| {
                    replay::hit_percent(ReplacementKind::UseCounted(*kind), frames, &trace, n)
                });
                assert_eq!(ours, [exact; 2], "{} at {frames}, {kind:?}", trace.name);
            }
        }
    }
}

/// Shows why the batch size follows pool and threads. With the source's 64 hits per thread, LRU
/// misses too much of what 64 threads do in a pool of 400 frames.
#[test]
fn fixed_queue_loses_hits_with_many_threads() {
    const PAGES: u64 = 750;
    let walk = (0..12 * PAGES).map(|at| (at % (2 * PAGES)).min(2 * PAGES - 1 - at % (2 * PAGES)));
    let trace = Trace::new("back and forth", walk);
    let exact = replay::hit_percent(
        ReplacementKind::Wrapped(PolicyKind::Lru, WrapperKind::Locked),
        400,
        &trace,
        1,
    );
    for threads in THREADS {
        let batched = Batched::new(PolicyKind::Lru.build(400), 400, Prefetching::Off);
        let fixed = trace.hit_percent(replay::misses(&batched, 400, &trace, threads));
        let ours = replay::hit_percent(
            ReplacementKind::Wrapped(PolicyKind::Lru, WrapperKind::default()),
            400,
            &trace,
            threads,
        );
        println!(
            "LRU of 400 frames, {threads} threads: exact {exact:.2}, ours {ours:.2}, 64 hits per thread {fixed:.2}"
        );
        assert!(fixed < exact - 2.0 && ours > exact - OURS, "{exact} {ours} {fixed}");
    }
}

/// The multilist is no wrapper: its sublists cost a little hit ratio.
#[test]
fn multilist_is_close_to_its_policy() {
    let mut traces: Vec<(Trace, u32)> = Vec::new();
    for (frames, accesses) in [(700, 20_000), (4_096, 60_000)] {
        traces.extend(
            clearway_traces::generate::all(frames, accesses, 7)
                .into_iter()
                .map(|trace| (trace, frames)),
        );
    }
    for figure in clearway_traces::FIGURES {
        match clearway_traces::load(figure.trace) {
            Some(trace) => traces.push((trace.expect("a trace"), figure.frames)),
            None => skipped(figure.trace),
        }
    }
    traces.retain(|(trace, _)| trace.pages.len() <= 150_000);
    for (trace, frames) in &traces {
        for kind in MultilistKind::ALL {
            let exact = ReplacementKind::Wrapped(kind.policy(), WrapperKind::Locked);
            let exact = replay::hit_percent(exact, *frames, trace, 1);
            // As on machines with 4 and 16 cores.
            for cores in [4, 16] {
                let pages = Multilist::with_cores(*kind, *frames, cores);
                let ours = trace.hit_percent(replay::misses(&pages, *frames, trace, 64));
                assert!(
                    ours > exact - 0.3,
                    "{} at {frames}, {kind:?}, {cores} cores: {ours}, expected {exact}",
                    trace.name
                );
            }
        }
    }
}
