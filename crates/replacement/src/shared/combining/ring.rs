//! A thread's queue of hits: a ring that its thread fills with plain stores, and that the holder of
//! the policy's latch empties.
//!
//! Each slot says by itself whether it is free: there is no count that both sides write. Slot =
//! position mod [`ROOM`].
//!
//! | slot  | who writes it next    | to    |
//! |-------|-----------------------|-------|
//! | 0     | the owner, at `tail`  | a hit |
//! | a hit | the holder, at `head` | 0     |
//!
//! While the ring is full, the owner keeps its hits in an overflow, which belongs to whoever has
//! exchanged it out of its place.
//!
//! # Invariants
//! 1. The hits from `head` to `tail` are in the slots. The owner stores only in a slot that it has
//!    seen free.
//! 2. While there is an overflow, the owner stores in no slot. All hits in slots below
//!    `Overflow::from` are older than the overflow, all above are newer.
//! 3. An overflow has at most twice as many entries as there are pages in frames, or
//!    [`Ring::new`]'s `bound` if that is more. When it is full, hits on the same page become one
//!    entry with a count, in the place of the last. Hits on pages that have left a frame since are
//!    kept apart. These are few, since no page leaves while the policy's latch is held.
//!
//! # Source
//! FastForward (Giacomoni, Moseley, Vachharajani, PPoPP 2008) for slots that say whether they are
//! free.

use super::super::tagged::{Entry, Tagged};
use clearway_latch::{AtomicOptionBox, CachePadded};
use clearway_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Slots of a ring; a power of two.
pub const ROOM: u32 = if cfg!(loom) { 2 } else { 64 };

pub struct Ring {
    own: CachePadded<Own>,
    shared: CachePadded<Shared>,
    slots: [AtomicU64; ROOM as usize],
    /// Entries of an overflow from which on it is made shorter.
    bound: usize,
}

/// The owner's: all accesses relaxed, by one thread at a time.
struct Own {
    tail: AtomicU32,
    /// The position at which the owner sees to it that what is queued gets to the policy.
    limit: AtomicU32,
    attached: AtomicBool,
}

struct Shared {
    overflow: AtomicOptionBox<Overflow>,
    /// In the list of those handed over, or about to be put there.
    handed: AtomicBool,
    /// The next in that list.
    next: AtomicU32,
}

struct Overflow {
    /// `tail` when it was begun.
    from: u32,
    /// Hits, and how many there were of each at once; oldest first.
    hits: Vec<(Entry, u64)>,
    shorten_at: usize,
}

impl Overflow {
    fn push(&mut self, entry: Entry) {
        self.hits.push((entry, 1));
        if self.hits.len() >= self.shorten_at {
            self.shorten();
        }
    }

    fn shorten(&mut self) {
        const NONE: u32 = u32::MAX;
        let frames = self.hits.iter().map(|(entry, _)| entry.frame().0 + 1).max().unwrap_or(0);
        // By frame, where among the kept ones its newest hit is. An older page of the frame is kept
        // apart, for it has no place here.
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
        // At least twice as many as are left, so that a hit pays for its own place only.
        self.shorten_at = self.shorten_at.max(2 * self.hits.len());
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
                handed: AtomicBool::new(false),
                next: AtomicU32::new(0),
            }),
            slots: std::array::from_fn(|_| AtomicU64::new(0)),
            bound,
        }
    }

    #[inline(always)]
    fn slot(&self, position: u32) -> &AtomicU64 {
        &self.slots[(position % ROOM) as usize]
    }

    /// By the owner: queues the hit if that is all there is to do.
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
        // Relaxed: the hit is all that there is to see; what makes the holder look is ordered by
        // `handed` or by the latch. A holder that looks anyway acquires nothing by it but the hit.
        self.slot(tail).store(entry.to_u64(), Ordering::Relaxed);
        self.own.tail.store(tail.wrapping_add(1), Ordering::Relaxed);
    }

    /// By the owner: queues the hit, in the ring or beyond it. The length of the overflow then.
    pub fn push_slowly(&self, entry: Entry) -> usize {
        let tail = self.own.tail.load(Ordering::Relaxed);
        let overflow = self.shared.overflow.take();
        if overflow.is_none() && self.is_free(tail) {
            self.store(tail, entry);
            return 0;
        }
        let begun = || Box::new(Overflow { from: tail, hits: Vec::new(), shorten_at: self.bound });
        let mut overflow = overflow.unwrap_or_else(begun);
        overflow.push(entry);
        let length = overflow.hits.len();
        let none = self.shared.overflow.swap(Some(overflow));
        debug_assert!(none.is_none(), "only the owner puts an overflow there");
        length
    }

    fn is_free(&self, position: u32) -> bool {
        // Acquire: pairs with the Release in `drain`: a slot is freed after those before it, so
        // that one that is free says so of them too, and what is stored there next comes after the
        // zero.
        self.slot(position).load(Ordering::Acquire) == Entry::NONE.to_u64()
    }

    /// By the owner: lets it queue `batch` hits, or as many as there is room for, before it must
    /// see to them.
    pub fn allow(&self, batch: u32) {
        let tail = self.own.tail.load(Ordering::Relaxed);
        // A hint is enough: only the owner puts an overflow there; that it is gone already is no
        // harm.
        let in_order = self.shared.overflow.is_empty();
        let room = if batch > 0 && in_order && self.is_free(tail.wrapping_add(batch - 1)) {
            batch
        } else {
            0
        };
        self.own.limit.store(tail.wrapping_add(room), Ordering::Relaxed);
    }

    /// By the owner: whether this is the first time since the last [`Ring::detach`].
    pub fn attach(&self) -> bool {
        let first = !self.own.attached.load(Ordering::Relaxed);
        self.own.attached.store(true, Ordering::Relaxed);
        first
    }

    /// By the owner, with everything drained: whether it was attached.
    pub fn detach(&self) -> bool {
        let was = self.own.attached.load(Ordering::Relaxed);
        self.own.attached.store(false, Ordering::Relaxed);
        self.own.limit.store(self.own.tail.load(Ordering::Relaxed), Ordering::Relaxed);
        was
    }

    /// By the holder of the policy's latch: tells the policy of what is queued from `head` on, in
    /// its order; of what the owner adds meanwhile, at most a ring full. `head` is the position of
    /// the first hit that the policy has not been told of.
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
        // A hint first, which spares an exchange; the owner hands over what it misses.
        let overflow =
            (!self.shared.overflow.is_empty()).then(|| self.shared.overflow.take()).flatten();
        if let Some(overflow) = overflow {
            // Invariant 2: first what is older.
            let older = overflow.from.wrapping_sub(began);
            (0..older).for_each(|_| assert!(next(policy).is_some(), "a hit in the ring is lost"));
            for (entry, times) in overflow.hits {
                (0..times).for_each(|_| policy.hit(entry));
            }
        }
        let _last = (0..ROOM).try_for_each(|_| next(policy));
    }

    /// By the owner: marks the queue as handed over; whether it was not.
    pub fn hand_over(&self) -> bool {
        // AcqRel, as in `take_over`: whichever comes second sees what the other did before. The
        // owner's hits are seen by who takes over, or the owner sees that it must put itself in the
        // list again.
        !self.shared.handed.swap(true, Ordering::AcqRel)
    }

    /// By the holder, who has the queue out of the list.
    pub fn take_over(&self) {
        self.shared.handed.swap(false, Ordering::AcqRel);
    }

    /// The next in the list of those handed over: the owner's while it puts itself there, the
    /// holder's who has taken the list out. Relaxed: the list's head orders it.
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
            ring.push_slowly(entry);
            ring.allow(8);
        }
    }

    /// Invariants 1 and 2, with drains at all fillings of ring and overflow.
    #[test]
    fn hits_keep_their_order_in_the_ring_and_beyond() {
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
            // A drain leaves what comes beyond a ring full to the next.
            ring.drain(&mut head, &mut policy);
        }
        assert_eq!(recorder.hits(), hits);
    }

    /// Invariant 3: bounded however long nobody drains, and nothing is lost but the order of hits
    /// on one page among others'.
    #[test]
    fn an_overflow_is_bounded_and_counts_every_hit() {
        let recorder = Recorder::default();
        let mut policy = policy(&recorder);
        let ring = Ring::new(16);
        (0..10_000).for_each(|at| hit(&ring, at % PAGES));
        let length = ring.push_slowly(Entry::new(FrameId(0), page(0)));
        assert!(length <= 16, "{length}");
        ring.drain(&mut 0, &mut policy);
        let hits = recorder.hits();
        let of = |frame| hits.iter().filter(|hit| **hit == frame).count();
        assert_eq!((0..PAGES).map(of).collect::<Vec<_>>(), [2001, 2000, 2000, 2000, 2000]);
        assert_eq!(hits.last(), Some(&0), "the last hit is last");
    }
}
