//! S3-FIFO, algorithm 1 of its paper: three queues, oldest first.

use clearway_replacement::{Policy, Probe};
use clearway_types::{FrameId, PageId};

#[derive(Clone, Copy)]
struct Entry {
    frame: FrameId,
    page: PageId,
    freq: u32,
}

enum Found {
    Victim(FrameId),
    Stopped,
    Nothing,
}

pub struct Model {
    frames: usize,
    small_size: usize,
    small: Vec<Entry>,
    main: Vec<Entry>,
    ghost: Vec<PageId>,
}

impl Model {
    pub fn new(frames: u32) -> Self {
        let frames = frames as usize;
        Self {
            frames,
            small_size: (frames / 10).max(1),
            small: vec![],
            main: vec![],
            ghost: vec![],
        }
    }

    fn main_size(&self) -> usize {
        self.frames - self.small_size
    }

    fn evict_small(&mut self, probe: &mut dyn FnMut(FrameId) -> Probe) -> Found {
        let mut refused = 0;
        while refused < self.small.len() {
            let entry = self.small[refused];
            if entry.freq > 1 {
                self.small.remove(refused);
                self.main.push(Entry { freq: 0, ..entry });
                if self.main.len() > self.main_size() {
                    match self.evict_main(probe) {
                        Found::Nothing => {}
                        found => return found,
                    }
                }
                continue;
            }
            match probe(entry.frame) {
                Probe::Take => {
                    self.remove(entry.frame);
                    return Found::Victim(entry.frame);
                }
                Probe::Skip => refused += 1,
                Probe::Stop => return Found::Stopped,
            }
        }
        Found::Nothing
    }

    /// A refused page gets another round. After four rounds of refusals, every page has been
    /// refused at least once: a count is at most 3.
    fn evict_main(&mut self, probe: &mut dyn FnMut(FrameId) -> Probe) -> Found {
        let mut refused = 0;
        while refused < 4 * self.main.len() {
            let mut entry = self.main.remove(0);
            if entry.freq > 0 {
                entry.freq -= 1;
                self.main.push(entry);
                continue;
            }
            match probe(entry.frame) {
                Probe::Take => return Found::Victim(entry.frame),
                Probe::Skip => {
                    refused += 1;
                    self.main.push(entry);
                }
                Probe::Stop => {
                    self.main.insert(0, entry);
                    return Found::Stopped;
                }
            }
        }
        Found::Nothing
    }
}

impl Policy for Model {
    fn hit(&mut self, frame: FrameId) {
        for entry in
            self.small.iter_mut().chain(&mut self.main).filter(|entry| entry.frame == frame)
        {
            entry.freq = (entry.freq + 1).min(3);
        }
    }

    fn miss(&mut self, frame: FrameId, page: PageId) {
        let entry = Entry { frame, page, freq: 0 };
        if self.ghost.contains(&page) {
            self.ghost.retain(|ghost| *ghost != page);
            self.main.push(entry);
        } else {
            self.small.push(entry);
        }
    }

    fn evict(
        &mut self,
        _incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        let free = self.frames - self.small.len() - self.main.len();
        let small_first = self.small.len() + free >= self.small_size;
        for small in [small_first, !small_first] {
            match if small { self.evict_small(probe) } else { self.evict_main(probe) } {
                Found::Victim(frame) => return Some(frame),
                Found::Stopped => return None,
                Found::Nothing => {}
            }
        }
        None
    }

    fn remove(&mut self, frame: FrameId) {
        self.main.retain(|entry| entry.frame != frame);
        if let Some(at) = self.small.iter().position(|entry| entry.frame == frame) {
            self.ghost.push(self.small.remove(at).page);
            if self.ghost.len() > self.main_size() {
                self.ghost.remove(0);
            }
        }
    }

    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}
