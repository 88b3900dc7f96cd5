//! All interleavings of two threads' transactions on rows of their own node, which each accesses
//! directly: the real [`RowWorker`] on memory that loom checks.

use crate::traps::Trap;
use crate::worker::direct;
use crate::{
    Buckets, LockKind, LogLayout, Mailbox, Mode, Owner, Protocol, RowClient, RowId, RowWorker,
    Table, WorkerEvent, WorkerLimits,
};
use clearway_fabric::{
    Completion, FabricError, FabricNode, FabricWorker, Guarantees, PostError, QueueId, Region,
    RegionKey, Request, WorkerAddr,
};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

/// Words of a payload. All of them have the same value, so that a torn payload is visible.
const PAYLOAD: usize = 2;
const ROW: RowId = RowId { owner: 0, index: 0 };
const LIMITS: WorkerLimits = WorkerLimits { transactions: 1, rows: 1 };
/// Polls of a transaction that waits, after which the other thread must have ended.
const POLLS: usize = 100;

/// A region with the orderings that [`Region`] documents.
struct Words {
    key: u64,
    words: Vec<AtomicU64>,
}

impl Words {
    fn new(key: u64, words: usize) -> Self {
        Self { key, words: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl Region for Words {
    fn key(&self) -> RegionKey {
        RegionKey { key: self.key, base: 0 }
    }

    fn words(&self) -> usize {
        self.words.len()
    }

    fn load(&self, word: usize) -> u64 {
        self.words[word].load(Ordering::Acquire)
    }

    fn store(&self, word: usize, value: u64) {
        self.words[word].store(value, Ordering::Release);
    }

    fn compare_exchange(&self, word: usize, expected: u64, new: u64) -> u64 {
        let word = &self.words[word];
        match word.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(found) | Err(found) => found,
        }
    }

    fn fetch_add(&self, word: usize, add: u64) -> u64 {
        self.words[word].fetch_add(add, Ordering::AcqRel)
    }
}

/// The memory of a node: its row, and a mailbox for each thread.
struct Memory {
    rows: Words,
    mailboxes: [Words; 2],
}

/// A thread's part of a fabric whose verbs are the CPU's own instructions, as those of shared
/// memory. Rows are accessed directly, so only writes to a mailbox are posted.
struct Direct {
    memory: Arc<Memory>,
    scratch: Vec<u64>,
    completions: Vec<Completion>,
    queues: u32,
}

impl FabricWorker for Direct {
    fn address(&self) -> WorkerAddr {
        WorkerAddr { node: FabricNode(0), port: 0 }
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees {
            cpu_atomics: true,
            writes_exclude_atomics: true,
            writes_ordered: true,
            reads_follow_atomics: true,
            inline_words: 64,
            queue_depth: 64,
            max_words: 64,
            recvs_end_with_peer: true,
        }
    }

    fn connect(&mut self, _: WorkerAddr) -> Result<QueueId, FabricError> {
        self.queues += 1;
        Ok(QueueId(self.queues - 1))
    }

    fn accept(&mut self) -> Option<(QueueId, WorkerAddr)> {
        None
    }

    fn disconnect(&mut self, _: QueueId) {}

    fn post(&mut self, queue: QueueId, batch: &[Request]) -> Result<(), PostError> {
        let memory = Arc::clone(&self.memory);
        for request in batch {
            let key = request.verb.remote().expect("a lock uses no messages").key.key;
            let all = std::iter::once(&memory.rows).chain(&memory.mailboxes);
            let region = all.into_iter().find(|words| words.key == key).expect("it is registered");
            direct::execute(self, region, request.verb);
            let result = Ok(request.verb.scratch().words);
            self.completions.push(Completion { queue, id: request.id, result });
        }
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        completions.append(&mut self.completions);
        completions.len()
    }

    fn wait(&mut self) {
        thread::yield_now();
    }

    fn scratch_words(&self) -> usize {
        self.scratch.len()
    }

    fn load(&self, word: usize) -> u64 {
        self.scratch[word]
    }

    fn store(&mut self, word: usize, value: u64) {
        self.scratch[word] = value;
    }
}

#[derive(Clone, Copy)]
struct Setup {
    mode: Mode,
    trap: Option<Trap>,
}

/// Runs one transaction of a thread, which updates the row or reads it. Returns the updates that
/// have committed.
fn transaction(setup: Setup, memory: Arc<Memory>, number: u16, update: bool) -> u64 {
    let mode = setup.mode;
    let address = WorkerAddr { node: FabricNode(0), port: 0 };
    let owner = |region: &Words| Owner { address, region: region.key() };
    let table = Table {
        mode,
        payload_words: PAYLOAD,
        rows: 1,
        buckets: Buckets::default(),
        log: LogLayout::default(),
        owners: vec![owner(&memory.rows)],
    };
    let fabric = Direct {
        memory: Arc::clone(&memory),
        scratch: vec![0; LIMITS.scratch_words(PAYLOAD)],
        completions: Vec::new(),
        queues: 0,
    };
    let worker = RowWorker::new(fabric, table, number, LIMITS, Some(&memory.rows)).unwrap();
    let all = memory.mailboxes.iter().map(owner).collect();
    let mailbox = Mailbox { own: &memory.mailboxes[usize::from(number)], all };
    let mut worker = worker.with_mailbox(mailbox).unwrap();
    if let Some(trap) = setup.trap {
        worker.plant(trap, None);
    }
    let txn = worker.begin().unwrap();
    worker.get(txn, ROW, update).unwrap();
    let mut events = Vec::new();
    for _ in 0..POLLS {
        worker.poll(&mut events).unwrap();
        for event in events.drain(..) {
            match event {
                WorkerEvent::Locked(..) => {
                    let mut payload = [0; PAYLOAD];
                    worker.payload(txn, ROW, &mut payload);
                    assert_eq!(payload[0], payload[1], "{mode:?}: a torn payload");
                    if update {
                        worker.set(txn, ROW, &payload.map(|word| word + 1));
                    }
                    worker.commit(txn).unwrap();
                }
                WorkerEvent::Committed(_) => return u64::from(update),
                WorkerEvent::Aborted(..) => return 0,
                WorkerEvent::Peeked(..) | WorkerEvent::Released(..) => unreachable!(),
            }
        }
        // A transaction that waits lets the other thread run.
        worker.fabric().wait();
    }
    panic!("{mode:?}: the transaction does not end");
}

/// Each thread runs one transaction. The row must have all updates that committed, and be free.
fn explore(setup: Setup, second_updates: bool) {
    let Setup { mode, .. } = setup;
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let memory = Arc::new(Memory {
            rows: Words::new(1, Table::region_words(mode, PAYLOAD, 1)),
            mailboxes: [2, 3].map(|key| Words::new(key, LIMITS.mailbox_words())),
        });
        let of_other = Arc::clone(&memory);
        let other = thread::spawn(move || transaction(setup, of_other, 1, second_updates));
        let updates = transaction(setup, Arc::clone(&memory), 0, true) + other.join().unwrap();
        let header = mode.header_words();
        let words: Vec<u64> = (0..header + PAYLOAD).map(|word| memory.rows.load(word)).collect();
        let expected: Vec<u64> = [vec![0; header], vec![updates; PAYLOAD]].concat();
        assert_eq!(words, expected, "{mode:?}");
        let places = memory.mailboxes.iter().flat_map(|mailbox| &mailbox.words);
        assert!(places.into_iter().all(|word| word.load(Ordering::Acquire) == 0), "{mode:?}");
    });
}

fn both(protocol: Protocol, kind: LockKind) {
    let setup = Setup { mode: Mode { protocol, kind }, trap: None };
    [true, false].into_iter().for_each(|update| explore(setup, update));
}

fn planted(mode: Mode, trap: Trap) {
    explore(Setup { mode, trap: Some(trap) }, true);
}

#[test]
#[should_panic(expected = "NoWait")]
fn unlock_with_payload_is_caught() {
    planted(Mode::PUBLISHED[0], Trap::UnlockWithPayload);
}

#[test]
#[should_panic(expected = "WaitDie")]
fn payload_after_release_is_caught() {
    planted(Mode::LINE, Trap::PayloadAfterRelease);
}

#[test]
fn no_wait_mutual_locks_exclude() {
    both(Protocol::NoWait, LockKind::Mutual);
}

#[test]
fn no_wait_shared_locks_exclude() {
    both(Protocol::NoWait, LockKind::Shared);
}

#[test]
fn one_round_locks_exclude() {
    both(Protocol::NoWait, LockKind::OneRound);
}

#[test]
fn no_wait_adaptive_locks_exclude() {
    both(Protocol::NoWait, LockKind::Adaptive);
}

#[test]
fn wait_die_mutual_locks_exclude() {
    both(Protocol::WaitDie, LockKind::Mutual);
}

#[test]
fn wait_die_shared_locks_exclude() {
    both(Protocol::WaitDie, LockKind::Shared);
}

#[test]
fn wait_die_adaptive_locks_exclude() {
    both(Protocol::WaitDie, LockKind::Adaptive);
}

#[test]
fn lines_exclude() {
    both(Protocol::WaitDie, LockKind::Line);
}
