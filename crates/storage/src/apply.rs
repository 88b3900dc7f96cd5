//! Applies a logged change to its page. Normal operation and redo share this code; nothing else
//! changes a page.

use crate::page::{self, Cell, Misfit};
use crate::record::PageOp;

/// Applies one change. On an error the page is unchanged, except that a failed `Cells` may have
/// inserted some of its cells. An error means that the page or the record is damaged.
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
