//! The second level: copies of evicted pages, in one file on a faster disk than the data's.
//!
//! The file is a ring of regions, each written in one piece. The cooler gathers clean victims in a
//! region's buffer. When the buffer is full, an I/O thread writes it over the oldest region. The
//! cooler waits for no write: while both buffers are full, its victims are not put here. A miss
//! checks the directory first. A copy is used only if its checksum shows that it is the page's
//! copy. Any other content is dropped, and the page is read from its place.
//!
//! # Invariants
//! 1. A copy that is found while its page is in no frame is the page's newest version. The pool
//!    invalidates a page before it writes a newer version, while the write-back pins the page. The
//!    cooler's victims are put here only if nothing was invalidated since before they were taken
//!    (the directory's epoch).
//! 2. A read that was in progress when its page was created, changed and written does not count:
//!    the page is resident, or its entry in the page table's `loading` is superseded. If its slot
//!    was taken for another page in the meantime, the read returns other bytes, or the previous
//!    content.
//! 3. Content that the file has at the start is not trusted: the file is truncated.
//! 4. A failure here is not an error for any caller: a copy that cannot be used is a miss. The
//!    level turns off permanently, with a line in the log, after a failed write, or when the bad
//!    copies exceed [`BAD_COPIES`] plus one in [`BAD_SHARE`] of those read. If the disk is full,
//!    the level uses the regions that fit.
//! 5. A page with LSN 0 is not put here: a page that was created and never changed is not what the
//!    disk has.
//!
//! # Locking
//! A latch protects the directory and the free buffers. It is held for a few instructions, or for
//! the slots of a region. Its holder acquires nothing else.
//!
//! # State after a crash
//! A file that the next start empties.
//!
//! # Source
//! Regions in a ring, first in, first out, with an index in memory: the block cache of CacheLib's
//! Navy (Berg et al., "The CacheLib Caching Engine", OSDI 2020). Filled with the pool's victims,
//! clean first, lost with the process: Do et al., "Turbocharging DBMS Buffer Pool Using SSDs",
//! SIGMOD 2011.

mod directory;

use crate::counters::{count, load};
use crate::frame::{Arena, FreeFrame};
use crate::page::{PAGE_SIZE, lsn, seal, stored_crc, verify};
use clearway_env::{Aligned, Disk, DiskLock, File, IoPool, Job, Open, is_full};
use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_sync::atomic::AtomicU64;
use clearway_sync::canary::{self, Bug};
use clearway_types::{Lsn, PageId};
pub(crate) use directory::{Copy, Directory};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The file's name in its directory. No other file may have it: the file is emptied at every start.
pub const SECOND_LEVEL_FILE: &str = "clearway-second-level.cache";
const LEAST_SLOTS: u64 = 16;
const LARGEST: u64 = 1 << 42;
/// The maximum number of pages in a region: a write of 512 KiB.
const REGION: u64 = 64;
/// The minimum number of regions in a file of many pages.
const REGIONS: u64 = 8;
/// Region buffers in memory: one is filled while the other is written.
const BUFFERS: usize = 2;
/// With fewer regions the level would be useless, and is off.
const LEAST_REGIONS: u32 = BUFFERS as u32 + 1;
/// This many bad copies are tolerated, and one more for each `BAD_SHARE` good ones.
const BAD_COPIES: u64 = 16;
const BAD_SHARE: u64 = 1024;

static SECOND_LEVEL: Class = Class::new("buffer.second_level");

/// The location and size of a second level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecondLevelConfig {
    /// The directory of its file, [`SECOND_LEVEL_FILE`]; it must exist.
    pub dir: PathBuf,
    /// The file's size in bytes, at least 16 pages, at most 4 TiB.
    pub size: u64,
}

/// Counters of the second level; zeros if there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SecondLevelStats {
    /// Pages that have a slot now.
    pub pages: u64,
    /// Misses of the pool that the second level served.
    pub hits: u64,
    /// Misses of the pool that it did not serve.
    pub misses: u64,
    /// Pages written here.
    pub writes: u64,
    /// Copies that could not be read, or differed from what was written.
    pub dropped: u64,
    /// Evicted pages that were not put here, because the disk did not keep up or a page was being
    /// written back.
    pub skipped: u64,
}

#[derive(Default)]
struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    writes: AtomicU64,
    dropped: AtomicU64,
    skipped: AtomicU64,
}

/// A file of copies of pages. See the module's documentation.
pub struct SecondLevel {
    file: Arc<dyn File>,
    name: Arc<str>,
    region_slots: u32,
    state: Latch<State>,
    counters: Counters,
}

struct State {
    on: bool,
    directory: Directory,
    /// Regions in use; fewer than configured if the disk is full.
    regions: u32,
    /// The region to be filled next.
    next: u32,
    /// Regions that are being filled or written. Never refill one: the completion of its write
    /// would publish slots that were not written.
    busy: Vec<u32>,
    buffers: Vec<Aligned>,
    /// Held while this process owns the file.
    lock: Option<DiskLock>,
}

/// A region that is being filled or written.
struct Region {
    number: u32,
    buffer: Aligned,
    /// The pages of its slots.
    pages: Vec<PageId>,
}

/// The state that belongs to the cooler.
#[derive(Default)]
pub(crate) struct Filling {
    region: Option<Region>,
    /// A full region that is not yet written, because no I/O thread could accept the job.
    full: Option<Job>,
}

/// A page that has just left its frame.
pub(crate) struct Victim {
    pub page: PageId,
    pub frame: FreeFrame,
}

fn offset(slot: u32) -> u64 {
    u64::from(slot) * PAGE_SIZE as u64
}

impl SecondLevel {
    /// Creates the file, or empties the existing one.
    ///
    /// # Errors
    /// The disk's errors; `WouldBlock` if another process has the file, `InvalidInput` for a size
    /// out of range, `PermissionDenied` for a file that other users own or may access.
    pub fn open(disk: &dyn Disk, config: &SecondLevelConfig) -> io::Result<Self> {
        let slots = config.size / PAGE_SIZE as u64;
        if slots < LEAST_SLOTS || config.size > LARGEST {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "its size must be 16 pages to 4 TiB",
            ));
        }
        let path = config.dir.join(SECOND_LEVEL_FILE);
        let lock = disk.lock(&path)?;
        let file = disk.open_pages(&path, Open::Private)?;
        file.set_len(0)?;
        let region_slots = (slots / REGIONS).clamp(1, REGION);
        let regions = (slots / region_slots) as u32;
        let region_slots = region_slots as u32;
        let buffers =
            (0..BUFFERS).map(|_| Aligned::new(region_slots as usize * PAGE_SIZE)).collect();
        let directory = Directory::new(regions, region_slots);
        let state = State {
            on: true,
            directory,
            regions,
            next: 0,
            busy: Vec::new(),
            buffers,
            lock: Some(lock),
        };
        Ok(Self {
            file,
            name: path.display().to_string().into(),
            region_slots,
            state: Latch::new(&SECOND_LEVEL, state),
            counters: Counters::default(),
        })
    }

    /// Returns the place of a copy.
    pub(crate) fn place(&self, copy: Copy) -> (Arc<dyn File>, u64) {
        (self.file.clone(), offset(copy.slot))
    }

    /// Returns the page's copy, for a read that has an entry in the page table's `loading`.
    pub(crate) fn find(&self, page: PageId) -> Option<Copy> {
        let state = self.state.lock();
        let found = state.directory.find(page);
        if found.is_none() && state.on {
            count(&self.counters.misses, 1);
        }
        found
    }

    /// Returns true if a read has returned the copy.
    pub(crate) fn accept(
        &self,
        page: PageId,
        copy: Copy,
        bytes: &[u8; PAGE_SIZE],
        read: io::Result<usize>,
    ) -> bool {
        let verified =
            || canary::on(Bug::UnverifiedCopy) || verify(bytes, page, &self.name).is_ok();
        let what = match read {
            Ok(PAGE_SIZE) if stored_crc(bytes) == copy.crc && verified() => {
                count(&self.counters.hits, 1);
                return true;
            }
            Ok(_) => "it is not what was written".to_owned(),
            Err(error) => error.to_string(),
        };
        let mut state = self.state.lock();
        if !state.directory.remove_copy(page, copy) {
            // The slot was taken for another page during the read.
            count(&self.counters.misses, 1);
            return false;
        }
        count(&self.counters.dropped, 1);
        let too_many =
            load(&self.counters.dropped) > BAD_COPIES + load(&self.counters.hits) / BAD_SHARE;
        let ended = too_many && state.turn_off();
        drop(state);
        tracing::debug!(file = %self.name, %page, what, "a bad copy in the second-level cache");
        if ended {
            self.say_off(&format!("too many bad copies, the last one of {page}: {what}"));
        }
        false
    }

    /// Invalidates the copies of these pages, because newer versions are about to be written to
    /// their places (invariant 1).
    pub(crate) fn invalidate(&self, pages: impl Iterator<Item = PageId>) {
        if !canary::on(Bug::StaleCopy) {
            self.state.lock().directory.invalidate(pages);
        }
    }

    /// Returns the epoch to pass to `put`, from before the first of its victims was taken; `None`
    /// if the level is off.
    pub(crate) fn epoch(&self) -> Option<u64> {
        let state = self.state.lock();
        state.on.then(|| state.directory.epoch())
    }

    /// Puts victims here that were taken since `epoch`, as far as there is space in memory. Only
    /// the cooler calls it. Does not block.
    pub(crate) fn put(
        self: &Arc<Self>,
        filling: &mut Filling,
        epoch: u64,
        victims: &mut [Victim],
        arena: &Arena,
        io_pool: &IoPool,
    ) {
        filling.full = filling.full.take().and_then(|job| io_pool.try_submit(job).err());
        let changed = |victim: &mut Victim| lsn(arena.free_bytes(&mut victim.frame)) != Lsn(0);
        let mut victims: Vec<&mut Victim> =
            victims.iter_mut().filter_map(|v| changed(v).then_some(v)).collect();
        while !victims.is_empty() && filling.full.is_none() {
            let Some(mut region) = filling.region.take().or_else(|| self.begin_region()) else {
                break;
            };
            let places = self.reserve(&mut region, epoch, &victims);
            for (victim, at) in victims.drain(..places.len()).zip(&places) {
                if let Some(at) = at {
                    region.buffer[at * PAGE_SIZE..][..PAGE_SIZE]
                        .copy_from_slice(arena.free_bytes(&mut victim.frame));
                }
            }
            if region.pages.len() == self.region_slots as usize {
                let this = self.clone();
                filling.full = io_pool.try_submit(Box::new(move || this.write(region))).err();
            } else {
                filling.region = Some(region);
            }
            if places.is_empty() {
                break;
            }
        }
        count(&self.counters.skipped, victims.len() as u64);
    }

    /// Takes the oldest region to be filled, if a buffer is free.
    fn begin_region(&self) -> Option<Region> {
        let mut state = self.state.lock();
        let number = state.next;
        if state.busy.contains(&number) {
            return None;
        }
        let buffer = state.buffers.pop()?;
        state.busy.push(number);
        state.next = (number + 1) % state.regions;
        state.directory.take_region(number);
        Some(Region { number, buffer, pages: Vec::with_capacity(self.region_slots as usize) })
    }

    /// Assigns slots to the first of the victims. Returns for each its place in the region's
    /// buffer, `None` for one that already has a copy. Returns nothing if a page was invalidated
    /// since `epoch`.
    fn reserve(
        &self,
        region: &mut Region,
        epoch: u64,
        victims: &[&mut Victim],
    ) -> Vec<Option<usize>> {
        let mut state = self.state.lock();
        let mut places = Vec::new();
        if !state.on || state.directory.epoch() != epoch {
            return places;
        }
        for victim in victims.iter().take(self.region_slots as usize) {
            let at = region.pages.len();
            if at == self.region_slots as usize {
                break;
            }
            let slot = region.number * self.region_slots + at as u32;
            let fresh = state.directory.reserve(victim.page, slot);
            if fresh {
                region.pages.push(victim.page);
            }
            places.push(fresh.then_some(at));
        }
        places
    }

    /// Writes a full region. Runs in a job of the I/O threads.
    fn write(&self, mut region: Region) {
        let (copies, _) = region.buffer.as_chunks_mut::<PAGE_SIZE>();
        let sealed = |(copy, page): (&mut [u8; PAGE_SIZE], &PageId)| {
            seal(copy, *page);
            stored_crc(copy)
        };
        let crcs: Vec<u32> = copies.iter_mut().zip(&region.pages).map(sealed).collect();
        let is_wanted = |state: &State| state.on && region.number < state.regions;
        let wanted = is_wanted(&self.state.lock());
        let at = offset(region.number * self.region_slots);
        let written = if wanted { self.file.write_all_at(&region.buffer, at) } else { Ok(()) };
        let mut state = self.state.lock();
        state.busy.retain(|number| *number != region.number);
        if state.on {
            state.buffers.push(region.buffer);
        }
        if !is_wanted(&state) {
            return;
        }
        let Err(error) = written else {
            state.directory.written(region.number, &crcs);
            count(&self.counters.writes, crcs.len() as u64);
            return;
        };
        let regions = region.number;
        if !is_full(&error) || regions < LEAST_REGIONS {
            state.turn_off();
            drop(state);
            return self.say_off(&error.to_string());
        }
        (regions..state.regions).for_each(|none| state.directory.take_region(none));
        state.regions = regions;
        state.next %= regions;
        drop(state);
        let size = offset(regions * self.region_slots);
        tracing::warn!(file = %self.name, %error, size, "the second-level cache is smaller than configured");
    }

    fn say_off(&self, why: &str) {
        tracing::warn!(file = %self.name, why, "the second-level cache is off until the next start");
    }

    /// Releases the file, for the process that opens it next. A write in progress may still end in
    /// it: its content is not trusted.
    pub(crate) fn close(&self) {
        let lock = {
            let mut state = self.state.lock();
            state.turn_off();
            state.lock.take()
        };
        drop(lock);
    }

    /// Returns the counters.
    pub(crate) fn stats(&self) -> SecondLevelStats {
        SecondLevelStats {
            pages: self.state.lock().directory.pages().into(),
            hits: load(&self.counters.hits),
            misses: load(&self.counters.misses),
            writes: load(&self.counters.writes),
            dropped: load(&self.counters.dropped),
            skipped: load(&self.counters.skipped),
        }
    }
}

impl State {
    /// Turns the level off. Returns true if it was on.
    fn turn_off(&mut self) -> bool {
        self.directory = Directory::new(0, 1);
        self.buffers.clear();
        std::mem::take(&mut self.on)
    }
}
