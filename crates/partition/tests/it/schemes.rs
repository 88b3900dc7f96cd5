//! The rules of the concurrency-control schemes, each under every scheme.

use crate::driver::state_of;
use crate::sql::{Find, Stmt, as_expected, rows_of, table};
use crate::trees::MemTrees;
use crate::units::{D, abort, add, driver, numbers, one, select};
use clearway_partition::SchemeKind::{self, Blocking, Hybrid, Locking, Optimistic, Speculative};
use clearway_partition::{Body, Limits, Partition};
use clearway_types::{Lsn, SqlError, SqlState, TxnId};

/// More rows than a slice has.
const MANY: i32 = 5000;

pub fn under(scheme: SchemeKind, rows: i32) -> D {
    let mut d = driver(&numbers(rows));
    let trees = std::mem::replace(d.partition.trees(), MemTrees::new(None));
    let limits = Limits { scheme, ..Limits::default() };
    d.partition = Partition::new(trees, limits, d.snapshots.clone());
    d
}

/// Requests the partition; returns whether it was granted, or `None` if the request waits.
fn block(d: &mut D, txn: TxnId) -> Option<bool> {
    count(d, txn, Body::Block { one_round: false }).map(|count| count == 1)
}

/// Waits for quiet; returns the reply, or `None` if there is none yet.
fn await_quiet(d: &mut D, txn: TxnId) -> Option<u64> {
    count(d, txn, Body::AwaitQuiet)
}

fn count(d: &mut D, txn: TxnId, body: Body) -> Option<u64> {
    let seq = d.send(txn, body);
    d.take(seq).map(|reply| reply.expect("no error").count)
}

fn commit(d: &mut D, txn: TxnId) {
    d.call(txn, Body::Finish { commit: Some(Lsn(900)) }).expect("commit");
}

fn canceled() -> SqlError {
    SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request")
}

/// Starts a one-shot that has changed a slice of its rows and holds locks now. It waits neither
/// for a client nor for a lock.
fn start_long(d: &mut D) -> (TxnId, u32) {
    let txn = d.txn();
    let all = Stmt::Add { find: Find::All { a_less: None }, column: 1, by: 10 };
    let call = d.send(txn, all.one_shot(&table()));
    assert_eq!((d.take(call), d.suspended.len()), (None, 1));
    (txn, call)
}

#[test]
fn partitions_are_granted_as_the_scheme_says() {
    // Whether a request is granted without locks, beside an interactive transaction, and beside a
    // one-shot that holds locks. No request waits; a wait for quiet is useless under locking.
    let table = [
        (Hybrid, [true, false, false]),
        (Blocking, [true, false, false]),
        (Speculative, [true, false, false]),
        (Locking, [false, false, false]),
        (Optimistic, [true, false, false]),
    ];
    for (scheme, [unlocked, interactive, one_shot]) in table {
        let mut d = under(scheme, MANY);
        let multi = d.txn();
        assert_eq!(block(&mut d, multi), Some(unlocked), "{scheme}: no lock is held");
        abort(&mut d, multi);
        let (holder, multi) = (d.txn(), d.txn());
        d.call(holder, add(1).statement(&crate::sql::table())).expect("a lock");
        assert_eq!(block(&mut d, multi), Some(interactive), "{scheme}: beside interactive");
        assert_eq!(await_quiet(&mut d, multi), Some(0), "{scheme}: a client may take its time");
        abort(&mut d, holder);
        let ((_, long), multi) = (start_long(&mut d), d.txn());
        assert_eq!(block(&mut d, multi), Some(one_shot), "{scheme}: beside a one-shot");
        let (waits, quiet) = (scheme != Locking, await_quiet(&mut d, multi));
        assert_eq!(quiet, (!waits).then_some(0), "{scheme}: the one-shot ends soon");
        d.settle();
        assert_eq!(d.take(long).unwrap().unwrap().count, MANY as u64);
        let counts = d.answers.drain(..).map(|(_, reply)| reply.unwrap().count);
        assert_eq!(counts.collect::<Vec<_>>(), vec![1; usize::from(waits)], "{scheme}");
        assert!(d.nothing_pending() && d.partition.active() == 0, "{scheme}");
    }
}

/// The message that gives the partition up may be overtaken by the next request.
#[test]
fn transactions_are_granted_a_partition_again() {
    for scheme in SchemeKind::ALL {
        let mut d = under(scheme, 10);
        let (txn, other) = (d.txn(), d.txn());
        for _ in 0..2 {
            assert_eq!(block(&mut d, txn), Some(scheme != Locking), "{scheme}");
        }
        d.send(txn, Body::AwaitsClient);
        for (txn, id) in [(txn, 1), (other, 2)] {
            d.call(txn, add(id).statement(&table())).expect("the partition is free");
        }
        [txn, other].into_iter().for_each(|txn| commit(&mut d, txn));
        assert_eq!(d.partition.active(), 0, "{scheme}");
    }
}

#[test]
fn multi_partition_one_shots_exclude_others_unless_they_lock() {
    for scheme in SchemeKind::ALL {
        let alone = scheme != Locking;
        let mut d = under(scheme, 10);
        let (first, second) = (d.txn(), d.txn());
        assert_eq!(block(&mut d, first), Some(alone));
        d.call(first, add(1).statement(&table())).expect("a change");
        let asked = d.send(second, Body::Block { one_round: false });
        let (unrelated, related, general) = (d.txn(), d.txn(), d.txn());
        let calls = [
            d.send(unrelated, add(3).one_shot(&table())),
            d.send(related, add(1).one_shot(&table())),
            d.send(general, add(4).statement(&table())),
        ];
        let runs = |d: &D, call: u32| d.answers.iter().any(|(seq, _)| *seq == call);
        let immediate = [asked, calls[0], calls[1], calls[2]].map(|call| runs(&d, call));
        let expected = if alone { [false; 4] } else { [true, true, false, true] };
        assert_eq!(immediate, expected, "{scheme}");
        let blockers: &[TxnId] = if alone { &[] } else { &[first] };
        assert_eq!(d.blockers_of(related), blockers, "{scheme}: a lock, or the partition");
        commit(&mut d, first);
        assert_eq!(d.take(asked).unwrap().unwrap().count, u64::from(alone), "{scheme}");
        d.call(second, add(2).statement(&table())).expect("a change");
        commit(&mut d, second);
        abort(&mut d, general);
        d.settle();
        assert_eq!(as_expected(&d.take(calls[1]).unwrap()), Ok(vec![(1, Some(3), 1001)]));
        let rows = one(&mut d, &select(Find::All { a_less: None })).unwrap();
        let changed: Vec<_> = rows_of(&rows)[1..5].iter().map(|(.., a, _)| *a).collect();
        assert_eq!(changed, [Some(3), Some(3), Some(4), Some(4)], "{scheme}");
        assert!(d.partition.active() == 0, "{scheme}");
    }
}

#[test]
fn one_shots_wait_behind_a_wait_for_quiet_as_the_scheme_says() {
    for scheme in SchemeKind::ALL {
        let waits = matches!(scheme, Blocking | Speculative | Optimistic);
        let mut d = under(scheme, MANY);
        let (_, long) = start_long(&mut d);
        let (multi, reader) = (d.txn(), d.txn());
        let quiet = d.send(multi, Body::AwaitQuiet);
        let read = d.send(reader, select(Find::Point(1)).one_shot(&table()));
        let answers = [quiet, read].map(|call| d.answers.iter().any(|(seq, _)| *seq == call));
        assert_eq!(answers, [scheme == Locking, !waits], "{scheme}");
        assert!(d.blockers_of(reader).is_empty(), "{scheme}: not an edge of the graph");
        d.settle();
        let granted = u64::from(scheme != Locking);
        assert_eq!(d.take(quiet).unwrap().unwrap().count, granted, "{scheme}");
        let seen = if waits { 11 } else { 1 };
        assert_eq!(rows_of(&d.take(read).unwrap().unwrap()), [(1, Some(seen), 1001)], "{scheme}");
        assert!(d.take(long).is_some() && d.nothing_pending(), "{scheme}");
        abort(&mut d, multi);
        assert_eq!(d.partition.active(), 0, "{scheme}");
    }
}

/// A reader of a snapshot, and a transaction that has given up the partition before its first
/// statement, which may be the one that waits.
#[test]
fn transactions_without_locks_do_not_end_a_wait_for_quiet() {
    let mut d = under(Blocking, MANY);
    let (reader, multi) = (d.txn(), d.txn());
    d.call(reader, Body::Savepoint(0)).expect("it is known here");
    assert_eq!(block(&mut d, multi), Some(true));
    d.send(multi, Body::AwaitsClient);
    let (_, long) = start_long(&mut d);
    assert_eq!(await_quiet(&mut d, multi), None, "only the one-shot has locks");
    d.settle();
    assert!(d.take(long).is_some());
    assert_eq!(d.answers.pop().expect("its wait is over").1.unwrap().count, 1);
    abort(&mut d, reader);
    abort(&mut d, multi);
    assert!(d.nothing_pending() && d.partition.active() == 0);
}

#[test]
fn interactive_transactions_pass_a_wait_for_quiet() {
    for scheme in SchemeKind::ALL {
        let mut d = under(scheme, MANY);
        start_long(&mut d);
        let (multi, general) = (d.txn(), d.txn());
        let quiet = d.send(multi, Body::AwaitQuiet);
        // It waits for a row of the one-shot, and so would the wait for quiet.
        let statement = d.send(general, add(1).statement(&table()));
        assert_eq!(d.take(quiet).expect("a reply").expect("no error").count, 0, "{scheme}");
        assert_eq!(d.take(statement), None);
        d.settle();
        d.take(statement).expect("a reply").expect("a change");
        abort(&mut d, general);
        assert_eq!(d.partition.active(), 0, "{scheme}");
    }
}

#[test]
fn one_shots_behind_a_wait_for_quiet_can_be_canceled() {
    let mut d = under(Blocking, MANY);
    let (_, long) = start_long(&mut d);
    let (multi, first, second) = (d.txn(), d.txn(), d.txn());
    let quiet = d.send(multi, Body::AwaitQuiet);
    let calls = [first, second].map(|txn| d.send(txn, select(Find::Point(1)).one_shot(&table())));
    assert_eq!(d.waiting(), 3);
    d.send(first, Body::Cancel(canceled()));
    assert_eq!(state_of(&d.take(calls[0]).unwrap()), Some(SqlState::QUERY_CANCELED));
    assert_eq!((d.take(quiet), d.take(calls[1])), (None, None));
    // The last wait for quiet ends early: no one-shot waits for it any more.
    d.send(multi, Body::Cancel(canceled()));
    assert_eq!(state_of(&d.take(quiet).unwrap()), Some(SqlState::QUERY_CANCELED));
    assert_eq!(rows_of(&d.take(calls[1]).expect("its turn").unwrap()), [(1, Some(1), 1001)]);
    d.settle();
    assert!(d.take(long).is_some() && d.nothing_pending() && d.partition.active() == 0);
}

/// Under a line of many, the rest continues in later turns.
#[test]
fn every_one_shot_behind_a_wait_for_quiet_runs() {
    const LINE: usize = 200;
    let mut d = under(Blocking, MANY);
    start_long(&mut d);
    let multi = d.txn();
    d.send(multi, Body::AwaitQuiet);
    let txns: Vec<TxnId> = (0..LINE).map(|_| d.txn()).collect();
    let calls: Vec<u32> =
        txns.into_iter().map(|txn| d.send(txn, add(1).one_shot(&table()))).collect();
    assert_eq!(d.waiting(), 1 + LINE);
    d.settle();
    let answered: Vec<u32> =
        d.answers.iter().map(|(seq, _)| *seq).filter(|seq| calls.contains(seq)).collect();
    assert_eq!(answered, calls, "in the order of their arrival");
    let row = rows_of(&one(&mut d, &select(Find::Point(1))).unwrap());
    assert_eq!(row, [(1, Some(11 + LINE as i32), 1001)]);
    assert!(d.nothing_pending() && d.partition.active() == 0);
}
