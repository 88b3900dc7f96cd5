//! Memory that the kernel's ring knows beforehand: for a request whose bytes lie in it the kernel
//! need not look up and pin each page, and let it go again.
//!
//! The ring has a table of buffers. A region of memory takes as many neighbouring places in it as
//! the longest buffer that the kernel allows makes necessary; a request must lie in one buffer.
//!
//! # Invariants
//! 1. Memory that is in the table stays in place until the ring is gone: the kernel goes by the
//!    pages that were there when it was registered.
//! 2. A region is in the table as a whole or not at all.

use std::ffi::c_void;
use std::io;
use std::slice;

use io_uring::IoUring;

use crate::memory::IoMemory;

/// How much the table holds.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes of a buffer.
    pub(crate) buffer: usize,
    /// Buffers.
    pub(crate) buffers: u16,
}

impl Limits {
    /// The kernel's bound of a buffer, and as many of them as make up 1 TiB.
    pub(crate) const KERNELS: Self = Self { buffer: 1 << 30, buffers: 1024 };
}

/// The `iovec` of C.
#[repr(C)]
struct IoVec {
    start: *mut c_void,
    len: usize,
}

struct Region {
    memory: IoMemory,
    first: u16,
}

/// The ring's table of buffers.
pub(crate) struct Table {
    regions: Vec<Region>,
    /// Places that are taken.
    taken: u16,
    /// Whether the kernel has the table, still empty or not.
    made: bool,
    limits: Limits,
}

impl Table {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { regions: Vec::new(), taken: 0, made: false, limits }
    }

    /// The buffer that has all of these bytes.
    pub(crate) fn find(&self, start: *const u8, len: usize) -> Option<u16> {
        self.regions.iter().find_map(|region| {
            let at = start.addr().checked_sub(region.memory.start().addr().get())?;
            let within = at.checked_add(len)? <= region.memory.len();
            let in_one = at % self.limits.buffer + len <= self.limits.buffer;
            (within && in_one).then(|| region.first + (at / self.limits.buffer) as u16)
        })
    }

    /// Registers the memory, on the thread that has the ring. It becomes resident and stays so.
    ///
    /// # Errors
    /// The kernel knows no such table (before Linux 5.19), the process may not lock so much memory,
    /// or the table has no room.
    pub(crate) fn add(&mut self, ring: &IoUring, memory: IoMemory) -> io::Result<()> {
        let count = memory.len().div_ceil(self.limits.buffer);
        if count > usize::from(self.limits.buffers - self.taken) {
            return Err(io::Error::other("it takes more buffers than a ring has"));
        }
        if !self.made {
            ring.submitter().register_buffers_sparse(self.limits.buffers.into())?;
            self.made = true;
        }
        for number in 0..count {
            let at = number * self.limits.buffer;
            let start = memory.start().as_ptr().wrapping_add(at).cast();
            let buffer = IoVec { start, len: (memory.len() - at).min(self.limits.buffer) };
            let Err(error) = update(ring, self.taken + number as u16, &buffer) else { continue };
            for before in 0..number {
                // No request knows these places, and nothing in them can be refused.
                let _ = update(
                    ring,
                    self.taken + before as u16,
                    &IoVec { start: std::ptr::null_mut(), len: 0 },
                );
            }
            return Err(error);
        }
        self.regions.push(Region { memory, first: self.taken });
        self.taken += count as u16;
        Ok(())
    }

    /// Gives everything back, so that it no longer counts as locked; no request may be in flight.
    pub(crate) fn clear(&mut self, ring: &IoUring) {
        if self.made {
            // It fails only if there is no table; in any case the ring's own end does the same,
            // later.
            let _ = ring.submitter().unregister_buffers();
            self.regions.clear();
        }
    }
}

fn update(ring: &IoUring, place: u16, buffer: &IoVec) -> io::Result<()> {
    // SAFETY: `IoVec` is C's `iovec`, and there is one. Its memory stays in place until the ring is
    // gone, or what failed has been taken back (invariant 1); who uses the bytes meanwhile is the
    // matter of the requests.
    unsafe {
        let buffers = slice::from_raw_parts(std::ptr::from_ref(buffer).cast(), 1);
        ring.submitter().register_buffers_update(place.into(), buffers, None)
    }
}

#[cfg(test)]
#[path = "registered_tests.rs"]
mod tests;
