//! Blocking: the partition belongs to one multi-partition transaction, and all other work waits in
//! line. Under the speculative scheme others may run behind it (`speculation.rs`).
//!
//! Invariants
//! 1. While the partition is blocked, no transaction holds a lock here. The partition is granted
//!    only when there is no lock and no resumed call, the blocker takes none, and the messages of
//!    all others wait. So the blocker's changes need no locks.
//! 2. A blocker neither waits for the disk, nor pauses, nor exceeds a slice. If it would, it
//!    exchanges the partition for locks on the tables that it has used, which are free by (1).
//! 3. Waiting messages are processed in order of arrival, as soon as the partition is free again.
//!    Decisions and cancellations do not wait: a transaction that has something to finish holds no
//!    lock here, and a cancelled call leaves the line. A task that must continue stays in it.
//! 4. A savepoint does not wait either: it only marks a position in its transaction's own log. A
//!    waiting call could be cancelled, and a partition that the transaction joined without its
//!    marks could not roll back to them.
//!
//! The line is not an edge of the waits-for graph, because a blocker never waits for a transaction
//! that could be in this line. The coordinator blocks partitions in order, all or none, and a
//! transaction that stalls anywhere releases all of them. One that was undone here has lost this
//! partition and may still have others, so its calls are refused instead of waiting in line.
//!
//! Source: Jones, Abadi, Madden, SIGMOD 2010, section 4.1; the handling of page misses is our own.

use super::Partition;
use super::quiet::AwaitingQuiet;
use super::speculation::{Chain, Used};
use crate::exec::{Locking, only_reads, table_of};
use crate::lock::PARTITION;
use crate::message::{Body, Failure, FragmentOrigin, Message, Out, Outbox, Reply};
use crate::scheme::ExclusiveAccess;
use crate::txn::Txn;
use clearway_ir::{Program, RowLock};
use clearway_storage::Trees;
use clearway_types::{SqlError, TableId, TxnId};
use std::collections::VecDeque;
use std::panic::Location;

/// The transaction that has the partition, and the messages that wait for it.
#[derive(Default)]
pub(super) struct Blocking {
    by: Option<TxnId>,
    used: Vec<Used>,
    /// The transactions behind it.
    pub(super) chain: Chain,
    /// The waiting messages, with the numbers of their waits.
    line: VecDeque<(u64, Message)>,
    /// The messages that wait until no lock is held, and those behind them.
    pub(super) quiet: AwaitingQuiet,
}

impl Blocking {
    /// Returns true if the message, which may wait, has to. It does not pass those in line even if
    /// the partition is free, because they are processed a few at a time.
    #[inline]
    pub(super) fn stops(&self, message: &Message) -> bool {
        let Some(by) = self.by else { return !self.line.is_empty() };
        let (txn, passes) = (message.txn, self.line.is_empty() && self.chain.admits(&message.body));
        by != txn && !passes && !self.chain.is_behind(txn)
    }

    /// Returns true if messages wait for the partition, or until no lock is held there.
    #[inline]
    pub(super) fn has_waiters(&self) -> bool {
        !self.line.is_empty() || !self.quiet.is_empty()
    }

    /// Returns the number of messages that wait for the partition, or until no lock is held there.
    pub(super) fn queue(&self) -> usize {
        self.line.len() + self.quiet.len()
    }

    /// Returns true if a message in line could be processed.
    #[inline]
    pub(super) fn has_next(&self) -> bool {
        let may_run =
            |(_, message): &(u64, Message)| self.by.is_none() || self.chain.admits(&message.body);
        self.line.front().is_some_and(may_run)
    }

    /// Returns the next message in line, if it can be processed.
    #[inline]
    pub(super) fn next(&mut self) -> Option<(u64, Message)> {
        if self.has_next() { self.line.pop_front() } else { None }
    }

    #[inline]
    pub(super) fn is_by(&self, txn: TxnId) -> bool {
        self.by == Some(txn)
    }

    /// Returns true if a transaction has the partition.
    #[inline]
    pub(super) fn is_taken(&self) -> bool {
        self.by.is_some()
    }

    /// Ends the blocking.
    pub(super) fn clear(&mut self) {
        self.by = None;
        self.used.clear();
        self.chain.begin(false);
    }

    /// Gives the partition to the transaction, which has used this table.
    pub(super) fn give(&mut self, txn: TxnId, used: Option<Used>) {
        self.by = Some(txn);
        self.used.extend(used);
    }

    fn note(&mut self, table: TableId, changes: bool) {
        match self.used.iter_mut().find(|(t, _)| *t == table) {
            Some((_, changed)) => *changed |= changes,
            None => self.used.push((table, changes)),
        }
    }
}

/// Returns true if a message waits in line while another transaction has the partition. The drop of
/// trees, which no one uses any more, takes no lock: in line it could be cancelled.
#[inline]
pub(super) fn may_wait(body: &Body) -> bool {
    !matches!(
        body,
        Body::Finish { .. }
            | Body::Cancel(_)
            | Body::GiveUp { .. }
            | Body::Unavailable { .. }
            | Body::Unblock
            | Body::AwaitsClient
            | Body::Forget(_)
            | Body::Savepoint(_)
            | Body::Release(_)
            | Body::DropTreesAtCommit(_)
            | Body::Settle
            | Body::HotRows(_)
            | Body::Report(_)
            | Body::SetScheme(_)
    )
}

impl<T: Trees> Partition<T> {
    /// Gives the partition to the transaction if no lock is held and the scheme allows it; the
    /// reply's count says whether.
    pub(super) fn block(
        &mut self,
        id: TxnId,
        origin: FragmentOrigin,
        one_round: bool,
        out: &mut Outbox,
    ) {
        let has_it = self.blocking.is_by(id);
        if self.blocking.is_taken() && !has_it {
            return self.block_behind(id, origin, out);
        }
        // A resumed call may read without locks. It would see what the blocker has not committed.
        // If it has the partition already, its message that gives it up was overtaken.
        let is_free = has_it || self.locks.is_empty() && self.ready.is_empty();
        let given = self.scheme.exclusive() != ExclusiveAccess::Never && is_free;
        if given {
            self.blocking.give(id, None);
            self.blocking.chain.begin(one_round);
            self.txns.entry(id).or_insert_with(|| Box::new(Txn::of_one_shot(id))).short = true;
        }
        self.reply(origin, Ok(Reply { count: given.into(), ..Reply::default() }), out);
    }

    /// Exchanges the partition for locks on the tables that its blocker, and what remains of the
    /// chain, has used.
    pub(super) fn unblock(&mut self, id: TxnId, out: &mut Outbox) {
        if !self.blocking.is_by(id) {
            if self.blocking.chain.is_behind(id) {
                self.discard(id, out);
            }
            return;
        }
        let behind = self.detach_behind(id, out);
        let used = std::mem::take(&mut self.blocking.used);
        self.lock_used(id, used.into_iter().chain(behind));
        self.blocking.clear();
        self.pass_fence(out);
    }

    /// Returns how a statement of the transaction locks.
    pub(super) fn statement_locking(
        &mut self,
        id: TxnId,
        program: &Program,
        fresh: bool,
    ) -> Locking {
        if fresh {
            return Locking::None;
        }
        if !self.blocking.is_taken() {
            return Locking::Take;
        }
        let for_update =
            matches!(program, Program::Scan { access, .. } if access.read_lock() > RowLock::Share);
        let used = (table_of(program).id, for_update || !only_reads(program));
        if self.blocking.is_by(id) {
            self.blocking.note(used.0, used.1);
        } else if !self.note_behind(id, used) {
            return Locking::Take;
        }
        Locking::None
    }

    /// Puts the message in line.
    pub(super) fn wait_in_line(&mut self, message: Message, out: &mut Outbox) {
        let wait = self.report_wait(&message, out);
        self.blocking.line.push_back((wait, message));
        self.blocking.chain.counts.blocked += 1;
    }

    /// Puts the message at the front of the line.
    pub(super) fn put_first_in_line(&mut self, message: Message, out: &mut Outbox) {
        let wait = self.report_wait(&message, out);
        self.blocking.line.push_front((wait, message));
    }

    /// Lets the transaction's messages in line lock instead of running optimistically.
    pub(super) fn lock_in_line(&mut self, id: TxnId) {
        let line = self.blocking.line.iter_mut().map(|(_, message)| message);
        line.filter(|message| message.txn == id)
            .for_each(|message| super::optimistic::lock_instead(&mut message.body));
    }

    /// Puts the messages that waited behind waits for quiet in line.
    pub(super) fn append_to_line(&mut self, messages: impl Iterator<Item = (u64, Message)>) {
        self.blocking.line.extend(messages);
    }

    /// Reports that the message waits for the partition. Returns the number of the wait.
    #[track_caller]
    pub(super) fn report_wait(&mut self, message: &Message, out: &mut Outbox) -> u64 {
        let (wait, order, caller) = (self.next_wait(), self.next_order(), Location::caller());
        let Message { txn, stake, .. } = *message;
        let requester = message.body.requester();
        let partition = self.id;
        let (line, wanted, class) = (None, None, &PARTITION);
        out.push(Out::Waits {
            txn,
            partition,
            order,
            wait,
            stake,
            requester,
            line,
            wanted,
            class,
            caller,
        });
        wait
    }

    /// Removes the transaction's call from the line and replies with the error. Returns false if
    /// there was none, or only a resumption that is no longer needed: its task is cancelled like
    /// any other. The resumption of a task that must continue stays, because no other will come; it
    /// notes that it is cancelled.
    pub(super) fn leave_line(&mut self, id: TxnId, error: &SqlError, out: &mut Outbox) -> bool {
        if let Some((wait, message)) = self.blocking.quiet.take(id) {
            self.release_behind_quiet();
            self.report_given_up(id, wait, out);
            self.reply(message.origin, Err(Failure::Sql(error.clone())), out);
            return true;
        }
        let is_resumption = |message: &Message| matches!(message.body, Body::Resume(_));
        let of_txn =
            |call: bool| move |(_, m): &(u64, Message)| m.txn == id && is_resumption(m) != call;
        let call = self.blocking.line.iter().position(of_txn(true));
        let Some(at) = call.or_else(|| self.blocking.line.iter().position(of_txn(false))) else {
            return false;
        };
        if call.is_none() && self.must_continue(id) {
            return false;
        }
        let Some((wait, message)) = self.blocking.line.remove(at) else { return false };
        self.report_given_up(id, wait, out);
        if call.is_none() {
            return false;
        }
        self.reply(message.origin, Err(Failure::Sql(error.clone())), out);
        true
    }

    pub(super) fn next_order(&mut self) -> u64 {
        self.reports += 1;
        self.reports
    }

    pub(super) fn next_wait(&mut self) -> u64 {
        self.waits += 1;
        self.waits
    }

    fn must_continue(&self, id: TxnId) -> bool {
        self.txns
            .get(&id)
            .and_then(|txn| txn.task.as_ref())
            .is_some_and(|task| task.job.must_continue())
    }
}
