//! A thread's queue of hits: a ring that its thread, the owner, fills with plain stores, and that
//! the holder of the policy's latch drains.
//!
//! Each slot shows by itself whether it is free: there is no count that both sides write. Slot =
//! position mod [`CAPACITY`].
//!
//! | slot  | who writes it next    | to    |
//! |-------|-----------------------|-------|
//! | 0     | the owner, at `tail`  | a hit |
//! | a hit | the holder, at `head` | 0     |
//!
//! While the ring is full, the owner keeps its hits in an overflow. The overflow belongs to the
//! thread that has swapped it out of the ring.
//!
//! # Invariants
//! 1. The hits from `head` to `tail` are in the slots. The owner stores only into a slot that it
//!    has seen free.
//! 2. While there is an overflow, the owner stores into no slot. All hits in slots at positions
//!    below `Overflow::from` are older than the overflow; all others are newer.
//! 3. An overflow has at most twice as many entries as there are pages in frames, or
//!    [`Ring::new`]'s `bound` if that is more. When it is full, hits on the same page are merged
//!    into one entry with a count, at the position of the last hit. Hits on pages that have since
//!    left their frame are kept separately. These are few, since no page leaves its frame while the
//!    policy's latch is held.
//!
//! # Source
//! FastForward (Giacomoni, Moseley, Vachharajani, PPoPP 2008) for slots that show whether they are
//! free.

use super::super::tagged::{Entry, Tagged};
use clearway_latch::{AtomicOptionBox, CachePadded};
use clearway_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The number of slots of a ring; a power of two.
pub const CAPACITY: u32 = if cfg!(loom) { 2 } else { 64 };

pub struct Ring {
    own: CachePadded<Own>,
    shared: CachePadded<Shared>,
    slots: [AtomicU64; CAPACITY as usize],
    /// The number of entries from which on an overflow is merged.
    bound: usize,
}

/// The owner's fields: accessed by one thread at a time, relaxed.
struct Own {
    tail: AtomicU32,
    /// The position at which the owner must apply its queue or hand it over.
    limit: AtomicU32,
    attached: AtomicBool,
}

struct Shared {
    overflow: AtomicOptionBox<Overflow>,
    /// Whether the ring is in the list of handed-over queues, or about to be pushed.
    handed_over: AtomicBool,
    /// The next ring in that list.
    next: AtomicU32,
}

struct Overflow {
    /// The owner's `tail` when the overflow was created.
    from: u32,
    /// Hits, each with the number of occurrences that were merged into it; oldest first.
    hits: Vec<(Entry, u64)>,
    merge_at: usize,
}

impl Overflow {
    fn push(&mut self, entry: Entry) {
        self.hits.push((entry, 1));
        if self.hits.len() >= self.merge_at {
            self.merge();
        }
    }

    fn merge(&mut self) {
        const NONE: u32 = u32::MAX;
        let frames = self.hits.iter().map(|(entry, _)| entry.frame().0 + 1).max().unwrap_or(0);
        // Indexed by frame: the position of its newest hit in `newest_first`. Hits on an older page
        // of the frame are kept separately, since there is only one position per frame.
        let (mut newest_first, mut places) =
            (Vec::<(Entry, u64)>::new(), vec![NONE; frames as usize]);
        for (entry, times) in self.hits.drain(..).rev() {
            let place = &mut places[entry.frame().0 as usize];
            match newest_first.get_mut(*place as usize) {
                Some((newest, more)) if *newest == entry => *more += times,
                newer => {
                    if newer.is_none() {
                        *place = newest_first.len() as u32;
                    }
                    newest_first.push((entry, times));
                }
            }
        }
        newest_first.reverse();
        self.hits = newest_first;
        // At least twice the current length, so that the cost of merging is O(1) amortised per hit.
        self.merge_at = self.merge_at.max(2 * self.hits.len());
    }
}

impl Ring {
    pub fn new(bound: usize) -> Self {
        Self {
            own: CachePadded::new(Own {
                tail: AtomicU32::new(0),
                limit: AtomicU32::new(0),
                attached: AtomicBool::new(false),
            }),
            shared: CachePadded::new(Shared {
                overflow: AtomicOptionBox::empty(),
                handed_over: AtomicBool::new(false),
                next: AtomicU32::new(0),
            }),
            slots: std::array::from_fn(|_| AtomicU64::new(0)),
            bound,
        }
    }

    #[inline(always)]
    fn slot(&self, position: u32) -> &AtomicU64 {
        &self.slots[(position % CAPACITY) as usize]
    }

    /// Queues the hit if the batch is not complete; returns false otherwise. Called by the owner.
    #[inline(always)]
    pub fn push(&self, entry: Entry) -> bool {
        let tail = self.own.tail.load(Ordering::Relaxed);
        if tail == self.own.limit.load(Ordering::Relaxed) {
            return false;
        }
        self.store(tail, entry);
        true
    }

    #[inline(always)]
    fn store(&self, tail: u32, entry: Entry) {
        // Relaxed: the slot publishes nothing but the hit itself. `handed_over` or the latch orders
        // the hits of a queue before its drain; a holder that reads a slot earlier gets a whole
        // hit.
        self.slot(tail).store(entry.to_u64(), Ordering::Relaxed);
        self.own.tail.store(tail.wrapping_add(1), Ordering::Relaxed);
    }

    /// Queues the hit in the ring or in the overflow. Returns the length of the overflow. Called by
    /// the owner.
    pub fn push_slow(&self, entry: Entry) -> usize {
        let tail = self.own.tail.load(Ordering::Relaxed);
        let overflow = self.shared.overflow.take();
        if overflow.is_none() && self.is_free(tail) {
            self.store(tail, entry);
            return 0;
        }
        let new = || Box::new(Overflow { from: tail, hits: Vec::new(), merge_at: self.bound });
        let mut overflow = overflow.unwrap_or_else(new);
        overflow.push(entry);
        let length = overflow.hits.len();
        let none = self.shared.overflow.swap(Some(overflow));
        debug_assert!(none.is_none(), "only the owner installs an overflow");
        length
    }

    fn is_free(&self, position: u32) -> bool {
        // Acquire: pairs with the Release in `drain`. Slots are freed in order, so a free slot
        // implies that those before it are free. The owner's next store into the slot comes after
        // the zero.
        self.slot(position).load(Ordering::Acquire) == Entry::NONE.to_u64()
    }

    /// Lets the owner queue `batch` more hits, or none if there is no room for them, before it must
    /// apply them. Called by the owner.
    pub fn allow(&self, batch: u32) {
        let tail = self.own.tail.load(Ordering::Relaxed);
        // A hint is enough: only the owner installs an overflow, and it is harmless to miss that it
        // is already gone.
        let in_order = self.shared.overflow.is_empty();
        let room = if batch > 0 && in_order && self.is_free(tail.wrapping_add(batch - 1)) {
            batch
        } else {
            0
        };
        self.own.limit.store(tail.wrapping_add(room), Ordering::Relaxed);
    }

    /// Attaches the owner. Returns whether it was not attached since the last [`Ring::detach`].
    /// Called by the owner.
    pub fn attach(&self) -> bool {
        let first = !self.own.attached.load(Ordering::Relaxed);
        self.own.attached.store(true, Ordering::Relaxed);
        first
    }

    /// Detaches the owner, after everything was drained. Returns whether it was attached. Called by
    /// the owner.
    pub fn detach(&self) -> bool {
        let was = self.own.attached.load(Ordering::Relaxed);
        self.own.attached.store(false, Ordering::Relaxed);
        self.own.limit.store(self.own.tail.load(Ordering::Relaxed), Ordering::Relaxed);
        was
    }

    /// Applies the queued hits to the policy, in order from position `head` on. Also applies hits
    /// that the owner adds meanwhile, up to the capacity of the ring. `head` is the position of the
    /// first hit that was not applied. Called by the holder of the policy's latch.
    pub fn drain(&self, head: &mut u32, policy: &mut Tagged) {
        let began = *head;
        let mut next = |policy: &mut Tagged| {
            let slot = self.slot(*head);
            // Relaxed: see `store`.
            let entry = Entry::from_u64(slot.load(Ordering::Relaxed));
            if entry != Entry::NONE {
                // Release: pairs with the Acquire in `is_free`.
                slot.store(Entry::NONE.to_u64(), Ordering::Release);
                *head = head.wrapping_add(1);
                policy.hit(entry);
            }
            (entry != Entry::NONE).then_some(())
        };
        // Checks a hint first to avoid a swap; the owner hands over what the hint misses.
        let overflow =
            (!self.shared.overflow.is_empty()).then(|| self.shared.overflow.take()).flatten();
        if let Some(overflow) = overflow {
            // Invariant 2: apply older hits first.
            let older = overflow.from.wrapping_sub(began);
            (0..older).for_each(|_| assert!(next(policy).is_some(), "a hit in the ring is lost"));
            for (entry, times) in overflow.hits {
                (0..times).for_each(|_| policy.hit(entry));
            }
        }
        let _last = (0..CAPACITY).try_for_each(|_| next(policy));
    }

    /// Marks the queue as handed over. Returns whether it was not marked before. Called by the
    /// owner.
    pub fn hand_over(&self) -> bool {
        // AcqRel: pairs with the swap in `take_over`. The later of the two sees what the earlier
        // thread did before: the holder sees the owner's hits, or the owner sees that it must push
        // its queue again.
        !self.shared.handed_over.swap(true, Ordering::AcqRel)
    }

    /// Clears the mark of a queue that the holder has removed from the list. Called by the holder.
    pub fn take_over(&self) {
        // AcqRel: pairs with the swap in `hand_over`; see there.
        self.shared.handed_over.swap(false, Ordering::AcqRel);
    }

    /// The next ring in the list of handed-over queues. Written by the owner while it pushes its
    /// ring, read by the holder that took the list. Relaxed: the head of the list orders the
    /// accesses.
    pub fn next(&self) -> &AtomicU32 {
        &self.shared.next
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::super::tests::{Recorder, page};
    use super::*;
    use clearway_types::FrameId;

    const PAGES: u32 = 5;

    fn policy(recorder: &Recorder) -> Tagged {
        let mut policy = Tagged::new(Box::new(recorder.clone()), 1000);
        (0..1000).for_each(|f| policy.miss(FrameId(f), page(f)));
        policy
    }

    fn hit(ring: &Ring, frame: u32) {
        let entry = Entry::new(FrameId(frame), page(frame));
        if !ring.push(entry) {
            ring.push_slow(entry);
            ring.allow(8);
        }
    }

    /// Invariants 1 and 2, with drains at all fill levels of ring and overflow.
    #[test]
    fn hits_keep_their_order_through_ring_and_overflow() {
        let recorder = Recorder::default();
        let mut policy = policy(&recorder);
        let ring = Ring::new(1 << 20);
        let (mut hits, mut at, mut head) = (Vec::new(), 0_u32, 0);
        for length in (0..300).chain([64, 64, 65, 63, 1, 128]) {
            for _ in 0..length {
                hits.push(at % 1000);
                hit(&ring, at % 1000);
                at += 1;
            }
            // A drain leaves hits beyond the capacity of the ring to the next drain.
            ring.drain(&mut head, &mut policy);
        }
        assert_eq!(recorder.hits(), hits);
    }

    /// Invariant 3: the overflow stays bounded however long no thread drains it. Only the order of
    /// hits on different pages is lost.
    #[test]
    fn overflow_is_bounded_and_counts_every_hit() {
        let recorder = Recorder::default();
        let mut policy = policy(&recorder);
        let ring = Ring::new(16);
        (0..10_000).for_each(|at| hit(&ring, at % PAGES));
        let length = ring.push_slow(Entry::new(FrameId(0), page(0)));
        assert!(length <= 16, "{length}");
        ring.drain(&mut 0, &mut policy);
        let hits = recorder.hits();
        let of = |frame| hits.iter().filter(|hit| **hit == frame).count();
        assert_eq!((0..PAGES).map(of).collect::<Vec<_>>(), [2001, 2000, 2000, 2000, 2000]);
        assert_eq!(hits.last(), Some(&0), "the last hit is last");
    }
}
