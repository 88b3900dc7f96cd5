//! Crashes of coordinators, primaries and backups, and what follows.

use super::{Event, World};
use crate::config::{MICRO, Nanos};
use clearway_types::{PartitionId, TxnId};

/// Time until a copy takes over from a crashed primary, or a crashed process starts again.
const RESTART: Nanos = 2_000 * MICRO;
/// No crash is scheduled after this many. A copy that takes over executes the whole log, so a run
/// with many conflicts and crashes would take minutes.
const MOST_CRASHES: u64 = 500;

impl World {
    /// Schedules the first crashes.
    pub(super) fn crashes(&mut self) {
        let faults = self.config.faults;
        let kinds = [
            (faults.coordinator_crash, Event::CrashCoordinator),
            (faults.primary_crash, Event::CrashPrimary),
            (faults.backup_crash, Event::CrashBackup),
        ];
        for (mean, event) in kinds {
            self.next_crash(mean, event);
        }
    }

    fn next_crash(&mut self, mean: Nanos, event: Event) {
        let is_over =
            self.started >= self.config.transactions || self.report.crashes >= MOST_CRASHES;
        if mean > 0 && !is_over {
            let delay = 1 + self.rng.below(2 * mean);
            self.after(delay, event);
        }
    }

    pub(super) fn crash_coordinator(&mut self) {
        self.next_crash(self.config.faults.coordinator_crash, Event::CrashCoordinator);
        let number = self.rng.below(self.coordinators.len() as u64) as u32;
        if std::mem::replace(&mut self.coordinators[number as usize].is_down, true) {
            return;
        }
        self.report.crashes += 1;
        let count = self.coordinators.len() as u32;
        for id in (number..self.config.sessions).step_by(count as usize) {
            let logging = self.sessions[id as usize].logging();
            if let Some(txn) = logging.filter(|_| self.rng.permille(500)) {
                // The record has reached the disk, but nobody knows yet.
                self.coordinator(id).decisions.insert(txn);
            }
            if let Some((running, outcome)) = self.sessions[id as usize].crash() {
                let seen = self.seen(id, &running, outcome);
                self.record(seen);
            }
        }
        self.coordinators[number as usize].starts += 1;
        self.after(RESTART, Event::StartCoordinator(number));
    }

    pub(super) fn start_coordinator(&mut self, number: u32) {
        self.coordinators[number as usize].is_down = false;
        let count = self.coordinators.len() as u32;
        for id in (number..self.config.sessions).step_by(count as usize) {
            self.after(0, Event::Begin(id));
        }
    }

    fn any_partition(&mut self) -> PartitionId {
        PartitionId(self.rng.below(u64::from(self.config.partitions)) as u16)
    }

    pub(super) fn crash_primary(&mut self) {
        self.next_crash(self.config.faults.primary_crash, Event::CrashPrimary);
        let at = self.any_partition();
        if self.node(at).crash() {
            self.report.crashes += 1;
            self.after(RESTART, Event::StartPrimary(at));
        }
    }

    pub(super) fn start_primary(&mut self, at: PartitionId) {
        let participant = self.participant(at);
        let now = self.now;
        let node = &mut self.nodes[usize::from(at.0)];
        node.restart(participant, &mut self.rng);
        node.busy_until = now;
        let epoch = node.epoch;
        let members: Vec<TxnId> =
            node.participant.iter().flat_map(|p| p.members().keys().copied()).collect();
        members.into_iter().for_each(|txn| self.watch(at, epoch, txn));
        self.schedule(at);
        self.replicate(at, now);
    }

    pub(super) fn crash_backup(&mut self) {
        self.next_crash(self.config.faults.backup_crash, Event::CrashBackup);
        let at = self.any_partition();
        let copies = self.node(at).copies.len().max(1) as u64;
        let copy = self.rng.below(copies) as usize;
        if self.node(at).may_crash() {
            self.report.crashes += 1;
            self.node(at).lose(copy);
            self.after(RESTART, Event::StartBackup(at, copy));
        }
    }
}
