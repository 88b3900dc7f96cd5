//! The set of segments that an open log has, ahead of and behind the place where the flusher
//! writes.
//!
//! Invariants
//! 1. The segments from `oldest` up to, but not including, `next` are there, and their names
//!    survive a crash.
//! 2. `current` is one of them; those before it may be removed, it and those after it may not.
//! 3. Recycling leaves no more than `recycle_ahead` segments ahead of `current`.
//!
//! Locking: one monitor (no latch), held during the I/O that makes, recycles or removes a segment.
//! The flusher takes it once a segment, and then waits if the next segment is just being made: it
//! needs it. No other lock is taken under it.
//!
//! A start believes nothing to be on the disk that it reads: the process before it may have been
//! killed between a write and its sync, or have ended because the sync failed. It writes the tail
//! anew and syncs all that the log has.
//!
//! A crash leaves, besides whole segments, at most one unfinished one under a name of its own; the
//! next start removes it. Segments are removed oldest first, so that what is left has no gap (a
//! crash may bring back a removed one: it lies before a gap and is removed at the next start).

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use clearway_env::{Disk, File, Open};
use clearway_latch::lockstat::Class;
use clearway_latch::{Monitor, MonitorGuard};
use clearway_sync::atomic::{AtomicU64, Ordering};

use super::segment::{self, BLOCK, Source};

/// Segments that are made ahead of need.
const MAKE_AHEAD: u64 = 1;

static SEGMENTS: Class = Class::new("log.segments");

/// Where a log ends, and what of it a crash could take back.
#[derive(Clone, Copy)]
pub(super) struct Tail {
    /// All before it is known to be on the disk.
    pub(super) durable: u64,
    /// Where the last record ends.
    pub(super) end: u64,
    /// No more than so many bytes of log are ever written and not on the disk.
    pub(super) unsynced: u64,
}

struct State {
    oldest: u64,
    current: u64,
    next: u64,
}

/// See the module's text.
pub(super) struct Segments {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    size: u64,
    recycle_ahead: u64,
    state: Monitor<State>,
    /// `next`, for those who ask without the lock.
    limit: AtomicU64,
}

impl Segments {
    /// Finds or makes the segment that the tail's end lies in, makes the log before it durable and
    /// what follows it zero: what an earlier life had appended there without finding it durable
    /// must not come back behind what this one will append. `recycle_ahead`: see
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
        if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
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
        // Each change of the state is one assignment, so it is whole even after a panic.
        self.state.lock()
    }

    /// Bytes of log in a segment.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Up to here the log has its blocks on the disk.
    #[inline]
    pub(super) fn limit(&self) -> u64 {
        // Acquire: pairs with the store in `grow`, so that who sees the end may count on the
        // segment.
        self.limit.load(Ordering::Acquire)
    }

    /// One more segment is there.
    fn grow(&self, state: &mut State) {
        state.next += self.size;
        // SeqCst: Release for `limit`, and the single order that `Shared::when_room` needs.
        self.limit.store(state.next, Ordering::SeqCst);
    }

    /// The start of the segment that holds `at`, the offset of `at` in its file, and the bytes of
    /// log from there on.
    pub(super) fn locate(&self, at: u64) -> (u64, u64, u64) {
        let inside = at % self.size;
        (at - inside, BLOCK + inside, self.size - inside)
    }

    /// Reads the log.
    pub(super) fn source(&self) -> Source {
        Source::new(self.disk.clone(), self.dir.clone(), self.size)
    }

    /// The file of the segment that starts at `start`, which becomes the current one; it is made if
    /// it is not there.
    pub(super) fn enter(&self, start: u64) -> io::Result<Arc<dyn File>> {
        let mut state = self.state();
        while state.next <= start {
            self.make_next(&mut state, &|| false)?;
        }
        let file = self.disk.open(&segment::path(&self.dir, start), Open::Existing)?;
        state.current = start;
        Ok(file)
    }

    /// Makes the segments that will be needed soon, and those up to `wanted`, unless `abandon` says
    /// so.
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

    /// Recycles or removes the segments before the current one that hold nothing at or after `lsn`.
    pub(super) fn remove_before(&self, lsn: u64) -> io::Result<()> {
        let mut removed = false;
        loop {
            let mut state = self.state();
            let old = state.oldest;
            if old >= state.current || old + self.size > lsn {
                break;
            }
            // Before the I/O: if that fails half way, the name may be gone, and the next start sees
            // to the file.
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

/// Writes the log before the end anew as far as it may not be on the disk, and zeros after it. What
/// is read shows what an earlier process has written, not what the disk has: after a sync that
/// failed no other sync writes it, unless it is written again.
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

/// Syncs the segments, in order: what the log holds may have been written by a process that did not
/// live to sync it.
fn sync_all(source: &mut Source, state: &State) -> io::Result<()> {
    for start in (state.oldest..state.next).step_by(source.size() as usize) {
        if let Some(file) = source.file(start)? {
            file.sync_data()?;
        }
    }
    Ok(())
}
