//! The rules of optimistic runs: which are valid beside undecided transactions, and what becomes of
//! the others.

use crate::driver::state_of;
use crate::schemes::under;
use crate::snapshots::{close, open, read_in};
use crate::speculation::{
    add_to_all, commit, insert, is_answered, is_idle, paged, plain, plain_row, plain_single, row,
    single,
};
use crate::sql::{Find, Stmt, as_expected, rows_of, table};
use crate::units::{D, abort, add, select};
use clearway_partition::SchemeKind::{self, Optimistic};
use clearway_partition::{Body, COMMITTED, Failure};
use clearway_types::{SqlError, SqlState, TxnId};

/// More rows than a slice has.
const MANY: i32 = 5000;

/// Sends the fragment of a new transaction.
fn fragment(d: &mut D, stmt: &Stmt) -> (TxnId, u32) {
    let txn = d.txn();
    (txn, d.send(txn, stmt.optimistic(&table())))
}

/// Starts a transaction whose fragment is valid.
fn undecided(d: &mut D, stmt: &Stmt) -> TxnId {
    let (txn, call) = fragment(d, stmt);
    d.take(call).expect("a reply").expect("a valid run");
    txn
}

/// Starts a transaction whose fragment is invalid.
fn invalid(d: &mut D, stmt: &Stmt) -> TxnId {
    let (txn, call) = fragment(d, stmt);
    assert_eq!(d.take(call), Some(Err(Failure::Undone)), "{stmt:?}");
    txn
}

fn ids(low: i32, high: i32) -> Find {
    Find::Ids { low: Some(low), high: Some(high), reverse: false }
}

fn add_where(find: Find) -> Stmt {
    Stmt::Add { find, column: 1, by: 1 }
}

/// Returns the numbers of valid runs, of invalid ones, and of those that have run again here.
fn counts(d: &D) -> (u64, u64, u64) {
    let counts = d.partition.counts();
    (counts.validated, counts.discarded, counts.retried)
}

#[test]
fn valid_fragments_are_decided_in_any_order() {
    let mut d = under(Optimistic, 10);
    let first = undecided(&mut d, &add(1));
    let second = undecided(&mut d, &add(2));
    let third = undecided(&mut d, &add(3));
    commit(&mut d, third);
    abort(&mut d, first);
    commit(&mut d, second);
    assert_eq!([1, 2, 3].map(|id| row(&mut d, id)), [Some(1), Some(3), Some(4)]);
    assert_eq!(counts(&d), (3, 0, 0));
    assert!(is_idle(&mut d));
}

#[test]
fn one_shots_commit_at_once_beside_undecided_fragments() {
    let mut d = under(Optimistic, 10);
    let first = undecided(&mut d, &add(1));
    let (_, call) = single(&mut d, &add_where(ids(2, 4)));
    assert_eq!(d.take(call).expect("a reply").expect("a valid run").count, 3);
    assert_eq!(counts(&d), (2, 0, 0));
    abort(&mut d, first);
    assert_eq!([1, 2, 3, 4].map(|id| row(&mut d, id)), [Some(1), Some(3), Some(4), Some(5)]);
    assert!(is_idle(&mut d));
}

/// It changes a row before it meets one that is not committed.
#[test]
fn invalid_one_shots_run_again_with_locks() {
    for commits in [true, false] {
        let mut d = under(Optimistic, 10);
        let first = undecided(&mut d, &add(1));
        let (txn, call) = single(&mut d, &add_where(ids(0, 1)));
        assert!(!is_answered(&d, call));
        assert_eq!(d.blockers_of(txn), [first]);
        assert_eq!((counts(&d), row(&mut d, 0)), ((1, 1, 1), Some(0)));
        if commits {
            commit(&mut d, first)
        } else {
            abort(&mut d, first)
        }
        let seen = 2 + i32::from(commits);
        let rows = rows_of(&d.take(call).unwrap().unwrap());
        assert_eq!(rows, [(0, Some(1), 1000), (1, Some(seen), 1001)]);
        assert!(is_idle(&mut d));
    }
}

#[test]
fn invalid_fragments_are_undone_and_run_again_alone() {
    let mut d = under(Optimistic, 10);
    let first = undecided(&mut d, &add(1));
    let second = invalid(&mut d, &add_where(ids(0, 1)));
    assert_eq!((counts(&d), row(&mut d, 0)), ((1, 1, 0), Some(0)));
    let late = d.send(second, add(5).statement(&table()));
    assert_eq!(d.take(late), Some(Err(Failure::Undone)));
    abort(&mut d, second);
    let again = d.txn();
    let ask = Body::Block { one_round: false };
    assert_eq!(d.call(again, ask).unwrap().count, 0, "the first one has locks");
    let quiet = d.send(again, Body::AwaitQuiet);
    assert!(!is_answered(&d, quiet), "it ends soon");
    commit(&mut d, first);
    assert_eq!(d.take(quiet).unwrap().unwrap().count, 1);
    assert_eq!(d.call(again, Body::Block { one_round: false }).unwrap().count, 1);
    d.call(again, add_where(ids(0, 1)).statement(&table())).unwrap();
    commit(&mut d, again);
    assert_eq!([0, 1].map(|id| row(&mut d, id)), [Some(1), Some(3)]);
    assert!(is_idle(&mut d));
}

#[test]
fn sets_that_meet_are_invalid() {
    let none = || add_where(Find::All { a_less: Some(0) });
    let cases = [
        // A row that is no longer, or not yet, in the range.
        (Stmt::Delete(Find::Point(3)), add_where(ids(2, 4))),
        (add_where(ids(100, 110)), insert(105)),
        (add(100), insert(100)),
        (insert(100), insert(100)),
        // By an index.
        (insert(100), add_where(Find::ByB(5100))),
        (add_where(Find::ByB(5100)), insert(100)),
        (add(4), add_where(Find::ByA { low: Some(5), high: Some(5), reverse: false })),
        // The whole table.
        (none(), add(5)),
        (add(5), none()),
        (Stmt::Delete(ids(2, 4)), Stmt::Delete(ids(4, 6))),
    ];
    for (first, second) in cases {
        let mut d = under(Optimistic, 10);
        let undecided = undecided(&mut d, &first);
        let undone = invalid(&mut d, &second);
        abort(&mut d, undone);
        abort(&mut d, undecided);
        let (_, call) = single(&mut d, &select(Find::All { a_less: None }));
        let rows = rows_of(&d.take(call).unwrap().unwrap());
        assert_eq!(rows, crate::units::numbers(10), "{first:?} {second:?}");
        assert!(is_idle(&mut d), "{first:?} {second:?}");
    }
}

/// In contrast to locks, which a change takes in its strongest mode on all that it searches.
#[test]
fn reads_do_not_conflict() {
    let mut d = under(Optimistic, 10);
    for stmt in [add_where(ids(100, 110)), add(105), add_where(Find::All { a_less: Some(0) })] {
        let all = [0; 3].map(|_| undecided(&mut d, &stmt));
        all.into_iter().for_each(|txn| commit(&mut d, txn));
    }
    assert_eq!(counts(&d), (9, 0, 0));
    assert!(is_idle(&mut d));
}

#[test]
fn errors_of_invalid_runs_are_discarded() {
    let mut d = under(Optimistic, 10);
    let most = Stmt::Add { find: Find::Point(1), column: 1, by: i32::MAX - 5 };
    let first = undecided(&mut d, &most);
    let overflow = Stmt::Add { find: Find::Point(1), column: 1, by: 100 };
    let second = invalid(&mut d, &overflow);
    let (_, call) = single(&mut d, &overflow);
    assert!(!is_answered(&d, call));
    abort(&mut d, first);
    assert_eq!(rows_of(&d.take(call).unwrap().unwrap()), [(1, Some(101), 1001)]);
    abort(&mut d, second);
    assert!(is_idle(&mut d));
}

#[test]
fn errors_of_valid_runs_are_returned() {
    let mut d = under(Optimistic, 10);
    let first = undecided(&mut d, &add(1));
    let (_, call) = single(&mut d, &insert(3));
    assert_eq!(state_of(&d.take(call).unwrap()), Some(SqlState::UNIQUE_VIOLATION));
    let (second, call) = fragment(&mut d, &insert(3));
    assert_eq!(state_of(&d.take(call).unwrap()), Some(SqlState::UNIQUE_VIOLATION));
    // Its session has shown the error to nobody yet.
    let (third, call) = single(&mut d, &Stmt::Delete(Find::Point(3)));
    assert_eq!(d.blockers_of(third), [second]);
    abort(&mut d, second);
    assert_eq!(d.take(call).unwrap().unwrap().count, 1);
    commit(&mut d, first);
    assert_eq!(counts(&d).1, 1);
    assert!(is_idle(&mut d));
}

#[test]
fn interactive_transactions_wait_for_undecided_fragments_only() {
    let mut d = under(Optimistic, 10);
    let first = undecided(&mut d, &add(1));
    let general = d.txn();
    d.call(general, add(2).statement(&table())).expect("no conflict");
    let statement = d.send(general, add(1).statement(&table()));
    assert_eq!(d.blockers_of(general), [first]);
    commit(&mut d, first);
    assert_eq!(as_expected(&d.take(statement).unwrap()), Ok(vec![(1, Some(3), 1001)]));
    let beside = undecided(&mut d, &add(3));
    let undone = invalid(&mut d, &add(1));
    [beside, undone, general].into_iter().for_each(|txn| abort(&mut d, txn));
    assert_eq!(row(&mut d, 1), Some(2));
    assert!(is_idle(&mut d));
}

#[test]
fn readers_see_only_decided_changes() {
    let mut d = under(Optimistic, 10);
    let first = undecided(&mut d, &add(1));
    let reader = d.txn();
    let Body::Statement { program, env, rows, batch, .. } =
        select(Find::Point(1)).statement(&table())
    else {
        panic!("a statement");
    };
    let at = COMMITTED;
    let read = Body::StatementAt { at, repeatable: false, program, env, rows, batch };
    assert_eq!(rows_of(&d.call(reader, read).unwrap()), [(1, Some(1), 1001)]);
    assert_eq!(row(&mut d, 1), Some(1));
    [first, reader].into_iter().for_each(|txn| abort(&mut d, txn));
    assert!(is_idle(&mut d));
}

/// Otherwise a reader would stop at the image of the undone change, and miss the addition.
#[test]
fn undone_runs_leave_no_images() {
    let mut d = under(Optimistic, 10);
    let (plain, before) = (plain(), open(&mut d));
    let (first, second, adder) = (d.txn(), d.txn(), d.txn());
    d.call(first, add(1).optimistic(&plain)).expect("a valid run");
    let both = add_where(Find::Points(vec![0, 1]));
    assert_eq!(d.call(second, both.optimistic(&plain)), Err(Failure::Undone));
    let bump = Stmt::Bump { id: 0, column: 1, by: 5 };
    assert_eq!(d.call(adder, bump.one_shot(&plain)).unwrap().count, 1);
    let after = open(&mut d);
    for (reader, sees) in [(before, 0), (after, 5)] {
        let rows = rows_of(&d.call(reader.0, read_in(&plain, &reader, Find::Point(0))).unwrap());
        assert_eq!(rows, [(0, Some(sees), 1000)]);
        close(&mut d, reader);
    }
    [first, second].into_iter().for_each(|txn| abort(&mut d, txn));
    assert!(is_idle(&mut d));
}

/// Otherwise fragments could follow each other, and the wait might never end.
#[test]
fn fragments_are_invalid_while_a_transaction_waits_for_quiet() {
    let mut d = under(Optimistic, 10);
    let first = undecided(&mut d, &add(1));
    let waiter = d.txn();
    let quiet = d.send(waiter, Body::AwaitQuiet);
    let second = invalid(&mut d, &add(5));
    let (_, call) = single(&mut d, &add(6));
    assert!(!is_answered(&d, quiet) && !is_answered(&d, call));
    commit(&mut d, first);
    assert_eq!(d.take(quiet).unwrap().unwrap().count, 1);
    assert_eq!(rows_of(&d.take(call).unwrap().unwrap()), [(6, Some(7), 1006)]);
    [second, waiter].into_iter().for_each(|txn| abort(&mut d, txn));
    assert!(is_idle(&mut d));
}

/// Nobody waits for a client because of the fragment's locks.
#[test]
fn fragments_in_line_lock_if_their_transaction_waits_elsewhere() {
    for waits in [true, false] {
        let mut d = under(Optimistic, 10);
        let (alone, waiter) = (d.txn(), d.txn());
        assert_eq!(d.call(alone, Body::Block { one_round: false }).unwrap().count, 1);
        let (txn, call) = fragment(&mut d, &add(1));
        assert!(!is_answered(&d, call));
        if waits {
            d.send(txn, Body::AwaitsClient);
        }
        abort(&mut d, alone);
        assert!(d.take(call).unwrap().is_ok());
        assert_eq!(counts(&d).0, u64::from(!waits));
        let quiet = d.send(waiter, Body::AwaitQuiet);
        assert_eq!(is_answered(&d, quiet), waits);
        commit(&mut d, txn);
        assert_eq!(d.take(quiet).unwrap().unwrap().count, u64::from(!waits));
        abort(&mut d, waiter);
        assert!(is_idle(&mut d));
    }
}

#[test]
fn runs_that_miss_pages_continue_with_locks() {
    let mut d = paged(Optimistic);
    let txn = d.txn();
    let call = d.send(txn, add_to_all().optimistic(&plain()));
    assert!(!is_answered(&d, call) && d.suspended.len() == 1);
    let (other, waits) = plain_single(&mut d, &add(1));
    assert_eq!(d.blockers_of(other), [txn]);
    d.settle();
    assert_eq!(d.take(call).unwrap().unwrap().count, 59);
    assert_eq!(counts(&d), (1, 0, 0));
    assert!(!is_answered(&d, waits));
    commit(&mut d, txn);
    d.settle();
    assert_eq!(rows_of(&d.take(waits).unwrap().unwrap()), [(1, Some(102), 1001)]);
    assert!(is_idle(&mut d));
}

#[test]
fn invalid_runs_do_not_wait_for_pages() {
    let mut d = paged(Optimistic);
    plain_row(&mut d, 1);
    let (first, second) = (d.txn(), d.txn());
    let call = d.send(first, add(1).optimistic(&plain()));
    assert!(d.take(call).expect("its page is resident").is_ok());
    let call = d.send(second, add_to_all().optimistic(&plain()));
    assert_eq!(d.take(call), Some(Err(Failure::Undone)));
    assert!(d.suspended.is_empty());
    abort(&mut d, second);
    commit(&mut d, first);
    d.settle();
    assert_eq!(plain_row(&mut d, 1), Some(2));
    assert!(is_idle(&mut d));
}

#[test]
fn runs_longer_than_a_slice_continue_with_locks() {
    let mut d = under(Optimistic, MANY);
    let (txn, call) = fragment(&mut d, &add_where(Find::All { a_less: None }));
    let (other, waits) = single(&mut d, &add_where(ids(1, 2)));
    assert_eq!((d.suspended.len(), d.blockers_of(other)), (1, &[txn][..]));
    d.settle();
    assert_eq!(d.take(call).unwrap().unwrap().count, MANY as u64);
    abort(&mut d, txn);
    d.settle();
    assert_eq!(d.take(waits).unwrap().unwrap().count, 2);
    assert_eq!((row(&mut d, 1), row(&mut d, 3)), (Some(2), Some(3)));
    assert!(is_idle(&mut d));
}

#[test]
fn one_shots_that_wait_after_an_invalid_run_can_be_canceled() {
    let mut d = under(Optimistic, 10);
    let first = undecided(&mut d, &add(1));
    let (txn, call) = single(&mut d, &add_where(ids(0, 1)));
    let error = SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request");
    d.send(txn, Body::Cancel(error));
    assert_eq!(state_of(&d.take(call).unwrap()), Some(SqlState::QUERY_CANCELED));
    commit(&mut d, first);
    assert_eq!([0, 1].map(|id| row(&mut d, id)), [Some(0), Some(2)]);
    assert!(is_idle(&mut d));
}

#[test]
fn only_the_optimistic_scheme_validates_one_shots() {
    for scheme in SchemeKind::ALL {
        let mut d = under(scheme, 10);
        let general = d.txn();
        d.call(general, add(1).statement(&table())).expect("a lock");
        let (_, call) = single(&mut d, &add(2));
        assert!(d.take(call).unwrap().is_ok(), "{scheme}");
        assert_eq!(counts(&d).0, u64::from(scheme == Optimistic), "{scheme}");
        abort(&mut d, general);
        assert!(is_idle(&mut d), "{scheme}");
    }
}
