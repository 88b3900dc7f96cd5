//! Tests of the sublists: even distribution, victims, ghosts, and sizes with many threads.

use super::super::tests::page;
use super::*;

fn full(kind: MultilistKind, frames: u32, sublists: u32) -> Multilist {
    let pages = Multilist::with_sublists(kind, frames, sublists);
    (0..frames).for_each(|f| pages.miss(FrameId(f), page(f)));
    pages
}

#[test]
fn sublists_fill_evenly() {
    let pages = full(MultilistKind::Lru, 8_000, 8);
    for at in 0..8 {
        let mut frames = 0;
        let mut next = pages.links.front(Multilist::list(at, MRU));
        while let Some(frame) = next {
            frames += 1;
            next = pages.links.next(frame);
        }
        assert!((900..1_100).contains(&frames), "sublist {at} has {frames} frames of 8,000");
    }
    assert_eq!(pages.validate(), Ok(()));
}

/// One sublist is plain LRU. With several, each keeps its own order, and recently used pages are
/// evicted late.
#[test]
fn victims_come_from_the_tails() {
    let evict = |pages: &Multilist| pages.evict(None, &mut |_| Probe::Take).map(|frame| frame.0);
    let pages = full(MultilistKind::Lru, 4, 1);
    pages.hit(FrameId(0), page(0));
    assert_eq!(
        [evict(&pages), evict(&pages), evict(&pages), evict(&pages), evict(&pages)],
        [Some(1), Some(2), Some(3), Some(0), None]
    );
    let pages = full(MultilistKind::Lru, 1_000, 8);
    (0..500).for_each(|f| pages.hit(FrameId(f), page(f)));
    let early: Vec<u32> = (0..400).filter_map(|_| evict(&pages)).collect();
    assert!(early.iter().all(|frame| *frame >= 500), "pages that were hit are at the heads");
}

#[test]
fn hit_on_an_evicted_page_is_ignored() {
    let pages = full(MultilistKind::Arc, 8, 4);
    pages.remove(FrameId(3), &mut || true);
    pages.remove(FrameId(3), &mut || true);
    pages.hit(FrameId(3), page(3));
    pages.miss(FrameId(3), page(50));
    pages.hit(FrameId(3), page(3));
    assert_eq!(pages.states[3].load(Relaxed), MRU);
    pages.hit(FrameId(3), page(50));
    assert_eq!(pages.states[3].load(Relaxed), MFU);
    assert_eq!(pages.validate(), Ok(()));
}

/// ARC: a page that is read again soon after its eviction is frequent, and moves `p` in favour of
/// the state that it was evicted from.
#[test]
fn ghosts_move_p() {
    let pages = full(MultilistKind::Arc, 64, 4);
    (0..32).for_each(|f| pages.hit(FrameId(f), page(f)));
    let evict = |incoming| pages.evict(incoming, &mut |_| Probe::Take).unwrap();
    let frame = evict(None);
    assert!(frame.0 >= 32, "MRU is larger than p, which is 0");
    let incoming = page(frame.0);
    let next = evict(Some(incoming));
    assert_eq!(pages.p.load(Relaxed), 1, "p moves before the victim is chosen");
    pages.miss(next, incoming);
    assert_eq!(pages.p.load(Relaxed), 1, "p moves once");
    assert_eq!(pages.states[next.0 as usize].load(Relaxed), MFU);
    let frequent = (0..).map(|_| evict(None).0).find(|frame| *frame < 32).unwrap();
    assert_eq!(pages.sizes[0].load(Relaxed), 1, "MRU is no larger than p");
    evict(Some(page(frequent)));
    assert_eq!(pages.p.load(Relaxed), 0);
    assert_eq!(pages.validate(), Ok(()));
}

#[test]
fn invariants_hold_over_a_long_run() {
    for kind in MultilistKind::ALL {
        const FRAMES: u32 = 60;
        let pages = Multilist::with_sublists(*kind, FRAMES, 4);
        let mut held: Vec<Option<u32>> = vec![None; FRAMES as usize];
        let mut random = 1_u64;
        for step in 0..30_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let no = ((random >> 40) as u32 % 300).min((random >> 33) as u32 % 200);
            if let Some(frame) = held.iter().position(|held| *held == Some(no)) {
                pages.hit(FrameId(frame as u32), page(no));
                continue;
            }
            let frame = match held.iter().position(Option::is_none) {
                Some(free) => FrameId(free as u32),
                None => {
                    pages.evict((step % 2 == 0).then(|| page(no)), &mut |_| Probe::Take).unwrap()
                }
            };
            pages.miss(frame, page(no));
            held[frame.0 as usize] = Some(no);
            if step % 100 == 0 {
                assert_eq!(pages.validate(), Ok(()), "{kind:?} at {step}");
            }
        }
    }
}

#[test]
fn invariants_hold_after_concurrent_use() {
    for kind in MultilistKind::ALL {
        const FRAMES: u32 = 256;
        let pages = full(*kind, FRAMES, 4);
        std::thread::scope(|scope| {
            for thread in 0..8_u32 {
                let pages = &pages;
                scope.spawn(move || {
                    for at in 0..2_000 {
                        let frame = at * 7 % FRAMES;
                        pages.hit(FrameId(frame), page(frame));
                        if at % 20 == 0
                            && let Some(frame) = pages.evict(None, &mut |_| Probe::Take)
                        {
                            pages.miss(frame, page(1_000 + thread * 10_000 + at));
                        }
                    }
                });
            }
        });
        assert_eq!(pages.validate(), Ok(()), "{kind:?}");
    }
}
