//! Every interleaving of hits with the holder of the latch, of hand-overs and of drains; up to
//! loom's preemption bound.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p clearway-replacement --release --lib loom`. A ring has two
//! slots here and a batch is one hit: every hit tries the latch, every third without a drain goes
//! beyond the ring. Threads act as indices, so that each queue is one thread's.

use super::*;
use clearway_types::PartitionId;
use loom::thread;
use std::sync::Mutex;

const FRAMES: u32 = 256;

/// Notes hits in order. Only under the policy's latch: its own mutex is never contended, and loom
/// need not see it.
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

/// A wrapped recorder; each frame f holds page f.
fn made() -> (Arc<Combining>, Recorder) {
    let recorder = Recorder::default();
    let pages = Arc::new(Combining::new(Box::new(recorder.clone()), FRAMES));
    let mut policy = pages.0.policy.lock();
    (0..8).for_each(|f| policy.policy.miss(FrameId(f), page(f)));
    drop(policy);
    (pages, recorder)
}

/// As thread `index`, which has a queue already, as the first hit only makes one; the last hit ends
/// a batch.
fn hits(pages: &Combining, index: u32, frames: std::ops::Range<u32>) {
    let shared = &*pages.0;
    let ring = shared.rings.of(index);
    if ring.attach() {
        ring.allow(1);
    }
    for frame in frames {
        let entry = Entry::new(FrameId(frame), page(frame));
        if !ring.push(entry) {
            pages.hit_slowly(index, ring, entry);
        }
    }
    shared.tell_or_hand_over(index, ring);
}

/// What the policy was told of this thread's frames, in order.
fn of(recorder: &Recorder, frames: std::ops::Range<u32>) -> Vec<u32> {
    recorder.0.lock().unwrap().iter().copied().filter(|frame| frames.contains(frame)).collect()
}

fn bounded(f: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.max_branches = 10_000;
    model.check(f);
}

/// Invariants 1 to 3: two threads hit, and nobody comes afterwards: each has had the latch, or its
/// queue was taken by a holder.
#[test]
fn loom_no_batch_is_lost_or_left_behind() {
    bounded(|| {
        let (pages, recorder) = made();
        let other = pages.clone();
        let thread = thread::spawn(move || hits(&other, 1, 4..7));
        hits(&pages, 0, 0..2);
        thread.join().unwrap();
        assert_eq!(of(&recorder, 0..4), [0, 1]);
        assert_eq!(of(&recorder, 4..8), [4, 5, 6]);
    });
}

/// Invariant 2: while another holds the latch for good, hits come to their end, through a full ring
/// and an overflow; and invariant 1: the holder then finds them all, in order.
#[test]
fn loom_nobody_waits_for_a_holder_that_does_not_come_back() {
    bounded(|| {
        let (pages, recorder) = made();
        let policy = pages.0.policy.lock();
        let other = pages.clone();
        let thread = thread::spawn(move || hits(&other, 1, 0..5));
        thread.join().unwrap();
        pages.0.let_go(policy);
        assert_eq!(of(&recorder, 0..8), [0, 1, 2, 3, 4]);
    });
}

/// Invariant 1: a holder drains a ring and its overflow while the owner goes on filling them.
#[test]
fn loom_a_ring_is_drained_while_its_thread_fills_it() {
    bounded(|| {
        let (pages, recorder) = made();
        let policy = pages.0.policy.lock();
        let other = pages.clone();
        let thread = thread::spawn(move || hits(&other, 1, 0..4));
        let mut policy = policy;
        policy.drain(1, pages.0.rings.of(1));
        pages.0.let_go(policy);
        thread.join().unwrap();
        assert_eq!(of(&recorder, 0..8), [0, 1, 2, 3]);
    });
}

/// Invariant 4: what a thread leaves is told at its end, also if it was handed over and is being
/// drained.
#[test]
fn loom_a_thread_that_ends_leaves_nothing() {
    bounded(|| {
        let (pages, recorder) = made();
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
