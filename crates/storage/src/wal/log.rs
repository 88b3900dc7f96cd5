//! The log's appending side, used by the rest of the engine.

use std::fmt;
use std::io;
use std::panic::Location;
use std::path::PathBuf;
use std::sync::Arc;

use clearway_buffer::WalBarrier;
use clearway_env::Disk;
use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_sync::thread::{self, JoinHandle};
use clearway_types::Lsn;

use super::back::BackReader;
use super::flusher::{self, MAX_UNSYNCED, Pace};
use super::record::{self, HEADER, MAX_RECORD};
use super::ring::RING;
use super::room::{RoomDone, SpaceWaits};
use super::segments::{Segments, Tail};
use super::shared::Shared;
use super::span::Span;
use super::{LOG_START, record_size};

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

static THREADS: Class = Class::new("log.threads");

/// The log's appending side. Dropping it makes everything appended durable, like [`Wal::shutdown`].
pub struct Wal {
    pub(super) shared: Arc<Shared>,
    max_record: usize,
    back_window: u64,
    threads: Latch<Vec<JoinHandle<()>>>,
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
        let capacity = config.buffer_size.max(4096).next_power_of_two();
        let pace = Pace::new(config.write_limit, config.sync_every);
        let WalConfig { dir, segment_size, recycle_ahead, .. } = config;
        let tail = Tail { durable: durable.0.min(end), end, unsynced: MAX_UNSYNCED };
        let segments = Segments::open(disk, dir, segment_size, tail, recycle_ahead)?;
        let (start, _, _) = segments.locate(end);
        let file = segments.enter(start)?;
        let shared = Arc::new(Shared::new(capacity, end, segments, config.space));
        let mut threads = Vec::with_capacity(2);
        let maker = flusher::spawn_segment_maker(shared.clone())?;
        threads.push(maker);
        match flusher::spawn(shared.clone(), file, pace) {
            Ok(flusher) => threads.insert(0, flusher),
            Err(error) => {
                shared.stop();
                return Err(error);
            }
        }
        Ok(Arc::new(Self::of(shared, threads, config.back_window)))
    }

    /// Creates a log with its threads.
    pub(super) fn of(shared: Arc<Shared>, threads: Vec<JoinHandle<()>>, back_window: u64) -> Self {
        let max_record = MAX_RECORD.min(shared.ring.capacity() as usize / 2);
        Self { shared, max_record, back_window, threads: Latch::new(&THREADS, threads) }
    }

    /// Returns the maximum payload for [`Wal::append`], in bytes.
    pub fn max_payload(&self) -> usize {
        self.max_record - HEADER
    }

    /// Appends a record with the concatenation of `payload`; returns its end. Its start is the end
    /// minus [`record_size`](super::record_size). Blocks only while the ring is full: see
    /// [`Wal::has_room`].
    ///
    /// Threads may interleave in any order between reserving and filling, so a later record may be
    /// filled first. But no record becomes durable before the records ahead of it.
    ///
    /// # Panics
    /// If the payload is larger than [`Wal::max_payload`].
    #[track_caller]
    pub fn append(&self, payload: &[&[u8]]) -> Lsn {
        RING.request();
        let shared = &*self.shared;
        let len = HEADER + payload.iter().map(|part| part.len()).sum::<usize>();
        assert!(
            len <= self.max_record,
            "a log record of {len} bytes, more than {}",
            self.max_record
        );
        let crc = record::payload_crc(payload);
        let start = shared.ring.reserve(record_size(len - HEADER));
        let end = start + record_size(len - HEADER);
        let mut filled = shared.ring.filled_to(end);
        if filled > shared.ring.capacity() {
            if !shared.wait_for_room(end, Location::caller()) {
                // The log is closed: the record never becomes durable, and nobody is notified that
                // it did.
                return Lsn(end);
            }
            filled = shared.ring.filled_to(end);
        }
        shared.ring.fill(start, record::seal(crc, len, start, shared.durable()), payload);
        if shared.is_half_full(filled) {
            shared.wake();
        }
        Lsn(end)
    }

    /// Returns the end of the last reserved record: every later record ends above it.
    pub fn appended(&self) -> Lsn {
        Lsn(self.shared.ring.reserved())
    }

    /// Returns the durable end: every record that ends at or before it survives a crash.
    pub fn durable(&self) -> Lsn {
        Lsn(self.shared.durable())
    }

    /// Returns how often a file of the log was synced for appenders: syncs that commits share.
    pub fn syncs(&self) -> u64 {
        self.shared.syncs()
    }

    /// Requests that the log become durable up to `upto`, or up to its current end if that is less.
    /// Does not wait.
    pub fn request_flush(&self, upto: Lsn) {
        self.shared.request(upto.0);
    }

    /// Returns when every record that ends at or before `lsn` is durable.
    ///
    /// # Errors
    /// The log has failed or is closed; then it is unknown what survives. `InvalidInput` if `lsn`
    /// is above the end of the log.
    #[track_caller]
    pub fn wait_durable(&self, lsn: Lsn) -> io::Result<()> {
        self.shared.wait_durable(lsn.0)
    }

    /// Registers a hook that the flusher calls each time after [`Wal::durable`] has grown. It
    /// should be brief, because it delays the next group of commits. It must not register hooks.
    pub fn on_durable(&self, hook: Box<dyn Fn(Lsn) + Send + Sync>) {
        self.shared.on_durable(hook);
    }

    /// Registers a hook that is called once if the log fails; at once if it has already failed. A
    /// failed log never becomes durable again: the process should stop and recover.
    pub fn on_failed(&self, hook: Box<dyn Fn(&str) + Send + Sync>) {
        self.shared.on_failed(hook);
    }

    /// Returns why the log has failed, if it has.
    pub fn failed(&self) -> Option<String> {
        self.shared.failure().map(str::to_owned)
    }

    /// Removes or recycles the segments that contain nothing at or after `lsn`. Blocks; for the
    /// checkpointer.
    pub fn remove_before(&self, lsn: Lsn) -> io::Result<()> {
        let removed = self.shared.segments.remove_before(lsn.0.min(self.shared.durable()));
        self.shared.room.helped();
        self.shared.release_room();
        removed
    }

    /// Returns true if a record of `bytes` bytes ([`record_size`](super::record_size), plus what it
    /// reserves for its undo) can be appended without waiting for the disk and without using the
    /// reserve. With `must`, half of the reserve may be used, too. A change that may wait or be
    /// refused calls this before [`Wal::append`]; one that must append just appends.
    #[inline]
    pub fn has_room(&self, bytes: u64, must: bool) -> bool {
        self.shared.has_room(bytes, must)
    }

    /// Calls `done` when [`Wal::has_room`] is or may be true: at once, or later on a thread of the
    /// log, for which it must be brief. Calls it with an error if the log fails, is closed, or is
    /// full: the disk has no space, and checkpoints do not free enough. With `must`, it keeps
    /// waiting when the log is full.
    #[track_caller]
    pub fn when_room(&self, bytes: u64, must: bool, done: RoomDone) {
        self.shared.when_room(bytes, must, done);
    }

    /// Changes a reservation of log space for undo from `old` to `new` bytes.
    pub(crate) fn pledge(&self, old: u64, new: u64) {
        self.shared.pledge(old, new);
    }

    /// Registers a hook that is called repeatedly while someone waits for space that the disk does
    /// not have: a checkpoint may help. It must be brief.
    pub fn on_short(&self, hook: Box<dyn Fn() + Send + Sync>) {
        self.shared.room.on_short(hook);
    }

    /// Makes the log wait, from now on, for space for the next segment when even its reserve is
    /// used up, instead of failing. Until then nobody depends on the log, and failing is clearer.
    pub(crate) fn set_wait_for_space(&self) {
        self.shared.set_wait_for_space();
    }

    /// Returns a reader of durable records, from later to earlier ones. It reads nothing before
    /// `from`; the log from there on must be kept while it is used.
    pub(crate) fn read_back(&self, from: Lsn) -> BackReader {
        BackReader::new(self.shared.segments.source(), from, self.back_window)
    }

    /// Returns a reader of ranges of the log, usable while the log grows.
    pub(crate) fn span(&self) -> Span {
        Span::new(self.shared.segments.source())
    }

    /// Makes everything appended durable, and ends the log's threads. Later appends are lost.
    pub fn shutdown(&self) {
        self.shared.stop();
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
        Wal::durable(self)
    }

    fn when_room(&self, bytes: u64, must: bool, done: RoomDone) {
        Wal::when_room(self, bytes, must, done);
    }

    /// A caller that sees a record's end here sees what its appender did before: `Ring::reserved`
    /// is the Acquire side of the Release in `Ring::reserve`.
    fn appended(&self) -> Lsn {
        Wal::appended(self)
    }
}

impl Drop for Wal {
    fn drop(&mut self) {
        self.shutdown();
    }
}
