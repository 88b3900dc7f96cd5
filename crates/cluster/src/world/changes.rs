//! Changes of the partitions' schemes.

use super::{Event, World};
use crate::participant::{Command, Entry};
use clearway_partition::SchemeKind;
use clearway_types::{PartitionId, TxnId};

impl World {
    /// Schedules the next change.
    pub(super) fn next_change(&mut self) {
        let (mean, is_over) =
            (self.config.scheme_changes, self.started >= self.config.transactions);
        if mean > 0 && !is_over {
            let delay = 1 + self.changes.below(2 * mean);
            self.after(delay, Event::ChangeScheme);
        }
    }

    /// Has a partition change its scheme. Coordinators learn it when the change is in the
    /// partition's log.
    pub(super) fn change_scheme(&mut self) {
        self.next_change();
        let at = PartitionId(self.changes.below(u64::from(self.config.partitions)) as u16);
        let scheme = SchemeKind::ALL[self.changes.below(SchemeKind::ALL.len() as u64) as usize];
        self.numbers += 1;
        let (txn, command) = (TxnId(self.numbers + 2), Command::SetScheme(scheme));
        let node = self.node(at);
        if node.participant.is_some() {
            node.inbox.push_back(Entry { txn, session: u32::MAX, seq: 0, command });
            self.schedule(at);
        }
    }
}
