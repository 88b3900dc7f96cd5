//! A disk whose syncs a test can count, hold up and let fail.

use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use clearway_env::{Disk, DiskLock, File, MemDisk, Open};

#[derive(Default)]
struct Syncs {
    /// Syncs that began and that ended.
    begun: u64,
    ended: u64,
    held: bool,
    failing: bool,
    /// Bytes that were read.
    read: u64,
}

/// What the files of a [`FakeDisk`] ask when they are synced.
#[derive(Clone, Default)]
pub(super) struct Control(Arc<(Mutex<Syncs>, Condvar)>);

impl Control {
    fn change<T>(&self, change: impl FnOnce(&mut Syncs) -> T) -> T {
        let result = change(&mut self.0.0.lock().expect("no test panics here"));
        self.0.1.notify_all();
        result
    }

    fn wait(&self, until: impl Fn(&Syncs) -> bool) {
        let guard = self.0.0.lock().expect("no test panics here");
        drop(self.0.1.wait_while(guard, |syncs| !until(syncs)).expect("no test panics here"));
    }

    /// Syncs block from now on, or go on.
    pub(super) fn hold(&self, held: bool) {
        self.change(|syncs| syncs.held = held);
    }

    /// Syncs fail from now on, or succeed.
    pub(super) fn fail(&self, failing: bool) {
        self.change(|syncs| syncs.failing = failing);
    }

    /// How many bytes were read.
    pub(super) fn bytes_read(&self) -> u64 {
        self.change(|syncs| syncs.read)
    }

    /// How many syncs have ended.
    pub(super) fn ended(&self) -> u64 {
        self.change(|syncs| syncs.ended)
    }

    /// Returns when a sync is under way.
    pub(super) fn wait_begun(&self) {
        self.wait(|syncs| syncs.begun > syncs.ended);
    }

    fn sync(&self) -> io::Result<()> {
        self.change(|syncs| syncs.begun += 1);
        self.wait(|syncs| !syncs.held);
        self.change(|syncs| {
            syncs.ended += 1;
            if syncs.failing { Err(io::Error::other("the disk is broken")) } else { Ok(()) }
        })
    }
}

/// A [`MemDisk`] under [`Control`].
pub(super) struct FakeDisk {
    pub(super) disk: MemDisk,
    pub(super) control: Control,
}

impl FakeDisk {
    pub(super) fn over(disk: MemDisk) -> (Arc<dyn Disk>, Control) {
        let control = Control::default();
        (Arc::new(Self { disk, control: control.clone() }), control)
    }
}

impl Disk for FakeDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        let file = self.disk.open(path, how)?;
        Ok(Arc::new(FakeFile { file, control: self.control.clone() }))
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.exists(path)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir_all(path)
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

struct FakeFile {
    file: Arc<dyn File>,
    control: Control,
}

impl File for FakeFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.control.change(|syncs| syncs.read += buf.len() as u64);
        self.file.read_at(buf, offset)
    }
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(buf, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.control.sync()?;
        self.file.sync_data()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}
