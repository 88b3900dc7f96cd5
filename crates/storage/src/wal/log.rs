//! The log's appending side. Signatures; the bodies follow.
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use clearway_env::Disk;
use clearway_types::Lsn;

/// Where the log is and how large its parts are.
#[derive(Clone, Debug)]
pub struct WalConfig {
    /// The directory of the segments; created if needed. Default: `wal`.
    pub dir: PathBuf,
    /// Bytes of log in one segment, a multiple of 4096. Default 64 MiB. An existing log keeps the size it was made with.
    pub segment_size: u64,
    /// Bytes of the ring that appenders fill, a power of two. Default 16 MiB. A record may take up to half of it.
    pub buffer_size: usize,
}

impl Default for WalConfig {
    fn default() -> Self {
        Self { dir: PathBuf::from("wal"), segment_size: 64 << 20, buffer_size: 16 << 20 }
    }
}

/// The log's appending side.
pub struct Wal {}

impl Wal {
    /// Opens the log to append at `end`, where the reader stopped ([`Lsn`] 0: a new log).
    pub fn open(_disk: Arc<dyn Disk>, _config: WalConfig, _end: Lsn) -> io::Result<Arc<Wal>> {
        unimplemented!()
    }
    /// Appends a record; returns its end.
    pub fn append(&self, _payload: &[&[u8]]) -> Lsn {
        unimplemented!()
    }
    /// The largest payload that `append` takes.
    pub fn max_payload(&self) -> usize {
        unimplemented!()
    }
    /// The end of the last record appended: every later one ends above it.
    pub fn appended(&self) -> Lsn {
        unimplemented!()
    }
    /// Everything that ends at or before it survives a crash.
    pub fn durable(&self) -> Lsn {
        unimplemented!()
    }
    /// Has the log made durable up to `upto` soon.
    pub fn request_flush(&self, _upto: Lsn) {
        unimplemented!()
    }
    /// Returns when all that ends at or before `lsn` is durable.
    pub fn wait_durable(&self, _lsn: Lsn) -> io::Result<()> {
        unimplemented!()
    }
    /// `hook` is called by the flusher after each time `durable` rose.
    pub fn on_durable(&self, _hook: Box<dyn Fn(Lsn) + Send + Sync>) {
        unimplemented!()
    }
    /// `hook` is called once if the log fails (at once if it has).
    pub fn on_failed(&self, _hook: Box<dyn Fn(&str) + Send + Sync>) {
        unimplemented!()
    }
    /// Why the log has failed, if it has.
    pub fn failed(&self) -> Option<String> {
        unimplemented!()
    }
    /// Removes or recycles the segments that hold nothing at or after `lsn`.
    pub fn remove_before(&self, _lsn: Lsn) -> io::Result<()> {
        unimplemented!()
    }
    /// Flushes all and ends the log's threads.
    pub fn shutdown(&self) {
        unimplemented!()
    }
}
