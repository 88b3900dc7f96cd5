//! Changes of the scheme: when they take effect, and who waits for that.

use crate::driver::{Driver, state_of};
use crate::history::{Mix, Seen, run_mixed};
use crate::schemes::under;
use crate::sql::{Find, Stmt, rows_of, table};
use crate::trees::{MemTrees, Paging};
use crate::units::{D, abort, add, one, select};
use clearway_partition::SchemeKind::{self, Blocking, Hybrid, Locking, Speculative};
use clearway_partition::{
    Body, Failure, Limits, Partition, PartitionReport, SchemeCounts, TakeReport,
};
use clearway_types::{SqlError, SqlState, TxnId};
use std::sync::mpsc;

/// More rows than a slice has.
const MANY: i32 = 5000;

fn set(d: &mut D, scheme: SchemeKind) -> (TxnId, u32) {
    let txn = d.txn();
    (txn, d.send(txn, Body::SetScheme(scheme)))
}

/// Requests the partition; returns whether it was granted, or `None` if the request waits.
fn block(d: &mut D, txn: TxnId) -> Option<bool> {
    let call = d.send(txn, Body::Block { one_round: true });
    d.take(call).map(|reply| reply.expect("no error").count == 1)
}

fn granted(d: &mut D) -> TxnId {
    let txn = d.txn();
    assert_eq!(block(d, txn), Some(true));
    txn
}

/// Starts a transaction that has the partition, has finished there and waits for its decision.
fn finished(d: &mut D, stmt: &Stmt) -> TxnId {
    let txn = granted(d);
    d.call(txn, stmt.statement(&table())).expect("a change");
    txn
}

fn single(d: &mut D, stmt: &Stmt) -> u32 {
    let txn = d.txn();
    d.send(txn, stmt.one_shot(&table()))
}

fn commit(d: &mut D, txn: TxnId) {
    let commit = Some(d.append_commit(txn));
    d.call(txn, Body::Finish { commit }).expect("commit");
}

fn is_answered(d: &D, call: u32) -> bool {
    d.answers.iter().any(|(seq, _)| *seq == call)
}

fn row(d: &mut D, id: i32) -> Option<i32> {
    rows_of(&one(d, &select(Find::Point(id))).unwrap())[0].1
}

pub fn report(d: &mut D) -> PartitionReport {
    let (send, receive) = mpsc::channel();
    let take = move |_, report| send.send(report).unwrap();
    d.send(TxnId(u64::MAX), Body::Report(TakeReport(Box::new(take))));
    receive.try_recv().expect("a report at once")
}

fn is_idle(d: &D) -> bool {
    d.nothing_pending() && d.partition.active() == 0 && d.partition.queue() == 0
}

fn canceled() -> SqlError {
    SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request")
}

#[test]
fn free_partitions_change_at_once() {
    for from in SchemeKind::ALL {
        for to in SchemeKind::ALL {
            let mut d = under(from, 10);
            let (_, call) = set(&mut d, to);
            assert!(d.take(call).expect("a reply").is_ok(), "{from} to {to}");
            assert_eq!((d.partition.scheme(), report(&mut d).scheme), (to, to));
            let multi = d.txn();
            assert_eq!(block(&mut d, multi), Some(to != Locking), "{from} to {to}");
            abort(&mut d, multi);
            assert!(is_idle(&d), "{from} to {to}");
        }
    }
}

/// Invariants 1 and 5.
#[test]
pub fn changes_wait_for_exclusive_access_and_release_the_line() {
    for commits in [true, false] {
        let mut d = under(Hybrid, 10);
        let first = granted(&mut d);
        let (_, change) = set(&mut d, Locking);
        let behind = single(&mut d, &add(1));
        let second = d.txn();
        let asked = d.send(second, Body::Block { one_round: true });
        d.call(first, add(1).statement(&table())).expect("the fence does not stop it");
        let waits = [change, behind, asked].map(|call| !is_answered(&d, call));
        assert_eq!((waits, d.partition.scheme()), ([true; 3], Hybrid));
        let PartitionReport { scheme, queue, .. } = report(&mut d);
        assert_eq!((scheme, queue), (Hybrid, 3));
        if commits {
            commit(&mut d, first);
        } else {
            abort(&mut d, first);
        }
        let order: Vec<u32> = d.answers.iter().map(|(call, _)| *call).collect();
        assert_eq!(order, [change, behind, asked], "the change, then the line in its order");
        assert_eq!((d.partition.scheme(), d.schemes.clone()), (Locking, vec![Locking]));
        assert!(d.take(change).unwrap().is_ok() && d.take(behind).unwrap().is_ok());
        assert_eq!(d.take(asked).unwrap().unwrap().count, 0, "admitted under the new scheme");
        abort(&mut d, second);
        assert_eq!(row(&mut d, 1), Some(if commits { 3 } else { 2 }));
        assert!(is_idle(&d));
    }
}

/// Invariant 2.
#[test]
fn nothing_joins_a_chain_while_a_change_waits() {
    let mut d = under(Speculative, 10);
    let first = finished(&mut d, &add(1));
    let early = single(&mut d, &add(1));
    let second = granted(&mut d);
    let (_, change) = set(&mut d, Blocking);
    // The member that has the partition already finishes; it does not open the chain.
    d.call(second, add(1).statement(&table())).expect("a change");
    let late = [single(&mut d, &add(1)), single(&mut d, &add(2))];
    assert_eq!(d.partition.counts().speculated, 2);
    commit(&mut d, first);
    assert!(is_answered(&d, early) && !is_answered(&d, change), "the second is not decided");
    assert!(late.iter().all(|call| !is_answered(&d, *call)));
    commit(&mut d, second);
    for call in [early, change, late[0], late[1]] {
        assert!(d.take(call).expect("a reply").is_ok());
    }
    assert_eq!((row(&mut d, 1), row(&mut d, 2)), (Some(5), Some(3)));
    assert!(d.partition.scheme() == Blocking && is_idle(&d));
}

#[test]
fn discarded_one_shots_run_under_the_new_scheme() {
    let mut d = under(Speculative, 10);
    let first = finished(&mut d, &Stmt::Add { find: Find::Point(1), column: 1, by: 100 });
    let behind = [single(&mut d, &add(1)), single(&mut d, &add(1))];
    let (_, change) = set(&mut d, Locking);
    let line = single(&mut d, &add(1));
    abort(&mut d, first);
    let order: Vec<u32> = d.answers.iter().map(|(call, _)| *call).collect();
    assert_eq!(order, [change, behind[0], behind[1], line]);
    d.answers.clear();
    assert_eq!((row(&mut d, 1), d.partition.scheme()), (Some(4), Locking));
    assert!(is_idle(&d));
}

/// Invariants 1 and 3.
#[test]
fn changes_do_not_wait_for_interactive_transactions() {
    let mut d = under(Blocking, 10);
    let holder = d.txn();
    d.call(holder, add(1).statement(&table())).expect("a lock");
    let (_, change) = set(&mut d, Speculative);
    assert!(d.take(change).expect("a reply").is_ok());
    d.call(holder, add(2).statement(&table())).expect("it continues");
    let waiter = single(&mut d, &add(1));
    assert_eq!(d.blockers_of(TxnId(holder.0 + 2)), [holder]);
    commit(&mut d, holder);
    assert!(d.take(waiter).expect("a reply").is_ok());
    assert_eq!((row(&mut d, 1), row(&mut d, 2)), (Some(3), Some(3)));
    assert!(is_idle(&d));
}

/// Invariant 3.
#[test]
fn changes_take_effect_when_the_first_member_awaits_its_client() {
    for body in [|| Body::AwaitsClient, || Body::Unblock] {
        let mut d = under(Speculative, 10);
        let first = finished(&mut d, &add(1));
        let behind = single(&mut d, &add(2));
        let (_, change) = set(&mut d, Hybrid);
        d.send(first, body());
        assert!(d.take(change).expect("a reply").is_ok());
        let waits = is_answered(&d, behind);
        assert!(!waits, "its table is locked by the first");
        commit(&mut d, first);
        assert!(d.take(behind).expect("a reply").is_ok());
        assert!(d.partition.scheme() == Hybrid && is_idle(&d));
    }
}

/// Invariant 6.
#[test]
fn the_last_of_several_changes_counts() {
    let mut d = under(Hybrid, 10);
    let first = granted(&mut d);
    let changes = [Blocking, Locking, Speculative].map(|scheme| set(&mut d, scheme).1);
    commit(&mut d, first);
    assert!(changes.into_iter().all(|call| d.take(call).expect("a reply").is_ok()));
    assert_eq!(d.schemes, [Blocking, Locking, Speculative]);
    assert!(d.partition.scheme() == Speculative && is_idle(&d));
}

/// Invariant 6: the chain opens again, and the line continues in it.
#[test]
fn canceled_changes_have_no_effect() {
    let mut d = under(Speculative, 10);
    let first = finished(&mut d, &add(1));
    let ((txn, change), (other, second)) = (set(&mut d, Blocking), set(&mut d, Locking));
    let line = single(&mut d, &add(1));
    d.send(other, Body::Cancel(canceled()));
    assert_eq!(state_of(&d.take(second).unwrap()), Some(SqlState::QUERY_CANCELED));
    assert_eq!(d.partition.counts().speculated, 0, "one still waits");
    d.send(txn, Body::Cancel(canceled()));
    assert_eq!(state_of(&d.take(change).unwrap()), Some(SqlState::QUERY_CANCELED));
    assert_eq!((d.partition.counts().speculated, is_answered(&d, line)), (1, false));
    commit(&mut d, first);
    assert!(d.take(line).expect("a reply").is_ok() && d.schemes.is_empty());
    // It has taken effect: nothing is left to cancel.
    let (txn, change) = set(&mut d, Hybrid);
    d.send(txn, Body::Cancel(canceled()));
    assert!(d.take(change).unwrap().is_ok() && d.partition.scheme() == Hybrid && is_idle(&d));
}

#[test]
fn waits_for_quiet_end_if_the_new_scheme_grants_nothing() {
    for to in [Hybrid, Speculative, Locking] {
        let mut d = under(Blocking, MANY);
        // A one-shot that has changed a slice of its rows and holds locks.
        let long =
            single(&mut d, &Stmt::Add { find: Find::All { a_less: None }, column: 1, by: 1 });
        let multi = d.txn();
        let quiet = d.send(multi, Body::AwaitQuiet);
        let behind = single(&mut d, &select(Find::Point(1)));
        assert!(!is_answered(&d, quiet) && !is_answered(&d, behind));
        let (_, change) = set(&mut d, to);
        assert!(d.take(change).expect("a reply").is_ok(), "{to}: no one has the partition");
        assert_eq!(is_answered(&d, quiet), to == Locking, "{to}");
        assert_eq!(is_answered(&d, behind), to != Speculative, "{to}");
        d.settle();
        let count = d.take(quiet).expect("a reply").expect("no error").count;
        assert_eq!(count, u64::from(to != Locking), "{to}");
        assert!(d.take(long).is_some() && d.take(behind).is_some());
        abort(&mut d, multi);
        assert!(is_idle(&d), "{to}");
    }
}

/// A line of more messages than one turn handles.
#[test]
fn every_message_behind_a_change_runs() {
    const LINE: usize = 200;
    for to in SchemeKind::ALL {
        let mut d = under(Blocking, 10);
        let first = granted(&mut d);
        let (_, change) = set(&mut d, to);
        let calls: Vec<u32> = (0..LINE).map(|_| single(&mut d, &add(1))).collect();
        commit(&mut d, first);
        d.settle();
        let answered: Vec<u32> = d.answers.iter().map(|(call, _)| *call).collect();
        let order: Vec<u32> = std::iter::once(change).chain(calls).collect();
        assert!(order.iter().all(|call| answered.contains(call)), "{to}");
        let line: Vec<u32> = answered.into_iter().filter(|call| order.contains(call)).collect();
        assert_eq!(line, order, "{to}");
        assert_eq!(row(&mut d, 1), Some(1 + LINE as i32), "{to}");
        assert!(is_idle(&d), "{to}");
    }
}

/// A member that was undone ends like before.
#[test]
fn doomed_members_end_across_a_change() {
    let mut d = under(Speculative, 10);
    let first = finished(&mut d, &add(1));
    let second = finished(&mut d, &add(2));
    let (_, change) = set(&mut d, Locking);
    abort(&mut d, first);
    assert_eq!(d.undone, [second]);
    assert!(d.take(change).expect("a reply").is_ok());
    let again = d.send(second, add(2).statement(&table()));
    assert_eq!(d.take(again), Some(Err(Failure::Undone)));
    abort(&mut d, second);
    assert_eq!((row(&mut d, 1), row(&mut d, 2)), (Some(1), Some(2)));
    assert!(is_idle(&d));
}

fn run_changing(paging: Option<Paging>, seeds: u64) -> Seen {
    let mut seen = Seen::default();
    for seed in 1..=seeds {
        let mut driver = Driver::new(MemTrees::new(paging), ());
        let trees = std::mem::replace(driver.partition.trees(), MemTrees::new(None));
        let scheme = SchemeKind::ALL[seed as usize % SchemeKind::ALL.len()];
        let limits = Limits { scheme, ..Limits::default() };
        driver.partition = Partition::new(trees, limits, driver.snapshots.clone());
        // Optimistic fragments arrive under other schemes, too: coordinators learn a change late.
        let (optimistic, changes) = (seed % 3 == 0, [2, 10][seed as usize % 2]);
        let mix = Mix { one_shots: 50, asks: 80, optimistic, changes };
        seen.add(&run_mixed(driver, seed, 3 + (seed % 5) as usize, 300, mix));
    }
    assert!(seen.committed > 10 * seeds && seen.blocked > seeds, "{seen:?}");
    let SchemeCounts { speculated, validated, .. } = seen.counts;
    assert!(speculated > seeds / 20 && validated > seeds && seen.undone > 0, "{seen:?}");
    seen
}

#[test]
fn histories_with_changes_are_serializable() {
    assert_eq!(run_changing(None, 400).suspensions, 0);
}

#[test]
fn histories_with_changes_and_page_misses_are_serializable() {
    let seen = run_changing(Some(Paging { pages: 40, frames: 25 }), 400);
    assert!(seen.suspensions > 1000, "{seen:?}");
}
