//! A value with cache lines of its own.

use std::ops::{Deref, DerefMut};

/// Keeps a value apart from its neighbours' cache lines, so that writing one does not slow down
/// readers of the other.
///
/// 128 bytes: x86-64 fetches lines of 64 bytes in pairs, and Apple's arm64 has lines of 128.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(128))]
pub struct CachePadded<T>(T);

impl<T> CachePadded<T> {
    /// Pads `value`.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// Returns the value without its padding.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for CachePadded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for CachePadded<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_apart() {
        let pair = [CachePadded::new(1_u8), CachePadded::new(2)];
        let apart = (&raw const *pair[1]).addr() - (&raw const *pair[0]).addr();
        assert_eq!((apart, (&raw const *pair[0]).addr() % 128), (128, 0));
        assert_eq!(pair[1].into_inner(), 2);
    }
}
