//! The coordinator's protocol for one transaction, as a state machine: messages in, messages out.
//!
//! [`Coordination`] decides in which order partitions are requested, what follows a refusal, whose
//! outcome the transaction must await, when its commit is logged, and who is told the end. It has
//! no I/O, no clock and no tasks. What it asks for is left in an [`Outgoing`] list; the engine's
//! tasks (`multi.rs`, `txn.rs`) and the driver of the simulated cluster carry that out and return
//! the answers.
//!
//! It does not know what fragments do. Whoever sends one calls [`Coordination::join`] before and
//! [`Coordination::note`] with the answer. [`FragmentRound`] says when a round of fragments is over
//! and when the others are to be cancelled.
//!
//! Invariants
//! 1. A transaction requests its partitions in ascending order before its first statement, so that
//!    two transactions with common partitions cannot wait for each other. If one request is
//!    refused, the transaction gives up the others. Then it uses locks, or waits until that
//!    partition has none and requests all again, at most [`ROUNDS`] times in all. After the last
//!    wait it locks.
//! 2. While it waits for others that hold locks ([`Control::AwaitQuiet`]) it has neither locks nor
//!    partitions.
//! 3. `participants` holds every partition that may hold locks or effects of the transaction.
//! 4. A transaction that has run behind undecided ones holds its commit until they have committed,
//!    and starts over if one of them aborts. It learns both from the partitions. One that runs
//!    optimistically has requested nothing, and starts over if a partition finds its run invalid.
//! 5. The commit is logged after every transaction that this one is behind has committed, and
//!    before any partition is told of it.
//! 6. [`Control::Finish`] is sent to every participant exactly once.
//! 7. With partitions on several nodes, the commit is logged after every participant has voted for
//!    it ([`Coordination::prepare`]). An abort is not logged: a coordinator that does not know a
//!    transaction has aborted it.
//!
//! On one node no votes are needed: one commit record covers all partitions.
//!
//! Locking: none. A crash leaves the state in the log.
//!
//! Source: Jones, Abadi, Madden, SIGMOD 2010, sections 4.1 and 4.2. The partitions' own order
//! replaces their central coordinator's order. Presumed abort: Mohan, Lindsay, Obermarck, TODS
//! 1986.

mod access;
mod end;
mod round;
#[cfg(test)]
mod tests;

pub use round::FragmentRound;

pub use self::access::AccessRequest;

use self::access::Acquiring;
use self::end::{Ending, Settling};
use clearway_partition::{Body, Failure, Reply};
use clearway_types::{Lsn, PartitionId, TxnId};

/// How many times a transaction requests its partitions, each time after the lock holders there
/// have ended. After that it uses locks.
pub const ROUNDS: usize = 8;

/// A message of the protocol to a partition. See the [`Body`] of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Requests the whole partition.
    Block {
        /// Whether the transaction sends one statement to each of its partitions.
        one_round: bool,
    },
    /// Exchanges the partition for locks on what the transaction has used. No answer.
    Unblock,
    /// Like `Unblock`; others should not wait for the transaction's end. No answer.
    AwaitsClient,
    /// Waits until no lock is held.
    AwaitQuiet,
    /// Waits for the transactions that this one is behind.
    Settle,
    /// Converts increment locks.
    ConvertIncrements,
    /// Announces the end.
    Finish {
        /// The commit record's LSN; `None` aborts.
        commit: Option<Lsn>,
    },
}

impl Control {
    /// Returns true if the partition answers it.
    pub fn is_answered(self) -> bool {
        !matches!(self, Self::Unblock | Self::AwaitsClient)
    }
}

impl From<Control> for Body {
    fn from(control: Control) -> Self {
        match control {
            Control::Block { one_round } => Self::Block { one_round },
            Control::Unblock => Self::Unblock,
            Control::AwaitsClient => Self::AwaitsClient,
            Control::AwaitQuiet => Self::AwaitQuiet,
            Control::Settle => Self::Settle,
            Control::ConvertIncrements => Self::ConvertIncrements,
            Control::Finish { commit } => Self::Finish { commit },
        }
    }
}

/// What the protocol asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outgoing {
    /// Send this message. Pass its answer, if it has one, to [`Coordination::answered`].
    Send(PartitionId, Control),
    /// Ask this partition to promise that it awaits the decision. Pass its vote to
    /// [`Coordination::answered`]; a failure votes against the commit.
    Prepare(PartitionId),
    /// Append the commit record to the log, then call [`Coordination::logged`].
    Log,
    /// The step is over. The value of a request for partitions says whether they were granted; it
    /// is true for other steps that succeed.
    Done(Result<bool, Failure>),
}

/// The protocol's state for one transaction.
#[derive(Debug, Default)]
pub struct Coordination {
    /// 0 until the first message to a partition.
    id: TxnId,
    participants: Vec<PartitionId>,
    /// The participants to which it has exclusive access, in partition order.
    exclusive: Vec<PartitionId>,
    /// It has requested partitions, or runs optimistically, and has not waited since. They treat it
    /// as one that ends soon.
    short: bool,
    /// Its fragments run optimistically.
    optimistic: bool,
    wrote: bool,
    /// Where it has changed rows whose last change was not committed, or has run behind an
    /// undecided transaction: [`Reply::behind`].
    behind: Vec<PartitionId>,
    /// Where it may have added to rows concurrently with others: [`Reply::increments`].
    increments: Vec<PartitionId>,
    /// A transaction that it was behind was undone, and so was this one; or its optimistic run was
    /// invalid: [`Failure::Undone`].
    undone: bool,
    /// The participants that have promised to await the decision.
    voted: Vec<PartitionId>,
    phase: Phase,
}

/// The step in progress.
#[derive(Debug, Default)]
enum Phase {
    /// None: its fragments run.
    #[default]
    Working,
    // Boxed: they are rare, and every transaction has room for its phase.
    Acquiring(Box<Acquiring>),
    Settling(Box<Settling>),
    /// This number of votes is missing.
    Preparing(usize),
    Ending(Ending),
}

impl Coordination {
    /// Returns the transaction's id, 0 if it has none yet.
    pub fn id(&self) -> TxnId {
        self.id
    }

    /// Returns the partitions that may hold locks or effects of the transaction.
    pub fn participants(&self) -> &[PartitionId] {
        &self.participants
    }

    /// Returns true if it has partitions to itself.
    pub fn is_exclusive(&self) -> bool {
        !self.exclusive.is_empty()
    }

    /// Returns true if its fragments run optimistically.
    pub fn is_optimistic(&self) -> bool {
        self.optimistic
    }

    /// Returns true if it has requested partitions, or runs optimistically, and has not waited
    /// since.
    pub fn is_short(&self) -> bool {
        self.short
    }

    /// Returns true if it has changed anything, or will.
    pub fn has_written(&self) -> bool {
        self.wrote
    }

    /// Returns true if it is behind others, whose commits it must await.
    pub fn is_behind(&self) -> bool {
        !self.behind.is_empty()
    }

    /// Returns true if it was undone because a transaction ahead of it was, or because its
    /// optimistic run was invalid.
    pub fn is_undone(&self) -> bool {
        self.undone
    }

    /// Returns true if [`Coordination::settle`] has nothing to do.
    pub fn is_settled(&self) -> bool {
        !self.is_behind() && !self.undone
    }

    /// Returns true if [`Coordination::prepare_to_read`] has nothing to do.
    pub fn may_read(&self) -> bool {
        self.is_settled() && self.increments.is_empty()
    }

    /// Returns true if [`Coordination::prepare_to_read`] must precede a statement that reads
    /// without locks at this partition alone.
    pub fn must_prepare_to_read(&self, partition: PartitionId) -> bool {
        self.is_behind() || self.increments.iter().any(|at| *at != partition)
    }

    /// Sets the transaction's id.
    pub fn begin(&mut self, id: TxnId) {
        self.id = id;
    }

    /// Adds the partition to the participants. Call it before the first message there.
    pub fn join(&mut self, partition: PartitionId) {
        if !self.participants.contains(&partition) {
            self.participants.push(partition);
        }
    }

    /// Records whether the transaction changes anything: then its commit is logged.
    pub fn write(&mut self, writes: bool) {
        self.wrote |= writes;
    }

    /// Records what a partition has said about the transaction in any answer.
    #[inline]
    pub fn note(&mut self, answer: &Result<Reply, Failure>) {
        match answer {
            Ok(reply) => {
                self.behind.extend(reply.behind);
                if let Some(partition) = reply.increments
                    && !self.increments.contains(&partition)
                {
                    self.increments.push(partition);
                }
            }
            Err(Failure::Undone) => self.undone = true,
            Err(_) => {}
        }
    }

    /// Records that the transaction with this id was undone because one ahead of it was. Returns
    /// false if it has ended.
    pub fn undo(&mut self, id: TxnId) -> bool {
        let is_open = self.id == id;
        self.undone |= is_open;
        is_open
    }

    /// Records that the transaction counts as undone.
    pub fn mark_undone(&mut self) {
        self.undone = true;
    }

    /// Lets an undone transaction continue as a new one, without id or participants. Returns the id
    /// and the participants that are still to be told the end.
    pub fn restart(&mut self) -> (TxnId, Vec<PartitionId>) {
        self.behind.clear();
        (std::mem::take(&mut self.id), std::mem::take(&mut self.participants))
    }

    /// Continues the step in progress with a partition's answer to a [`Control`] message. A failure
    /// ends every step but the announcement of the end.
    pub fn answered(
        &mut self,
        from: PartitionId,
        answer: &Result<Reply, Failure>,
        out: &mut Vec<Outgoing>,
    ) {
        match (&mut self.phase, answer) {
            (Phase::Working, _) => {}
            (Phase::Ending(ending), _) => {
                if let Some(result) = ending.answered(answer) {
                    self.done(result, out);
                }
            }
            (_, Err(failure)) => self.done(Err(failure.clone()), out),
            (Phase::Acquiring(_), Ok(reply)) => self.acquisition_answered(from, reply, out),
            (Phase::Settling(_), Ok(_)) => self.settled_at(from, out),
            (Phase::Preparing(_), Ok(_)) => self.vote_answered(from, out),
        }
    }

    /// Ends the step in progress.
    fn done(&mut self, result: Result<bool, Failure>, out: &mut Vec<Outgoing>) {
        self.phase = Phase::Working;
        out.push(Outgoing::Done(result));
    }
}
