//! Model of the arbiter in a pool as large as its shadows: one cache of pages per candidate, and
//! linear searches in the leader's cache.
//!
//! During warm-up no page has been used twice, so the pages in the pool, in order of use, are the
//! pages seen minus those evicted.

use clearway_replacement::{Policy, PolicyKind, Probe};
use clearway_types::{FrameId, PageId};

/// The index of LRU among the candidates.
const LRU: usize = 3;

/// A cache: a policy's model, and the page at each place.
struct Shadow {
    kind: PolicyKind,
    policy: Box<dyn Policy>,
    pages: Vec<Option<PageId>>,
    lead: i64,
    cohort: Vec<(PageId, Fate)>,
}

/// What happened to a page of the cohort.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Open,
    Used,
    Unused,
}

impl Shadow {
    fn new(kind: PolicyKind, places: u32) -> Self {
        Self {
            kind,
            policy: super::build(kind, places),
            pages: vec![None; places as usize],
            lead: 0,
            cohort: vec![],
        }
    }

    fn find(&self, page: PageId) -> Option<FrameId> {
        self.pages.iter().position(|held| *held == Some(page)).map(|place| FrameId(place as u32))
    }

    /// Returns whether the access was a hit, and the page that was evicted for it.
    fn access(&mut self, page: PageId) -> (bool, Option<PageId>) {
        if let Some(place) = self.find(page) {
            self.policy.hit(place);
            self.decide(Some(page), Fate::Used);
            return (true, None);
        }
        let mut evicted = None;
        if self.pages.iter().all(Option::is_some) {
            let place = self.policy.evict(Some(page), &mut |_| Probe::Take).unwrap();
            evicted = self.pages[place.0 as usize].take();
        }
        let place = self.pages.iter().position(Option::is_none).unwrap();
        self.pages[place] = Some(page);
        self.policy.miss(FrameId(place as u32), page);
        self.decide(evicted, Fate::Unused);
        (false, evicted)
    }

    fn decide(&mut self, page: Option<PageId>, fate: Fate) {
        let open = self
            .cohort
            .iter_mut()
            .filter(|(member, fate)| Some(*member) == page && *fate == Fate::Open);
        open.for_each(|member| member.1 = fate);
    }

    fn count(&self, fate: Fate) -> usize {
        self.cohort.iter().filter(|member| member.1 == fate).count()
    }
}

pub struct Model {
    frames: Vec<Option<PageId>>,
    shadows: Vec<Shadow>,
    leader: usize,
    strangers: Vec<FrameId>,
    wait: i64,
    /// The pages in the order in which they were seen; `None` after a page was seen again.
    warm_up: Option<Vec<PageId>>,
    evicted: bool,
}

impl Model {
    pub fn new(frames: u32) -> Self {
        assert!(frames <= 1024);
        let kinds = [
            PolicyKind::Lirs,
            PolicyKind::WTinyLfu,
            PolicyKind::S3Fifo,
            PolicyKind::Lru,
            PolicyKind::Mq,
        ];
        Self {
            frames: vec![None; frames as usize],
            shadows: kinds.map(|kind| Shadow::new(kind, frames)).into(),
            leader: LRU,
            strangers: vec![],
            wait: 0,
            warm_up: Some(vec![]),
            evicted: false,
        }
    }

    fn frame_with(&self, page: PageId) -> Option<FrameId> {
        self.frames.iter().position(|held| *held == Some(page)).map(|frame| FrameId(frame as u32))
    }

    fn used(&mut self, frame: FrameId, page: PageId) {
        self.strangers.retain(|stranger| *stranger != frame);
        let results: Vec<_> = self.shadows.iter_mut().map(|shadow| shadow.access(page)).collect();
        let (leader_hit, evicted) = results[self.leader];
        let any_hit = results.iter().any(|(hit, _)| *hit);
        self.strangers.extend(evicted.and_then(|page| self.frame_with(page)));
        for (shadow, (hit, _)) in self.shadows.iter_mut().zip(results) {
            match (hit, leader_hit) {
                (true, false) => shadow.lead += 1,
                (false, true) if shadow.lead > -2 * self.frames.len() as i64 => shadow.lead -= 1,
                _ => {}
            }
        }
        if let Some(seen) = &mut self.warm_up {
            seen.retain(|other| *other != page);
            seen.push(page);
            if any_hit {
                self.end_warm_up(leader_hit);
            }
            return;
        }
        self.wait -= 1;
        if self.wait < 0 {
            self.evaluate();
        }
    }

    fn end_warm_up(&mut self, lru_hit: bool) {
        let seen = self.warm_up.take().unwrap();
        if self.evicted && lru_hit {
            return;
        }
        if self.evicted {
            for shadow in &mut self.shadows {
                *shadow = Shadow::new(shadow.kind, self.frames.len() as u32);
                let held = seen.iter().filter(|page| self.frames.contains(&Some(**page)));
                held.for_each(|page| _ = shadow.access(*page));
            }
        }
        self.switch(0);
    }

    fn evaluate(&mut self) {
        let places = self.frames.len() as i64;
        let best = (0..self.shadows.len()).max_by_key(|number| self.shadows[*number].lead).unwrap();
        let lead = self.shadows[best].lead;
        if lead < 4 {
            self.wait = 4 - lead;
            return;
        }
        let its = self.shadows[best].pages.iter().flatten();
        let missing: Vec<_> =
            its.filter(|page| self.shadows[self.leader].find(**page).is_none()).copied().collect();
        let next = &mut self.shadows[best];
        let size = next.cohort.len();
        let may_be_used = size - next.count(Fate::Unused);
        let cost = (missing.len() * may_be_used).checked_div(size).unwrap_or(missing.len());
        if next.count(Fate::Open) == 0 || missing.len() > 2 * size {
            next.cohort = missing.into_iter().map(|page| (page, Fate::Open)).collect();
        }
        let cost = (cost as i64).max(places / 12).max(8);
        if lead < cost {
            self.wait = i64::max((cost - lead) / 5, places / 32);
            return;
        }
        self.switch(best);
    }

    fn switch(&mut self, to: usize) {
        self.leader = to;
        for shadow in &mut self.shadows {
            (shadow.lead, shadow.cohort) = (0, vec![]);
        }
        self.wait = self.frames.len() as i64 / 2;
        let strange = |page: &PageId| self.shadows[to].find(*page).is_none();
        let held =
            self.frames.iter().enumerate().filter(|(_, page)| page.as_ref().is_some_and(strange));
        self.strangers = held.map(|(frame, _)| FrameId(frame as u32)).collect();
    }
}

impl Policy for Model {
    fn hit(&mut self, frame: FrameId) {
        if let Some(page) = self.frames[frame.0 as usize] {
            self.used(frame, page);
        }
    }

    fn miss(&mut self, frame: FrameId, page: PageId) {
        self.frames[frame.0 as usize] = Some(page);
        self.used(frame, page);
    }

    fn evict(
        &mut self,
        incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        for frame in self.strangers.clone() {
            match probe(frame) {
                Probe::Take => {
                    self.evicted = true;
                    self.strangers.retain(|stranger| *stranger != frame);
                    self.frames[frame.0 as usize] = None;
                    return Some(frame);
                }
                Probe::Skip => {}
                Probe::Stop => return None,
            }
        }
        loop {
            let (frames, shadow) = (&self.frames, &mut self.shadows[self.leader]);
            let frame_at = |place: FrameId| {
                let page = shadow.pages[place.0 as usize];
                frames.iter().position(|held| *held == page).map(|frame| FrameId(frame as u32))
            };
            let place = shadow
                .policy
                .evict(incoming, &mut |place| frame_at(place).map_or(Probe::Take, &mut *probe))?;
            let taken = frame_at(place);
            shadow.pages[place.0 as usize] = None;
            if let Some(frame) = taken {
                self.evicted = true;
                self.frames[frame.0 as usize] = None;
                return Some(frame);
            }
        }
    }

    fn remove(&mut self, frame: FrameId) {
        self.strangers.retain(|stranger| *stranger != frame);
        self.evicted |= self.frames[frame.0 as usize].is_some();
        let shadow = &mut self.shadows[self.leader];
        if let Some(place) = self.frames[frame.0 as usize].take().and_then(|page| shadow.find(page))
        {
            shadow.policy.remove(place);
            shadow.pages[place.0 as usize] = None;
        }
    }

    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}
