//! Optimistic runs: a one-shot runs without locks and records what it reads and changes. It is
//! validated when it has finished here.
//!
//! A fragment of a multi-partition one-shot ([`Body::Statement::optimistic`]) runs in this way. So
//! does a single-partition one-shot that changes several rows or an index beside the locks of
//! others ([`Admission::Recorded`]). `exec/sets.rs` has the read set and the write set. A
//! single-partition one-shot that reads, or changes one row, checks each lock as it goes, under
//! every scheme: it has nothing to undo.
//!
//! Invariants
//! 1. A run is validated in the message in which it began, so nobody else runs in between. A run
//!    that stops before its end, for a page or because its turn is over, is validated when it
//!    stops. If it is valid, it locks its sets and continues as a locking transaction.
//! 2. A run is valid if no other transaction has locked a part of its read set for a change, or
//!    waits to do so. A single-partition one-shot then commits at once. A fragment locks both sets
//!    until its decision, so an undecided fragment is a transaction with locks. These locks are
//!    free, so it never waits for them.
//! 3. A change is made only if its lock and that of the table are free. So a run never replaces
//!    what is not committed, and its undo restores what is.
//! 4. An invalid run is undone, whatever its result was. Even an error may be caused by changes
//!    that are not committed. If the undo needs a page, the write set is locked until it is done.
//!    Nothing remains of the run: no lock, no image.
//! 5. An invalid one-shot of one partition runs again with locks. An invalid fragment is answered
//!    with [`Failure::Undone`]. Its session undoes the others, and runs the statement again with
//!    exclusive access to its partitions, which it requests without holding anything. So it is not
//!    starved by those that validate.
//! 6. While a transaction waits here until no lock is held, a fragment is invalid. Otherwise
//!    fragments could follow each other, and one of them would always have locks. It does not wait
//!    instead: it may have locks elsewhere, and waits for quiet are not edges of the waits-for
//!    graph.
//! 7. A fragment waits in line while another transaction has the partition. If its own transaction
//!    then waits for a lock elsewhere, the fragment locks instead of running optimistically. Others
//!    wait for the end of an optimistic transaction as for one that is short (`quiet.rs`).
//!
//! *Serializability.* Every value that a valid run has read is committed: an uncommitted change is
//! locked by its transaction (invariant 3 of `mod.rs`), and by (2) it is not in the read set. By
//! (1), the locks of the sets could have been acquired before each read and each change, without
//! waiting. From then on a fragment holds them until its decision, and a single-partition one-shot
//! commits. So each history is also one of strict two-phase locking, and is serializable in the
//! order of the commits. A row that a run has missed is a key of a range in its read set, so there
//! are no phantoms.
//!
//! Runs take turns. Those that overlap in the sense of the source are the undecided ones. The
//! source compares a read set with the write sets of transactions that have committed since the run
//! began; here there are none. It orders transactions that validate at several places by their
//! numbers. Here a run conflicts with an undecided one in both directions, so no transaction
//! depends on an undecided one, and the order of the decisions is the order everywhere.
//!
//! Durability, snapshots, and readers of committed rows need nothing of their own. The log, the
//! undo and the images of a fragment are those of a locking transaction. Additions to a row are
//! ordinary changes of it.
//!
//! Locking: none. A crash leaves losers, as under locking.
//!
//! Source: Kung, Robinson, On optimistic methods for concurrency control, TODS 1981: read phase,
//! validation, write phase. Changes in place with undo, instead of private copies, and the locks of
//! undecided transactions are ours.
//!
//! [`Admission::Recorded`]: crate::scheme::Admission::Recorded

use super::{After, Partition};
use crate::exec::{Locking, Stop};
use crate::message::{Body, Failure, FragmentOrigin, Outbox};
use crate::txn::{Job, OneShot, Task, Then, Txn};
use clearway_storage::Trees;
use clearway_types::TxnId;

impl<T: Trees> Partition<T> {
    /// Begins the run of a fragment. Stops it if others wait for quiet (invariant 6).
    pub(super) fn begin_fragment(&mut self) -> Result<(), Stop> {
        self.sets.begin();
        if self.blocking.quiet.is_empty() { Ok(()) } else { Err(Stop::Conflict) }
    }

    /// Validates a run. If `locks`, it then has locks on its sets.
    pub(super) fn validate(&mut self, id: TxnId, locks: bool) -> Result<(), Stop> {
        if !self.sets.is_valid(id, &self.locks) {
            return Err(Stop::Conflict);
        }
        if locks {
            self.sets.lock_all(id, &mut self.locks);
        }
        self.sets.end();
        self.blocking.chain.counts.validated += 1;
        Ok(())
    }

    /// Ends the recording of a run that has stopped, or the undo of which has stopped. Returns true
    /// if the run is invalid: then the task is its undo.
    #[cold]
    pub(super) fn discards_run(
        &mut self,
        id: TxnId,
        txn: &mut Txn<T::Log>,
        task: &mut Task,
        stop: &Stop,
    ) -> bool {
        if matches!(task.job, Job::Undo { .. }) {
            self.sets.lock_writes(id, &mut self.locks);
            self.sets.end();
            return false;
        }
        let may_end = match stop {
            Stop::Conflict => false,
            Stop::Fail(_) => true,
            // It will change more rows.
            _ => self.sets.will_change(id, &self.locks),
        };
        if may_end && self.validate(id, true).is_ok() {
            match &mut task.job {
                Job::OneShot(shot) => shot.locking = Locking::Take,
                Job::Statement(statement) => statement.optimistic = false,
                _ => {}
            }
            return false;
        }
        let counts = &mut self.blocking.chain.counts;
        counts.discarded += 1;
        task.job = match std::mem::replace(&mut task.job, Job::Settle(None)) {
            Job::OneShot(shot) => {
                counts.retried += 1;
                Job::Undo { to: 0, then: Then::Discarded(Some(shot)) }
            }
            Job::Statement(_) => {
                txn.doomed = true;
                txn.reads.forget();
                Job::Undo { to: 0, then: Then::Discarded(None) }
            }
            job => job,
        };
        true
    }

    /// Completes the undo of an invalid run. A one-shot then runs again with locks.
    pub(super) fn run_discarded(
        &mut self,
        id: TxnId,
        txn: &mut Txn<T::Log>,
        (origin, shot): (FragmentOrigin, Option<OneShot>),
        out: &mut Outbox,
    ) -> After {
        // Its images end, too: others may change the rows now, and commit.
        self.end_log(id, txn);
        txn.moved.clear();
        self.locks.release(id);
        let Some(mut shot) = shot else {
            self.reply(origin, Err(Failure::Undone), out);
            return After::Keep;
        };
        shot.exec.reset();
        shot.locking = Locking::Take;
        self.run_task(id, txn, Task::new(origin, Job::OneShot(shot)), out)
    }
}

/// Lets a fragment that waits in line lock instead: its transaction waits elsewhere.
pub(super) fn lock_instead(body: &mut Body) {
    if let Body::Statement { optimistic, .. } = body {
        *optimistic = false;
    }
}
