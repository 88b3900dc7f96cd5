//! CLOCK-Pro: the clock as a queue that contains two of the hands, each before the page that it
//! examines next. `HAND_hot` is at the front.

use clearway_replacement::{Policy, Probe};
use clearway_types::{FrameId, PageId};
use std::collections::VecDeque;

#[derive(Clone, Copy)]
struct Entry {
    page: PageId,
    /// `None`: the page was evicted.
    frame: Option<FrameId>,
    hot: bool,
    in_test: bool,
    referenced: bool,
}

#[derive(Clone, Copy)]
enum Item {
    Page(Entry),
    HandCold,
    HandTest,
}
use Item::{HandCold, HandTest, Page};

pub struct Model {
    clock: VecDeque<Item>,
    frames: usize,
    min_cold: usize,
    cold_target: usize,
    started: bool,
}

impl Model {
    pub fn new(frames: u32) -> Self {
        let (frames, min_cold) = (frames as usize, usize::max(frames as usize / 100, 1));
        Self {
            clock: VecDeque::from([HandCold, HandTest]),
            frames,
            min_cold,
            cold_target: min_cold,
            started: false,
        }
    }

    fn count(&self, which: impl Fn(&Entry) -> bool) -> usize {
        self.clock.iter().filter(|item| matches!(item, Page(entry) if which(entry))).count()
    }

    fn hot(&self) -> usize {
        self.count(|entry| entry.hot)
    }

    fn cold(&self) -> usize {
        self.count(|entry| !entry.hot && entry.frame.is_some())
    }

    fn ghosts(&self) -> usize {
        self.count(|entry| entry.frame.is_none())
    }

    fn position(&self, which: impl Fn(&Entry) -> bool) -> Option<usize> {
        self.clock.iter().position(|item| matches!(item, Page(entry) if which(entry)))
    }

    fn entry(&mut self, at: usize) -> &mut Entry {
        match &mut self.clock[at] {
            Page(entry) => entry,
            _ => panic!("a hand is at {at}"),
        }
    }

    fn take_out(&mut self, at: usize) -> Entry {
        let Some(Page(entry)) = self.clock.remove(at) else { panic!("a hand is at {at}") };
        self.wrap_hands();
        entry
    }

    /// Moves a hand that is behind all pages to the front.
    fn wrap_hands(&mut self) {
        if self.clock.iter().any(|item| matches!(item, Page(_))) {
            while !matches!(self.clock.back(), Some(Page(_))) {
                self.clock.rotate_right(1);
            }
        }
    }

    fn insert_at_list_head(&mut self, entry: Entry) {
        self.wrap_hands();
        self.clock.push_back(Page(entry));
        self.wrap_hands();
    }

    /// Moves the hand past the next page and returns that page.
    fn move_hand(&mut self, is_hand: fn(&Item) -> bool) -> Entry {
        let at = self.clock.iter().position(is_hand).unwrap();
        let hand = self.clock.remove(at).unwrap();
        let next = (at..self.clock.len()).find(|at| matches!(self.clock[*at], Page(_))).unwrap();
        self.clock.insert(next + 1, hand);
        let passed = *self.entry(next);
        self.wrap_hands();
        passed
    }

    fn end_test(&mut self, page: PageId) {
        let at = self.position(|entry| entry.page == page).unwrap();
        let entry = *self.entry(at);
        if !entry.in_test {
            return;
        }
        if !entry.referenced {
            self.cold_target = usize::max(self.cold_target - 1, self.min_cold);
        }
        self.entry(at).in_test = false;
        if entry.frame.is_none() {
            self.take_out(at);
        }
    }

    fn run_hand_hot(&mut self) {
        let mut demoted = false;
        loop {
            let at = self.position(|_| true).unwrap();
            let front = *self.entry(at);
            if demoted && (front.hot || self.hot() == 0) {
                return;
            }
            if front.hot {
                demoted |= !front.referenced;
                self.entry(at).hot = front.referenced;
                self.entry(at).referenced = false;
            } else {
                self.end_test(front.page);
                if front.frame.is_none() && front.in_test {
                    continue;
                }
            }
            // Passes the page; hands that are at it move with it.
            self.clock.rotate_left(at + 1);
        }
    }

    fn become_hot(&mut self, entry: Entry) {
        self.cold_target = usize::min(self.cold_target + 1, self.frames);
        self.insert_at_list_head(Entry { hot: true, in_test: false, referenced: false, ..entry });
        while self.hot() > self.frames - self.cold_target {
            self.run_hand_hot();
        }
    }
}

impl Policy for Model {
    fn hit(&mut self, frame: FrameId) {
        if let Some(at) = self.position(|entry| entry.frame == Some(frame)) {
            self.entry(at).referenced = true;
        }
    }

    fn miss(&mut self, frame: FrameId, page: PageId) {
        let new = Entry { page, frame: Some(frame), hot: false, in_test: true, referenced: false };
        if let Some(at) = self.position(|entry| entry.page == page) {
            self.take_out(at);
            self.become_hot(new);
        } else if !self.started && self.hot() < self.frames - self.cold_target {
            self.insert_at_list_head(Entry { hot: true, in_test: false, ..new });
        } else {
            self.insert_at_list_head(new);
        }
    }

    fn evict(
        &mut self,
        _incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        self.position(|_| true)?;
        let mut skipped = 0;
        loop {
            if self.cold() == 0 && self.hot() > 0 && skipped == 0 {
                self.run_hand_hot();
            }
            if skipped >= self.cold() {
                break;
            }
            let looked_at = self.move_hand(|item| matches!(item, HandCold));
            let Some(frame) = looked_at.frame.filter(|_| !looked_at.hot) else {
                continue;
            };
            if looked_at.referenced {
                skipped = 0;
                let at = self.position(|entry| entry.page == looked_at.page).unwrap();
                let entry = self.take_out(at);
                match entry.in_test {
                    true => self.become_hot(entry),
                    false => self.insert_at_list_head(Entry {
                        in_test: true,
                        referenced: false,
                        ..entry
                    }),
                }
                continue;
            }
            match probe(frame) {
                Probe::Take => {
                    self.remove(frame);
                    return Some(frame);
                }
                Probe::Skip => skipped += 1,
                Probe::Stop => return None,
            }
        }
        let pages = self
            .clock
            .iter()
            .filter_map(|item| if let Page(entry) = item { Some(*entry) } else { None });
        for entry in pages.filter(|entry| entry.hot).collect::<Vec<_>>() {
            match probe(entry.frame.unwrap()) {
                Probe::Take => {
                    self.remove(entry.frame.unwrap());
                    return entry.frame;
                }
                Probe::Skip => {}
                Probe::Stop => return None,
            }
        }
        None
    }

    fn remove(&mut self, frame: FrameId) {
        let of_frame = |entry: &Entry| entry.frame == Some(frame);
        let Some(at) = self.position(of_frame) else {
            return;
        };
        self.started = true;
        if self.entry(at).in_test && self.ghosts() == self.frames {
            while self.ghosts() == self.frames {
                let passed = self.move_hand(|item| matches!(item, HandTest));
                self.end_test(passed.page);
            }
        }
        let at = self.position(of_frame).unwrap();
        if self.entry(at).in_test {
            self.entry(at).frame = None;
            self.entry(at).referenced = false;
        } else {
            self.take_out(at);
        }
    }

    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}
