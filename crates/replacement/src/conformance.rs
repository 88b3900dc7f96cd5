//! Checks of what an implementation of this crate's traits promises, for its tests.

use crate::Uses;
use clearway_types::FrameId;

/// Checks that `counts`, of at least two frames and with this bound, loses no use that threads
/// count at once, and stops at the bound. Nothing of frames 0 and 1 may be counted yet; afterwards
/// uses of frame 1 are not counted any more.
///
/// # Panics
/// If a promise of [`Uses`] is broken, or the bound is not in `201..255`.
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
