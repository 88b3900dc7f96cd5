//! Waiting in line on memory of one's own.
//!
//! The lock word of a row names the last in line (MCS: Mellor-Crummey and Scott, ACM TOCS 9(1),
//! 1991; here with CAS, as verbs have no swap). Who waits tells the one before, by a WRITE to that
//! one's mailbox, and then looks at its own mailbox, which costs no verb. The holder hands the lock
//! over by a WRITE to the mailbox of the next. So a wait costs a CAS and a WRITE, and the CASs that
//! another's arrival or release made fail.
//!
//! A place of a mailbox belongs to one access of one transaction of its worker:
//!
//! | word | |
//! |---|---|
//! | 2 * place | the lock word of who stands behind, or 0 |
//! | 2 * place + 1 | the lock word of who has handed the lock over, or 0 |
//!
//! # Invariants
//! 1. Who stands in line is older than all before it: it was older than the last when it took its
//!    place behind. So waits lead from older to younger transactions, and form no cycle.
//! 2. Nobody leaves the line before it had the lock. So each place in line gets one hand-over, and
//!    tells one before at most: a word of a mailbox is written once between two moments when its
//!    owner finds and clears it.
//! 3. A lock is handed over, as it is released, after the payload has landed: the CAS that shows
//!    that there is a line is posted behind the WRITE of the payload, and completes before the
//!    hand-over is posted on another queue pair.
//!
//! What a crash leaves: a line in which nobody goes on. See [`crate::recovery`].
//!
//! Waits and their bounds: a holder that finds a line waits for the WRITE of the next, which that
//! has already posted or will post without waiting. The line of a row has at most one place for
//! each transaction under way.

use crate::mode::NAME_SHIFT;
use crate::{Owner, RemoteError, StartTimestamp};
use clearway_fabric::{FabricWorker, QueueId, Region, RegionKey, RemoteAddr};
use std::collections::BTreeMap;

/// Accesses that a worker with a mailbox may have at a time.
pub(crate) const MAX_PLACES: usize = 1 << NAME_SHIFT;

/// The last in line of a row, as its lock word says. Never 0: see [`StartTimestamp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stand(pub u64);

impl Stand {
    pub fn new(start: StartTimestamp, place: usize) -> Self {
        Self(start.0 << NAME_SHIFT | place as u64)
    }

    pub fn start(self) -> StartTimestamp {
        StartTimestamp(self.0 >> NAME_SHIFT)
    }

    pub fn worker(self) -> u16 {
        self.start().worker()
    }

    fn place(self) -> usize {
        self.0 as usize % MAX_PLACES
    }
}

/// What a word of a mailbox tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Next,
    HandOver,
}

impl Word {
    fn index(self, place: usize) -> usize {
        2 * place + usize::from(self == Self::HandOver)
    }
}

/// A worker's memory for hand-overs, and where that of the others is.
pub struct Mailbox<'a> {
    /// Registered memory of the worker's node, of
    /// [`WorkerLimits::mailbox_words`](crate::WorkerLimits::mailbox_words) words that are zero.
    pub own: &'a dyn Region,
    /// The mailboxes of all workers that use the table, by number.
    pub all: Vec<Owner>,
}

/// A mailbox whose worker has connected to the others' nodes.
pub(crate) struct Connected<'a> {
    own: &'a dyn Region,
    all: Vec<(QueueId, RegionKey)>,
}

impl<'a> Connected<'a> {
    pub fn new<W: FabricWorker>(mailbox: Mailbox<'a>, fabric: &mut W) -> Result<Self, RemoteError> {
        let mut queues = BTreeMap::new();
        let mut all = Vec::new();
        for Owner { address, region } in mailbox.all {
            if let std::collections::btree_map::Entry::Vacant(vacant) = queues.entry(address.node) {
                vacant.insert(fabric.connect(address).map_err(RemoteError::Fabric)?);
            }
            all.push((queues[&address.node], region));
        }
        Ok(Self { own: mailbox.own, all })
    }

    /// Takes a word that has arrived in this worker's mailbox.
    pub fn take(&self, place: usize, word: Word) -> Option<Stand> {
        let index = word.index(place);
        let found = self.own.load(index);
        if found == 0 {
            return None;
        }
        self.own.store(index, 0);
        Some(Stand(found))
    }

    /// Puts a word into this worker's own mailbox: both stand in line for the same row.
    pub fn put(&self, to: Stand, word: Word, from: Stand) {
        self.own.store(word.index(to.place()), from.0);
    }

    /// Where the word of another's mailbox is. None if there is no such worker: the lock word is
    /// damaged.
    pub fn address(&self, to: Stand, word: Word) -> Option<RemoteAddr> {
        let (_, key) = self.all.get(usize::from(to.worker()))?;
        Some(RemoteAddr { key: *key, word: word.index(to.place()) as u64 })
    }

    pub fn queue(&self, to: Stand) -> QueueId {
        self.all[usize::from(to.worker())].0
    }
}
