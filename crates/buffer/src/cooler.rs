//! The cooler: a thread that frees frames before they are needed.
//!
//! When free frames run low, it takes victims: first pages that scans loaded, then pages that the
//! policy proposes. It evicts clean victims at once. It first writes dirty victims in a batch,
//! together with their dirty neighbours in the file. Evicted pages are copied to the second level,
//! if there is one, except for pages that scans loaded. A thread that needs a frame never writes a
//! page or searches for a victim itself.

use crate::error::PageError;
use crate::frame::FreeFrame;
use crate::loader::PoolCore;
use crate::scan_ring::Entry;
use crate::second_level::{Filling, Victim};
use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_replacement::Probe;
use clearway_sync::canary::{self, Bug};
use clearway_sync::panics::caught;
use clearway_sync::thread::{self, JoinHandle};
use clearway_types::{FrameId, PageId};
use std::io;
use std::sync::Arc;

/// Dirty pages on each side of a victim that are written with it.
const NEIGHBOURS: u32 = 16;

static COOLER: Class = Class::new("buffer.cooler");

pub(crate) struct Cooler {
    thread: Latch<Option<JoinHandle<()>>>,
}

impl Cooler {
    pub fn start(core: Arc<PoolCore>) -> io::Result<Self> {
        let run = move || {
            core.cool_or_fail(|core| core.run_cooler());
        };
        let thread = thread::Builder::new().name("cooler".to_owned()).spawn(run)?;
        Ok(Self { thread: Latch::new(&COOLER, Some(thread)) })
    }

    /// Waits for the thread to exit, which the free list's `stop` causes. Does not wait if the
    /// caller is this thread: a callback on it may drop the pool.
    pub fn join(&self) {
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            // The panic hook has already reported a panic of the thread.
            let _ended = thread.join();
        }
    }
}

impl PoolCore {
    /// Runs the cooler's work. After a panic the pool has failed: it hands out no more frames, and
    /// every waiter gets that error.
    fn cool_or_fail(self: &Arc<Self>, work: impl FnOnce(&Arc<Self>)) {
        if let Err(message) = caught(|| work(self)) {
            let error = self.fail(PageError::panicked("freeing frames", &message));
            self.dispatch(self.free.stop(error));
        }
    }

    fn run_cooler(self: &Arc<Self>) {
        let mut fruitful = true;
        let mut filling = Filling::default();
        while !self.free.wait_for_work(fruitful) {
            fruitful = self.cool(&mut filling);
        }
    }

    /// Runs one round. Returns true if a frame became free.
    fn cool(self: &Arc<Self>, filling: &mut Filling) -> bool {
        let need = self.free.deficit().max(1);
        let epoch = self.epoch();
        let Victims { clean, of_scans, dirty, dirty_of_scans } = self.choose_victims(need);
        let mut freed = clean.len() + of_scans.len();
        let clean = self.put_in_second_level(filling, epoch, clean);
        self.dispatch(self.free.put(clean.chain(of_scans)));
        if !dirty.is_empty() {
            freed += self.evict_dirty(filling, &dirty, dirty_of_scans);
        }
        if freed == 0 {
            self.dispatch(self.free.age(self.health.failed()));
        }
        freed > 0
    }

    /// Writes dirty victims, and evicts those that are then clean and unused. `of_scans` has the
    /// ones that scans loaded. Returns the number of frames that became free.
    fn evict_dirty(
        self: &Arc<Self>,
        filling: &mut Filling,
        victims: &[FrameId],
        of_scans: Vec<Entry>,
    ) -> usize {
        let written = match self.write_batch(&self.with_neighbours(victims), false) {
            Ok(written) => written,
            Err(error) => {
                tracing::error!(%error, "the buffer pool cannot write pages");
                Vec::new()
            }
        };
        let epoch = self.epoch();
        let (mut evicted, mut scanned) = (Vec::new(), Vec::new());
        for frame in written.into_iter().filter(|frame| victims.contains(frame)) {
            let Some(victim) = self.claim_unproposed(frame) else { continue };
            if of_scans.contains(&(frame, victim.page)) {
                self.scans.left(victim.page);
                scanned.push(victim);
            } else {
                evicted.push(victim);
            }
        }
        for entry in of_scans {
            if !scanned.iter().any(|victim| victim.page == entry.1) {
                self.scans.put_back(entry);
            }
        }
        let freed = evicted.len() + scanned.len();
        let frames = self.put_in_second_level(filling, epoch, evicted);
        self.dispatch(self.free.put(frames.chain(scanned.into_iter().map(|victim| victim.frame))));
        freed
    }

    fn epoch(&self) -> Option<u64> {
        self.second_level.as_ref().and_then(|second| second.epoch())
    }

    /// Copies victims taken since `epoch` to the second level, and returns their frames.
    fn put_in_second_level(
        &self,
        filling: &mut Filling,
        epoch: Option<u64>,
        mut victims: Vec<Victim>,
    ) -> impl Iterator<Item = FreeFrame> {
        if let (Some(second), Some(epoch)) = (&self.second_level, epoch) {
            second.put(filling, epoch, &mut victims, &self.arena, &self.io_pool);
        }
        victims.into_iter().map(|victim| victim.frame)
    }

    /// Takes up to `need` clean victims, and collects dirty ones for the rest: pages of scans
    /// first, then in the policy's order. A dirty page is therefore not passed over for a clean
    /// page that is more useful.
    fn choose_victims(&self, need: usize) -> Victims {
        let mut victims = Victims::default();
        self.choose_of_scans(need, false, &mut victims);
        let writable = self.health.failed().is_none();
        while self.may_choose(need, &victims) {
            let Victims { clean, of_scans, dirty, .. } = &mut victims;
            let mut claimed = None;
            let taken = self.replacement.evict(None, &mut |frame| match self.frame(frame).idle() {
                None => Probe::Skip,
                Some(true) => {
                    if writable && !dirty.contains(&frame) {
                        dirty.push(frame);
                    }
                    let enough = clean.len() + of_scans.len() + dirty.len() >= need
                        || dirty.len() >= self.write_batch;
                    if enough { Probe::Stop } else { Probe::Skip }
                }
                Some(false) => {
                    claimed = self.claim(frame);
                    if claimed.is_some() { Probe::Take } else { Probe::Skip }
                }
            });
            if taken.is_none() {
                break;
            }
            clean.extend(claimed);
        }
        self.choose_of_scans(need, true, &mut victims);
        victims
    }

    /// Like [`crate::core::Core::claim`], for a page that the policy does not propose now. The
    /// policy is notified of the eviction before the page can be read again.
    fn claim_unproposed(&self, frame: FrameId) -> Option<Victim> {
        if canary::on(Bug::LateLeaving)
            && let Some(victim) = self.claim(frame)
        {
            self.replacement.remove(frame, &mut || true);
            return Some(victim);
        }
        let mut claimed = None;
        self.replacement.remove(frame, &mut || {
            claimed = self.claim(frame);
            claimed.is_some()
        });
        claimed
    }

    fn may_choose(&self, need: usize, victims: &Victims) -> bool {
        victims.len() < need && victims.dirty.len() < self.write_batch
    }

    /// Like `choose_victims`, for pages that scans loaded: those beyond their share, or all.
    fn choose_of_scans(&self, need: usize, all: bool, victims: &mut Victims) {
        let missing = need.saturating_sub(victims.len());
        let mut entries = self.scans.victims(missing, all).into_iter();
        while self.may_choose(need, victims)
            && let Some(entry) = entries.next()
        {
            let (frame, page) = entry;
            // A custom policy has proposed the page without being notified of it.
            if self.frame(frame).page() != page {
                continue;
            }
            match self.frame(frame).idle() {
                Some(false) => match self.claim_unproposed(frame) {
                    Some(victim) => {
                        self.scans.left(page);
                        victims.of_scans.push(victim.frame);
                    }
                    None => self.scans.put_back(entry),
                },
                // Its entry returns to the queue only if the page stays: otherwise the next rounds
                // would find entries without pages, and take pages of the policy instead.
                Some(true) if self.health.failed().is_none() && !victims.dirty.contains(&frame) => {
                    victims.dirty.push(frame);
                    victims.dirty_of_scans.push(entry);
                }
                _ => self.scans.put_back(entry),
            }
        }
        entries.for_each(|entry| self.scans.put_back(entry));
    }

    /// Returns the victims to be written, and dirty, unused pages next to them in the file. The
    /// neighbours join the same write and need no write of their own later.
    fn with_neighbours(&self, victims: &[FrameId]) -> Vec<FrameId> {
        let mut frames = victims.to_vec();
        for &victim in victims {
            let page = self.frame(victim).page();
            let dirty = |no: u32| {
                let (frame, _) =
                    self.table.find(self.frames(), PageId::new(page.partition(), no))?;
                (self.frame(frame).idle() == Some(true)).then_some(frame)
            };
            let after = (1..=NEIGHBOURS).map_while(|step| dirty(page.no().checked_add(step)?));
            let before = (1..=NEIGHBOURS).map_while(|step| dirty(page.no().checked_sub(step)?));
            for frame in after.chain(before) {
                if frames.len() >= self.write_batch {
                    return frames;
                }
                if !frames.contains(&frame) {
                    frames.push(frame);
                }
            }
        }
        frames
    }
}

/// The pages to be evicted.
#[derive(Default)]
struct Victims {
    clean: Vec<Victim>,
    /// Clean pages that scans loaded. They do not go to the second level, because a long scan would
    /// fill it.
    of_scans: Vec<FreeFrame>,
    dirty: Vec<FrameId>,
    /// Those of `dirty` that scans loaded. They do not go to the second level either.
    dirty_of_scans: Vec<Entry>,
}

impl Victims {
    fn len(&self) -> usize {
        self.clean.len() + self.of_scans.len() + self.dirty.len()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::files::Files;
    use crate::io::NoLog;
    use crate::loader::MissingPage;
    use crate::pool::{Pool, PoolConfig};
    use clearway_env::{Disk, IoPool};
    use clearway_testkit::MemDisk;
    use clearway_types::PartitionId;
    use std::path::Path;

    /// Invariant 5 of the pool, for a panic in any component.
    #[test]
    fn panic_of_the_cooler_fails_the_pool() {
        let disk = MemDisk::new();
        disk.create_dir_all(Path::new("/data")).unwrap();
        let files = Arc::new(Files::open(&disk, Path::new("/data"), 1).unwrap());
        let config = PoolConfig { frames: 16, ..PoolConfig::default() };
        let pool =
            Pool::new(config, files, Arc::new(NoLog), Arc::new(IoPool::new(1, "io").unwrap()))
                .unwrap();
        let reserved = pool.reserve_frames(16).unwrap();
        pool.core.cool_or_fail(|_| panic!("planted in the cooler"));
        let refused =
            pool.fetch_blocking(MissingPage::Page(PageId::new(PartitionId(0), 0))).unwrap_err();
        assert!(refused.to_string().contains("planted in the cooler"), "{refused}");
        assert!(matches!(pool.failed(), Some(PageError::Panicked { .. })));
        drop(reserved);
    }
}
