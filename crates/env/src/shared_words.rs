//! Memory shared by several processes: words in an anonymous file (memfd).
//!
//! # Invariants
//! 1. The file is sealed against shrinking before any process maps it, so a mapped page always
//!    exists.
//! 2. The words are accessed only as atomics.
//!
//! If a process dies, the words stay as they are. The memory is freed with the last process that
//! maps it.

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::slice;
// The standard library's atomics, not a model checker's: other processes use the memory, too.
use std::sync::atomic::AtomicU64;

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// 64-bit words shared by processes, initially zeros.
pub struct SharedWords {
    start: NonNull<AtomicU64>,
    words: usize,
    file: OwnedFd,
}

// SAFETY: the mapping belongs to the value, not to a thread, and its words are atomics.
unsafe impl Send for SharedWords {}
// SAFETY: as above; shared access exposes only atomics (invariant 2).
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Creates a file of `words` zeros and maps it. Memory is allocated as words are touched.
    ///
    /// # Errors
    /// The system's error, or `InvalidInput` if `words` is 0.
    pub fn create(name: &str, words: usize) -> io::Result<Self> {
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let bytes = words.checked_mul(8).ok_or(io::ErrorKind::InvalidInput)?;
        rustix::fs::ftruncate(&file, bytes as u64)?;
        rustix::fs::fcntl_add_seals(&file, SEALS | SealFlags::SEAL)?;
        Self::map(file)
    }

    /// Maps a file that another process created and published with [`SharedWords::path`].
    ///
    /// # Errors
    /// The system's error, or `InvalidData` if the file was not created by [`SharedWords::create`].
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::map(rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
    }

    fn map(file: OwnedFd) -> io::Result<Self> {
        if !rustix::fs::fcntl_get_seals(&file)?.contains(SEALS) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the file could shrink"));
        }
        let bytes = usize::try_from(rustix::fs::fstat(&file)?.st_size).map_err(io::Error::other)?;
        if bytes == 0 || !bytes.is_multiple_of(8) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses; it overlaps nothing.
        let start = unsafe {
            rustix::mm::mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, file.as_fd(), 0)?
        };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { start, words: bytes / 8, file })
    }

    /// Returns the path under which other processes of the same user can open the file while this
    /// process lives.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }
}

impl Deref for SharedWords {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: `words` words are mapped, page-aligned, until `self` is dropped, and cannot
        // disappear (invariant 1). Every bit pattern is valid, and all accesses are atomic
        // (invariant 2).
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: this is exactly what `map` mapped, and no borrow of it outlives `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.words * 8) };
        debug_assert!(unmapped.is_ok(), "a whole mapping can be unmapped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::atomic::Ordering;

    #[test]
    fn two_mappings_share_the_words() {
        let made = SharedWords::create("words", 1000).unwrap();
        let opened = SharedWords::open(&made.path()).unwrap();
        assert_eq!((made.len(), opened.len()), (1000, 1000));
        made[999].store(7, Ordering::Relaxed); // One thread.
        assert_eq!(opened[999].load(Ordering::Relaxed), 7);
        drop(made);
        assert_eq!(opened[999].load(Ordering::Relaxed), 7);
    }

    #[test]
    fn file_cannot_be_resized() {
        let made = SharedWords::create("words", 8).unwrap();
        let file = std::fs::File::options().write(true).open(made.path()).unwrap();
        assert!(file.set_len(8).is_err());
        assert!(file.set_len(1 << 20).is_err());
    }

    #[test]
    fn other_files_are_refused() {
        let path =
            std::env::temp_dir().join(format!("clearway-shared-words-{}", std::process::id()));
        std::fs::File::create(&path).unwrap().write_all(&[0; 64]).unwrap();
        assert!(SharedWords::open(&path).is_err());
        std::fs::remove_file(&path).unwrap();
        assert!(SharedWords::open(&path).is_err());
        assert!(SharedWords::create("words", 0).is_err());
    }
}
