//! Tests of single rules.

use super::super::table::KEPT;
use super::super::work::steps;
use super::super::{Acquired, Event, LockTable, Mode, ROW_MODES, Spread, Target};
use clearway_types::{TableId, TreeId, TxnId};
use std::ops::Bound;

/// The default of `Limits::many_locks`.
pub(super) const MANY: usize = 4096;

pub(super) const TREE: TreeId = TreeId(7);
pub(super) const TABLE: TableId = TableId(3);

/// Makes a request. Returns the transactions that block it; none if it is granted.
pub(super) fn ask(t: &mut LockTable, txn: u64, target: Target<'_>, mode: Mode) -> Vec<u64> {
    match t.acquire(TxnId(txn), target, mode) {
        Acquired::Granted => Vec::new(),
        Acquired::Waits(line) => line.on.iter().map(|txn| txn.0).collect(),
    }
}

/// Returns the transactions granted a lock since the last call.
pub(super) fn granted(t: &mut LockTable) -> Vec<u64> {
    let events = std::iter::from_fn(|| t.next_event());
    events.filter_map(|e| if let Event::Granted(txn) = e { Some(txn.0) } else { None }).collect()
}

const KEY: Target<'_> = Target::Key(TREE, b"k");

#[test]
fn requests_wait_in_order_but_upgrades_pass() {
    let mut t = LockTable::new(MANY);
    assert_eq!(ask(&mut t, 1, KEY, Mode::Shared), []);
    assert_eq!(ask(&mut t, 2, KEY, Mode::Exclusive), [1]);
    assert_eq!(ask(&mut t, 3, KEY, Mode::Shared), [2], "a reader does not pass a waiting writer");
    assert_eq!(ask(&mut t, 1, KEY, Mode::Exclusive), [], "an upgrade does");
    t.release(TxnId(1));
    assert_eq!(granted(&mut t), [2]);
    t.release(TxnId(2));
    assert_eq!(granted(&mut t), [3]);
    t.release(TxnId(3));
    assert!(t.is_empty());
}

/// Table 13.3 of PostgreSQL's manual, for each pair of keys and ranges, plus the increment mode,
/// which exists for keys only.
#[test]
fn row_modes_conflict_as_in_postgresql() {
    let conflicts = ["....x", "..xxx", ".x.xx", ".xxxx", "xxxxx"];
    let range = Target::Range(TREE, Bound::Included(b"a"), Bound::Excluded(b"x"));
    for (held, asked) in [(KEY, KEY), (KEY, range), (range, KEY), (range, range)] {
        for (held_mode, row) in ROW_MODES.into_iter().zip(conflicts) {
            for (mode, cell) in ROW_MODES.into_iter().zip(row.chars()) {
                let of_key = |target, mode| target == KEY || mode != Mode::Increment;
                if !of_key(held, held_mode) || !of_key(asked, mode) {
                    continue;
                }
                let mut t = LockTable::new(MANY);
                assert_eq!(ask(&mut t, 1, held, held_mode), []);
                let in_way: &[u64] = if cell == 'x' { &[1] } else { &[] };
                assert_eq!(ask(&mut t, 2, asked, mode), in_way, "{mode:?} against {held_mode:?}");
            }
        }
    }
}

/// Each upgrade waits for the holders that conflict with it, and for no waiters.
#[test]
fn every_upgrade_by_a_holder_passes_the_line() {
    let mut t = LockTable::new(MANY);
    for reader in [1, 2] {
        assert_eq!(ask(&mut t, reader, KEY, Mode::KeyShared), []);
    }
    assert_eq!(ask(&mut t, 3, KEY, Mode::Exclusive), [1, 2]);
    assert_eq!(ask(&mut t, 4, KEY, Mode::KeyShared), [3], "it does not pass a waiter");
    assert_eq!(ask(&mut t, 1, KEY, Mode::Shared), []);
    assert_eq!(
        ask(&mut t, 1, KEY, Mode::NoKeyExclusive),
        [],
        "compatible with the second's KEY SHARE"
    );
    assert_eq!(ask(&mut t, 5, KEY, Mode::Shared), [3, 1]);
    assert_eq!(ask(&mut t, 1, KEY, Mode::Exclusive), [2], "the others wait for it");
    t.release(TxnId(2));
    assert_eq!(granted(&mut t), [1]);
    t.release(TxnId(1));
    assert_eq!(granted(&mut t), [3]);
    t.release(TxnId(3));
    assert_eq!(granted(&mut t), [4, 5]);
    t.release(TxnId(4));
    t.release(TxnId(5));
    assert!(t.is_empty());
}

/// A transaction that reads what it has added to waits for the others that have added; newcomers
/// wait behind it.
#[test]
fn a_read_of_an_incremented_row_is_an_upgrade() {
    let both = [(Mode::Shared, Mode::Increment), (Mode::Increment, Mode::Shared)];
    for (held, asked) in both {
        let mut t = LockTable::new(MANY);
        for txn in [1, 2] {
            assert_eq!(ask(&mut t, txn, KEY, held), []);
        }
        assert!(t.covered(TxnId(1), KEY, Mode::KeyShared) && !t.free(TxnId(1), KEY, asked));
        assert_eq!(ask(&mut t, 1, KEY, asked), [2]);
        assert_eq!(ask(&mut t, 3, KEY, held), [1], "it does not pass a waiter");
        t.release(TxnId(2));
        assert_eq!(granted(&mut t), [1]);
        assert!(t.covered(TxnId(1), KEY, Mode::NoKeyExclusive));
        t.release(TxnId(1));
        assert_eq!(granted(&mut t), [3]);
        t.release(TxnId(3));
        assert!(t.is_empty());
    }
}

/// Packed keys belong to one transaction: they cannot record others that add to the same row.
#[test]
fn packed_keys_turn_increments_into_exclusive_locks() {
    let mut t = LockTable::new(1);
    assert_eq!(ask(&mut t, 1, KEY, Mode::Increment), []);
    let other = Target::Key(TREE, b"other");
    assert_eq!(ask(&mut t, 2, other, Mode::Increment), []);
    assert_eq!(ask(&mut t, 1, KEY, Mode::Increment), [], "it has that one already");
    assert!(!t.covered(TxnId(1), KEY, Mode::NoKeyExclusive));
    assert_eq!(ask(&mut t, 1, other, Mode::Increment), [2]);
    t.release(TxnId(2));
    assert_eq!(granted(&mut t), [1]);
    assert_eq!(ask(&mut t, 2, other, Mode::Increment), [1]);
}

/// Invariant 2 of `increment`.
#[test]
fn the_spread_lasts_until_all_incrementers_end() {
    let mut t = LockTable::new(MANY);
    let spread = |t: &LockTable| t.spread(TREE, b"k");
    for txn in [1, 2] {
        assert_eq!(ask(&mut t, txn, KEY, Mode::Increment), []);
        t.widen(TREE, b"k", Spread::of(5));
    }
    t.widen(TREE, b"k", Spread::of(-2));
    assert_eq!(ask(&mut t, 9, KEY, Mode::KeyShared), []);
    assert_eq!(t.open_spread(TREE, b"k"), Some(Spread { fall: 10, rise: 2 }));
    t.release(TxnId(1));
    let unchanged = Spread { fall: 10, rise: 2 };
    assert_eq!(spread(&t), unchanged, "its addition may have been undone");
    assert_eq!(ask(&mut t, 3, KEY, Mode::Exclusive), [2, 9]);
    t.widen(TREE, b"k", Spread { fall: u64::MAX, rise: 0 });
    t.widen(TREE, b"k", Spread::of(i64::MIN));
    assert_eq!(spread(&t), Spread { fall: u64::MAX, rise: 2 + (1 << 63) });
    t.release(TxnId(2));
    let none = (Spread::default(), None);
    assert_eq!(
        (spread(&t), t.open_spread(TREE, b"k")),
        none,
        "though others wait or share the key"
    );
    t.release(TxnId(9));
    assert_eq!(granted(&mut t), [3]);
    assert_eq!((spread(&t), t.open_spread(TREE, b"k")), none);
}

/// It waits for the other reader, but not for transactions that wait for it, directly or through
/// others.
#[test]
fn waiting_upgrades_are_granted_first() {
    let mut t = LockTable::new(MANY);
    for reader in [1, 2] {
        assert_eq!(ask(&mut t, reader, KEY, Mode::Shared), []);
    }
    assert_eq!(ask(&mut t, 3, KEY, Mode::Exclusive), [1, 2]);
    assert_eq!(ask(&mut t, 4, KEY, Mode::Shared), [3]);
    assert_eq!(ask(&mut t, 2, KEY, Mode::Exclusive), [1], "the others in line wait for it");
    t.release(TxnId(1));
    assert_eq!(granted(&mut t), [2]);
    t.release(TxnId(2));
    assert_eq!(granted(&mut t), [3]);
    t.release(TxnId(3));
    assert_eq!(granted(&mut t), [4]);
}

/// The second transaction waits to write what the first has read. The third, a range reader, then
/// waits for both, and neither waits for it.
#[test]
fn holders_pass_requests_that_wait_for_them_indirectly() {
    let mut t = LockTable::new(MANY);
    let at = |k: &'static [u8]| Target::Key(TREE, k);
    let span = |lo: &'static [u8], hi: &'static [u8]| {
        Target::Range(TREE, Bound::Included(lo), Bound::Included(hi))
    };
    assert_eq!(ask(&mut t, 1, span(b"b", b"d"), Mode::Shared), []);
    assert_eq!(ask(&mut t, 2, at(b"c"), Mode::Exclusive), [1]);
    assert_eq!(ask(&mut t, 3, span(b"c", b"x"), Mode::Shared), [2]);
    assert_eq!(ask(&mut t, 4, at(b"x"), Mode::Exclusive), [3], "no one waits for it");
    assert_eq!(
        ask(&mut t, 1, at(b"w"), Mode::Exclusive),
        [],
        "the third waits for it through the second"
    );
    t.release(TxnId(1));
    assert_eq!(granted(&mut t), [2]);
    t.release(TxnId(2));
    assert_eq!(granted(&mut t), [3]);
    t.release(TxnId(3));
    assert_eq!(granted(&mut t), [4]);
}

/// NOWAIT checks that a lock is free and then takes it: that must not wait, even if there are too
/// many lines to follow.
#[test]
fn free_agrees_with_acquire_for_many_lines() {
    let row = Target::Key(TREE, b"row");
    for lines in 61..=67_u8 {
        let mut t = LockTable::new(MANY);
        assert_eq!(ask(&mut t, 1, Target::Key(TREE, &[0]), Mode::Exclusive), []);
        // Each waits for the one before it; the last shares the row.
        for n in 1..lines - 1 {
            assert_eq!(
                ask(&mut t, 100 + u64::from(n), Target::Key(TREE, &[n]), Mode::Exclusive),
                []
            );
            let before = if n == 1 { 1 } else { 99 + u64::from(n) };
            assert_eq!(
                ask(&mut t, 100 + u64::from(n), Target::Key(TREE, &[n - 1]), Mode::Exclusive),
                [before]
            );
        }
        assert_eq!(ask(&mut t, 2, row, Mode::Shared), []);
        assert_eq!(
            ask(&mut t, 2, Target::Key(TREE, &[lines - 2]), Mode::Exclusive),
            [98 + u64::from(lines)]
        );
        assert_eq!(ask(&mut t, 3, row, Mode::Exclusive), [2], "its line is the last of them");
        assert_eq!(ask(&mut t, 4, row, Mode::Shared), [3], "and this is one more");
        let free = t.free(TxnId(1), row, Mode::Shared);
        assert_eq!(ask(&mut t, 1, row, Mode::Shared).is_empty(), free, "{lines} lines");
        assert_eq!(free, lines < 64, "{lines} lines");
    }
}

/// A one-shot that runs again keeps its id. It has released the locks for which the line names it.
#[test]
fn line_does_not_name_a_transaction_that_joins_it_again() {
    let mut t = LockTable::new(MANY);
    for reader in [1, 2] {
        assert_eq!(ask(&mut t, reader, KEY, Mode::Shared), []);
    }
    assert_eq!(ask(&mut t, 3, KEY, Mode::Exclusive), [1, 2]);
    t.release(TxnId(2));
    while t.next_event().is_some() {}
    assert_eq!(ask(&mut t, 2, KEY, Mode::Exclusive), [1]);
    let Some(Event::Line(line)) = t.next_event() else { panic!("the line is updated") };
    assert_eq!(line.on, [TxnId(1)]);
}

#[test]
fn leaving_a_line_reexamines_the_others() {
    let mut t = LockTable::new(MANY);
    assert_eq!(ask(&mut t, 1, KEY, Mode::Shared), []);
    assert_eq!(ask(&mut t, 2, KEY, Mode::Exclusive), [1]);
    assert_eq!(ask(&mut t, 3, KEY, Mode::Exclusive), [1], "it is in the second's line");
    assert_eq!(ask(&mut t, 4, KEY, Mode::Shared), [3], "it watches the nearest");
    t.stop_waiting(TxnId(3));
    let events: Vec<Event> = std::iter::from_fn(|| t.next_event()).collect();
    let Some(Event::Line(last)) = events.last() else { panic!("{events:?}") };
    assert_eq!(last.on, [TxnId(2)]);
    t.stop_waiting(TxnId(2));
    assert_eq!(granted(&mut t), [4], "together with the first");
}

/// A bulk load blocks requests for its rows and no others.
#[test]
fn packing_many_keys_locks_no_others() {
    const KEYS: u32 = 3 * MANY as u32;
    let mut t = LockTable::new(MANY);
    let load = TxnId(1);
    assert_eq!(t.acquire(load, Target::Table(TABLE), Mode::IntentExclusive), Acquired::Granted);
    for k in 0..KEYS {
        let key = (2 * k).to_be_bytes();
        assert_eq!(
            t.acquire_in(load, TABLE, Target::Key(TREE, &key), Mode::Exclusive),
            Acquired::Granted
        );
        assert!(t.covered(load, Target::Key(TREE, &key), Mode::Shared));
    }
    assert_eq!(ask(&mut t, 2, Target::Table(TABLE), Mode::IntentExclusive), []);
    for k in 0..KEYS {
        let (locked, other) = ((2 * k).to_be_bytes(), (2 * k + 1).to_be_bytes());
        assert!(!t.free(TxnId(2), Target::Key(TREE, &locked), Mode::KeyShared), "{k}");
        assert!(t.free(TxnId(2), Target::Key(TREE, &other), Mode::Exclusive), "{k}");
        let range = |to| Target::Range(TREE, Bound::Excluded(&locked), to);
        assert!(t.free(TxnId(2), range(Bound::Included(&other)), Mode::Exclusive), "{k}");
    }
    let last = (2 * KEYS - 2).to_be_bytes();
    assert_eq!(ask(&mut t, 2, Target::Key(TREE, &last), Mode::Shared), [1]);
    assert_eq!(
        ask(&mut t, 1, Target::Key(TREE, &last), Mode::Exclusive),
        [],
        "it passes requests that wait for it"
    );
    t.release(load);
    assert_eq!(granted(&mut t), [2]);
    t.release(TxnId(2));
    assert!(t.is_empty());
}

#[test]
fn hot_rows_are_ordered_by_demand() {
    let key = |k: &'static [u8]| Target::Key(TREE, k);
    let mut t = LockTable::new(MANY);
    for (txn, k, mode) in [
        (1, b"a", Mode::Increment),
        (2, b"b", Mode::Increment),
        (3, b"b", Mode::Increment),
        (4, b"c", Mode::Shared),
        (5, b"c", Mode::Shared),
        (6, b"d", Mode::KeyShared),
        (7, b"d", Mode::Increment),
        (8, b"d", Mode::Increment),
    ] {
        assert_eq!(ask(&mut t, txn, key(k), mode), []);
    }
    let hot = |t: &LockTable, most| -> Vec<(Vec<u8>, Option<&str>, usize, usize)> {
        let rows = t.hot_rows(most).into_iter();
        rows.map(|row| (row.key.to_vec(), row.locked, row.holders, row.waiters)).collect()
    };
    let (b, d) =
        ((b"b".to_vec(), Some("increment"), 2, 0), (b"d".to_vec(), Some("increment"), 3, 0));
    assert_eq!(
        hot(&t, 9),
        [d.clone(), b.clone()],
        "a single holder, or several readers, are not hot"
    );
    ask(&mut t, 9, key(b"c"), Mode::Exclusive);
    ask(&mut t, 10, key(b"c"), Mode::Exclusive);
    let c = (b"c".to_vec(), Some("share"), 2, 2);
    assert_eq!(hot(&t, 9), [c.clone(), d.clone(), b]);
    assert_eq!(hot(&t, 2), [c, d]);
}

/// Few empty scopes are kept for the next transaction, whatever was locked.
#[test]
fn few_empty_scopes_are_kept() {
    let mut t = LockTable::new(MANY);
    for tree in 0..1000 {
        ask(&mut t, 1, Target::Key(TreeId(tree), b"k"), Mode::Exclusive);
        t.release(TxnId(1));
    }
    assert!(t.is_empty() && t.scopes.len() <= KEPT);
}

/// Returns the keys with a number as prefix, as an index lookup locks them.
fn lookup(prefix: &[u8; 4]) -> Target<'_> {
    Target::Range(TREE, Bound::Included(prefix), Bound::Included(prefix))
}

#[test]
fn many_ranges_are_joined_over_free_gaps() {
    let mut t = LockTable::new(MANY);
    let txn = TxnId(1);
    assert_eq!(t.acquire(txn, Target::Table(TABLE), Mode::IntentShared), Acquired::Granted);
    let foreign = 4_001_u32.to_be_bytes();
    assert_eq!(ask(&mut t, 2, Target::Key(TREE, &foreign), Mode::Exclusive), []);
    let range_of = |n: u32| n.to_be_bytes();
    let mut free = Vec::new();
    for n in 0..100_000_u32 {
        assert_eq!(
            t.acquire_in(txn, TABLE, lookup(&range_of(2 * n)), Mode::Shared),
            Acquired::Granted
        );
        if n == MANY as u32 - 1 {
            free = (0..n)
                .filter(|n| {
                    t.free(TxnId(3), Target::Key(TREE, &range_of(2 * n + 1)), Mode::Exclusive)
                })
                .collect();
        }
    }
    assert_eq!(
        free.len(),
        MANY - 2,
        "only few ranges are not joined, and the second transaction has one key"
    );
    let scope = t.scopes.values().find(|s| s.ranges_of(txn, Mode::Shared) > 0).expect("its ranges");
    assert!(scope.ranges_of(txn, Mode::Shared) <= MANY);
    for n in 0..100_000_u32 {
        assert!(t.covered(txn, Target::Key(TREE, &range_of(2 * n)), Mode::Shared), "{n}");
    }
    assert!(!t.covered(txn, Target::Key(TREE, &foreign), Mode::Shared), "the second's key");
    assert!(
        t.free(TxnId(3), Target::Key(TREE, &200_001_u32.to_be_bytes()), Mode::Exclusive),
        "after all of them"
    );
    assert_eq!(ask(&mut t, 3, Target::Table(TABLE), Mode::IntentExclusive), []);
    t.release(txn);
    t.release(TxnId(2));
    t.release(TxnId(3));
    assert!(t.is_empty());
}

/// There may be very many ranges that cannot be joined.
#[test]
fn range_lookups_and_checks_take_few_steps() {
    const LOOKUPS: u32 = 100_000;
    let mut t = LockTable::new(usize::MAX);
    let (reader, writer) = (TxnId(1), TxnId(2));
    assert_eq!(t.acquire(writer, Target::Table(TABLE), Mode::IntentExclusive), Acquired::Granted);
    assert_eq!(t.acquire(reader, Target::Table(TABLE), Mode::IntentShared), Acquired::Granted);
    let before = steps();
    for n in 0..LOOKUPS {
        // Scattered, so that no two neighbours are consecutive.
        let key = (2 * (n * 7_919 % LOOKUPS)).to_be_bytes();
        assert_eq!(t.acquire_in(reader, TABLE, lookup(&key), Mode::Shared), Acquired::Granted);
    }
    let each = (steps() - before) / u64::from(LOOKUPS);
    assert!(each <= 4, "{each} spans visited per lookup");
    let before = steps();
    for n in 0..1_000_u32 {
        let (locked, free) = ((2 * n).to_be_bytes(), (2 * n + 1).to_be_bytes());
        assert!(!t.free(writer, Target::Key(TREE, &locked), Mode::Exclusive));
        assert!(t.free(writer, Target::Key(TREE, &free), Mode::Exclusive));
        assert!(t.covered(reader, Target::Key(TREE, &locked), Mode::Shared));
    }
    assert!(
        steps() - before <= 7_000,
        "{} spans and holders visited for 3000 queries",
        steps() - before
    );
}
