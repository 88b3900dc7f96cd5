//! Memory shared with the device, and requests that name it. All `unsafe` code of the crate is
//! here.

use crate::{FabricError, ScratchRange};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::memory_region::MemoryRegion;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::SetScatterGatherEntry;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Words registered with a device.
pub(super) struct Memory {
    // Dropped first: the device must forget the words before they are freed.
    registration: Arc<MemoryRegion>,
    words: Box<[AtomicU64]>,
}

impl Memory {
    /// Registers `words` zeros. Peers can access them only if `remote` is set.
    pub fn new(
        domain: &Arc<ProtectionDomain>,
        words: usize,
        remote: bool,
    ) -> Result<Self, FabricError> {
        let words: Box<[AtomicU64]> = (0..words).map(|_| AtomicU64::new(0)).collect();
        let mut access = AccessFlags::LocalWrite;
        if remote {
            access |=
                AccessFlags::RemoteRead | AccessFlags::RemoteWrite | AccessFlags::RemoteAtomic;
        }
        // SAFETY: the address is valid for `words.len() * 8` bytes until `words` is dropped, which
        // is after the registration (invariant 1). All other accesses to them are atomic (invariant
        // 2), so the device's writes break no borrow.
        let registration = unsafe { domain.reg_mr(words.as_ptr().addr(), words.len() * 8, access) };
        let registration = registration.map_err(|why| FabricError::Io(io::Error::other(why)))?;
        Ok(Self { registration, words })
    }

    pub fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    /// Returns what peers need: the remote key and the first word's address.
    pub fn key(&self) -> (u32, u64) {
        (self.registration.rkey(), self.words.as_ptr().addr() as u64)
    }

    /// Names words of this scratch memory in a request.
    pub fn name(&self, range: ScratchRange, request: impl SetScatterGatherEntry) {
        let words = &self.words[range.start..range.start + range.words];
        let address = words.as_ptr().addr() as u64;
        // SAFETY: the words are registered under this key. They stay registered until the worker's
        // queue pairs, which may use them, have been destroyed (invariant 1).
        unsafe { request.setup_sge(self.registration.lkey(), address, (words.len() * 8) as u32) };
    }
}
