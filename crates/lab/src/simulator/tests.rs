//! Properties of every simulated machine, whatever its costs.

use super::costs::Costs;
use super::*;
use clearway_replacement::{
    Batched, ClockSweep, MultilistKind, Prefetching, QUEUE, THRESHOLD, WrapperKind,
};

const COSTS: Costs = Costs {
    work_ns: 1_000.0,
    note_ns: 1.0,
    policy_ns: 20.0,
    cold_ns: 30.0,
    prefetch_ns: 30.0,
    latch_ns: 20.0,
    transfer_ns: 50.0,
    memory_ns: 0.0,
    waiter_ns: 0.0,
    switch_ns: 1_000.0,
    slice_ns: f64::INFINITY,
    spin_ns: 0.0,
};

fn transactions() -> Transactions {
    (0..100).map(|t| (0..20).map(|at| (t * 37 + at * at) % 500).collect()).collect()
}

fn machine(cores: usize) -> Machine {
    Machine { cores, threads: 2 * cores, costs: COSTS, accesses: 40_000, seed: 7 }
}

const CLOCK: System = System {
    called: Called::Wrapped(PolicyKind::Lru, |_, frames| Box::new(ClockSweep::new(frames))),
    blocks: Blocks::Never,
    prefetches: false,
};
const LOCKED: System = System {
    called: Called::Wrapped(PolicyKind::Lru, |policy, frames| {
        WrapperKind::Locked.wrap(policy, frames)
    }),
    blocks: Blocks::Always,
    prefetches: false,
};
const BATCHED: System = System {
    called: Called::Wrapped(PolicyKind::Lru, |policy, frames| {
        Box::new(Batched::with_sizes(policy, frames, Prefetching::Off, 16, 8))
    }),
    blocks: Blocks::Full { queue: 16, threshold: 8 },
    prefetches: false,
};

fn played(system: &System, cores: usize) -> Outcome {
    simulate(system, &machine(cores), &transactions())
}

#[test]
fn lock_free_systems_scale_with_the_cores() {
    let (one, eight) = (played(&CLOCK, 1), played(&CLOCK, 8));
    assert!((7.5..8.5).contains(&(eight.rate() / one.rate())), "{one:?} {eight:?}");
    assert_eq!((one.acquisitions, eight.waits), (0, 0));
}

#[test]
fn a_single_core_never_waits() {
    for system in [&LOCKED, &BATCHED] {
        let one = played(system, 1);
        assert_eq!((one.waits, one.accesses), (0, 40_000));
        assert!(one.acquisitions > 0);
    }
}

/// A critical section takes longer than an eighth of an access, so sixteen cores cannot exceed the
/// rate of eight.
#[test]
fn per_access_lock_bounds_throughput() {
    let locked = played(&LOCKED, 16);
    assert_eq!(locked.acquisitions, 40_000);
    let bound = 1e3 / (COSTS.policy_ns + COSTS.latch_ns);
    assert!(locked.rate() < bound && locked.waits > 10_000, "{locked:?}");
    assert!(locked.held_ns <= locked.elapsed_ns, "one holder at a time: {locked:?}");
    assert!(locked.rate() < 0.8 * played(&CLOCK, 16).rate());
}

/// If the wrapper's tries did not fail while the latch is held, every batch would be eight.
#[test]
fn batches_grow_on_failed_tries_and_rarely_wait() {
    let (locked, batched) = (played(&LOCKED, 8), played(&BATCHED, 8));
    assert!(batched.contention() < locked.contention() / 50.0, "{locked:?} {batched:?}");
    assert!(batched.acquisitions < 40_000 / 8, "{batched:?}");
    assert!(batched.acquisitions > 40_000 / 16, "{batched:?}");
    // Lower by the cost of the policy itself.
    assert!(batched.rate() > 0.8 * played(&CLOCK, 8).rate(), "{batched:?}");
}

/// Prefetching happens outside the latch: however long it takes, no other thread waits for it.
#[test]
fn prefetching_happens_outside_the_latch() {
    let called = Called::Wrapped(PolicyKind::Lru, |policy, frames| {
        WrapperKind::Prefetched.wrap(policy, frames)
    });
    let (prefetched, costs) =
        (System { called, prefetches: true, ..LOCKED }, Costs { prefetch_ns: 1_000.0, ..COSTS });
    let (locked, ahead) = (
        played(&LOCKED, 4),
        simulate(&prefetched, &Machine { costs, ..machine(4) }, &transactions()),
    );
    assert!(
        ahead.held_ns < 0.7 * locked.held_ns && ahead.contention() < 0.5 * locked.contention(),
        "{locked:?} {ahead:?}"
    );
    assert!(
        ahead.rate() < 0.9 * locked.rate(),
        "but the thread itself is slower: {locked:?} {ahead:?}"
    );
}

/// The threads that it waited for have changed the prefetched data.
#[test]
fn prefetching_gains_less_with_more_waiters() {
    let called = Called::Wrapped(PolicyKind::Lru, |policy, frames| {
        WrapperKind::Prefetched.wrap(policy, frames)
    });
    let prefetched = System { called, prefetches: true, ..LOCKED };
    let contention = |system, cores| {
        let costs = Costs { cold_ns: 100.0, ..COSTS };
        simulate(system, &Machine { costs, ..machine(cores) }, &transactions()).contention()
    };
    let left = |cores| contention(&prefetched, cores) / contention(&LOCKED, cores);
    assert!(left(8) > 1.6 * left(2), "{:?}", [2, 8].map(left));
}

#[test]
fn simulations_are_deterministic_per_seed() {
    assert_eq!(played(&BATCHED, 4), played(&BATCHED, 4));
    let other = simulate(&BATCHED, &Machine { seed: 8, ..machine(4) }, &transactions());
    assert_ne!(played(&BATCHED, 4), other);
}

/// A thread that spins long enough never sleeps and acquires the latch without a switch.
#[test]
fn spinning_saves_switches() {
    let spinning = Machine { costs: Costs { spin_ns: 1e6, ..COSTS }, threads: 4, ..machine(4) };
    let spun = simulate(&LOCKED, &spinning, &transactions());
    let slept = simulate(&LOCKED, &Machine { threads: 4, ..machine(4) }, &transactions());
    assert!(spun.waits > 0 && spun.waited_ns / (spun.waits as f64) < COSTS.switch_ns, "{spun:?}");
    assert!(spun.rate() > slept.rate(), "{spun:?} {slept:?}");
}

fn queued(wrap: Wrap, blocks: Blocks) -> System {
    System { called: Called::Wrapped(PolicyKind::Lru, wrap), blocks, prefetches: false }
}

/// A thread that loses its core in its critical section keeps the latch. Threads whose queues fill
/// meanwhile must wait; others never wait.
#[test]
fn preempted_holders_block_only_full_queues() {
    let source = queued(
        |policy, frames| WrapperKind::Batched.wrap(policy, frames),
        Blocks::Full { queue: QUEUE, threshold: THRESHOLD },
    );
    let ours = queued(|policy, frames| WrapperKind::Combining.wrap(policy, frames), Blocks::Never);
    let slices = |system, slice_ns| {
        let costs = Costs { slice_ns, ..COSTS };
        simulate(system, &Machine { costs, accesses: 400_000, ..machine(8) }, &transactions())
    };
    let (never, often, ours) =
        (slices(&source, f64::INFINITY), slices(&source, 2e6), slices(&ours, 2e6));
    assert_eq!((never.waits, ours.waits), (0, 0));
    assert!(often.waits > 10 && often.held_ns > 1.02 * never.held_ns, "{never:?} {often:?}");
    assert_eq!((often.accesses, ours.accesses), (400_000, 400_000));
    assert!(often.rate() > 0.8 * never.rate(), "the cores have others to run: {never:?} {often:?}");
}

/// Also if a thread has just regained its core in its critical section.
#[test]
fn simulations_end_at_any_access() {
    let costs = Costs { slice_ns: 3e4, ..COSTS };
    for system in [&BATCHED, &LOCKED, &sublists(4)] {
        for accesses in 1..1_000 {
            let machine = Machine { costs, accesses, ..machine(2) };
            assert_eq!(simulate(system, &machine, &transactions()).accesses, accesses);
        }
    }
}

#[test]
fn time_slices_cost_only_switches_without_locks() {
    let sliced = Machine { costs: Costs { slice_ns: 1e5, ..COSTS }, ..machine(8) };
    let (sliced, whole) = (simulate(&CLOCK, &sliced, &transactions()), played(&CLOCK, 8));
    assert!((0.97..1.01).contains(&(sliced.rate() / whole.rate())), "{sliced:?} {whole:?}");
}

fn sublists(count: u32) -> System {
    System {
        called: Called::Sublists(MultilistKind::Lru, count),
        blocks: Blocks::Always,
        prefetches: false,
    }
}

/// With one sublist it makes no difference whether a hit consumes its time before or after it
/// returns.
#[test]
fn one_sublist_equals_one_lock() {
    assert_eq!(played(&sublists(1), 8), played(&LOCKED, 8));
}

/// Hits of pages in different sublists do not contend.
#[test]
fn sublists_reduce_waits() {
    let (one, many) = (played(&sublists(1), 16), played(&sublists(16), 16));
    assert_eq!((many.acquisitions, many.accesses), (40_000, 40_000));
    assert!(many.waits > 0 && many.contention() < one.contention() / 5.0, "{one:?} {many:?}");
    assert!(many.rate() > 2.0 * one.rate(), "{one:?} {many:?}");
}

/// All cores together are limited by the memory; a single core, which needs less, is not affected.
#[test]
fn memory_bounds_throughput() {
    let costs = Costs { memory_ns: 250.0, ..COSTS };
    let bounded = |cores| simulate(&CLOCK, &Machine { costs, ..machine(cores) }, &transactions());
    let (one, eight) = (bounded(1), bounded(8));
    assert!((0.98..=1.001).contains(&(eight.rate() * 0.25)), "{eight:?}");
    assert!(one.rate() > 0.99 * played(&CLOCK, 1).rate(), "{one:?}");
}

/// Spinning threads are served in order: all time that is neither work nor a critical section
/// belongs to a completed wait.
#[test]
fn spinning_waiters_are_served_in_order() {
    let costs = Costs { spin_ns: 1e9, work_ns: 100.0, ..COSTS };
    let spun = simulate(&LOCKED, &Machine { costs, threads: 8, ..machine(8) }, &transactions());
    let worked = spun.accesses as f64 * costs.work_ns;
    let all = 8.0 * spun.elapsed_ns;
    assert!(spun.waited_ns > 0.5 * all, "{spun:?}");
    assert!((spun.waited_ns + spun.held_ns + worked) / all > 0.95, "{spun:?}");
}

#[test]
fn simulations_on_all_cores_equal_those_in_turn() {
    let runs: Vec<(System, Machine)> = [LOCKED, BATCHED, CLOCK]
        .into_iter()
        .flat_map(|system| [1, 2].map(|seed| (system, Machine { seed, ..machine(4) })))
        .collect();
    let one = |at: usize| simulate(&runs[at].0, &runs[at].1, &transactions());
    let in_turn: Vec<Outcome> = (0..runs.len()).map(one).collect();
    assert_eq!(on_all_cores(runs.len(), one), in_turn);
    assert!(on_all_cores(0, one).is_empty());
}
