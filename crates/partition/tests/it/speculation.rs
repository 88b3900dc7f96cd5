//! The rules of speculation: who runs behind an undecided transaction, and what its end does.

use crate::driver::{Driver, state_of};
use crate::schemes::under;
use crate::sql::{BY_A, BY_B, Find, ROWS, Stmt, as_expected, plain_table, rows_of, table};
use crate::trees::{MemTrees, Paging};
use crate::units::{D, abort, add, make_trees, numbers, one, select};
use clearway_buffer::MissingPage;
use clearway_ir::TableDef;
use clearway_partition::SchemeKind::{self, Speculative};
use clearway_partition::{Body, Failure, Limits, Partition};
use clearway_types::{PageId, PartitionId, SqlError, SqlState, TreeId, TxnId};
use std::sync::Arc;

const ALONE: Body = Body::Block { one_round: true };

/// Grants the partition to a new transaction of one statement.
fn granted(d: &mut D) -> TxnId {
    let txn = d.txn();
    let call = d.send(txn, ALONE);
    assert_eq!(d.take(call).expect("a reply").expect("no error").count, 1);
    txn
}

/// Runs a statement of a transaction that has been granted the partition. Returns whether it is
/// behind others.
fn run(d: &mut D, txn: TxnId, stmt: &Stmt) -> bool {
    run_body(d, txn, stmt.statement(&table()))
}

fn run_body(d: &mut D, txn: TxnId, body: Body) -> bool {
    let call = d.send(txn, body);
    let reply = d.take(call).expect("a reply").expect("no error");
    assert!(reply.behind.is_none_or(|at| at == PartitionId(0)));
    reply.behind.is_some()
}

/// Starts a transaction that has finished at the partition and waits for its decision.
fn finished(d: &mut D, stmt: &Stmt) -> TxnId {
    let txn = granted(d);
    run(d, txn, stmt);
    txn
}

pub fn single(d: &mut D, stmt: &Stmt) -> (TxnId, u32) {
    let txn = d.txn();
    (txn, d.send(txn, stmt.one_shot(&table())))
}

pub fn commit(d: &mut D, txn: TxnId) {
    let commit = Some(d.append_commit(txn));
    d.call(txn, Body::Finish { commit }).expect("commit");
}

pub fn is_answered(d: &D, call: u32) -> bool {
    d.answers.iter().any(|(seq, _)| *seq == call)
}

pub fn row(d: &mut D, id: i32) -> Option<i32> {
    rows_of(&one(d, &select(Find::Point(id))).unwrap())[0].1
}

pub fn is_idle(d: &mut D) -> bool {
    d.nothing_pending() && d.partition.active() == 0 && d.partition.trees().active.is_empty()
}

pub fn insert(id: i32) -> Stmt {
    Stmt::Insert { rows: vec![(id, Some(0), 5000 + id)], ignore: false }
}

fn canceled() -> SqlError {
    SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request")
}

#[test]
fn one_shots_run_behind_a_finished_transaction() {
    let mut d = under(Speculative, 10);
    let first = granted(&mut d);
    let (_, early) = single(&mut d, &add(1));
    assert_eq!(d.partition.counts().speculated, 0, "the first has not run here");
    run(&mut d, first, &add(1));
    let (_, read) = single(&mut d, &select(Find::Point(1)));
    let (_, late) = single(&mut d, &add(1));
    assert_eq!(d.partition.counts().speculated, 3);
    assert!(d.answers.is_empty(), "their replies are held: {:?}", d.answers);
    commit(&mut d, first);
    let order: Vec<u32> = d.answers.iter().map(|(call, _)| *call).collect();
    assert_eq!(order, [early, read, late], "in the order in which they ran");
    let [early, read, late] = [early, read, late].map(|call| d.take(call).unwrap().unwrap());
    assert_eq!(rows_of(&early), [(1, Some(3), 1001)]);
    assert_eq!(rows_of(&read), [(1, Some(3), 1001)]);
    assert_eq!(rows_of(&late), [(1, Some(4), 1001)]);
    assert!(early.commit < late.commit && early.commit.is_some() && read.commit.is_none());
    assert_eq!(d.partition.counts().discarded, 0);
    assert!(is_idle(&mut d));
}

#[test]
fn held_reads_depend_on_the_commit_that_they_show() {
    let mut d = under(Speculative, 10);
    let first = finished(&mut d, &add(1));
    let (_, read) = single(&mut d, &select(Find::Point(1)));
    let lsn = d.append_commit(first);
    let end = d.send(first, Body::Finish { commit: Some(lsn) });
    assert_eq!(d.depends_on, lsn);
    assert!(d.take(read).is_some() && d.take(end).is_some() && is_idle(&mut d));
}

#[test]
fn aborts_undo_those_behind_and_run_them_again() {
    let mut d = under(Speculative, 10);
    let first = finished(&mut d, &Stmt::Add { find: Find::Point(1), column: 1, by: 100 });
    let calls = [add(1), select(Find::Point(1)), Stmt::Delete(Find::Point(2)), add(1)]
        .map(|stmt| single(&mut d, &stmt).1);
    abort(&mut d, first);
    let order: Vec<u32> = d.answers.iter().map(|(call, _)| *call).collect();
    assert_eq!(order, calls, "in their order");
    let [a, b, c, e] = calls.map(|call| rows_of(&d.take(call).unwrap().unwrap()));
    assert_eq!((a, b), (vec![(1, Some(2), 1001)], vec![(1, Some(2), 1001)]));
    assert_eq!((c, e), (vec![(2, Some(2), 1002)], vec![(1, Some(3), 1001)]));
    let counts = d.partition.counts();
    assert_eq!((counts.speculated, counts.discarded, counts.retried), (4, 4, 4));
    assert!(is_idle(&mut d));
}

#[test]
fn errors_that_show_undecided_changes_are_held() {
    for commits in [true, false] {
        let mut d = under(Speculative, 10);
        let first = finished(&mut d, &insert(100));
        let (_, same) = single(&mut d, &insert(100));
        let second = granted(&mut d);
        let statement = d.send(second, insert(100).statement(&table()));
        assert!(!is_answered(&d, same) && !is_answered(&d, statement));
        if commits {
            commit(&mut d, first);
            assert_eq!(state_of(&d.take(same).unwrap()), Some(SqlState::UNIQUE_VIOLATION));
            assert_eq!(state_of(&d.take(statement).unwrap()), Some(SqlState::UNIQUE_VIOLATION));
        } else {
            abort(&mut d, first);
            assert_eq!(d.take(same).unwrap().unwrap().count, 1);
            assert_eq!(d.take(statement).unwrap(), Err(Failure::Undone));
        }
        abort(&mut d, second);
        assert_eq!(row(&mut d, 100), Some(0));
        assert!(is_idle(&mut d));
    }
}

#[test]
fn multi_partition_transactions_name_what_they_are_behind() {
    let mut d = under(Speculative, 10);
    let first = finished(&mut d, &add(1));
    let second = granted(&mut d);
    assert!(run(&mut d, second, &add(1)));
    let (_, between) = single(&mut d, &add(1));
    let third = granted(&mut d);
    assert!(run(&mut d, third, &add(1)));
    let waits = [second, third].map(|txn| d.send(txn, Body::Settle));
    commit(&mut d, first);
    assert!(d.take(waits[0]).unwrap().is_ok());
    assert!(!is_answered(&d, waits[1]) && !is_answered(&d, between));
    commit(&mut d, second);
    assert_eq!(rows_of(&d.take(between).unwrap().unwrap()), [(1, Some(4), 1001)]);
    assert!(d.take(waits[1]).unwrap().is_ok());
    commit(&mut d, third);
    assert_eq!(row(&mut d, 1), Some(5));
    assert!(is_idle(&mut d));
}

#[test]
fn aborts_undo_multi_partition_transactions_behind() {
    let mut d = under(Speculative, 10);
    let first = finished(&mut d, &add(1));
    let second = finished(&mut d, &add(1));
    let (_, call) = single(&mut d, &add(1));
    let third = finished(&mut d, &add(1));
    let asked = granted(&mut d);
    let wait = d.send(third, Body::Settle);
    abort(&mut d, first);
    assert_eq!(d.take(wait).unwrap(), Err(Failure::Undone), "its call fails");
    d.undone.sort_unstable();
    assert_eq!(d.undone, [second, asked], "those without a call are told");
    assert_eq!(rows_of(&d.take(call).unwrap().unwrap()), [(1, Some(2), 1001)]);
    let late = d.send(asked, add(1).statement(&table()));
    assert_eq!(d.take(late).unwrap(), Err(Failure::Undone));
    [second, third, asked].into_iter().for_each(|txn| abort(&mut d, txn));
    assert_eq!(row(&mut d, 1), Some(2));
    assert!(is_idle(&mut d));
}

/// A transaction that was undone here may have other partitions to itself. So it must not wait for
/// those that have this one now: they could wait for it there.
#[test]
fn calls_of_undone_transactions_do_not_wait_in_line() {
    let mut d = under(Speculative, 10);
    let first = finished(&mut d, &add(1));
    let asked = granted(&mut d);
    let next = d.txn();
    let waits = d.send(next, ALONE);
    assert!(!is_answered(&d, waits), "the second has not used the partition yet");
    abort(&mut d, first);
    assert_eq!(d.undone, [asked]);
    assert_eq!(d.take(waits).unwrap().unwrap().count, 1);
    let late = d.send(asked, add(1).statement(&table()));
    assert_eq!(d.take(late), Some(Err(Failure::Undone)));
    [asked, next].into_iter().for_each(|txn| abort(&mut d, txn));
    assert!(is_idle(&mut d));
}

/// An abort in the middle leaves those before it.
#[test]
fn members_before_an_aborted_one_stay() {
    let mut d = under(Speculative, 10);
    let first = finished(&mut d, &add(1));
    let (_, before) = single(&mut d, &add(1));
    let second = finished(&mut d, &add(1));
    let (_, after) = single(&mut d, &add(1));
    abort(&mut d, second);
    assert!(d.answers.is_empty(), "both are behind the first");
    assert_eq!(d.partition.counts().discarded, 1);
    commit(&mut d, first);
    assert_eq!(rows_of(&d.take(before).unwrap().unwrap()), [(1, Some(3), 1001)]);
    assert_eq!(rows_of(&d.take(after).unwrap().unwrap()), [(1, Some(4), 1001)]);
    assert!(is_idle(&mut d));
}

#[test]
fn nothing_runs_behind_transactions_of_several_rounds() {
    let mut d = under(Speculative, 10);
    let several = d.txn();
    assert_eq!(d.call(several, Body::Block { one_round: false }).unwrap().count, 1);
    run(&mut d, several, &add(1));
    let (_, call) = single(&mut d, &add(1));
    assert_eq!(d.partition.counts().speculated, 0);
    run(&mut d, several, &add(1));
    commit(&mut d, several);
    assert_eq!(rows_of(&d.take(call).unwrap().unwrap()), [(1, Some(4), 1001)]);
    // Nor do they run behind others.
    let first = finished(&mut d, &add(1));
    let asked = d.send(several, Body::Block { one_round: false });
    assert!(!is_answered(&d, asked));
    commit(&mut d, first);
    assert_eq!(d.take(asked).unwrap().unwrap().count, 1);
    abort(&mut d, several);
    assert!(is_idle(&mut d));
}

/// No one-shot passes the statement, so it does not wait for long.
#[test]
fn interactive_transactions_wait_until_the_chain_ends() {
    let mut d = under(Speculative, 10);
    let first = finished(&mut d, &add(1));
    let general = d.txn();
    let statement = d.send(general, add(1).statement(&table()));
    let (single, call) = single(&mut d, &add(1));
    assert_eq!((d.partition.counts().speculated, d.partition.counts().blocked), (0, 2));
    commit(&mut d, first);
    assert_eq!(as_expected(&d.take(statement).unwrap()), Ok(vec![(1, Some(3), 1001)]));
    assert_eq!(d.blockers_of(single), [general], "a row lock");
    abort(&mut d, general);
    assert_eq!(rows_of(&d.take(call).unwrap().unwrap()), [(1, Some(3), 1001)]);
    assert!(is_idle(&mut d));
}

#[test]
fn other_schemes_do_not_speculate() {
    for scheme in SchemeKind::ALL {
        let mut d = under(scheme, 10);
        let txn = d.txn();
        if d.call(txn, ALONE).unwrap().count == 1 {
            run(&mut d, txn, &add(1));
            single(&mut d, &add(1));
            let speculates = d.partition.counts().speculated == 1;
            assert_eq!(speculates, scheme == Speculative, "{scheme}");
        }
        abort(&mut d, txn);
    }
}

/// The first one waits for the disk elsewhere: it may then wait for locks, so none may wait for it.
#[test]
fn giving_up_the_partition_undoes_those_behind() {
    for wait in [true, false] {
        let mut d = under(Speculative, 10);
        let first = finished(&mut d, &add(1));
        let (single, call) = single(&mut d, &add(1));
        let second = finished(&mut d, &add(2));
        let waits = wait.then(|| d.send(second, Body::Settle));
        d.send(first, if wait { Body::Unblock } else { Body::AwaitsClient });
        assert_eq!(d.blockers_of(single), [first], "the table is locked");
        match waits {
            Some(call) => assert_eq!(d.take(call).unwrap(), Err(Failure::Undone)),
            None => assert_eq!(d.undone, [second]),
        }
        abort(&mut d, second);
        commit(&mut d, first);
        assert_eq!(rows_of(&d.take(call).unwrap().unwrap()), [(1, Some(3), 1001)]);
        assert_eq!(row(&mut d, 2), Some(2));
        assert!(is_idle(&mut d));
    }
}

#[test]
fn members_that_give_up_the_partition_are_undone() {
    let mut d = under(Speculative, 10);
    let first = finished(&mut d, &add(1));
    let second = finished(&mut d, &add(1));
    let (_, call) = single(&mut d, &add(1));
    d.send(second, Body::Unblock);
    assert_eq!(d.undone, [second]);
    commit(&mut d, first);
    assert_eq!(rows_of(&d.take(call).unwrap().unwrap()), [(1, Some(3), 1001)]);
    abort(&mut d, second);
    assert!(is_idle(&mut d));
}

#[test]
fn cancelling_a_held_one_shot_counts_if_it_is_undone() {
    for commits in [true, false] {
        let mut d = under(Speculative, 10);
        let first = finished(&mut d, &add(1));
        let (txn, call) = single(&mut d, &add(1));
        d.send(txn, Body::Cancel(canceled()));
        assert!(!is_answered(&d, call));
        if commits {
            commit(&mut d, first);
            assert_eq!(rows_of(&d.take(call).unwrap().unwrap()), [(1, Some(3), 1001)]);
        } else {
            abort(&mut d, first);
            assert_eq!(state_of(&d.take(call).unwrap()), Some(SqlState::QUERY_CANCELED));
            assert_eq!(row(&mut d, 1), Some(1));
        }
        assert!(is_idle(&mut d));
    }
}

#[test]
fn a_cancelled_wait_leaves_its_transaction_in_the_chain() {
    let mut d = under(Speculative, 10);
    let first = finished(&mut d, &add(1));
    let second = finished(&mut d, &add(1));
    let wait = d.send(second, Body::Settle);
    d.send(second, Body::Cancel(canceled()));
    assert_eq!(state_of(&d.take(wait).unwrap()), Some(SqlState::QUERY_CANCELED));
    abort(&mut d, second);
    commit(&mut d, first);
    assert_eq!(row(&mut d, 1), Some(2));
    assert!(is_idle(&mut d));
}

/// The last of a long line runs, too, and the chain stays bounded.
#[test]
fn chains_are_bounded() {
    const LINE: usize = 600;
    let mut d = under(Speculative, 10);
    let first = finished(&mut d, &add(1));
    let calls: Vec<u32> = (0..LINE).map(|_| single(&mut d, &add(1)).1).collect();
    assert_eq!(d.partition.counts().speculated, 256);
    commit(&mut d, first);
    d.settle();
    let answered: Vec<u32> = d.answers.iter().map(|(call, _)| *call).collect();
    assert_eq!(answered, calls);
    assert_eq!(row(&mut d, 1), Some(2 + LINE as i32));
    assert!(is_idle(&mut d));
}

/// Returns a driver of a partition with few frames.
pub fn paged(scheme: SchemeKind) -> D {
    let mut d = Driver::new(MemTrees::new(Some(Paging { pages: 40, frames: 6 })), ());
    make_trees(&mut d, &[ROWS, BY_A, BY_B]);
    one(&mut d, &Stmt::Insert { rows: numbers(60), ignore: false }).expect("rows");
    let trees = std::mem::replace(d.partition.trees(), MemTrees::new(None));
    let limits = Limits { scheme, ..Limits::default() };
    d.partition = Partition::new(trees, limits, d.snapshots.clone());
    d
}

/// The table without its indexes, so that a row is on one page.
pub fn plain() -> Arc<TableDef> {
    Arc::new(plain_table())
}

pub fn plain_single(d: &mut D, stmt: &Stmt) -> (TxnId, u32) {
    let txn = d.txn();
    (txn, d.send(txn, stmt.one_shot(&plain())))
}

fn plain_finished(d: &mut D, stmt: &Stmt) -> TxnId {
    let txn = granted(d);
    run_body(d, txn, stmt.statement(&plain()));
    txn
}

pub fn plain_row(d: &mut D, id: i32) -> Option<i32> {
    let txn = d.txn();
    rows_of(&d.call(txn, select(Find::Point(id)).one_shot(&plain())).unwrap())[0].1
}

/// Evicts all pages.
fn evict(d: &mut D) {
    let page = |n| MissingPage::Page(PageId::new(PartitionId(0), TreeId(99).0 * 1000 + n));
    let others: Vec<_> = (0..6).map(page).collect();
    d.partition.trees().pin(&others);
    d.partition.trees().unpin();
}

/// Starts a transaction that has changed a row, whose page is resident.
fn paged_first(d: &mut D) -> TxnId {
    plain_row(d, 1);
    let first = plain_finished(d, &add(1));
    assert!(d.suspended.is_empty(), "its page is resident");
    first
}

pub fn add_to_all() -> Stmt {
    let find = Find::Ids { low: Some(1), high: None, reverse: false };
    Stmt::Add { find, column: 1, by: 100 }
}

#[test]
fn members_that_miss_pages_are_undone() {
    let mut d = paged(Speculative);
    let first = paged_first(&mut d);
    let second = granted(&mut d);
    let call = d.send(second, add_to_all().statement(&plain()));
    d.settle();
    assert_eq!(d.take(call).unwrap(), Err(Failure::Undone));
    assert_eq!(d.stalls, 0);
    abort(&mut d, second);
    let (_, call) = plain_single(&mut d, &add_to_all());
    d.settle();
    assert!(!is_answered(&d, call), "it runs when the first has ended");
    commit(&mut d, first);
    d.settle();
    assert_eq!(d.take(call).unwrap().unwrap().count, 59);
    assert_eq!(plain_row(&mut d, 1), Some(102));
    assert!(is_idle(&mut d));
}

#[test]
fn an_abort_waits_for_the_pages_of_those_behind() {
    let mut d = paged(Speculative);
    let first = paged_first(&mut d);
    let (_, call) = plain_single(&mut d, &add(1));
    let second = plain_finished(&mut d, &add(1));
    evict(&mut d);
    let end = d.send(first, Body::Finish { commit: None });
    let undone = d.send(second, Body::Finish { commit: None });
    assert!(!is_answered(&d, end) && !is_answered(&d, undone));
    assert_eq!(d.suspended.len(), 2, "each of them could go first");
    d.settle();
    assert!(d.take(end).unwrap().is_ok() && d.take(undone).unwrap().is_ok());
    assert_eq!(rows_of(&d.take(call).unwrap().unwrap()), [(1, Some(2), 1001)]);
    assert!(is_idle(&mut d));
}

/// The transaction ahead has committed. Those behind it, and those who wait for its lock, are told.
#[test]
fn commits_do_not_hide_that_those_behind_are_stranded() {
    let mut d = paged(Speculative);
    let first = paged_first(&mut d);
    let (_, call) = plain_single(&mut d, &add(1));
    evict(&mut d);
    d.send(first, Body::Unblock);
    d.partition.trees().corrupt.insert(ROWS);
    let commit = Some(d.append_commit(first));
    let end = d.send(first, Body::Finish { commit });
    d.settle();
    assert!(d.take(end).expect("the end is answered").is_err());
    let held = d.take(call).expect("it does not wait for the next start");
    assert_eq!(state_of(&held), Some(SqlState::DATA_CORRUPTED));
    let (_, later) = plain_single(&mut d, &add(1));
    d.settle();
    assert_eq!(state_of(&d.take(later).expect("a reply")), Some(SqlState::DATA_CORRUPTED));
    assert!(d.nothing_pending());
}

/// Its end needs the page that it has requested, also if another transaction has the partition when
/// the page arrives.
#[test]
fn resumptions_of_undone_transactions_are_kept() {
    let mut d = paged(Speculative);
    let first = paged_first(&mut d);
    let second = plain_finished(&mut d, &add(1));
    evict(&mut d);
    let end = d.send(first, Body::Finish { commit: None });
    let undone = d.send(second, Body::Finish { commit: None });
    assert_eq!(d.suspended.len(), 2);
    d.resume(0);
    assert!(d.take(end).expect("its page is there").is_ok());
    let next = granted(&mut d);
    d.settle();
    abort(&mut d, next);
    d.settle();
    assert!(d.take(undone).expect("its end is answered").is_ok());
    assert!(is_idle(&mut d));
}

/// Those behind stay under the lock of the first one, which reads must not pass.
#[test]
fn members_that_cannot_be_undone_at_once_are_detached() {
    for commits in [true, false] {
        let mut d = paged(Speculative);
        let first = paged_first(&mut d);
        let (_, call) = plain_single(&mut d, &add(1));
        let second = plain_finished(&mut d, &add(1));
        evict(&mut d);
        d.send(first, Body::Unblock);
        assert_eq!((&*d.undone, d.suspended.len()), (&[second][..], 0));
        let read = select(Find::Point(1)).statement(&plain());
        let Body::Statement { program, env, rows, batch, .. } = read else { panic!() };
        let at = clearway_partition::COMMITTED;
        let reader = d.txn();
        let read = Body::StatementAt { at, repeatable: false, program, env, rows, batch };
        let read = d.send(reader, read);
        d.settle();
        assert_eq!(d.blockers_of(reader), [first]);
        abort(&mut d, second);
        if commits {
            commit(&mut d, first)
        } else {
            abort(&mut d, first)
        }
        d.settle();
        let before = 1 + i32::from(commits);
        assert_eq!(rows_of(&d.take(read).unwrap().unwrap()), [(1, Some(before), 1001)]);
        abort(&mut d, reader);
        d.settle();
        assert_eq!(rows_of(&d.take(call).unwrap().unwrap()), [(1, Some(before + 1), 1001)]);
        assert!(is_idle(&mut d));
    }
}

/// Its locks keep others from its changes; the transaction ahead commits.
#[test]
fn members_that_cannot_be_undone_are_stranded() {
    let mut d = paged(Speculative);
    plain_row(&mut d, 1);
    let first = plain_finished(&mut d, &Stmt::Delete(Find::Point(1)));
    d.partition.trees().corrupt.insert(ROWS);
    // The page of the second row is not resident.
    let rows = vec![(1, Some(7), 7), (1000, Some(7), 7)];
    let (_, call) = plain_single(&mut d, &Stmt::Insert { rows, ignore: false });
    let answer = d.take(call).expect("an error");
    assert_eq!(state_of(&answer), Some(SqlState::DATA_CORRUPTED));
    commit(&mut d, first);
    let (_, later) = plain_single(&mut d, &add(1));
    d.settle();
    assert_eq!(state_of(&d.take(later).unwrap()), Some(SqlState::DATA_CORRUPTED));
    assert!(d.nothing_pending() && d.partition.active() == 1);
}

#[test]
fn an_abort_is_stranded_with_those_behind() {
    let mut d = under(Speculative, 10);
    let first = finished(&mut d, &add(1));
    let (_, call) = single(&mut d, &add(1));
    let second = finished(&mut d, &add(2));
    d.partition.trees().corrupt.insert(ROWS);
    for txn in [first, second] {
        let end = d.send(txn, Body::Finish { commit: None });
        assert_eq!(state_of(&d.take(end).unwrap()), Some(SqlState::DATA_CORRUPTED));
    }
    assert_eq!(d.undone, [second]);
    let later = one(&mut d, &add(5));
    assert_eq!(state_of(&later), Some(SqlState::DATA_CORRUPTED));
    let held = d.take(call).expect("it does not wait for the next start");
    assert_eq!(state_of(&held), Some(SqlState::DATA_CORRUPTED));
    assert!(d.nothing_pending());
}
