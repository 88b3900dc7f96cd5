//! The cooler: a thread that frees frames ahead of need.
//!
//! When free frames run low it takes victims, what scans have brought first and then as the policy
//! proposes them: clean ones leave at once, dirty ones are written in a batch first, together with
//! their dirty neighbours in the file. What leaves is copied for the second level, if there is one,
//! but for what scans have brought. Nobody who wants a frame writes a page or searches for a victim
//! itself.

use crate::error::PageError;
use crate::frame::FreeFrame;
use crate::loader::PoolCore;
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
            core.cool_or_fail(|core| core.keep_cool());
        };
        let thread = thread::Builder::new().name("cooler".to_owned()).spawn(run)?;
        Ok(Self { thread: Latch::new(&COOLER, Some(thread)) })
    }

    /// Waits for the thread's end, which the free list's `stop` has brought about; unless it is
    /// this very thread, when a callback in it has dropped the pool.
    pub fn join(&self) {
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            // A panic in it has been reported by the hook.
            let _ended = thread.join();
        }
    }
}

impl PoolCore {
    /// Runs the cooler's work. After a panic the pool has failed and gives out no more frames, and
    /// so says the answer to all who wait.
    fn cool_or_fail(self: &Arc<Self>, work: impl FnOnce(&Arc<Self>)) {
        if let Err(message) = caught(|| work(self)) {
            let error = self.fail(PageError::panicked("freeing frames", &message));
            self.dispatch(self.free.stop(error));
        }
    }

    fn keep_cool(self: &Arc<Self>) {
        let mut fruitful = true;
        let mut filling = Filling::default();
        while !self.free.wait_for_work(fruitful) {
            fruitful = self.cool(&mut filling);
        }
    }

    /// One round; whether any frame became free.
    fn cool(self: &Arc<Self>, filling: &mut Filling) -> bool {
        let need = self.free.deficit().max(1);
        let epoch = self.epoch();
        let Victims { clean, of_scans, dirty: victims } = self.choose_victims(need);
        let mut freed = clean.len() + of_scans.len();
        let clean = self.put_in_second_level(filling, epoch, clean);
        self.dispatch(self.free.put(clean.chain(of_scans)));
        if !victims.is_empty() {
            let written = match self.write_batch(&self.with_neighbours(&victims), false) {
                Ok(written) => written,
                Err(error) => {
                    tracing::error!(%error, "the buffer pool cannot write pages");
                    Vec::new()
                }
            };
            let epoch = self.epoch();
            let claimed: Vec<_> = written
                .into_iter()
                .filter(|f| victims.contains(f))
                .filter_map(|f| self.claim_unproposed(f))
                .collect();
            freed += claimed.len();
            let frames = self.put_in_second_level(filling, epoch, claimed);
            self.dispatch(self.free.put(frames));
        }
        if freed == 0 {
            self.dispatch(self.free.age(self.health.failed()));
        }
        freed > 0
    }

    fn epoch(&self) -> Option<u64> {
        self.second_level.as_ref().and_then(|second| second.epoch())
    }

    /// Has the second level copy victims that were taken since `epoch`, and returns their frames.
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

    /// Takes up to `need` clean victims, and names dirty ones for the rest: those of scans first,
    /// then in the policy's order, so that a dirty page is not passed over for a clean one that is
    /// more useful.
    fn choose_victims(&self, need: usize) -> Victims {
        let mut victims = Victims::default();
        self.choose_of_scans(need, false, &mut victims);
        let writable = self.health.failed().is_none();
        while self.may_choose(need, &victims) {
            let Victims { clean, of_scans, dirty } = &mut victims;
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

    /// As [`crate::core::Core::claim`], of a page that the policy does not propose now: it hears
    /// that the page has left before the page can be read again.
    fn claim_unproposed(&self, frame: FrameId) -> Option<Victim> {
        let mut claimed = if canary::on(Bug::LateLeaving) { self.claim(frame) } else { None };
        self.replacement.remove(frame, &mut || {
            claimed = claimed.take().or_else(|| self.claim(frame));
            claimed.is_some()
        });
        claimed
    }

    fn may_choose(&self, need: usize, victims: &Victims) -> bool {
        victims.len() < need && victims.dirty.len() < self.write_batch
    }

    /// The same of the pages that scans have brought: those beyond their share, or all.
    fn choose_of_scans(&self, need: usize, all: bool, victims: &mut Victims) {
        let missing = need.saturating_sub(victims.len());
        let mut entries = self.scans.victims(missing, all).into_iter();
        while self.may_choose(need, victims)
            && let Some(entry) = entries.next()
        {
            let (frame, page) = entry;
            if self.frame(frame).page() != page {
                continue;
            }
            match self.frame(frame).idle() {
                Some(false) => match self.claim_unproposed(frame) {
                    Some(victim) => {
                        self.scans.left(page);
                        victims.of_scans.push(victim.frame);
                    }
                    None => self.scans.keep(entry),
                },
                dirty => {
                    // It is let go when it has been written: then the entry is stale.
                    self.scans.keep(entry);
                    if dirty.is_some()
                        && self.health.failed().is_none()
                        && !victims.dirty.contains(&frame)
                    {
                        victims.dirty.push(frame);
                    }
                }
            }
        }
        entries.for_each(|entry| self.scans.keep(entry));
    }

    /// The victims that are to be written, and dirty pages that lie beside them in the file and
    /// nobody uses now: they go along in the same write, and need none of their own later.
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

/// What is to leave.
#[derive(Default)]
struct Victims {
    clean: Vec<Victim>,
    /// Clean, and brought by scans: not for the second level, which a long scan would fill.
    of_scans: Vec<FreeFrame>,
    dirty: Vec<FrameId>,
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
    use crate::io::WalBarrier;
    use crate::loader::MissingPage;
    use crate::pool::{Pool, PoolConfig};
    use clearway_env::{Disk, IoPool, MemDisk};
    use clearway_types::{Lsn, PartitionId};
    use std::path::Path;

    struct NoWal;

    impl WalBarrier for NoWal {
        fn ensure_durable(&self, _: Lsn) -> io::Result<()> {
            Ok(())
        }
        fn durable(&self) -> Lsn {
            Lsn(0)
        }
        fn appended(&self) -> Lsn {
            Lsn(0)
        }
    }

    /// Invariant 5 of the pool: whatever it is that panics.
    #[test]
    fn panic_of_the_cooler_fails_the_pool() {
        let disk = MemDisk::new();
        disk.create_dir_all(Path::new("/data")).unwrap();
        let files = Arc::new(Files::open(&disk, Path::new("/data"), 1).unwrap());
        let config = PoolConfig { frames: 16, ..PoolConfig::default() };
        let pool =
            Pool::new(config, files, Arc::new(NoWal), Arc::new(IoPool::new(1, "io").unwrap()))
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
