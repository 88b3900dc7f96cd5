//! Opens the log, starts its threads, and ends them.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use clearway_buffer::WalBarrier;
use clearway_env::Disk;
use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_sync::thread::{self, JoinHandle};
use clearway_types::Lsn;

use super::LOG_START;
use super::flusher::{self, MAX_UNSYNCED, Pace};
use super::log::{self, Log};
use super::room::{RoomDone, SpaceWaits};
use super::segments::{Segments, Tail};

/// The location and sizes of the log.
#[derive(Clone, Debug)]
pub struct WalConfig {
    /// The directory of the segments; created if needed. Default: `wal`.
    pub dir: PathBuf,
    /// Bytes of log in one segment, a multiple of 4096. Default 64 MiB. An existing log keeps its
    /// size.
    pub segment_size: u64,
    /// Size of the ring that appenders fill, in bytes; rounded up to a power of two, at least 4096.
    /// Default 16 MiB. A record may use up to half of it, but at most 8 MiB.
    pub buffer_size: usize,
    /// Bytes that a write gathers from the ring, before the record that exceeds them. Default 4
    /// MiB, which is also the maximum.
    pub write_limit: usize,
    /// Bytes after which a sync happens without a request. Default 16 MiB, which is also the
    /// maximum.
    pub sync_every: u64,
    /// Segments kept ready ahead of the current one by recycling old ones. Default 4.
    pub recycle_ahead: u64,
    /// Maximum number of bytes of log that a rollback reads at once; at least 4096. Default 1 MiB.
    pub back_window: u64,
    /// How long to wait for space on the disk.
    pub space: SpaceWaits,
}

impl Default for WalConfig {
    fn default() -> Self {
        Self {
            dir: PathBuf::from("wal"),
            segment_size: 64 << 20,
            buffer_size: 16 << 20,
            write_limit: flusher::WRITE_LIMIT,
            sync_every: flusher::SYNC_EVERY,
            recycle_ahead: 4,
            back_window: 1 << 20,
            space: SpaceWaits::default(),
        }
    }
}

impl WalConfig {
    fn capacity(&self) -> usize {
        self.buffer_size.max(4096).next_power_of_two()
    }

    /// Enlarges the ring, if necessary, so that an undo of `undo` bytes fits: see
    /// [`Log::max_undo`].
    pub(crate) fn fit_undo(&mut self, undo: u64) {
        self.buffer_size = log::capacity_for_undo(self.capacity(), undo);
    }
}

static THREADS: Class = Class::new("log.threads");

/// The log and its threads. Dropping it makes everything appended durable, like [`Wal::shutdown`].
pub struct Wal {
    log: Arc<Log>,
    threads: Latch<Vec<JoinHandle<()>>>,
}

impl Deref for Wal {
    type Target = Log;

    fn deref(&self) -> &Log {
        &self.log
    }
}

impl fmt::Debug for Wal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (appended, durable) = (self.appended(), self.durable());
        f.debug_struct("Wal")
            .field("appended", &appended)
            .field("durable", &durable)
            .finish_non_exhaustive()
    }
}

impl Wal {
    /// Opens the log to append at `end`, the end that [`WalReader::next`](super::WalReader::next)
    /// found; [`Lsn`] 0 for a new log. Makes everything before `end` durable and wipes what
    /// follows. Starts the log's threads.
    ///
    /// # Errors
    /// The disk's errors, and `InvalidInput` if the log has segments but none that could contain
    /// `end`.
    pub fn open(disk: Arc<dyn Disk>, config: WalConfig, end: Lsn) -> io::Result<Arc<Wal>> {
        Self::resume(disk, config, end, LOG_START)
    }

    /// Like [`Wal::open`], for a log that is known to be durable before `durable`; rewrites less.
    pub(crate) fn resume(
        disk: Arc<dyn Disk>,
        config: WalConfig,
        end: Lsn,
        durable: Lsn,
    ) -> io::Result<Arc<Wal>> {
        let end = end.max(LOG_START).0;
        if !end.is_multiple_of(8) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{end} is not a place in a log"),
            ));
        }
        let capacity = config.capacity();
        let pace = Pace::new(config.write_limit, config.sync_every);
        let WalConfig { dir, segment_size, recycle_ahead, .. } = config;
        let tail = Tail { durable: durable.0.min(end), end, unsynced: MAX_UNSYNCED };
        let segments = Segments::open(disk, dir, segment_size, tail, recycle_ahead)?;
        let (start, _, _) = segments.locate(end);
        let file = segments.enter(start)?;
        let log = Log::new(capacity, end, segments, config.space, config.back_window);
        let log = Arc::new(log);
        let mut threads = Vec::with_capacity(2);
        let maker = flusher::spawn_segment_maker(log.clone())?;
        threads.push(maker);
        match flusher::spawn(log.clone(), file, pace) {
            Ok(flusher) => threads.insert(0, flusher),
            Err(error) => {
                log.stop();
                return Err(error);
            }
        }
        Ok(Arc::new(Self::of(log, threads)))
    }

    /// Creates a log with its threads.
    pub(super) fn of(log: Arc<Log>, threads: Vec<JoinHandle<()>>) -> Self {
        Self { log, threads: Latch::new(&THREADS, threads) }
    }

    /// Makes everything appended durable, and ends the log's threads. Later appends are lost.
    pub fn shutdown(&self) {
        self.log.stop();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // The last owner may be a hook on the flusher's own thread, which then ends by itself.
            if thread.thread().id() != thread::current().id() && thread.join().is_err() {
                tracing::error!("a thread of the log panicked");
            }
        }
    }
}

impl WalBarrier for Wal {
    fn ensure_durable(&self, lsn: Lsn) -> io::Result<()> {
        self.wait_durable(lsn)
    }

    fn durable(&self) -> Lsn {
        Log::durable(self)
    }

    fn when_room(&self, bytes: u64, must: bool, done: RoomDone) {
        Log::when_room(self, bytes, must, done);
    }

    fn appended(&self) -> Lsn {
        Log::appended(self)
    }
}

impl Drop for Wal {
    fn drop(&mut self) {
        self.shutdown();
    }
}
