//! Applies a logged change to its page: the only code that changes a page, at first as at redo.

use crate::page::{self, Cell, Misfit};
use crate::record::PageOp;

/// Applies one change. On an error the page is as it was (after `Cells` it may have some of them):
/// it or the record is damaged.
pub(crate) fn apply(page: &mut [u8], op: &PageOp<'_>) -> Result<(), Misfit> {
    match *op {
        PageOp::InitNode { level } => page::init_node(page, level),
        PageOp::Insert { slot, cell } => page::insert(page, slot.into(), &cell)?,
        PageOp::Remove { slot } => page::remove(page, slot.into())?,
        PageOp::Patch { slot, prefix, suffix, middle } => {
            page::patch(page, slot.into(), prefix.into(), suffix.into(), middle)?;
        }
        PageOp::Replace { slot, overflow, value } => {
            page::replace(page, slot.into(), value, overflow)?
        }
        PageOp::Truncate { keep } => page::truncate(page, keep.into())?,
        PageOp::Cells { mut cells } => {
            while !cells.is_empty() {
                let (cell, rest) = Cell::read(cells).ok_or(Misfit)?;
                let slot = page::Node::new(page).count();
                page::insert(page, slot, &cell)?;
                cells = rest;
            }
        }
        PageOp::Overflow { next, part } if part.len() <= page::OVERFLOW_ROOM => {
            page::init_overflow(page, next, part)
        }
        PageOp::Overflow { .. } => return Err(Misfit),
        PageOp::Free { next } => page::init_free(page, next),
        PageOp::Meta { free_head, page_count } => page::init_meta(page, free_head, page_count),
    }
    Ok(())
}
