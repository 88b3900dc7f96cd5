//! Which pages are evicted, which are written with them, and which reads wait for a frame.

use crate::common::*;
use clearway_buffer::*;
use clearway_env::SeededEntropy;
use clearway_replacement::{ClockSweep, Probe, Replacement, ReplacementFactory, ReplacementKind};
use clearway_testkit::{MemDisk, OpKind};
use clearway_types::{FrameId, Lsn, PageId};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Weak};

const FRAMES: u32 = 512;

/// Pages of a range that a scan reads repeatedly.
const RANGE: u32 = FRAMES / 2;

fn use_once(f: &Fixture, missing: MissingPage) {
    let _pin = f.pool.fetch_blocking(missing).unwrap();
    let (MissingPage::Page(id) | MissingPage::Scan(id)) = missing else { unreachable!() };
    drop(f.pool.read(id).unwrap());
}

/// Changes a page of a scan.
fn change_once(f: &Fixture, id: PageId, value: u64) {
    let _pin = f.pool.fetch_blocking(MissingPage::Scan(id)).unwrap();
    stamp(&mut f.pool.write(id).unwrap(), &f.wal, value);
}

/// Returns how many pages of a hot set stay during a scan of ten times the pool. The hot set is
/// three quarters of the pool, and is not used meanwhile.
fn resident_after_a_scan(kind: ReplacementKind, scanned: impl Fn(&Fixture, PageId)) -> usize {
    let f = pool_on(&MemDisk::new(), FRAMES, kind);
    let hot = FRAMES / 4 * 3;
    for _ in 0..3 {
        (0..hot).for_each(|no| use_once(&f, MissingPage::Page(page(0, no))));
    }
    (0..10 * FRAMES).for_each(|no| scanned(&f, page(1, no)));
    (0..hot).filter(|no| f.pool.is_resident(page(0, *no))).count()
}

#[test]
fn scan_does_not_evict_the_hot_set() {
    let hot = FRAMES as usize / 4 * 3;
    for kind in ReplacementKind::all() {
        let kept = resident_after_a_scan(kind, |f, id| use_once(f, MissingPage::Scan(id)));
        assert_eq!(kept, hot, "{kind}");
    }
    let flushed = resident_after_a_scan(ReplacementKind::ClockSweep, |f, id| {
        use_once(f, MissingPage::Page(id));
    });
    assert_eq!(flushed, 0, "the same reads, not marked as a scan");
}

#[test]
fn scan_that_changes_pages_does_not_evict_the_hot_set() {
    let hot = FRAMES as usize / 4 * 3;
    for kind in ReplacementKind::all() {
        let kept = resident_after_a_scan(kind, |f, id| change_once(f, id, 1));
        assert_eq!(kept, hot, "{kind}");
    }
}

/// A custom replacement may be one of ours built without the pool's frames: it must be notified of
/// hits.
#[test]
fn custom_replacement_is_notified_of_every_hit() {
    fn make(frames: u32) -> Box<dyn Replacement> {
        ReplacementKind::default().build(frames)
    }
    let f = pool_on(
        &MemDisk::new(),
        FRAMES,
        ReplacementKind::Custom(ReplacementFactory::Notified(make)),
    );
    use_once(&f, MissingPage::Page(page(0, 0)));
    for no in 0..10 * FRAMES {
        (0..3).for_each(|_| drop(f.pool.read(page(0, 0)).expect("a page in constant use stays")));
        use_once(&f, MissingPage::Page(page(1, no)));
    }
}

/// Returns the number of pages read in each of nine scans of a range, in a pool that is full of
/// other pages. The first pass evicts pages of the range.
fn reads_of_passes(scanned: impl Fn(&Fixture, PageId)) -> Vec<u64> {
    let f = pool(FRAMES);
    (0..2 * FRAMES).for_each(|no| use_once(&f, MissingPage::Page(page(1, no))));
    let pass = || {
        let before = f.pool.stats().reads;
        (0..RANGE).for_each(|no| scanned(&f, page(0, no)));
        f.pool.stats().reads - before
    };
    let reads: Vec<u64> = (0..9).map(|_| pass()).collect();
    assert_eq!(reads[0], u64::from(RANGE));
    assert!(reads[1] > 0, "no page was evicted");
    reads
}

/// The pages of the range leave the queue in the first pass, and belong to the policy when they are
/// missed again.
#[test]
fn repeatedly_scanned_range_stays_resident() {
    let reads = reads_of_passes(|f, id| use_once(f, MissingPage::Scan(id)));
    assert!(reads[8] < u64::from(RANGE) / 4, "pages read in each pass: {reads:?}");
}

/// Also if the pages are written before they leave the queue.
#[test]
fn repeatedly_changed_range_stays_resident() {
    let reads = reads_of_passes(|f, id| change_once(f, id, 1));
    assert!(reads[8] < u64::from(RANGE) / 4, "pages read in each pass: {reads:?}");
}

/// Scans that change what they read, in a pool whose frames all belong to scans.
#[test]
fn scans_can_use_the_whole_pool() {
    let f = pool(16);
    for round in 1..=3 {
        for no in 0..200 {
            change_once(&f, page(0, no), round * 1000 + u64::from(no));
        }
    }
    assert!((0..200).all(|no| get(&f, page(0, no)) == 3000 + u64::from(no)));
    assert_eq!(f.io.violations.load(SeqCst), 0);
}

/// Pages that became dirty in random order are written in runs of neighbours, also if the policy
/// proposes them in that order.
#[test]
fn dirty_neighbours_of_a_victim_are_written_with_it() {
    let disk = MemDisk::new();
    let f = pool_on(&disk, FRAMES, ReplacementKind::ClockSweep);
    let random = SeededEntropy::new(3);
    let mut order: Vec<u32> = (0..FRAMES * 2).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, random.below(at as u64 + 1) as usize);
    }
    let writes = Arc::new(AtomicU64::new(0));
    let counted = writes.clone();
    disk.set_hook(Some(Arc::new(move |op| {
        if op.kind == OpKind::Write && op.path == Path::new("/data/p0000.data") {
            counted.fetch_add(1, SeqCst);
        }
    })));
    order.iter().for_each(|no| put(&f, page(0, *no), u64::from(*no)));
    let (pages, writes) = (f.pool.stats().writes, writes.load(SeqCst));
    assert!(
        pages >= u64::from(FRAMES) && writes * 3 < pages * 2,
        "{pages} pages in {writes} writes"
    );
}

/// Concurrent misses that do not exhaust the reserve do not wait for a frame, whether victims are
/// clean or dirty.
#[test]
fn misses_within_the_reserve_find_free_frames() {
    let f = pool(FRAMES);
    let reserve = FRAMES / 16;
    let mut no = 0;
    for round in 0..40 {
        // The cooler has refilled the reserve.
        while f.pool.stats().free < reserve {
            std::thread::yield_now();
        }
        // Half of the reserve is left, and the cooler has been woken.
        for _ in 0..f.pool.stats().free - reserve / 2 {
            no += 1;
            let _pin = f.pool.fetch_blocking(MissingPage::Page(page(0, no))).unwrap();
            if round % 2 == 1 {
                stamp(&mut f.pool.write(page(0, no)).unwrap(), &f.wal, 1);
            }
        }
    }
    let stats = f.pool.stats();
    assert!(stats.evictions > u64::from(FRAMES), "{stats:?}");
    assert_eq!(stats.waits, 0, "{stats:?}");
    // More than the reserve, with all frames pinned: these wait, and are counted.
    let pins: Vec<_> = (0..FRAMES)
        .map(|no| f.pool.fetch_blocking(MissingPage::Page(page(1, no))).unwrap())
        .collect();
    let before = f.pool.stats().waits;
    let (sender, receiver) = std::sync::mpsc::channel();
    f.pool.fetch(MissingPage::Page(page(2, 0)), Box::new(move |result| drop(sender.send(result))));
    assert_eq!(f.pool.stats().waits, before + 1);
    drop(pins);
    receiver.recv().unwrap().unwrap();
    f.pool.flush_before(Lsn(u64::MAX)).unwrap();
}

/// A clock that checks the pool when a written page is to be removed.
struct Looking {
    clock: ClockSweep,
    pages: Mutex<Vec<Option<PageId>>>,
}

static LOOKED_AT: Mutex<Weak<Pool>> = Mutex::new(Weak::new());
static LEFT: AtomicU64 = AtomicU64::new(0);

impl Replacement for Looking {
    fn hit(&self, frame: FrameId, page: PageId) {
        self.clock.hit(frame, page);
    }
    fn miss(&self, frame: FrameId, page: PageId) {
        self.pages.lock().unwrap()[frame.0 as usize] = Some(page);
        self.clock.miss(frame, page);
    }
    fn evict(
        &self,
        incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        self.clock.evict(incoming, probe)
    }
    fn remove(&self, frame: FrameId, take: &mut dyn FnMut() -> bool) {
        let page = self.pages.lock().unwrap()[frame.0 as usize].expect("told of the page");
        let resident = || LOOKED_AT.lock().unwrap().upgrade().expect("in use").is_resident(page);
        assert!(resident(), "{page} could already be resident in another frame");
        self.clock.remove(frame, &mut || {
            let taken = take();
            assert!(!taken || !resident(), "{page} is claimed and still resident");
            LEFT.fetch_add(u64::from(taken), SeqCst);
            taken
        });
    }
}

/// The contract of `Replacement::remove`: the policy is notified of a page's eviction before it is
/// notified that the page is resident again.
#[test]
fn policy_is_notified_before_a_page_can_return() {
    fn make(frames: u32) -> Box<dyn Replacement> {
        Box::new(Looking {
            clock: ClockSweep::new(frames),
            pages: Mutex::new(vec![None; frames as usize]),
        })
    }
    let f =
        pool_on(&MemDisk::new(), 16, ReplacementKind::Custom(ReplacementFactory::Notified(make)));
    *LOOKED_AT.lock().unwrap() = Arc::downgrade(&f.pool);
    // A panic of the cooler fails the pool, so that the next read fails.
    (0..200).for_each(|no| put(&f, page(0, no), 1));
    assert!(LEFT.load(SeqCst) > 0, "no page was written");
}
