//! W-TinyLFU: three queues, least recently used first, and a sketch of plain numbers.

use clearway_replacement::{Policy, Probe};
use clearway_types::{FrameId, PageId};

/// Four rows of counters, 4 for each word of the policy's sketch, with the same addressing.
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
        let seeds = [
            0xc3a5_c85c_97cb_3127,
            0xb492_b66f_be98_f273,
            0x9ae1_6a3b_2f90_404f,
            0xcbf2_9ce4_8422_2325_u64,
        ];
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
    /// The maximum number of free frames in the previous round of evictions, and in this one.
    were_free: usize,
    most_free: usize,
    round_over: bool,
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
            were_free: 0,
            most_free: 0,
            round_over: false,
        }
    }

    fn take(queue: &mut Vec<Entry>, frame: FrameId) -> Option<Entry> {
        let at = queue.iter().position(|(held, _)| *held == frame)?;
        Some(queue.remove(at))
    }

    fn free(&self) -> usize {
        self.frames - self.window.len() - self.probation.len() - self.protected.len()
    }

    /// Moves pages beyond the window's limit to probation. The window may exceed its size by the
    /// number of frames that were free, minus the one for the incoming page.
    fn overflow(&mut self) {
        while self.window.len() > self.window_size + usize::max(self.were_free, 1) - 1 {
            self.probation.push(self.window.remove(0));
        }
    }

    /// Returns the oldest page of the window and the victim of the main part, if both exist and the
    /// window is full or will be.
    fn contest(&self) -> Option<(Entry, Entry)> {
        let full = self.window.len() + self.free() >= self.window_size;
        let victim = self.probation.first().or(self.protected.first())?;
        self.window.first().filter(|_| full).map(|candidate| (*candidate, *victim))
    }
}

impl Policy for Model {
    fn hit(&mut self, frame: FrameId) {
        if let Some(entry) = Self::take(&mut self.window, frame) {
            self.sketch.count(entry.1);
            self.window.push(entry);
        }
        let main = Self::take(&mut self.probation, frame)
            .or_else(|| Self::take(&mut self.protected, frame));
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
        self.overflow();
        self.round_over = true;
    }

    fn evict(
        &mut self,
        _incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        if self.round_over {
            (self.were_free, self.most_free, self.round_over) = (self.most_free, 0, false);
            self.overflow();
        }
        let contest = self.contest();
        let candidate_wins = contest.is_some_and(|(candidate, victim)| {
            self.sketch.frequency(candidate.1) > self.sketch.frequency(victim.1)
        });
        let main = [self.probation.clone(), self.protected.clone()].concat();
        let order = if contest.is_some() && !candidate_wins {
            [self.window.clone(), main.clone()].concat()
        } else {
            [main.clone(), self.window.clone()].concat()
        };
        for (frame, page) in order {
            match probe(frame) {
                Probe::Take => {
                    self.remove(frame);
                    if candidate_wins && main.contains(&(frame, page)) {
                        self.probation.push(self.window.remove(0));
                    }
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
        self.most_free = usize::max(self.most_free, self.free());
    }

    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}
