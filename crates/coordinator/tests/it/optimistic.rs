//! Statements on several partitions that run without locks, under the optimistic scheme.

use crate::speculation::{Scene, unused};
use clearway_coordinator::SchemeKind;

fn scene() -> Scene {
    Scene::under(SchemeKind::Optimistic)
}

/// Returns unused ids of the partitions 0, 1, 1 and 2.
fn ids() -> [i32; 4] {
    [(0, 0), (1, 0), (1, 1), (2, 0)].map(|(at, nth)| unused(at, nth))
}

#[test]
fn statements_without_conflicts_commit_in_any_order() {
    let mut s = scene();
    let [a, b, c, d] = ids();
    s.starts_inserting(0, &[a, b]);
    s.starts_inserting(1, &[c, d]);
    assert_eq!(s.counts(), (4, 0));
    assert_eq!((s.ends(1), s.ends(0)), (Ok(()), Ok(())));
    assert_eq!(ids().map(|id| s.balance(id)), [Some(1); 4]);
    s.close();
}

#[test]
fn statements_that_conflict_run_one_after_the_other() {
    let mut s = scene();
    s.starts_adding_to_all(0, 1);
    s.starts_adding_to_all(1, 10);
    s.starts_adding_to_all(2, 100);
    [1, 2].into_iter().for_each(|worker| s.waits(worker));
    let (valid, invalid) = s.counts();
    assert!(valid == 3 && invalid > 0, "{valid} {invalid}");
    assert_eq!((s.ends(0), s.ends(1), s.ends(2)), (Ok(()), Ok(()), Ok(())));
    assert_eq!([3, 4].map(|id| s.balance(id)), [Some(211), Some(211)]);
    s.close();
}

#[test]
fn an_abort_reaches_only_its_own_changes() {
    let mut s = scene();
    let [a, b, c, d] = ids();
    s.starts_inserting(0, &[a, b]);
    s.starts_inserting(1, &[c, d]);
    s.starts_inserting(2, &[b, d]);
    s.waits(2);
    s.cancels(0);
    assert_eq!(s.ends(1), Ok(()));
    assert_eq!(s.ends(2).unwrap_err(), clearway_types::SqlState::UNIQUE_VIOLATION);
    assert_eq!(ids().map(|id| s.balance(id)), [None, None, Some(1), Some(1)]);
    s.close();
}

#[test]
fn single_partitions_wait_only_for_what_they_use() {
    let mut s = scene();
    let [a, b, ..] = ids();
    s.starts_inserting(0, &[a, b]);
    s.bank.add(&mut s.workers[1], 3, 100).unwrap();
    assert_eq!(s.bank.balance(&mut s.workers[1], a), None, "a read waits for nobody");
    s.starts_adding(2, a, 1);
    s.waits(2);
    assert_eq!((s.ends(0), s.ends(2)), (Ok(()), Ok(())));
    assert_eq!([3, a, b].map(|id| s.balance(id)), [Some(200), Some(2), Some(1)]);
    s.close();
}

#[test]
fn interactive_transactions_keep_their_rows() {
    let mut s = scene();
    let [a, b, ..] = ids();
    s.workers[1].begin();
    s.bank.add(&mut s.workers[1], 3, 10).unwrap();
    s.bank.insert_rows(&mut s.workers[2], &[(a, 5), (b, 5)]).unwrap();
    s.starts_adding_to_all(0, 1);
    s.waits(0);
    s.workers[1].commit().unwrap();
    assert_eq!(s.ends(0), Ok(()));
    assert_eq!([3, 4, a].map(|id| s.balance(id)), [Some(111), Some(101), Some(6)]);
    s.close();
}
