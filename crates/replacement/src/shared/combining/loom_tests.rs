//! Model checks of concurrent hits, hand-overs, drains and releases of the latch; all interleavings
//! up to loom's preemption bound.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p clearway-replacement --release --lib loom`. Here a ring
//! has two slots and a batch is one hit: every hit tries the latch, and every third hit without a
//! drain goes to the overflow. Threads act by index, so that each queue belongs to one thread.

use super::*;
use clearway_types::PartitionId;
use loom::thread;
use std::sync::Mutex;

const FRAMES: u32 = 256;

/// Records hits in order. Accessed only under the policy's latch: its own mutex is never contended,
/// so loom need not see it.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<u32>>>);

impl Policy for Recorder {
    fn hit(&mut self, frame: FrameId) {
        self.0.lock().unwrap().push(frame.0);
    }
    fn miss(&mut self, _frame: FrameId, _page: PageId) {}
    fn evict(
        &mut self,
        _incoming: Option<PageId>,
        _probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        None
    }
    fn remove(&mut self, _frame: FrameId) {}
    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

fn page(no: u32) -> PageId {
    PageId::new(PartitionId(0), no)
}

/// Returns a wrapped recorder, in which each frame f holds page f.
fn recorded() -> (Arc<Combining>, Recorder) {
    let recorder = Recorder::default();
    let pages = Arc::new(Combining::new(Box::new(recorder.clone()), FRAMES));
    let mut policy = pages.0.policy.lock();
    (0..8).for_each(|f| policy.policy.miss(FrameId(f), page(f)));
    drop(policy);
    (pages, recorder)
}

/// Hits the frames as thread `index`. Attaches the queue first, since the first hit only does that.
/// The last hit ends a batch.
fn hits(pages: &Combining, index: u32, frames: std::ops::Range<u32>) {
    let shared = &*pages.0;
    let ring = shared.rings.of(index);
    if ring.attach() {
        ring.allow(1);
    }
    for frame in frames {
        let entry = Entry::new(FrameId(frame), page(frame));
        if !ring.push(entry) {
            pages.hit_slow(index, ring, entry);
        }
    }
    shared.apply_or_hand_over(index, ring);
}

/// Returns the hits on these frames that the policy received, in order.
fn of(recorder: &Recorder, frames: std::ops::Range<u32>) -> Vec<u32> {
    recorder.0.lock().unwrap().iter().copied().filter(|frame| frames.contains(frame)).collect()
}

fn bounded(f: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.max_branches = 10_000;
    model.check(f);
}

/// Invariants 1 to 3: two threads hit and no other thread comes afterwards. Each has held the
/// latch, or a holder has drained its queue.
#[test]
fn loom_no_batch_is_lost() {
    bounded(|| {
        let (pages, recorder) = recorded();
        let other = pages.clone();
        let thread = thread::spawn(move || hits(&other, 1, 4..7));
        hits(&pages, 0, 0..2);
        thread.join().unwrap();
        assert_eq!(of(&recorder, 0..4), [0, 1]);
        assert_eq!(of(&recorder, 4..8), [4, 5, 6]);
    });
}

/// Invariant 2: while another thread holds the latch, hits complete through a full ring and an
/// overflow. Invariant 1: the holder then finds all of them, in order.
#[test]
fn loom_hits_never_wait_for_the_holder() {
    bounded(|| {
        let (pages, recorder) = recorded();
        let policy = pages.0.policy.lock();
        let other = pages.clone();
        let thread = thread::spawn(move || hits(&other, 1, 0..5));
        thread.join().unwrap();
        pages.0.release(policy);
        assert_eq!(of(&recorder, 0..8), [0, 1, 2, 3, 4]);
    });
}

/// Invariant 1: a holder drains a ring and its overflow while the owner keeps filling them.
#[test]
fn loom_ring_is_drained_while_being_filled() {
    bounded(|| {
        let (pages, recorder) = recorded();
        let policy = pages.0.policy.lock();
        let other = pages.clone();
        let thread = thread::spawn(move || hits(&other, 1, 0..4));
        let mut policy = policy;
        policy.drain(1, pages.0.rings.of(1));
        pages.0.release(policy);
        thread.join().unwrap();
        assert_eq!(of(&recorder, 0..8), [0, 1, 2, 3]);
    });
}

/// Invariant 4: an exiting thread's hits are applied, even if its queue was handed over and is
/// being drained.
#[test]
fn loom_exiting_thread_applies_its_hits() {
    bounded(|| {
        let (pages, recorder) = recorded();
        let other = pages.clone();
        let thread = thread::spawn(move || {
            hits(&other, 1, 4..6);
            other.0.thread_ends(1);
        });
        hits(&pages, 0, 0..1);
        pages.remove(FrameId(7), &mut || true);
        pages.0.thread_ends(0);
        thread.join().unwrap();
        assert_eq!((of(&recorder, 0..4), of(&recorder, 4..8)), (vec![0], vec![4, 5]));
    });
}
