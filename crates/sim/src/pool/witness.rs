//! Checks the replacement's notifications: one witness between the pool and the replacement, one
//! between a wrapper and its policy.
//!
//! # What is judged
//! 1. A page arrives once and leaves once, and between the two it is in the pool, in that frame.
//!    The check is an exact lookup: only the cooler removes pages, and only in answer to a
//!    proposal. During the lookup, a chain of the page table therefore changes only at its head.
//! 2. Only a frame that holds a page is proposed as a victim.
//! 3. The policy hears the same from its wrapper, and its invariants hold after each call.

use clearway_buffer::Pool;
use clearway_replacement::{
    Footprint, Policy, Probe, Replacement, ReplacementFactory, ReplacementKind, Uses,
};
use clearway_types::{FrameId, PageId};
use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

thread_local! {
    /// The kind and the observer for the next pool that this OS thread creates: a
    /// [`ReplacementFactory`] is a plain function and has no state.
    static NEXT: RefCell<(ReplacementKind, Arc<View>)> = RefCell::default();
}

/// What the pool has told its replacement.
#[derive(Default)]
pub struct View {
    state: Mutex<Reported>,
    pool: OnceLock<Weak<Pool>>,
}

#[derive(Default)]
struct Reported {
    /// The page in each frame, by what the replacement was told.
    pages: Vec<Option<PageId>>,
    /// The frame whose page may be removed at this moment.
    asked: Option<FrameId>,
}

impl View {
    fn state(&self) -> MutexGuard<'_, Reported> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the pool of the replacement.
    pub fn watch(&self, pool: &Arc<Pool>) {
        // This is the only place that sets it.
        self.pool.get_or_init(|| Arc::downgrade(pool));
    }

    /// Returns true if the page has arrived and not left.
    pub fn has(&self, page: PageId) -> bool {
        self.state().pages.contains(&Some(page))
    }

    /// Checks that the page in the frame, which the cooler may remove now, is resident.
    fn ask(&self, frame: FrameId) -> Option<PageId> {
        let page = self.state().pages[frame.0 as usize];
        if let (Some(page), Some(pool)) = (page, self.pool.get().and_then(Weak::upgrade)) {
            assert!(
                pool.is_resident(page),
                "{page} has left before the replacement could hear of it"
            );
        }
        self.state().asked = Some(frame);
        page
    }

    fn answered(&self, frame: FrameId, taken: bool) {
        let mut state = self.state();
        state.asked = None;
        if taken {
            state.pages[frame.0 as usize] = None;
        }
    }
}

/// Wraps the replacement in witnesses.
pub fn witnessed(kind: ReplacementKind, view: &Arc<View>) -> ReplacementKind {
    NEXT.set((kind, view.clone()));
    let told = ReplacementFactory::Notified(|frames| make(frames, None));
    let counted =
        |most| ReplacementFactory::UseCounted(most, |frames, uses| make(frames, Some(uses)));
    ReplacementKind::Custom(kind.counts_uses().map_or(told, counted))
}

/// Creates the replacement, with the pool's use counts if it has any.
fn make(frames: u32, uses: Option<Arc<dyn Uses>>) -> Box<dyn Replacement> {
    let (kind, view) = NEXT.take();
    let pages = vec![None; frames as usize];
    view.state().pages.clone_from(&pages);
    let witness = |policy| Box::new(PolicyWitness { policy, pages });
    let replacement = match kind {
        ReplacementKind::Wrapped(policy, wrapper) => {
            wrapper.wrap(witness(policy.build(frames)), frames)
        }
        ReplacementKind::UseCounted(kind) => {
            let uses = uses.expect("it counts uses");
            kind.wrap(witness(kind.build(frames, uses.clone())), uses)
        }
        other => match uses {
            Some(uses) => other.build_over(frames, |_| uses),
            None => other.build(frames),
        },
    };
    Box::new(Witness { replacement, view })
}

struct Witness {
    replacement: Box<dyn Replacement>,
    view: Arc<View>,
}

impl Replacement for Witness {
    fn hit(&self, frame: FrameId, page: PageId) {
        self.replacement.hit(frame, page);
    }

    fn miss(&self, frame: FrameId, page: PageId) {
        let mut told = self.view.state();
        let elsewhere = (0..).zip(&told.pages).find(|(_, held)| **held == Some(page));
        // The page is back before the thread that removes it has reported that.
        let elsewhere = elsewhere.filter(|(at, _)| told.asked != Some(FrameId(*at)));
        assert!(elsewhere.is_none(), "{page} arrives, but has not left: {elsewhere:?}");
        let before = told.pages[frame.0 as usize].replace(page);
        assert!(before.is_none(), "{page} arrives in a frame that {before:?} has not left");
        drop(told);
        self.replacement.miss(frame, page);
    }

    fn evict(
        &self,
        incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        self.replacement.evict(incoming, &mut |frame| {
            assert!(self.view.ask(frame).is_some(), "a frame is proposed that holds nothing");
            let answer = probe(frame);
            self.view.answered(frame, answer == Probe::Take);
            answer
        })
    }

    fn remove(&self, frame: FrameId, take: &mut dyn FnMut() -> bool) {
        self.view.ask(frame);
        let mut taken = false;
        self.replacement.remove(frame, &mut || {
            taken = take();
            taken
        });
        self.view.answered(frame, taken);
    }
}

struct PolicyWitness {
    policy: Box<dyn Policy>,
    /// The page in each frame, as the policy knows it.
    pages: Vec<Option<PageId>>,
}

impl PolicyWitness {
    fn validate_after(&self, what: &str) {
        self.policy
            .validate()
            .unwrap_or_else(|wrong| panic!("after {what} the policy is wrong: {wrong}"));
    }
}

impl Policy for PolicyWitness {
    fn hit(&mut self, frame: FrameId) {
        self.policy.hit(frame);
        self.validate_after("a hit");
    }

    fn miss(&mut self, frame: FrameId, page: PageId) {
        assert!(
            !self.pages.contains(&Some(page)),
            "{page} arrives, but the policy already has it: {:?}",
            self.pages
        );
        let before = self.pages[frame.0 as usize].replace(page);
        assert!(
            before.is_none(),
            "{page} arrives in a frame that holds {before:?} according to the policy"
        );
        self.policy.miss(frame, page);
        self.validate_after("a miss");
    }

    fn evict(
        &mut self,
        incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        let pages = &self.pages;
        let taken = self.policy.evict(incoming, &mut |frame| {
            assert!(pages[frame.0 as usize].is_some(), "a frame is proposed that holds nothing");
            probe(frame)
        });
        if let Some(frame) = taken {
            self.pages[frame.0 as usize] = None;
        }
        self.validate_after("an eviction");
        taken
    }

    fn remove(&mut self, frame: FrameId) {
        self.pages[frame.0 as usize] = None;
        self.policy.remove(frame);
        self.validate_after("a removal");
    }

    fn footprint(&self) -> Footprint {
        self.policy.footprint()
    }

    fn validate(&self) -> Result<(), String> {
        self.policy.validate()
    }
}
