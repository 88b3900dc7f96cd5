//! Rollbacks that undo the transactions behind them: how many, and what happens if that fails.

use crate::driver::{Answer, state_of};
use crate::fence::report;
use crate::retire::{CASCADED, a, body, bump, chain, commit, driver, warm};
use crate::sql::{Find, Stmt};
use crate::trees::Paging;
use crate::units::{D, abort};
use clearway_partition::{Body, CascadeCounts, Failure};
use clearway_types::{SqlError, SqlState, TxnId};

/// Invariant 3 of `lock/retired.rs`: the chain of one row is bounded, by less than a cascade is.
#[test]
fn chains_are_bounded() {
    const CHAIN: usize = 64;
    let mut d = driver(None);
    let [first, others @ ..] = chain(&mut d, [1; CHAIN]);
    let newcomer = d.txn();
    let waits = d.send(newcomer, bump(1, 1));
    assert_eq!((d.take(waits), d.waiting()), (None, 1));
    commit(&mut d, first);
    let reply = d.take(waits).expect("its turn").expect("a change");
    assert!(reply.behind.is_some(), "it goes behind the others");
    others.into_iter().chain([newcomer]).for_each(|txn| commit(&mut d, txn));
    assert_eq!(a(&mut d, 1), Some(100 + CHAIN as i32 + 1));
    assert!(d.nothing_pending() && d.partition.active() == 0);
}

/// Invariant 3 of `lock/retired.rs`: the chains of three rows together are bounded. So is a
/// cascade: each transaction is behind `root`.
#[test]
fn cascades_are_bounded_over_all_rows() {
    const CASCADE: usize = 128;
    let mut d = driver(None);
    for id in [2, 3] {
        warm(&mut d, id);
    }
    let [root] = chain(&mut d, [1]);
    let mut behind = Vec::new();
    let mut waiting = Vec::new();
    for n in 0..CASCADE + 20 {
        let txn = d.txn();
        let own = 2 + n as i32 % 2;
        // The first transactions of rows 2 and 3 are behind the root, and the others behind these.
        let ids = if n < 2 { vec![1, own] } else { vec![own] };
        let answers: Vec<_> = ids.iter().map(|id| d.send(txn, bump(*id, 1))).collect();
        let answers: Vec<_> = answers.into_iter().map(|seq| (seq, d.take(seq))).collect();
        match &answers[..] {
            [.., (_, Some(Ok(reply)))] => {
                assert!(n < 2 || reply.behind.is_some());
                behind.push(txn);
            }
            [.., (seq, None)] => waiting.push((txn, *seq)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((behind.len(), waiting.len()), (CASCADE, 20));
    d.call(behind[5], bump(1, 0)).expect("it is behind others already");
    abort(&mut d, root);
    assert_eq!(d.undone.len(), CASCADE);
    assert_eq!(cascades(&d), [(CASCADE as u64, 1)]);
    for txn in behind {
        assert_eq!(state_of(&d.call(txn, Body::Settle)), CASCADED);
        abort(&mut d, txn);
    }
    while let Some((txn, seq)) = waiting.pop() {
        d.settle();
        match d.take(seq) {
            Some(answer) => {
                answer.expect("a change");
                abort(&mut d, txn);
            }
            None => waiting.insert(0, (txn, seq)),
        }
    }
    assert_eq!([1, 2, 3].map(|id| a(&mut d, id)), [Some(100); 3]);
    assert_eq!(cascades(&d), [(CASCADE as u64, 1)]);
    assert!(d.nothing_pending() && d.partition.active() == 0);
}

/// A cascade counts every transaction that it undoes once, also if it waits for pages in between.
/// What follows from it does not count.
#[test]
fn cascades_are_counted_by_size() {
    for (frames, returns) in [(0, false), (2, false), (8, false), (8, true)] {
        let mut d = driver(Some(Paging { pages: 8, frames }));
        let [first, doomed @ ..] = chain(&mut d, [1, 10, 100, 1000]);
        assert_eq!(cascades(&d), [], "none is undone yet");
        let context = format!("{frames} frames, returns: {returns}");
        if returns {
            d.call(first, bump(1, 0)).expect("its own row");
        } else {
            abort(&mut d, first);
        }
        assert_eq!(cascades(&d), [(3, 1)], "{context}");
        for txn in doomed {
            assert_eq!(state_of(&d.call(txn, Body::Settle)), CASCADED);
            abort(&mut d, txn);
        }
        if returns {
            commit(&mut d, first);
        }
        assert_eq!(cascades(&d), [(3, 1)], "{context}");
        let report = report(&mut d);
        assert_eq!(report.cascades.totals(), CascadeCounts { cascades: 1, undone: 3 });
        assert!(d.nothing_pending() && d.partition.active() == 0);
    }
}

/// Commits undo nothing, and neither does a rollback with no transaction behind it.
#[test]
fn ends_without_successors_are_no_cascades() {
    let mut d = driver(None);
    let [first, second, third] = chain(&mut d, [1, 10, 100]);
    abort(&mut d, third);
    commit(&mut d, first);
    commit(&mut d, second);
    assert_eq!((cascades(&d), a(&mut d, 1)), (vec![], Some(111)));
    assert!(d.nothing_pending() && d.partition.active() == 0);
}

/// A transaction that is being rolled back already does not count when one ahead of it is undone.
#[test]
fn rollbacks_in_progress_are_not_victims() {
    // Every access misses a page.
    let mut d = driver(Some(Paging { pages: 8, frames: 0 }));
    let [first, second, third] = chain(&mut d, [1, 10, 100]);
    let ends = [third, first].map(|txn| d.send(txn, Body::Finish { commit: None }));
    assert_eq!(ends.map(|seq| d.take(seq)), [None, None], "both wait for pages");
    d.settle();
    ends.into_iter().for_each(|seq| assert!(d.take(seq).is_some_and(|end| end.is_ok())));
    assert_eq!(cascades(&d), [(1, 1)], "the second");
    abort(&mut d, second);
    assert_eq!(a(&mut d, 1), Some(100));
    assert!(d.nothing_pending() && d.partition.active() == 0);
}

/// The sizes of the partition's cascades, each with its number.
fn cascades(d: &D) -> Vec<(u64, u64)> {
    d.partition.cascades().sizes().collect()
}

fn unreadable() -> SqlError {
    SqlError::new(SqlState::IO, "cannot read a page")
}

/// Fails the pages that the transaction's end needs until it is given up. Returns the reply.
fn fail_end(d: &mut D, txn: TxnId) -> Answer {
    let seq = d.send(txn, Body::Finish { commit: None });
    while let Some((suspended, _)) = d.suspended.pop() {
        assert_eq!(suspended, txn, "the undo is part of the end that requires it");
        d.fail_request(txn, unreadable());
    }
    d.take(seq).expect("a reply")
}

/// A rollback that cannot undo a transaction behind it is stranded, and so are all between them.
/// Invariants 1 and 2 of `stranded` hold for each.
#[test]
fn failed_undo_of_a_successor_strands_the_rollback() {
    // Every access misses a page.
    let mut d = driver(Some(Paging { pages: 8, frames: 0 }));
    let [first, second, third] = chain(&mut d, [1, 10, 100]);
    d.call(second, bump(2, 10)).expect("a change");
    let waits = d.send(second, Body::Settle);
    assert_eq!(d.take(waits), None);
    let other = d.txn();
    let blocked = d.send(other, body(&Stmt::Delete(Find::Point(1))));
    while d.waiting() < 2 {
        d.resume(0);
    }
    assert_eq!(state_of(&fail_end(&mut d, first)), Some(SqlState::IO));
    assert_eq!(d.undone, [third], "it is undone first, and was not in a call");
    d.settle();
    let cannot = |answer: Answer| {
        let Err(Failure::Sql(e)) = answer else { panic!("{answer:?}") };
        let why = "a blocking transaction could not be rolled back: cannot read a page";
        assert_eq!((e.state(), e.message()), (SqlState::IO, why));
    };
    cannot(d.take(waits).expect("the second cannot commit"));
    cannot(d.take(blocked).expect("nor can others change the row"));
    abort(&mut d, other);
    let newcomer = d.txn();
    cannot(d.call(newcomer, bump(1, 1000)));
    abort(&mut d, newcomer);
    assert_eq!(state_of(&d.call(third, Body::Settle)), CASCADED);
    for doomed in [second, third] {
        assert_eq!(state_of(&fail_end(&mut d, doomed)), Some(SqlState::IO));
    }
    let newcomer = d.txn();
    cannot(d.call(newcomer, bump(2, 1000)));
    abort(&mut d, newcomer);
    d.call(newcomer, bump(3, 1)).expect("all other rows are unaffected");
    commit(&mut d, newcomer);
    assert!(d.nothing_pending() && d.partition.active() == 3);
}

/// Once there is space, the end of another transaction undoes all of them.
#[test]
fn stranded_rollback_with_successors_is_retried() {
    let mut d = driver(Some(Paging { pages: 8, frames: 0 }));
    let txns = chain(&mut d, [1, 10, 100]);
    for txn in txns {
        let seq = d.send(txn, Body::Finish { commit: None });
        while let Some((suspended, _)) = d.suspended.pop() {
            let full = SqlError::new(SqlState::DISK_FULL, "no space for a new page");
            d.fail_request(suspended, full);
        }
        assert_eq!(state_of(&d.take(seq).expect("a reply")), Some(SqlState::DISK_FULL));
    }
    for _ in 0..3 {
        let other = d.txn();
        d.call(other, bump(3, 0)).expect("a change");
        abort(&mut d, other);
        d.settle();
    }
    assert_eq!(a(&mut d, 1), Some(100));
    assert!(d.nothing_pending() && d.partition.active() == 0);
}

/// A stranded transaction has been answered. If the end of the one ahead undoes it, nothing of it
/// remains.
#[test]
fn stranded_successors_that_are_undone_are_gone() {
    let mut d = driver(Some(Paging { pages: 8, frames: 0 }));
    let [first, second] = chain(&mut d, [1, 10]);
    assert_eq!(state_of(&fail_end(&mut d, second)), Some(SqlState::IO));
    abort(&mut d, first);
    assert_eq!(a(&mut d, 1), Some(100));
    assert!(d.nothing_pending() && d.partition.active() == 0);
}
