//! What a version says of a change: what was there before, or what was added to integers of it; and
//! how a reader goes back.
//!
//! Additions commute, so their transactions may be active beside each other, and the order of their
//! commits is not that of their versions. A reader goes back from the newest version to the oldest:
//!
//! | version | the reader sees it | does not see it |
//! |---|---|---|
//! | a value that was replaced | it has found its value | goes on from that value |
//! | additions | goes on | takes them off the value |
//!
//! Whoever replaces a value holds a lock that nobody shares who adds to it. So versions before that
//! one are committed, earlier than it is, or its own transaction's.

use super::Before;
use crate::exec::Stop;
use clearway_storage::{Addend, Addends};
use clearway_types::{SqlError, SqlState};
use std::borrow::Cow;

/// What a transaction has done to a key's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It has replaced this.
    Replaced(Before),
    /// It has only added to integers of it.
    Added(Sum),
}

impl Change {
    /// Bytes that it has on the heap.
    pub(super) fn heap(&self) -> usize {
        match self {
            Self::Replaced(before) => before.as_ref().map_or(0, |before| before.len()),
            Self::Added(sum) => sum.heap(),
        }
    }

    /// Bytes that it takes in a block.
    pub(super) fn packed_size(&self) -> usize {
        match self {
            Self::Replaced(before) => before.as_ref().map_or(0, |before| before.len()),
            Self::Added(sum) => sum.addends.len() * PackedAddends::SIZE,
        }
    }

    /// As it is put into a block; `bytes` is where additions are packed.
    pub(super) fn packed<'b>(&'b self, bytes: &'b mut Vec<u8>) -> Prior<'b> {
        match self {
            Self::Replaced(before) => Prior::Value(before.as_deref()),
            Self::Added(sum) => {
                bytes.clear();
                PackedAddends::pack(sum, bytes);
                Prior::Added(PackedAddends(bytes))
            }
        }
    }

    pub(super) fn is_added(&self) -> bool {
        matches!(self, Self::Added(_))
    }
}

/// What was added to integers of one value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    /// One for each integer.
    pub addends: Vec<Addend>,
    /// How many statements have added, without those that were undone.
    pub count: u32,
}

impl Sum {
    pub(super) fn heap(&self) -> usize {
        self.addends.len() * size_of::<Addend>()
    }

    pub(crate) fn of(addends: &Addends) -> Self {
        let mut sum = Self::default();
        sum.add(addends);
        sum
    }

    pub(super) fn add(&mut self, addends: &Addends) {
        addends.iter().for_each(|addend| self.put(addend, i64::wrapping_add));
        self.count = self.count.saturating_add(1);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        other.addends.iter().for_each(|addend| self.put(*addend, i64::wrapping_add));
        self.count = self.count.saturating_add(other.count);
    }

    /// An addition has been undone.
    pub(super) fn take_back(&mut self, addends: &Addends) {
        addends.iter().for_each(|addend| self.put(addend, i64::wrapping_sub));
        self.count = self.count.saturating_sub(1);
    }

    fn put(&mut self, addend: Addend, with: fn(i64, i64) -> i64) {
        match self.addends.iter_mut().find(|have| have.offset == addend.offset) {
            Some(have) => have.delta = with(have.delta, addend.delta),
            None => self.addends.push(Addend { delta: with(0, addend.delta), ..addend }),
        }
    }
}

/// What older versions come to: the oldest value that was replaced and that a reader does not see,
/// if there is one, and what was added to it before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Older<'v> {
    pub value: Option<Option<&'v [u8]>>,
    pub added: Vec<Addend>,
}

impl<'v> Older<'v> {
    /// Goes on to the next newer version; true: to none behind it.
    pub(super) fn then(&mut self, prior: Prior<'v>) -> bool {
        match prior {
            Prior::Value(before) => self.value = Some(before),
            Prior::Added(addends) => self.added.extend(addends.iter()),
        }
        self.value.is_some()
    }

    /// Goes on to newer versions.
    pub(super) fn then_all(&mut self, newer: &Self) {
        if self.value.is_none() {
            self.value = newer.value;
            self.added.extend_from_slice(&newer.added);
        }
    }

    pub(super) fn apply(self, back: &mut Back<'v>) {
        if let Some(value) = self.value {
            back.replace(value);
        }
        back.added.extend(self.added);
    }
}

/// As [`Change`], packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prior<'b> {
    Value(Option<&'b [u8]>),
    Added(PackedAddends<'b>),
}

/// Additions, as bytes: of each integer its place in the value (2 bytes), its width (1 byte) and
/// what was added (8 bytes), little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PackedAddends<'b>(pub &'b [u8]);

impl PackedAddends<'_> {
    pub(super) const SIZE: usize = 2 + 1 + 8;

    pub(super) fn pack(sum: &Sum, out: &mut Vec<u8>) {
        for Addend { offset, width, delta } in &sum.addends {
            out.extend_from_slice(&offset.to_le_bytes());
            out.push(*width);
            out.extend_from_slice(&delta.to_le_bytes());
        }
    }

    fn iter(self) -> impl Iterator<Item = Addend> {
        self.0.chunks_exact(Self::SIZE).map(|bytes| {
            let mut delta = [0; 8];
            delta.copy_from_slice(&bytes[3..]);
            let offset = u16::from_le_bytes([bytes[0], bytes[1]]);
            Addend { offset, width: bytes[2], delta: i64::from_le_bytes(delta) }
        })
    }
}

/// A key's value as of a snapshot, as a reader goes back for it.
#[derive(Debug)]
pub(crate) struct Back<'v> {
    value: Option<&'v [u8]>,
    /// What is to be taken off it.
    added: Vec<Addend>,
}

impl<'v> Back<'v> {
    pub(super) fn from(value: Option<&'v [u8]>) -> Self {
        Self { value, added: Vec::new() }
    }

    pub(super) fn value(&self) -> Option<&'v [u8]> {
        self.value
    }

    /// Goes back over a change that the reader does not see.
    pub(super) fn over(&mut self, change: &'v Change) {
        match change {
            Change::Replaced(before) => self.replace(before.as_deref()),
            Change::Added(sum) => self.added.extend_from_slice(&sum.addends),
        }
    }

    pub(super) fn replace(&mut self, before: Option<&'v [u8]>) {
        self.value = before;
        self.added.clear();
    }

    /// The value.
    pub(super) fn end(self) -> Result<Option<Cow<'v, [u8]>>, Stop> {
        if self.added.is_empty() {
            return Ok(self.value.map(Cow::Borrowed));
        }
        let mut value = self.value.map(<[u8]>::to_vec);
        if !value.as_mut().is_some_and(|value| subtract(&self.added, value)) {
            return Err(misfit().into());
        }
        Ok(value.map(Cow::Owned))
    }
}

/// Takes additions off a value; false if they are not of that one.
pub(crate) fn subtract(added: &[Addend], value: &mut [u8]) -> bool {
    added.chunks(Addends::MOST).all(|chunk| {
        let mut addends = Addends::default();
        chunk.iter().all(|addend| addends.push(*addend)) && addends.subtract_from(value)
    })
}

#[cold]
pub(crate) fn misfit() -> SqlError {
    SqlError::new(SqlState::DATA_CORRUPTED, "what was added to a row is not in the row")
}
