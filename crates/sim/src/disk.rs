//! The simulated disk as the engine sees it. Every operation is a step at which the scheduler may
//! switch threads, and an event of the trace. Running operations are counted, so that the judge
//! sees which ones an engine leaves behind.

use crate::trace::Trace;
use clearway_env::{Disk, DiskLock, File, Open};
use clearway_sync::thread;
use clearway_testkit::MemDisk;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A disk under a trace.
pub struct TracedDisk {
    disk: MemDisk,
    trace: Trace,
    running: Running,
}

/// Operations on files that have begun and not ended. Relaxed: there is one OS thread.
#[derive(Clone, Default)]
struct Running(Arc<AtomicU32>);

impl Running {
    fn during<T>(&self, operation: impl FnOnce() -> T) -> T {
        self.0.fetch_add(1, Ordering::Relaxed);
        let result = operation();
        self.0.fetch_sub(1, Ordering::Relaxed);
        result
    }
}

impl TracedDisk {
    /// Traces `disk`.
    pub fn new(disk: MemDisk, trace: Trace) -> Self {
        Self { disk, trace, running: Running::default() }
    }

    /// Returns how many operations on files are running.
    pub fn running(&self) -> u32 {
        self.running.0.load(Ordering::Relaxed)
    }

    fn note<T>(&self, kind: &str, path: &Path, result: io::Result<T>) -> io::Result<T> {
        let failed = u8::from(result.is_err());
        let bytes = [path.to_string_lossy().as_bytes(), &[failed]].concat();
        self.trace.event(kind, &bytes, || format!("{}{}", path.display(), outcome(&result)));
        result
    }
}

fn outcome<T>(result: &io::Result<T>) -> String {
    result.as_ref().err().map(|e| format!(" FAILED: {e}")).unwrap_or_default()
}

impl Disk for TracedDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        thread::yield_now();
        let file = self.note("open", path, self.disk.open(path, how))?;
        Ok(Arc::new(TracedFile {
            file,
            path: path.to_owned(),
            trace: self.trace.clone(),
            running: self.running.clone(),
        }))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.exists(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        thread::yield_now();
        self.note("mkdir", path, self.disk.create_dir_all(path))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        thread::yield_now();
        self.note("remove", path, self.disk.remove(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        thread::yield_now();
        self.note("rename", to, self.disk.rename(from, to))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        thread::yield_now();
        self.note("syncdir", dir, self.disk.sync_dir(dir))
    }

    fn lock(&self, path: &Path) -> io::Result<DiskLock> {
        self.disk.lock(path)
    }
}

struct TracedFile {
    file: Arc<dyn File>,
    path: PathBuf,
    trace: Trace,
    running: Running,
}

impl TracedFile {
    fn note<T>(&self, kind: &str, at: u64, bytes: &[u8], result: io::Result<T>) -> io::Result<T> {
        let head = [
            at.to_le_bytes(),
            (bytes.len() as u64).to_le_bytes(),
            u64::from(result.is_err()).to_le_bytes(),
        ]
        .concat();
        let all = [self.path.to_string_lossy().as_bytes(), &head, bytes].concat();
        self.trace.event(kind, &all, || {
            format!("{} at {at}, {} bytes{}", self.path.display(), bytes.len(), outcome(&result))
        });
        result
    }
}

impl File for TracedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        thread::yield_now();
        let result = self.running.during(|| self.file.read_at(buf, offset));
        let read = *result.as_ref().unwrap_or(&0);
        self.note("read", offset, &buf[..read], result)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        thread::yield_now();
        let result = self.running.during(|| self.file.write_all_at(buf, offset));
        let result = self.note("write", offset, buf, result);
        thread::yield_now();
        result
    }

    fn sync_data(&self) -> io::Result<()> {
        thread::yield_now();
        let result = self.running.during(|| self.file.sync_data());
        let result = self.note("sync", 0, &[], result);
        thread::yield_now();
        result
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        thread::yield_now();
        let result = self.running.during(|| self.file.set_len(len));
        self.note("set_len", len, &[], result)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        thread::yield_now();
        let result = self.file.allocate(offset, len);
        self.note("allocate", offset.saturating_add(len), &[], result)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}
