//! A worker's part in recovery: see [`crate::recovery`].

use super::{RowWorker, State, WorkerEvent, WorkerLimits, connect};
use crate::access::{Access, Held, Interrupted};
use crate::mailbox::{Connected, Mailbox};
use crate::mode::MAX_READERS;
use crate::recovery::{HeldLock, Outcomes};
use crate::{Phase, RemoteError, Table};
use clearway_fabric::FabricWorker;
#[cfg(doc)]
use clearway_fabric::VerbError;

pub(super) fn assert_recoverable(table: &Table, number: u16, limits: WorkerLimits) {
    let log = table.log;
    assert!(
        (log.transactions as usize, log.rows as usize) == (limits.transactions, limits.rows),
        "the limits differ from the log's"
    );
    assert!(
        u32::from(number) < log.workers && log.rows <= 64 && table.owners.len() <= 64,
        "worker number, rows or owners exceed the log's limits"
    );
    let readers = u64::from(log.workers) * u64::from(log.transactions);
    assert!(
        !table.mode.is_one_round() || readers <= MAX_READERS,
        "too many readers for the lock word"
    );
}

impl<'a, W: FabricWorker> RowWorker<'a, W> {
    /// Stops all work after the regions were fenced. Returns false while verbs are in flight,
    /// because they may still change the scratch area. All of them will complete or fail. Nothing
    /// else may be called until [`RowWorker::resume`]. An error of
    /// [`RowClient::poll`](crate::RowClient::poll) that the fence caused is cleared by then.
    pub fn drain(&mut self) -> bool {
        self.backlog.clear();
        self.outstanding -= self.fabric.poll(&mut self.completions);
        self.completions.clear();
        self.outstanding == 0
    }

    /// Ends the worker's queue pairs. Returns the locks that it certainly holds.
    ///
    /// # Panics
    /// Panics if the table has no log, or if [`RowWorker::drain`] has not returned true.
    pub fn pause(&mut self) -> Vec<HeldLock> {
        assert!(self.table.is_logged() && self.outstanding == 0, "no log, or verbs in flight");
        for queue in std::mem::take(&mut self.queues) {
            self.fabric.disconnect(queue);
        }
        if let Some(mailbox) = self.mailbox.take() {
            mailbox.disconnect(&mut self.fabric);
        }
        self.leases.pause();
        self.parked.clear();
        let mut locks = Vec::new();
        for txn in &mut self.txns {
            for access in &mut txn.accesses {
                access.interrupted = access.pause();
            }
            // A transaction that is releasing holds nothing: recovery releases the rest.
            if !matches!(txn.state, State::Running | State::Logging | State::Sealing) {
                continue;
            }
            let logs = txn.state != State::Running;
            let held = |access: &&Access| {
                access.held != Held::Not
                    && (logs || access.interrupted != Some(Interrupted::Release))
            };
            locks
                .extend(txn.accesses.iter().filter(held).map(|access| access.held_lock(txn.start)));
        }
        locks
    }

    /// Replaces the worker's mailbox after [`RowWorker::pause`], as [`RowWorker::with_mailbox`]
    /// does. The old mailbox may have, or still get, words of lines that no longer exist.
    ///
    /// A node that cannot be reached has died since, and another recovery will follow. Until then a
    /// hand-over to its workers fails with [`VerbError::PeerDead`]. To a host that does not answer,
    /// as without power, a TCP connection fails only after 5 s, in which no lease is renewed. For a
    /// worker that is dead already, name the mailbox of a survivor: nobody writes to it.
    pub fn replace_mailbox(&mut self, mailbox: Mailbox<'a>) {
        let (connected, _) = Connected::new(mailbox, &mut self.fabric);
        self.mailbox = Some(connected);
    }

    /// Continues the transactions in a table whose regions have their new keys.
    ///
    /// # Errors
    /// Returns [`RemoteError::Fabric`] if an owner cannot be reached.
    ///
    /// # Panics
    /// Panics if the table has lines and the worker has no new mailbox.
    pub fn resume(&mut self, table: Table, outcomes: &Outcomes) -> Result<(), RemoteError> {
        assert!(!table.mode.has_line() || self.mailbox.is_some(), "no new mailbox");
        self.queues = connect(&mut self.fabric, &table)?;
        self.table = table;
        self.marks.fill(0);
        for txn in 0..self.txns.len() {
            match self.txns[txn].state {
                State::Free => {}
                State::Running => self.resume_call(txn)?,
                State::Logging | State::Sealing
                    if !outcomes.has_committed(self.txns[txn].start) =>
                {
                    self.log(txn)?
                }
                State::Logging | State::Sealing => {
                    self.txns[txn].state = State::Committing;
                    self.end_now(txn);
                }
                State::Committing | State::Aborting(_) => self.end_now(txn),
            }
        }
        Ok(())
    }

    fn end_now(&mut self, txn: usize) {
        self.txns[txn].releasing = 1;
        self.released(txn);
    }

    fn resume_call(&mut self, txn: usize) -> Result<(), RemoteError> {
        for access in 0..self.txns[txn].accesses.len() {
            let of_row = &mut self.txns[txn].accesses[access];
            let exclusive = of_row.exclusive;
            match of_row.interrupted.take() {
                None => {}
                Some(Interrupted::Lock) => {
                    self.step(txn, access, Phase::Lock, |access, cx| access.lock(exclusive, cx))?;
                }
                Some(Interrupted::Peek) => self.step(txn, access, Phase::Lock, Access::peek)?,
                Some(Interrupted::Release) => {
                    of_row.held = Held::Not;
                    let row = of_row.row;
                    self.events.push_back(WorkerEvent::Released(self.txns[txn].handle, row));
                }
            }
        }
        Ok(())
    }
}
