//! What sharing a policy costs in hit ratio, under many more threads than pages would like.
//!
//! Threads are played in turn by one (see `replay`): so that a result is the same each time.

mod replay;

use clearway_replacement::{
    Batched, Multilist, MultilistKind, PolicyKind, ReplacementKind, UseCountedKind, WrapperKind,
};
use clearway_traces::Trace;
use std::io::Write;

/// Points that ours may lose against the plain policy.
const OURS: f64 = 0.1;
/// On a generated trace, in a pool in which hits are kept back: 200 hits of 100,000, which a policy
/// also gains by chance.
const OURS_BY_CHANCE: f64 = 0.2;
const THREADS: [u32; 2] = [64, 128];

/// Past the test's capture: a test that has not run says so whoever runs it.
fn skipped(what: &str) {
    writeln!(
        std::io::stderr(),
        "SKIPPED {what}: not there; the generated traces are played anyway"
    )
    .expect("said");
}

/// That the default wrapper loses no more points than it may, under every policy.
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
                "{} at {frames}, {kind}, {threads} threads: {ours}, not {exact}",
                trace.name
            );
        }
    }
}

#[test]
fn the_default_loses_no_hit_ratio_on_generated_traces() {
    // Pools in which 64 threads keep back nothing, and some.
    for (frames, accesses, may_lose) in
        [(100, 10_000, OURS), (700, 10_000, OURS), (16_384, 100_000, OURS_BY_CHANCE)]
    {
        clearway_traces::generate::all(frames, accesses, 7)
            .iter()
            .for_each(|trace| check(trace, frames, may_lose));
    }
}

#[test]
fn the_default_loses_no_hit_ratio_on_the_literatures_traces() {
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

/// No hit is told late: it is the plain policy to the last hit, whoever comes.
#[test]
fn marks_lose_no_hit_whatsoever() {
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

/// Why the batch follows pool and threads: the source's 64 hits a thread hide from LRU what 64
/// threads do in a pool of 400 frames.
#[test]
fn a_fixed_queue_of_the_source_loses_where_threads_times_queue_nears_the_pool() {
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
        let batched = Batched::new(PolicyKind::Lru.build(400), 400, false);
        let fixed = trace.hit_percent(replay::misses(&batched, 400, &trace, threads));
        let ours = replay::hit_percent(
            ReplacementKind::Wrapped(PolicyKind::Lru, WrapperKind::default()),
            400,
            &trace,
            threads,
        );
        println!(
            "LRU of 400 frames, {threads} threads: exact {exact:.2}, ours {ours:.2}, 64 hits a thread {fixed:.2}"
        );
        assert!(fixed < exact - 2.0 && ours > exact - OURS, "{exact} {ours} {fixed}");
    }
}

/// The multilist is no wrapper: its sublists cost hit ratio, but little.
#[test]
fn the_multilist_is_near_the_policy_that_it_is_a_variant_of() {
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
            // As on a machine of 4 cores and on one of 16.
            for cores in [4, 16] {
                let pages = Multilist::with_cores(*kind, *frames, cores);
                let ours = trace.hit_percent(replay::misses(&pages, *frames, trace, 64));
                assert!(
                    ours > exact - 0.3,
                    "{} at {frames}, {kind:?}, {cores} cores: {ours}, not {exact}",
                    trace.name
                );
            }
        }
    }
}
