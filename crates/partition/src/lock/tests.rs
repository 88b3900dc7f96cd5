//! The lock table against a model that keeps lists and compares all with all.

use super::spans::looks;
use super::{Acquired, LockTable, Mode, Target};
use clearway_types::{TableId, TreeId, TxnId};
use std::collections::VecDeque;
use std::ops::Bound;

/// Key locks after which a transaction takes the table.
const MANY: usize = 4096;

const KEYS: u8 = 6;
const TREE: TreeId = TreeId(7);
const TABLE: TableId = TableId(3);

/// xorshift64*: a test names its seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Table,
    Key(u8),
    Range(Bound<u8>, Bound<u8>),
}

impl What {
    /// The places it covers: even ones are keys, odd ones lie between two keys; 200 is the table.
    fn places(self) -> Vec<u8> {
        let (lo, hi) = match self {
            What::Table => return vec![200],
            What::Key(k) => return vec![k * 2 + 1],
            What::Range(lo, hi) => (lo, hi),
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
        (lo..end.max(lo)).collect()
    }
}

#[derive(Clone, Copy, Debug)]
struct Lock {
    txn: TxnId,
    what: What,
    mode: Mode,
}

fn conflict(a: &Lock, b: &Lock) -> bool {
    let b_places = b.what.places();
    a.txn != b.txn && a.mode.conflicts() & b.mode.bit() != 0 && a.what.places().iter().any(|p| b_places.contains(p))
}

#[derive(Default)]
struct Model {
    held: Vec<Lock>,
    waiting: Vec<(Lock, Vec<TxnId>)>,
}

impl Model {
    /// Those in the way of `want`: a waiter if `told` says that it goes first.
    fn obstacles(&self, want: &Lock, goes_first: impl Fn(&(Lock, Vec<TxnId>)) -> bool) -> Vec<TxnId> {
        let mut on: Vec<TxnId> = self.held.iter().filter(|h| conflict(want, h)).map(|h| h.txn).collect();
        on.extend(self.waiting.iter().filter(|w| conflict(want, &w.0) && goes_first(w)).map(|w| w.0.txn));
        on.sort_unstable();
        on.dedup();
        on
    }

    fn acquire(&mut self, want: Lock) -> Vec<TxnId> {
        let mut on = self.obstacles(&want, |(_, told)| !told.contains(&want.txn));
        if on.is_empty() {
            self.held.push(want);
        } else {
            let mut seen = Vec::new();
            for (w, told) in self.waiting.iter().rev() {
                if conflict(&want, w) && !told.contains(&want.txn) && !seen.contains(&w.txn) {
                    seen.push(w.txn);
                    seen.extend(told);
                }
            }
            on.extend(seen);
            on.sort_unstable();
            on.dedup();
            self.waiting.push((want, on.clone()));
        }
        on
    }

    fn blocked(&self, at: usize) -> Vec<TxnId> {
        let (want, told) = &self.waiting[at];
        self.obstacles(want, |(w, _)| told.contains(&w.txn))
    }

    fn serve(&mut self) -> Vec<TxnId> {
        let mut granted = Vec::new();
        let mut at = 0;
        while at < self.waiting.len() {
            if self.blocked(at).is_empty() {
                let (want, _) = self.waiting.remove(at);
                self.held.push(want);
                granted.push(want.txn);
            } else {
                at += 1;
            }
        }
        granted
    }

    fn check(&self) {
        for (i, a) in self.held.iter().enumerate() {
            for b in &self.held[i + 1..] {
                assert!(!conflict(a, b), "invariant 1: {a:?} {b:?}");
            }
        }
        for (at, (w, told)) in self.waiting.iter().enumerate() {
            let now = self.blocked(at);
            assert!(!now.is_empty(), "invariant 2: {w:?} waits for nothing");
            assert!(now.iter().all(|t| told.contains(t)), "invariant 3: {w:?} told {told:?} now {now:?}");
        }
    }
}

fn random_lock(rng: &mut Rng, txn: TxnId) -> Lock {
    let key = |rng: &mut Rng| rng.below(u64::from(KEYS)) as u8;
    let bound = |rng: &mut Rng| match rng.below(5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Included(key(rng)),
        _ => Bound::Excluded(key(rng)),
    };
    let mode = if rng.below(2) == 0 { Mode::Shared } else { Mode::Exclusive };
    match rng.below(8) {
        0 => Lock { txn, what: What::Table, mode },
        1 => Lock { txn, what: What::Table, mode: mode.intent() },
        2..=3 => Lock { txn, what: What::Range(bound(rng), bound(rng)), mode },
        _ => Lock { txn, what: What::Key(key(rng)), mode },
    }
}

fn acquire(table: &mut LockTable, lock: Lock) -> Vec<TxnId> {
    let bytes: Vec<[u8; 1]> = (0..KEYS).map(|k| [k]).collect();
    let at = |k: u8| &bytes[usize::from(k)][..];
    let target = match lock.what {
        What::Table => Target::Table(TABLE),
        What::Key(k) => Target::Key(TREE, at(k)),
        What::Range(lo, hi) => Target::Range(TREE, lo.map(at), hi.map(at)),
    };
    let free = table.covered(lock.txn, target, lock.mode) || table.free(lock.txn, target, lock.mode);
    let mut on = match table.acquire(lock.txn, target, lock.mode) {
        Acquired::Granted => Vec::new(),
        Acquired::Waits(on) => on,
    };
    assert_eq!(free, on.is_empty());
    on.sort_unstable();
    on
}

fn run(seed: u64, txns: u64, steps: usize) {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (mut table, mut model) = (LockTable::new(MANY), Model::default());
    for _ in 0..steps {
        let txn = TxnId(1 + rng.below(txns));
        let waits = model.waiting.iter().any(|(w, _)| w.txn == txn);
        assert_eq!(table.waits(txn), waits);
        let mut granted = VecDeque::new();
        let mut expected = Vec::new();
        match rng.below(10) {
            0 => {
                table.release(txn, &mut granted);
                model.held.retain(|h| h.txn != txn);
                model.waiting.retain(|(w, _)| w.txn != txn);
                expected = model.serve();
            }
            1 if waits => {
                table.stop_waiting(txn, &mut granted);
                model.waiting.retain(|(w, _)| w.txn != txn);
                expected = model.serve();
            }
            _ if waits => {}
            _ => {
                let lock = random_lock(&mut rng, txn);
                assert_eq!(acquire(&mut table, lock), model.acquire(lock), "seed {seed}: {lock:?}");
            }
        }
        let mut granted: Vec<_> = granted.into();
        granted.sort_unstable();
        expected.sort_unstable();
        assert_eq!(granted, expected, "seed {seed}");
        model.check();
        assert_eq!(table.is_empty(), model.held.is_empty() && model.waiting.is_empty(), "seed {seed}");
    }
}

/// Invariants 1 to 4, and that the table does what the model does.
#[test]
fn does_what_the_model_does() {
    for seed in 1..=300 {
        run(seed, 2 + seed % 5, 120);
    }
}

#[test]
fn waits_in_order_but_for_an_upgrade() {
    let mut t = LockTable::new(MANY);
    let mut granted = VecDeque::new();
    let key = Target::Key(TREE, b"k");
    let id = TxnId;
    assert_eq!(t.acquire(id(1), key, Mode::Shared), Acquired::Granted);
    assert_eq!(t.acquire(id(2), key, Mode::Exclusive), Acquired::Waits(vec![id(1)]));
    assert_eq!(
        t.acquire(id(3), key, Mode::Shared),
        Acquired::Waits(vec![id(2), id(1)]),
        "a reader does not pass a writer in line"
    );
    assert_eq!(t.acquire(id(1), key, Mode::Exclusive), Acquired::Granted, "an upgrade does");
    t.release(id(1), &mut granted);
    assert_eq!(granted, [id(2)]);
    t.release(id(2), &mut granted);
    assert_eq!(granted, [id(2), id(3)]);
    t.release(id(3), &mut granted);
    assert!(t.is_empty());
}

#[test]
fn many_key_locks_become_one_table_lock() {
    let mut t = LockTable::new(MANY);
    let mut granted = VecDeque::new();
    let txn = TxnId(1);
    assert_eq!(t.acquire(txn, Target::Table(TABLE), Mode::IntentExclusive), Acquired::Granted);
    for k in 0..MANY as u32 + 10 {
        let got = t.acquire_in(txn, TABLE, Target::Key(TREE, &k.to_be_bytes()), Mode::Exclusive);
        assert_eq!(got, Acquired::Granted);
    }
    assert!(t.covered(txn, Target::Table(TABLE), Mode::Exclusive));
    assert_eq!(t.acquire(TxnId(2), Target::Table(TABLE), Mode::IntentShared), Acquired::Waits(vec![txn]));
    t.release(txn, &mut granted);
    assert_eq!(granted, [TxnId(2)]);
}

/// The keys of a number, as an index lookup locks them.
fn lookup(prefix: &[u8; 4]) -> Target<'_> {
    Target::Range(TREE, Bound::Included(prefix), Bound::Included(prefix))
}

#[test]
fn many_range_locks_become_one_table_lock() {
    let mut t = LockTable::new(MANY);
    let mut granted = VecDeque::new();
    let txn = TxnId(1);
    assert_eq!(t.acquire(txn, Target::Table(TABLE), Mode::IntentShared), Acquired::Granted);
    for n in 0..100_000_u32 {
        assert!(!t.covered(txn, Target::Table(TABLE), Mode::Shared) || n >= MANY as u32, "after {n}");
        assert_eq!(t.acquire_in(txn, TABLE, lookup(&(2 * n).to_be_bytes()), Mode::Shared), Acquired::Granted);
    }
    assert!(t.covered(txn, Target::Table(TABLE), Mode::Shared));
    assert_eq!(t.acquire(TxnId(2), Target::Table(TABLE), Mode::IntentExclusive), Acquired::Waits(vec![txn]));
    t.release(txn, &mut granted);
    assert_eq!(granted, [TxnId(2)]);
    t.release(TxnId(2), &mut granted);
    assert!(t.is_empty());
}

/// Where somebody's intent keeps the ranges from becoming a table's lock, there may be very many.
#[test]
fn neither_lookups_nor_foreign_writes_walk_along_ranges() {
    const LOOKUPS: u32 = 100_000;
    let mut t = LockTable::new(MANY);
    let (reader, writer) = (TxnId(1), TxnId(2));
    assert_eq!(t.acquire(writer, Target::Table(TABLE), Mode::IntentExclusive), Acquired::Granted);
    assert_eq!(t.acquire(reader, Target::Table(TABLE), Mode::IntentShared), Acquired::Granted);
    let before = looks();
    for n in 0..LOOKUPS {
        // Scattered, so that no two meet on their way.
        let key = (2 * (n * 7_919 % LOOKUPS)).to_be_bytes();
        assert_eq!(t.acquire_in(reader, TABLE, lookup(&key), Mode::Shared), Acquired::Granted);
    }
    let each = (looks() - before) / u64::from(LOOKUPS);
    assert!(each <= 4, "{each} spans looked at for a lookup");
    let before = looks();
    for n in 0..1_000_u32 {
        let (locked, free) = ((2 * n).to_be_bytes(), (2 * n + 1).to_be_bytes());
        assert!(!t.free(writer, Target::Key(TREE, &locked), Mode::Exclusive));
        assert!(t.free(writer, Target::Key(TREE, &free), Mode::Exclusive));
        assert!(t.covered(reader, Target::Key(TREE, &locked), Mode::Shared));
    }
    assert!(looks() - before <= 6_000, "{} spans looked at for 3000 questions", looks() - before);
}
