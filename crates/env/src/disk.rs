//! A directory tree of files, as the engine sees it.

use std::io;
use std::path::Path;
use std::sync::Arc;

/// How [`Disk::open`] treats a file that is there or is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// The file must exist; `NotFound` otherwise.
    Existing,
    /// The file must not exist; `AlreadyExists` otherwise.
    Create,
    /// The file is created, empty, if it does not exist.
    OpenOrCreate,
}

/// Holds a lock taken by [`Disk::lock`]; dropping it, or the death of the process, lets go.
pub type DiskLock = Box<dyn Send + Sync>;

/// A tree of directories and files. Every method may block.
///
/// A created, renamed or removed name is sure to survive a crash only after [`Disk::sync_dir`] of the directory that
/// holds it. Errors carry the path and the operation in their text, and the operating system's [`io::ErrorKind`].
pub trait Disk: Send + Sync {
    /// Opens a file for reading and writing.
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>>;

    /// Whether a file or directory of this name is there.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Creates the directory and those above it; no error if they exist.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// The names of the files and directories directly in `dir`, sorted. Names that are not UTF-8 are left out: the
    /// engine creates none.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Removes a file's name. Who has the file open can go on using it.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Gives a file a new name, in one step, in place of any file that has that name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Makes the names in `dir` as they are now survive a crash.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Takes an exclusive advisory lock on a file, created if needed. `WouldBlock` if someone holds it: another
    /// process or this one.
    fn lock(&self, path: &Path) -> io::Result<DiskLock>;
}

/// An open file. Offsets and lengths are in bytes; calls may come from many threads at once.
///
/// What is written is sure to survive a crash only after [`File::sync_data`] has returned `Ok`; until then each
/// 512-byte sector may survive or not by itself. After a failed `sync_data` nothing may be assumed of the writes before
/// it, and another `sync_data` proves nothing about them.
pub trait File: Send + Sync {
    /// Reads into `buf` from byte `offset` on, and returns how many bytes were read: less than `buf.len()` at the end
    /// of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Fills `buf` from byte `offset` on; `UnexpectedEof` if the file ends before.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut filled = 0;
        while filled < buf.len() {
            match self.read_at(&mut buf[filled..], offset + filled as u64) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                Ok(n) => filled += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all of `buf` from byte `offset` on; the file grows as needed, a gap reads as zeros.
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Returns when all that was written before, and the length, survive a crash.
    fn sync_data(&self) -> io::Result<()>;

    /// Cuts the file, or lengthens it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// The file's length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file's length is zero.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}
