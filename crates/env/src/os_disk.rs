//! The operating system's file system.

use std::fs::{self, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, DiskLock, File, Open};

/// The operating system's file system; relative paths start at the working directory.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsDisk;

struct OsFile {
    file: fs::File,
    path: PathBuf,
}

/// Adds what was tried on what; the error's kind stays.
fn named(what: &str, path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{what} {}: {error}", path.display()))
}

fn open(path: &Path, how: Open) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true);
    match how {
        Open::Existing => {}
        Open::Create => {
            options.create_new(true);
        }
        Open::OpenOrCreate => {
            options.create(true).truncate(false);
        }
    }
    options.open(path).map_err(named("open", path))
}

impl Disk for OsDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(OsFile { file: open(path, how)?, path: path.to_owned() }))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists().map_err(named("look for", path))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path).map_err(named("create directory", path))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir).map_err(named("list", dir))? {
            if let Ok(name) = entry.map_err(named("list", dir))?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path).map_err(named("remove", path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to).map_err(named("rename", from))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(named("sync directory", dir))
    }

    fn lock(&self, path: &Path) -> io::Result<DiskLock> {
        let file = open(path, Open::OpenOrCreate)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(file)),
            Err(TryLockError::WouldBlock) => Err(named("lock", path)(io::ErrorKind::WouldBlock.into())),
            Err(TryLockError::Error(error)) => Err(named("lock", path)(error)),
        }
    }
}

impl File for OsFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset).map_err(named("read", &self.path))
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buf, offset).map_err(named("read", &self.path))
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(buf, offset).map_err(named("write", &self.path))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data().map_err(named("sync", &self.path))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len).map_err(named("set the length of", &self.path))
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata().map_err(named("look at", &self.path))?.len())
    }
}
