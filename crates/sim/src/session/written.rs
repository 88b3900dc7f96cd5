//! How a session records its transactions, for the judge.

use super::Session;
use crate::history::{End, Transaction};
use crate::sql::Stmt;
use clearway_types::Lsn;

impl Session {
    /// Records the open transaction and returns its number.
    pub(super) fn write_down(&mut self, end: End, lsn: Lsn) -> usize {
        let statements = std::mem::take(&mut self.open);
        let (session, began, snapshot) =
            (self.name_of(&statements), self.began, self.snapshot.take());
        self.imported = None;
        let views = std::mem::take(&mut self.views);
        self.shared.history.add(Transaction {
            session,
            statements,
            end,
            lsn,
            snapshot,
            views,
            began,
            told: None,
        })
    }

    /// Records a query with a snapshot of its own as a transaction, which has its own place in the
    /// serial order. Returns its number.
    pub(super) fn write_down_alone(&mut self) -> Option<usize> {
        let each = matches!(self.open.first(), Some((Stmt::BeginReadOnly { each: true }, _)));
        let snapshot = if each { self.snapshot.take() } else { None };
        snapshot.map(|snapshot| {
            let statements = self.open.pop().into_iter().collect();
            let (session, began) = (self.name.clone(), self.began);
            // Its client received the answer at once: it does not wait until the block ends for
            // what it saw.
            let (end, lsn, snapshot) = (End::RolledBack, snapshot, Some(snapshot));
            let views = Vec::new();
            self.shared.history.add(Transaction {
                session,
                statements,
                end,
                lsn,
                snapshot,
                views,
                began,
                told: None,
            })
        })
    }
}
