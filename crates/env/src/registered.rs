//! Memory registered with io_uring. For a request whose bytes are in registered memory, the kernel
//! need not look up, pin and unpin each page.
//!
//! The ring has a table of buffers. A memory region uses as many adjacent entries as the kernel's
//! maximum buffer size requires. A request must fit in one buffer.
//!
//! # Invariants
//! 1. Memory in the table stays in place until the ring is dropped: the kernel uses the pages that
//!    were there at registration.
//! 2. A region is in the table as a whole or not at all.

use std::ffi::c_void;
use std::io;
use std::slice;

use io_uring::IoUring;

use crate::memory::IoMemory;

/// Limits of the table.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes per buffer.
    pub(crate) buffer: usize,
    /// Number of buffers.
    pub(crate) buffers: u16,
}

impl Limits {
    /// The kernel's maximum buffer size, and enough buffers for 1 TiB.
    pub(crate) const KERNELS: Self = Self { buffer: 1 << 30, buffers: 1024 };
}

/// C's `iovec`.
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
    /// Entries in use.
    taken: u16,
    /// True if the kernel has the table, empty or not.
    made: bool,
    limits: Limits,
}

impl Table {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { regions: Vec::new(), taken: 0, made: false, limits }
    }

    /// Returns the buffer that contains all of these bytes.
    pub(crate) fn find(&self, start: *const u8, len: usize) -> Option<u16> {
        self.regions.iter().find_map(|region| {
            let at = start.addr().checked_sub(region.memory.start().addr().get())?;
            let within = at.checked_add(len)? <= region.memory.len();
            let in_one = at % self.limits.buffer + len <= self.limits.buffer;
            (within && in_one).then(|| region.first + (at / self.limits.buffer) as u16)
        })
    }

    /// Registers the memory, which becomes resident and stays so. Runs on the thread that owns the
    /// ring.
    ///
    /// # Errors
    /// The kernel does not support sparse tables (before Linux 5.19), the process may not lock that
    /// much memory, or the table is full.
    pub(crate) fn add(&mut self, ring: &IoUring, memory: IoMemory) -> io::Result<()> {
        let count = memory.len().div_ceil(self.limits.buffer);
        if count > usize::from(self.limits.buffers - self.taken) {
            return Err(io::Error::other("the memory needs more buffers than a ring has"));
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
                // No request uses these entries, and clearing them cannot be refused.
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

    /// Unregisters everything, so that it no longer counts as locked. No request may be in flight.
    pub(crate) fn clear(&mut self, ring: &IoUring) {
        if self.made {
            // Fails only if there is no table. Dropping the ring does the same later in any case.
            let _ = ring.submitter().unregister_buffers();
            self.regions.clear();
        }
    }
}

fn update(ring: &IoUring, place: u16, buffer: &IoVec) -> io::Result<()> {
    // SAFETY: `IoVec` has the layout of C's `iovec`, and there is one. Its memory stays in place
    // until the ring is dropped, or until a failed registration is rolled back (invariant 1). The
    // requests are responsible for exclusive access to the bytes.
    unsafe {
        let buffers = slice::from_raw_parts(std::ptr::from_ref(buffer).cast(), 1);
        ring.submitter().register_buffers_update(place.into(), buffers, None)
    }
}

#[cfg(test)]
#[path = "registered_tests.rs"]
mod tests;
