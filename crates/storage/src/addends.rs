//! Additions to integers in a value. The undo record holds the amount added, not the old value.
//!
//! Invariants
//! 1. Additions wrap, so each has an inverse. Additions at the same offset with the same width, or
//!    at disjoint ranges, commute. Callers never add to overlapping integers of one value.
//! 2. Widths are always 2, 4 or 8 bytes, also after decoding.
//!
//! Locking: none. After a crash, the log holds the additions (`record`).

use std::ops::Range;

/// An amount added to one integer of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addend {
    /// Offset of the integer in the value, in bytes.
    pub offset: u16,
    /// Width of the integer in bytes (little-endian): 2, 4 or 8.
    pub width: u8,
    /// The amount added. In [`Addends`] it is within the range of `width` bytes.
    pub delta: i64,
}

impl Addend {
    fn range(self) -> Range<usize> {
        let start = usize::from(self.offset);
        start..start + usize::from(self.width)
    }

    /// Returns the addend with `delta` truncated to `width` bytes and sign-extended.
    fn wrapped(self) -> Self {
        let unused = 64 - 8 * u32::from(self.width);
        Self { delta: self.delta << unused >> unused, ..self }
    }

    /// Adds `delta` to the integer, wrapping.
    ///
    /// # Panics
    /// If the integer does not have 2, 4 or 8 bytes.
    fn add_to(self, integer: &mut [u8]) {
        let mut word = [0; 8];
        word[..integer.len()].copy_from_slice(integer);
        let sum = u64::from_le_bytes(word).wrapping_add(self.delta as u64);
        integer.copy_from_slice(&sum.to_le_bytes()[..integer.len()]);
    }
}

/// Encoded size of an addend without its delta, in bytes.
const HEAD: usize = 3;

/// The additions of one change to one value: at most [`Addends::MOST`], stored without allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addends {
    all: [Addend; Addends::MOST],
    len: u8,
}

impl Addends {
    /// Maximum number of addends.
    pub const MOST: usize = 4;

    /// Appends an addend; its delta wraps as the integer does. Returns false if the list is full or
    /// the width is not 2, 4 or 8.
    pub fn push(&mut self, addend: Addend) -> bool {
        let place = self.all.get_mut(usize::from(self.len));
        let Some(place) = place.filter(|_| matches!(addend.width, 2 | 4 | 8)) else { return false };
        *place = addend.wrapped();
        self.len += 1;
        true
    }

    /// Returns the addends in the order of their `push` calls.
    pub fn iter(&self) -> impl Iterator<Item = Addend> {
        self.all.into_iter().take(self.len.into())
    }

    /// Adds to the value, wrapping. Returns false and leaves the value untouched if an integer is
    /// out of bounds.
    #[must_use]
    pub fn add_to(&self, value: &mut [u8]) -> bool {
        let fits = self.fits(value.len());
        if fits {
            self.add_to_part(value, 0);
        }
        fits
    }

    /// Reverses [`Addends::add_to`], regardless of other additions before or after it.
    #[must_use]
    pub fn subtract_from(&self, value: &mut [u8]) -> bool {
        self.negated().add_to(value)
    }

    /// Sums all additions to one value: one addend for each integer, ordered by offset.
    pub fn sum(added: &[Self]) -> Vec<Addend> {
        let mut sums: Vec<Addend> = Vec::new();
        for addend in added.iter().flat_map(Self::iter) {
            match sums.binary_search_by_key(&addend.offset, |sum| sum.offset) {
                Ok(at) => {
                    let delta = sums[at].delta.wrapping_add(addend.delta);
                    sums[at] = Addend { delta, ..addend }.wrapped();
                }
                Err(at) => sums.insert(at, addend),
            }
        }
        sums
    }

    /// Returns the addends that undo these.
    pub(crate) fn negated(mut self) -> Self {
        for addend in self.all.iter_mut().take(self.len.into()) {
            *addend = Addend { delta: addend.delta.wrapping_neg(), ..*addend }.wrapped();
        }
        self
    }

    /// Returns true if all integers are within a value of `len` bytes.
    pub(crate) fn fits(&self, len: usize) -> bool {
        self.iter().all(|addend| addend.range().end <= len)
    }

    /// Returns the byte range from the first integer to the last, or `None` if there are no
    /// addends.
    pub(crate) fn span(&self) -> Option<Range<usize>> {
        let start = self.iter().map(|addend| addend.range().start).min()?;
        let end = self.iter().map(|addend| addend.range().end).max()?;
        Some(start..end)
    }

    /// Adds to the part of the value that begins at `start`. The part must contain all integers.
    pub(crate) fn add_to_part(&self, part: &mut [u8], start: usize) {
        for addend in self.iter() {
            let Range { start: from, end } = addend.range();
            addend.add_to(&mut part[from - start..end - start]);
        }
    }

    /// Encodes the addends for an undo record: offset, width and delta of each.
    pub(crate) fn encode(&self) -> Encoded {
        let mut out = Encoded { bytes: [0; Self::MOST * (HEAD + 8)], len: 0 };
        for Addend { offset, width, delta } in self.iter() {
            let size = HEAD + usize::from(width);
            let place = &mut out.bytes[out.len..out.len + size];
            place[..2].copy_from_slice(&offset.to_le_bytes());
            place[2] = width;
            place[HEAD..].copy_from_slice(&delta.to_le_bytes()[..width.into()]);
            out.len += size;
        }
        out
    }

    /// Decodes the output of [`Addends::encode`]. Returns `None` if it is malformed or empty.
    pub(crate) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let mut out = Self::default();
        while let Some((&[low, high, width], rest)) = bytes.split_first_chunk::<HEAD>() {
            let (delta, rest) = rest.split_at_checked(width.into())?;
            let mut word = [0; 8];
            word.get_mut(..delta.len())?.copy_from_slice(delta);
            let (offset, delta) = (u16::from_le_bytes([low, high]), i64::from_le_bytes(word));
            out.push(Addend { offset, width, delta }).then_some(())?;
            bytes = rest;
        }
        (bytes.is_empty() && out.len > 0).then_some(out)
    }
}

/// Encoded addends.
pub(crate) struct Encoded {
    bytes: [u8; Addends::MOST * (HEAD + 8)],
    len: usize,
}

impl Encoded {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The result of [`Trees::increment`](crate::Trees::increment).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incremented {
    /// The key does not exist.
    Missing,
    /// `compute` refused, or an integer is out of the value's bounds. Nothing was changed.
    Refused,
    /// These amounts were added.
    Done(Addends),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addends(all: &[(u16, u8, i64)]) -> Addends {
        let mut out = Addends::default();
        for &(offset, width, delta) in all {
            assert!(out.push(Addend { offset, width, delta }));
        }
        out
    }

    #[test]
    fn additions_wrap_at_their_width() {
        let mut value = [0xff; 15];
        value[14] = 7;
        assert!(addends(&[(0, 2, 2), (2, 4, 1), (6, 8, i64::MIN)]).add_to(&mut value));
        let expected = [1, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 7];
        assert_eq!(value, expected);
    }

    /// Invariant 1, also at the limits of the ranges.
    #[test]
    fn subtraction_undoes_one_of_several_additions() {
        let deltas = [i64::MIN, i64::MAX, -1, 0, 1, 1 << 31, -(1 << 15)];
        for (one, other) in deltas.iter().flat_map(|a| deltas.iter().map(move |b| (*a, *b))) {
            let one = addends(&[(1, 2, one), (3, 4, one), (7, 8, one)]);
            let other = addends(&[(1, 2, other), (3, 4, other), (7, 8, other)]);
            let mut value = *b"0123456789abcdef";
            let mut expected = value;
            assert!(other.add_to(&mut expected));
            assert!(
                one.add_to(&mut value) && other.add_to(&mut value) && one.subtract_from(&mut value)
            );
            assert_eq!(value, expected);
        }
    }

    #[test]
    fn too_short_value_is_left_untouched() {
        let all = addends(&[(0, 4, 1), (5, 8, 1)]);
        let mut value = [3; 12];
        assert!(!all.add_to(&mut value) && !all.subtract_from(&mut value));
        assert_eq!(value, [3; 12]);
    }

    #[test]
    fn a_fifth_addend_is_refused() {
        let mut all = addends(&[(0, 2, 1); Addends::MOST]);
        assert!(!all.push(Addend { offset: 2, width: 2, delta: 1 }));
        assert_eq!(all, addends(&[(0, 2, 1); Addends::MOST]));
        assert!(
            [0, 1, 3, 5, 9, 255]
                .iter()
                .all(|&width| { !Addends::default().push(Addend { offset: 0, width, delta: 1 }) })
        );
    }

    #[test]
    fn deltas_wrap_at_their_width() {
        let wrapped = addends(&[(0, 2, -0x7fff), (2, 4, i64::from(i32::MIN)), (6, 8, i64::MIN)]);
        assert_eq!(addends(&[(0, 2, 0x1_8001), (2, 4, 1 << 31), (6, 8, i64::MIN)]), wrapped);
        let sums = Addends::sum(&[wrapped, addends(&[(6, 8, i64::MIN), (0, 2, -2)])]);
        let expected = [(0, 2, 0x7fff), (2, 4, i64::from(i32::MIN)), (6, 8, 0)];
        assert_eq!(sums, addends(&expected).iter().collect::<Vec<_>>());
        assert_eq!(wrapped.negated().negated(), wrapped);
    }

    #[test]
    fn addends_round_trip_and_malformed_bytes_are_refused() {
        let all = addends(&[(1, 2, -2), (300, 4, 70_000), (5, 8, i64::MIN), (u16::MAX, 8, -1)]);
        let encoded = all.encode();
        assert_eq!(encoded.bytes()[..5], [1, 0, 2, 0xfe, 0xff]);
        assert_eq!(Addends::decode(encoded.bytes()), Some(all));
        let whole = [5, 5 + 7, 5 + 7 + 11, encoded.len];
        for cut in 0..encoded.len {
            assert_eq!(Addends::decode(&encoded.bytes()[..cut]).is_some(), whole.contains(&cut));
        }
        assert!(Addends::decode(&[encoded.bytes(), &[0, 0, 2, 0, 0]].concat()).is_none(), "five");
        for width in (0..=u8::MAX).filter(|width| !matches!(width, 2 | 4 | 8)) {
            let bytes = [&[0, 0, width][..], &vec![1; width.into()]].concat();
            assert!(Addends::decode(&bytes).is_none(), "width {width}");
        }
    }
}
