//! A disk whose syncs a test can count, hold up and let fail.

use std::io;
use std::sync::{Arc, Condvar, Mutex};

use clearway_env::{Disk, Intercept, Intercepted, MemDisk, Opened};

#[derive(Default)]
struct Syncs {
    /// Syncs that ended.
    ended: u64,
    /// The flusher is in one; the maker of segments syncs, too.
    flushing: bool,
    held: bool,
    failing: bool,
    /// Writes to files with this in their name panic.
    panics: Option<&'static str>,
    /// Bytes that were read.
    read: u64,
}

/// What a disk's files ask when they are synced.
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

    /// Writes to files with this in their name panic from now on.
    pub(super) fn panic_at(&self, name: &'static str) {
        self.change(|syncs| syncs.panics = Some(name));
    }

    /// How many bytes were read.
    pub(super) fn bytes_read(&self) -> u64 {
        self.change(|syncs| syncs.read)
    }

    /// How many syncs have ended.
    pub(super) fn ended(&self) -> u64 {
        self.change(|syncs| syncs.ended)
    }

    /// Returns when the flusher is in a sync.
    pub(super) fn wait_flushing(&self) {
        self.wait(|syncs| syncs.flushing);
    }

    fn sync(&self) -> io::Result<()> {
        let flushes = std::thread::current().name() == Some("wal-flusher");
        self.change(|syncs| syncs.flushing |= flushes);
        self.wait(|syncs| !syncs.held);
        self.change(|syncs| {
            syncs.ended += 1;
            syncs.flushing &= !flushes;
            if syncs.failing { Err(io::Error::other("the disk is broken")) } else { Ok(()) }
        })
    }
}

impl Intercept for Control {
    fn read_at(&self, to: &Opened, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.change(|syncs| syncs.read += buf.len() as u64);
        to.file.read_at(buf, offset)
    }
    fn write_all_at(&self, to: &Opened, buf: &[u8], offset: u64) -> io::Result<()> {
        if let Some(name) = self.change(|syncs| syncs.panics) {
            assert!(!to.path.to_string_lossy().contains(name), "planted in {name}");
        }
        to.file.write_all_at(buf, offset)
    }
    fn sync_data(&self, to: &Opened) -> io::Result<()> {
        self.sync()?;
        to.file.sync_data()
    }
}

/// A disk in memory under a [`Control`].
pub(super) fn controlled(disk: MemDisk) -> (Arc<dyn Disk>, Control) {
    let control = Control::default();
    (Arc::new(Intercepted::new(disk, Arc::new(control.clone()))), control)
}
