//! Takes a target's choices from the front of its input. Missing bytes read as zero, so every input
//! is valid.

/// The unread rest of an input.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// Starts at the beginning of an input.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
    /// Returns the next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let taken = self.bytes(N);
        out[..taken.len()].copy_from_slice(taken);
        out
    }
    /// Returns the next byte.
    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }
    /// Returns the next two bytes as a little-endian integer.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }
    /// Returns the next eight bytes as a little-endian integer.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }
    /// Returns the next `n` bytes, or all that are left.
    pub fn bytes(&mut self, n: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        head
    }
    /// Returns all remaining bytes.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }
    /// Returns true if no bytes are left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
