//! LIRS from its paper: the stack S and the queue Q of pages, and the status of each page.

use clearway_replacement::{Policy, Probe};
use clearway_types::{FrameId, PageId};
use std::collections::{HashMap, VecDeque};

#[derive(Clone, Copy, PartialEq)]
enum Status {
    Lir,
    ResidentHir,
    GoneHir,
}
const GHOSTS: usize = 5;

use Status::{GoneHir, Lir, ResidentHir};

pub struct Model {
    /// The top is at the back.
    s: VecDeque<PageId>,
    /// The next victim is at the front.
    q: VecDeque<PageId>,
    /// Evicted pages that are in S, in the order of their eviction.
    gone: VecDeque<PageId>,
    status: HashMap<PageId, Status>,
    frame_of: HashMap<PageId, FrameId>,
    page_of: HashMap<FrameId, PageId>,
    max_lir: usize,
    max_gone: usize,
    filled: bool,
}

impl Model {
    pub fn new(frames: u32) -> Self {
        let hir = usize::max(frames as usize / 100, 2).min(frames as usize / 2);
        Self {
            s: VecDeque::new(),
            q: VecDeque::new(),
            gone: VecDeque::new(),
            status: HashMap::new(),
            frame_of: HashMap::new(),
            page_of: HashMap::new(),
            max_lir: frames as usize - hir,
            max_gone: frames as usize * GHOSTS,
            filled: false,
        }
    }

    fn count_lir(&self) -> usize {
        self.status.values().filter(|status| **status == Lir).count()
    }

    /// "Stack pruning": removes HIR pages from the bottom of S, and forgets those that are not
    /// resident.
    fn prune(&mut self) {
        while self.count_lir() > 0 && self.status[&self.s[0]] != Lir {
            let bottom = self.s.pop_front().unwrap();
            if self.status[&bottom] == GoneHir {
                self.forget(bottom);
            }
        }
    }

    fn forget(&mut self, page: PageId) {
        self.status.remove(&page);
        self.s.retain(|held| *held != page);
        self.gone.retain(|held| *held != page);
    }

    fn become_lir(&mut self, page: PageId) {
        self.status.insert(page, Lir);
        if self.count_lir() > self.max_lir {
            let bottom = self.s.pop_front().unwrap();
            self.status.insert(bottom, ResidentHir);
            self.q.push_back(bottom);
        }
        self.prune();
    }

    fn put_on_top(&mut self, page: PageId) {
        self.s.retain(|held| *held != page);
        self.s.push_back(page);
    }

    fn leave(&mut self, page: PageId, incoming: Option<PageId>) {
        self.filled = true;
        let frame = self.frame_of.remove(&page).unwrap();
        self.page_of.remove(&frame);
        self.q.retain(|held| *held != page);
        if self.status[&page] == Lir || !self.s.contains(&page) {
            self.forget(page);
            return self.prune();
        }
        let awaited = incoming.filter(|page| self.gone.contains(page));
        self.status.insert(page, GoneHir);
        self.gone.push_back(page);
        while self.gone.iter().filter(|page| Some(**page) != awaited).count() > self.max_gone {
            let oldest = *self.gone.iter().find(|page| Some(**page) != awaited).unwrap();
            self.forget(oldest);
        }
    }
}

impl Policy for Model {
    fn hit(&mut self, frame: FrameId) {
        let Some(page) = self.page_of.get(&frame).copied() else {
            return;
        };
        if self.s.back() == Some(&page) {
            return;
        }
        let in_s = self.s.contains(&page);
        self.put_on_top(page);
        if self.status[&page] == Lir {
            return self.prune();
        }
        self.q.retain(|held| *held != page);
        if in_s {
            self.become_lir(page);
        } else {
            self.q.push_back(page);
        }
    }

    fn miss(&mut self, frame: FrameId, page: PageId) {
        self.frame_of.insert(page, frame);
        self.page_of.insert(frame, page);
        let remembered = self.gone.contains(&page);
        self.gone.retain(|held| *held != page);
        self.put_on_top(page);
        if remembered || !self.filled && self.count_lir() < self.max_lir {
            self.become_lir(page);
        } else {
            self.status.insert(page, ResidentHir);
            self.q.push_back(page);
        }
    }

    fn evict(
        &mut self,
        incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        let lir = self.s.iter().filter(|page| self.status[*page] == Lir);
        for page in self.q.iter().chain(lir).copied().collect::<Vec<_>>() {
            let frame = self.frame_of[&page];
            match probe(frame) {
                Probe::Take => {
                    self.leave(page, incoming);
                    return Some(frame);
                }
                Probe::Skip => {}
                Probe::Stop => return None,
            }
        }
        None
    }

    fn remove(&mut self, frame: FrameId) {
        match self.page_of.get(&frame).copied() {
            Some(page) => self.leave(page, None),
            None => self.filled = true,
        }
    }

    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}
