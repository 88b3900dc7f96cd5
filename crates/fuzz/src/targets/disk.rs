//! A directory's files as bytes, and a disk with these files that reports `full` before it uses all
//! memory.

use clearway_env::{Disk, Open};
use clearway_testkit::{Intercept, Intercepted, MemDisk, Opened};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum length of a file in bytes.
const MAX_FILE: u64 = 4 << 20;

/// Files and their contents.
#[derive(Clone, Debug, Default)]
pub struct Image(pub Vec<(PathBuf, Vec<u8>)>);

impl Image {
    /// Reads all files in `dirs`.
    pub fn of(disk: &dyn Disk, dirs: &[&Path]) -> io::Result<Self> {
        let mut files = Vec::new();
        for dir in dirs {
            for name in disk.list(dir)? {
                let path = dir.join(name);
                // A directory has no contents.
                let Ok(file) = disk.open(&path, Open::Existing) else { continue };
                let mut bytes = vec![0; file.len()? as usize];
                file.read_exact_at(&mut bytes, 0)?;
                files.push((path, bytes));
            }
        }
        Ok(Self(files))
    }
    /// Returns a disk with these files.
    pub fn disk(&self) -> Arc<dyn Disk> {
        let disk = MemDisk::new();
        for (path, bytes) in &self.0 {
            let write = || {
                disk.create_dir_all(path.parent().unwrap_or(path))?;
                disk.open(path, Open::Create)?.write_all_at(bytes, 0)
            };
            write().expect("a disk in memory");
        }
        Arc::new(Intercepted::new(disk, Arc::new(Capped)))
    }
}

struct Capped;

fn fits(end: u64) -> io::Result<()> {
    if end > MAX_FILE { Err(io::Error::from(io::ErrorKind::StorageFull)) } else { Ok(()) }
}

impl Intercept for Capped {
    fn write_all_at(&self, to: &Opened, buf: &[u8], offset: u64) -> io::Result<()> {
        fits(offset.saturating_add(buf.len() as u64))?;
        to.file.write_all_at(buf, offset)
    }
    fn set_len(&self, to: &Opened, len: u64) -> io::Result<()> {
        fits(len)?;
        to.file.set_len(len)
    }
}
