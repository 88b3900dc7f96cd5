//! A partition's primary with its log, and how far the copies of the log are.
//!
//! The log holds what the partition has executed, in order. An effect leaves when the log up to the
//! entry that caused it is on all copies. So a copy that takes over with its part of the log has
//! everything that anyone was told.
//!
//! Invariants
//! 1. A copy holds a prefix of the primary's log. (So the model keeps only its length.)
//! 2. At most one of the primary and its copies is down, or behind what was told. The run's faults
//!    respect this: the copies tolerate one failure.
//!
//! A crash of the primary leaves the longest copy. With a log on disk it leaves what was synced,
//! and possibly more.

use crate::bugs::PlantedBug;
use crate::config::{Durability, Nanos};
use crate::participant::{Command, Effect, Entry, Participant};
use clearway_testkit::Rng;
use std::collections::VecDeque;

/// A copy of the log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogCopy {
    /// The number of entries that it has.
    pub has: usize,
    /// The number of entries that the primary knows it to have.
    pub acknowledged: usize,
    pub is_down: bool,
}

/// A partition's primary.
pub(crate) struct Node {
    /// `None` while the primary is down.
    pub participant: Option<Participant>,
    pub log: Vec<Entry>,
    /// It increases when a copy takes over.
    pub epoch: u32,
    /// It increases when a copy takes over or loses its log. Messages about the log from earlier
    /// ones are void: they would claim that a copy has what it has lost.
    pub log_epoch: u32,
    pub copies: Vec<LogCopy>,
    /// How much of the log others may rely on: effects of it have left.
    told: usize,
    /// Effects with the length of the log that they wait for.
    held: VecDeque<(usize, Effect)>,
    pub inbox: VecDeque<Entry>,
    /// Until when its CPU is busy.
    pub busy_until: Nanos,
    /// The CPU is going to take the next message.
    pub is_scheduled: bool,
    /// The next reminder of the copies is going to happen.
    pub reminds: bool,
    /// A write of the log to disk is in progress.
    pub syncs: bool,
    durability: Durability,
    bug: Option<PlantedBug>,
}

impl Node {
    pub(crate) fn new(
        participant: Participant,
        durability: Durability,
        bug: Option<PlantedBug>,
    ) -> Self {
        let copies = match durability {
            Durability::None => 0,
            Durability::Disk => 1,
            Durability::Backups(copies) => copies,
        };
        Self {
            participant: Some(participant),
            log: Vec::new(),
            epoch: 0,
            log_epoch: 0,
            copies: vec![LogCopy::default(); copies],
            told: 0,
            held: VecDeque::new(),
            inbox: VecDeque::new(),
            busy_until: 0,
            is_scheduled: false,
            reminds: false,
            syncs: false,
            durability,
            bug,
        }
    }

    /// Returns how much of the log is on all copies, as far as the primary knows.
    pub(crate) fn stable(&self) -> usize {
        self.copies.iter().map(|copy| copy.acknowledged).min().unwrap_or(self.log.len())
    }

    /// Returns true if a copy lacks a part of the log, as far as the primary knows.
    pub(crate) fn is_behind(&self) -> bool {
        self.stable() < self.log.len()
    }

    /// Executes an entry. Messages for the node itself go to its inbox.
    pub(crate) fn execute(&mut self, entry: Entry) {
        let Some(participant) = &mut self.participant else { return };
        let mut effects = Vec::new();
        if !participant.is_repeated(&entry, &mut effects) {
            participant.apply(&entry, &mut effects);
            self.log.push(entry);
        }
        self.take(effects);
    }

    fn take(&mut self, effects: Vec<Effect>) {
        let own = |txn, command| Entry { txn, session: u32::MAX, seq: 0, command };
        for effect in effects {
            match effect {
                Effect::Yield(txn) => self.inbox.push_back(own(txn, Command::Resume)),
                Effect::GiveUp(txn, wait) => {
                    self.inbox.push_back(own(txn, Command::GiveUp(wait)));
                }
                effect => self.held.push_back((self.log.len(), effect)),
            }
        }
    }

    /// Returns the effects that may leave.
    pub(crate) fn release(&mut self) -> Vec<Effect> {
        let stable = self.stable();
        self.told = self.told.max(stable);
        let stable = if self.bug == Some(PlantedBug::EarlyReply) { usize::MAX } else { stable };
        let ready = self.held.iter().take_while(|(needs, _)| *needs <= stable).count();
        self.held.drain(..ready).map(|(_, effect)| effect).collect()
    }

    /// Returns true if the primary, or one of its copies, may crash (invariant 2).
    pub(crate) fn may_crash(&self) -> bool {
        let is_whole = |copy: &LogCopy| !copy.is_down && copy.has >= self.told;
        self.participant.is_some() && !self.copies.is_empty() && self.copies.iter().all(is_whole)
    }

    /// The primary dies. Returns false if it may not.
    pub(crate) fn crash(&mut self) -> bool {
        if !self.may_crash() {
            return false;
        }
        self.participant = None;
        self.inbox.clear();
        self.held.clear();
        true
    }

    /// A copy dies with its log.
    pub(crate) fn lose(&mut self, copy: usize) {
        self.copies[copy] = LogCopy { is_down: true, ..LogCopy::default() };
        self.log_epoch += 1;
        self.reminds = false;
    }

    /// A copy takes over, or the primary starts again from its disk, with an empty participant.
    pub(crate) fn restart(&mut self, mut participant: Participant, rng: &mut Rng) {
        let longest = self.copies.iter().map(|copy| copy.has).max().unwrap_or(0);
        let kept = match self.durability {
            // The write in progress may be complete.
            Durability::Disk => longest + rng.below((self.log.len() - longest + 1) as u64) as usize,
            _ => longest,
        };
        self.log.truncate(kept);
        self.epoch += 1;
        self.log_epoch += 1;
        (self.reminds, self.syncs) = (false, false);
        for copy in &mut self.copies {
            copy.has = copy.has.min(kept);
            copy.acknowledged = copy.has;
        }
        if let (Durability::Disk, [disk]) = (self.durability, &mut self.copies[..]) {
            (disk.has, disk.acknowledged) = (kept, kept);
        } else if let Some(taken) = self.copies.iter_mut().find(|copy| copy.has == kept) {
            // The one that has taken over is replaced by an empty backup.
            *taken = LogCopy::default();
        }
        let mut dropped = Vec::new();
        for entry in &self.log {
            participant.apply(entry, &mut dropped);
            dropped.clear();
        }
        let pending = participant.pending();
        if self.bug == Some(PlantedBug::LostPrepare) {
            let own =
                |txn| Entry { txn, session: u32::MAX, seq: 0, command: Command::Verdict(false) };
            let prepared = participant.members().iter().filter(|(_, member)| member.prepared);
            self.inbox.extend(prepared.map(|(txn, _)| own(*txn)));
        }
        self.participant = Some(participant);
        self.take(pending);
    }

    /// A message with the log from `from` to `to` arrives at a copy. Returns what it has then.
    pub(crate) fn append(&mut self, copy: usize, from: usize, to: usize) -> Option<usize> {
        let copy = &mut self.copies[copy];
        if copy.is_down {
            return None;
        }
        if copy.has >= from {
            copy.has = copy.has.max(to);
        }
        Some(copy.has)
    }
}
