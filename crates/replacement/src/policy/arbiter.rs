//! Several policies watch the accesses. One of them, the leader, chooses the victims: the one that
//! would have had the most hits recently.
//!
//! Every candidate has a shadow ([`Shadow`]): the directory of a cache of its own, which counts the
//! hits that it would have. In a pool of up to 1024 frames, a shadow is as large as the pool and
//! sees every access. In a larger pool it has 1024 places and sees a sample of the pages, chosen by
//! hash in the same proportion (miniature simulation), which is known to give nearly the same
//! ratios.
//!
//! **Following.** The pool's pages follow the leader's directory. A frame whose page the leader
//! would not have (a *stranger*) leaves before any other; if there is none, the leader chooses
//! among its own pages. So a new leader drops and reads no page: what it would have comes when it
//! is used, and what it would not have leaves when a frame is needed. Once the last stranger has
//! left, it misses what it would have missed alone. Where shadows are as large as the pool, the
//! leader's directory is its shadow. Where they are samples, a new leader's directory is made from
//! the pages in the pool, in the order in which the last leader would have evicted them.
//!
//! **Taking over.** A switch costs misses: one for each page that the new leader has, the last one
//! has not, and that is used while the new one has it. Their number is measured on the pages of a
//! moment before ([`Shadow::cost_after`]). The best candidate takes over once its lead in hits
//! reaches that number, and at least 8 and one for every 12 places (ski rental: waiting longer may
//! lose more than the switch, and so may switching earlier). The leader's own advantage counts up
//! to 2 hits a place (Page's CUSUM test), so that it does not live on what was right long ago.
//! After a change of the accesses, at most that many hits and the cost of the switch are lost
//! before the switch.
//!
//! **The opening.** Until a page is used again, only the order of arrival is known, and LRU leads.
//! If the accesses turn back, they use the latest pages next; to a loop all pages are the same. The
//! first candidate takes over when a page is used again before any has left, as nearly always. It
//! also takes over when the first page used again is one that LRU would not have (a loop); then all
//! shadows start again with the pages in the pool, so that these stay. A pool without LRU among its
//! candidates has no opening.
//!
//! An access costs the leader's own work and one access of each shadow for pages in the sample: the
//! work of four policies more in a pool of 1024 frames, of five for one access in a hundred in a
//! pool of 100,000. A comparison of two directories is O(1024), at most once every 32 accesses of
//! the sample. A switch is O(frames), at most once every half as many accesses as there are frames.
//! Metadata: 24 bytes a frame and 16 to 20 for the leader's directory, besides what the leader
//! itself needs. The shadows have at most 0.7 MB together.
//!
//! # Invariants
//! 1. A known frame is a stranger, or its page is in the leader's directory at the place that it is
//!    bound to.
//! 2. A place of the leader's directory is bound to the frame that has its page, or to none.
//! 3. In the opening LRU leads.
//!
//! # Source
//! Waldspurger, Park, Garthwaite, Ahmad: Efficient MRC construction with SHARDS, FAST 2015 (the
//! sampling); Waldspurger, Saemundsson, Ahmad, Park: Cache modeling and optimization using
//! miniature simulations, USENIX ATC 2017 (the shadows); Subramanian, Smaragdakis, Loh: Adaptive
//! caches, MICRO 2006 (following a directory, and its bound).

use super::list::{ListId, Lists};
use super::shadow::Shadow;
use super::{Policy, PolicyKind, Probe, ensure, offer};
use clearway_types::{FrameId, PageId};

/// Least recently become one in front.
const STRANGERS: ListId = ListId(0);
const NONE: u32 = u32::MAX;
/// Fewer hits are chance, whatever a switch costs.
const LEAST_LEAD: i64 = 8;
/// And so are fewer than one for so many places: directories that are nearly the same now grow
/// apart, and the way back costs what they differ by then.
const PLACES_PER_LEAST_LEAD: u32 = 12;
/// With such a lead a switch may come, and what it would cost is followed.
const WORTH_ASKING: i64 = 4;
const NO_PAGE: PageId = PageId::from_u64(u64::MAX);

/// Who may lead, and how closely it is looked.
#[derive(Clone, Debug)]
pub struct ArbiterParameters {
    /// The candidates; the first leads after the opening.
    pub candidates: Vec<PolicyKind>,
    /// The most places that a shadow has.
    pub places: u32,
}

impl Default for ArbiterParameters {
    fn default() -> Self {
        let candidates = [
            PolicyKind::Lirs,
            PolicyKind::WTinyLfu,
            PolicyKind::S3Fifo,
            PolicyKind::Lru,
            PolicyKind::Mq,
        ];
        Self { candidates: candidates.into(), places: 1024 }
    }
}

struct Candidate {
    kind: PolicyKind,
    shadow: Shadow,
    /// How many more hits it had than the leader; what speaks for the leader counts up to two hits
    /// a place.
    lead: i64,
}

/// How far the opening is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opening {
    /// No page has been used again, and none has left.
    Filling,
    /// No page has been used again, and some have left.
    Passing,
    Over,
}

/// The arbiter.
pub struct Arbiter {
    candidates: Vec<Candidate>,
    leader: usize,
    opening: Opening,
    /// The leader's directory, where the shadows are samples.
    full: Option<Shadow>,
    places: u32,
    /// Hashes below this are in the sample.
    sample: u64,
    /// So many accesses of the sample until the next comparison.
    patience: u32,
    switches: u64,
    /// Of each frame.
    pages: Vec<PageId>,
    place_of: Vec<u32>,
    strangers: Lists,
    /// Of each place of the leader's directory.
    frame_of: Vec<u32>,
}

impl Arbiter {
    /// A policy for frames `0 .. frames`.
    pub fn new(frames: u32) -> Self {
        Self::with(frames, ArbiterParameters::default())
    }

    /// The same with these parameters.
    ///
    /// # Panics
    /// If there is no candidate, or if one is an arbiter.
    pub fn with(frames: u32, parameters: ArbiterParameters) -> Self {
        let ArbiterParameters { candidates, places } = parameters;
        assert!(!candidates.is_empty() && !candidates.contains(&PolicyKind::Arbiter));
        let places = places.clamp(1, frames.max(1));
        let sample = (u128::from(places) << 64) / u128::from(frames.max(1));
        let candidate = |kind: &PolicyKind| Candidate {
            kind: *kind,
            shadow: Shadow::new(*kind, places),
            lead: 0,
        };
        let lru = candidates.iter().position(|kind| *kind == PolicyKind::Lru);
        let leader = lru.unwrap_or(0);
        Self {
            full: (places < frames).then(|| Shadow::new(candidates[leader], frames)),
            candidates: candidates.iter().map(candidate).collect(),
            leader,
            opening: if lru.is_some() { Opening::Filling } else { Opening::Over },
            places,
            sample: u64::try_from(sample).unwrap_or(u64::MAX),
            patience: 0,
            switches: 0,
            pages: vec![NO_PAGE; frames as usize],
            place_of: vec![NONE; frames as usize],
            strangers: Lists::new(frames, 1),
            frame_of: vec![NONE; frames.max(1) as usize],
        }
    }

    /// Who leads.
    pub fn leader(&self) -> PolicyKind {
        self.candidates[self.leader].kind
    }

    /// How often the leader has changed.
    pub fn switches(&self) -> u64 {
        self.switches
    }

    fn directory(&mut self) -> &mut Shadow {
        self.full.as_mut().unwrap_or(&mut self.candidates[self.leader].shadow)
    }

    fn bind(&mut self, frame: u32, place: u32) {
        self.place_of[frame as usize] = place;
        self.frame_of[place as usize] = frame;
    }

    /// The frame is no longer known.
    fn forget(&mut self, frame: u32) {
        if self.opening == Opening::Filling {
            self.opening = Opening::Passing;
        }
        self.pages[frame as usize] = NO_PAGE;
        self.strangers.remove(frame);
        let place = std::mem::replace(&mut self.place_of[frame as usize], NONE);
        if place != NONE {
            self.frame_of[place as usize] = NONE;
        }
    }

    /// Tells the leader of a use of the page in `frame`; whether it would have had it.
    fn lead(&mut self, frame: u32) -> bool {
        let place = self.place_of[frame as usize];
        if place != NONE {
            self.directory().hit(place);
            return true;
        }
        self.strangers.remove(frame);
        let page = self.pages[frame as usize];
        let found = self.directory().find(page);
        match found {
            Some(place) => {
                self.directory().hit(place);
                self.bind(frame, place);
            }
            None => {
                let (place, left) = self.directory().miss(page);
                let stranger = self.frame_of[place as usize];
                if left && stranger != NONE {
                    self.place_of[stranger as usize] = NONE;
                    self.strangers.push_back(STRANGERS, stranger);
                }
                self.bind(frame, place);
            }
        }
        found.is_some()
    }

    fn is_in_sample(&self, page: PageId) -> bool {
        self.full.is_none() || hash(page) < self.sample
    }

    /// Tells all of a use of the page in `frame`.
    fn used(&mut self, frame: u32) {
        let (page, led) = (self.pages[frame as usize], self.lead(frame));
        let sampled = self.is_in_sample(page);
        let watched = sampled && self.watch(page, led);
        if self.opening != Opening::Over {
            if led || watched {
                self.end_opening(led);
            }
        } else if sampled {
            match self.patience.checked_sub(1) {
                Some(left) => self.patience = left,
                None => self.judge(),
            }
        }
    }

    /// Tells the shadows of a use of the page, which the leader's directory had or not; whether any
    /// had it.
    fn watch(&mut self, page: PageId, led: bool) -> bool {
        let leader = &mut self.candidates[self.leader].shadow;
        let leader_hit = if self.full.is_some() { leader.access(page) } else { led };
        let mut had = leader_hit;
        for (number, candidate) in self.candidates.iter_mut().enumerate() {
            if number != self.leader {
                let hit = candidate.shadow.access(page);
                had |= hit;
                let gain = i64::from(hit) - i64::from(leader_hit);
                candidate.lead = (candidate.lead + gain).max(-2 * i64::from(self.places));
            }
        }
        had
    }

    /// A page is used again, for the first time; LRU, which leads, had it or not.
    fn end_opening(&mut self, led: bool) {
        let passing = std::mem::replace(&mut self.opening, Opening::Over) == Opening::Passing;
        if !passing || !led {
            self.switch(0, passing);
        }
    }

    /// Has the best candidate take over, or finds out when to ask again: each access changes the
    /// lead by one at most, the number of pages that only the best has by two, and by what its
    /// cohort shows the cost by as many again.
    fn judge(&mut self) {
        let lead = |number: &usize| self.candidates[*number].lead;
        let best = (0..self.candidates.len()).max_by_key(lead).unwrap_or(self.leader);
        let lead = self.candidates[best].lead;
        if lead < WORTH_ASKING {
            self.patience = (WORTH_ASKING - lead) as u32;
            return;
        }
        let [leader, next] =
            self.candidates.get_disjoint_mut([self.leader, best]).expect("the leader has no lead");
        let cost = next.shadow.cost_after(&leader.shadow).max(self.places / PLACES_PER_LEAST_LEAD);
        let cost = LEAST_LEAD.max(i64::from(cost));
        if lead >= cost {
            self.switch(best, false);
        } else {
            self.patience = (((cost - lead) / 5) as u32).max(self.places / 32);
        }
    }

    /// The pages in the pool in the order in which they would leave; the leader's directory has
    /// none then.
    fn drain(&mut self) -> Vec<PageId> {
        let mut pages: Vec<_> =
            self.strangers.iter(STRANGERS).map(|frame| self.pages[frame as usize]).collect();
        while let Some(place) = self.directory().evict(None, &mut |_| Probe::Take) {
            let frame = self.frame_of[place as usize];
            if frame != NONE {
                pages.push(self.pages[frame as usize]);
            }
        }
        pages
    }

    /// Another leads. If the shadows are made anew, all of them go on with the pages in the pool.
    fn switch(&mut self, to: usize, anew: bool) {
        let pages = if anew || self.full.is_some() { self.drain() } else { Vec::new() };
        if anew {
            let sampled: Vec<_> =
                pages.iter().copied().filter(|page| self.is_in_sample(*page)).collect();
            for candidate in &mut self.candidates {
                candidate.shadow = filled(candidate.kind, self.places, &sampled);
            }
        }
        if let Some(full) = &mut self.full {
            *full = filled(self.candidates[to].kind, self.pages.len() as u32, &pages);
        }
        self.switches += 1;
        self.leader = to;
        self.patience = self.places / 2;
        for candidate in &mut self.candidates {
            candidate.lead = 0;
            candidate.shadow.forget_cohort();
        }
        self.place_of.fill(NONE);
        self.frame_of.fill(NONE);
        for frame in 0..self.pages.len() as u32 {
            self.strangers.remove(frame);
            let page = self.pages[frame as usize];
            if page == NO_PAGE {
                continue;
            }
            match self.directory().find(page) {
                Some(place) => self.bind(frame, place),
                None => self.strangers.push_back(STRANGERS, frame),
            }
        }
    }
}

impl Policy for Arbiter {
    fn hit(&mut self, frame: FrameId) {
        if self.pages[frame.0 as usize] != NO_PAGE {
            self.used(frame.0);
        }
    }

    fn miss(&mut self, frame: FrameId, page: PageId) {
        self.pages[frame.0 as usize] = page;
        self.used(frame.0);
    }

    /// Strangers first. Pages that the leader would evict, and that are in no frame, it evicts at
    /// once.
    fn evict(
        &mut self,
        incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        let stranger = offer(self.strangers.iter(STRANGERS), probe).break_value();
        if let Some(found) = stranger {
            self.forget(found?.0);
            return found;
        }
        loop {
            let frame_of = std::mem::take(&mut self.frame_of);
            let place =
                self.directory().evict(incoming, &mut |place| match frame_of[place as usize] {
                    NONE => Probe::Take,
                    frame => probe(FrameId(frame)),
                });
            self.frame_of = frame_of;
            let frame = self.frame_of[place? as usize];
            if frame != NONE {
                self.forget(frame);
                return Some(FrameId(frame));
            }
        }
    }

    fn remove(&mut self, frame: FrameId) {
        if self.pages[frame.0 as usize] == NO_PAGE {
            return;
        }
        let place = self.place_of[frame.0 as usize];
        if place != NONE {
            self.directory().remove(place);
        }
        self.forget(frame.0);
    }

    fn validate(&self) -> Result<(), String> {
        self.strangers.validate()?;
        let opening = self.opening != Opening::Over;
        ensure(!opening || self.leader() == PolicyKind::Lru, || {
            format!("{} leads in the opening", self.leader())
        })?;
        let shadows = self.candidates.iter().map(|candidate| &candidate.shadow).chain(&self.full);
        shadows.into_iter().try_for_each(Shadow::validate)?;
        let directory = self.full.as_ref().unwrap_or(&self.candidates[self.leader].shadow);
        for (frame, page) in self.pages.iter().enumerate() {
            let (place, stranger) = (self.place_of[frame], self.strangers.is_linked(frame as u32));
            let bound = place != NONE && directory.page(place) == Some(*page);
            let right =
                if *page == NO_PAGE { !stranger && place == NONE } else { stranger != bound };
            ensure(right, || {
                format!("frame {frame} with {page:?} is bound to {place}, a stranger: {stranger}")
            })?;
        }
        for (place, frame) in self.frame_of.iter().enumerate() {
            let right = *frame == NONE || self.place_of[*frame as usize] == place as u32;
            ensure(right, || {
                format!("place {place} is bound to frame {frame}, which is not to it")
            })?;
        }
        Ok(())
    }
}

/// A shadow that has seen these pages.
fn filled(kind: PolicyKind, places: u32, pages: &[PageId]) -> Shadow {
    let mut shadow = Shadow::new(kind, places);
    pages.iter().for_each(|page| _ = shadow.access(*page));
    shadow
}

/// Which pages are in the sample (the finaliser of MurmurHash3): apart from the hash by which
/// directories are looked up.
fn hash(page: PageId) -> u64 {
    let mixed = (page.to_u64() ^ (page.to_u64() >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ (mixed >> 33)
}
