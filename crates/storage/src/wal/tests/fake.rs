//! A disk whose syncs a test can count, delay and make fail.

use std::io;
use std::sync::{Arc, Condvar, Mutex};

use clearway_env::Disk;
use clearway_testkit::{Intercept, Intercepted, MemDisk, Opened};

#[derive(Default)]
struct Syncs {
    /// Number of syncs that ended.
    ended: u64,
    /// True while the flusher is in a sync; the segment maker syncs, too.
    flushing: bool,
    held: bool,
    failing: bool,
    /// Writes to files with this in their name panic.
    panics: Option<&'static str>,
    /// Number of bytes read.
    read: u64,
}

/// Controls the syncs of a disk's files.
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

    /// Makes syncs block, or continue.
    pub(super) fn hold(&self, held: bool) {
        self.change(|syncs| syncs.held = held);
    }

    /// Makes syncs fail, or succeed.
    pub(super) fn fail(&self, failing: bool) {
        self.change(|syncs| syncs.failing = failing);
    }

    /// Makes writes to files with this in their name panic.
    pub(super) fn panic_at(&self, name: &'static str) {
        self.change(|syncs| syncs.panics = Some(name));
    }

    /// Returns the number of bytes read.
    pub(super) fn bytes_read(&self) -> u64 {
        self.change(|syncs| syncs.read)
    }

    /// Returns the number of syncs that ended.
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

/// Returns an in-memory disk under a [`Control`].
pub(super) fn controlled(disk: MemDisk) -> (Arc<dyn Disk>, Control) {
    let control = Control::default();
    (Arc::new(Intercepted::new(disk, Arc::new(control.clone()))), control)
}
