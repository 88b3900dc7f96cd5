//! Campaigns of the simulated cluster.

use clearway_cluster::campaign::ClusterCanary;
use clearway_cluster::{ClusterConfig, ClusterFaults, ClusterReport, Durability, MICRO, run};
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
