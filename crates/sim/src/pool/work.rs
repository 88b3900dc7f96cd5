//! What a thread does with the pool, and how each of its observations is judged.

use super::model::{Version, WORDS, fill};
use super::{Stage, crash};
use crate::rng::Rng;
use clearway_buffer::{FileSpace, MissingPage, OptimisticPage, PAGE_SIZE, PageMut, Pin, Pool};
use clearway_sync::virtual_time;
use clearway_types::PageId;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Attempts, each after a fetch of the missing page, after which a thread counts as waiting
/// forever.
const ATTEMPTS: usize = 2_000;

/// A thread that uses the pool.
pub struct Worker {
    stage: Arc<Stage>,
    rng: Rng,
    kept: Keeps<PageId>,
}

/// The pins of a thread, each with its page. A thread that panics has found a bug, possibly one of
/// pins. So it does not drop them: a second panic during unwinding would end the process, and the
/// search with it.
struct Keeps<T>(VecDeque<(T, Pin)>);

impl<T> Drop for Keeps<T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::mem::take(&mut self.0).into_iter().for_each(std::mem::forget);
        }
    }
}

impl Worker {
    pub fn new(stage: &Arc<Stage>, name: &str) -> Self {
        Self {
            stage: stage.clone(),
            rng: Rng::new(stage.world.seed, name),
            kept: Keeps(VecDeque::new()),
        }
    }

    /// Runs the operations that the seed draws.
    pub fn work(mut self) {
        for _ in 0..self.stage.world.operations {
            if self.stage.is_over() {
                return;
            }
            if self.rng.percent(self.stage.world.grabs) {
                self.pin();
                self.check_kept();
                continue;
            }
            match self.rng.below(100) {
                0..22 => self.read(),
                22..36 => self.read_optimistic(),
                36..58 => self.write(),
                58..64 => self.create(),
                64..70 => self.split(),
                70..74 => self.couple(),
                74..80 => self.fetch_and_continue(),
                80..84 => self.scan(),
                84..90 => self.pin(),
                90..93 => self.stage.flush(),
                93..95 => self.stage.look_at_rec_lsn(),
                95..97 => crash(&self.stage, self.rng.u64()),
                97 => virtual_time::sleep(Duration::from_micros(self.rng.below(5_000))),
                98 => drop(self.stage.pool.stats()),
                _ => self.kept.0.clear(),
            }
            self.check_kept();
        }
    }

    fn place(&mut self) -> (u16, usize) {
        let world = &self.stage.world;
        let pages = world.pages.len() as u64;
        let pages = if self.rng.percent(world.hot) { 3.min(pages) } else { pages };
        (self.rng.below(world.partitions.into()) as u16, self.rng.below(pages) as usize)
    }

    fn page(&mut self) -> PageId {
        let (partition, rank) = self.place();
        self.stage.world.page(partition, rank)
    }

    /// Returns two pages in latch order.
    fn two_pages(&mut self) -> Option<(PageId, PageId)> {
        let (one, other) = (self.page(), self.page());
        (one != other).then(|| (one.min(other), one.max(other)))
    }

    /// Retries until it succeeds, or a fetch is refused.
    fn with<T>(
        &mut self,
        mut attempt: impl FnMut(&Stage, &Pool) -> Result<T, MissingPage>,
    ) -> Option<T> {
        let stage = self.stage.clone();
        let mut keeps = Keeps(VecDeque::new());
        for _ in 0..ATTEMPTS {
            let want = match attempt(&stage, &stage.pool) {
                Ok(done) => return Some(done),
                Err(want) => want,
            };
            assert!(!is_kept(&keeps, want), "{want:?} is missing, although it is pinned");
            keeps.0.push_back((want, stage.fetch(want).ok()?));
            if keeps.0.len() > 3 {
                keeps.0.pop_front();
            }
        }
        panic!("{ATTEMPTS} attempts, each after a fetch of the page that the previous one missed");
    }

    fn read(&mut self) {
        let id = self.page();
        self.with(|stage, pool| pool.read(id).map(|page| stage.check_newest(id, &page)));
    }

    /// Reads without a latch: must return a whole version that was the newest at some moment during
    /// the read.
    fn read_optimistic(&mut self) {
        let id = self.page();
        let seen = self.with(|stage, pool| {
            let (oldest, _) = stage.model.newest(id);
            let look = |page: &OptimisticPage<'_>| {
                let mut copy = [0; PAGE_SIZE];
                let (first, second) = copy.split_at_mut(PAGE_SIZE / 2);
                page.copy(0, first)?;
                stage.step();
                page.copy(PAGE_SIZE / 2, second)?;
                Some(copy)
            };
            let copy = pool.read_optimistic(id, look)?;
            Ok((oldest, copy, stage.model.newest(id).0))
        });
        if let Some((oldest, copy, newest)) = seen {
            let copy = copy.expect("both halves are in the page");
            let number =
                self.stage.model.number(id, &copy).unwrap_or_else(|wrong| panic!("seen: {wrong}"));
            assert!(
                (oldest..=newest).contains(&number),
                "{id}: version {number} seen, of {oldest} to {newest}"
            );
        }
    }

    fn write(&mut self) {
        let id = self.page();
        self.with(|stage, pool| {
            pool.write(id).map(|mut page| {
                stage.check_newest(id, &page);
                stage.change(id, &mut page);
            })
        });
    }

    fn create(&mut self) {
        let id = self.page();
        let space = if self.rng.percent(50) { FileSpace::WithReserve } else { FileSpace::Usual };
        if self.rng.percent(30) {
            // Another thread may be reading ahead the page that is created.
            self.ask_for(id);
        }
        self.with(|stage, pool| {
            pool.create(id, space).map(|mut page| {
                assert!(page.iter().all(|byte| *byte == 0), "{id} is not zeros");
                stage.created.fetch_add(1, Ordering::Relaxed);
                stage.change(id, &mut page);
            })
        });
    }

    /// Changes several pages at once, one of which it creates.
    fn split(&mut self) {
        let Some((left, right)) = self.two_pages() else { return };
        self.with(|stage, pool| {
            let mut reserved = pool.reserve_frames(2)?;
            let mut page = pool.write(left)?;
            let mut new = pool.create_in(&mut reserved, right);
            assert!(new.iter().all(|byte| *byte == 0), "{right} is not zeros");
            stage.created.fetch_add(1, Ordering::Relaxed);
            stage.check_newest(left, &page);
            stage.change(right, &mut new);
            stage.change(left, &mut page);
            Ok(())
        });
    }

    fn couple(&mut self) {
        let Some((upper, lower)) = self.two_pages() else { return };
        let exclusive = self.rng.percent(50);
        self.with(|stage, pool| {
            let above = pool.read(upper)?;
            if exclusive {
                stage.change(lower, &mut pool.write(lower)?);
            } else {
                stage.check_newest(lower, &pool.read(lower)?);
            }
            stage.check_newest(upper, &above);
            Ok(())
        });
    }

    /// Requests without waiting; keeps what arrives for a while.
    fn fetch_and_continue(&mut self) {
        let id = self.page();
        self.ask_for(id);
    }

    fn ask_for(&mut self, id: PageId) {
        let want = if self.stage.world.scans && self.rng.percent(30) {
            MissingPage::Scan(id)
        } else {
            MissingPage::Page(id)
        };
        let stage = self.stage.clone();
        self.stage.ask_for(want, move |keep| stage.inbox().push((id, keep)));
        if self.stage.inbox().len() > self.stage.world.threads as usize {
            self.stage.empty_inbox();
        }
    }

    fn scan(&mut self) {
        let (partition, from) = self.place();
        for step in 0..self.rng.below(8) as usize {
            let id = self.stage.world.page(partition, from + step);
            self.with(|stage, pool| {
                let read = pool.read(id).map(|page| stage.check_newest(id, &page));
                read.map_err(|want| if stage.world.scans { MissingPage::Scan(id) } else { want })
            });
        }
    }

    fn pin(&mut self) {
        let id = self.page();
        if let Ok(keep) = self.stage.fetch(MissingPage::Page(id)) {
            self.kept.0.push_back((id, keep));
        }
    }

    /// Checks that everything pinned is resident for every thread, then drops the oldest pins.
    fn check_kept(&mut self) {
        for (id, _) in &self.kept.0 {
            match self.stage.pool.read(*id) {
                Ok(page) => self.stage.check_newest(*id, &page),
                Err(want) => panic!("{id} is kept, but it is not there: {want:?}"),
            }
        }
        let surplus = self.kept.0.len().saturating_sub(self.stage.world.keeps as usize);
        self.kept.0.drain(..surplus);
    }
}

/// Returns true if a pin covers the page, so that a lookup must have found it.
fn is_kept(keeps: &Keeps<MissingPage>, want: MissingPage) -> bool {
    matches!(want, MissingPage::Page(_) | MissingPage::Scan(_))
        && keeps.0.iter().any(|(kept, _)| *kept == want)
}

impl Stage {
    /// Changes a page as an engine does, under the exclusive latch.
    pub fn change(&self, id: PageId, page: &mut PageMut<'_>) {
        let stamp = self.model.new_stamp();
        page.mark_dirty_begin();
        self.step();
        let (start, end) = self.log.append();
        fill(page, id, stamp, 0..WORDS / 2);
        self.step();
        fill(page, id, stamp, WORDS / 2..WORDS);
        page.set_lsn(end);
        self.model.write(id, Version { stamp, start, end });
    }

    /// Checks that the page under a latch is the newest version and does not change while the latch
    /// is held.
    pub fn check_newest(&self, id: PageId, page: &[u8]) {
        for _ in 0..2 {
            let number =
                self.model.number(id, page).unwrap_or_else(|wrong| panic!("latched: {wrong}"));
            let (newest, version) = self.model.newest(id);
            assert!(
                number == newest,
                "{id} has version {number}, the newest is {newest}: {version:?}"
            );
            self.step();
        }
    }
}
