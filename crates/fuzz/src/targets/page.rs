//! Pages whose checksum is right and whose content is anything. Any bytes are read, and changed by
//! any record, without a panic, and the checksum lets no other bytes pass.

use crate::input::Input;
use clearway_buffer::{HEADER, PAGE_SIZE, seal, verify};
use clearway_storage::fuzzing;
use clearway_types::{PageId, PartitionId};
use std::sync::Arc;

/// Where storage's own fields of the header begin.
const OWN: usize = 24;

pub(super) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let (kind, front, record) = (input.u8(), usize::from(input.u16()), usize::from(input.u8()));
    let record = input.bytes(record);
    // What the front of the page holds, and what its end does: header and slots, and cells.
    let front = input.bytes(front % (PAGE_SIZE - OWN));
    let back = input.rest();
    let back = &back[back.len().saturating_sub(PAGE_SIZE - HEADER)..];
    let mut page = [0; PAGE_SIZE];
    page[5] = kind;
    page[PAGE_SIZE - back.len()..].copy_from_slice(back);
    page[OWN..OWN + front.len()].copy_from_slice(front);
    let (id, file): (_, Arc<str>) = (PageId::new(PartitionId(3), 7), "file".into());
    seal(&mut page, id);
    assert!(verify(&page, id, &file).is_ok());
    let other = page[OWN + front.len() / 2];
    page[OWN + front.len() / 2] = !other;
    assert!(verify(&page, id, &file).is_err());
    page[OWN + front.len() / 2] = other;
    fuzzing::read_page(&page, record);
    fuzzing::redo(&mut page, record);
    fuzzing::read_page(&page, record);
}
