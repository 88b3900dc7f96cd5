//! State that all workers share: inboxes, the registry of backend ids, the number of connections,
//! the stop flag.
//!
//! Invariants
//! 1. A backend id is in the registry from before its client learns it until its session has ended.
//! 2. `connections` counts every connection that a session has, until it is closed.
//!
//! Locking: each inbox and the registry have a latch that is held for a few instructions; none is
//! acquired while another is held. A crash leaves nothing.

use crate::config::Config;
use crate::connections::Connections;
use crate::counters::{Counters, Totals};
use crate::doorbell::Doorbell;
use crate::latches::Latches;
use crate::long_waits::LongWaits;
use crate::net::Stream;
use crate::sessions::Roll;
use clearway_env::{Clock, Entropy};
use clearway_ir::Signal;
use clearway_latch::lockstat::Class;
use clearway_latch::{CachePadded, Latch};
use hashbrown::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::time::Instant;

/// A message for a worker.
pub enum Note {
    /// A new connection.
    Connection {
        /// The connection.
        stream: Stream,
        /// There are too many connections: tell the client and close it.
        refused: bool,
    },
    /// A cancel request for a session.
    Cancel {
        /// The session's slot at the worker.
        slot: u32,
        /// Its backend id, because the slot may have been reused.
        pid: i32,
    },
    /// A request to terminate a session.
    Terminate {
        /// The session's slot at the worker.
        slot: u32,
        /// As in [`Note::Cancel`].
        pid: i32,
    },
    /// Tells a watcher that another session has ended.
    Ended {
        /// The watcher's slot at the worker.
        slot: u32,
        /// The watcher's backend id, as in [`Note::Cancel`].
        pid: i32,
        /// The backend id of the session that has ended.
        ended: i32,
    },
    /// A roll call to answer.
    Roll(Arc<Roll>),
}

/// A session that waits for another one to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watcher {
    /// Its worker.
    pub worker: u16,
    /// Its slot there.
    pub slot: u32,
    /// Its backend id, because the slot may have been reused.
    pub pid: i32,
}

struct Target {
    secret: i32,
    worker: u16,
    slot: u32,
    /// Sessions to notify when it ends, each once.
    watchers: Vec<Watcher>,
}

static INBOX: Class = Class::new("server.inbox");
static REGISTRY: Class = Class::new("server.registry");

/// One worker's inbox.
pub struct Inbox {
    notes: Latch<Vec<Note>>,
    /// Rung when the worker has something to do.
    pub bell: Arc<Doorbell>,
}

/// State that all workers share.
pub struct Shared {
    /// The configuration.
    pub config: Config,
    /// How latches are acquired.
    pub latches: Latches,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Randomness for cancel keys.
    pub entropy: Arc<dyn Entropy + Send + Sync>,
    /// When the server was started.
    pub started: Instant,
    inboxes: Vec<Inbox>,
    counters: Vec<CachePadded<Counters>>,
    registry: Latch<HashMap<i32, Target>>,
    next_pid: AtomicI32,
    /// Long waits for locks that are to be logged.
    pub(crate) long_waits: LongWaits,
    /// The number of connections.
    pub(crate) connections: Connections,
    /// Sessions with recent work, over all workers: decides whether spinning pays.
    pub busy: AtomicUsize,
    stopping: AtomicBool,
}

impl Shared {
    /// Creates the shared state of the workers with these doorbells.
    pub fn new(
        config: Config,
        latches: Latches,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy + Send + Sync>,
        bells: Vec<Arc<Doorbell>>,
    ) -> Self {
        Self {
            connections: Connections::new(config.max_connections),
            config,
            latches,
            clock,
            entropy,
            started: Instant::now(),
            counters: bells.iter().map(|_| CachePadded::default()).collect(),
            inboxes: bells
                .into_iter()
                .map(|bell| Inbox { notes: Latch::new(&INBOX, Vec::new()), bell })
                .collect(),
            registry: Latch::new(&REGISTRY, HashMap::new()),
            next_pid: AtomicI32::new(1000),
            long_waits: LongWaits::default(),
            busy: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
        }
    }

    /// Returns the number of workers.
    pub fn workers(&self) -> usize {
        self.inboxes.len()
    }

    /// Returns a worker's counters, written only by its own thread.
    pub(crate) fn counters(&self, worker: u16) -> &Counters {
        &self.counters[usize::from(worker)]
    }

    /// Returns the sum of all workers' counters.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.counters.iter().for_each(|counters| counters.add_to(&mut totals));
        totals
    }

    /// Returns a worker's doorbell.
    pub fn bell(&self, worker: usize) -> &Arc<Doorbell> {
        &self.inboxes[worker].bell
    }

    /// Posts a note to a worker.
    pub fn post(&self, worker: usize, note: Note) {
        self.inboxes[worker].notes.lock().push(note);
        self.inboxes[worker].bell.ring();
    }

    /// Takes a worker's notes.
    pub fn take_notes(&self, worker: usize, into: &mut Vec<Note>) {
        into.append(&mut self.inboxes[worker].notes.lock());
    }

    /// Gives a session its backend id and cancel key.
    pub fn register(&self, worker: u16, slot: u32) -> (i32, i32) {
        let secret = self.entropy.u64() as i32;
        let mut registry = self.registry.lock();
        loop {
            // Relaxed: the registry guarantees uniqueness.
            let pid = self.next_pid.fetch_add(1, Ordering::Relaxed) & i32::MAX;
            if pid != 0 && !registry.contains_key(&pid) {
                registry.insert(pid, Target { secret, worker, slot, watchers: Vec::new() });
                return (pid, secret);
            }
        }
    }

    /// Removes an ended session and notifies its watchers.
    pub fn unregister(&self, pid: i32) {
        let target = self.registry.lock().remove(&pid);
        for watcher in target.into_iter().flat_map(|target| target.watchers) {
            let note = Note::Ended { slot: watcher.slot, pid: watcher.pid, ended: pid };
            self.post(usize::from(watcher.worker), note);
        }
    }

    /// Registers a watcher to receive [`Note::Ended`]; returns false if there is no such session.
    pub fn watch(&self, pid: i32, watcher: Watcher) -> bool {
        let mut registry = self.registry.lock();
        let Some(target) = registry.get_mut(&pid) else { return false };
        if !target.watchers.contains(&watcher) {
            target.watchers.push(watcher);
        }
        true
    }

    /// Forwards a cancel request; the protocol requires that one with a wrong key is ignored.
    pub fn cancel(&self, pid: i32, secret: i32) {
        let target = match self.registry.lock().get(&pid) {
            Some(t) if t.secret == secret => (t.worker, t.slot),
            _ => return,
        };
        self.post(usize::from(target.0), Note::Cancel { slot: target.1, pid });
    }

    /// Forwards a signal to another session; returns false if there is no such session.
    pub fn signal(&self, pid: i32, signal: Signal) -> bool {
        let Some((worker, slot)) = self.registry.lock().get(&pid).map(|t| (t.worker, t.slot))
        else {
            return false;
        };
        let note = match signal {
            Signal::Cancel => Note::Cancel { slot, pid },
            Signal::Terminate => Note::Terminate { slot, pid },
        };
        self.post(usize::from(worker), note);
        true
    }

    /// Tells all workers to stop.
    pub fn stop(&self) {
        // Release: pairs with the Acquire in `stopping`; the doorbell makes a sleeping worker
        // check.
        self.stopping.store(true, Ordering::Release);
        for inbox in &self.inboxes {
            inbox.bell.ring();
        }
    }

    /// Returns true if workers must stop.
    pub fn stopping(&self) -> bool {
        // Acquire: pairs with the Release in `stop`.
        self.stopping.load(Ordering::Acquire)
    }
}
