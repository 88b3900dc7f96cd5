//! Plays the coordinator of one partition: carries messages, fetches pages, detects deadlocks.

use crate::trees::MemTrees;
use clearway_buffer::{MissingPage, Pin};
use clearway_memtrees::MemoryTrees;
use clearway_partition::{
    Body, Failure, FragmentOrigin, Limits, Message, Opening, Out, Partition, Reply, SchemeKind,
    Snapshot, Snapshots, Stake,
};
use clearway_storage::{Node, Store, Trees};
use clearway_types::{Lsn, SqlError, SqlState, TxnId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Trees that report the pages they miss, and get them from here.
pub trait Paged: Trees {
    type Pages;
    /// Fetches pages; the result must be kept until the message has been handled.
    fn fetch(&mut self, pages: &Self::Pages, wants: Vec<MissingPage>) -> Vec<Pin>;
    fn release_pages(&mut self);
    /// Appends a transaction's commit record; returns the log's end after it.
    fn commit(&mut self, pages: &Self::Pages, txn: TxnId) -> Lsn;
    /// Returns the log's end.
    fn appended(&mut self, pages: &Self::Pages) -> Lsn;
    /// Returns true if every transaction has been ended, as far as the trees know.
    fn idle(&self) -> bool {
        true
    }
}

impl Paged for MemTrees {
    type Pages = ();
    fn fetch(&mut self, (): &(), wants: Vec<MissingPage>) -> Vec<Pin> {
        self.pin(&wants);
        Vec::new()
    }
    fn release_pages(&mut self) {
        self.unpin();
    }
    fn commit(&mut self, (): &(), _txn: TxnId) -> Lsn {
        self.append()
    }
    fn appended(&mut self, (): &()) -> Lsn {
        MemoryTrees::appended(self)
    }
    fn idle(&self) -> bool {
        self.active.is_empty()
    }
}

impl Paged for Store {
    type Pages = Arc<Node>;
    fn fetch(&mut self, node: &Arc<Node>, wants: Vec<MissingPage>) -> Vec<Pin> {
        wants.into_iter().map(|w| node.pool().fetch_blocking(w).expect("a page")).collect()
    }
    fn release_pages(&mut self) {}
    fn commit(&mut self, node: &Arc<Node>, txn: TxnId) -> Lsn {
        node.commit(txn)
    }
    fn appended(&mut self, node: &Arc<Node>) -> Lsn {
        node.wal().appended()
    }
}

pub type Answer = Result<Reply, Failure>;

pub struct Driver<T: Paged> {
    pub partition: Partition<T>,
    pub snapshots: &'static Arc<Snapshots>,
    pages: T::Pages,
    seq: u32,
    owed: BTreeSet<u32>,
    /// Replies in the order in which they were given.
    pub answers: Vec<(u32, Answer)>,
    /// The commit that the newest reply depends on.
    pub depends_on: Lsn,
    pub suspended: Vec<(TxnId, Vec<MissingPage>)>,
    /// The newest request of pages of each transaction.
    requests: BTreeMap<TxnId, u64>,
    /// The lines in which transactions wait for locks, and the transactions that block these lines.
    in_line: BTreeMap<TxnId, u64>,
    lines: BTreeMap<u64, Vec<TxnId>>,
    /// Number of wait events reported.
    reports: u64,
    /// Waiting transactions by the number of their wait.
    numbers: BTreeMap<u64, TxnId>,
    pub suspensions: u64,
    pub deadlocks: u64,
    /// Number of times that a transaction lost the partition that it had to itself.
    pub stalls: u64,
    /// The schemes that the partition has changed to.
    pub schemes: Vec<SchemeKind>,
    /// Transactions reported as undone.
    pub undone: Vec<TxnId>,
    /// Number of log pieces read for an undo.
    pub log_reads: u64,
    /// Number of times that a reader missed blocks of the temporary file.
    pub spill_reads: u64,
    next_txn: u64,
}

pub fn state_of(answer: &Answer) -> Option<SqlState> {
    match answer {
        Err(Failure::Sql(e)) => Some(e.state()),
        Err(Failure::Undone) => Some(Failure::undone().state()),
        _ => None,
    }
}

impl<T: Paged> Driver<T> {
    pub fn new(trees: T, pages: T::Pages) -> Self {
        let snapshots: &'static Arc<Snapshots> = Box::leak(Box::default());
        Self {
            partition: Partition::new(trees, Limits::default(), snapshots.clone()),
            snapshots,
            pages,
            seq: 0,
            owed: BTreeSet::new(),
            answers: Vec::new(),
            depends_on: Lsn(0),
            suspended: Vec::new(),
            requests: BTreeMap::new(),
            in_line: BTreeMap::new(),
            lines: BTreeMap::new(),
            reports: 0,
            numbers: BTreeMap::new(),
            suspensions: 0,
            deadlocks: 0,
            stalls: 0,
            schemes: Vec::new(),
            undone: Vec::new(),
            log_reads: 0,
            spill_reads: 0,
            next_txn: 0,
        }
    }

    /// Returns the transactions that block this one; none if it does not wait for a lock.
    pub fn blockers_of(&self, txn: TxnId) -> &[TxnId] {
        self.in_line.get(&txn).map_or(&[], |line| &self.lines[line])
    }

    /// Returns the number of waits, for locks and in line.
    pub fn waiting(&self) -> usize {
        self.numbers.len()
    }

    pub fn txn(&mut self) -> TxnId {
        self.next_txn += 1;
        TxnId(self.next_txn)
    }

    /// Runs a single statement and returns its reply. `body` is the one-shot or, for a read that
    /// cannot complete immediately, the statement of a transaction.
    pub fn alone(&mut self, body: impl Fn(bool) -> Body) -> Answer {
        let (txn, again) = (self.txn(), self.txn());
        let answer = self.call(txn, body(true));
        if answer != Err(Failure::NeedsSnapshot) {
            return answer;
        }
        let answer = self.call(again, body(false));
        self.call(again, Body::Finish { commit: Some(Lsn(0)) }).expect("the end");
        answer
    }

    /// Returns the number of the next call.
    pub fn next_call(&self) -> u32 {
        self.seq + 1
    }

    pub fn send(&mut self, txn: TxnId, body: Body) -> u32 {
        self.seq += 1;
        let seq = self.seq;
        if !matches!(
            body,
            Body::Cancel(_)
                | Body::GiveUp { .. }
                | Body::Unavailable { .. }
                | Body::Resume(_)
                | Body::Unblock
                | Body::AwaitsClient
                | Body::Forget(_)
                | Body::Release(_)
                | Body::HotRows(_)
                | Body::Report(_)
        ) {
            self.owed.insert(seq);
        }
        let mut out = Vec::new();
        let origin = FragmentOrigin { worker: 0, session: txn.0 as u32, seq };
        self.partition.on_message(Message { txn, stake: Stake::Rows(0), origin, body }, &mut out);
        let mut victims = Vec::new();
        for o in out {
            match o {
                Out::Reply { to, reply, depends_on, .. } => {
                    self.depends_on = depends_on;
                    assert!(self.owed.remove(&to.seq), "one reply a message");
                    self.answers.push((to.seq, reply));
                }
                Out::Fetch { txn, request, wants, .. } => {
                    assert!(!wants.is_empty());
                    self.requests.insert(txn, request);
                    self.suspensions += 1;
                    self.suspended.push((txn, wants));
                }
                Out::Stalled { .. } => self.stalls += 1,
                Out::Undone { to, txn } => {
                    assert_eq!(to.session, txn.0 as u32, "the notice reaches its session");
                    self.undone.push(txn);
                }
                Out::ReadLog { txn, read, .. } => {
                    read.run();
                    self.log_reads += 1;
                    self.suspended.push((txn, Vec::new()));
                }
                Out::ReadSpill { txn, read, .. } => {
                    read.run();
                    self.spill_reads += 1;
                    self.suspended.push((txn, Vec::new()));
                }
                Out::WriteSpill { write } => write.run(),
                Out::HotRows { partition, rows, take } => (take.0)(partition, rows),
                Out::Report { partition, report, take } => (take.0)(partition, report),
                Out::Scheme { order, scheme, .. } => {
                    self.schemes.push(scheme);
                    assert_eq!(order, self.schemes.len() as u64, "changes are numbered");
                }
                Out::Yield { txn, .. } => self.suspended.push((txn, Vec::new())),
                Out::Waits { txn, order, wait, line, .. } => {
                    self.count(order);
                    assert!(self.numbers.insert(wait, txn).is_none(), "a wait has its own number");
                    // None: it waits for the partition, which is not an edge of the graph.
                    if let Some(line) = line {
                        self.in_line.insert(txn, line);
                        victims.extend(self.reached(line, |at, _| at == txn));
                    }
                }
                Out::Line { order, line, on, .. } => {
                    self.count(order);
                    if on.is_empty() {
                        assert!(self.lines.remove(&line).is_some(), "a reported line");
                        assert!(
                            self.in_line.values().all(|l| *l != line),
                            "no waiter is left in it"
                        );
                    } else {
                        self.lines.insert(line, on);
                        victims.extend(self.reached(line, |_, to| to == Some(line)));
                    }
                }
                Out::Over { txn, order, wait, .. } => {
                    self.count(order);
                    assert_eq!(self.numbers.remove(&wait), Some(txn), "a grant ends its wait");
                    self.in_line.remove(&txn);
                }
            }
        }
        for txn in victims {
            self.deadlocks += 1;
            self.send(txn, Body::Cancel(SqlError::new(SqlState::DEADLOCK, "deadlock detected")));
        }
        seq
    }

    fn count(&mut self, order: u64) {
        self.reports += 1;
        assert_eq!(order, self.reports, "changes of waits are numbered");
    }

    /// Returns the transaction reachable from a line that `found` accepts, by its id or by the line
    /// in which it waits.
    fn reached(&self, line: u64, found: impl Fn(TxnId, Option<u64>) -> bool) -> Option<TxnId> {
        let (mut seen, mut stack) = (BTreeSet::new(), self.lines[&line].clone());
        while let Some(at) = stack.pop() {
            let to = self.in_line.get(&at).copied();
            if found(at, to) {
                return Some(at);
            }
            if let Some(to) = to.filter(|to| seen.insert(*to)) {
                stack.extend(&self.lines[&to]);
            }
        }
        None
    }

    /// Appends a commit record.
    pub fn append_commit(&mut self, txn: TxnId) -> Lsn {
        self.partition.trees().commit(&self.pages, txn)
    }

    /// Opens a snapshot for which images are kept.
    pub fn open(&mut self, opening: Opening) -> Snapshot {
        opening.open(|| self.partition.trees().appended(&self.pages))
    }

    /// Returns the number of the transaction's newest request of pages.
    pub fn request(&self, txn: TxnId) -> u64 {
        self.requests[&txn]
    }

    /// Fails that request.
    pub fn fail_request(&mut self, txn: TxnId, error: SqlError) {
        let request = self.request(txn);
        self.send(txn, Body::Unavailable { request, error });
    }

    /// Resumes a suspended transaction with the pages that it missed.
    pub fn resume(&mut self, at: usize) {
        let (txn, wants) = self.suspended.remove(at);
        let held = self.partition.trees().fetch(&self.pages, wants);
        self.send(txn, Body::Resume(held));
        self.partition.trees().release_pages();
    }

    pub fn take(&mut self, seq: u32) -> Option<Answer> {
        let at = self.answers.iter().position(|(s, _)| *s == seq)?;
        Some(self.answers.remove(at).1)
    }

    /// Resumes suspended transactions until there are none.
    pub fn settle(&mut self) {
        let mut rounds = 0;
        while !self.suspended.is_empty() {
            self.resume(0);
            rounds += 1;
            assert!(rounds < 1_000_000, "no progress");
        }
    }

    /// Makes a call that need not wait for other transactions.
    pub fn call(&mut self, txn: TxnId, body: Body) -> Answer {
        let seq = self.send(txn, body);
        self.settle();
        self.take(seq).expect("a reply")
    }

    pub fn nothing_pending(&self) -> bool {
        let waiting = self.numbers.len() + self.in_line.len() + self.lines.len();
        self.owed.is_empty() && waiting == 0 && self.suspended.is_empty()
    }
}
