//! A cache without content: a policy, and the pages that it would keep if it were alone.
//!
//! Its places are to the policy what the frames of a pool are. It starts empty and is full after as
//! many different pages as it has places. From then on, each new page takes the place of the
//! policy's victim.
//!
//! **The cost of a switch** is measured with a *cohort*: the pages that the shadow has and the
//! leader does not, at one moment. If the shadow had taken over at that moment, it would have
//! missed those that are used while it has them. The others are evicted unused, and stop counting
//! at that point. In a loop all of them are used, in a scan hardly any.
//!
//! # Invariants
//! 1. The policy knows exactly the places that have a page.
//! 2. The cohort's `waiting` is the number of places whose page is an undecided member.

use super::directory::Directory;
use super::{Policy, PolicyKind, Probe, ensure};
use clearway_types::{FrameId, PageId};

/// The pages of one moment, each tracked until it is used or evicted.
#[derive(Default)]
struct Cohort {
    /// Indexed by place: whether the page is a member that was neither used nor evicted since.
    /// Empty before the first cohort.
    waits: Vec<bool>,
    size: u32,
    waiting: u32,
    /// The number of members that were evicted unused.
    unused: u32,
}

impl Cohort {
    /// Records that the page at `place` was used, or was evicted unused.
    fn decide(&mut self, place: u32, used: bool) {
        if self.waits.get_mut(place as usize).is_some_and(std::mem::take) {
            self.waiting -= 1;
            self.unused += u32::from(!used);
        }
    }
}

/// The directory of a cache.
pub(super) struct Shadow {
    policy: Box<dyn Policy>,
    /// Has a ghost for each place: the page at that place.
    pages: Directory,
    cohort: Cohort,
}

impl Shadow {
    /// Creates an empty shadow with the places `0 .. places`.
    pub fn new(kind: PolicyKind, places: u32) -> Self {
        Self {
            policy: kind.build(places),
            pages: Directory::new(0, places),
            cohort: Cohort::default(),
        }
    }

    /// Returns the place of the page.
    pub fn find(&self, page: PageId) -> Option<u32> {
        self.pages.ghost(page)
    }

    /// Reports a use of the page at `place`, which has one.
    pub fn hit(&mut self, place: u32) {
        self.policy.hit(FrameId(place));
    }

    /// Reports a use of a page that has no place. Returns its new place, and whether another page
    /// was evicted from it.
    pub fn miss(&mut self, page: PageId) -> (u32, bool) {
        let full = self.pages.is_full();
        if full {
            let victim = self.policy.evict(Some(page), &mut |_| Probe::Take);
            self.pages.forget(victim.expect("a full cache has a victim").0);
        }
        let place = self.pages.add(page);
        self.policy.miss(FrameId(place), page);
        (place, full)
    }

    /// Reports a use of the page and makes it resident. Returns whether it was a hit.
    pub fn access(&mut self, page: PageId) -> bool {
        let found = self.find(page);
        let place = match found {
            Some(place) => {
                self.hit(place);
                place
            }
            // The place of the page that was evicted for it.
            None => self.miss(page).0,
        };
        self.cohort.decide(place, found.is_some());
        found.is_some()
    }

    /// Proposes places as [`Policy::evict`] proposes frames, and forgets the page at the one that
    /// it returns.
    pub fn evict(
        &mut self,
        incoming: Option<PageId>,
        probe: &mut dyn FnMut(u32) -> Probe,
    ) -> Option<u32> {
        let place = self.policy.evict(incoming, &mut |frame| probe(frame.0))?.0;
        self.pages.forget(place);
        Some(place)
    }

    /// Removes the page at `place`, which has one and was not evicted.
    pub fn remove(&mut self, place: u32) {
        self.policy.remove(FrameId(place));
        self.pages.forget(place);
    }

    /// Estimates the misses that a switch from `leader` to this shadow would cost, based on its
    /// cohort: every undecided member may still be used. Starts a new cohort when the last one is
    /// decided, or no longer resembles the current difference. O(places).
    pub fn cost_after(&mut self, leader: &Self) -> u32 {
        let cohort = &self.cohort;
        let missing =
            self.pages.all_ghosts().filter(|page| leader.find(*page).is_none()).count() as u32;
        let cost = match cohort.size {
            0 => missing,
            size => (u64::from(missing) * u64::from(size - cohort.unused) / u64::from(size)) as u32,
        };
        if cohort.waiting == 0 || missing > 2 * cohort.size {
            let places = 0..self.pages.nodes();
            let waits = |place| self.page(place).is_some_and(|page| leader.find(page).is_none());
            self.cohort = Cohort {
                waits: places.map(waits).collect(),
                size: missing,
                waiting: missing,
                unused: 0,
            };
        }
        cost
    }

    /// Drops the cohort, because the leader has changed.
    pub fn forget_cohort(&mut self) {
        self.cohort = Cohort::default();
    }

    /// Returns the page at `place`, if it has one.
    pub fn page(&self, place: u32) -> Option<PageId> {
        let page = self.pages.page(place);
        (self.find(page) == Some(place)).then_some(page)
    }

    /// Checks the invariants of policy and directory. O(n).
    pub fn validate(&self) -> Result<(), String> {
        self.policy.validate()?;
        self.pages.validate()?;
        let Cohort { waits, size, waiting, unused } = &self.cohort;
        let found = waits.iter().filter(|waits| **waits).count();
        ensure(found == *waiting as usize && waiting + unused <= *size, || {
            format!("{found} of {size} members are undecided, not {waiting}")
        })
    }
}
