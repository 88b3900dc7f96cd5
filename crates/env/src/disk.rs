//! A directory tree of files, as the engine sees it.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

/// How [`Disk::open`] treats an existing or missing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// The file must exist; `NotFound` otherwise.
    Existing,
    /// The file must not exist; `AlreadyExists` otherwise.
    Create,
    /// The file is created, empty, if it does not exist.
    OpenOrCreate,
    /// Like `OpenOrCreate`, in a directory where other users may have placed a file of that name.
    /// Refuses (`PermissionDenied`) symbolic links, files with a second hard link and files of
    /// another user. Removes other users' permissions.
    Private,
}

/// Holds a lock taken by [`Disk::lock`]. Dropping it, or the death of the process, releases the
/// lock.
pub type DiskLock = Box<dyn Send + Sync>;

/// Identifies a file among all that exist: its device and its inode. A name may move from one file
/// to another.
pub type FileId = (u64, u64);

/// Returns true if the error means that there is no space: the disk is full, a quota is exhausted,
/// or a file size limit is reached.
pub fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// A tree of directories and files. Every method may block.
///
/// A created, renamed or removed name is guaranteed to survive a crash only after
/// [`Disk::sync_dir`] of its directory. An error's text contains the path and the operation; its
/// [`io::ErrorKind`] is the operating system's.
pub trait Disk: Send + Sync {
    /// Opens a file for reading and writing.
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>>;

    /// Like [`Disk::open`], for a file that is read and written in pages: offsets and lengths are
    /// multiples of 4096, except for reads that need not be fast.
    fn open_pages(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        self.open(path, how)
    }

    /// Returns true if a file or directory of this name exists.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Creates the directory and its parents; succeeds if they exist. Everything created through a
    /// `Disk`, files included, is accessible only to its owner.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Returns true if users other than its owner may write to a file or directory. (Default:
    /// false, for a disk without users.)
    fn others_may_write(&self, path: &Path) -> io::Result<bool> {
        let _ = path;
        Ok(false)
    }

    /// Returns which file or directory has this name; `None` if none has. (Default: always the
    /// same, for a disk whose directories nobody else changes.)
    fn identity(&self, path: &Path) -> io::Result<Option<FileId>> {
        let _ = path;
        Ok(Some((0, 0)))
    }

    /// Returns the names of the files and directories directly in `dir`, sorted. Skips names that
    /// are not UTF-8: the engine creates none.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Removes a file's name. Open handles stay usable.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Renames a file atomically, replacing any file of the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Makes the current names in `dir` survive a crash.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Takes an exclusive advisory lock on a file, created if needed. Returns `WouldBlock` if this
    /// or another process holds it. Refuses a symbolic link.
    fn lock(&self, path: &Path) -> io::Result<DiskLock>;
}

/// An open file. Offsets and lengths are in bytes; calls may come from many threads at once.
///
/// Written data is guaranteed to survive a crash only after [`File::sync_data`] has returned `Ok`.
/// Until then each 512-byte sector may or may not survive independently. After a failed `sync_data`
/// nothing may be assumed about the writes before it, and another `sync_data` proves nothing about
/// them.
pub trait File: Send + Sync {
    /// Reads into `buf` from byte `offset` on. Returns the number of bytes read, which is less than
    /// `buf.len()` only at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Reads from byte `offset` on until `buf` is full or the file ends. Returns the number of
    /// bytes read.
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

    /// Fills `buf` from byte `offset` on. Returns `UnexpectedEof` if the file ends first.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if self.read_up_to(buf, offset)? < buf.len() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        Ok(())
    }

    /// Fills `buf` from byte `offset` on, with zeros beyond the end of the file.
    fn read_zero_filled_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let filled = self.read_up_to(buf, offset)?;
        buf[filled..].fill(0);
        Ok(())
    }

    /// Writes all of `buf` at byte `offset`. The file grows as needed; a gap reads as zeros.
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Returns when all earlier writes, and the length, survive a crash.
    fn sync_data(&self) -> io::Result<()>;

    /// Truncates the file, or extends it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Reserves disk space for the `len` bytes from `offset` on, so that writing them later does
    /// not fail for lack of space. Content and length stay unchanged. Where the file system cannot
    /// do that, zeros are written beyond the end, and holes are rewritten as they are: nothing else
    /// may write to these bytes meanwhile. Refuses space beyond the process's limit on file sizes
    /// (`FileTooLarge`). After an error some of the space may be reserved. A crash of the system
    /// may lose space that was not written to. (Default: does nothing, for a disk that does not
    /// count space.)
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let _ = (offset, len);
        Ok(())
    }

    /// Returns the file's length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Returns the operating system's descriptor, if any, for I/O other than the methods above.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Returns true if the file's length is zero.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}
