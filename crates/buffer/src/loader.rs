//! Loads pages asynchronously. Each page is read once, however many threads wait for it. A [`Pin`]
//! holds what was fetched, a [`Reservation`] holds free frames.
//!
//! A read in progress has an entry in the page table's `loading`, with its waiters. The frame
//! enters the page table only when the page is complete, so no resident frame ever holds a partial
//! page. If the page is created in the meantime (`superseded`), the waiters get the created one. If
//! that has already been evicted, the page is read again.
//!
//! If there is a second level (module `second_level`), the page's copy there is read first. If the
//! copy is not valid, the page is read from its place.
//!
//! The read of a page that was written but not synced must return the version that was written
//! (module `unsynced`).

use crate::core::Core;
use crate::counters::count;
use crate::error::{Damage, PageError};
use crate::frame::{FETCH_PINS, FreeFrame};
use crate::free::{Granted, Need};
use crate::io::{FileSpace, Place};
use crate::page::{PAGE_SIZE, lsn};
use crate::second_level::{Copy, SecondLevel};
use crate::table::{Loading, Shard};
use clearway_env::{Read, ReadTarget};
use clearway_sync::canary::{self, Bug};
use clearway_sync::mpsc;
use clearway_sync::panics::caught;
use clearway_types::{FrameId, PageId};
use std::fmt;
use std::io;
use std::sync::Arc;

/// What an operation needs before it can be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MissingPage {
    /// This page in the pool.
    Page(PageId),
    /// This page in the pool, for a scan: one of many pages, and probably not needed again soon.
    /// Unless it is missed again soon, it is evicted before pages that were not fetched for a scan.
    /// A scan of any length therefore leaves the pool nearly unchanged.
    Scan(PageId),
    /// This many free frames.
    Frames(u32),
    /// Space on the disk for a page to be created.
    Space {
        /// The page.
        page: PageId,
        /// The space that it may use.
        space: FileSpace,
    },
    /// Space in the log.
    Log {
        /// The number of bytes.
        bytes: u64,
        /// If true, the request cannot be refused and keeps waiting while there is no space.
        must: bool,
    },
}

/// Callback that receives the result of a fetch.
pub type FetchDone = Box<dyn FnOnce(Result<Pin, PageError>) + Send>;

/// The core with callbacks as waiters.
pub(crate) type PoolCore = Core<FetchDone>;

/// Holds what was fetched until dropped: a page in its frame, or a number of frames that stay free
/// for creations. Does not exclude other threads from the page. May outlive the [`crate::Pool`].
pub struct Pin {
    core: Arc<PoolCore>,
    kept: Kept,
}

enum Kept {
    Page(FrameId),
    Frames(u32),
    Nothing,
}

impl Pin {
    /// Takes over a pin.
    pub(crate) fn page(core: Arc<PoolCore>, frame: FrameId) -> Self {
        Self { core, kept: Kept::Page(frame) }
    }

    /// Creates a `Pin` that holds nothing, for a request that needs nothing held.
    pub(crate) fn nothing(core: Arc<PoolCore>) -> Self {
        Self { core, kept: Kept::Nothing }
    }

    /// Takes over a promise.
    pub(crate) fn frames(core: Arc<PoolCore>, frames: u32) -> Self {
        Self { core, kept: Kept::Frames(frames) }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        match self.kept {
            Kept::Page(frame) => self.core.frame(frame).unpin(),
            Kept::Frames(n) => self.core.dispatch(self.core.free.end_promise(n)),
            Kept::Nothing => {}
        }
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kept {
            Kept::Page(frame) => write!(f, "Pin({:?})", self.core.frame(frame).page()),
            Kept::Frames(n) => write!(f, "Pin({n} frames)"),
            Kept::Nothing => f.write_str("Pin(nothing)"),
        }
    }
}

/// Free frames set aside, so that a change of several pages cannot run out of frames halfway.
pub struct Reservation {
    pub(crate) core: Arc<PoolCore>,
    pub(crate) frames: Vec<FreeFrame>,
}

impl Reservation {
    /// Returns the number of pages that can still be created in it.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns true if it is used up.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.frames.is_empty() {
            self.core.dispatch(self.core.free.put(self.frames.drain(..)));
        }
    }
}

impl PoolCore {
    pub fn fetch(self: &Arc<Self>, missing: MissingPage, done: FetchDone) {
        if let Some(error @ PageError::Panicked { .. }) = self.health.failed() {
            return self.answer(done, Err(error.clone()));
        }
        let need = match missing {
            MissingPage::Page(id) | MissingPage::Scan(id) => {
                let scan = matches!(missing, MissingPage::Scan(_));
                let mut shard = self.table.latch(id);
                if let Some(frame) = self.table.find_latched(&shard, self.frames(), id) {
                    let latched = (!canary::on(Bug::LatePin)).then_some(shard);
                    let kept = self.frame(frame).pin(1);
                    drop(latched);
                    return self.complete(vec![done], frame, kept);
                }
                if let Some(loading) = shard.loading.get_mut(&id) {
                    if loading.waiters.len() as u64 >= FETCH_PINS {
                        drop(shard);
                        return self.answer(done, Err(PageError::NoFrames));
                    }
                    loading.waiters.push(done);
                    loading.scan &= scan;
                    return;
                }
                shard.loading.insert(id, Loading { waiters: vec![done], superseded: false, scan });
                Need::Page(id)
            }
            MissingPage::Frames(n) if n as usize > self.frames().len() / 2 => {
                return self.answer(done, Err(PageError::NoFrames));
            }
            MissingPage::Frames(n) => Need::Frames(n, done),
            MissingPage::Space { page, space } => {
                let core = self.clone();
                let make = move || {
                    let made = core
                        .guarded("making space on the disk", || core.io.make_space(page, space));
                    core.answer(done, made.map(|()| Pin::nothing(core.clone())));
                };
                return self.io_pool.submit(Box::new(make));
            }
            MissingPage::Log { bytes, must } => {
                let core = self.clone();
                let answer = move |room: std::io::Result<()>| {
                    let kept = room.map(|()| Pin::nothing(core.clone()));
                    core.answer(done, kept.map_err(|error| PageError::LogRoom(Arc::new(error))));
                };
                return self.health.wal.when_room(bytes, must, Box::new(answer));
            }
        };
        self.dispatch(self.free.request(need));
    }

    pub fn fetch_blocking(self: &Arc<Self>, missing: MissingPage) -> Result<Pin, PageError> {
        let (sender, receiver) = mpsc::channel();
        // The receiver waits, so the send succeeds.
        self.fetch(missing, Box::new(move |result| drop(sender.send(result))));
        receiver.recv().unwrap_or(Err(PageError::Closed))
    }

    /// Acts on needs that the free list has granted or refused.
    pub fn dispatch(self: &Arc<Self>, granted: impl IntoIterator<Item = Granted<FetchDone>>) {
        for one in granted {
            match one {
                Granted::Page(id, frame) => self.load(id, frame),
                Granted::Frames(n, done) => self.answer(done, Ok(Pin::frames(self.clone(), n))),
                Granted::Refused(Need::Frames(_, done), error) => self.answer(done, Err(error)),
                Granted::Refused(Need::Page(id), error) => self.refuse(id, &error),
            }
        }
    }

    /// Reads a page into a frame, from the second level if it has the page.
    fn load(self: &Arc<Self>, id: PageId, frame: FreeFrame) {
        let found = self.second_level.as_ref().and_then(|second| Some((second, second.find(id)?)));
        let Some((second, copy)) = found else { return self.load_from_place(id, frame) };
        let (file, offset) = second.place(copy);
        let target =
            Box::new(Target { core: self.clone(), id, frame, copy: Some((second.clone(), copy)) });
        self.io_pool.read(Read { file, offset, target });
    }

    fn load_from_place(self: &Arc<Self>, id: PageId, frame: FreeFrame) {
        count(&self.counters.reads, 1);
        match self.guarded("locating a page", || self.io.place(id)) {
            Ok(Place { file, offset }) => {
                let target = Box::new(Target { core: self.clone(), id, frame, copy: None });
                self.io_pool.read(Read { file, offset, target });
            }
            Err(error) => self.loaded(id, frame, Err(error)),
        }
    }

    /// Continues after a read has completed.
    fn loaded(self: &Arc<Self>, id: PageId, mut frame: FreeFrame, result: Result<(), PageError>) {
        let mut shard = self.table.latch(id);
        if let Some(resident) = self.table.find_latched(&shard, self.frames(), id) {
            let (waiters, _) = end_loading(&mut shard, id);
            let kept = self.frame(resident).pin(waiters.len() as u64);
            drop(shard);
            self.dispatch(self.free.put([frame]));
            return self.complete(waiters, resident, kept);
        }
        if let Some(loading) = shard.loading.get_mut(&id)
            && loading.superseded
        {
            loading.superseded = false;
            drop(shard);
            return self.load(id, frame);
        }
        let (waiters, scan) = end_loading(&mut shard, id);
        // Not earlier: a read that a creation has superseded may have begun before the page was
        // written.
        if let Err(error) = self.check_written(id, self.arena.free_bytes(&mut frame), result) {
            drop(shard);
            self.dispatch(self.free.put([frame]));
            waiters.into_iter().for_each(|done| self.answer(done, Err(error.clone())));
            return;
        }
        let kept = waiters.len() as u64;
        let frame = self.publish(frame, id, kept, None);
        self.table.link(&shard, self.frames(), id, frame);
        drop(shard);
        // While the waiters' pins hold the page, so that it cannot leave the policy before it
        // enters it.
        if !(scan && self.scans.admit(frame, id)) {
            self.replacement.miss(frame, id);
        }
        self.complete(waiters, frame, kept);
    }

    /// Reports a page as damaged if it has changes that the log does not have: the log has lost
    /// them.
    fn check_lsn(&self, id: PageId, page: &[u8; PAGE_SIZE]) -> Result<(), PageError> {
        let (found, end) = (lsn(page), self.health.wal.appended());
        if found <= end {
            return Ok(());
        }
        let file = self.io.file(id);
        Err(PageError::Damaged {
            file,
            page: id,
            damage: Damage::Lsn,
            expected: end.0,
            found: found.0,
        })
    }

    /// Decides the result of a read, whether or not the page was accepted. If a page was written
    /// but not synced and the read does not return that version, the disk has lost the write,
    /// whatever it reports at the next sync.
    fn check_written(
        &self,
        id: PageId,
        page: &[u8],
        accepted: Result<(), PageError>,
    ) -> Result<(), PageError> {
        let Some(written) = self.unsynced.written(id) else { return accepted };
        let found = match accepted {
            Ok(()) if lsn(page) == written => return Ok(()),
            Ok(()) => format!("{} found", lsn(page)),
            Err(error @ PageError::Damaged { .. }) => error.to_string(),
            Err(error) => return Err(error),
        };
        let lost = format!("the disk has lost a write: LSN {written} expected, {found}");
        Err(self.fail(PageError::io(&self.io.file(id), "sync", io::Error::other(lost)).at(id)))
    }

    /// Ends a read that gets no frame.
    fn refuse(self: &Arc<Self>, id: PageId, error: &PageError) {
        let mut shard = self.table.latch(id);
        let (waiters, _) = end_loading(&mut shard, id);
        match self.table.find_latched(&shard, self.frames(), id) {
            Some(created) => {
                let kept = self.frame(created).pin(waiters.len() as u64);
                drop(shard);
                self.complete(waiters, created, kept);
            }
            None => {
                drop(shard);
                waiters.into_iter().for_each(|done| self.answer(done, Err(error.clone())));
            }
        }
    }

    /// Gives each waiter one of the page's `kept` pins. Waiters beyond that number are refused.
    fn complete(self: &Arc<Self>, waiters: Vec<FetchDone>, frame: FrameId, kept: u64) {
        for (number, done) in (0..).zip(waiters) {
            let pin = (number < kept).then(|| Pin::page(self.clone(), frame));
            self.answer(done, pin.ok_or(PageError::NoFrames));
        }
    }

    /// Calls back. A panic of the callback fails the pool and is not propagated, because other
    /// waiters need their answers.
    fn answer(&self, done: FetchDone, result: Result<Pin, PageError>) {
        if let Err(message) = caught(move || done(result)) {
            self.fail(PageError::panicked("running the callback of a fetch", &message));
        }
    }
}

/// A read into a free frame.
struct Target {
    core: Arc<PoolCore>,
    id: PageId,
    frame: FreeFrame,
    /// The copy in the second level, if that is read.
    copy: Option<(Arc<SecondLevel>, Copy)>,
}

// SAFETY: the bytes are in the arena, which `core` keeps in place. They are the same each time, and
// no other thread accesses them while the frame is free and owned by this (`frame`, invariant 1).
unsafe impl ReadTarget for Target {
    fn buffer(&mut self) -> &mut [u8] {
        self.core.arena.free_bytes(&mut self.frame)
    }

    fn done(self: Box<Self>, result: io::Result<usize>) {
        let Self { core, id, mut frame, copy } = *self;
        let bytes = core.arena.free_bytes(&mut frame);
        if let Some((second, copy)) = copy {
            return match second.accept(id, copy, bytes, result) {
                true => core.loaded(id, frame, Ok(())),
                false => core.load_from_place(id, frame),
            };
        }
        let accept = || core.io.accept(id, bytes, result).and_then(|()| core.check_lsn(id, bytes));
        let accepted = core.guarded("verifying a page", accept);
        core.loaded(id, frame, accepted);
    }
}

/// Returns the waiters, and whether all of them are scans.
fn end_loading(shard: &mut Shard<FetchDone>, id: PageId) -> (Vec<FetchDone>, bool) {
    shard.loading.remove(&id).map(|loading| (loading.waiters, loading.scan)).unwrap_or_default()
}
