//! Every interleaving (up to loom's preemption bound) of a hit with an eviction, and of a change
//! with a write-back.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p clearway-buffer --release --lib loom`

use crate::frame::{Arena, Frame, FreeFrame, Mode, TryLatch};
use crate::second_level::Directory;
use crate::table::PageTable;
use clearway_latch::Latch;
use clearway_latch::lockstat::Class;
use clearway_types::{FrameId, Lsn, PageId, PartitionId};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
use loom::thread;

const A: PageId = PageId::new(PartitionId(0), 1);
const B: PageId = PageId::new(PartitionId(0), 2);
const FRAME: FrameId = FrameId(0);
/// The bound of uses: a page published with this many is hot.
const MOST: u8 = 1;

/// One frame, whose content loom watches: any access that the latch does not order is a failure.
struct World {
    frames: [Frame; 1],
    table: PageTable<()>,
    content: UnsafeCell<u64>,
    /// The content again, twice, as the processor sees it, for optimistic readers.
    words: [AtomicU64; 2],
}

// SAFETY: loom checks the accesses to `content`; that is the purpose of the models.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

impl World {
    fn with_a() -> Arc<Self> {
        let (_, mut free) = Arena::new(1);
        let world = Self {
            frames: [Frame::new()],
            table: PageTable::new(1),
            content: UnsafeCell::new(0),
            words: [0; 2].map(AtomicU64::new),
        };
        world.bring(free.remove(0), A);
        world.frames[0].set_uses(MOST, Some(MOST));
        Arc::new(world)
    }

    fn bring(&self, free: FreeFrame, id: PageId) {
        // SAFETY: the frame is free, and this thread owns it.
        self.content.with_mut(|c| unsafe { *c = id.to_u64() });
        self.words.iter().for_each(|word| word.store(id.to_u64(), Relaxed));
        let shard = self.table.latch(id);
        let frame = self.frames[0].publish(free, id, 0, None);
        self.table.link(&shard, &self.frames, id, frame);
    }

    fn claim(&self, id: PageId) -> Option<FreeFrame> {
        let shard = self.table.latch(id);
        self.table.find_latched(&shard, &self.frames, id)?;
        let free = self.frames[0].try_claim(FRAME)?;
        self.table.unlink(&shard, &self.frames, id, FRAME);
        Some(free)
    }

    /// Returns the page's content, if the page is found and latched at once.
    fn read(&self, id: PageId) -> Option<u64> {
        let (frame, _) = self.table.find(&self.frames, id)?;
        if self.frames[frame.0 as usize].try_latch(id, Mode::Shared) != TryLatch::Yes {
            return None;
        }
        // SAFETY: the shared latch is held.
        let value = self.content.with(|c| unsafe { *c });
        self.frames[0].unlatch(Mode::Shared);
        Some(value)
    }

    /// Returns the page's content, if nothing changed while it was read.
    fn read_optimistic(&self, id: PageId) -> Option<[u64; 2]> {
        let (frame, _) = self.table.find(&self.frames, id)?;
        let frame = &self.frames[frame.0 as usize];
        let seen = frame
            .optimistic_version(|frame| frame.is_hot(id))
            .or_else(|| frame.optimistic_version(|frame| frame.holds(id)))?;
        let words = [self.words[0].load(Relaxed), self.words[1].load(Relaxed)];
        frame.unchanged_since(seen).then_some(words)
    }

    fn write(&self, id: PageId, value: u64) -> bool {
        if self.frames[0].try_latch(id, Mode::Exclusive) != TryLatch::Yes {
            return false;
        }
        self.frames[0].mark_dirty(|| Lsn(value));
        // SAFETY: the exclusive latch is held.
        self.content.with_mut(|c| unsafe { *c = value });
        self.words.iter().for_each(|word| word.store(value, Relaxed));
        self.frames[0].unlatch(Mode::Exclusive);
        true
    }

    /// Writes the page back to `disk`.
    fn write_back(&self, id: PageId, ok: bool) -> Option<u64> {
        let frame = &self.frames[0];
        if frame.try_latch(id, Mode::Shared) != TryLatch::Yes {
            return None;
        }
        if !frame.is_dirty() {
            frame.unlatch(Mode::Shared);
            return None;
        }
        // SAFETY: the shared latch is held.
        let copy = self.content.with(|c| unsafe { *c });
        let rec_lsn = frame.clean();
        frame.release_latch_keep_pin();
        if !ok {
            while frame.try_latch(id, Mode::Shared) != TryLatch::Yes {
                thread::yield_now();
            }
            frame.dirty_again(rec_lsn);
            frame.unlatch(Mode::Shared);
        }
        frame.unpin();
        ok.then_some(copy)
    }
}

static MODEL: Class = Class::new("buffer.model");

/// The page's place on disk, and a second level of one slot, whose checksums are the contents
/// themselves.
struct Second {
    world: Arc<World>,
    directory: Latch<Directory>,
    free: Latch<Option<FreeFrame>>,
    disk: AtomicU64,
}

impl Second {
    /// Like the cooler, except that the frame becomes free as early as possible.
    fn cool(&self) {
        let epoch = self.directory.lock().epoch();
        let Some(frame) = self.world.claim(A) else { return };
        // SAFETY: the frame is free, and this thread owns it.
        let content = self.world.content.with(|c| unsafe { *c });
        *self.free.lock() = Some(frame);
        let mut directory = self.directory.lock();
        if directory.epoch() == epoch && directory.reserve(A, 0) {
            directory.written(0, &[content as u32]);
        }
    }

    /// Loads the page again if it was evicted, changes it and writes it back.
    fn change(&self) {
        let freed = self.free.lock().take();
        if let Some(frame) = freed {
            self.world.bring(frame, A);
        }
        if !self.world.write(A, 20) {
            return;
        }
        let frame = &self.world.frames[0];
        assert_eq!(
            frame.try_latch(A, Mode::Shared),
            TryLatch::Yes,
            "it is dirty, and nobody has it exclusively"
        );
        frame.clean();
        frame.release_latch_keep_pin();
        self.directory.lock().invalidate(std::iter::once(A));
        self.disk.store(20, Relaxed);
        frame.unpin();
    }
}

/// `second_level`, invariant 1: a victim is put there only if it is still what the disk has.
#[test]
fn loom_a_copy_in_the_second_level_is_the_newest_version() {
    loom::model(|| {
        let second = Arc::new(Second {
            world: World::with_a(),
            directory: Latch::new(&MODEL, Directory::new(1, 1)),
            free: Latch::new(&MODEL, None),
            disk: AtomicU64::new(A.to_u64()),
        });
        let (one, two) = (second.clone(), second.clone());
        let cooler = thread::spawn(move || one.cool());
        let other = thread::spawn(move || two.change());
        cooler.join().unwrap();
        other.join().unwrap();
        let (copy, disk) = (second.directory.lock().find(A), second.disk.load(Relaxed));
        assert!(
            copy.is_none_or(|copy| u64::from(copy.crc) == disk),
            "{copy:?}, and the disk has {disk}"
        );
    });
}

/// `pool`, invariant 1: a thread that latches a page has that page, even if the frame is taken
/// during the search.
#[test]
fn loom_a_hit_never_sees_another_page() {
    loom::model(|| {
        let world = World::with_a();
        let (one, two) = (world.clone(), world.clone());
        let reader = thread::spawn(move || {
            for id in [A, B] {
                assert!(one.read(id).is_none_or(|value| value == id.to_u64()));
            }
        });
        let evictor = thread::spawn(move || {
            if let Some(free) = two.claim(A) {
                two.bring(free, B);
            }
        });
        reader.join().unwrap();
        evictor.join().unwrap();
        assert!(
            world.read(A).is_some() != world.read(B).is_some(),
            "exactly one page is in the frame"
        );
    });
}

/// `frame`, invariant 5: an optimistic read returns neither a partial change nor another page.
#[test]
fn loom_optimistic_read_returns_one_version_of_its_page() {
    loom::model(|| {
        let world = World::with_a();
        let (one, two) = (world.clone(), world.clone());
        let reader = thread::spawn(move || one.read_optimistic(A));
        let writer = thread::spawn(move || two.write(A, 20));
        let (seen, written) = (reader.join().unwrap(), writer.join().unwrap());
        assert!(
            written && seen.is_none_or(|words| words == [20; 2] || words == [A.to_u64(); 2]),
            "{seen:?}"
        );
    });
    loom::model(|| {
        let world = World::with_a();
        let (one, two) = (world.clone(), world.clone());
        let reader = thread::spawn(move || [A, B].map(|id| one.read_optimistic(id)));
        let evictor = thread::spawn(move || two.claim(A).map(|free| two.bring(free, B)));
        let seen = reader.join().unwrap();
        evictor.join().unwrap().expect("nobody has it pinned");
        for (id, words) in [A, B].into_iter().zip(seen) {
            assert!(words.is_none_or(|words| words == [id.to_u64(); 2]), "{id}: {words:?}");
        }
    });
}

/// `frame`, invariants 3 and 4: a change is either still marked, with its rec-LSN, or in the copy
/// that was written. A page with an unwritten change is not evicted.
#[test]
fn loom_no_change_is_lost_between_write_back_and_eviction() {
    for ok in [true, false] {
        loom::model(move || {
            let world = World::with_a();
            assert!(world.write(A, 10));
            let (one, two) = (world.clone(), world.clone());
            let writer = thread::spawn(move || one.write(A, 20));
            let write_back = thread::spawn(move || (two.write_back(A, ok), two.claim(A).is_some()));
            let written = writer.join().unwrap();
            let (copy, evicted) = write_back.join().unwrap();
            let last = if written { 20 } else { 10 };
            if evicted {
                assert_eq!(copy, Some(last), "only what is on disk leaves");
            } else {
                let oldest = world.frames[0].rec_lsn();
                assert!(
                    if copy == Some(last) { oldest == u64::MAX } else { oldest <= last },
                    "{copy:?} {last} {oldest}"
                );
                assert!(
                    copy.is_some() || oldest == 10,
                    "nothing was written: the first change is still to write"
                );
            }
        });
    }
}

/// Few preemptions: waiters also use a mutex and a condition variable, and their blocking is what
/// matters.
fn with_waiters(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

/// `waits`, invariants 1 and 3: a waiter gets the page that it waits for, and is woken.
#[test]
fn loom_latch_waiters_get_the_page_or_an_error() {
    with_waiters(|| {
        let world = World::with_a();
        assert_eq!(world.frames[0].try_latch(A, Mode::Exclusive), TryLatch::Yes);
        let (one, two) = (world.clone(), world.clone());
        let reader = thread::spawn(move || match one.frames[0].latch_in_turn(A, Mode::Shared) {
            TryLatch::Yes => {
                // SAFETY: the shared latch is held.
                assert_eq!(one.content.with(|c| unsafe { *c }), A.to_u64());
                one.frames[0].unlatch(Mode::Shared);
                true
            }
            TryLatch::Gone => false,
            TryLatch::Busy => unreachable!("nobody loses it"),
        });
        let evictor = thread::spawn(move || two.claim(A).map(|free| two.bring(free, B)).is_some());
        world.frames[0].unlatch(Mode::Exclusive);
        let (read, evicted) = (reader.join().unwrap(), evictor.join().unwrap());
        assert!(read || evicted, "gone, but not evicted");
    });
}

/// `waits`, invariant 3: two writers and a reader, which all wait at once.
#[test]
fn loom_waiters_for_a_latch_are_woken() {
    with_waiters(|| {
        let world = World::with_a();
        let write = |world: Arc<World>| {
            assert_eq!(world.frames[0].latch_in_turn(A, Mode::Exclusive), TryLatch::Yes);
            // SAFETY: the exclusive latch is held.
            world.content.with_mut(|c| unsafe { *c += 1 });
            world.frames[0].unlatch(Mode::Exclusive);
        };
        let (one, two) = (world.clone(), world.clone());
        let writer = thread::spawn(move || write(one));
        let write_back = thread::spawn(move || {
            assert_eq!(two.frames[0].latch_in_turn(A, Mode::Shared), TryLatch::Yes);
            // SAFETY: the shared latch is held.
            let copy = two.content.with(|c| unsafe { *c });
            two.frames[0].release_latch_keep_pin();
            two.frames[0].unpin();
            copy
        });
        write(world.clone());
        writer.join().unwrap();
        let changes = write_back.join().unwrap() - A.to_u64();
        assert!(
            changes <= 2 && world.read(A) == Some(A.to_u64() + 2) && world.claim(A).is_some(),
            "{changes}"
        );
    });
}

/// A waiter for a page that a panicking thread has lost is answered.
#[test]
fn loom_waiters_of_a_lost_page_are_answered() {
    with_waiters(|| {
        let world = World::with_a();
        assert_eq!(world.frames[0].try_latch(A, Mode::Exclusive), TryLatch::Yes);
        let waiters = [Mode::Shared, Mode::Exclusive].map(|mode| {
            let world = world.clone();
            thread::spawn(move || world.frames[0].latch_in_turn(A, mode))
        });
        world.frames[0].lose();
        waiters.into_iter().for_each(|waiter| assert_eq!(waiter.join().unwrap(), TryLatch::Busy));
    });
}
