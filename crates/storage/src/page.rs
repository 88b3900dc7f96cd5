//! The layout of this crate's pages: slotted B+tree nodes, overflow pages, free pages, and page 0
//! of a file.
//!
//! The buffer pool owns bytes 0..24 of the header; kind (byte 5) and bytes 24..32 are ours.
//!
//! A node: number of slots u16, start of the lowest cell u16, dead bytes among the cells u16, level
//! u8 (0: leaf), length of the prefix u8; at byte 32 the prefix, at most 16 bytes; from byte 48 the
//! slots in key order; cells from the page's end down. A slot: offset of its cell u16, hint u32. A
//! cell: key length u16, value length u16 (its top bit: the value is in overflow pages), key,
//! value. The value in an inner node is its child's page number, u32. The key of slot 0 of an inner
//! node counts as less than every key, whatever it is.
//!
//! Hints save a search the cache misses on cells: it touches the slots, and one cell at the end.
//! (LeanStore uses this older idea: "poor man's normalized key" with prefix truncation.)
//!
//! Invariants
//! 1. Readers never panic, whatever the bytes are: data outside of the page reads as empty or zero.
//! 2. Slots are in strictly ascending key order (except slot 0 of an inner node).
//! 3. Cells do not overlap. Free space = gap between slots and cells + dead bytes.
//! 4. All keys (except that of an inner node's slot 0) start with the prefix. A slot's hint is the
//!    next four bytes of its key, padded with zeros, as a big-endian number. So different hints
//!    have the same order as their keys.

use std::cmp::Ordering;

use clearway_buffer::{HEADER, PAGE_SIZE};

/// Page 0 of a file: the head of the free list and the size of the file.
pub(crate) const KIND_META: u8 = 1;
/// A node of a tree.
pub(crate) const KIND_NODE: u8 = 2;
/// A part of a long value.
pub(crate) const KIND_OVERFLOW: u8 = 3;
/// A page of the free list.
pub(crate) const KIND_FREE: u8 = 4;

const KIND: usize = 5;
const COUNT: usize = 24;
const HEAP: usize = 26;
const DEAD: usize = 28;
const LEVEL: usize = 30;
const PREFIX_LEN: usize = 31;
const PREFIX: usize = HEADER;
const MAX_PREFIX: usize = 16;
/// Offset of the slots.
const SLOTS: usize = PREFIX + MAX_PREFIX;
/// Overflow and free pages: the next page's number, 0 at the end.
const NEXT: usize = 24;
/// Overflow pages: bytes of the value in this page.
const PART: usize = 28;
/// Page 0: the head of the free list, and the number of pages.
const FREE_HEAD: usize = 32;
const PAGE_COUNT: usize = 36;

/// Set in a cell's value length if the value is a reference to overflow pages.
pub(crate) const OVERFLOW: u16 = 0x8000;
/// Bytes of a cell besides key and value.
pub(crate) const CELL_HEAD: usize = 4;
/// Bytes of a slot.
pub(crate) const SLOT: usize = 6;
/// Bytes for slots and cells in a node.
pub(crate) const ROOM: usize = PAGE_SIZE - SLOTS;
/// The largest cell. At least four fit in a page, so a split always finds two halves that fit.
pub(crate) const MAX_CELL: usize = ROOM / 4 - SLOT;
/// Size of the reference to a long value in a cell, in bytes.
pub(crate) const REFERENCE: usize = 8;
/// Bytes of a long value in one overflow page.
pub(crate) const OVERFLOW_ROOM: usize = PAGE_SIZE - HEADER;

pub(crate) fn u16_at(page: &[u8], at: usize) -> usize {
    match page.get(at..at + 2) {
        Some(&[a, b]) => usize::from(u16::from_le_bytes([a, b])),
        _ => 0,
    }
}
pub(crate) fn u32_at(page: &[u8], at: usize) -> u32 {
    page.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
}
fn put_u16(page: &mut [u8], at: usize, v: usize) {
    page[at..at + 2].copy_from_slice(&(v as u16).to_le_bytes());
}
fn put_u32(page: &mut [u8], at: usize, v: u32) {
    page[at..at + 4].copy_from_slice(&v.to_le_bytes());
}

pub(crate) fn kind(page: &[u8]) -> u8 {
    page[KIND]
}
pub(crate) fn next(page: &[u8]) -> u32 {
    u32_at(page, NEXT)
}
pub(crate) fn free_head(page: &[u8]) -> u32 {
    u32_at(page, FREE_HEAD)
}
pub(crate) fn page_count(page: &[u8]) -> u32 {
    u32_at(page, PAGE_COUNT)
}
/// Returns the part of a long value in an overflow page.
pub(crate) fn part(page: &[u8]) -> &[u8] {
    page.get(HEADER..HEADER + u16_at(page, PART)).unwrap_or(&[])
}

pub(crate) fn init_meta(page: &mut [u8], free_head: u32, page_count: u32) {
    page[KIND] = KIND_META;
    put_u32(page, FREE_HEAD, free_head);
    put_u32(page, PAGE_COUNT, page_count);
}
pub(crate) fn init_free(page: &mut [u8], next: u32) {
    clear(page, KIND_FREE);
    put_u32(page, NEXT, next);
}
pub(crate) fn init_overflow(page: &mut [u8], next: u32, part: &[u8]) {
    clear(page, KIND_OVERFLOW);
    put_u32(page, NEXT, next);
    put_u16(page, PART, part.len());
    page[HEADER..HEADER + part.len()].copy_from_slice(part);
}
pub(crate) fn init_node(page: &mut [u8], level: u8) {
    clear(page, KIND_NODE);
    put_u16(page, HEAP, PAGE_SIZE);
    page[LEVEL] = level;
}
fn clear(page: &mut [u8], kind: u8) {
    page[KIND] = kind;
    page[NEXT..].fill(0);
}

/// A read-only view of a node.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a>(&'a [u8]);

/// A cell of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell<'a> {
    pub(crate) key: &'a [u8],
    /// The value, or the 8-byte reference to it (length u32, first page u32).
    pub(crate) value: &'a [u8],
    pub(crate) overflow: bool,
}

impl Cell<'_> {
    /// Returns the bytes that the cell uses in the page, without the slot.
    pub(crate) fn size(&self) -> usize {
        CELL_HEAD + self.key.len() + self.value.len()
    }
    /// Returns the value's length with the overflow bit, as stored.
    pub(crate) fn vlen(&self) -> u16 {
        self.value.len() as u16 | if self.overflow { OVERFLOW } else { 0 }
    }
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.key.len() as u16).to_le_bytes());
        out.extend_from_slice(&self.vlen().to_le_bytes());
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.value);
    }
    /// Reads the cell at the front of `bytes`; returns it and the rest.
    pub(crate) fn read(bytes: &[u8]) -> Option<(Cell<'_>, &[u8])> {
        let (head, rest) = bytes.split_first_chunk::<CELL_HEAD>()?;
        let klen = usize::from(u16::from_le_bytes([head[0], head[1]]));
        let vlen = u16::from_le_bytes([head[2], head[3]]);
        let (key, rest) = rest.split_at_checked(klen)?;
        let (value, rest) = rest.split_at_checked(usize::from(vlen & !OVERFLOW))?;
        Some((Cell { key, value, overflow: vlen & OVERFLOW != 0 }, rest))
    }
    /// Returns the child's page number from an inner node's cell.
    pub(crate) fn child(&self) -> u32 {
        self.value.first_chunk().map_or(0, |b| u32::from_le_bytes(*b))
    }
}

/// Returns the four bytes of a key that follow the prefix.
#[inline]
fn hint(key: &[u8], prefix: usize) -> u32 {
    let rest = key.get(prefix..).unwrap_or(&[]);
    match rest.first_chunk::<4>() {
        Some(bytes) => u32::from_be_bytes(*bytes),
        None => (0..4).fold(0, |hint, i| hint << 8 | u32::from(rest.get(i).copied().unwrap_or(0))),
    }
}

fn common_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl<'a> Node<'a> {
    pub(crate) fn new(page: &'a [u8]) -> Self {
        Self(page)
    }
    pub(crate) fn is_node(self) -> bool {
        self.0.len() == PAGE_SIZE && self.0[KIND] == KIND_NODE
    }
    /// Returns the number of slots; never more than fit in a page.
    #[inline]
    pub(crate) fn count(self) -> usize {
        u16_at(self.0, COUNT).min(ROOM / SLOT)
    }
    pub(crate) fn level(self) -> u8 {
        self.0[LEVEL]
    }
    pub(crate) fn free(self) -> usize {
        self.gap() + u16_at(self.0, DEAD)
    }
    fn gap(self) -> usize {
        u16_at(self.0, HEAP).saturating_sub(SLOTS + SLOT * self.count())
    }
    fn offset(self, slot: usize) -> usize {
        u16_at(self.0, SLOTS + SLOT * slot)
    }
    #[inline]
    pub(crate) fn key(self, slot: usize) -> &'a [u8] {
        let at = self.offset(slot);
        let len = u16_at(self.0, at);
        self.0.get(at + CELL_HEAD..at + CELL_HEAD + len).unwrap_or(&[])
    }
    pub(crate) fn cell(self, slot: usize) -> Cell<'a> {
        let bytes = self.0.get(self.offset(slot).max(SLOTS)..).unwrap_or(&[]);
        Cell::read(bytes).map_or(Cell { key: &[], value: &[], overflow: false }, |(cell, _)| cell)
    }
    fn hint(self, slot: usize) -> u32 {
        u32_at(self.0, SLOTS + SLOT * slot + 2)
    }
    #[inline]
    fn prefix(self) -> &'a [u8] {
        let len = usize::from(self.0[PREFIX_LEN]).min(MAX_PREFIX);
        &self.0[PREFIX..PREFIX + len]
    }
    /// Returns the first slot, from `low` on, whose key is greater than `key` or, unless `above`,
    /// equal to it.
    #[inline]
    fn bound(self, low: usize, key: &[u8], above: bool) -> usize {
        let (mut low, mut high) = (low, self.count().max(low));
        let prefix = self.prefix();
        match key.get(..prefix.len()).map_or_else(|| key.cmp(prefix), |front| front.cmp(prefix)) {
            Ordering::Less => return low,
            Ordering::Greater => return high,
            Ordering::Equal => {}
        }
        let sought = hint(key, prefix.len());
        while low < high {
            let middle = (low + high) / 2;
            let order = match self.hint(middle).cmp(&sought) {
                Ordering::Equal => self.key(middle).cmp(key),
                order => order,
            };
            if order == Ordering::Less || (above && order == Ordering::Equal) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
    /// Returns the slot of `key`, or as an error the slot where it would be inserted.
    #[inline]
    pub(crate) fn search(self, key: &[u8]) -> Result<usize, usize> {
        let slot = self.bound(0, key, false);
        if slot < self.count() && self.key(slot) == key { Ok(slot) } else { Err(slot) }
    }
    /// Returns the slot of the child that holds `key`, in an inner node.
    #[inline]
    pub(crate) fn child_slot(self, key: &[u8]) -> usize {
        self.bound(1, key, true) - 1
    }
    /// Returns the slot of the child that holds the greatest key below `key`, in an inner node.
    pub(crate) fn child_slot_below(self, key: &[u8]) -> usize {
        self.bound(1, key, false) - 1
    }
    /// Returns a child's page number, in an inner node.
    pub(crate) fn child(self, slot: usize) -> u32 {
        self.cell(slot).child()
    }
}

/// A change that does not fit the page, because the log or the page is damaged, or because of a
/// planning bug. The page is unchanged.
#[derive(Debug)]
pub(crate) struct Misfit;

fn check(ok: bool) -> Result<(), Misfit> {
    if ok { Ok(()) } else { Err(Misfit) }
}

/// Inserts a cell as slot `slot`.
pub(crate) fn insert(page: &mut [u8], slot: usize, cell: &Cell<'_>) -> Result<(), Misfit> {
    let (size, count) = (cell.size(), Node(page).count());
    check(Node(page).is_node() && slot <= count && Node(page).free() >= size + SLOT)?;
    if Node(page).gap() < size + SLOT {
        let before = compact(page)?;
        restore_on_error(check(Node(page).gap() >= size + SLOT), page, &before)?;
    }
    let at = u16_at(page, HEAP).checked_sub(size).ok_or(Misfit)?;
    check(at + size <= PAGE_SIZE)?;
    put_u16(page, at, cell.key.len());
    put_u16(page, at + 2, usize::from(cell.vlen()));
    let value_at = at + CELL_HEAD + cell.key.len();
    page[at + CELL_HEAD..value_at].copy_from_slice(cell.key);
    page[value_at..at + size].copy_from_slice(cell.value);
    put_u16(page, HEAP, at);
    let (from, to) = (SLOTS + SLOT * slot, SLOTS + SLOT * count);
    page.copy_within(from..to, from + SLOT);
    put_u16(page, from, at);
    put_u16(page, COUNT, count + 1);
    fit_prefix(page, slot, cell.key);
    Ok(())
}

/// Returns the first slot whose key counts.
fn first_key(page: &[u8]) -> usize {
    usize::from(page[LEVEL] > 0)
}

/// Sets the hint of a new slot; shortens the prefix if necessary.
fn fit_prefix(page: &mut [u8], slot: usize, key: &[u8]) {
    let first = first_key(page);
    if slot < first {
        return;
    }
    let old = Node(page).prefix();
    let common = common_len(old, key);
    if Node(page).count() == first + 1 {
        let len = key.len().min(MAX_PREFIX);
        set_prefix(page, &key[..len]);
    } else if common < old.len() {
        set_prefix(page, &key[..common]);
    } else {
        put_u32(page, SLOTS + SLOT * slot + 2, hint(key, common));
    }
}

/// Sets the prefix, which all keys must have, and all hints.
fn set_prefix(page: &mut [u8], prefix: &[u8]) {
    page[PREFIX_LEN] = prefix.len() as u8;
    page[PREFIX..PREFIX + prefix.len()].copy_from_slice(prefix);
    for slot in first_key(page)..Node(page).count() {
        let hint = hint(Node(page).key(slot), prefix.len());
        put_u32(page, SLOTS + SLOT * slot + 2, hint);
    }
}

/// Returns the offset of a slot's cell, and the lengths of its key and value.
fn locate(page: &[u8], slot: usize) -> Result<(usize, usize, usize), Misfit> {
    let node = Node(page);
    check(node.is_node() && slot < node.count())?;
    let (at, cell) = (node.offset(slot), node.cell(slot));
    check(at >= SLOTS && at + cell.size() <= PAGE_SIZE)?;
    Ok((at, cell.key.len(), cell.value.len()))
}

/// Removes a slot.
pub(crate) fn remove(page: &mut [u8], slot: usize) -> Result<(), Misfit> {
    let (at, key_len, value_len) = locate(page, slot)?;
    let (count, size) = (Node(page).count(), CELL_HEAD + key_len + value_len);
    let (from, to) = (SLOTS + SLOT * slot, SLOTS + SLOT * count);
    page.copy_within(from + SLOT..to, from);
    put_u16(page, COUNT, count - 1);
    give_back(page, at, size);
    Ok(())
}

fn give_back(page: &mut [u8], at: usize, size: usize) {
    if Node(page).count() == 0 {
        put_u16(page, HEAP, PAGE_SIZE);
        put_u16(page, DEAD, 0);
    } else if at == u16_at(page, HEAP) {
        put_u16(page, HEAP, at + size);
    } else {
        let dead = u16_at(page, DEAD) + size;
        put_u16(page, DEAD, dead);
    }
}

/// Keeps the first `keep` slots.
pub(crate) fn truncate(page: &mut [u8], keep: usize) -> Result<(), Misfit> {
    let count = Node(page).count();
    check(Node(page).is_node() && keep <= count)?;
    put_u16(page, COUNT, keep);
    compact(page).inspect_err(|_| put_u16(page, COUNT, count))?;
    let first = first_key(page);
    if keep > first {
        let (low, high) = (Node(page).key(first), Node(page).key(keep - 1));
        let len = common_len(low, high).min(MAX_PREFIX);
        let prefix = low[..len].to_vec();
        set_prefix(page, &prefix);
    }
    Ok(())
}

/// Replaces the middle of a value: `prefix` bytes at its front and `suffix` bytes at its end stay.
pub(crate) fn patch(
    page: &mut [u8],
    slot: usize,
    prefix: usize,
    suffix: usize,
    middle: &[u8],
) -> Result<(), Misfit> {
    let (at, key_len, len) = locate(page, slot)?;
    check(prefix + suffix <= len)?;
    if prefix + suffix + middle.len() == len {
        let at = at + CELL_HEAD + key_len + prefix;
        page[at..at + middle.len()].copy_from_slice(middle);
        return Ok(());
    }
    let Cell { value, overflow, .. } = Node(page).cell(slot);
    let value = [&value[..prefix], middle, &value[len - suffix..]].concat();
    replace(page, slot, &value, overflow)
}

/// Replaces a whole value.
pub(crate) fn replace(
    page: &mut [u8],
    slot: usize,
    value: &[u8],
    overflow: bool,
) -> Result<(), Misfit> {
    let (at, key_len, len) = locate(page, slot)?;
    if len < value.len() {
        let key = Node(page).cell(slot).key.to_vec();
        check(Node(page).free() + len >= value.len())?;
        let before = copy(page);
        remove(page, slot)?;
        return restore_on_error(
            insert(page, slot, &Cell { key: &key, value, overflow }),
            page,
            &before,
        );
    }
    let value_at = at + CELL_HEAD + key_len;
    let cell = Cell { key: &[], value, overflow };
    put_u16(page, at + 2, usize::from(cell.vlen()));
    page[value_at..value_at + value.len()].copy_from_slice(value);
    let dead = u16_at(page, DEAD) + len - value.len();
    put_u16(page, DEAD, dead);
    Ok(())
}

/// Copies a page, so that it can be restored.
pub(crate) fn copy(page: &[u8]) -> [u8; PAGE_SIZE] {
    let mut copy = [0; PAGE_SIZE];
    copy.copy_from_slice(page);
    copy
}

fn restore_on_error(
    done: Result<(), Misfit>,
    page: &mut [u8],
    before: &[u8; PAGE_SIZE],
) -> Result<(), Misfit> {
    done.inspect_err(|_| page.copy_from_slice(before))
}

/// Moves the cells together at the end of the page. Returns the page as it was before.
fn compact(page: &mut [u8]) -> Result<[u8; PAGE_SIZE], Misfit> {
    let before = copy(page);
    let old = Node(&before);
    let low = SLOTS + SLOT * old.count();
    let mut heap = PAGE_SIZE;
    for slot in 0..old.count() {
        let (at, size) = (old.offset(slot), old.cell(slot).size());
        if at < low || at + size > PAGE_SIZE || heap < low + size {
            page.copy_from_slice(&before);
            return Err(Misfit);
        }
        heap -= size;
        page[heap..heap + size].copy_from_slice(&before[at..at + size]);
        put_u16(page, SLOTS + SLOT * slot, heap);
    }
    put_u16(page, HEAP, heap);
    put_u16(page, DEAD, 0);
    Ok(before)
}
