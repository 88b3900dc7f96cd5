//! Plays the coordinator of one partition: carries messages, fetches pages, finds deadlocks.

use crate::trees::MemTrees;
use clearway_buffer::{Keep, Pool, Want};
use clearway_partition::{Body, Failure, Limits, Message, Origin, Out, Partition, Reply, Trees};
use clearway_storage::Store;
use clearway_types::{Lsn, SqlError, SqlState, TxnId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Trees that say what they want, and get it from here.
pub trait Paged: Trees {
    type Pages;
    /// What is to stay until the message has been handled.
    fn fetch(&mut self, pages: &Self::Pages, wants: Vec<Want>) -> Vec<Keep>;
    fn let_go(&mut self);
    /// Whether every transaction that was begun has been ended, as far as they can tell.
    fn idle(&self) -> bool {
        true
    }
}

impl Paged for MemTrees {
    type Pages = ();
    fn fetch(&mut self, (): &(), wants: Vec<Want>) -> Vec<Keep> {
        self.pin(&wants);
        Vec::new()
    }
    fn let_go(&mut self) {
        self.unpin();
    }
    fn idle(&self) -> bool {
        self.active.is_empty()
    }
}

impl Paged for Store {
    type Pages = Arc<Pool>;
    fn fetch(&mut self, pool: &Arc<Pool>, wants: Vec<Want>) -> Vec<Keep> {
        wants.into_iter().map(|w| pool.fetch_blocking(w).expect("a page")).collect()
    }
    fn let_go(&mut self) {}
}

pub type Answer = Result<Reply, Failure>;

pub struct Driver<T: Paged> {
    pub partition: Partition<T>,
    pages: T::Pages,
    seq: u32,
    owed: BTreeSet<u32>,
    /// Answers in the order in which they were given.
    pub answers: Vec<(u32, Answer)>,
    /// The commit that the newest answer depends on.
    pub depends_on: Lsn,
    pub suspended: Vec<(TxnId, Vec<Want>)>,
    pub waits: BTreeMap<TxnId, Vec<TxnId>>,
    /// Whose waits have not ended, by their numbers.
    numbers: BTreeMap<u64, TxnId>,
    pub suspensions: u64,
    pub deadlocks: u64,
    /// How often a transaction lost the partition that it had to itself.
    pub stalls: u64,
    /// Pieces of log that were read back for an undo.
    pub log_reads: u64,
    next_txn: u64,
}

pub fn state_of(answer: &Answer) -> Option<SqlState> {
    match answer {
        Err(Failure::Sql(e)) => Some(e.state()),
        _ => None,
    }
}

impl<T: Paged> Driver<T> {
    pub fn new(trees: T, pages: T::Pages) -> Self {
        Self {
            partition: Partition::new(trees, Limits::default()),
            pages,
            seq: 0,
            owed: BTreeSet::new(),
            answers: Vec::new(),
            depends_on: Lsn(0),
            suspended: Vec::new(),
            waits: BTreeMap::new(),
            numbers: BTreeMap::new(),
            suspensions: 0,
            deadlocks: 0,
            stalls: 0,
            log_reads: 0,
            next_txn: 0,
        }
    }

    /// How many wait, for locks and in line.
    pub fn waiting(&self) -> usize {
        self.numbers.len()
    }

    pub fn txn(&mut self) -> TxnId {
        self.next_txn += 1;
        TxnId(self.next_txn)
    }

    pub fn send(&mut self, txn: TxnId, body: Body) -> u32 {
        self.seq += 1;
        let seq = self.seq;
        if !matches!(body, Body::Cancel(_) | Body::Unavailable(_) | Body::Resume(_) | Body::Unblock) {
            self.owed.insert(seq);
        }
        let mut out = Vec::new();
        self.partition.on_message(Message { txn, origin: Origin { worker: 0, session: 0, seq }, body }, &mut out);
        let mut victims = Vec::new();
        for o in out {
            match o {
                Out::Reply { to, reply, depends_on, .. } => {
                    self.depends_on = depends_on;
                    assert!(self.owed.remove(&to.seq), "one reply a message");
                    self.answers.push((to.seq, reply));
                }
                Out::Fetch { txn, wants, .. } => {
                    assert!(!wants.is_empty());
                    self.suspensions += 1;
                    self.suspended.push((txn, wants));
                }
                Out::Stalled { .. } => self.stalls += 1,
                Out::ReadLog { txn, read, .. } => {
                    read.run();
                    self.log_reads += 1;
                    self.suspended.push((txn, Vec::new()));
                }
                Out::Yield { txn, .. } => self.suspended.push((txn, Vec::new())),
                Out::Waits { txn, wait, on, .. } => {
                    assert!(!on.contains(&txn));
                    assert!(self.numbers.insert(wait, txn).is_none(), "a wait has its own number");
                    // Nobody: it is in line for the partition, which is no edge of the graph.
                    if !on.is_empty() {
                        self.waits.insert(txn, on);
                    }
                    if self.reaches(txn) {
                        victims.push(txn);
                    }
                }
                Out::Granted { txn, wait, .. } => {
                    assert_eq!(self.numbers.remove(&wait), Some(txn), "a grant ends its wait");
                    self.waits.remove(&txn);
                }
            }
        }
        for txn in victims {
            self.deadlocks += 1;
            self.send(txn, Body::Cancel(SqlError::new(SqlState::DEADLOCK, "deadlock detected")));
        }
        seq
    }

    fn reaches(&self, txn: TxnId) -> bool {
        let (mut seen, mut stack) = (BTreeSet::new(), vec![txn]);
        while let Some(at) = stack.pop() {
            for next in self.waits.get(&at).into_iter().flatten() {
                if *next == txn {
                    return true;
                }
                if seen.insert(*next) {
                    stack.push(*next);
                }
            }
        }
        false
    }

    /// Resumes a suspended transaction, with what it wants at hand.
    pub fn resume(&mut self, at: usize) {
        let (txn, wants) = self.suspended.remove(at);
        let held = self.partition.trees().fetch(&self.pages, wants);
        self.send(txn, Body::Resume(held));
        self.partition.trees().let_go();
    }

    pub fn take(&mut self, seq: u32) -> Option<Answer> {
        let at = self.answers.iter().position(|(s, _)| *s == seq)?;
        Some(self.answers.remove(at).1)
    }

    /// Resumes whatever is suspended until nothing is.
    pub fn settle(&mut self) {
        let mut rounds = 0;
        while !self.suspended.is_empty() {
            self.resume(0);
            rounds += 1;
            assert!(rounds < 1_000_000, "no progress");
        }
    }

    /// A call that need not wait for anyone.
    pub fn call(&mut self, txn: TxnId, body: Body) -> Answer {
        let seq = self.send(txn, body);
        self.settle();
        self.take(seq).expect("an answer")
    }

    pub fn owes_nothing(&self) -> bool {
        self.owed.is_empty() && self.numbers.is_empty() && self.suspended.is_empty()
    }
}
