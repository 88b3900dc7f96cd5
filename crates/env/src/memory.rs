//! Memory at a stable address for disk I/O.
//!
//! # Invariants
//! 1. The memory stays mapped at its address while a clone of its [`IoMemory`] lives.
//! 2. The bytes of an [`Aligned`] are accessed only through it. Clones of its memory only keep the
//!    memory alive.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

/// Alignment for direct I/O, in bytes.
pub const ALIGN: usize = 4096;

/// Memory, initially zeros, that is not resident until it is touched. Clones share the memory. Code
/// that dereferences the address must ensure exclusive access.
#[derive(Clone)]
pub struct IoMemory(Arc<Allocation>);

struct Allocation {
    start: NonNull<u8>,
    len: usize,
    whole: NonNull<[u8]>,
}

// SAFETY: the value never changes and does not access the bytes. Code that does must ensure
// exclusive access.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

impl IoMemory {
    /// Allocates `len` bytes, aligned to `align`, a power of two.
    pub fn new(len: usize, align: usize) -> Self {
        // Not with an aligned layout: the system's allocator would then write the zeros, which
        // makes all pages resident.
        let whole = Box::leak(vec![0_u8; len + align].into_boxed_slice());
        let offset = whole.as_ptr().align_offset(align);
        assert!(offset < align, "there is room to align");
        let whole = NonNull::from(whole);
        // SAFETY: the allocation is `align` bytes longer than the used part.
        let start = unsafe { whole.cast::<u8>().add(offset) };
        Self(Arc::new(Allocation { start, len, whole }))
    }

    /// Returns the address of the first byte.
    #[inline]
    pub fn start(&self) -> NonNull<u8> {
        self.0.start
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Returns true if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: `whole` came from `Box::leak` in `new`, and no user of the address is left.
        drop(unsafe { Box::from_raw(self.whole.as_ptr()) });
    }
}

/// Bytes aligned to [`ALIGN`], initially zeros.
pub struct Aligned(IoMemory);

impl Aligned {
    /// Allocates `len` zero bytes.
    pub fn new(len: usize) -> Self {
        Self(IoMemory::new(len, ALIGN))
    }

    /// Returns the memory that holds the bytes.
    pub fn memory(&self) -> &IoMemory {
        &self.0
    }
}

impl Deref for Aligned {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes exist as long as `self`, and they are written only
        // through `&mut self` (invariant 2).
        unsafe { slice::from_raw_parts(self.0.start().as_ptr(), self.0.len()) }
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { slice::from_raw_parts_mut(self.0.start().as_ptr(), self.0.len()) }
    }
}
