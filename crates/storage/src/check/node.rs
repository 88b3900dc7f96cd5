//! Checks a tree node by itself. It follows `docs/format.md` alone and shares no code with the
//! writer.

use clearway_buffer::PAGE_SIZE;

use crate::error::MAX_KEY;
use crate::page::{u16_at, u32_at};

const COUNT: usize = 24;
const HEAP: usize = 26;
const DEAD: usize = 28;
const LEVEL: usize = 30;
const PREFIX_LEN: usize = 31;
const PREFIX: usize = 32;
const SLOTS: usize = 48;
const SLOT: usize = 6;
const LONG: usize = 0x8000;
const MAX_CELL: usize = 2030;

/// A cell as the checker reads it.
pub(super) struct Cell<'a> {
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
    /// The value is a reference to overflow pages.
    pub(super) long: bool,
}

impl Cell<'_> {
    /// Returns the length and the first page of a long value.
    pub(super) fn chain(&self) -> (u32, u32) {
        (u32_at(self.value, 0), u32_at(self.value, 4))
    }
    /// Returns the child of an inner node's cell.
    pub(super) fn child(&self) -> u32 {
        u32_at(self.value, 0)
    }
}

pub(super) fn level(page: &[u8]) -> u8 {
    page[LEVEL]
}

pub(super) fn count(page: &[u8]) -> usize {
    u16_at(page, COUNT)
}

/// Returns a cell of a node for which [`problem`] returned `Ok`.
pub(super) fn cell(page: &[u8], slot: usize) -> Cell<'_> {
    let at = u16_at(page, SLOTS + SLOT * slot);
    let (key, value) = (u16_at(page, at), u16_at(page, at + 2));
    let value_at = at + 4 + key;
    Cell {
        key: page.get(at + 4..value_at).unwrap_or(&[]),
        value: page.get(value_at..value_at + (value & !LONG)).unwrap_or(&[]),
        long: value & LONG != 0,
    }
}

fn hint(key: &[u8], prefix: usize) -> u32 {
    (0..4).fold(0, |hint, i| hint << 8 | u32::from(key.get(prefix + i).copied().unwrap_or(0)))
}

/// Returns the first problem of a node as an error.
pub(super) fn problem(page: &[u8]) -> Result<(), String> {
    let count = count(page);
    let (heap, dead, level) = (u16_at(page, HEAP), u16_at(page, DEAD), level(page));
    let slots_end = SLOTS + SLOT * count;
    if !(slots_end..=PAGE_SIZE).contains(&heap) {
        return Err(format!(
            "lowest cell between {slots_end} and {PAGE_SIZE} expected, at {heap} found"
        ));
    }
    let mut extents = Vec::with_capacity(count);
    for slot in 0..count {
        extents.push(extent(page, slot, heap, level)?);
    }
    extents.sort_unstable();
    if let Some(pair) = extents.windows(2).find(|pair| pair[0].1 > pair[1].0) {
        return Err(format!(
            "cells that do not overlap expected, one ends at {} and one starts at {}",
            pair[0].1, pair[1].0
        ));
    }
    let used: usize = extents.iter().map(|(from, to)| to - from).sum();
    if used + dead != PAGE_SIZE - heap {
        return Err(format!(
            "{} dead bytes expected, {dead} found",
            (PAGE_SIZE - heap) as i64 - used as i64
        ));
    }
    keys(page, count, level)
}

/// Returns the start and end of a cell.
fn extent(page: &[u8], slot: usize, heap: usize, level: u8) -> Result<(usize, usize), String> {
    let at = u16_at(page, SLOTS + SLOT * slot);
    if at < heap || at + 4 > PAGE_SIZE {
        return Err(format!("slot {slot}: a cell at {heap} or after it expected, at {at} found"));
    }
    let (key, value) = (u16_at(page, at), u16_at(page, at + 2));
    let (len, long) = (value & !LONG, value & LONG != 0);
    let size = 4 + key + len;
    if key > MAX_KEY || size > MAX_CELL || at + size > PAGE_SIZE {
        return Err(format!(
            "slot {slot}: a cell of at most {} bytes expected, {size} found",
            MAX_CELL.min(PAGE_SIZE - at)
        ));
    }
    let cell = cell(page, slot);
    if level > 0 && (long || len != 4 || cell.child() == 0) {
        return Err(format!(
            "slot {slot}: a child's page number expected, {:02x?} found",
            cell.value
        ));
    }
    if long && (len != 8 || cell.chain().0 == 0 || cell.chain().1 == 0) {
        return Err(format!(
            "slot {slot}: a reference to overflow pages expected, {:02x?} found",
            cell.value
        ));
    }
    Ok((at, at + size))
}

/// Checks order, prefix and hints.
fn keys(page: &[u8], count: usize, level: u8) -> Result<(), String> {
    let len = usize::from(page[PREFIX_LEN]);
    if len > SLOTS - PREFIX {
        return Err(format!("a prefix of at most {} bytes expected, {len} found", SLOTS - PREFIX));
    }
    if level > 0 && count == 0 {
        return Err("an inner node with children expected, none found".to_owned());
    }
    let prefix = &page[PREFIX..PREFIX + len];
    let first = usize::from(level > 0);
    let mut before: Option<&[u8]> = None;
    for slot in first..count {
        let key = cell(page, slot).key;
        if !key.starts_with(prefix) {
            return Err(format!(
                "slot {slot}: a key that starts with {prefix:02x?} expected, {} found",
                shown(key)
            ));
        }
        let (expected, found) = (hint(key, len), u32_at(page, SLOTS + SLOT * slot + 2));
        if expected != found {
            return Err(format!("slot {slot}: hint {expected:#x} expected, {found:#x} found"));
        }
        if let Some(before) = before.filter(|before| *before >= key) {
            return Err(format!(
                "slot {slot}: a key above {} expected, {} found",
                shown(before),
                shown(key)
            ));
        }
        before = Some(key);
    }
    Ok(())
}

/// Returns a key in hexadecimal, truncated if it is long.
pub fn shown(key: &[u8]) -> String {
    const MOST: usize = 40;
    let digits: String = key.iter().take(MOST).map(|byte| format!("{byte:02x}")).collect();
    if key.len() > MOST { format!("{digits}... ({} bytes)", key.len()) } else { digits }
}
