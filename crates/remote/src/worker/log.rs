//! Commit with a log: see [`crate::recovery`].

use super::{RowWorker, State};
use crate::traps::Trap;
use crate::{Phase, RemoteError};
use clearway_fabric::FabricWorker;

impl<W: FabricWorker> RowWorker<'_, W> {
    /// Logs the changes of a transaction at their owners, then commits.
    pub(super) fn log(&mut self, txn: usize) -> Result<(), RemoteError> {
        let dirty = self.dirty(txn);
        // The last logged access continues, but not before all of them have been started.
        self.txns[txn].state = State::Logging;
        self.txns[txn].releasing = dirty.len() + 1;
        for access in dirty {
            self.step(txn, access, Phase::Log, |access, cx| access.log(cx))?;
        }
        self.logged(txn)
    }

    pub(super) fn logged(&mut self, txn: usize) -> Result<(), RemoteError> {
        self.txns[txn].releasing -= 1;
        if self.planted.has(Trap::EarlyWrite) && self.txns[txn].state == State::Logging {
            return if self.txns[txn].releasing > 0 {
                Ok(())
            } else {
                self.release_all(txn, State::Committing)
            };
        }
        match self.txns[txn].state {
            _ if self.txns[txn].releasing > 0 => Ok(()),
            State::Logging => self.seal(txn),
            _ => self.release_all(txn, State::Committing),
        }
    }

    /// Makes the records valid, one at each owner.
    fn seal(&mut self, txn: usize) -> Result<(), RemoteError> {
        let owner_of = |access: &usize| self.txns[txn].accesses[*access].row.owner;
        let dirty = self.dirty(txn);
        let owners = dirty.iter().fold(0, |owners, access| owners | 1 << owner_of(access));
        let firsts: Vec<(usize, usize, u64)> = (0..u64::BITS)
            .filter_map(|owner| {
                let of_owner: Vec<usize> =
                    dirty.iter().copied().filter(|access| owner_of(access) == owner).collect();
                let entries = of_owner.iter().fold(0, |entries, access| entries | 1 << access);
                Some((*of_owner.first()?, owner as usize, entries))
            })
            .collect();
        self.txns[txn].state = State::Sealing;
        self.txns[txn].releasing = firsts.len() + 1;
        for (access, owner, entries) in firsts {
            let start = self.txns[txn].start;
            let place = txn * self.table.owners.len() + owner;
            let mark = std::mem::replace(&mut self.marks[place], start.0);
            self.step(txn, access, Phase::Log, |access, cx| {
                access.seal((owners, entries), mark, cx)
            })?;
        }
        self.logged(txn)
    }

    fn dirty(&self, txn: usize) -> Vec<usize> {
        let accesses = self.txns[txn].accesses.iter().enumerate();
        accesses.filter(|(_, access)| access.dirty).map(|(index, _)| index).collect()
    }
}
