//! Runs several policies side by side. One of them, the leader, chooses the victims: the one that
//! would have had the most hits recently.
//!
//! Every candidate has a shadow ([`Shadow`]): the directory of a cache of its own, which counts the
//! hits that the candidate would have had. In a pool of up to 1024 frames, a shadow is as large as
//! the pool and sees every access. In a larger pool it has 1024 places and sees a sample of the
//! pages, selected by hash in the same proportion (miniature simulation). The source shows that
//! this gives nearly the same hit ratios.
//!
//! **Following.** The pool's pages follow the leader's directory. A frame whose page is not in that
//! directory (a *stranger*) is evicted first. Without strangers, the leader chooses among its own
//! pages. So a switch of leaders evicts and reads no page by itself: pages that the new leader
//! would have are read when they are used, and pages that it would not have are evicted when a
//! frame is needed. Once the last stranger has been evicted, the pool misses exactly what the
//! leader alone would have missed. If the shadows are as large as the pool, the leader's directory
//! is its shadow. If they are samples, a new leader's directory is built from the pages in the
//! pool, in the order in which the previous leader would have evicted them.
//!
//! **Taking over.** A switch costs misses: one for each page that the new leader has and the old
//! one does not, and that is used while the new leader still has it. The arbiter estimates their
//! number from the pages of an earlier moment ([`Shadow::cost_after`]). The best candidate takes
//! over once its lead in hits reaches that number, at least 8, and at least one hit for every 12
//! places. This is ski rental: waiting longer may lose more than the switch costs, and so may
//! switching earlier. The leader's own advantage counts up to 2 hits per place (Page's CUSUM test),
//! so that an old advantage does not delay a switch. After a change of the access pattern, the
//! losses before the switch are at most that many hits plus the cost of the switch.
//!
//! **Warm-up.** Until a page is used again, only the order of arrival is known, and LRU leads. If
//! the access pattern reverses direction, it uses the latest pages next; for a loop, all pages are
//! equivalent. The first candidate takes over if a page is used again before any has been evicted,
//! which is the usual case. It also takes over if the first reused page is one that LRU would have
//! evicted (a loop). In that case all shadows restart with the pages in the pool, so that these
//! pages stay. Otherwise LRU keeps the lead. An arbiter without LRU among its candidates has no
//! warm-up.
//!
//! An access costs the leader's own work plus one access of each shadow for sampled pages. In a
//! pool of 1024 frames, this is the work of four additional policies; in a pool of 100,000 frames,
//! the work of five for one access in a hundred. A comparison of two directories is O(1024), at
//! most once every 32 sampled accesses. A switch is O(frames), at most once every `frames / 2`
//! accesses. Metadata: 24 bytes per frame and 16 to 20 for the leader's directory, in addition to
//! what the leader itself needs. The shadows take at most 0.7 MB together.
//!
//! # Invariants
//! 1. A known frame is a stranger, or its page is in the leader's directory at the place that the
//!    frame is bound to.
//! 2. A place of the leader's directory is bound to the frame that holds its page, or to no frame.
//! 3. During warm-up, LRU leads.
//!
//! # Source
//! Waldspurger, Park, Garthwaite, Ahmad: Efficient MRC construction with SHARDS, FAST 2015 (the
//! sampling); Waldspurger, Saemundsson, Ahmad, Park: Cache modeling and optimization using
//! miniature simulations, USENIX ATC 2017 (the shadows); Subramanian, Smaragdakis, Loh: Adaptive
//! caches, MICRO 2006 (following a directory, and its bound).

use super::list::{ListId, Lists};
use super::shadow::Shadow;
use super::{Policy, PolicyKind, Probe, ensure, propose};
use clearway_types::hash::murmur_mix;
use clearway_types::{FrameId, PageId};

/// The list of strangers; the frame that became one first is at the front.
const STRANGERS: ListId = ListId(0);
const NONE: u32 = u32::MAX;
/// A smaller lead is noise, whatever a switch costs.
const MIN_LEAD: i64 = 8;
/// A lead below one hit for this many places is noise, too. Directories that are nearly equal now
/// diverge later, and switching back then costs the difference.
const PLACES_PER_MIN_LEAD: u32 = 12;
/// From this lead on, the arbiter estimates the cost of a switch.
const MIN_LEAD_TO_EVALUATE: i64 = 4;
const NO_PAGE: PageId = PageId::from_u64(u64::MAX);

/// The candidates, and the size of their shadows.
#[derive(Clone, Debug)]
pub struct ArbiterParameters {
    /// The candidates. The first one leads after the warm-up, unless LRU keeps the lead.
    pub candidates: Vec<PolicyKind>,
    /// The maximum number of places of a shadow.
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
    /// How many more hits it had than the leader, at least -2 per place.
    lead: i64,
}

/// The progress of the warm-up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WarmUp {
    /// No page has been used again, and none has been evicted.
    Filling,
    /// No page has been used again, and some have been evicted.
    Evicting,
    Done,
}

/// Chooses victims by the policy that would have had the most hits recently.
pub struct Arbiter {
    candidates: Vec<Candidate>,
    leader: usize,
    warm_up: WarmUp,
    /// The leader's directory, if the shadows are samples.
    full: Option<Shadow>,
    places: u32,
    /// Pages whose hash is below this are in the sample.
    sample: u64,
    /// Sampled accesses until the next comparison.
    countdown: u32,
    switches: u64,
    /// Indexed by frame.
    pages: Vec<PageId>,
    place_of: Vec<u32>,
    strangers: Lists,
    /// Indexed by place of the leader's directory.
    frame_of: Vec<u32>,
}

impl Arbiter {
    /// Creates a policy for frames `0 .. frames`.
    pub fn new(frames: u32) -> Self {
        Self::with(frames, ArbiterParameters::default())
    }

    /// Creates a policy with the given parameters.
    ///
    /// # Panics
    /// If there is no candidate, or if a candidate is an arbiter.
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
            warm_up: if lru.is_some() { WarmUp::Filling } else { WarmUp::Done },
            places,
            sample: u64::try_from(sample).unwrap_or(u64::MAX),
            countdown: 0,
            switches: 0,
            pages: vec![NO_PAGE; frames as usize],
            place_of: vec![NONE; frames as usize],
            strangers: Lists::new(frames, 1),
            frame_of: vec![NONE; frames.max(1) as usize],
        }
    }

    /// Returns the leader.
    pub fn leader(&self) -> PolicyKind {
        self.candidates[self.leader].kind
    }

    /// Returns how often the leader has changed.
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

    /// Forgets the frame.
    fn forget(&mut self, frame: u32) {
        if self.warm_up == WarmUp::Filling {
            self.warm_up = WarmUp::Evicting;
        }
        self.pages[frame as usize] = NO_PAGE;
        self.strangers.remove(frame);
        let place = std::mem::replace(&mut self.place_of[frame as usize], NONE);
        if place != NONE {
            self.frame_of[place as usize] = NONE;
        }
    }

    /// Notifies the leader of a use of the page in `frame`. Returns whether its directory had the
    /// page.
    fn notify_leader(&mut self, frame: u32) -> bool {
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

    /// Notifies all policies of a use of the page in `frame`.
    fn used(&mut self, frame: u32) {
        let (page, led) = (self.pages[frame as usize], self.notify_leader(frame));
        let sampled = self.is_in_sample(page);
        let shadow_hit = sampled && self.notify_shadows(page, led);
        if self.warm_up != WarmUp::Done {
            if led || shadow_hit {
                self.end_warm_up(led);
            }
        } else if sampled {
            match self.countdown.checked_sub(1) {
                Some(left) => self.countdown = left,
                None => self.evaluate(),
            }
        }
    }

    /// Notifies the shadows of a use of the page. `led` says whether the leader's directory had it.
    /// Returns whether any shadow had it.
    fn notify_shadows(&mut self, page: PageId, led: bool) -> bool {
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

    /// Ends the warm-up: a page was used again for the first time. `led` says whether LRU, the
    /// leader, had it.
    fn end_warm_up(&mut self, led: bool) {
        let evicting = std::mem::replace(&mut self.warm_up, WarmUp::Done) == WarmUp::Evicting;
        if !evicting || !led {
            self.switch(0, evicting);
        }
    }

    /// Makes the best candidate the leader, or computes when to compare again. Each access changes
    /// the lead by at most one and the number of pages that only the best candidate has by at most
    /// two. By its cohort, the estimated cost changes by at most two more.
    fn evaluate(&mut self) {
        let lead = |number: &usize| self.candidates[*number].lead;
        let best = (0..self.candidates.len()).max_by_key(lead).unwrap_or(self.leader);
        let lead = self.candidates[best].lead;
        if lead < MIN_LEAD_TO_EVALUATE {
            self.countdown = (MIN_LEAD_TO_EVALUATE - lead) as u32;
            return;
        }
        let [leader, next] =
            self.candidates.get_disjoint_mut([self.leader, best]).expect("the leader has no lead");
        let cost = next.shadow.cost_after(&leader.shadow).max(self.places / PLACES_PER_MIN_LEAD);
        let cost = MIN_LEAD.max(i64::from(cost));
        if lead >= cost {
            self.switch(best, false);
        } else {
            self.countdown = (((cost - lead) / 5) as u32).max(self.places / 32);
        }
    }

    /// Returns the pages in the pool in eviction order, and empties the leader's directory.
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

    /// Makes candidate `to` the leader. With `restart`, all shadows restart with the pages in the
    /// pool.
    fn switch(&mut self, to: usize, restart: bool) {
        let pages = if restart || self.full.is_some() { self.drain() } else { Vec::new() };
        if restart {
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
        self.countdown = self.places / 2;
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

    /// Proposes strangers first. If the leader would evict a page that is in no frame, the page is
    /// evicted from its directory at once.
    fn evict(
        &mut self,
        incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        let stranger = propose(self.strangers.iter(STRANGERS), probe).break_value();
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
        let warm_up = self.warm_up != WarmUp::Done;
        ensure(!warm_up || self.leader() == PolicyKind::Lru, || {
            format!("{} leads during warm-up", self.leader())
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
                format!("frame {frame} with {page:?} is bound to {place}, stranger: {stranger}")
            })?;
        }
        for (place, frame) in self.frame_of.iter().enumerate() {
            let right = *frame == NONE || self.place_of[*frame as usize] == place as u32;
            ensure(right, || {
                format!("place {place} is bound to frame {frame}, but not the reverse")
            })?;
        }
        Ok(())
    }
}

/// Creates a shadow that has seen these pages.
fn filled(kind: PolicyKind, places: u32, pages: &[PageId]) -> Shadow {
    let mut shadow = Shadow::new(kind, places);
    pages.iter().for_each(|page| _ = shadow.access(*page));
    shadow
}

/// Selects the pages in the sample. Independent of the hash of directory look-ups.
fn hash(page: PageId) -> u64 {
    murmur_mix(page.to_u64())
}
