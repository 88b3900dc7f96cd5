//! Random histories.

use super::*;

#[test]
fn spilled_images_are_seen_like_those_in_memory() {
    let seen = run(30, ROOMY);
    assert_eq!(seen.failed_early, 0, "there is enough room");
    assert!(seen.active_spilled > 100, "{}", seen.active_spilled);
    assert!(seen.failed < 10, "few seeds need all rounds: {}", seen.failed);
    assert!(
        seen.reads > 1500 && seen.old > 150 && seen.spilled > 1500,
        "{} {} {}",
        seen.reads,
        seen.old,
        seen.spilled
    );
}

/// Invariant 4: if the file is insufficient, snapshots fail, and the others see what they should.
#[test]
fn full_files_fail_only_the_oldest_snapshots() {
    let seen = run(30, Setting { slots: 8, ..ROOMY });
    assert!(
        seen.reads > 500 && seen.spilled > 150 && seen.failed > 15,
        "{} {} {}",
        seen.reads,
        seen.spilled,
        seen.failed
    );
    let without = run(20, Setting { slots: 0, ..ROOMY });
    assert!(
        without.reads > 100 && without.spilled == 0 && without.failed > 10,
        "{} {}",
        without.reads,
        without.failed
    );
}

#[test]
fn failing_disks_fail_only_snapshots() {
    for faults in [
        &[Fault::FailedWrite][..],
        &[Fault::FailedRead],
        &[Fault::LostWrite, Fault::MisledWrite, Fault::FlippedBit],
        &[Fault::FailedOpen],
    ] {
        let seen = run(10, Setting { faults, ..ROOMY });
        assert!(seen.reads > 50 && seen.failed > 0, "{faults:?}: {} {}", seen.reads, seen.failed);
    }
}
