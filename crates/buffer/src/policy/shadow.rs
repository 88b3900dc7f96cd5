//! A cache without content: a policy, and the pages that it would keep if it were alone.
//!
//! Places are to the policy what frames are to that of a pool. There is no place for a page that was not used: the directory is full
//! after so many different ones, and from then on each new page takes the place of the policy's victim.
//!
//! # Invariants
//! 1. The policy knows exactly the places that have a page.

use super::directory::Directory;
use super::{Policy, PolicyKind, Probe};
use clearway_types::{FrameId, PageId};

/// The directory of a cache.
pub(super) struct Shadow {
    policy: Box<dyn Policy>,
    /// Has a ghost for each place: the page there.
    pages: Directory,
}

impl Shadow {
    /// An empty one of `places` places, `0 .. places`.
    pub fn new(kind: PolicyKind, places: u32) -> Self {
        Self { policy: kind.build(places), pages: Directory::new(0, places) }
    }

    /// Where the page is.
    pub fn find(&self, page: PageId) -> Option<u32> {
        self.pages.ghost(page)
    }

    /// The page at `place`, which has one, was used.
    pub fn hit(&mut self, place: u32) {
        self.policy.hit(FrameId(place));
    }

    /// A page that it has not was used: where it is now, and whether another had to leave that place for it.
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
        match found {
            Some(place) => self.hit(place),
            None => _ = self.miss(page),
        }
        found.is_some()
    }

    /// Proposes places as [`Policy::evict`] proposes frames; the page at the one that is returned is forgotten.
    pub fn evict(&mut self, incoming: Option<PageId>, probe: &mut dyn FnMut(u32) -> Probe) -> Option<u32> {
        let place = self.policy.evict(incoming, &mut |frame| probe(frame.0))?.0;
        self.pages.forget(place);
        Some(place)
    }

    /// The page at `place`, which has one, has left by another way.
    pub fn remove(&mut self, place: u32) {
        self.policy.remove(FrameId(place));
        self.pages.forget(place);
    }

    /// How many of its pages another has not. O(places).
    pub fn missing_in(&self, other: &Self) -> u32 {
        self.pages.all_ghosts().filter(|page| other.find(*page).is_none()).count() as u32
    }

    /// The page at `place`, if it has one.
    pub fn page(&self, place: u32) -> Option<PageId> {
        let page = self.pages.page(place);
        (self.find(page) == Some(place)).then_some(page)
    }

    /// Whether the invariants of policy and directory hold. O(n).
    pub fn validate(&self) -> Result<(), String> {
        self.policy.validate()?;
        self.pages.validate()
    }
}
