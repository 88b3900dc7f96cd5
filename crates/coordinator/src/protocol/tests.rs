//! Tests of the protocol without partitions.

use super::{AccessRequest, Control, Coordination, FragmentRound, Outgoing, ROUNDS};
use clearway_partition::{Failure, Reply};
use clearway_types::{Lsn, PartitionId, SqlError, SqlState, TxnId};

const BLOCK: Control = Control::Block { one_round: true };
const A: PartitionId = PartitionId(1);
const B: PartitionId = PartitionId(2);
const C: PartitionId = PartitionId(5);

fn txn() -> Coordination {
    let mut txn = Coordination::default();
    txn.begin(TxnId(7));
    txn
}

fn count(count: u64) -> Result<Reply, Failure> {
    Ok(Reply { count, ..Reply::default() })
}

fn failure() -> Failure {
    Failure::Sql(SqlError::new(SqlState::QUERY_CANCELED, "canceled"))
}

/// Runs a step and returns what it asks for.
fn run(
    txn: &mut Coordination,
    step: impl FnOnce(&mut Coordination, &mut Vec<Outgoing>),
) -> Vec<Outgoing> {
    let mut out = Vec::new();
    step(txn, &mut out);
    out
}

fn answer(
    txn: &mut Coordination,
    from: PartitionId,
    answer: Result<Reply, Failure>,
) -> Vec<Outgoing> {
    run(txn, |txn, out| txn.answered(from, &answer, out))
}

fn once(partitions: &[PartitionId]) -> AccessRequest<'_> {
    AccessRequest { partitions, awaits_quiet: false, one_round: true }
}

fn quietly(partitions: &[PartitionId]) -> AccessRequest<'_> {
    AccessRequest { awaits_quiet: true, ..once(partitions) }
}

fn send(to: PartitionId, control: Control) -> Outgoing {
    Outgoing::Send(to, control)
}

fn finish(to: PartitionId, commit: Option<Lsn>) -> Outgoing {
    send(to, Control::Finish { commit })
}

/// Invariant 1.
#[test]
fn partitions_are_requested_one_after_another() {
    let mut txn = txn();
    let out = run(&mut txn, |txn, out| txn.acquire(once(&[A, B]), out));
    assert_eq!(out, [send(A, BLOCK)]);
    assert_eq!(answer(&mut txn, A, count(1)), [send(B, BLOCK)]);
    assert!(!txn.is_short());
    assert_eq!(answer(&mut txn, B, count(1)), [Outgoing::Done(Ok(true))]);
    assert!(txn.is_short() && txn.is_exclusive());
    assert_eq!(txn.participants(), [A, B]);
}

/// Invariant 1.
#[test]
#[should_panic(expected = "invariant 1")]
fn unordered_requests_are_refused() {
    txn().acquire(once(&[B, A]), &mut Vec::new());
}

/// Invariants 1 and 2.
#[test]
fn a_refusal_gives_up_all_partitions() {
    let mut txn = txn();
    run(&mut txn, |txn, out| txn.acquire(once(&[A, B, C]), out));
    answer(&mut txn, A, count(1));
    let given_up = [send(A, Control::AwaitsClient), send(B, Control::AwaitsClient)];
    let out = answer(&mut txn, B, count(0));
    assert_eq!(out[..2], given_up);
    assert_eq!(out[2..], [Outgoing::Done(Ok(false))]);
    assert!(!txn.is_exclusive() && !txn.is_short());
}

/// Invariants 1 and 2.
#[test]
fn a_patient_request_waits_for_quiet_and_starts_again() {
    let mut txn = txn();
    run(&mut txn, |txn, out| txn.acquire(quietly(&[A, B]), out));
    for round in 1..=ROUNDS {
        answer(&mut txn, A, count(1));
        let out = answer(&mut txn, B, count(0));
        assert_eq!(out[2..], [send(B, Control::AwaitQuiet)]);
        assert!(!txn.is_exclusive());
        let next = if round < ROUNDS { send(A, BLOCK) } else { Outgoing::Done(Ok(false)) };
        assert_eq!(answer(&mut txn, B, count(1)), [next], "round {round}");
    }
}

#[test]
fn a_request_ends_if_quiet_depends_on_a_client() {
    let mut txn = txn();
    run(&mut txn, |txn, out| txn.acquire(quietly(&[A, B]), out));
    assert_eq!(answer(&mut txn, A, count(0)).len(), 2);
    assert_eq!(answer(&mut txn, A, count(0)), [Outgoing::Done(Ok(false))]);
}

#[test]
fn a_cancelled_request_fails_and_its_partitions_are_undone() {
    let mut txn = txn();
    run(&mut txn, |txn, out| txn.acquire(quietly(&[A, B]), out));
    answer(&mut txn, A, count(1));
    assert_eq!(answer(&mut txn, B, Err(failure())), [Outgoing::Done(Err(failure()))]);
    assert_eq!(run(&mut txn, Coordination::abort), [finish(A, None), finish(B, None)]);
}

#[test]
fn a_stalled_call_gives_up_exclusive_access() {
    let mut txn = txn();
    run(&mut txn, |txn, out| txn.acquire(once(&[A]), out));
    answer(&mut txn, A, count(1));
    assert_eq!(run(&mut txn, Coordination::stalled), [send(A, Control::Unblock)]);
    assert_eq!(run(&mut txn, Coordination::stalled), [send(A, Control::AwaitsClient)]);
    assert_eq!(run(&mut txn, Coordination::stalled), []);
}

/// Invariants 4 and 5.
#[test]
fn a_commit_is_logged_before_it_is_announced() {
    let mut txn = txn();
    [A, B, A].into_iter().for_each(|partition| txn.join(partition));
    txn.write(true);
    txn.order_end(|partition| partition.0);
    assert_eq!(run(&mut txn, Coordination::commit), [Outgoing::Log]);
    let at = Lsn(90);
    let out = run(&mut txn, |txn, out| txn.logged(at, out));
    assert_eq!(out, [finish(B, Some(at)), finish(A, Some(at))]);
    assert_eq!(answer(&mut txn, B, count(0)), []);
    assert_eq!(answer(&mut txn, A, count(0)), [Outgoing::Done(Ok(true))]);
}

#[test]
fn a_transaction_that_only_read_logs_nothing() {
    let mut txn = txn();
    assert_eq!(run(&mut txn, Coordination::commit), [Outgoing::Done(Ok(true))]);
    txn.join(A);
    assert_eq!(run(&mut txn, Coordination::commit), [finish(A, Some(Lsn(0)))]);
}

#[test]
fn an_end_that_fails_somewhere_is_announced_everywhere() {
    let mut txn = txn();
    [A, B].into_iter().for_each(|partition| txn.join(partition));
    assert_eq!(run(&mut txn, Coordination::abort).len(), 2);
    assert_eq!(answer(&mut txn, A, Err(failure())), []);
    assert_eq!(answer(&mut txn, B, count(0)), [Outgoing::Done(Err(failure()))]);
}

/// Invariant 4.
#[test]
fn a_transaction_settles_everywhere_where_it_is_behind() {
    let mut txn = txn();
    for partition in [B, A, B] {
        txn.note(&Ok(Reply { behind: Some(partition), ..Reply::default() }));
    }
    assert!(txn.is_behind());
    assert_eq!(run(&mut txn, Coordination::settle), [send(A, Control::Settle)]);
    assert_eq!(answer(&mut txn, A, count(0)), [send(B, Control::Settle)]);
    // A failure leaves it behind all of them.
    assert_eq!(answer(&mut txn, B, Err(failure())), [Outgoing::Done(Err(failure()))]);
    assert!(txn.is_behind());
    run(&mut txn, Coordination::settle);
    answer(&mut txn, A, count(0));
    assert_eq!(answer(&mut txn, B, count(0)), [Outgoing::Done(Ok(true))]);
    assert!(!txn.is_behind());
}

#[test]
fn increments_are_converted_after_settling() {
    let mut txn = txn();
    for partition in [B, A, B] {
        txn.note(&Ok(Reply { increments: Some(partition), ..Reply::default() }));
    }
    txn.note(&Ok(Reply { behind: Some(C), ..Reply::default() }));
    assert!(txn.must_prepare_to_read(A));
    assert_eq!(run(&mut txn, Coordination::prepare_to_read), [send(C, Control::Settle)]);
    assert_eq!(answer(&mut txn, C, count(0)), [send(B, Control::ConvertIncrements)]);
    assert_eq!(answer(&mut txn, B, count(0)), [send(A, Control::ConvertIncrements)]);
    assert!(!txn.must_prepare_to_read(A));
    assert_eq!(answer(&mut txn, A, count(0)), [Outgoing::Done(Ok(true))]);
    assert!(txn.may_read());
}

/// Invariant 6.
#[test]
fn a_commit_in_two_phases_needs_every_vote() {
    let mut txn = txn();
    [A, B, C].into_iter().for_each(|partition| txn.join(partition));
    txn.write(true);
    txn.voted(B);
    let asked = [Outgoing::Prepare(A), Outgoing::Prepare(C)];
    assert_eq!(run(&mut txn, Coordination::prepare), asked);
    assert_eq!(answer(&mut txn, C, count(0)), []);
    assert_eq!(answer(&mut txn, A, Err(failure())), [Outgoing::Done(Err(failure()))]);
    assert_eq!(run(&mut txn, Coordination::prepare), [Outgoing::Prepare(A)]);
    assert_eq!(answer(&mut txn, A, count(0)), [Outgoing::Log]);
    assert_eq!(run(&mut txn, Coordination::prepare), [Outgoing::Log], "all have voted");
}

#[test]
fn an_undone_transaction_restarts_as_another() {
    let mut txn = txn();
    txn.join(A);
    txn.note(&Ok(Reply { behind: Some(A), ..Reply::default() }));
    assert!(!txn.undo(TxnId(8)), "another transaction");
    assert!(txn.undo(TxnId(7)));
    assert_eq!(run(&mut txn, Coordination::settle), [Outgoing::Done(Err(Failure::Undone))]);
    assert_eq!(txn.restart(), (TxnId(7), vec![A]));
    assert!(txn.is_undone() && !txn.is_behind() && txn.participants().is_empty());
}

#[test]
fn the_first_failure_of_a_round_cancels_the_others() {
    let mut round = FragmentRound::new(3);
    assert_eq!(round.answered(None), None);
    let error = round.answered(Some(Failure::StalePlan)).unwrap();
    assert_eq!(error.state(), SqlState::QUERY_CANCELED);
    assert!(!round.is_over());
    assert_eq!(round.answered(Some(failure())), None);
    assert!(round.is_over());
    assert_eq!(round.failed(), Some(Failure::StalePlan));
}

/// Invariant 4.
#[test]
fn an_optimistic_round_requests_nothing() {
    let mut txn = txn();
    txn.run_optimistically(&[A, B]);
    assert!(txn.is_optimistic() && txn.is_short() && !txn.is_exclusive());
    assert_eq!(txn.participants(), [A, B]);
    // A fragment waits for a lock after all.
    let waits = [send(A, Control::AwaitsClient), send(B, Control::AwaitsClient)];
    assert_eq!(run(&mut txn, Coordination::stalled), waits);
    txn.note(&Err(Failure::Undone));
    assert!(txn.is_undone());
    assert_eq!(run(&mut txn, Coordination::abort), [finish(A, None), finish(B, None)]);
}
