//! A replacement policy with a witness: what it is told must be what its contract says, and its invariants hold after each thing.

use clearway_buffer::{Footprint, Maker, Policy, Probe, Replacement, ReplacementKind};
use clearway_types::{FrameId, PageId};
use std::cell::Cell;

thread_local! {
    /// What the next pool that this thread of the operating system makes has: a [`Maker`] is a plain function.
    static NEXT: Cell<ReplacementKind> = Cell::default();
}

/// The same replacement; if it is a policy in a wrapper, with a witness in between.
pub fn witnessed(kind: ReplacementKind) -> ReplacementKind {
    NEXT.set(kind);
    ReplacementKind::Custom(Maker(make))
}

fn make(frames: u32) -> Box<dyn Replacement> {
    match NEXT.get() {
        ReplacementKind::Wrapped(policy, wrapper) => {
            let witness = Witness { policy: policy.build(frames), pages: vec![None; frames as usize] };
            wrapper.wrap(Box::new(witness), frames)
        }
        other => other.build(frames),
    }
}

struct Witness {
    policy: Box<dyn Policy>,
    /// What the policy knows to be in each frame.
    pages: Vec<Option<PageId>>,
}

impl Witness {
    fn validate_after(&self, what: &str) {
        self.policy.validate().unwrap_or_else(|wrong| panic!("after {what} the policy is wrong: {wrong}"));
    }
}

impl Policy for Witness {
    fn hit(&mut self, frame: FrameId) {
        self.policy.hit(frame);
        self.validate_after("a hit");
    }

    fn miss(&mut self, frame: FrameId, page: PageId) {
        assert!(
            !self.pages.contains(&Some(page)),
            "{page} comes, and the policy knows it to be there: {:?}",
            self.pages
        );
        let before = self.pages[frame.0 as usize].replace(page);
        assert!(before.is_none(), "{page} comes into a frame that the policy knows to hold {before:?}");
        self.policy.miss(frame, page);
        self.validate_after("a miss");
    }

    fn evict(&mut self, incoming: Option<PageId>, probe: &mut dyn FnMut(FrameId) -> Probe) -> Option<FrameId> {
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
