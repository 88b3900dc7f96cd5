//! Planted bugs that these tests must find. Only builds with `--cfg shuttle` have them.

use clearway_sync::canary::{Bug, assert_found};

/// One after the other: a bug is planted for the whole process.
#[test]
fn canaries_are_found() {
    let spread = [Bug::UncheckedSpread];
    assert_found(&spread, crate::increment::additions_near_the_bound_wait_and_are_exact);
    assert_found(&spread, crate::checks::uncommitted_additions_are_not_spent);
    let eager = [Bug::EagerFence];
    assert_found(&eager, crate::fence::changes_wait_for_exclusive_access_and_release_the_line);
    let histories = crate::scheme_histories::optimistic_transactions_are_serializable;
    assert_found(&[Bug::UnvalidatedRead], histories);
}
