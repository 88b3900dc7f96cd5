//! Tests of the wrappers' contracts, with a policy that records its calls.

use super::*;
use crate::policy::{Lru, Policy};
use clearway_latch::conformance::as_thread;
use clearway_types::PartitionId;
use std::sync::{Arc, Mutex};

pub(super) fn page(no: u32) -> PageId {
    PageId::new(PartitionId(0), no)
}

/// A recorded call of a policy method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Hit(u32),
    Miss(u32),
    Remove(u32),
}

/// Keeps frames in the order of their misses, and records the calls for the test.
#[derive(Clone, Default)]
pub(super) struct Recorder {
    pub events: Arc<Mutex<Vec<Event>>>,
    frames: Vec<u32>,
}

impl Recorder {
    pub fn hits(&self) -> Vec<u32> {
        let hit = |event: &Event| if let Event::Hit(frame) = event { Some(*frame) } else { None };
        self.events.lock().unwrap().iter().filter_map(hit).collect()
    }
}

impl Policy for Recorder {
    fn hit(&mut self, frame: FrameId) {
        self.events.lock().unwrap().push(Event::Hit(frame.0));
    }
    fn miss(&mut self, frame: FrameId, _page: PageId) {
        self.frames.push(frame.0);
        self.events.lock().unwrap().push(Event::Miss(frame.0));
    }
    fn evict(
        &mut self,
        _incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        for at in 0..self.frames.len() {
            match probe(FrameId(self.frames[at])) {
                Probe::Take => return Some(FrameId(self.frames.remove(at))),
                Probe::Skip => {}
                Probe::Stop => return None,
            }
        }
        None
    }
    fn remove(&mut self, frame: FrameId) {
        self.frames.retain(|known| *known != frame.0);
        self.events.lock().unwrap().push(Event::Remove(frame.0));
    }
    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn all_frames_are_proposed_and_skipped_ones_kept() {
    for kind in ReplacementKind::all() {
        let pages = kind.build(8);
        (0..8).for_each(|f| pages.miss(FrameId(f), page(f)));
        let mut proposed = [false; 8];
        let found = pages.evict(None, &mut |f| {
            proposed[f.0 as usize] = true;
            Probe::Skip
        });
        assert_eq!((found, proposed), (None, [true; 8]), "{kind}");
        assert_eq!(pages.evict(None, &mut |_| Probe::Stop), None, "{kind}");
        pages.remove(FrameId(2), &mut || false);
        pages.remove(FrameId(3), &mut || true);
        pages.hit(FrameId(3), page(3));
        let evict = || pages.evict(None, &mut |_| Probe::Take).map(|f| f.0);
        let mut evicted: Vec<_> = std::iter::from_fn(evict).collect();
        evicted.sort_unstable();
        assert_eq!(evicted, [0, 1, 2, 4, 5, 6, 7], "{kind}");
    }
}

#[test]
fn names_parse_to_their_kinds() {
    for kind in ReplacementKind::all() {
        let read = kind.to_string().parse::<ReplacementKind>();
        match kind {
            ReplacementKind::Wrapped(_, wrapper) if !wrapper.is_offered() => {
                assert!(
                    read.is_err_and(
                        |error| error.contains("available: combining, multilist, marked")
                    ),
                    "{kind}"
                );
                assert_eq!(wrapper.name().parse(), Ok(wrapper));
            }
            _ => assert_eq!(read, Ok(kind)),
        }
    }
    assert_eq!(
        "lru".parse(),
        Ok(ReplacementKind::Wrapped(PolicyKind::Lru, WrapperKind::default()))
    );
    assert_eq!("s3-fifo".parse(), Ok(ReplacementKind::UseCounted(UseCountedKind::S3Fifo)));
    let error = "fifo".parse::<ReplacementKind>().unwrap_err();
    assert!(
        error.contains("\"fifo\"") && error.contains("lru") && error.contains("clock-sweep"),
        "{error}"
    );
    let error = "lru/free".parse::<ReplacementKind>().unwrap_err();
    assert!(
        error.contains("\"free\"") && error.contains("combining") && error.contains("multilist"),
        "{error}"
    );
    let error = "2q/multilist".parse::<ReplacementKind>().unwrap_err();
    assert!(
        error.contains("lru/multilist and arc/multilist") && error.contains("2q/combining"),
        "{error}"
    );
    let error = "lru/marked".parse::<ReplacementKind>().unwrap_err();
    assert!(
        error.contains("s3-fifo/marked and sieve/marked") && error.contains("lru/combining"),
        "{error}"
    );
}

#[test]
fn queue_is_committed_at_its_threshold_in_order() {
    let recorder = Recorder::default();
    let pages = Batched::with_sizes(Box::new(recorder.clone()), 8, Prefetching::On, 4, 3);
    (0..8).for_each(|f| pages.miss(FrameId(f), page(f)));
    let hit = |frame| pages.hit(FrameId(frame), page(frame));
    hit(5);
    hit(1);
    assert_eq!(recorder.hits(), [0; 0], "below T");
    hit(5);
    assert_eq!(recorder.hits(), [5, 1, 5]);
    hit(2);
    pages.miss(FrameId(0), page(100));
    assert_eq!(
        recorder.events.lock().unwrap()[11..],
        [Event::Hit(2), Event::Miss(0)],
        "a miss commits first"
    );
    hit(3);
    assert!(pages.evict(None, &mut |_| Probe::Stop).is_none());
    hit(4);
    pages.remove(FrameId(4), &mut || true);
    assert_eq!(
        recorder.events.lock().unwrap()[13..],
        [Event::Hit(3), Event::Hit(4), Event::Remove(4)]
    );
}

/// The source's pseudocode: between T and S each hit tries the latch, at S it waits. The latch is
/// held by an eviction, whose probe hits.
#[test]
fn hits_from_t_on_retry_a_taken_latch() {
    let recorder = Recorder::default();
    let pages = Batched::with_sizes(Box::new(recorder.clone()), 8, Prefetching::Off, 4, 2);
    (0..8).for_each(|f| pages.miss(FrameId(f), page(f)));
    let hit = |frame| as_thread(1, || pages.hit(FrameId(frame), page(frame)));
    pages.evict(None, &mut |_| {
        (0..3).for_each(hit);
        Probe::Stop
    });
    assert_eq!(recorder.hits(), [0; 0], "three hits in a queue of four, and no thread waited");
    hit(3);
    assert_eq!(recorder.hits(), [0, 1, 2, 3]);
}

/// Invariant 1 of `batched`: each thread's hits are in its own queue.
#[test]
fn threads_fill_only_their_own_queues() {
    let recorder = Recorder::default();
    let pages = Batched::with_sizes(Box::new(recorder.clone()), 8, Prefetching::Off, 2, 2);
    (0..8).for_each(|f| pages.miss(FrameId(f), page(f)));
    (0..100).for_each(|thread| as_thread(thread, || pages.hit(FrameId(1), page(1))));
    assert_eq!(recorder.hits().len(), 0);
    (0..100).for_each(|thread| as_thread(thread, || pages.hit(FrameId(2), page(2))));
    assert_eq!(recorder.hits(), [1, 2].repeat(100));
}

/// Invariant 2 of `combining`, beyond the capacity of the ring: hits never wait for a taken latch.
#[test]
fn hits_continue_while_the_latch_is_taken() {
    let recorder = Recorder::default();
    let pages = Combining::new(Box::new(recorder.clone()), 8);
    (0..8).for_each(|f| pages.miss(FrameId(f), page(f)));
    const HITS: u32 = 10_000;
    pages.evict(None, &mut |_| {
        (0..HITS).for_each(|at| as_thread(1, || pages.hit(FrameId(at % 8), page(at % 8))));
        Probe::Stop
    });
    // The end of the eviction has applied them.
    assert_eq!(recorder.hits().len(), HITS as usize);
}

#[test]
fn batch_size_follows_pool_and_threads() {
    let pages = Combining::new(Box::new(Recorder::default()), 16_384);
    assert_eq!(pages.batch(), 32);
    (0..128).for_each(|thread| as_thread(thread, || pages.hit(FrameId(0), page(0))));
    assert_eq!(pages.batch(), 16_384 / 128 / 128);
    let pages = Arc::new(Combining::new(Box::new(Recorder::default()), 1000));
    (0..64).for_each(|thread| as_thread(200 + thread, || pages.hit(FrameId(0), page(0))));
    assert_eq!(pages.batch(), 0);
    let pages = Arc::new(Combining::new(Box::new(Recorder::default()), 1000));
    let other = pages.clone();
    std::thread::spawn(move || {
        (0..64).for_each(|thread| as_thread(thread, || other.hit(FrameId(0), page(0))))
    })
    .join()
    .unwrap();
    assert_eq!(pages.batch(), 7, "exited threads no longer count");
}

fn queueing() -> impl Iterator<Item = WrapperKind> {
    WrapperKind::ALL
        .iter()
        .copied()
        .filter(|kind| !matches!(kind, WrapperKind::Locked | WrapperKind::Prefetched))
}

/// A queued hit affects neither a page that has left its frame nor the next page of the frame.
#[test]
fn queued_hit_on_an_evicted_page_is_skipped() {
    for kind in queueing() {
        let recorder = Recorder::default();
        let pages = kind.wrap(Box::new(recorder.clone()), 2);
        let other = |f: &dyn Fn()| as_thread(40, f);
        pages.miss(FrameId(0), page(0));
        pages.miss(FrameId(1), page(1));
        assert_eq!(pages.evict(None, &mut |_| Probe::Take), Some(FrameId(0)));
        other(&|| pages.hit(FrameId(0), page(0)));
        pages.hit(FrameId(0), page(0));
        pages.hit(FrameId(1), page(1));
        pages.miss(FrameId(0), page(7));
        pages.hit(FrameId(0), page(0));
        pages.hit(FrameId(0), page(7));
        pages.remove(FrameId(1), &mut || true);
        other(&|| pages.remove(FrameId(1), &mut || true));
        let events = recorder.events.lock().unwrap();
        assert_eq!(
            events[2..6],
            [Event::Hit(1), Event::Miss(0), Event::Hit(0), Event::Remove(1)],
            "{}",
            kind.name()
        );
        assert_eq!(recorder.frames.len(), 0);
    }
}

/// Invariant 2 of `batched`.
#[test]
fn exiting_thread_commits_its_hits() {
    for kind in queueing() {
        let recorder = Recorder::default();
        let pages: Arc<dyn Replacement> = kind.wrap(Box::new(recorder.clone()), 8).into();
        (0..8).for_each(|f| pages.miss(FrameId(f), page(f)));
        for round in 1..=20 {
            let pages = pages.clone();
            std::thread::spawn(move || (0..7).for_each(|f| pages.hit(FrameId(f), page(f))))
                .join()
                .unwrap();
            assert_eq!(recorder.hits().len(), 7 * round, "{}", kind.name());
        }
        assert_eq!(Arc::strong_count(&pages), 1);
    }
}

/// For a single thread, a wrapper only delays hits: every eviction finds the victim of the plain
/// policy.
#[test]
fn single_thread_evicts_like_the_plain_policy() {
    for kind in ReplacementKind::all() {
        let policy = match kind {
            ReplacementKind::Wrapped(policy, _) => policy,
            ReplacementKind::UseCounted(kind) => kind.policy(),
            _ => continue,
        };
        const FRAMES: u32 = 50;
        let mut plain = policy.build(FRAMES);
        let pages = kind.build(FRAMES);
        let mut held: Vec<Option<u32>> = vec![None; FRAMES as usize];
        let mut random = 1_u64;
        for _ in 0..20_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let no = ((random >> 40) as u32 % 200).min((random >> 33) as u32 % 120);
            if let Some(frame) = held.iter().position(|held| *held == Some(no)) {
                plain.hit(FrameId(frame as u32));
                pages.hit(FrameId(frame as u32), page(no));
                continue;
            }
            let frame = match held.iter().position(Option::is_none) {
                Some(free) => FrameId(free as u32),
                None => {
                    let taken = plain.evict(Some(page(no)), &mut |_| Probe::Take);
                    assert_eq!(pages.evict(Some(page(no)), &mut |_| Probe::Take), taken, "{kind}");
                    taken.unwrap()
                }
            };
            plain.miss(frame, page(no));
            pages.miss(frame, page(no));
            held[frame.0 as usize] = Some(no);
        }
    }
}

/// More threads than cores, with concurrent evictions: every hit on a resident page is applied
/// once.
#[test]
fn concurrent_hits_are_applied_once() {
    const THREADS: u32 = 24;
    const HITS: u32 = 3_000;
    for kind in WrapperKind::ALL {
        let recorder = Recorder::default();
        let pages = kind.wrap(Box::new(recorder.clone()), THREADS + 8);
        (0..THREADS + 8).for_each(|f| pages.miss(FrameId(f), page(f)));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let pages = &pages;
                scope.spawn(move || {
                    for at in 0..HITS {
                        pages.hit(FrameId(thread), page(thread));
                        if at % 500 == 0 {
                            // Evicts and refills frames that no thread hits.
                            if let Some(frame) = pages.evict(None, &mut |frame| {
                                if frame.0 < THREADS { Probe::Skip } else { Probe::Take }
                            }) {
                                pages.miss(frame, page(1_000 + at));
                            }
                        }
                    }
                    // A removal commits the queued hits; its frame does not matter.
                    pages.remove(FrameId(THREADS + 7), &mut || true);
                });
            }
        });
        // The threads commit explicitly, since the scope does not wait for thread-local
        // destructors.
        let mut counts = [0; THREADS as usize];
        recorder.hits().iter().for_each(|frame| counts[*frame as usize] += 1);
        assert_eq!(counts, [HITS; THREADS as usize], "{}", kind.name());
    }
}

#[test]
fn prefetching_keeps_the_policy_intact() {
    let mut lru = Lru::new(3);
    (0..3).for_each(|f| lru.miss(FrameId(f), page(f)));
    let footprint = lru.footprint();
    footprint.prefetch((0..3).chain([u32::MAX]));
    assert_eq!(lru.validate(), Ok(()));
}
