//! Campaigns of the simulated cluster.

use clearway_cluster::campaign::ClusterCanary;
use clearway_cluster::{
    ClusterConfig, ClusterFaults, ClusterLoad, ClusterReport, Durability, MICRO, run,
};
use clearway_partition::SchemeKind;

/// Seeds of a campaign.
const SEEDS: u64 = 40;
/// Seeds within which a planted bug must be found.
const CANARY_SEEDS: u64 = 60;

fn run_well(config: &ClusterConfig) -> ClusterReport {
    run(config).unwrap_or_else(|why| panic!("{config:?}: {why}"))
}

#[test]
fn histories_without_faults_are_serializable() {
    for seed in 0..SEEDS {
        let durability = Durability::None;
        let faults = ClusterFaults::default();
        let config = ClusterConfig { durability, faults, ..ClusterConfig::draw(seed) };
        let report = run_well(&config);
        assert!(report.transactions() >= config.transactions, "{report:?}");
    }
}

#[test]
fn histories_with_faults_are_serializable() {
    let mut sum = ClusterReport::default();
    (1_000..1_000 + SEEDS).for_each(|seed| sum.add(&run_well(&ClusterConfig::draw(seed))));
    let faults = [sum.crashes, sum.lost, sum.doubled, sum.inquiries, sum.unknown, sum.repeated];
    assert!(faults.iter().all(|count| *count > 100), "{sum:?}");
    assert!(sum.scheme_changes > 1_000, "{sum:?}");
}

#[test]
fn histories_with_changes_of_schemes_are_serializable() {
    let mut sum = ClusterReport::default();
    for seed in 2_000..2_000 + SEEDS {
        let config = ClusterConfig { scheme_changes: 200 * MICRO, ..ClusterConfig::draw(seed) };
        sum.add(&run_well(&config));
    }
    assert!(sum.scheme_changes > 100 * SEEDS, "{sum:?}");
}

#[test]
fn the_micro_benchmark_runs_under_each_scheme() {
    for scheme in SchemeKind::ALL {
        let config =
            ClusterConfig { transactions: 2_000, ..ClusterConfig::micro_benchmark(scheme, 200) };
        assert_eq!(run_well(&config).committed, 2_000, "{scheme}");
    }
}

#[test]
fn many_partitions_with_two_rounds_run_under_each_scheme() {
    for scheme in SchemeKind::ALL {
        let mut config = ClusterConfig::micro_benchmark(scheme, 500);
        (config.partitions, config.transactions) = (64, 2_000);
        config.load.two_rounds = 500;
        config.durability = Durability::Backups(1);
        assert_eq!(run_well(&config).committed, 2_000, "{scheme}");
    }
}

/// In this seed, discarded transactions that were repeated with speculation discarded each other
/// forever, before sessions waited longer after many failures. They would still fail 600 times.
#[test]
fn discarded_transactions_commit_at_last() {
    let report = run_well(&ClusterConfig::draw(10_551));
    assert!(report.repeated < 300, "{report:?}");
}

/// In this seed, all transactions conflict and take locks in the end. They deadlocked across
/// partitions again and again.
#[test]
fn repeated_deadlocks_across_partitions_end() {
    for scheme in [SchemeKind::Locking, SchemeKind::Optimistic] {
        run_well(&ClusterConfig { scheme, ..ClusterConfig::draw(70_876) });
    }
}

#[test]
fn optimistic_histories_with_faults_are_serializable() {
    let scheme = SchemeKind::Optimistic;
    let mut sum = ClusterReport::default();
    for seed in 2_000..2_000 + SEEDS {
        sum.add(&run_well(&ClusterConfig { scheme, ..ClusterConfig::draw(seed) }));
    }
    assert!(sum.committed > 100 * SEEDS && sum.repeated > 10 * SEEDS, "{sum:?}");
}

#[test]
fn a_seed_determines_a_run() {
    for seed in [3, 12, 1_001] {
        let config = ClusterConfig::draw(seed);
        assert_eq!(run_well(&config), run_well(&config), "seed {seed}");
    }
}

/// Bugs of the engine are planted for the whole process, so no other test may run beside this one
/// in the build that has them.
#[test]
fn canaries_are_found() {
    for bug in ClusterCanary::all() {
        assert!(bug.find(0..CANARY_SEEDS).is_some(), "{bug}");
    }
}

/// Runs the micro-benchmark with one coordinator, and returns transactions a second.
fn rate(scheme: SchemeKind, multi: u64, load: impl FnOnce(&mut ClusterLoad)) -> f64 {
    let mut config =
        ClusterConfig { transactions: 4_000, ..ClusterConfig::micro_benchmark(scheme, multi) };
    load(&mut config.load);
    run_well(&config).throughput()
}

#[test]
fn a_central_order_is_serializable() {
    for seed in 0..12 {
        let scheme = [SchemeKind::Blocking, SchemeKind::Speculative][seed as usize % 2];
        let mut config = ClusterConfig::micro_benchmark(scheme, 500);
        (config.seed, config.transactions) = (seed, 1_000);
        (config.partitions, config.load.aborts) = (2 + seed as u16 % 3, 100);
        (config.load.conflicts, config.load.two_rounds) = (500, 100 * (seed % 3));
        config.durability = Durability::Backups(1);
        let report = run_well(&config);
        assert!(report.transactions() >= 1_000 && report.aborted > 50, "{report:?}");
    }
}

/// The source's costs: 64 us for a one-shot, and 211 us for a transaction at two partitions that
/// blocks both.
#[test]
fn one_shots_alone_pay_for_neither_undo_nor_locks() {
    for scheme in SchemeKind::ALL {
        let rate = rate(scheme, 0, |_| {});
        assert!((0.95..=1.0).contains(&(rate / (2e6 / 64.0))), "{scheme}: {rate}");
    }
}

#[test]
fn locks_and_undo_are_paid_for_if_they_are_used() {
    let of = |scheme, multi| rate(scheme, multi, |_| {});
    // With half of the transactions at both partitions, something is always active.
    let locking = of(SchemeKind::Locking, 500) / (2e6 / (1.132 * (55.0 + 0.5 * 73.0)));
    assert!((0.95..=1.05).contains(&locking), "{locking}");
    let speculative = of(SchemeKind::Speculative, 500) / (2e6 / (55.0 + 0.5 * 73.0));
    assert!((0.93..=1.03).contains(&speculative), "{speculative}");
    let blocking = of(SchemeKind::Blocking, 1000) / (2e6 / (2.0 * 211.0));
    assert!((0.8..=1.0).contains(&blocking), "the ends take time, too: {blocking}");
}

#[test]
fn conflicts_slow_down_locking_only() {
    let ratio = |scheme| {
        let conflicts = rate(scheme, 300, |load| load.conflicts = 1000);
        conflicts / rate(scheme, 300, |_| {})
    };
    assert_eq!(ratio(SchemeKind::Speculative), 1.0);
    assert_eq!(ratio(SchemeKind::Blocking), 1.0);
    let locking = ratio(SchemeKind::Locking);
    assert!(locking < 0.6, "{locking}");
}
