//! The pool's environment: a log without content, and page files that check each call.

use super::model::Model;
use super::world::World;
use crate::rng::Rng;
use clearway_buffer::{FileSpace, Files, PAGE_SIZE, PageError, PageIo, Place, WalBarrier, lsn};
use clearway_sync::atomic::{AtomicU64, Ordering};
use clearway_sync::{thread, virtual_time};
use clearway_types::{Lsn, PageId};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of each log record.
const RECORD: u64 = 10;

/// A log of empty records. The pool sees nothing of a log but its end and its durable LSN.
///
/// Its atomics are SeqCst, because shuttle models no other ordering.
pub struct Log {
    appended: AtomicU64,
    durable: AtomicU64,
    /// The same, readable without a scheduling point.
    durable_now: std::sync::atomic::AtomicU64,
    /// Number of syncs until the log fails.
    syncs_left: AtomicU64,
}

impl Log {
    pub fn new(syncs: u64) -> Self {
        Self {
            appended: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            durable_now: 0.into(),
            syncs_left: AtomicU64::new(syncs),
        }
    }

    /// Returns the durable LSN at this moment; pairs with `ensure_durable`.
    pub fn durable_now(&self) -> Lsn {
        Lsn(self.durable_now.load(Ordering::SeqCst))
    }

    /// Appends a record; returns its start and its end. Pairs with the loads below.
    pub fn append(&self) -> (Lsn, Lsn) {
        let start = self.appended.fetch_add(RECORD, Ordering::SeqCst);
        (Lsn(start), Lsn(start + RECORD))
    }
}

impl WalBarrier for Log {
    /// Syncs no further than requested: what the pool does not request is lost at a crash. The
    /// accesses pair with those of `append` and of each other.
    fn ensure_durable(&self, lsn: Lsn) -> io::Result<()> {
        assert!(lsn.0 <= self.appended.load(Ordering::SeqCst), "{lsn} was never appended");
        thread::yield_now();
        // Pairs with the other syncs.
        let left = self.syncs_left.load(Ordering::SeqCst);
        if left == 0 {
            return Err(io::Error::other("the log is broken"));
        }
        self.syncs_left.store(left - 1, Ordering::SeqCst);
        self.durable_now.fetch_max(lsn.0, Ordering::SeqCst);
        self.durable.fetch_max(lsn.0, Ordering::SeqCst);
        Ok(())
    }

    // Pairs with the stores in `ensure_durable` and `append`.
    fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::SeqCst))
    }

    // Pairs with the addition in `append`.
    fn appended(&self) -> Lsn {
        Lsn(self.appended.load(Ordering::SeqCst))
    }
}

/// Forwards calls to the files and checks them.
pub struct WatchedIo {
    files: Files,
    log: Arc<Log>,
    model: Arc<Model>,
    /// Percentage of reads whose completion is reported late.
    late: u64,
    seen: Mutex<Seen>,
}

struct Seen {
    rng: Rng,
    /// Pages that are being read.
    reading: BTreeMap<PageId, u32>,
    /// Reads that failed.
    failed_reads: u64,
    /// Whether pages are being written, and the number of the last version of each that was or will
    /// be written.
    writing: bool,
    written: BTreeMap<PageId, usize>,
}

impl Seen {
    fn new(rng: Rng) -> Self {
        Self {
            rng,
            reading: BTreeMap::new(),
            failed_reads: 0,
            writing: false,
            written: BTreeMap::new(),
        }
    }
}

impl WatchedIo {
    pub fn new(files: Files, log: Arc<Log>, model: Arc<Model>, world: &World) -> Self {
        let seen = Mutex::new(Seen::new(Rng::new(world.seed, "late reads")));
        Self { files, log, model, late: world.late, seen }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of failed reads.
    pub fn failed_reads(&self) -> u64 {
        self.seen().failed_reads
    }
}

impl PageIo for WatchedIo {
    fn file(&self, id: PageId) -> Arc<str> {
        self.files.file(id)
    }

    fn place(&self, id: PageId) -> Result<Place, PageError> {
        let mut seen = self.seen();
        let readers = seen.reading.entry(id).or_default();
        *readers += 1;
        assert!(*readers == 1, "{id} is read twice at once");
        drop(seen);
        self.files.place(id)
    }

    fn accept(
        &self,
        id: PageId,
        page: &mut [u8; PAGE_SIZE],
        read: io::Result<usize>,
    ) -> Result<(), PageError> {
        let mut seen = self.seen();
        let late =
            seen.rng.percent(self.late).then(|| Duration::from_micros(seen.rng.below(50_000)));
        drop(seen);
        if let Some(late) = late {
            virtual_time::sleep(late);
        }
        let accepted = self.files.accept(id, page, read);
        let mut seen = self.seen();
        *seen.reading.entry(id).or_default() -= 1;
        seen.failed_reads += u64::from(accepted.is_err());
        drop(seen);
        accepted
    }

    fn has_space(&self, id: PageId, space: FileSpace) -> bool {
        self.files.has_space(id, space)
    }

    fn make_space(&self, id: PageId, space: FileSpace) -> Result<(), PageError> {
        self.files.make_space(id, space)
    }

    fn write(&self, pages: &[(PageId, &[u8; PAGE_SIZE])]) -> Result<(), PageError> {
        let durable = self.log.durable();
        let mut seen = self.seen();
        assert!(!std::mem::replace(&mut seen.writing, true), "two batches are written at once");
        for &(id, copy) in pages {
            assert!(
                lsn(copy) <= durable,
                "{id} is written with {}, the log is durable up to {durable}",
                lsn(copy)
            );
            let number =
                self.model.number(id, copy).unwrap_or_else(|wrong| panic!("written: {wrong}"));
            let before = seen.written.insert(id, number);
            assert!(
                before.is_none_or(|before| before <= number),
                "{id}: an older version is written after a newer"
            );
        }
        drop(seen);
        let result = self.files.write(pages);
        self.seen().writing = false;
        result
    }

    fn sync(&self) -> Result<(), PageError> {
        self.files.sync()
    }

    fn restore_torn(&self) -> Result<usize, PageError> {
        self.files.restore_torn()
    }
}
