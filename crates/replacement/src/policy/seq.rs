//! SEQ: LRU that detects long sequences of page faults and evicts from within them, most recent
//! first.
//!
//! A sequence is a run of neighbouring pages of one partition's file that were missed in ascending
//! or descending order, possibly with other misses in between. To free a frame, SEQ considers the
//! sequences of at least 20 pages and chooses the one whose fifth last miss is the most recent. The
//! victim is the first resident page of it that is 20 pages or more behind its head. Without such a
//! page, SEQ evicts the least recently used page.
//!
//! A use costs O(1), a miss O(log sequences) and the examination of 20 pages. Metadata: 24 bytes
//! per frame, and 64 sequences.
//!
//! # Invariants
//! 1. No two sequences have a page in common.
//! 2. The list of a sequence has those of its pages that are in frames, in the order of the
//!    sequence. A page that leaves the sequence leaves its list.
//! 3. There are at most `SEQUENCES` sequences. A sequence that is not long is dropped before a long
//!    one, and among these the one with the oldest last miss.
//!
//! # Source
//! Glass and Cao: Adaptive page replacement based on memory reference behavior, SIGMETRICS 1997,
//! section 4. L, M and N are the paper's.

use super::list::{ListId, Lists};
use super::{Footprint, Policy, Probe, ensure, propose};
use clearway_types::{FrameId, PageId};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Most recently used first.
const ALL: ListId = ListId(0);

/// The maximum number of sequences. The value is ours; the paper has such a bound, too.
const SEQUENCES: u32 = 64;
/// The maximum of `SeqParameters::faults`.
const FAULTS: usize = 8;

/// The conditions for evicting from a sequence.
#[derive(Clone, Copy, Debug)]
pub struct SeqParameters {
    /// The minimum number of pages of the sequence (the paper's L).
    pub length: u32,
    /// The minimum distance of the victim behind the head, in pages (M).
    pub distance: u32,
    /// The sequence whose `faults`-th last miss is the most recent is chosen (N), 1 to 8.
    pub faults: usize,
}

impl Default for SeqParameters {
    fn default() -> Self {
        Self { length: 20, distance: 20, faults: 5 }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// One page so far.
    Unknown,
    Up,
    Down,
}

/// The pages `low ..= high`, by [`PageId::to_u64`].
#[derive(Clone, Copy)]
struct Sequence {
    low: u64,
    high: u64,
    direction: Direction,
    /// The times of the last misses, a ring.
    times: [u64; FAULTS],
    misses: u64,
}

impl Sequence {
    fn len(&self) -> u64 {
        self.high - self.low + 1
    }

    /// Returns the time of the `n`-th last miss, or 0 if there were fewer.
    fn time(&self, n: usize) -> u64 {
        if self.misses < n as u64 {
            0
        } else {
            self.times[(self.misses - n as u64) as usize % FAULTS]
        }
    }

    fn record(&mut self, now: u64) {
        self.times[self.misses as usize % FAULTS] = now;
        self.misses += 1;
    }

    /// Returns true if a miss of `page` continues the sequence.
    fn continues_with(&self, page: u64) -> bool {
        (self.direction != Direction::Down && page == self.high + 1)
            || (self.direction != Direction::Up && page + 1 == self.low)
    }
}

/// LRU that evicts from within long sequences.
pub struct Seq {
    parameters: SeqParameters,
    by_use: Lists,
    /// One list per sequence: oldest at the front.
    in_sequence: Lists,
    sequences: Vec<Option<Sequence>>,
    /// The numbers of the sequences, by their lowest page.
    by_low: BTreeMap<u64, u32>,
    pages: Vec<u64>,
    now: u64,
}

impl Seq {
    /// Creates a policy for frames `0 .. frames`.
    pub fn new(frames: u32) -> Self {
        Self::with(frames, SeqParameters::default())
    }

    /// Creates a policy with the given parameters.
    pub fn with(frames: u32, parameters: SeqParameters) -> Self {
        assert!((1..=FAULTS).contains(&parameters.faults));
        Self {
            parameters,
            by_use: Lists::new(frames, 1),
            in_sequence: Lists::new(frames, SEQUENCES),
            sequences: vec![None; SEQUENCES as usize],
            by_low: BTreeMap::new(),
            pages: vec![0; frames as usize],
            now: 0,
        }
    }

    fn at(&mut self, number: u32) -> &mut Sequence {
        self.sequences[number as usize].as_mut().expect("by_low refers to existing sequences")
    }

    /// Returns the sequence that contains the page.
    fn with_page(&self, page: u64) -> Option<u32> {
        let (_, number) = self.by_low.range(..=page).next_back()?;
        self.sequences[*number as usize].filter(|s| page <= s.high).map(|_| *number)
    }

    fn end(&mut self, number: u32) {
        while let Some(frame) = self.in_sequence.front(ListId(number)) {
            self.in_sequence.remove(frame);
        }
        let ended = self.sequences[number as usize].take().expect("a sequence ends once");
        self.by_low.remove(&ended.low);
    }

    /// Returns an unused sequence number, dropping a sequence if there is none.
    fn free_number(&mut self) -> u32 {
        if let Some(free) = self.sequences.iter().position(Option::is_none) {
            return free as u32;
        }
        let long = u64::from(self.parameters.length);
        let age =
            |number: &u32| self.sequences[*number as usize].map(|s| (s.len() >= long, s.time(1)));
        let oldest = (0..SEQUENCES).min_by_key(age).expect("there are sequences");
        self.end(oldest);
        oldest
    }

    fn begin(&mut self, page: u64) -> u32 {
        let number = self.free_number();
        let mut sequence = Sequence {
            low: page,
            high: page,
            direction: Direction::Unknown,
            times: [0; FAULTS],
            misses: 0,
        };
        sequence.record(self.now);
        self.sequences[number as usize] = Some(sequence);
        self.by_low.insert(page, number);
        number
    }

    /// Returns the sequence that a miss of `page` continues. If it continues two, keeps the one
    /// with the later miss and drops the other.
    fn find_continued(&mut self, page: u64) -> Option<u32> {
        let continues =
            |number: &u32| self.sequences[*number as usize].is_some_and(|s| s.continues_with(page));
        let below = page.checked_sub(1).and_then(|before| self.with_page(before)).filter(continues);
        let above = page.checked_add(1).and_then(|after| self.with_page(after)).filter(continues);
        let (Some(below), Some(above)) = (below, above) else { return below.or(above) };
        let newer = self.at(below).time(1) > self.at(above).time(1);
        let (stays, ends) = if newer { (below, above) } else { (above, below) };
        self.end(ends);
        Some(stays)
    }

    /// Extends the sequence by `page`. Drops another sequence that contains `page`.
    fn extend(&mut self, number: u32, page: u64) {
        if let Some(other) = self.with_page(page) {
            self.end(other);
        }
        let now = self.now;
        let sequence = self.at(number);
        let low = sequence.low;
        sequence.record(now);
        if page > sequence.high {
            (sequence.high, sequence.direction) = (page, Direction::Up);
        } else {
            (sequence.low, sequence.direction) = (page, Direction::Down);
            self.by_low.remove(&low);
            self.by_low.insert(page, number);
        }
    }

    /// Cuts a sequence that is missed again in its middle: it ends before that page, where a new
    /// sequence begins.
    fn cut(&mut self, number: u32, page: u64) {
        let sequence = *self.at(number);
        let up = sequence.direction != Direction::Down;
        if (up && page == sequence.low) || (!up && page == sequence.high) {
            return self.end(number);
        }
        while let Some(frame) = self.in_sequence.back(ListId(number)) {
            let at = self.pages[frame as usize];
            if if up { at < page } else { at > page } {
                break;
            }
            self.in_sequence.remove(frame);
        }
        if up {
            self.at(number).high = page - 1;
        } else {
            self.at(number).low = page + 1;
            self.by_low.remove(&sequence.low);
            self.by_low.insert(page + 1, number);
        }
    }

    /// Returns the sequence to evict from, with its victim: it is long enough and has a page far
    /// enough behind its head.
    fn choose(&self) -> Option<(u32, u32)> {
        let long = u64::from(self.parameters.length);
        let time = |number: u32| {
            self.sequences[number as usize].map_or(0, |s| s.time(self.parameters.faults))
        };
        let is_long =
            |number: &u32| self.sequences[*number as usize].is_some_and(|s| s.len() >= long);
        let with_victim = |number| self.behind_head(number).next().map(|frame| (number, frame));
        (0..SEQUENCES)
            .filter(is_long)
            .filter_map(with_victim)
            .max_by_key(|(number, _)| time(*number))
    }

    /// Returns the sequence's frames from the head backwards, without those too close to it.
    fn behind_head(&self, number: u32) -> impl Iterator<Item = u32> {
        let sequence = self.sequences[number as usize];
        let head =
            sequence.map_or(0, |s| if s.direction == Direction::Down { s.low } else { s.high });
        let near = move |frame: &u32| {
            self.pages[*frame as usize].abs_diff(head) < u64::from(self.parameters.distance)
        };
        self.in_sequence.iter_back(ListId(number)).skip_while(near)
    }
}

impl Policy for Seq {
    fn hit(&mut self, frame: FrameId) {
        if self.by_use.remove(frame.0) {
            self.by_use.push_front(ALL, frame.0);
        }
    }

    fn miss(&mut self, frame: FrameId, page: PageId) {
        let page = page.to_u64();
        self.now += 1;
        self.pages[frame.0 as usize] = page;
        self.by_use.push_front(ALL, frame.0);
        let number = match self.find_continued(page) {
            Some(number) => {
                self.extend(number, page);
                number
            }
            None => {
                self.with_page(page).into_iter().for_each(|met| self.cut(met, page));
                self.begin(page)
            }
        };
        self.in_sequence.push_back(ListId(number), frame.0);
    }

    fn evict(
        &mut self,
        _incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        let from_sequence = match self.choose() {
            Some((number, _)) => propose(self.behind_head(number), probe),
            None => ControlFlow::Continue(()),
        };
        let found = match from_sequence {
            ControlFlow::Continue(()) => propose(self.by_use.iter_back(ALL), probe),
            found => found,
        };
        let taken = found.break_value()??;
        self.remove(taken);
        Some(taken)
    }

    fn remove(&mut self, frame: FrameId) {
        self.by_use.remove(frame.0);
        self.in_sequence.remove(frame.0);
    }

    fn footprint(&self) -> Footprint {
        Footprint::default().lists(&self.by_use, [ALL])
    }

    fn validate(&self) -> Result<(), String> {
        self.by_use.validate()?;
        self.in_sequence.validate()?;
        let mut after = 0;
        for (low, number) in &self.by_low {
            let s = self.sequences[*number as usize]
                .ok_or_else(|| format!("sequence {number} has ended"))?;
            ensure(s.low == *low && after <= s.low && s.low <= s.high, || {
                format!("{}..={} overlaps", s.low, s.high)
            })?;
            after = s.high + 1;
            let pages: Vec<_> = self
                .in_sequence
                .iter(ListId(*number))
                .map(|frame| self.pages[frame as usize])
                .collect();
            let inside = pages.iter().all(|page| (s.low..=s.high).contains(page));
            let ordered = pages
                .is_sorted_by(|a, b| if s.direction == Direction::Down { a > b } else { a < b });
            ensure(inside && ordered, || {
                format!("{}..={} has the pages {pages:?}", s.low, s.high)
            })?;
        }
        let ended = (0..SEQUENCES).filter(|number| self.sequences[*number as usize].is_none());
        let mut left = ended.filter(|number| self.in_sequence.front(ListId(*number)).is_some());
        ensure(left.next().is_none(), || "a sequence that has ended has frames".into())?;
        let known = self.sequences.iter().flatten().count();
        ensure(known == self.by_low.len(), || {
            format!("{known} sequences, {} in order", self.by_low.len())
        })
    }
}
