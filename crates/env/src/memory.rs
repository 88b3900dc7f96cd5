//! Memory that stays where it is, for what goes to a disk and comes from it.
//!
//! # Invariants
//! 1. The memory is in place, and mapped, as long as a clone of its [`IoMemory`] lives.
//! 2. The bytes of an [`Aligned`] are reached through it alone: clones of its memory are for who
//!    wants the memory to stay.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

/// What direct I/O is aligned to, in bytes.
pub const ALIGN: usize = 4096;

/// Memory, at first zeros, and not resident until it is touched. Clones are of the same memory. Who
/// dereferences its address answers for exclusion.
#[derive(Clone)]
pub struct IoMemory(Arc<Allocation>);

struct Allocation {
    start: NonNull<u8>,
    len: usize,
    whole: NonNull<[u8]>,
}

// SAFETY: it never changes, and does not reach the bytes itself; who does answers for exclusion.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

impl IoMemory {
    /// `len` bytes, aligned to `align`, a power of two.
    pub fn new(len: usize, align: usize) -> Self {
        // Not by a layout that has the alignment: the system's allocator then writes the zeros, and
        // all of it is resident.
        let whole = Box::leak(vec![0_u8; len + align].into_boxed_slice());
        let offset = whole.as_ptr().align_offset(align);
        assert!(offset < align, "there is room to align");
        let whole = NonNull::from(whole);
        // SAFETY: the allocation is `align` bytes longer than what is used of it.
        let start = unsafe { whole.cast::<u8>().add(offset) };
        Self(Arc::new(Allocation { start, len, whole }))
    }

    /// Where the first byte is.
    #[inline]
    pub fn start(&self) -> NonNull<u8> {
        self.0.start
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: `whole` is what `Box::leak` gave in `new`, and nobody has the address any more
        // who may use it.
        drop(unsafe { Box::from_raw(self.whole.as_ptr()) });
    }
}

/// Bytes aligned to [`ALIGN`], at first zeros.
pub struct Aligned(IoMemory);

impl Aligned {
    /// So many zeros.
    pub fn new(len: usize) -> Self {
        Self(IoMemory::new(len, ALIGN))
    }

    /// What holds the bytes in place.
    pub fn memory(&self) -> &IoMemory {
        &self.0
    }
}

impl Deref for Aligned {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: so many bytes are there, initialised, as long as `self` is; and are written only
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
