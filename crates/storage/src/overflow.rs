//! Values that are too long for a leaf: a chain of pages, referenced by length and first page.
//!
//! A chain belongs to one cell and is never changed. A new value gets a new chain, and the same
//! record frees the old one.

use crate::attempt::Blocked;
use crate::error::MAX_VALUE;
use crate::mini::{Core, Mini};
use crate::page::{self, Cell, KIND_OVERFLOW, OVERFLOW_ROOM, REFERENCE};
use crate::record::{PageOp, push_op};

pub(crate) fn reference(len: usize, first: u32) -> [u8; REFERENCE] {
    let mut out = [0; REFERENCE];
    out[..4].copy_from_slice(&(len as u32).to_le_bytes());
    out[4..].copy_from_slice(&first.to_le_bytes());
    out
}

/// Decodes the length and the first page of a long value.
pub(crate) fn parse_reference(value: &[u8]) -> (usize, u32) {
    (page::u32_at(value, 0) as usize, page::u32_at(value, 4))
}

/// Reads a long value, and the numbers of its pages.
pub(crate) fn read(core: &Core, reference: &[u8]) -> Result<(Vec<u8>, Vec<u32>), Blocked> {
    let (len, mut no) = parse_reference(reference);
    if len > MAX_VALUE {
        return Err(core.corrupt(no, "a long value exceeds the maximum length").into());
    }
    let mut value = Vec::with_capacity(len.min(core.max_value));
    let mut pages = Vec::new();
    while no != 0 {
        let page = core.read(no).map_err(|want| {
            let mut wants: Vec<_> =
                pages.iter().map(|&no| clearway_buffer::MissingPage::Page(core.id(no))).collect();
            wants.push(want);
            Blocked::MissingPage(wants)
        })?;
        if page::kind(&page) != KIND_OVERFLOW {
            return Err(core.corrupt(no, "a part of a long value was expected").into());
        }
        let part = page::part(&page);
        if part.is_empty() {
            // A chain of such pages might not end.
            return Err(core.corrupt(no, "a part of a long value is empty").into());
        }
        value.extend_from_slice(part);
        pages.push(no);
        if value.len() > len {
            break;
        }
        no = page::next(&page);
    }
    if value.len() != len {
        return Err(core.corrupt(no, "a long value does not have the length in its cell").into());
    }
    Ok((value, pages))
}

/// Passes a cell's value to `f`; reads the chain if the value is long.
pub(crate) fn with_value<T>(
    core: &Core,
    cell: &Cell<'_>,
    f: impl FnOnce(&[u8]) -> T,
) -> Result<T, Blocked> {
    if cell.overflow { Ok(f(&read(core, cell.value)?.0)) } else { Ok(f(cell.value)) }
}

/// Allocates pages for a value of `len` bytes.
pub(crate) fn alloc(mini: &mut Mini<'_>, len: usize) -> Result<Vec<u32>, Blocked> {
    (0..len.div_ceil(OVERFLOW_ROOM)).map(|_| mini.alloc()).collect()
}

/// Writes the value's parts into the record.
pub(crate) fn push(buf: &mut Vec<u8>, value: &[u8], pages: &[u32]) {
    for (i, (part, &no)) in value.chunks(OVERFLOW_ROOM).zip(pages).enumerate() {
        let next = pages.get(i + 1).copied().unwrap_or(0);
        push_op(buf, no, &PageOp::Overflow { next, part });
    }
}
