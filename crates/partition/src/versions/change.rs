//! The contents of a version, that is the previous value or the amounts added to its integers, and
//! how a reader goes back over versions.
//!
//! Additions commute, so their transactions may be active concurrently, and their commit order may
//! differ from the order of their versions. A reader goes back from the newest version to the
//! oldest:
//!
//! | version | the reader sees it | does not see it |
//! |---|---|---|
//! | a replaced value | it has found its value | continues from that value |
//! | additions | continues | subtracts them from the value |
//!
//! A transaction that replaces a value holds a lock that excludes all that add to it. So the
//! versions before that one are committed, earlier than it is, or belong to its own transaction.

use super::Before;
use super::spill::Sight;
use crate::exec::Stop;
use clearway_storage::{Addend, Addends};
use clearway_types::{SqlError, SqlState, TxnId};
use std::borrow::Cow;

/// What a transaction has done to a key's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It has replaced this value.
    Replaced(Before),
    /// It has only added to its integers.
    Added(Sum),
}

impl Change {
    /// Returns its heap memory in bytes.
    pub(super) fn heap(&self) -> usize {
        match self {
            Self::Replaced(before) => before.as_ref().map_or(0, |before| before.len()),
            Self::Added(sum) => sum.heap(),
        }
    }

    /// Returns its size in a block in bytes.
    pub(super) fn packed_size(&self) -> usize {
        match self {
            Self::Replaced(before) => before.as_ref().map_or(0, |before| before.len()),
            Self::Added(sum) => sum.addends.len() * PackedAddends::SIZE,
        }
    }

    /// Returns its form in a block; `bytes` is the buffer for packed additions.
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

/// The amounts added to integers of one value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    /// One for each integer.
    pub addends: Vec<Addend>,
    /// Number of statements that have added, without the undone ones.
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

    /// Removes an undone addition.
    pub(super) fn undo(&mut self, addends: &Addends) {
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

/// The combined effect of consecutive versions: the oldest replaced value that a reader does not
/// see, if there is one, and the amounts added before it.
#[derive(Clone, Debug, Default)]
struct Unseen<'v> {
    value: Option<Option<&'v [u8]>>,
    added: Vec<Addend>,
    /// The writer whose outcome decides what the reader sees.
    undecided: Option<TxnId>,
}

impl<'v> Unseen<'v> {
    /// Adds the next newer version, which is not the reader's own.
    fn then(&mut self, sight: Sight, prior: Prior<'v>) {
        match (sight, prior) {
            // A replaced value that the reader does not see hides all versions after it.
            _ if self.is_settled() => {}
            (Sight::Unseen { .. }, Prior::Value(before)) => self.value = Some(before),
            (Sight::Unseen { .. }, Prior::Added(addends)) => self.added.extend(addends.iter()),
            (Sight::Undecided(writer), _) => self.undecided = Some(writer),
            (Sight::Seen | Sight::Own, _) => {}
        }
    }

    /// Returns true if versions after these do not matter.
    fn is_settled(&self) -> bool {
        self.value.is_some() || self.undecided.is_some()
    }

    /// Adds newer versions.
    fn then_all(&mut self, newer: &Self) {
        if !self.is_settled() {
            self.value = newer.value;
            self.added.extend_from_slice(&newer.added);
            self.undecided = newer.undecided;
        }
    }

    fn apply(self, back: &mut Rewind<'v>) -> Result<(), Stop> {
        if let Some(writer) = self.undecided {
            return Err(Stop::Commit(writer));
        }
        if let Some(value) = self.value {
            back.replace(value);
        }
        back.added.extend(self.added);
        Ok(())
    }
}

/// The combined effect of the versions of a key in the file.
///
/// Versions after the reader's own belong to transactions that go on from its change, since it has
/// retired its lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Older<'v> {
    /// All of them, or those before the reader's own.
    first: Unseen<'v>,
    /// The value that the reader itself has replaced first.
    own: Option<Option<&'v [u8]>>,
    /// Those after the reader's own.
    after: Unseen<'v>,
}

impl<'v> Older<'v> {
    /// Adds the next newer version.
    pub(super) fn then(&mut self, sight: Sight, prior: Prior<'v>) {
        match (sight, prior) {
            (Sight::Own, Prior::Value(before)) => {
                self.own.get_or_insert(before);
            }
            _ => self.last().then(sight, prior),
        }
    }

    fn last(&mut self) -> &mut Unseen<'v> {
        if self.own.is_some() { &mut self.after } else { &mut self.first }
    }

    /// Returns true if versions after these matter only if they are the reader's own, or follow
    /// one.
    pub(super) fn is_settled(&self) -> bool {
        self.first.is_settled()
    }

    /// Returns true if the reader goes back to a value.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn has_value(&self) -> bool {
        self.first.value.is_some()
    }

    /// Adds newer versions.
    pub(super) fn then_all(&mut self, newer: &Self) {
        self.last().then_all(&newer.first);
        self.own = self.own.or(newer.own);
        self.last().then_all(&newer.after);
    }

    /// Continues a reader's way back over these versions.
    pub(super) fn apply(self, back: &mut Rewind<'v>) -> Result<(), Stop> {
        self.after.apply(back)?;
        // What its transaction has replaced first decides whether its changes are undone.
        if self.own.map_or(back.stays, |before| before != back.value) {
            return Ok(());
        }
        self.first.apply(back)
    }
}

/// A packed [`Change`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prior<'b> {
    Value(Option<&'b [u8]>),
    Added(PackedAddends<'b>),
}

/// Packed additions. For each integer: its offset in the value (2 bytes), its width (1 byte) and
/// the amount (8 bytes), little-endian.
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

/// A reader's progress towards a key's value as of a snapshot.
#[derive(Debug)]
pub(crate) struct Rewind<'v> {
    value: Option<&'v [u8]>,
    /// The amounts to subtract from it.
    added: Vec<Addend>,
    /// It is the reader's own, unless the reader has an older version that has this value.
    pub(super) stays: bool,
}

impl<'v> Rewind<'v> {
    pub(super) fn from(value: Option<&'v [u8]>) -> Self {
        Self { value, added: Vec::new(), stays: false }
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

    /// Returns the value.
    pub(super) fn end(self) -> Result<Option<Cow<'v, [u8]>>, Stop> {
        if self.added.is_empty() {
            return Ok(self.value.map(Cow::Borrowed));
        }
        let mut value = self.value.map(<[u8]>::to_vec);
        if !value.as_mut().is_some_and(|value| subtract(&self.added, value)) {
            return Err(mismatch().into());
        }
        Ok(value.map(Cow::Owned))
    }
}

/// Subtracts additions from a value; returns false if they do not fit it.
pub(crate) fn subtract(added: &[Addend], value: &mut [u8]) -> bool {
    added.chunks(Addends::MOST).all(|chunk| {
        let mut addends = Addends::default();
        chunk.iter().all(|addend| addends.push(*addend)) && addends.subtract_from(value)
    })
}

#[cold]
pub(crate) fn mismatch() -> SqlError {
    SqlError::new(SqlState::DATA_CORRUPTED, "an addition to a row does not match the row")
}
