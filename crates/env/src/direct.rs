//! Direct I/O: pages move between the device and the buffer pool, and the operating system keeps no
//! second copy.
//!
//! Memory, offset and length of every direct read or write must be aligned to [`ALIGN`]. The buffer
//! pool's frames and [`Aligned`] are. An unaligned read, and a write from unaligned memory, goes
//! through a temporary buffer. A write whose offset or length is not aligned is refused; writes to
//! page files are aligned.
//!
//! Some file systems refuse to open a file for direct I/O. The file is then opened normally, unless
//! direct I/O is required.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, OFlags, StatxFlags};

use crate::disk::{Disk, DiskLock, File, FileId, Open};
use crate::memory::{ALIGN, Aligned};
use crate::os_disk::{self, OsDisk, OsFile};

/// `STATX_DIOALIGN`, since Linux 6.1.
const DIO_ALIGN: StatxFlags = StatxFlags::from_bits_retain(0x2000);

/// The operating system's file system, with direct I/O for files opened by [`Disk::open_pages`].
#[derive(Debug, Default)]
pub struct DirectDisk {
    required: bool,
    refused: AtomicBool,
}

impl DirectDisk {
    /// Creates the disk. If `required`, opening a page file without direct I/O fails.
    pub fn new(required: bool) -> Self {
        Self { required, refused: AtomicBool::new(false) }
    }

    /// Returns true if a file was opened without direct I/O because the file system refused it.
    pub fn refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed) // Relaxed: a flag that orders no other memory.
    }
}

/// Returns true if direct I/O aligned to [`ALIGN`] works for the file, or if the kernel does not
/// report the alignment.
fn suits(file: &fs::File) -> bool {
    rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, DIO_ALIGN).map_or(true, |stat| {
        let known = stat.stx_mask & DIO_ALIGN.bits() != 0;
        let suits = |align: u32| align > 0 && align as usize <= ALIGN;
        !known || (suits(stat.stx_dio_mem_align) && suits(stat.stx_dio_offset_align))
    })
}

impl Disk for DirectDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        OsDisk.open(path, how)
    }

    fn open_pages(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        match os_disk::open(path, how, OFlags::DIRECT) {
            Ok(file) if suits(&file) => return Ok(Arc::new(OsFile::new(file, path, true)?)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            Err(error) => return Err(error),
        }
        if self.required {
            let message =
                format!("open {}: the file system does not support direct I/O", path.display());
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        self.refused.store(true, Ordering::Relaxed); // Relaxed: see `refused`.
        // The failed attempt may have created the file.
        let how = if how == Open::Create { Open::OpenOrCreate } else { how };
        OsDisk.open(path, how)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        OsDisk.exists(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        OsDisk.create_dir_all(path)
    }

    fn others_may_write(&self, path: &Path) -> io::Result<bool> {
        OsDisk.others_may_write(path)
    }

    fn identity(&self, path: &Path) -> io::Result<Option<FileId>> {
        OsDisk.identity(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        OsDisk.list(dir)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        OsDisk.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsDisk.rename(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        OsDisk.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<DiskLock> {
        OsDisk.lock(path)
    }
}

/// Returns true if memory, length and offset are aligned for direct I/O.
pub(crate) fn is_aligned(bytes: &[u8], offset: u64) -> bool {
    (bytes.as_ptr() as usize | bytes.len()).is_multiple_of(ALIGN)
        && offset.is_multiple_of(ALIGN as u64)
}

/// Reads from a file opened for direct I/O.
pub(crate) fn read_at(file: &fs::File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    if is_aligned(buf, offset) {
        return file.read_at(buf, offset);
    }
    let before = (offset % ALIGN as u64) as usize;
    let mut bounce = Aligned::new((before + buf.len()).next_multiple_of(ALIGN));
    let read = file.read_at(&mut bounce, offset - before as u64)?;
    let n = read.saturating_sub(before).min(buf.len());
    buf[..n].copy_from_slice(&bounce[before..before + n]);
    Ok(n)
}

/// Writes to a file opened for direct I/O.
pub(crate) fn write_all_at(file: &fs::File, buf: &[u8], offset: u64) -> io::Result<()> {
    if !buf.len().is_multiple_of(ALIGN) || !offset.is_multiple_of(ALIGN as u64) {
        let message = format!("{} bytes at {offset}: not aligned for direct I/O", buf.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    if !is_aligned(buf, offset) {
        let mut bounce = Aligned::new(buf.len());
        bounce.copy_from_slice(buf);
        return write_all_at(file, &bounce, offset);
    }
    let mut progress = Progress::new(buf.len());
    while !progress.is_over() {
        let at = progress.at();
        match file.write_at(&buf[at..], offset + at as u64) {
            Ok(n) => progress.wrote(n)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The progress of an operation in pieces. All pieces except the last must be aligned, so each
/// starts at the last aligned position.
pub(crate) struct Progress {
    done: usize,
    len: usize,
}

impl Progress {
    pub(crate) fn new(len: usize) -> Self {
        Self { done: 0, len }
    }

    /// Returns the offset at which to continue.
    pub(crate) fn at(&self) -> usize {
        if self.is_over() { self.len } else { self.done - self.done % ALIGN }
    }

    /// Returns the total length.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_over(&self) -> bool {
        self.done >= self.len
    }

    /// Records a piece of `n` bytes starting at `at`. Returns true if it made progress.
    fn moved(&mut self, n: usize) -> bool {
        let now = self.at() + n;
        let further = now > self.done;
        self.done = self.done.max(now);
        further
    }

    /// Records `n` bytes written starting at `at`. A piece without progress is an error. A full
    /// disk reports its error at the attempt after a short write.
    pub(crate) fn wrote(&mut self, n: usize) -> io::Result<()> {
        if self.moved(n) { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Records `n` bytes read starting at `at`. At the end, returns the total number of bytes read.
    pub(crate) fn read(&mut self, n: usize) -> Option<usize> {
        let further = self.moved(n);
        (self.is_over() || !further).then_some(self.done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_continues_from_aligned_offsets() {
        let mut read = Progress::new(8192);
        assert_eq!((read.read(5000), read.at()), (None, 4096));
        assert_eq!(read.read(904), Some(5000), "the same end again: it is the file's");
        let mut read = Progress::new(8192);
        assert_eq!(read.read(0), Some(0));
        let mut read = Progress::new(8192);
        assert_eq!((read.read(4096), read.read(4096)), (None, Some(8192)));
        let mut write = Progress::new(8192);
        assert!(write.wrote(6000).is_ok() && !write.is_over() && write.at() == 4096);
        assert!(write.wrote(4096).is_ok() && write.is_over());
        assert!(Progress::new(8192).wrote(0).is_err());
    }
}
