//! Checks that implementations of this crate's traits keep their contracts; for use in tests.

use crate::Uses;
use clearway_types::FrameId;

/// Checks that `counts` loses no use when threads count concurrently, and stops at `bound`.
///
/// `counts` must have at least two frames. Frames 0 and 1 must not be counted yet. Afterwards, uses
/// of frame 1 are no longer counted.
///
/// # Panics
/// If the contract of [`Uses`] is broken, or the bound is not in `201..255`.
pub fn uses_are_all_counted(counts: &(impl Uses + ?Sized), bound: u8) {
    assert!((201..255).contains(&bound), "the check counts up to 200 below the bound");
    let [one, other] = [FrameId(0), FrameId(1)];
    counts.count(one);
    assert_eq!((counts.of(one), counts.take(one)), (None, false), "nothing is counted yet");
    counts.set(one, Some(0));
    counts.set(other, Some(bound - 3));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..50).for_each(|_| counts.count(one)));
            scope.spawn(|| (0..50).for_each(|_| counts.count(other)));
        }
    });
    assert_eq!((counts.of(one), counts.of(other)), (Some(200), Some(bound)));
    assert!(counts.take(other) && counts.of(other) == Some(bound - 1));
    counts.set(one, Some(1));
    assert!(counts.take(one) && !counts.take(one) && counts.of(one) == Some(0));
    counts.set(other, None);
    counts.count(other);
    assert!(counts.of(other).is_none() && !counts.take(other));
}
