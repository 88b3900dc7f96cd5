//! A directory's files as bytes, and a disk of them that says "full" instead of taking all memory.

use clearway_env::{Disk, DiskLock, File, MemDisk, Open};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// No file may become longer, in bytes.
const MAX_FILE: u64 = 4 << 20;

/// Files and their bytes.
#[derive(Clone, Debug, Default)]
pub struct Image(pub Vec<(PathBuf, Vec<u8>)>);

impl Image {
    /// Reads all files of `dirs`.
    pub fn of(disk: &dyn Disk, dirs: &[&Path]) -> io::Result<Self> {
        let mut files = Vec::new();
        for dir in dirs {
            for name in disk.list(dir)? {
                let path = dir.join(name);
                // A directory has no bytes.
                let Ok(file) = disk.open(&path, Open::Existing) else { continue };
                let mut bytes = vec![0; file.len()? as usize];
                file.read_exact_at(&mut bytes, 0)?;
                files.push((path, bytes));
            }
        }
        Ok(Self(files))
    }
    /// A disk that has these files.
    pub fn disk(&self) -> Arc<dyn Disk> {
        let disk = MemDisk::new();
        for (path, bytes) in &self.0 {
            let write = || {
                disk.create_dir_all(path.parent().unwrap_or(path))?;
                disk.open(path, Open::Create)?.write_all_at(bytes, 0)
            };
            write().expect("a disk in memory");
        }
        Arc::new(Capped(disk))
    }
}

struct Capped(MemDisk);

struct CappedFile(Arc<dyn File>);

fn fits(end: u64) -> io::Result<()> {
    if end > MAX_FILE { Err(io::Error::from(io::ErrorKind::StorageFull)) } else { Ok(()) }
}

impl Disk for Capped {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        self.0.open(path, how).map(|file| Arc::new(CappedFile(file)) as Arc<dyn File>)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.0.exists(path)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.create_dir_all(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.sync_dir(dir)
    }
    fn lock(&self, path: &Path) -> io::Result<DiskLock> {
        self.0.lock(path)
    }
}

impl File for CappedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        fits(offset.saturating_add(buf.len() as u64))?;
        self.0.write_all_at(buf, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        fits(len)?;
        self.0.set_len(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}
