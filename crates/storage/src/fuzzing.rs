//! Private readers of bytes from disk, exposed for the fuzzer. Not part of the crate's interface.

use clearway_buffer::PAGE_SIZE;

use crate::apply::apply;
use crate::overflow;
use crate::page::{self, Node};
use crate::record::{self, Record};

/// Reads a page in every possible way.
pub fn read_page(page: &[u8; PAGE_SIZE], key: &[u8]) {
    let node = Node::new(page);
    let _ = (
        page::kind(page),
        page::next(page),
        page::free_head(page),
        page::page_count(page),
        page::part(page).len(),
    );
    let _ = (node.is_node(), node.level(), node.free());
    for slot in (0..node.count()).chain([usize::from(u16::MAX)]) {
        let (key, cell) = (node.key(slot), node.cell(slot));
        let _ = (
            node.search(key).is_ok(),
            node.child(slot),
            cell.child(),
            overflow::parse_reference(cell.value),
        );
        assert!(cell.size() <= PAGE_SIZE);
    }
    assert!(node.search(key).unwrap_or_else(|slot| slot) <= node.count());
    if node.count() > 0 {
        assert!(node.child_slot(key) < node.count() && node.child_slot_below(key) < node.count());
    }
}

/// Parses a log record; encodes it again if it is valid.
pub fn reencode(payload: &[u8]) -> Option<Vec<u8>> {
    match record::parse(payload).ok()? {
        Record::Pages { partition, role, ops } => {
            let mut out = Vec::new();
            record::start_pages(&mut out, partition, &role);
            for op in ops {
                let (no, op) = op.ok()?;
                record::push_op(&mut out, no, &op);
            }
            Some(out)
        }
        Record::Commit(txn) => Some(record::commit(txn).to_vec()),
        Record::AbortEnd(txn, partition) => Some(record::abort_end(txn, partition).to_vec()),
    }
}

/// Applies all changes of a record to `page`, as redo does, regardless of their page numbers.
/// Returns true if all of them fitted.
pub fn redo(page: &mut [u8; PAGE_SIZE], payload: &[u8]) -> bool {
    let Ok(Record::Pages { ops, .. }) = record::parse(payload) else { return false };
    ops.filter_map(Result::ok).all(|(_, op)| apply(page, &op).is_ok())
}
