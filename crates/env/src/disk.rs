//! A directory tree of files, as the engine sees it.

use std::io;
use std::os::fd::BorrowedFd;
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
    /// As `OpenOrCreate`, in a directory where others may have put something of that name. Refused
    /// (`PermissionDenied`) are symbolic links, files with a second name and files of another user;
    /// what others may do with the file is taken away.
    Private,
}

/// Holds a lock taken by [`Disk::lock`]; dropping it, or the death of the process, lets go.
pub type DiskLock = Box<dyn Send + Sync>;

/// Whether the error says that there is no room: the disk is full, a quota is used up, or a limit
/// on the size of files is reached.
pub fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// A tree of directories and files. Every method may block.
///
/// A created, renamed or removed name is sure to survive a crash only after [`Disk::sync_dir`] of
/// the directory that holds it. Errors carry the path and the operation in their text, and the
/// operating system's [`io::ErrorKind`].
pub trait Disk: Send + Sync {
    /// Opens a file for reading and writing.
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>>;

    /// As [`Disk::open`], for a file that is read and written by pages: at offsets and lengths that
    /// are multiples of 4096, but for reads that need not be fast.
    fn open_pages(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        self.open(path, how)
    }

    /// Whether a file or directory of this name is there.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Creates the directory and those above it; no error if they exist. Whatever is created, files
    /// too, only its owner can read or write.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Whether users other than its owner may write to a file or directory. (By default: for a disk
    /// without users.)
    fn others_may_write(&self, path: &Path) -> io::Result<bool> {
        let _ = path;
        Ok(false)
    }

    /// The names of the files and directories directly in `dir`, sorted. Names that are not UTF-8
    /// are left out: the engine creates none.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Removes a file's name. Who has the file open can go on using it.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Gives a file a new name, in one step, in place of any file that has that name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Makes the names in `dir` as they are now survive a crash.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Takes an exclusive advisory lock on a file, created if needed. `WouldBlock` if someone holds
    /// it: another process or this one. A symbolic link is refused.
    fn lock(&self, path: &Path) -> io::Result<DiskLock>;
}

/// An open file. Offsets and lengths are in bytes; calls may come from many threads at once.
///
/// What is written is sure to survive a crash only after [`File::sync_data`] has returned `Ok`;
/// until then each 512-byte sector may survive or not by itself. After a failed `sync_data` nothing
/// may be assumed of the writes before it, and another `sync_data` proves nothing about them.
pub trait File: Send + Sync {
    /// Reads into `buf` from byte `offset` on, and returns how many bytes were read: less than
    /// `buf.len()` at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Reads from byte `offset` on until `buf` is full or the file ends, and returns how many bytes
    /// were read.
    fn read_up_to(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buf.len() {
            match self.read_at(&mut buf[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// Fills `buf` from byte `offset` on; `UnexpectedEof` if the file ends before.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if self.read_up_to(buf, offset)? < buf.len() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        Ok(())
    }

    /// Fills `buf` from byte `offset` on, with zeros where the file ends before.
    fn read_zero_filled_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let filled = self.read_up_to(buf, offset)?;
        buf[filled..].fill(0);
        Ok(())
    }

    /// Writes all of `buf` from byte `offset` on; the file grows as needed, a gap reads as zeros.
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Returns when all that was written before, and the length, survive a crash.
    fn sync_data(&self) -> io::Result<()>;

    /// Cuts the file, or lengthens it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Sees to it that the disk has space for the `len` bytes from `offset` on: writing them later
    /// does not fail for lack of it. Content and length stay (where the file system cannot do that,
    /// zeros are written behind the end). An error leaves possibly some of the space taken; a crash
    /// of the system may lose space that was not written to. (By default: for a disk whose space is
    /// not counted.)
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let _ = (offset, len);
        Ok(())
    }

    /// The file's length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// The operating system's descriptor, if it has one, for reads and writes beside those above.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether the file's length is zero.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}
