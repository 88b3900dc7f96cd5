//! Stops a server whose data directory was moved away or removed from working in the one that has
//! its name now.
//!
//! Files that are open stay the server's own. But a new segment of the log, a removed one, and the
//! file of old versions are found by name. So before each use of a name this disk checks that the
//! name of the lock file is still that of the file which the server has locked. So does each
//! checkpoint, because log that is written to a removed file is lost. A directory that is moved
//! between a check and the use of a name is not noticed.
//!
//! Invariant: after the check has failed once, no file is opened, created, renamed or removed.
//!
//! Locking: none. A crash leaves nothing.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clearway_env::{Disk, DiskLock, File, FileId, Open};

/// A disk with a directory that this process has locked.
pub(crate) struct OwnedDisk {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    lock_file: PathBuf,
    locked: Option<FileId>,
    lost: AtomicBool,
}

impl OwnedDisk {
    /// The caller has locked `lock_file`, and holds the lock while it uses the result.
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: &Path, lock_file: PathBuf) -> io::Result<Self> {
        let locked = disk.identity(&lock_file)?;
        Ok(Self { disk, dir: dir.to_owned(), lock_file, locked, lost: AtomicBool::new(false) })
    }

    /// Fails if the directory was removed or replaced.
    pub(crate) fn check(&self) -> io::Result<()> {
        // Relaxed, here and below: nothing else depends on the flag.
        let lost = self.lost.load(Ordering::Relaxed)
            || self.disk.identity(&self.lock_file)? != self.locked;
        if !lost {
            return Ok(());
        }
        self.lost.store(true, Ordering::Relaxed);
        let dir = self.dir.display();
        Err(io::Error::other(format!("{dir} was removed or replaced while its server was running")))
    }
}

impl Disk for OwnedDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        self.check()?;
        self.disk.open(path, how)
    }
    fn open_pages(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        self.check()?;
        self.disk.open_pages(path, how)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.exists(path)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.check()?;
        self.disk.create_dir_all(path)
    }
    fn others_may_write(&self, path: &Path) -> io::Result<bool> {
        self.disk.others_may_write(path)
    }
    fn identity(&self, path: &Path) -> io::Result<Option<FileId>> {
        self.disk.identity(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.check()?;
        self.disk.list(dir)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.check()?;
        self.disk.remove(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check()?;
        self.disk.rename(from, to)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.check()?;
        self.disk.sync_dir(dir)
    }
    fn lock(&self, path: &Path) -> io::Result<DiskLock> {
        self.check()?;
        self.disk.lock(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_testkit::MemDisk;

    /// Makes and locks the directory.
    fn lock(disk: &MemDisk, dir: &Path, lock_file: &Path) -> (DiskLock, OwnedDisk) {
        disk.create_dir_all(dir).expect("a directory");
        let lock = disk.lock(lock_file).expect("locked");
        let owned = OwnedDisk::new(Arc::new(disk.clone()), dir, lock_file.to_owned());
        (lock, owned.expect("ours"))
    }

    #[test]
    fn no_name_is_used_once_the_lock_file_is_another_one() {
        let (disk, dir) = (MemDisk::new(), Path::new("/data"));
        let (lock_file, file) = (dir.join("lock"), dir.join("file"));
        let (_lock, owned) = lock(&disk, dir, &lock_file);
        owned.open(&file, Open::Create).expect("created");

        for replace in [false, true] {
            if replace {
                disk.open(&lock_file, Open::Create).expect("another lock file");
            } else {
                disk.remove(&lock_file).expect("removed");
            }
            let refused = |result: io::Result<()>| {
                let error = result.expect_err("the directory is not ours").to_string();
                assert!(error.starts_with("/data was removed or replaced"), "{error}");
            };
            refused(owned.open(&file, Open::Existing).map(drop));
            refused(owned.open_pages(&file, Open::Existing).map(drop));
            refused(owned.create_dir_all(&dir.join("new")));
            refused(owned.list(dir).map(drop));
            refused(owned.remove(&file));
            refused(owned.rename(&file, &dir.join("moved")));
            refused(owned.sync_dir(dir));
            refused(owned.lock(&file).map(drop));
        }
        assert_eq!(disk.list(dir).expect("names"), ["file", "lock"]);
    }

    #[test]
    fn a_directory_that_comes_back_stays_lost() {
        let (disk, dir) = (MemDisk::new(), Path::new("/data"));
        let (lock_file, away) = (dir.join("lock"), dir.join("away"));
        let (_lock, owned) = lock(&disk, dir, &lock_file);
        disk.rename(&lock_file, &away).expect("moved away");
        assert!(owned.check().is_err());
        disk.rename(&away, &lock_file).expect("moved back");
        assert!(owned.check().is_err());
    }
}
