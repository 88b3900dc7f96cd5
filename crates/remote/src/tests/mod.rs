//! The protocols on a simulated network with seeded delays, reordering, and torn WRITEs and READs.
//!
//! `SEED=n cargo test -p clearway-remote serializable` replays one seed of the histories.

mod line;
#[cfg(loom)]
mod loom;
mod messages;
mod one_sided;
mod processes;
mod records;
mod recovery;
mod runner;
mod store;
mod store_client;
mod store_recovery;
mod store_runner;
mod threads;
mod verbs;

use crate::store::Bucket;
use crate::traps::Trap;
use crate::{LockKind, Mode, Protocol, RemoteStats};
use runner::{Found, Setup, run};

/// Words of a payload. All of them have the same value, so that a torn payload is visible.
const PAYLOAD: usize = 3;

/// Commits of each mode over all seeds: more than 100,000 in the 4 published modes.
const COMMITS: u64 = 25_200;
const SEEDS: u64 = 42;

/// Each planted trap is caught by a seed below this.
const TRAP_SEEDS: u64 = 300;

fn all_modes() -> Vec<Mode> {
    Mode::PUBLISHED.into_iter().chain(Mode::ADAPTIVE).chain([Mode::ONE_ROUND, Mode::LINE]).collect()
}

fn assert_clean(setup: Setup, found: &Found) {
    let broken = &found.broken;
    assert!(
        found.is_clean(),
        "SEED={} {:?}: {broken:?}\n{}",
        setup.seed,
        setup.mode,
        found.checked
    );
}

/// Runs one mode under all seeds, or under `SEED`, and returns its workers' counts.
fn run_mode(mode: Mode) -> RemoteStats {
    let given = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = given.map_or(0..SEEDS, |seed| seed..seed + 1);
    let mut sum = RemoteStats::default();
    for seed in seeds.clone() {
        let setup = Setup::new(seed, mode, COMMITS / SEEDS);
        let found = run(setup);
        assert_clean(setup, &found);
        assert!(found.checked.counts.committed > COMMITS / SEEDS, "SEED={seed}: {}", found.checked);
        sum.add(&found.stats);
    }
    println!("{mode:?}, seeds {seeds:?}: {sum:?}");
    sum
}

#[test]
fn no_wait_mutual_is_strictly_serializable() {
    run_mode(Mode::PUBLISHED[0]);
}

#[test]
fn no_wait_shared_is_strictly_serializable() {
    run_mode(Mode::PUBLISHED[1]);
}

#[test]
fn wait_die_mutual_is_strictly_serializable() {
    run_mode(Mode::PUBLISHED[2]);
}

#[test]
fn wait_die_shared_is_strictly_serializable() {
    run_mode(Mode::PUBLISHED[3]);
}

#[test]
fn one_round_is_strictly_serializable() {
    run_mode(Mode::ONE_ROUND);
}

#[test]
fn lines_are_strictly_serializable() {
    run_mode(Mode::LINE);
}

/// Readers of one row take both kinds of lock, beside writers.
#[test]
fn adaptive_locks_are_strictly_serializable() {
    for mode in Mode::ADAPTIVE {
        let RemoteStats { reads_alone, reads_shared, commits, .. } = run_mode(mode);
        let least = commits / 50;
        assert!(
            reads_alone > least && reads_shared > least,
            "{mode:?}: {reads_alone} mutual, {reads_shared} shared"
        );
    }
}

/// Runs seeds until one catches the trap, and prints it. Without the trap the same seed is clean.
fn assert_caught(trap: Trap, mode: Mode) {
    let setup = |seed, trap| Setup { trap, ..Setup::new(seed, mode, 200) };
    for seed in 0..TRAP_SEEDS {
        let found = run(setup(seed, Some(trap)));
        if !found.is_clean() {
            println!(
                "{trap:?}, {mode:?}: SEED={seed}: {:?} {}",
                found.broken,
                found.checked.summary()
            );
            return assert_clean(setup(seed, None), &run(setup(seed, None)));
        }
    }
    panic!("no seed below {TRAP_SEEDS} catches {trap:?} in {mode:?}");
}

#[test]
fn unlock_with_payload_is_caught() {
    for mode in Mode::PUBLISHED {
        assert_caught(Trap::UnlockWithPayload, mode);
    }
}

#[test]
fn payload_after_release_is_caught() {
    assert_caught(Trap::PayloadAfterRelease, Mode::LINE);
}

#[test]
fn release_by_write_is_caught() {
    for mode in Mode::PUBLISHED {
        assert_caught(Trap::ReleaseByWrite, mode);
    }
}

#[test]
fn comparing_owner_is_caught() {
    assert_caught(Trap::CompareOwner, Mode { protocol: Protocol::WaitDie, kind: LockKind::Shared });
}

#[test]
fn abort_on_busy_metadata_is_caught() {
    assert_caught(
        Trap::AbortOnBusyMetadata,
        Mode { protocol: Protocol::WaitDie, kind: LockKind::Shared },
    );
}

/// The planted lock word has a different meaning for the readers that may share the row.
#[test]
fn mutual_word_among_sharing_readers_is_caught() {
    for mode in Mode::ADAPTIVE {
        assert_caught(Trap::MutualWord, mode);
    }
}

/// The choice for a row changes between a reader's lock and its release.
#[test]
fn release_by_the_present_choice_is_caught() {
    for mode in Mode::ADAPTIVE {
        assert_caught(Trap::ReleaseByChoice, mode);
    }
}

#[test]
fn direct_access_to_local_rows_is_caught() {
    for mode in Mode::PUBLISHED {
        assert_caught(Trap::DirectLocal, mode);
    }
}
