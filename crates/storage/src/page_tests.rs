//! A node compared with a sorted list; readers and changes with bytes that are neither a page nor a
//! record.

use std::collections::BTreeMap;

use clearway_buffer::PAGE_SIZE;
use clearway_types::{Lsn, PartitionId, TreeId, TxnId};
use proptest::prelude::*;

use crate::apply::apply;
use crate::page::{self, Cell, Node, SLOT};
use crate::record::{self, PageOp, Role};
use crate::undo::{Undo, UndoKind};

fn keys() -> impl Strategy<Value = Vec<u8>> {
    // Short alphabets, so that keys share prefixes, are prefixes of each other, and differ only
    // after the hint.
    let tail = prop::collection::vec(prop::sample::select(vec![0u8, 1, 255]), 0..7);
    (prop::sample::select(vec![0usize, 3, 8, 20]), tail)
        .prop_map(|(n, tail)| [vec![7; n], tail].concat())
}

fn agrees(page: &[u8], model: &BTreeMap<Vec<u8>, Vec<u8>>, probe: &[u8]) {
    let node = Node::new(page);
    assert_eq!(node.count(), model.len());
    for (slot, (key, value)) in model.iter().enumerate() {
        let cell = node.cell(slot);
        assert_eq!((cell.key, cell.value), (&key[..], &value[..]));
        assert_eq!(node.search(key), Ok(slot));
    }
    let before = model.range(..probe.to_vec()).count();
    let expected = if model.contains_key(probe) { Ok(before) } else { Err(before) };
    assert_eq!(node.search(probe), expected, "{probe:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Invariants 2 to 4 of `page`.
    #[test]
    fn node_matches_a_sorted_list(steps in prop::collection::vec((keys(), 0usize..400, 0u8..5), 1..120)) {
        let mut page = [0; PAGE_SIZE];
        page::init_node(&mut page, 0);
        let mut model = BTreeMap::new();
        for (key, len, action) in steps {
            let value = vec![action; len];
            let cell = Cell { key: &key, value: &value, overflow: false };
            match (Node::new(&page).search(&key), action) {
                (Err(slot), _) if Node::new(&page).free() >= cell.size() + SLOT => {
                    prop_assert!(page::insert(&mut page, slot, &cell).is_ok());
                    model.insert(key.clone(), value);
                }
                (Err(slot), _) => {
                    prop_assert!(page::insert(&mut page, slot, &cell).is_err());
                    let keep = model.len() / 2;
                    prop_assert!(page::truncate(&mut page, keep).is_ok());
                    model = model.into_iter().take(keep).collect();
                }
                (Ok(slot), 0) => {
                    prop_assert!(page::remove(&mut page, slot).is_ok());
                    model.remove(&key);
                }
                (Ok(slot), _) => {
                    let fits = Node::new(&page).free() + model[&key].len() >= len;
                    prop_assert_eq!(page::replace(&mut page, slot, &value, false).is_ok(), fits);
                    if fits {
                        model.insert(key.clone(), value);
                    }
                }
            }
            agrees(&page, &model, &key);
        }
    }

    /// Invariant 1 of `page`: damage is an error, not a panic.
    #[test]
    fn garbage_causes_no_panic(
        bytes in prop::collection::vec(any::<u8>(), 64..400),
        key in keys(),
        slot in 0u16..40,
        lens in (0u16..50, 0u16..50, 0usize..300),
    ) {
        let mut page: Vec<u8> = bytes.iter().copied().cycle().take(PAGE_SIZE).collect();
        page[5] = page::KIND_NODE;
        let node = Node::new(&page);
        let _any = (node.search(&key), node.child_slot(&key), node.child_slot_below(&key), node.free());
        let _any = (node.child(slot.into()), page::part(&page), page::next(&page));
        let (middle, cell) = (&bytes[..lens.2.min(bytes.len())], Cell { key: &key, value: &bytes, overflow: true });
        for op in [
            PageOp::Patch { slot, prefix: lens.0, suffix: lens.1, middle },
            PageOp::Replace { slot, overflow: false, value: middle },
            PageOp::Remove { slot },
            PageOp::Insert { slot, cell },
            PageOp::Truncate { keep: slot },
            PageOp::Cells { cells: &bytes },
        ] {
            let mut page = page.clone();
            let _any = apply(&mut page, &op);
            let _any = Node::new(&page).search(&key);
        }
    }

    /// A log record's bytes are checked before they are used.
    #[test]
    fn record_reader_never_panics(mut bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0u8..5) {
        if let Some(first) = bytes.first_mut() {
            *first = kind;
        }
        if let Ok(record::Record::Pages { ops, .. }) = record::parse(&bytes) {
            ops.for_each(drop);
        }
    }
}

/// Disks outlive releases: these bytes are format version 1, as in `docs/format.md`.
#[test]
fn the_format_stays() {
    let undo = Undo {
        kind: UndoKind::Update,
        tree: TreeId(9),
        key: b"k",
        prefix: 2,
        suffix: 3,
        old: b"old",
    };
    let mut record = Vec::new();
    record::start_pages(
        &mut record,
        PartitionId(5),
        &Role::Undoable { txn: TxnId(77), prev: Lsn(64), undo },
    );
    record::push_op(
        &mut record,
        6,
        &PageOp::Patch { slot: 1, prefix: 2, suffix: 3, middle: b"new" },
    );
    record::push_op(&mut record, 0, &PageOp::Meta { free_head: 4, page_count: 70_000 });
    let expected: &[&[u8]] = &[
        &[1, 1, 5, 0, 77, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 1],
        &[9, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0],
        b"kold",
        &[4, 6, 0, 0, 0, 1, 0, 2, 0, 3, 0, 3, 0],
        b"new",
        &[10, 0, 0, 0, 0, 4, 0, 0, 0, 0x70, 0x11, 1, 0],
    ];
    assert_eq!(record, expected.concat());
    let added = [&[1, 0, 2, 0xff, 0xff][..], &[7, 0, 8, 1, 0, 0, 0, 0, 0, 0, 0]].concat();
    let undo =
        |old| Undo { kind: UndoKind::Add, tree: TreeId(9), key: b"k", prefix: 14, suffix: 0, old };
    let with = |old| {
        let mut record = Vec::new();
        let role = Role::Undoable { txn: TxnId(77), prev: Lsn(64), undo: undo(old) };
        record::start_pages(&mut record, PartitionId(5), &role);
        record
    };
    let expected: &[&[u8]] = &[
        &[1, 1, 5, 0, 77, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 3],
        &[9, 0, 0, 0, 14, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 16, 0, 0, 0],
        b"k",
        &added,
    ];
    assert_eq!(with(&added), expected.concat());
    assert!(record::parse(&with(&added)).is_ok());
    for bad in [&added[1..], &added[..15], &[], &[0, 0, 3, 1, 1, 1], &[0, 0, 2, 1, 1].repeat(5)] {
        assert!(record::parse(&with(bad)).is_err(), "{bad:?}");
    }

    let mut page = [0; PAGE_SIZE];
    page::init_node(&mut page, 0);
    for (slot, key) in [&b"abcd1"[..], b"abx"].into_iter().enumerate() {
        assert!(
            page::insert(&mut page, slot, &Cell { key, value: b"v", overflow: slot == 1 }).is_ok()
        );
    }
    assert_eq!(page[24..34], [2, 0, 0xee, 0x1f, 0, 0, 0, 2, b'a', b'b']);
    assert_eq!(page[48..60], [0xf6, 0x1f, 0, b'1', b'd', b'c', 0xee, 0x1f, 0, 0, 0, b'x']);
    assert_eq!(page[8174..8192], *b"\x03\0\x01\x80abxv\x05\0\x01\0abcd1v");
}
