//! The segments of an open log, before and after the place where the flusher writes.
//!
//! Invariants
//! 1. The segments from `oldest` up to, but not including, `next` exist, and their names survive a
//!    crash.
//! 2. `current` is one of them. Earlier segments may be removed; `current` and later ones may not.
//! 3. Recycling leaves at most `recycle_ahead` segments ahead of `current`.
//!
//! Locking: one monitor (not a latch), held during the I/O that makes, recycles or removes a
//! segment. The flusher takes it once per segment. It waits if the next segment is just being made,
//! because it needs that segment. No other lock is taken under it.
//!
//! A start does not assume that what it reads is on disk. The previous process may have been killed
//! between a write and its sync, or may have ended because the sync failed. So the start rewrites
//! the tail and syncs the whole log.
//!
//! A crash leaves complete segments, and at most one unfinished one under its own name, which the
//! next start removes. Segments are removed oldest first, so the rest has no gap. A crash may bring
//! back a removed segment; it is before a gap and is removed at the next start.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use clearway_env::{Disk, File, Open};
use clearway_latch::lockstat::Class;
use clearway_latch::{Monitor, MonitorGuard};
use clearway_sync::atomic::{AtomicU64, Ordering};

use super::segment::{self, BLOCK, Source};

/// Number of segments made ahead of need.
const MAKE_AHEAD: u64 = 1;

static SEGMENTS: Class = Class::new("log.segments");

/// The end of a log, and the part of it that a crash could undo.
#[derive(Clone, Copy)]
pub(super) struct Tail {
    /// Everything before it is known to be on disk.
    pub(super) durable: u64,
    /// End of the last record.
    pub(super) end: u64,
    /// Upper bound for the bytes of log that are written but not on disk.
    pub(super) unsynced: u64,
}

struct State {
    oldest: u64,
    current: u64,
    next: u64,
}

/// The segments of an open log.
pub(super) struct Segments {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    size: u64,
    recycle_ahead: u64,
    state: Monitor<State>,
    /// A copy of `next` that can be read without the lock.
    limit: AtomicU64,
}

impl Segments {
    /// Finds or makes the segment that contains the tail's end. Makes the log before the end
    /// durable and zeroes what follows. Otherwise data that an earlier process appended there, but
    /// that was not found durable, could reappear behind new records. `recycle_ahead`: see
    /// [`WalConfig`](super::WalConfig).
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        size: u64,
        tail: Tail,
        recycle_ahead: u64,
    ) -> io::Result<Self> {
        let end = tail.end;
        disk.create_dir_all(&dir)?;
        if let Some(parent) = dir.parent() {
            disk.sync_dir(parent)?;
        }
        segment::remove_unfinished(&*disk, &dir)?;
        let segment::Found { starts, size } = segment::find(&*disk, &dir, size)?;
        let current = end - end % size;
        let mut state = State { oldest: current, current, next: current };
        let follows = starts.last().is_none_or(|last| last + size == end);
        if starts.binary_search(&current).is_err() && !follows {
            let message = format!("{}: no segment of the log holds {end:#x}", dir.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        while starts.binary_search(&state.next).is_ok() {
            state.next += size;
        }
        while state.oldest >= size && starts.binary_search(&(state.oldest - size)).is_ok() {
            state.oldest -= size;
        }
        for stray in starts.iter().filter(|start| !(state.oldest..state.next).contains(start)) {
            disk.remove(&segment::path(&dir, *stray))?;
        }
        let mut source = Source::new(disk.clone(), dir.clone(), size);
        settle_tail(&mut source, &state, tail)?;
        sync_all(&mut source, &state)?;
        disk.sync_dir(&dir)?;
        let limit = AtomicU64::new(state.next);
        Ok(Self { disk, dir, size, recycle_ahead, state: Monitor::new(&SEGMENTS, state), limit })
    }

    #[track_caller]
    fn state(&self) -> MonitorGuard<'_, State> {
        // Each change of the state is one assignment, so it is consistent even after a panic.
        self.state.lock()
    }

    /// Returns the bytes of log per segment.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the LSN up to which the log has blocks on disk.
    #[inline]
    pub(super) fn limit(&self) -> u64 {
        // Acquire: pairs with the SeqCst store in `grow`. A thread that sees the end can rely on
        // the segment.
        self.limit.load(Ordering::Acquire)
    }

    /// Records that one more segment exists.
    fn grow(&self, state: &mut State) {
        state.next += self.size;
        // SeqCst: pairs as Release with the Acquire in `limit`, and takes part in the single order
        // that `Log::when_room` needs.
        self.limit.store(state.next, Ordering::SeqCst);
    }

    /// Returns the start of the segment that contains `at`, the offset of `at` in its file, and the
    /// bytes of log from there to its end.
    pub(super) fn locate(&self, at: u64) -> (u64, u64, u64) {
        let inside = at % self.size;
        (at - inside, BLOCK + inside, self.size - inside)
    }

    /// Returns a reader of the log.
    pub(super) fn source(&self) -> Source {
        Source::new(self.disk.clone(), self.dir.clone(), self.size)
    }

    /// Makes the segment that starts at `start` the current one and returns its file. Creates the
    /// segment if it does not exist.
    pub(super) fn enter(&self, start: u64) -> io::Result<Arc<dyn File>> {
        let mut state = self.state();
        while state.next <= start {
            self.make_next(&mut state, &|| false)?;
        }
        let file = self.disk.open(&segment::path(&self.dir, start), Open::Existing)?;
        state.current = start;
        Ok(file)
    }

    /// Makes the segments needed soon, and those up to `wanted`, unless `abandon` returns true.
    pub(super) fn make_ahead(&self, wanted: u64, abandon: &dyn Fn() -> bool) -> io::Result<()> {
        loop {
            let mut state = self.state();
            let ahead = state.next > state.current + MAKE_AHEAD * self.size && state.next >= wanted;
            if ahead || abandon() {
                return Ok(());
            }
            self.make_next(&mut state, abandon)?;
        }
    }

    fn make_next(&self, state: &mut State, abandon: &dyn Fn() -> bool) -> io::Result<()> {
        segment::make(&*self.disk, &self.dir, state.next, self.size, abandon)?;
        self.grow(state);
        Ok(())
    }

    /// Recycles or removes the segments before the current one that contain nothing at or after
    /// `lsn`.
    pub(super) fn remove_before(&self, lsn: u64) -> io::Result<()> {
        let mut removed = false;
        loop {
            let mut state = self.state();
            let old = state.oldest;
            if old >= state.current || old + self.size > lsn {
                break;
            }
            // Before the I/O: if that fails half way, the name may be gone, and the next start
            // handles the file.
            state.oldest += self.size;
            if state.next
                <= state.current.saturating_add(self.recycle_ahead.saturating_mul(self.size))
            {
                segment::recycle(&*self.disk, &self.dir, old, state.next, self.size)?;
                self.grow(&mut state);
            } else {
                self.disk.remove(&segment::path(&self.dir, old))?;
                removed = true;
            }
        }
        if removed { self.disk.sync_dir(&self.dir) } else { Ok(()) }
    }
}

/// Rewrites the log before the end as far as it may not be on disk, and writes zeros after it. A
/// read returns what an earlier process wrote, not what is on disk. After a failed sync no other
/// sync writes that data unless it is written again.
fn settle_tail(source: &mut Source, state: &State, tail: Tail) -> io::Result<()> {
    let Tail { durable, end, unsynced } = tail;
    let from = durable.max(end.saturating_sub(unsynced)).max(state.oldest);
    let mut bytes = vec![0; segment::STRIDE];
    source.pieces(from, end, &mut |file, offset, _, n| {
        file.read_exact_at(&mut bytes[..n], offset)?;
        file.write_all_at(&bytes[..n], offset)
    })?;
    bytes.fill(0);
    source.pieces(end, end + unsynced, &mut |file, offset, _, n| {
        file.write_all_at(&bytes[..n], offset)
    })
}

/// Syncs the segments in order: a killed process may have written parts of the log without syncing
/// them.
fn sync_all(source: &mut Source, state: &State) -> io::Result<()> {
    for start in (state.oldest..state.next).step_by(source.size() as usize) {
        if let Some(file) = source.file(start)? {
            file.sync_data()?;
        }
    }
    Ok(())
}
