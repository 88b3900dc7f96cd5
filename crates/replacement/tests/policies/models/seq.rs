//! SEQ: the sequences as plain ranges, and linear searches for resident pages.

use clearway_replacement::{Policy, Probe};
use clearway_types::{FrameId, PageId};

const L: usize = 20;
const M: u64 = 20;
const N: usize = 5;
const SEQUENCES: usize = 64;

struct Sequence {
    low: u64,
    high: u64,
    /// 0: one page so far.
    direction: i32,
    faults: Vec<u64>,
}

impl Sequence {
    fn has(&self, page: u64) -> bool {
        (self.low..=self.high).contains(&page)
    }

    fn is_long(&self) -> bool {
        self.high - self.low + 1 >= L as u64
    }

    fn last(&self) -> u64 {
        *self.faults.last().unwrap()
    }

    fn nth_last(&self) -> u64 {
        self.faults[self.faults.len() - N]
    }

    fn extends(&self, page: u64) -> bool {
        (self.direction >= 0 && page == self.high + 1)
            || (self.direction <= 0 && page + 1 == self.low)
    }
}

#[derive(Default)]
pub struct Model {
    /// Least recently used first.
    resident: Vec<(FrameId, u64)>,
    sequences: Vec<Sequence>,
    now: u64,
}

impl Model {
    fn fault(&mut self, page: u64) {
        self.now += 1;
        let mut fitting: Vec<Sequence> = vec![];
        let mut others: Vec<Sequence> = vec![];
        for sequence in self.sequences.drain(..) {
            if sequence.extends(page) { fitting.push(sequence) } else { others.push(sequence) }
        }
        fitting.sort_by_key(Sequence::last);
        self.sequences = others;
        if let Some(mut sequence) = fitting.pop() {
            self.sequences.retain(|other| !other.has(page));
            if page > sequence.high {
                (sequence.high, sequence.direction) = (page, 1);
            } else {
                (sequence.low, sequence.direction) = (page, -1);
            }
            sequence.faults.push(self.now);
            self.sequences.push(sequence);
            return;
        }
        for met in self.sequences.iter_mut().filter(|sequence| sequence.has(page)) {
            if met.direction >= 0 {
                // A sequence that consists of that page only becomes empty.
                (met.low, met.high) = if met.low == page { (1, 0) } else { (met.low, page - 1) };
            } else {
                (met.low, met.high) = if met.high == page { (1, 0) } else { (page + 1, met.high) };
            }
        }
        self.sequences.retain(|sequence| sequence.low <= sequence.high);
        if self.sequences.len() == SEQUENCES {
            let any_short = self.sequences.iter().any(|sequence| !sequence.is_long());
            let may_go = self.sequences.iter().filter(|sequence| !any_short || !sequence.is_long());
            let oldest = may_go.map(Sequence::last).min().unwrap();
            self.sequences.retain(|sequence| sequence.last() != oldest);
        }
        self.sequences.push(Sequence {
            low: page,
            high: page,
            direction: 0,
            faults: vec![self.now],
        });
    }

    /// Returns the sequence's resident pages that are at least `M` behind its head.
    fn behind_head(&self, sequence: &Sequence) -> Vec<FrameId> {
        let mut pages: Vec<u64> = (sequence.low..=sequence.high).collect();
        if sequence.direction >= 0 {
            pages.reverse();
        }
        let far = pages.into_iter().skip(M as usize);
        far.filter_map(|page| Some(self.resident.iter().find(|(_, held)| *held == page)?.0))
            .collect()
    }
}

impl Policy for Model {
    fn hit(&mut self, frame: FrameId) {
        if let Some(at) = self.resident.iter().position(|(held, _)| *held == frame) {
            let entry = self.resident.remove(at);
            self.resident.push(entry);
        }
    }

    fn miss(&mut self, frame: FrameId, page: PageId) {
        self.fault(page.to_u64());
        self.resident.push((frame, page.to_u64()));
    }

    fn evict(
        &mut self,
        _incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        let long = self.sequences.iter().filter(|sequence| sequence.is_long());
        let usable = long.filter(|sequence| !self.behind_head(sequence).is_empty());
        let chosen = usable.max_by_key(|sequence| sequence.nth_last());
        let mut order = chosen.map_or(vec![], |sequence| self.behind_head(sequence));
        order.extend(self.resident.iter().map(|(frame, _)| *frame));
        for frame in order {
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
        self.resident.retain(|(held, _)| *held != frame);
    }

    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}
