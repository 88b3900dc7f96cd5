//! A cache without content: a policy, and the pages that it would keep if it were alone.
//!
//! Its places are to the policy what frames are to the policy of a pool. A page that was not used
//! has no place: the directory is full after as many different pages as places, and from then on
//! each new page takes the place of the policy's victim.
//!
//! **The cost of a switch** is measured by a *cohort*: the pages that the shadow has and the leader
//! has not, at one moment. Had the shadow taken over then, it would have missed those of them that
//! are used while it has them. The others leave unused, and stop counting as soon as they have
//! left. Of a loop all are used, of a scan hardly any.
//!
//! # Invariants
//! 1. The policy knows exactly the places that have a page.
//! 2. The cohort's count is the number of places whose page is in the waiting cohort.

use super::directory::Directory;
use super::{Policy, PolicyKind, Probe, ensure};
use clearway_types::{FrameId, PageId};

/// Pages that were seen at one moment, until each has been used or has left.
#[derive(Default)]
struct Cohort {
    /// Whether the page at a place is one that was neither used since nor has left. Empty as long
    /// as there was no cohort.
    waits: Vec<bool>,
    size: u32,
    waiting: u32,
    /// How many have left unused.
    unused: u32,
}

impl Cohort {
    /// The page at `place` was used, or has left unused.
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
    /// Has a ghost for each place: the page there.
    pages: Directory,
    cohort: Cohort,
}

impl Shadow {
    /// An empty one of `places` places, `0 .. places`.
    pub fn new(kind: PolicyKind, places: u32) -> Self {
        Self {
            policy: kind.build(places),
            pages: Directory::new(0, places),
            cohort: Cohort::default(),
        }
    }

    /// Where the page is.
    pub fn find(&self, page: PageId) -> Option<u32> {
        self.pages.ghost(page)
    }

    /// The page at `place`, which has one, was used.
    pub fn hit(&mut self, place: u32) {
        self.policy.hit(FrameId(place));
    }

    /// A page that it has not was used: where it is now, and whether another had to leave that
    /// place for it.
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

    /// Whether a use of the page is a hit; it is in the cache then.
    pub fn access(&mut self, page: PageId) -> bool {
        let found = self.find(page);
        let place = match found {
            Some(place) => {
                self.hit(place);
                place
            }
            // The place of the page that left for it.
            None => self.miss(page).0,
        };
        self.cohort.decide(place, found.is_some());
        found.is_some()
    }

    /// Proposes places as [`Policy::evict`] proposes frames; the page at the one that is returned
    /// is forgotten.
    pub fn evict(
        &mut self,
        incoming: Option<PageId>,
        probe: &mut dyn FnMut(u32) -> Probe,
    ) -> Option<u32> {
        let place = self.policy.evict(incoming, &mut |frame| probe(frame.0))?.0;
        self.pages.forget(place);
        Some(place)
    }

    /// The page at `place`, which has one, has left by another way.
    pub fn remove(&mut self, place: u32) {
        self.policy.remove(FrameId(place));
        self.pages.forget(place);
    }

    /// How many misses it would cost if it took over from `leader`, by what is known of its cohort:
    /// all pages that wait may be used yet. Begins a new cohort when the last is decided, or is no
    /// longer like what there is. O(places).
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

    /// There is another leader.
    pub fn forget_cohort(&mut self) {
        self.cohort = Cohort::default();
    }

    /// The page at `place`, if it has one.
    pub fn page(&self, place: u32) -> Option<PageId> {
        let page = self.pages.page(place);
        (self.find(page) == Some(place)).then_some(page)
    }

    /// Whether the invariants of policy and directory hold. O(n).
    pub fn validate(&self) -> Result<(), String> {
        self.policy.validate()?;
        self.pages.validate()?;
        let Cohort { waits, size, waiting, unused } = &self.cohort;
        let found = waits.iter().filter(|waits| **waits).count();
        ensure(found == *waiting as usize && waiting + unused <= *size, || {
            format!("{found} of {size} wait, not {waiting}")
        })
    }
}
