//! Tests of the arbiter: it switches its leader when the access pattern changes, keeps the pages in
//! the pool, and is never much worse than the best single policy.

use crate::cache::{misses, page};
use clearway_replacement::{Arbiter, ArbiterParameters, Policy, PolicyKind, Probe};
use clearway_testkit::Rng;
use clearway_traces::{FIGURES, Trace, directory, generate, load};
use clearway_types::FrameId;
use std::collections::HashMap;

/// A pool managed by an arbiter.
struct Pool {
    arbiter: Arbiter,
    page_of: Vec<Option<u32>>,
    frame_of: HashMap<u32, FrameId>,
}

impl Pool {
    fn new(frames: u32, places: u32) -> Self {
        let arbiter =
            Arbiter::with(frames, ArbiterParameters { places, ..ArbiterParameters::default() });
        Self { arbiter, page_of: vec![None; frames as usize], frame_of: HashMap::new() }
    }

    fn leave(&mut self, frame: FrameId) {
        let no = self.page_of[frame.0 as usize].take().unwrap();
        self.frame_of.remove(&no);
    }

    /// Returns whether the access was a hit.
    fn access(&mut self, no: u32) -> bool {
        if let Some(frame) = self.frame_of.get(&no) {
            self.arbiter.hit(*frame);
            return true;
        }
        if self.frame_of.len() == self.page_of.len() {
            let victim = self.arbiter.evict(Some(page(no)), &mut |_| Probe::Take).unwrap();
            self.leave(victim);
        }
        let frame = FrameId(self.page_of.iter().position(Option::is_none).unwrap() as u32);
        self.page_of[frame.0 as usize] = Some(no);
        self.frame_of.insert(no, frame);
        self.arbiter.miss(frame, page(no));
        false
    }

    /// Asserts that the arbiter proposes exactly the frames that hold a page.
    fn assert_all_proposed(&mut self) {
        let mut proposed = vec![false; self.page_of.len()];
        let all = self.arbiter.evict(None, &mut |frame| {
            proposed[frame.0 as usize] = true;
            Probe::Skip
        });
        assert_eq!(all, None);
        let known: Vec<_> = self.page_of.iter().map(Option::is_some).collect();
        assert_eq!(proposed, known);
        self.arbiter.validate().unwrap();
    }
}

/// Returns two access patterns. In the first, a few pages are popular and the others are used once,
/// so frequency predicts reuse. In the second, the set of used pages moves continuously, so recency
/// predicts reuse.
fn changing(frames: u32, accesses: usize) -> (Vec<u32>, Vec<u32>) {
    let mut rng = Rng::new(5);
    let mut passing = 1_000_000;
    let mut popular = || {
        passing += 1;
        if rng.permille(500) { rng.below(u64::from(frames) * 3 / 4) as u32 } else { passing }
    };
    let first = (0..accesses).map(|_| popular()).collect();
    let mut rng = Rng::new(6);
    let near = |at| 2_000_000 + (at / 4) as u32 + rng.below(u64::from(frames) * 3 / 4) as u32;
    (first, (0..accesses).map(near).collect())
}

/// With a pool of the shadows' size, and with one ten times as large.
#[test]
fn leader_follows_the_accesses_and_keeps_all_pages() {
    for (frames, places) in [(400, 1024), (2000, 200)] {
        let (first, then) = changing(frames, 60 * frames as usize);
        let mut pool = Pool::new(frames, places);
        let hits = first.iter().filter(|no| pool.access(**no)).count();
        let lru = first.len() as u64 - misses(&mut *PolicyKind::Lru.build(frames), frames, &first);
        assert!(hits as f64 > 1.1 * lru as f64, "{hits} hits, LRU has {lru}");
        let leader = pool.arbiter.leader();
        let (mut hits, mut kept) = (0, 0);
        for no in &then {
            let (switches, before) = (pool.arbiter.switches(), pool.page_of.clone());
            hits += u64::from(pool.access(*no));
            if pool.arbiter.switches() > switches {
                let left =
                    before.iter().zip(&pool.page_of).filter(|(before, now)| before != now).count();
                assert!(left <= 1, "{left} pages were evicted at a switch");
                pool.assert_all_proposed();
                kept += 1;
            }
        }
        assert!(kept > 0 && pool.arbiter.leader() != leader, "{leader} is always the leader");
        let alone =
            |kind: PolicyKind| then.len() as u64 - misses(&mut *kind.build(frames), frames, &then);
        let (old, lru) = (alone(leader), alone(PolicyKind::Lru));
        assert!(hits > old, "{hits} hits, {old} with {leader} alone, {lru} with LRU");
        assert!(hits as f64 > 0.93 * lru as f64, "{hits} hits, LRU {lru}");
    }
}

/// While no page has been used twice, the latest pages stay: accesses that reverse direction use
/// these next.
#[test]
fn reversed_first_pass_hits_the_latest_pages() {
    for (frames, places) in [(400, 1024), (2000, 200)] {
        let mut pool = Pool::new(frames, places);
        let turning = (0..2 * frames).chain((0..2 * frames).rev());
        let hits: u32 = turning.map(|no| u32::from(pool.access(no))).sum();
        assert_eq!((hits, pool.arbiter.leader()), (frames, PolicyKind::Lru));
        pool.assert_all_proposed();
    }
}

/// For a loop, all pages are equivalent: the pages in the pool at the end of the first round stay,
/// so that the second round already hits.
#[test]
fn loop_hits_the_pages_of_its_first_pass() {
    for (frames, places) in [(400, 1024), (2000, 200)] {
        let mut pool = Pool::new(frames, places);
        let mut hits = || (0..frames * 3 / 2).map(|no| u32::from(pool.access(no))).sum::<u32>();
        assert_eq!(hits(), 0);
        for round in 0..3 {
            let found = hits();
            assert!(
                found * 100 > frames * 97,
                "{found} hits in round {round} with {frames} frames"
            );
        }
        assert_eq!(pool.arbiter.leader(), PolicyKind::Lirs);
        pool.assert_all_proposed();
    }
}

/// With samples as shadows, and a pool that frees frames ahead of need, pins some pages and writes
/// others first.
#[test]
fn invariants_hold_with_sampled_shadows() {
    for (frames, places) in [(60, 7), (60, 30), (200, 50), (5, 1)] {
        for trace in generate::all(frames, 4000, 21) {
            let (mut pool, mut rng) = (Pool::new(frames, places), Rng::new(u64::from(frames)));
            for no in &trace.pages {
                pool.access(*no);
                pool.arbiter.validate().unwrap();
                if rng.permille(50) {
                    let answers = rng.next_u64();
                    let mut draw = Rng::new(answers);
                    let answer = |_| if draw.permille(500) { Probe::Skip } else { Probe::Take };
                    let victim = pool.arbiter.evict(None, &mut { answer });
                    victim.into_iter().for_each(|frame| pool.leave(frame));
                }
                let frame = FrameId(rng.below(u64::from(frames)) as u32);
                if rng.permille(20) && pool.page_of[frame.0 as usize].is_some() {
                    pool.arbiter.remove(frame);
                    pool.leave(frame);
                }
                pool.arbiter.validate().unwrap();
            }
            pool.assert_all_proposed();
        }
    }
}

/// The maximum distance below the best single policy, in percentage points of the hit ratio.
const MAX_LOSS: f64 = 1.0;

/// Traces with fewer accesses than this are replayed at several sizes. The longest of these
/// (sprite) has 133,996.
const SHORT: usize = 200_000;
/// In quarters of the frames of the literature.
const OTHER_SIZES: [u32; 4] = [1, 2, 6, 8];

/// Returns the same accesses with different page numbers, which hash differently.
fn renumbered(trace: &Trace) -> Trace {
    let pages = trace.pages.iter().map(|no| trace.distinct - 1 - no).collect();
    Trace { name: format!("{} renumbered", trace.name), pages, distinct: trace.distinct }
}

#[test]
fn arbiter_is_close_to_the_best_single_policy() {
    let wanted = FIGURES.iter().map(|figure| (figure.trace, figure.frames)).take(16);
    let traces = wanted.filter_map(|(name, frames)| {
        Some((load(name)?.unwrap_or_else(|error| panic!("{error}")), frames))
    });
    // The two longest traces take a minute in a debug build with all policies: the lab runs them.
    let mut traces: Vec<(Trace, u32)> =
        traces.filter(|(trace, _)| trace.pages.len() < 1_000_000).collect();
    if traces.is_empty() {
        eprintln!("no traces in {}: using generated ones", directory().display());
        traces = generate::all(300, 100_000, 22).into_iter().map(|trace| (trace, 300)).collect();
    }
    let short = traces.iter().filter(|(trace, _)| trace.pages.len() < SHORT);
    let renumbered: Vec<_> =
        short.clone().map(|(trace, frames)| (renumbered(trace), *frames)).collect();
    let sizes = short
        .flat_map(|(trace, frames)| OTHER_SIZES.map(|quarters| (trace, frames * quarters / 4)));
    let mut faults = Vec::new();
    for (trace, frames) in
        traces.iter().chain(&renumbered).map(|(trace, frames)| (trace, *frames)).chain(sizes)
    {
        let percent = |kind: PolicyKind| {
            trace.hit_percent(misses(&mut *kind.build(frames), frames, &trace.pages))
        };
        let others = PolicyKind::ALL.iter().filter(|kind| **kind != PolicyKind::Arbiter);
        let best =
            others.map(|kind| (percent(*kind), *kind)).max_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
        let found = percent(PolicyKind::Arbiter);
        if found < best.0 - MAX_LOSS {
            faults.push(format!(
                "{} at {frames}: {found:.2} %, {} has {:.2} %",
                trace.name, best.1, best.0
            ));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
