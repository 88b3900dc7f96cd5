//! Runs every policy beside its model. Both must make the same proposals and choose the same
//! victims. After every operation the policy's invariants must hold.

use crate::cache::{misses, page};
use crate::models;
use clearway_replacement::{Policy, PolicyKind, Probe};
use clearway_testkit::Rng;
use clearway_traces::{Trace, generate, load};
use clearway_types::{FrameId, PageId};
use std::collections::HashMap;

/// How eviction is requested.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Eviction {
    /// Like a cache: for the incoming page, when no frame is free; the first proposal is taken.
    Cache,
    /// Like the pool: ahead of need, without naming a page. Some frames are pinned, some pages are
    /// written first and removed later.
    Pool,
    /// Either of them, at random.
    Mixed,
}

/// A policy and its model, which receive the same calls.
struct Pair {
    policy: Box<dyn Policy>,
    model: Box<dyn Policy>,
    page_of: Vec<Option<u32>>,
    frame_of: HashMap<u32, FrameId>,
    rng: Rng,
}

impl Pair {
    fn new(kind: PolicyKind, frames: u32, seed: u64) -> Self {
        Self {
            policy: kind.build(frames),
            model: models::build(kind, frames),
            page_of: vec![None; frames as usize],
            frame_of: HashMap::new(),
            rng: Rng::new(seed),
        }
    }

    fn both(&mut self, tell: impl Fn(&mut dyn Policy)) {
        tell(&mut *self.policy);
        tell(&mut *self.model);
        self.policy.validate().unwrap();
    }

    fn any_frame(&mut self) -> FrameId {
        FrameId(self.rng.below(self.page_of.len() as u64) as u32)
    }

    fn access(&mut self, no: u32, eviction: Eviction) {
        if eviction != Eviction::Cache {
            self.disturb();
        }
        if let Some(frame) = self.frame_of.get(&no).copied() {
            return self.both(|policy| policy.hit(frame));
        }
        let pool =
            eviction == Eviction::Pool || eviction == Eviction::Mixed && self.rng.permille(500);
        let full = self.frame_of.len() == self.page_of.len();
        if full || pool && self.rng.permille(100) {
            self.evict((!pool).then_some(page(no)), eviction);
        }
        let free: Vec<_> =
            (0..self.page_of.len()).filter(|frame| self.page_of[*frame].is_none()).collect();
        if free.is_empty() {
            return;
        }
        let frame = free[self.rng.below(free.len() as u64) as usize];
        self.page_of[frame] = Some(no);
        self.frame_of.insert(no, FrameId(frame as u32));
        self.both(|policy| policy.miss(FrameId(frame as u32), page(no)));
    }

    /// Requests a victim from both with the same answers, and takes it.
    fn evict(&mut self, incoming: Option<PageId>, eviction: Eviction) {
        let (skips, stops) = match eviction {
            Eviction::Cache => (0, 0),
            _ if self.rng.permille(20) => (1000, 0),
            _ => (250, 20),
        };
        let answers = self.rng.next_u64();
        let ask = |policy: &mut dyn Policy| {
            let (mut rng, mut proposed) = (Rng::new(answers), Vec::new());
            let victim = policy.evict(incoming, &mut |frame| {
                proposed.push(frame);
                match rng.below(1000) {
                    draw if draw < skips => Probe::Skip,
                    draw if draw < skips + stops => Probe::Stop,
                    _ => Probe::Take,
                }
            });
            (proposed, victim)
        };
        let (found, expected) = (ask(&mut *self.policy), ask(&mut *self.model));
        assert_eq!(found, expected, "proposals and victim differ from the model's");
        self.policy.validate().unwrap();
        assert!(
            found.0.iter().all(|frame| self.page_of[frame.0 as usize].is_some()),
            "an empty frame was proposed"
        );
        if let Some(victim) = found.1 {
            self.left(victim);
        }
    }

    fn left(&mut self, frame: FrameId) {
        let no = self.page_of[frame.0 as usize].take().expect("only a frame with a page is left");
        self.frame_of.remove(&no);
    }

    /// Occasionally removes a page without eviction, or passes a frame that holds none.
    fn disturb(&mut self) {
        let frame = self.any_frame();
        match self.rng.below(100) {
            0 => {
                self.both(|policy| policy.remove(frame));
                if self.page_of[frame.0 as usize].is_some() {
                    self.left(frame);
                }
            }
            1 if self.page_of[frame.0 as usize].is_none() => self.both(|policy| policy.hit(frame)),
            _ => {}
        }
    }
}

/// Runs the pair over a trace; a failure prints where it happened.
fn run(kind: PolicyKind, trace: &Trace, frames: u32, eviction: Eviction) {
    struct Place<'a>(PolicyKind, &'a Trace, u32, Eviction, usize);
    impl Drop for Place<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!(
                    "{} on \"{}\", {} frames, eviction {:?}: access {}",
                    self.0, self.1.name, self.2, self.3, self.4
                );
            }
        }
    }
    let mut place = Place(kind, trace, frames, eviction, 0);
    let mut pair = Pair::new(kind, frames, u64::from(frames));
    for (at, no) in trace.pages.iter().enumerate() {
        place.4 = at;
        pair.access(*no, eviction);
    }
}

#[test]
fn policies_behave_like_their_models() {
    for frames in [1, 2, 3, 5, 16, 60, 200] {
        for trace in generate::all(frames, 1500 + 5 * frames as usize, 11) {
            for kind in PolicyKind::ALL {
                for eviction in [Eviction::Cache, Eviction::Pool, Eviction::Mixed] {
                    run(*kind, &trace, frames, eviction);
                }
            }
        }
    }
}

/// Uses short traces of the literature, or generated ones if these are missing.
#[test]
fn policies_miss_as_often_as_their_models() {
    let wanted = [("lirs_cpp", 35), ("lirs_cs", 500), ("lirs_gli", 1000), ("lirs_ps", 500)];
    let loaded = wanted.map(|(name, frames)| {
        Some((load(name)?.unwrap_or_else(|error| panic!("{error}")), frames))
    });
    let mut traces: Vec<_> = loaded.into_iter().flatten().collect();
    if traces.len() < wanted.len() {
        eprintln!("some traces of the literature are missing: comparing on generated ones");
        traces = generate::all(300, 10_000, 12).into_iter().map(|trace| (trace, 300)).collect();
    }
    for (trace, frames) in traces {
        for kind in PolicyKind::ALL {
            let found = misses(&mut *kind.build(frames), frames, &trace.pages);
            let expected = misses(&mut *models::build(*kind, frames), frames, &trace.pages);
            assert_eq!(found, expected, "misses of {kind} on {} with {frames} frames", trace.name);
        }
    }
}
