//! The threads of the log: the flusher, which does all writes, and the segment maker.
//!
//! One round of the flusher takes all filled records out of the ring and writes them at once (twice
//! where a segment ends). If any of it was requested, it syncs once for all waiters. This is group
//! commit without a timer: while one sync runs, the next group gathers (DeWitt et al.,
//! "Implementation Techniques for Main Memory Database Systems", SIGMOD 1984). Appenders do not
//! wait for the I/O: their words are free again as soon as they are copied out.
//!
//! Invariants
//! 1. Written data is at its place. After the last record zeros follow up to the next block
//!    boundary. So a write never needs to read a block that a recycled segment has only on disk.
//! 2. `written - durable` stays below [`MAX_UNSYNCED`], so a crash leaves nothing further beyond
//!    the log's end. The reader searches that far for proof of damage, and the next start wipes
//!    that much.
//! 3. An idle flusher leaves a mark behind the last group, unless a segment ends there. Until the
//!    next record overwrites it, the mark proves that everything before it is on disk. The next
//!    sync also syncs the mark; the last one happens at shutdown.
//! 4. A failed write or sync is never retried: after a failed fsync the operating system may
//!    consider the lost pages clean (Rebello et al., "Can Applications Recover from fsync
//!    Failures?", USENIX ATC 2020).
//! 5. A panic of one of these threads fails the log with the panic's message, as a failed write
//!    does.
//!
//! A crash leaves any subset of the sectors written since the last sync; the records' checksums
//! detect it.

use std::io;
use std::sync::Arc;

use clearway_env::File;
use clearway_sync::canary::{self, Bug};
use clearway_sync::thread::{self, JoinHandle};
use clearway_sync::time::Instant;

use super::log::Log;
use super::record::{self, HEADER, MAX_RECORD};
use super::segment::BLOCK;

/// Maximum number of bytes that a write gathers from the ring, before the record that exceeds it.
pub(super) const WRITE_LIMIT: usize = 4 << 20;
/// Maximum number of bytes written without a sync if none is requested.
pub(super) const SYNC_EVERY: u64 = 16 << 20;
/// No record of a log is this far or further beyond the end of the durable log.
pub(super) const MAX_UNSYNCED: u64 = 32 << 20;
const _: () = assert!(SYNC_EVERY + WRITE_LIMIT as u64 + (MAX_RECORD as u64) + BLOCK < MAX_UNSYNCED);

/// How much is written, and synced, at once.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    write_limit: usize,
    sync_every: u64,
}

impl Pace {
    /// Creates a pace within the bounds that invariant 2 needs.
    pub(super) fn new(write_limit: usize, sync_every: u64) -> Self {
        Self {
            write_limit: write_limit.clamp(1, WRITE_LIMIT),
            sync_every: sync_every.min(SYNC_EVERY),
        }
    }
}

/// Starts the flusher, which writes from the ring's start on; `file` is the segment that contains
/// it.
pub(super) fn spawn(log: Arc<Log>, file: Arc<dyn File>, pace: Pace) -> io::Result<JoinHandle<()>> {
    let written = log.durable().0;
    let mut flusher = Flusher {
        log,
        pace,
        file,
        written,
        dirty: Vec::new(),
        marked: written,
        mark_unsynced: false,
        buffer: Vec::new(),
    };
    thread::Builder::new().name("wal-flusher".into()).spawn(move || {
        let log = flusher.log.clone();
        // Closes the log even if a hook for the failure panics, so that nobody waits forever.
        let _close = CloseOnDrop(log.clone());
        log.or_fail("writing the log", || flusher.run());
    })
}

/// Starts the thread that makes segments ahead of need.
pub(super) fn spawn_segment_maker(log: Arc<Log>) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("wal-segments".into()).spawn(move || {
        log.or_fail("making a segment of the log", || log.keep_making_segments());
    })
}

struct CloseOnDrop(Arc<Log>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

struct Flusher {
    log: Arc<Log>,
    pace: Pace,
    /// The segment that contains `written`, or that ends there.
    file: Arc<dyn File>,
    /// The end of what was drained and, unless the log has failed, written.
    written: u64,
    /// Files, besides `file`, that were written since the last sync.
    dirty: Vec<Arc<dyn File>>,
    /// The end of the log at the last mark, or where no mark was needed.
    marked: u64,
    /// True if the last mark was written after the last sync.
    mark_unsynced: bool,
    buffer: Vec<u8>,
}

impl Flusher {
    fn run(&mut self) {
        loop {
            // Load it before checking for work, so that the check finds everything appended before
            // the stop.
            let stopping = self.log.stopping();
            if self.has_work() {
                self.round();
            } else if self.mark_if_due() {
                continue;
            } else if stopping {
                self.sync_mark();
                break;
            } else {
                self.log.sleep_unless(|| self.has_work() || self.log.stopping());
            }
        }
    }

    fn has_work(&self) -> bool {
        let reserved = self.log.ring.reserved();
        if self.log.is_half_full(reserved - self.written) {
            return true;
        }
        if self.log.failed().is_some() {
            return self.log.stopping() && reserved > self.written;
        }
        let wanted = if self.log.stopping() { reserved } else { self.log.requested() };
        wanted > self.log.durable().0
    }

    fn round(&mut self) {
        self.buffer.clear();
        let from = self.written;
        self.written = self.log.ring.drain(from, self.pace.write_limit, &mut self.buffer);
        self.log.release_room();
        let (drained, durable) = (self.written > from, self.log.durable().0);
        if self.log.failed().is_none()
            && self.written != durable
            && let Err(error) = self.write(from).and_then(|()| self.sync_if_due(durable))
        {
            self.log
                .fail((error.kind(), format!("{error} (between {durable} and {})", self.written)));
        }
        if !drained && self.log.durable().0 == durable {
            // An appender has reserved its record but not yet filled it. That takes less than a
            // microsecond, unless the scheduler has preempted it.
            thread::yield_now();
        }
    }

    /// Writes the buffer at LSN `at`.
    fn write(&mut self, at: u64) -> io::Result<()> {
        let mut at = at;
        let mut from = 0;
        let len = self.buffer.len();
        self.buffer.resize((at as usize + len).next_multiple_of(BLOCK as usize) - at as usize, 0);
        while from < len {
            let (start, offset, room) = self.log.segments.locate(at);
            if at == start {
                self.enter(start)?;
            }
            let n = (self.buffer.len() - from).min(room as usize);
            self.file.write_all_at(&self.buffer[from..from + n], offset)?;
            from += n;
            at += n as u64;
        }
        Ok(())
    }

    /// Writes a mark if everything written is durable and has no mark yet. Returns false if there
    /// was nothing to do.
    fn mark_if_due(&mut self) -> bool {
        let end = self.written;
        if self.marked == end || self.log.durable().0 != end || self.log.failed().is_some() {
            return false;
        }
        self.marked = end;
        if let Err(error) = self.mark(end) {
            self.log.fail((error.kind(), format!("{error} (a mark at {end})")));
        }
        true
    }

    fn mark(&mut self, end: u64) -> io::Result<()> {
        let (start, offset, room) = self.log.segments.locate(end);
        // At a segment's end the mark would make the next segment the current one before it is
        // needed.
        if end == start || room < HEADER as u64 {
            return Ok(());
        }
        self.buffer.clear();
        self.buffer.extend_from_slice(&record::mark(end));
        let len = (end as usize + HEADER).next_multiple_of(BLOCK as usize) - end as usize;
        self.buffer.resize(len.min(room as usize), 0);
        self.mark_unsynced = true;
        self.file.write_all_at(&self.buffer, offset)
    }

    /// Makes the mark at the log's end durable.
    fn sync_mark(&mut self) {
        if !self.mark_unsynced || self.log.failed().is_some() {
            return;
        }
        if let Err(error) = self.file.sync_data() {
            self.log.fail((error.kind(), format!("{error} (the mark at {})", self.marked)));
        }
    }

    fn enter(&mut self, start: u64) -> io::Result<()> {
        let since = Instant::now();
        let next = loop {
            match self.log.segments.enter(start) {
                Err(error) if self.log.wait_for_space(&error, since) => {}
                entered => break entered?,
            }
        };
        self.dirty.push(std::mem::replace(&mut self.file, next));
        self.log.room.wake();
        Ok(())
    }

    fn sync_if_due(&mut self, durable: u64) -> io::Result<()> {
        let requested = self.log.requested();
        let wanted = requested > durable || self.log.stopping();
        // If the buffer was full, the rest of the group is still in the ring: one sync for all of
        // it.
        let complete = self.written >= requested || self.buffer.len() < self.pace.write_limit;
        if !(wanted && complete) && self.written - durable < self.pace.sync_every {
            return Ok(());
        }
        // In log order, so that the durable log has no gap even if a later file fails.
        for file in self.dirty.drain(..).chain([self.file.clone()]) {
            if !canary::on(Bug::SkippedSync) {
                file.sync_data()?;
            }
            self.log.count_sync();
        }
        self.mark_unsynced = false;
        self.log.set_durable(self.written);
        Ok(())
    }
}
