//! Additions to integers of a value, whose undo is a subtraction.
//!
//! Additions commute: several transactions may add to one value at the same time, and each of them may be undone, whatever the others have done meanwhile. An
//! undo that restored bytes would take the others' additions with it. This crate knows no columns: an addition says where the integer is.
//!
//! Invariant: while a transaction that has added to a value is active, the value is changed by additions alone, or by this transaction. So an integer
//! stays where it is. Whoever calls [`crate::Store::increment`] sees to that with its locks.
//!
//! Locking: none. A crash leaves what is in the log: recovery subtracts what losers have added, as a rollback does.
//!
//! Source: O'Neil, The escrow transactional method, TODS 11 (1986); logical undo as in ARIES.

use std::fmt;

/// What was added to one integer of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addend {
    /// Where the integer begins in the value.
    pub offset: u16,
    /// Its bytes, 2, 4 or 8, little-endian.
    pub width: u8,
    /// What was added; sums wrap.
    pub delta: i64,
}

impl Addend {
    const NONE: Self = Self { offset: 0, width: 0, delta: 0 };

    /// Where its bytes are.
    fn range(&self) -> std::ops::Range<usize> {
        let offset = usize::from(self.offset);
        offset..offset + usize::from(self.width)
    }
}

/// The integers of one value that a change adds to.
#[derive(Clone, Copy)]
pub struct Addends {
    all: [Addend; Self::MOST],
    len: usize,
}

impl Default for Addends {
    fn default() -> Self {
        Self { all: [Addend::NONE; Self::MOST], len: 0 }
    }
}

impl PartialEq for Addends {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Addends {}

impl fmt::Debug for Addends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

impl Addends {
    /// The most integers of a change.
    pub const MOST: usize = 4;

    fn as_slice(&self) -> &[Addend] {
        &self.all[..self.len]
    }

    /// Adds one more; false if there is no room for it.
    ///
    /// # Panics
    /// Its width is not 2, 4 or 8.
    pub fn push(&mut self, addend: Addend) -> bool {
        assert!(matches!(addend.width, 2 | 4 | 8), "an integer has 2, 4 or 8 bytes");
        let Some(place) = self.all.get_mut(self.len) else { return false };
        *place = addend;
        self.len += 1;
        true
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Addend> {
        self.as_slice().iter().copied()
    }

    /// Adds to a value; false, and the value is as it was, if an integer is not in it.
    pub fn add_to(&self, value: &mut [u8]) -> bool {
        self.apply(value, i64::wrapping_add)
    }

    /// Takes off what [`Addends::add_to`] adds.
    pub fn subtract_from(&self, value: &mut [u8]) -> bool {
        self.apply(value, i64::wrapping_sub)
    }

    fn apply(&self, value: &mut [u8], with: fn(i64, i64) -> i64) -> bool {
        if self.iter().any(|addend| value.get(addend.range()).is_none()) {
            return false;
        }
        for addend in self.iter() {
            let place = &mut value[addend.range()];
            let mut bytes = [0; 8];
            bytes[..place.len()].copy_from_slice(place);
            let sum = with(i64::from_le_bytes(bytes), addend.delta).to_le_bytes();
            place.copy_from_slice(&sum[..place.len()]);
        }
        true
    }

    /// As an undo record has them: for each its offset, its width, and so many bytes of what was added.
    pub(crate) fn pack(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len * 11);
        for Addend { offset, width, delta } in self.iter() {
            out.extend_from_slice(&offset.to_le_bytes());
            out.push(width);
            out.extend_from_slice(&delta.to_le_bytes()[..usize::from(width)]);
        }
        out
    }

    /// What [`Addends::pack`] has written; `None`: these bytes are something else.
    pub(crate) fn unpack(mut bytes: &[u8]) -> Option<Self> {
        let mut addends = Self::default();
        while let Some((head, rest)) = bytes.split_first_chunk::<3>() {
            let (offset, width) = (u16::from_le_bytes([head[0], head[1]]), head[2]);
            if !matches!(width, 2 | 4 | 8) {
                return None;
            }
            let (low, rest) = rest.split_at_checked(usize::from(width))?;
            // The sign fills the bytes above.
            let fill = if low.last().is_some_and(|byte| *byte >= 0x80) { 0xff } else { 0 };
            let mut delta = [fill; 8];
            delta[..low.len()].copy_from_slice(low);
            if !addends.push(Addend { offset, width, delta: i64::from_le_bytes(delta) }) {
                return None;
            }
            bytes = rest;
        }
        bytes.is_empty().then_some(addends)
    }
}

/// What became of an addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incremented {
    /// The key is not there.
    Missing,
    /// Nothing was to be added, or an integer is not in the value: nothing was changed.
    Refused,
    /// This was added.
    Done(Addends),
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn addends(all: &[(u16, u8, i64)]) -> Addends {
        let mut addends = Addends::default();
        for (offset, width, delta) in all {
            assert!(addends.push(Addend { offset: *offset, width: *width, delta: *delta }));
        }
        addends
    }

    #[test]
    fn additions_wrap_and_are_taken_off_in_any_order() {
        let start: Vec<u8> = (0..40).map(|n| 251 - n).collect();
        let all = [
            addends(&[(0, 2, 0x7fff), (2, 4, -1), (30, 8, i64::MIN)]),
            addends(&[(0, 2, 0x7fff), (30, 8, -7)]),
            addends(&[(2, 4, 0x7fff_ffff), (30, 8, i64::MAX), (10, 2, -3), (12, 2, 9)]),
        ];
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let mut value = start.clone();
            all.iter().for_each(|addends| assert!(addends.add_to(&mut value)));
            assert_ne!(value, start);
            order.iter().for_each(|n| assert!(all[*n].subtract_from(&mut value)));
            assert_eq!(value, start);
        }
    }

    #[test]
    fn a_value_without_one_of_the_integers_stays_as_it_is() {
        let mut value = vec![5; 9];
        for outside in [(8, 2, 1), (6, 4, 1), (2, 8, 1), (u16::MAX, 8, 1)] {
            let all = addends(&[(0, 2, 1), outside]);
            assert!(!all.add_to(&mut value) && !all.subtract_from(&mut value));
            assert_eq!(value, [5; 9]);
        }
        let mut full = addends(&[(0, 2, 1); Addends::MOST]);
        assert!(!full.push(Addend { offset: 0, width: 2, delta: 1 }));
    }

    #[test]
    fn packed_additions_come_back_and_others_are_refused() {
        for all in
            [addends(&[]), addends(&[(1, 2, -1), (65_535, 4, i64::from(i32::MIN)), (3, 8, i64::MIN), (9, 8, i64::MAX)])]
        {
            assert_eq!(Addends::unpack(&all.pack()), Some(all));
        }
        let packed = addends(&[(1, 2, -1), (7, 4, 5)]).pack();
        assert!((0..packed.len()).all(|cut| cut == 5 || cut == 0 || Addends::unpack(&packed[..cut]).is_none()));
        assert_eq!(Addends::unpack(&[0, 0, 3, 1, 1, 1]), None);
        assert_eq!(Addends::unpack(&addends(&[(1, 2, 1); 4]).pack().repeat(2)), None);
    }
}
