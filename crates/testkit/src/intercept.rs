//! A disk in front of another disk. An [`Intercept`] sees the operations on its files; everything
//! else passes straight through.
//!
//! For tests that count, delay or fail the engine's file operations.

use clearway_env::{Disk, DiskLock, File, FileId, Open};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file of the underlying disk, and the name by which it was opened.
pub struct Opened {
    /// The name by which it was opened.
    pub path: PathBuf,
    /// The file.
    pub file: Arc<dyn File>,
}

/// Intercepts the operations on every file of a disk. The defaults pass them through.
pub trait Intercept: Send + Sync {
    /// As [`File::read_at`].
    fn read_at(&self, to: &Opened, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        to.file.read_at(buf, offset)
    }

    /// As [`File::write_all_at`].
    fn write_all_at(&self, to: &Opened, buf: &[u8], offset: u64) -> io::Result<()> {
        to.file.write_all_at(buf, offset)
    }

    /// As [`File::sync_data`].
    fn sync_data(&self, to: &Opened) -> io::Result<()> {
        to.file.sync_data()
    }

    /// As [`File::set_len`].
    fn set_len(&self, to: &Opened, len: u64) -> io::Result<()> {
        to.file.set_len(len)
    }

    /// As [`File::allocate`].
    fn allocate(&self, to: &Opened, offset: u64, len: u64) -> io::Result<()> {
        to.file.allocate(offset, len)
    }
}

/// The disk `D` with an [`Intercept`] in front of its files.
pub struct Intercepted<D> {
    disk: D,
    by: Arc<dyn Intercept>,
}

impl<D: Disk> Intercepted<D> {
    /// Puts `by` in front of the files of `disk`.
    pub fn new(disk: D, by: Arc<dyn Intercept>) -> Self {
        Self { disk, by }
    }
}

impl<D: Disk> Disk for Intercepted<D> {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        let file = self.disk.open(path, how)?;
        Ok(Arc::new(InterceptedFile {
            opened: Opened { path: path.to_owned(), file },
            by: self.by.clone(),
        }))
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.exists(path)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir_all(path)
    }
    fn others_may_write(&self, path: &Path) -> io::Result<bool> {
        self.disk.others_may_write(path)
    }
    fn identity(&self, path: &Path) -> io::Result<Option<FileId>> {
        self.disk.identity(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }
    fn lock(&self, path: &Path) -> io::Result<DiskLock> {
        self.disk.lock(path)
    }
}

struct InterceptedFile {
    opened: Opened,
    by: Arc<dyn Intercept>,
}

impl File for InterceptedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.by.read_at(&self.opened, buf, offset)
    }
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.by.write_all_at(&self.opened, buf, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.by.sync_data(&self.opened)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.by.set_len(&self.opened, len)
    }
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.by.allocate(&self.opened, offset, len)
    }
    fn len(&self) -> io::Result<u64> {
        self.opened.file.len()
    }
}
