//! The arbiter over a pool as large as its shadows: caches of pages beside each other, and the leader's looked up page by page.

use clearway_buffer::{Policy, PolicyKind, Probe};
use clearway_types::{FrameId, PageId};

/// A cache: a policy's model, and the page at each place.
struct Shadow {
    policy: Box<dyn Policy>,
    pages: Vec<Option<PageId>>,
    lead: i64,
}

impl Shadow {
    fn find(&self, page: PageId) -> Option<FrameId> {
        self.pages.iter().position(|held| *held == Some(page)).map(|place| FrameId(place as u32))
    }

    /// Whether it was a hit, and the page that left for this one.
    fn access(&mut self, page: PageId) -> (bool, Option<PageId>) {
        if let Some(place) = self.find(page) {
            self.policy.hit(place);
            return (true, None);
        }
        let mut left = None;
        if self.pages.iter().all(Option::is_some) {
            let place = self.policy.evict(Some(page), &mut |_| Probe::Take).unwrap();
            left = self.pages[place.0 as usize].take();
        }
        let place = self.pages.iter().position(Option::is_none).unwrap();
        self.pages[place] = Some(page);
        self.policy.miss(FrameId(place as u32), page);
        (false, left)
    }
}

pub struct Model {
    frames: Vec<Option<PageId>>,
    shadows: Vec<Shadow>,
    leader: usize,
    strangers: Vec<FrameId>,
    wait: i64,
}

impl Model {
    pub fn new(frames: u32) -> Self {
        assert!(frames <= 1024);
        let kinds = [PolicyKind::WTinyLfu, PolicyKind::S3Fifo, PolicyKind::Lru, PolicyKind::Lirs, PolicyKind::Mq];
        let empty = || vec![None; frames as usize];
        let shadow = |kind| Shadow { policy: super::build(kind, frames), pages: empty(), lead: 0 };
        Self { frames: empty(), shadows: kinds.map(shadow).into(), leader: 0, strangers: vec![], wait: 0 }
    }

    fn frame_with(&self, page: PageId) -> Option<FrameId> {
        self.frames.iter().position(|held| *held == Some(page)).map(|frame| FrameId(frame as u32))
    }

    fn used(&mut self, frame: FrameId, page: PageId) {
        self.strangers.retain(|stranger| *stranger != frame);
        let results: Vec<_> = self.shadows.iter_mut().map(|shadow| shadow.access(page)).collect();
        let (leader_hit, left) = results[self.leader];
        self.strangers.extend(left.and_then(|page| self.frame_with(page)));
        for (shadow, (hit, _)) in self.shadows.iter_mut().zip(results) {
            match (hit, leader_hit) {
                (true, false) => shadow.lead += 1,
                (false, true) if shadow.lead > -2 * self.frames.len() as i64 => shadow.lead -= 1,
                _ => {}
            }
        }
        self.wait -= 1;
        if self.wait < 0 {
            self.judge();
        }
    }

    fn judge(&mut self) {
        let places = self.frames.len() as i64;
        let best = (0..self.shadows.len()).max_by_key(|number| self.shadows[*number].lead).unwrap();
        let (lead, least) = (self.shadows[best].lead, places / 512 + 1);
        if lead < least {
            self.wait = least - lead;
            return;
        }
        let lost = self.shadows[self.leader].pages.iter().flatten();
        let cost = lost.filter(|page| self.shadows[best].find(**page).is_none()).count() as i64;
        if lead < cost {
            self.wait = i64::max((cost - lead) / 3, places / 32);
            return;
        }
        self.leader = best;
        self.shadows.iter_mut().for_each(|shadow| shadow.lead = 0);
        self.wait = places / 2;
        let strange = |page: &PageId| self.shadows[best].find(*page).is_none();
        let held = self.frames.iter().enumerate().filter(|(_, page)| page.as_ref().is_some_and(strange));
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

    fn evict(&mut self, incoming: Option<PageId>, probe: &mut dyn FnMut(FrameId) -> Probe) -> Option<FrameId> {
        for frame in self.strangers.clone() {
            match probe(frame) {
                Probe::Take => {
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
            let place = shadow.policy.evict(incoming, &mut |place| frame_at(place).map_or(Probe::Take, &mut *probe))?;
            let taken = frame_at(place);
            shadow.pages[place.0 as usize] = None;
            if let Some(frame) = taken {
                self.frames[frame.0 as usize] = None;
                return Some(frame);
            }
        }
    }

    fn remove(&mut self, frame: FrameId) {
        self.strangers.retain(|stranger| *stranger != frame);
        let shadow = &mut self.shadows[self.leader];
        if let Some(place) = self.frames[frame.0 as usize].take().and_then(|page| shadow.find(page)) {
            shadow.policy.remove(place);
            shadow.pages[place.0 as usize] = None;
        }
    }

    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}
