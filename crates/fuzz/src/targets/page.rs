//! Pages with arbitrary contents and a correct checksum. They are read, and changed by any record,
//! without a panic. The checksum rejects any other contents.

use crate::input::Input;
use clearway_buffer::{HEADER, PAGE_SIZE, seal, verify};
use clearway_storage::fuzzing;
use clearway_types::{PageId, PartitionId};
use std::sync::Arc;

/// Offset of storage's own fields in the header.
const OWN: usize = 24;

pub(super) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let (kind, front, record) = (input.u8(), usize::from(input.u16()), usize::from(input.u8()));
    let record = input.bytes(record);
    // The beginning of the page has header and slots, its end has cells.
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
