//! Takes a target's choices off the front of its input. What is missing reads as zero, so that
//! every input means something.

/// The rest of an input.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// All of an input.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let taken = self.bytes(N);
        out[..taken.len()].copy_from_slice(taken);
        out
    }
    /// The next byte.
    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }
    /// The next two bytes, little-endian.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }
    /// The next eight bytes, little-endian.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }
    /// The next `n` bytes, or as many as there are.
    pub fn bytes(&mut self, n: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        head
    }
    /// All that is left.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }
    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
