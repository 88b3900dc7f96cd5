//! Properties that the simulated cluster must have at any size: correct rows, the budgets of verbs,
//! and the calibration.

use super::*;
use crate::{LockKind, Protocol};

/// Returns a cluster of the source's size with fewer rows and transactions in flight, and without
/// back-off.
fn small(mode: Mode, transport: Transport, theta: f64) -> Setup {
    let full = Setup::new(mode, transport, theta, 0.5);
    let costs = Costs { back_off_ns: 0, ..full.costs };
    Setup { rows: 20_000, warm_up: 50, commits: 300, in_flight: 4, costs, ..full }
}

fn all_modes() -> impl Iterator<Item = Mode> {
    Mode::PUBLISHED.into_iter().chain(Mode::ADAPTIVE).chain([Mode::ONE_ROUND, Mode::LINE])
}

/// [`run`] fails if a row lacks a change or has one too many, or if a lock leaks.
#[test]
fn rows_have_the_changes_of_committed_transactions() {
    for mode in all_modes() {
        for transport in [Transport::OneSided, Transport::TwoSided, Transport::Tcp] {
            if transport != Transport::OneSided && !Mode::PUBLISHED.contains(&mode) {
                continue;
            }
            for (theta, transactions) in [(0.0, 1), (0.9, 2)] {
                let setup = Setup {
                    rows: 5_000,
                    transactions,
                    workers: 4,
                    commits: 100,
                    ..small(mode, transport, theta)
                };
                let found = run(&setup).unwrap_or_else(|why| panic!("{setup:?}: {why}"));
                assert!(found.stats.commits >= 150 && found.rate > 0.0, "{setup:?}: {found:?}");
                assert!(theta == 0.0 || found.abort_rate() > 0.2, "{setup:?}: {found:?}");
            }
        }
    }
}

#[test]
fn same_seed_gives_the_same_run() {
    let setup = Setup { commits: 100, ..small(Mode::LINE, Transport::OneSided, 0.9) };
    let [first, again] = [1, 2].map(|_| run(&setup).unwrap());
    assert_eq!((first.rate, first.stats), (again.rate, again.stats));
    assert_ne!(first.stats, run(&Setup { seed: 2, ..setup }).unwrap().stats);
}

/// 7.5 remote rows per transaction: at most 2 rounds for each, and 27 verbs in total.
#[test]
fn one_round_keeps_its_budget_of_verbs_and_rounds() {
    let found =
        run(&Setup { cached: true, ..small(Mode::ONE_ROUND, Transport::OneSided, 0.0) }).unwrap();
    let remote = found.stats.remote();
    let rows = found.remote_rows as f64;
    let (verbs, rounds) = (remote.verbs as f64 * 7.5 / rows, remote.rounds as f64 / rows);
    println!("{verbs:.2} verbs of 7.5 remote rows, {rounds:.3} rounds a remote row");
    assert!(rounds <= 2.0, "{rounds} rounds");
    assert!(verbs <= 27.0, "{verbs} verbs");
    assert!((found.a_commit(found.remote_rows) - 7.5).abs() < 0.3, "{found:?}");
}

/// A CAS to join the line, and a WRITE to the predecessor if that is on another node. A changed
/// lock word costs one more CAS.
#[test]
fn waits_in_line_take_at_most_two_remote_verbs() {
    let found = run(&small(Mode::LINE, Transport::OneSided, 0.95)).unwrap();
    let stats = &found.stats;
    println!("{} remote verbs of {} for remote rows", stats.remote_wait_verbs, stats.remote_waits);
    assert!(
        stats.remote_waits > 100 && stats.remote_wait_verbs <= 2 * stats.remote_waits,
        "{found:?}"
    );
}

/// After a warm-up in which each worker learns which rows are hot.
#[test]
fn adaptive_locks_keep_up_with_the_better_kind() {
    for protocol in [Protocol::NoWait, Protocol::WaitDie] {
        for (theta, writes, commits) in [(0.0, 0.5, 300), (0.9, 0.5, 1_500)] {
            let [mutual, shared, adaptive] =
                [LockKind::Mutual, LockKind::Shared, LockKind::Adaptive].map(|kind| {
                    let setup = Setup {
                        writes,
                        ..small(Mode { protocol, kind }, Transport::OneSided, theta)
                    };
                    run(&Setup { warm_up: commits, commits, ..setup }).unwrap().rate
                });
            let ratio = adaptive / mutual.max(shared);
            println!(
                "{protocol:?}, theta {theta}, writes {writes}: {ratio:.3} of the better of M \
                 and M/S"
            );
            assert!(ratio > 0.97, "{protocol:?}, theta {theta}, writes {writes}: {ratio}");
        }
    }
}

/// The only fitted cost, and the only ratio to which it is fitted.
#[test]
fn two_sided_over_tcp_is_as_calibrated_at_theta_0() {
    let shared = Mode { protocol: Protocol::NoWait, kind: LockKind::Shared };
    let [two_sided, tcp] = [Transport::TwoSided, Transport::Tcp]
        .map(|transport| Setup {
            warm_up: 5_000,
            commits: 5_000,
            ..Setup::new(shared, transport, 0.0, 0.5)
        })
        .map(|setup| run(&setup));
    let ratio = two_sided.unwrap().rate / tcp.unwrap().rate;
    println!("two-sided is {ratio:.3} times TCP");
    assert!((3.1..3.3).contains(&ratio), "{ratio}");
}

/// By messages, a worker starts the next transaction while another one waits for a reply.
#[test]
fn workers_begin_transactions_while_others_wait() {
    let rate = |in_flight| {
        let setup = small(Mode::PUBLISHED[1], Transport::TwoSided, 0.0);
        run(&Setup { in_flight, workers: 1, ..setup }).unwrap().rate
    };
    let [one, many] = [1, 64].map(rate);
    assert!(many > 1.25 * one, "{one} with 1 in flight a worker, {many} with 64");
}

/// Each abort delays the following commit by the back-off; other transactions run meanwhile.
#[test]
fn aborted_transactions_wait_before_they_begin_again() {
    let back_off_ns = 100_000;
    for transport in [Transport::OneSided, Transport::Tcp] {
        let full = small(Mode::PUBLISHED[2], transport, 0.95);
        let waiting = Setup { costs: Costs { back_off_ns, ..full.costs }, ..full };
        let [at_once, waited] = [full, waiting].map(|setup| run(&setup).unwrap());
        let waits_ns = (waited.stats.aborts * back_off_ns) as f64;
        let latencies_ns = waited.latency_ns * waited.stats.commits as f64;
        // Transactions in back-off when enough have committed do not commit any more.
        assert!(latencies_ns >= waits_ns / 2.0 && waits_ns > 0.0, "{transport:?}: {waited:?}");
        assert!(
            waited.abort_rate() < at_once.abort_rate(),
            "{transport:?}: {waited:?}, at once {at_once:?}"
        );
    }
}

/// Sensitivity analyses skip runs that a cost does not affect.
#[test]
fn costs_affect_only_the_transports_that_they_name() {
    for transport in [Transport::OneSided, Transport::TwoSided, Transport::Tcp] {
        let full = small(Mode::PUBLISHED[1], transport, 0.8);
        // Back-offs, so that doubling them has an effect.
        let costs = Costs { back_off_ns: 20_000, ..full.costs };
        let setup = Setup { workers: 2, commits: 50, costs, ..full };
        let estimated = run(&setup).unwrap();
        for field in Costs::fields() {
            let mut costs = setup.costs;
            (field.of)(&mut costs).into_iter().for_each(|ns| *ns *= 2);
            let doubled = run(&Setup { costs, ..setup }).unwrap();
            let same = (doubled.rate, doubled.stats) == (estimated.rate, estimated.stats);
            assert_ne!(same, field.affects.contains(&transport), "{transport:?}, {}", field.name);
        }
    }
}
