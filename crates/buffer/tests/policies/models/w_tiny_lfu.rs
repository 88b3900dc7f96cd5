//! W-TinyLFU: three queues, least recently used first, and a sketch of plain numbers.

use clearway_buffer::{Policy, Probe};
use clearway_types::{FrameId, PageId};

/// Four rows of counters, 4 for each word of the policy's sketch, addressed as that addresses them.
struct Sketch {
    rows: [Vec<[u32; 4]>; 4],
    uses: usize,
    sample: usize,
}

impl Sketch {
    fn new(frames: u32) -> Self {
        let mut words = 2;
        while words < frames {
            words *= 2;
        }
        let row = || vec![[0; 4]; words as usize];
        Self { rows: [row(), row(), row(), row()], uses: 0, sample: 10 * frames as usize }
    }

    fn counters(&mut self, page: PageId) -> [&mut u32; 4] {
        let seeds = [0xc3a5_c85c_97cb_3127, 0xb492_b66f_be98_f273, 0x9ae1_6a3b_2f90_404f, 0xcbf2_9ce4_8422_2325_u64];
        let mixed = page.to_u64().wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let folded = mixed ^ (mixed >> 32);
        let mut seeds = seeds.into_iter();
        self.rows.each_mut().map(|row| {
            let hash = folded.wrapping_mul(seeds.next().unwrap());
            let word = (u128::from(hash) * row.len() as u128) >> 64;
            &mut row[word as usize][(mixed >> 62) as usize]
        })
    }

    fn count(&mut self, page: PageId) {
        let counters = self.counters(page);
        let saturated = counters.iter().all(|counter| **counter == 15);
        counters.into_iter().for_each(|counter| *counter = (*counter + 1).min(15));
        self.uses += usize::from(!saturated);
        if self.uses >= self.sample {
            let counters = || self.rows.iter().flatten().flatten();
            let odd = counters().filter(|counter| **counter % 2 == 1).count();
            self.uses = self.uses.saturating_sub(odd / 4) / 2;
            self.rows.iter_mut().flatten().flatten().for_each(|counter| *counter /= 2);
        }
    }

    fn frequency(&mut self, page: PageId) -> u32 {
        self.counters(page).into_iter().map(|counter| *counter).min().unwrap()
    }
}

type Entry = (FrameId, PageId);

pub struct Model {
    frames: usize,
    window_size: usize,
    protected_size: usize,
    window: Vec<Entry>,
    probation: Vec<Entry>,
    protected: Vec<Entry>,
    sketch: Sketch,
}

impl Model {
    pub fn new(frames: u32) -> Self {
        let window_size = (frames as usize / 100).max(1);
        let protected_size = (frames as usize - window_size) * 8 / 10;
        Self {
            frames: frames as usize,
            window_size,
            protected_size,
            window: vec![],
            probation: vec![],
            protected: vec![],
            sketch: Sketch::new(frames),
        }
    }

    fn take(queue: &mut Vec<Entry>, frame: FrameId) -> Option<Entry> {
        let at = queue.iter().position(|(held, _)| *held == frame)?;
        Some(queue.remove(at))
    }

    /// Where the victim is looked for first: in the window or in the main part.
    fn window_first(&mut self) -> bool {
        let free = self.frames - self.window.len() - self.probation.len() - self.protected.len();
        let Some((_, candidate)) = self.window.first().copied() else { return false };
        let Some((_, victim)) = self.probation.first().or(self.protected.first()).copied() else { return true };
        self.window.len() + free >= self.window_size
            && self.sketch.frequency(candidate) <= self.sketch.frequency(victim)
    }
}

impl Policy for Model {
    fn hit(&mut self, frame: FrameId) {
        if let Some(entry) = Self::take(&mut self.window, frame) {
            self.sketch.count(entry.1);
            self.window.push(entry);
        }
        let main = Self::take(&mut self.probation, frame).or_else(|| Self::take(&mut self.protected, frame));
        if let Some(entry) = main {
            self.sketch.count(entry.1);
            self.protected.push(entry);
            if self.protected.len() > self.protected_size {
                self.probation.push(self.protected.remove(0));
            }
        }
    }

    fn miss(&mut self, frame: FrameId, page: PageId) {
        self.sketch.count(page);
        self.window.push((frame, page));
        if self.window.len() > self.window_size {
            self.probation.push(self.window.remove(0));
        }
    }

    fn evict(&mut self, _incoming: Option<PageId>, probe: &mut dyn FnMut(FrameId) -> Probe) -> Option<FrameId> {
        let main = [self.probation.clone(), self.protected.clone()].concat();
        let order = if self.window_first() {
            [self.window.clone(), main].concat()
        } else {
            [main, self.window.clone()].concat()
        };
        for (frame, _) in order {
            match probe(frame) {
                Probe::Take => {
                    self.remove(frame);
                    return Some(frame);
                }
                Probe::Skip => {}
                Probe::Stop => return None,
            }
        }
        None
    }

    fn remove(&mut self, frame: FrameId) {
        for queue in [&mut self.window, &mut self.probation, &mut self.protected] {
            queue.retain(|(held, _)| *held != frame);
        }
    }

    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}
