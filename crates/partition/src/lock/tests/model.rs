//! Random requests, cancellations and transaction ends.

use super::super::table::ScopeId;
use super::super::{Acquired, Event, InLine, LockTable, MODES, Mode, ROW_MODES, Target};
use super::rules::{MANY, TABLE, TREE};
use clearway_testkit::Rng;
use clearway_types::TxnId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

const KEYS: u8 = 6;

/// Ranges are never locked to add to their rows.
const RANGE_MODES: [Mode; 4] =
    [Mode::KeyShared, Mode::Shared, Mode::NoKeyExclusive, Mode::Exclusive];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Spot {
    Table,
    Key(u8),
    Range(Bound<u8>, Bound<u8>),
}

impl Spot {
    /// Returns the places it covers as a set: odd ones are keys, even ones the gaps between keys,
    /// the last is the table.
    fn places(self) -> u32 {
        let (lo, hi) = match self {
            Spot::Table => return 1 << 31,
            Spot::Key(k) => return 1 << (k * 2 + 1),
            Spot::Range(lo, hi) => (lo, hi),
        };
        let lo = match lo {
            Bound::Unbounded => 0,
            Bound::Included(k) => k * 2 + 1,
            Bound::Excluded(k) => k * 2 + 2,
        };
        let end = match hi {
            Bound::Unbounded => KEYS * 2 + 2,
            Bound::Included(k) => k * 2 + 2,
            Bound::Excluded(k) => k * 2 + 1,
        };
        (lo..end.max(lo)).map(|place| 1 << place).sum()
    }
}

#[derive(Clone, Copy, Debug)]
struct Lock {
    txn: TxnId,
    what: Spot,
    mode: Mode,
    places: u32,
}

fn conflict(a: &Lock, b: &Lock) -> bool {
    a.txn != b.txn && a.mode.conflicts() & b.mode.bit() != 0 && a.places & b.places != 0
}

fn random_lock(rng: &mut Rng, txn: TxnId) -> Lock {
    let key = |rng: &mut Rng| rng.below(u64::from(KEYS)) as u8;
    let bound = |rng: &mut Rng| match rng.below(5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Included(key(rng)),
        _ => Bound::Excluded(key(rng)),
    };
    let (what, mode) = match rng.below(8) {
        0 | 1 => (Spot::Table, MODES[rng.below(6) as usize]),
        2..=3 => (Spot::Range(bound(rng), bound(rng)), RANGE_MODES[rng.below(4) as usize]),
        _ => (Spot::Key(key(rng)), ROW_MODES[rng.below(5) as usize]),
    };
    Lock { txn, what, mode, places: what.places() }
}

fn acquire(table: &mut LockTable, lock: Lock) -> Option<InLine> {
    let bytes: Vec<[u8; 1]> = (0..KEYS).map(|k| [k]).collect();
    let at = |k: u8| &bytes[usize::from(k)][..];
    let target = match lock.what {
        Spot::Table => Target::Table(TABLE),
        Spot::Key(k) => Target::Key(TREE, at(k)),
        Spot::Range(lo, hi) => Target::Range(TREE, lo.map(at), hi.map(at)),
    };
    let free =
        table.covered(lock.txn, target, lock.mode) || table.free(lock.txn, target, lock.mode);
    let line = match table.acquire(lock.txn, target, lock.mode) {
        Acquired::Granted => None,
        Acquired::Waits(line) => Some(line),
    };
    assert_eq!(free, line.is_none());
    line
}

/// The reported lines and waits: a waits-for graph, searched as the coordinator searches its own.
#[derive(Default)]
struct Graph {
    lines: BTreeMap<u64, Vec<TxnId>>,
    waits: BTreeMap<TxnId, u64>,
}

impl Graph {
    /// Returns a transaction that waits in this line and can be reached from `on`.
    fn member_behind(&self, on: &[TxnId], line: u64) -> Option<TxnId> {
        let (mut seen, mut stack) = (BTreeSet::new(), on.to_vec());
        while let Some(txn) = stack.pop() {
            match self.waits.get(&txn) {
                Some(at) if *at == line => return Some(txn),
                Some(at) if seen.insert(*at) => {
                    stack.extend(self.lines.get(at).into_iter().flatten())
                }
                _ => {}
            }
        }
        None
    }
}

struct World {
    table: LockTable,
    graph: Graph,
    held: Vec<Lock>,
    /// In order of arrival.
    waiting: Vec<Lock>,
    /// Transactions reported as deadlocked that have not ended yet.
    victims: BTreeSet<TxnId>,
    deadlocks: u64,
    passed: u64,
    /// Number of places locked by joining ranges.
    joined: u64,
    seed: u64,
}

impl World {
    fn waits(&self, txn: TxnId) -> Option<usize> {
        self.waiting.iter().position(|w| w.txn == txn)
    }

    /// Returns the transactions that the request would wait for if it came as number `at`.
    fn obstacles(&self, want: &Lock, at: usize) -> Vec<TxnId> {
        let in_way = self.held.iter().chain(&self.waiting[..at]).filter(|l| conflict(want, l));
        in_way.map(|l| l.txn).collect()
    }

    /// Returns true if one transaction waits for the other, directly or through others, assuming
    /// that no request passes another.
    fn leads_to(&self, from: TxnId, to: TxnId) -> bool {
        let (mut seen, mut stack) = (BTreeSet::new(), vec![from]);
        while let Some(txn) = stack.pop() {
            let Some(at) = self.waits(txn) else { continue };
            for next in self.obstacles(&self.waiting[at], at) {
                if next == to {
                    return true;
                }
                if seen.insert(next) {
                    stack.push(next);
                }
            }
        }
        false
    }

    /// Invariant 2: a granted request conflicts with no holder, and passes only requests that wait
    /// for it.
    fn check_grant(&self, want: &Lock, at: usize) {
        let held: Vec<_> = self.held.iter().filter(|h| conflict(want, h)).collect();
        assert!(held.is_empty(), "seed {}: {want:?} is granted despite {held:?}", self.seed);
        for earlier in self.waiting[..at].iter().filter(|w| conflict(want, w)) {
            assert!(
                self.leads_to(earlier.txn, want.txn),
                "seed {}: {want:?} passes {earlier:?}",
                self.seed
            );
        }
    }

    /// Invariant 2: returns true if a waiter has an obstacle that it may not pass because of its
    /// own locks.
    fn has_reason(&self, want: &Lock, at: usize) -> bool {
        let own = |w: &Lock| self.held.iter().any(|h| h.txn == want.txn && conflict(h, w));
        self.held.iter().any(|h| conflict(want, h))
            || self.waiting[..at].iter().any(|w| conflict(want, w) && !own(w))
    }

    fn events(&mut self) {
        while let Some(event) = self.table.next_event() {
            match event {
                Event::Granted(txn) => {
                    let at = self.waits(txn).expect("a waiter");
                    let want = self.waiting[at];
                    self.check_grant(&want, at);
                    self.waiting.remove(at);
                    self.held.push(want);
                    self.graph.waits.remove(&txn).expect("reported");
                }
                Event::Line(InLine { line, on }) if on.is_empty() => {
                    assert!(
                        self.graph.lines.remove(&line).is_some()
                            && !self.graph.waits.values().any(|l| *l == line)
                    );
                }
                Event::Line(InLine { line, on }) => {
                    let found = self.graph.member_behind(&on, line);
                    self.graph.lines.insert(line, on);
                    self.deadlock(found);
                }
            }
        }
    }

    /// Checks that a reported deadlock is real.
    fn deadlock(&mut self, victim: Option<TxnId>) {
        let Some(victim) = victim else { return };
        assert!(self.leads_to(victim, victim), "seed {}: {victim} is in no cycle", self.seed);
        self.deadlocks += 1;
        self.victims.insert(victim);
    }

    /// Joins ranges before a request for another one; the model then holds the gaps, too.
    fn join_ranges(&mut self, want: Lock) {
        let Spot::Range(..) = want.what else { return };
        self.table.join_ranges(want.txn, ScopeId::Tree(TREE), want.mode);
        for place in 0..KEYS * 2 + 2 {
            let key = match place {
                0 => vec![],
                key if key % 2 == 1 => vec![key / 2],
                behind => vec![behind / 2 - 1, 1],
            };
            let held = Lock { places: 1 << place, ..want };
            if self.table.covered(want.txn, Target::Key(TREE, &key), want.mode)
                && !self.holds(&held)
            {
                self.check_grant(&held, self.waiting.len());
                self.joined += 1;
                self.held.push(held);
            }
        }
    }

    fn holds(&self, lock: &Lock) -> bool {
        let as_strong = |h: &Lock| h.mode.bit() & lock.mode.covered_by() != 0;
        self.held.iter().any(|h| h.txn == lock.txn && h.places & lock.places != 0 && as_strong(h))
    }

    /// Returns the effective mode of a request for a key. Only the table knows which of the
    /// transaction's keys are packed.
    fn effective_mode(&self, want: Lock, k: u8) -> Mode {
        let mode = self.table.joined(want.txn, Target::Key(TREE, &[k]), want.mode);
        if mode != want.mode {
            assert!(
                matches!(want.mode, Mode::Shared | Mode::Increment) && mode == Mode::NoKeyExclusive
            );
        }
        mode
    }

    fn acquire(&mut self, mut want: Lock) {
        if let Spot::Key(k) = want.what {
            want.mode = self.effective_mode(want, k);
        }
        self.join_ranges(want);
        let waiting = self.waiting.len();
        match acquire(&mut self.table, want) {
            None => {
                self.check_grant(&want, waiting);
                self.passed += u64::from(self.waiting.iter().any(|w| conflict(&want, w)));
                self.held.push(want);
                self.events();
            }
            Some(line) => {
                assert!(
                    self.has_reason(&want, waiting),
                    "seed {}: {want:?} waits for nothing",
                    self.seed
                );
                self.events();
                self.waiting.push(want);
                self.graph.waits.insert(want.txn, line.line);
                let on = self.graph.lines[&line.line].clone();
                assert_eq!(line.on, on, "the reply matches the event");
                let found = self.graph.member_behind(&on, u64::MAX);
                assert_eq!(found, None);
                let found = self.reaches(&on, want.txn);
                self.deadlock(found);
            }
        }
    }

    /// Returns the transaction if it can be reached from `on`.
    fn reaches(&self, on: &[TxnId], txn: TxnId) -> Option<TxnId> {
        let (mut seen, mut stack) = (BTreeSet::new(), on.to_vec());
        while let Some(at) = stack.pop() {
            if at == txn {
                return Some(txn);
            }
            let next = self.graph.waits.get(&at).and_then(|line| self.graph.lines.get(line));
            if seen.insert(at) {
                stack.extend(next.into_iter().flatten());
            }
        }
        None
    }

    fn stop_waiting(&mut self, txn: TxnId) {
        self.waiting.retain(|w| w.txn != txn);
        self.graph.waits.remove(&txn);
        self.table.stop_waiting(txn);
        self.victims.remove(&txn);
        self.events();
    }

    fn end(&mut self, txn: TxnId) {
        self.stop_waiting(txn);
        self.held.retain(|h| h.txn != txn);
        self.table.release(txn);
        self.events();
    }

    fn check(&self) {
        let seed = self.seed;
        for (i, a) in self.held.iter().enumerate() {
            for b in &self.held[i + 1..] {
                assert!(!conflict(a, b), "seed {seed}: invariant 1: {a:?} {b:?}");
            }
        }
        for (at, w) in self.waiting.iter().enumerate() {
            // If it turns out only later that a waiter could pass another, they are in a deadlock,
            // which has been reported.
            let reported = || self.leads_to(w.txn, w.txn) && !self.victims.is_empty();
            let has_reason = self.has_reason(w, at) || reported();
            assert!(self.table.waits(w.txn) && has_reason, "seed {seed}: invariant 2: {w:?}");
            let on = &self.graph.lines[&self.graph.waits[&w.txn]];
            let watched = self.obstacles(w, at).contains(&on[0]);
            let is_named = on.contains(&w.txn);
            assert!(watched && !is_named, "seed {seed}: invariant 3: {w:?} {on:?}");
        }
        assert_eq!(self.graph.waits.len(), self.waiting.len());
        assert_eq!(
            self.table.is_empty(),
            self.held.is_empty() && self.waiting.is_empty(),
            "seed {seed}"
        );
    }
}

/// Runs some steps, and then ends everything. Returns the numbers of deadlocks, of requests that
/// passed others, and of places locked by joining ranges.
fn run(seed: u64, txns: u64, steps: usize) -> [u64; 3] {
    let mut rng = Rng::new(seed);
    let mut w = World {
        table: LockTable::new([0, 1, 3, MANY][seed as usize % 4]),
        graph: Graph::default(),
        held: Vec::new(),
        waiting: Vec::new(),
        victims: BTreeSet::new(),
        deadlocks: 0,
        passed: 0,
        joined: 0,
        seed,
    };
    let mut active: Vec<TxnId> = (1..=txns).map(TxnId).collect();
    let mut next = txns;
    for _ in 0..steps {
        let at = rng.below(txns) as usize;
        let txn = active[at];
        let waits = w.waits(txn).is_some();
        match rng.below(12) {
            0 => {
                // A transaction id is never reused: an edge to it leads nowhere.
                w.end(txn);
                next += 1;
                active[at] = TxnId(next);
            }
            1 if waits => w.stop_waiting(txn),
            2..=3 if w.victims.contains(&txn) => w.stop_waiting(txn),
            _ if waits => {}
            _ => w.acquire(random_lock(&mut rng, txn)),
        }
        w.check();
    }
    // End every transaction that can end. If none can, one of them must have been reported as a
    // victim.
    while !active.is_empty() {
        let free = active.iter().position(|txn| w.waits(*txn).is_none());
        let reported = || active.iter().position(|txn| w.victims.contains(txn));
        let at = free
            .or_else(reported)
            .unwrap_or_else(|| panic!("seed {seed}: a deadlock is not detected: {:?}", w.waiting));
        w.end(active.swap_remove(at));
        w.check();
    }
    assert!(w.table.is_empty() && w.graph.lines.is_empty(), "seed {seed}");
    [w.deadlocks, w.passed, w.joined]
}

/// Invariants 1 to 5.
#[test]
fn random_requests_keep_the_invariants() {
    let mut sums = [0; 3];
    for seed in 1..=4_000 {
        let found = run(seed, 2 + seed % 9, 150);
        sums.iter_mut().zip(found).for_each(|(sum, n)| *sum += n);
    }
    let [deadlocks, passed, joined] = sums;
    assert!(
        deadlocks > 1_000 && passed > 100 && joined > 50,
        "{deadlocks}, {passed} passed, {joined} joined"
    );
}

/// Only the model finds these bugs: for clients, an unnecessary deadlock looks like a necessary
/// one.
#[cfg(shuttle)]
#[test]
fn canaries_are_found() {
    use clearway_sync::canary::{BUGS_OF_LOCKS, assert_found};
    assert_found(BUGS_OF_LOCKS, random_requests_keep_the_invariants);
}
