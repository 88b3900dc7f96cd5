//! Lines: queue locks whose waiters poll local memory.
//!
//! The lock word of a row names the last transaction of a queue, the line (MCS lock: Mellor-Crummey
//! and Scott, ACM TOCS 9(1), 1991; here with CAS, because verbs have no swap). A waiter notifies
//! its predecessor by a WRITE to the predecessor's mailbox and then polls its own mailbox, which
//! costs no verb. The holder hands the lock over by a WRITE to its successor's mailbox. A wait
//! therefore costs a CAS and a WRITE, plus one more CAS for each concurrent arrival or release that
//! makes a CAS fail.
//!
//! A place of a mailbox belongs to one access of one transaction of its worker:
//!
//! | word | contents |
//! |---|---|
//! | 2 * place | the lock word of the successor, or 0 |
//! | 2 * place + 1 | the lock word of the predecessor that has handed the lock over, or 0 |
//!
//! # Invariants
//! 1. Every transaction in a line is older than all before it: it was older than the last when it
//!    queued behind that one. So waits lead from older to younger transactions and form no cycle.
//! 2. No transaction leaves the line before it has held the lock. So each place gets one hand-over
//!    and notifies at most one predecessor. A word of a mailbox is written at most once before its
//!    owner finds and clears it.
//! 3. A lock is handed over, like released, after the payload has landed. The CAS that reveals a
//!    successor is posted behind the WRITE of the payload. It completes before the hand-over is
//!    posted on another queue pair.
//!
//! After a crash a line makes no progress: see [`crate::recovery`].
//!
//! Waits and their bounds: a holder that finds a successor waits for the successor's WRITE. The
//! successor has already posted that WRITE, or will post it without waiting. The line of a row has
//! at most one place for each running transaction.

use crate::mode::NAME_SHIFT;
use crate::{Owner, RemoteError, StartTimestamp};
use clearway_fabric::{FabricNode, FabricWorker, QueueId, Region, RegionKey, RemoteAddr};
use std::collections::BTreeMap;

/// Maximum number of concurrent accesses of a worker with a mailbox.
pub const MAX_PLACES: usize = 1 << NAME_SHIFT;

/// A place in a line: the last one is the row's lock word. Never 0, see [`StartTimestamp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinePlace(pub u64);

impl LinePlace {
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

/// The words of a mailbox place.
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

/// A worker's memory for hand-overs, and the locations of the other workers' mailboxes.
pub struct Mailbox<'a> {
    /// Registered memory of the worker's node:
    /// [`WorkerLimits::mailbox_words`](crate::WorkerLimits::mailbox_words) zero words.
    pub own: &'a dyn Region,
    /// The mailboxes of all workers that use the table, by worker number.
    pub all: Vec<Owner>,
}

/// A mailbox whose worker has connected to the other workers' nodes.
pub(crate) struct Connected<'a> {
    own: &'a dyn Region,
    /// By worker: its node, and the queue pair to it, `None` if it could not be reached.
    all: Vec<(FabricNode, Option<QueueId>, RegionKey)>,
}

impl<'a> Connected<'a> {
    /// Connects to the nodes of all mailboxes. Returns the first failure, too.
    pub fn new<W: FabricWorker>(
        mailbox: Mailbox<'a>,
        fabric: &mut W,
    ) -> (Self, Result<(), RemoteError>) {
        let (mut queues, mut result) = (BTreeMap::new(), Ok(()));
        let mut all = Vec::new();
        for Owner { address, region } in mailbox.all {
            let queue = *queues.entry(address.node).or_insert_with(|| {
                let connected = fabric.connect(address).map_err(RemoteError::Fabric);
                connected.map_err(|why| result = Err(why)).ok()
            });
            all.push((address.node, queue, region));
        }
        (Self { own: mailbox.own, all }, result)
    }

    /// Ends the queue pairs.
    pub fn disconnect<W: FabricWorker>(self, fabric: &mut W) {
        // Workers of one node share one. Ending it again does nothing.
        self.all.into_iter().filter_map(|(_, queue, _)| queue).for_each(|q| fabric.disconnect(q));
    }

    /// Takes a word that has arrived in this worker's mailbox.
    pub fn take(&self, place: usize, word: Word) -> Option<LinePlace> {
        let index = word.index(place);
        let found = self.own.load(index);
        if found == 0 {
            return None;
        }
        self.own.store(index, 0);
        Some(LinePlace(found))
    }

    /// Stores a word in this worker's own mailbox: both places in the line belong to this worker.
    pub fn put(&self, to: LinePlace, word: Word, from: LinePlace) {
        self.own.store(word.index(to.place()), from.0);
    }

    /// Returns the address of a word in another worker's mailbox, or `None` if there is no such
    /// worker because the lock word is damaged.
    pub fn address(&self, to: LinePlace, word: Word) -> Option<RemoteAddr> {
        let (.., key) = self.all.get(usize::from(to.worker()))?;
        Some(RemoteAddr { key: *key, word: word.index(to.place()) as u64 })
    }

    /// Returns the queue pair to another worker's mailbox, or `None` if its node was dead when
    /// this worker connected.
    pub fn queue(&self, to: LinePlace) -> Option<QueueId> {
        self.all[usize::from(to.worker())].1
    }

    /// Returns the node of another worker's mailbox.
    pub fn node(&self, to: LinePlace) -> Option<FabricNode> {
        self.all.get(usize::from(to.worker())).map(|(node, ..)| *node)
    }
}
