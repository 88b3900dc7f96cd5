//! Pending events of a simulated network, by time.
//!
//! Almost all events are due within a few microseconds. They are kept in a timing wheel (Varghese
//! and Lauck, SOSP 1987) with one slot per nanosecond, so that adding and taking one compares and
//! moves no others. Later events, such as the end of a back-off, are in a heap until the wheel
//! reaches their time.
//!
//! # Invariants
//! 1. Events are taken in time order; events of the same time in the order in which they were
//!    added.
//! 2. The wheel has all events from `now_ns` to less than [`SPAN`] later, each in the slot of its
//!    time; the heap has the others. So a slot has events of one time only. An event leaves the
//!    heap when its time comes into the span, before an event of the same time can be added to the
//!    slot directly.

use super::core::Event;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Nanoseconds that the wheel covers.
const SPAN: usize = 4096;
/// Slots of one word of the bitmap.
const BITS: usize = 64;
/// No entry.
const NONE: u32 = u32::MAX;

const _: () = assert!(SPAN == BITS * BITS, "one word summarizes the bitmap");

struct Entry {
    at_ns: u64,
    /// `None` if the entry is free.
    event: Option<Event>,
    /// The next entry of the same slot, or the next free one.
    next: u32,
}

/// The entries of one time, linked from first to last.
#[derive(Clone, Copy)]
struct Slot {
    first: u32,
    last: u32,
}

/// Events by time.
pub(super) struct Events {
    entries: Vec<Entry>,
    free: u32,
    /// By time modulo [`SPAN`].
    slots: Vec<Slot>,
    /// One bit for each slot that has entries, and one for each word of these that has bits.
    occupied: [u64; SPAN / BITS],
    summary: u64,
    /// The time of the last event taken.
    now_ns: u64,
    /// Times, numbers in the order of adding, and entries.
    later: BinaryHeap<Reverse<(u64, u64, u32)>>,
    added: u64,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            free: NONE,
            slots: vec![Slot { first: NONE, last: NONE }; SPAN],
            occupied: [0; SPAN / BITS],
            summary: 0,
            now_ns: 0,
            later: BinaryHeap::new(),
            added: 0,
        }
    }
}

impl Events {
    /// Adds an event that is due at `at_ns`, which is not before the last event taken.
    pub fn add(&mut self, at_ns: u64, event: Event) {
        debug_assert!(at_ns >= self.now_ns, "an event in the past");
        let entry = Entry { at_ns, event: Some(event), next: NONE };
        let index = self.free;
        let index = match self.entries.get_mut(index as usize) {
            Some(free) => {
                self.free = free.next;
                *free = entry;
                index
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        if at_ns - self.now_ns < SPAN as u64 {
            self.append(index);
        } else {
            self.added += 1;
            self.later.push(Reverse((at_ns, self.added, index)));
        }
    }

    /// Takes the first event and its time.
    pub fn pop(&mut self) -> Option<(u64, Event)> {
        if self.summary == 0 {
            let Reverse((at_ns, ..)) = self.later.peek()?;
            self.now_ns = *at_ns;
            self.bring_near();
        }
        let slot = self.first_slot();
        let index = self.slots[slot].first;
        let at_ns = self.entries[index as usize].at_ns;
        let event = self.unlink(slot, NONE, index);
        if at_ns > self.now_ns {
            self.now_ns = at_ns;
            self.bring_near();
        }
        Some((at_ns, event))
    }

    /// Takes the first event that matches `wanted`. Scans all events, so use it rarely.
    pub fn take_first(&mut self, wanted: impl Fn(&Event) -> bool) -> Option<Event> {
        let matches = |entry: &Entry| entry.event.as_ref().is_some_and(&wanted);
        for ahead in 0..SPAN as u64 {
            let slot = Self::slot(self.now_ns + ahead);
            let (mut before, mut index) = (NONE, self.slots[slot].first);
            while let Some(entry) = self.entries.get(index as usize) {
                if matches(entry) {
                    return Some(self.unlink(slot, before, index));
                }
                (before, index) = (index, entry.next);
            }
        }
        let mut all = std::mem::take(&mut self.later).into_vec();
        let of_kind = all
            .iter()
            .enumerate()
            .filter(|(_, Reverse((.., index)))| matches(&self.entries[*index as usize]));
        let place = of_kind.max_by_key(|(_, at)| **at).map(|(place, _)| place);
        let first = place.map(|place| all.swap_remove(place).0.2);
        self.later = all.into();
        first.map(|index| self.release(index))
    }

    fn slot(at_ns: u64) -> usize {
        at_ns as usize % SPAN
    }

    /// Moves events of the heap whose time has come into the span.
    fn bring_near(&mut self) {
        while let Some(Reverse((at_ns, _, index))) = self.later.peek()
            && at_ns - self.now_ns < SPAN as u64
        {
            let index = *index;
            self.later.pop();
            self.append(index);
        }
    }

    /// Adds an entry behind the others of its time.
    fn append(&mut self, index: u32) {
        let slot = Self::slot(self.entries[index as usize].at_ns);
        let last = std::mem::replace(&mut self.slots[slot].last, index);
        match self.entries.get_mut(last as usize) {
            Some(last) => last.next = index,
            None => {
                self.slots[slot].first = index;
                self.occupied[slot / BITS] |= 1 << (slot % BITS);
                self.summary |= 1 << (slot / BITS);
            }
        }
    }

    /// Returns the first slot with entries, in time order; there is one.
    fn first_slot(&self) -> usize {
        let now = Self::slot(self.now_ns);
        let (word, bit) = (now / BITS, now % BITS);
        let from_now = self.occupied[word] & (!0 << bit);
        if from_now != 0 {
            return word * BITS + from_now.trailing_zeros() as usize;
        }
        // The words after this one, then those before it, then this one again for its low bits.
        let after = self.summary.rotate_right(word as u32) & !1;
        let ahead = if after == 0 { 0 } else { after.trailing_zeros() as usize };
        let word = (word + ahead) % BITS;
        word * BITS + self.occupied[word].trailing_zeros() as usize
    }

    /// Removes an entry from its slot, where it follows `before`.
    fn unlink(&mut self, slot: usize, before: u32, index: u32) -> Event {
        let next = self.entries[index as usize].next;
        match self.entries.get_mut(before as usize) {
            Some(before) => before.next = next,
            None => self.slots[slot].first = next,
        }
        if next == NONE {
            self.slots[slot].last = before;
        }
        if self.slots[slot].first == NONE {
            self.occupied[slot / BITS] &= !(1 << (slot % BITS));
            if self.occupied[slot / BITS] == 0 {
                self.summary &= !(1 << (slot / BITS));
            }
        }
        self.release(index)
    }

    fn release(&mut self, index: u32) -> Event {
        let entry = &mut self.entries[index as usize];
        entry.next = std::mem::replace(&mut self.free, index);
        entry.event.take().expect("the entry is in use")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_env::SeededEntropy;

    fn token(event: &Event) -> u64 {
        let Event::Timer(token) = event else { unreachable!("only timers are added") };
        *token
    }

    /// Invariant 1, against a sorted list.
    #[test]
    fn events_are_taken_by_time_then_by_order_of_adding() {
        for seed in 0..20 {
            let rng = SeededEntropy::new(seed);
            let (mut events, mut model) = (Events::default(), Vec::new());
            let (mut now_ns, mut taken) = (0, 0);
            for number in 0..20_000_u64 {
                let ahead = match rng.below(4) {
                    0 => rng.below(3),
                    1 => rng.below(SPAN as u64 + 2),
                    2 => rng.below(3 * SPAN as u64),
                    _ => rng.below(1_000_000),
                };
                events.add(now_ns + ahead, Event::Timer(number));
                model.push((now_ns + ahead, number));
                if rng.below(20) == 0 {
                    let wanted = |number: u64| number % 7 == 3;
                    let found = events.take_first(|event| wanted(token(event)));
                    let first = model.iter().filter(|(_, number)| wanted(*number)).min().copied();
                    assert_eq!(found.map(|event| token(&event)), first.map(|(_, number)| number));
                    model.retain(|entry| Some(*entry) != first);
                }
                // Empties the queue now and then.
                let takes = if rng.below(200) == 0 { u64::MAX } else { rng.below(3) };
                for _ in 0..takes {
                    let Some((at_ns, event)) = events.pop() else { break };
                    let first = *model.iter().min().unwrap();
                    assert_eq!((at_ns, token(&event)), first, "seed {seed}");
                    model.retain(|entry| *entry != first);
                    now_ns = at_ns;
                    taken += 1;
                }
            }
            assert!(taken > 10_000, "{taken} events");
        }
    }
}
