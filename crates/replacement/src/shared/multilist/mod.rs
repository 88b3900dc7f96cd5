//! OpenZFS's multilist: each list is split into sublists with a latch each, so that threads that
//! use different pages rarely contend.
//!
//! A page's hash determines its sublist: sublists fill evenly, and a page that is read again finds
//! its ghost there. A hit moves the page within its sublist, under that sublist's latch. An
//! eviction picks a sublist and proposes frames from its tail. The tail is not the oldest page of
//! all, but all tails are about equally old. OpenZFS picks at random; here picks follow the
//! multiples of the golden ratio, which reach all sublists equally often even in a few picks. There
//! is no order between sublists. The capacity is shared: a sublist has as many frames as its pages
//! need.
//!
//! Under LRU there is one state. Under ARC there are two, MRU and MFU, each with its ghosts.
//!
//! Differences from ARC's paper (`policy::arc`), as in OpenZFS:
//!
//! - Each state is split by sublist. `p` is one atomic for all sublists and moves by whole numbers.
//! - A victim comes from MRU if that is larger than `p`, whatever the incoming page is.
//! - Ghosts are limited by two sums (MRU with its ghosts, and all ghosts; each at most the pool),
//!   and are dropped at the tails of sublists picked in the same way.
//!
//! Differences from OpenZFS:
//!
//! - `p` has the paper's bounds, 0 and the pool's size, and starts at 0. OpenZFS, whose cache grows
//!   and shrinks, starts in the middle and keeps a sixteenth away from both ends.
//! - A second use counts however soon it follows.
//! - All pages are of one size and one kind.
//!
//! # Invariants
//! 1. A frame with a page is in a list of the sublist that the page's hash determines; any other
//!    frame is in no list. `pages` has the page, and changes under that sublist's latch.
//! 2. `sizes` has the lengths of the states over all sublists.
//!
//! # Locking
//! The latches of the sublists (class `buffer.policy`), one at a time. An eviction's probe is
//! called under one. Links and states of frames are relaxed atomics, guarded by the latch of the
//! frame's sublist. `p` and `sizes` are relaxed, too: they are hints, and each value is correct by
//! itself.
//!
//! # Source
//! Surya, illumos 244781f1 (5497 lock contention on arcs_mtx), 2015; `arc_adapt` and `arc_adjust`
//! of that time for ARC.

mod ghosts;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use super::{POLICY, Replacement};
use crate::policy::{Links, ListId, PolicyKind, Probe};
use clearway_latch::{CachePadded, Latch, LatchGuard};
use clearway_types::{FrameId, PageId};
use ghosts::Ghosts;
use std::ops::ControlFlow;
// Plain std, also under a model checker: the atomics are guarded by latches, or hints.
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The minimum number of sublists, even on fewer cores.
const MIN_SUBLISTS: u32 = 4;
/// The minimum number of frames per sublist, which takes precedence: the tails of small sublists
/// are not equally old.
const MIN_SUBLIST_FRAMES: u32 = 256;
/// The distance between the list ends of two sublists, so that they are on different cache lines.
const ENDS: u32 = 32;
const NO_PAGE: u64 = u64::MAX;
const MRU: u8 = 0;
const MFU: u8 = 1;

/// The policies that are available over sublists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MultilistKind {
    /// LRU.
    Lru,
    /// ARC as in OpenZFS.
    Arc,
}

impl MultilistKind {
    /// Both policies.
    pub const ALL: &[Self] = &[Self::Lru, Self::Arc];

    /// Returns the policy that this is a variant of.
    pub const fn policy(self) -> PolicyKind {
        match self {
            Self::Lru => PolicyKind::Lru,
            Self::Arc => PolicyKind::Arc,
        }
    }
}

/// LRU or ARC over sublists.
pub struct Multilist {
    kind: MultilistKind,
    frames: i64,
    links: Links,
    sublists: Box<[CachePadded<Latch<Sublist>>]>,
    /// Indexed by frame: its page, and its state.
    pages: Box<[AtomicU64]>,
    states: Box<[AtomicU8]>,
    sizes: [CachePadded<AtomicI64>; 2],
    ghost_sizes: [CachePadded<AtomicI64>; 2],
    /// The target size of MRU in frames.
    p: CachePadded<AtomicI64>,
    /// The number of picks of sublists so far.
    draws: CachePadded<AtomicU32>,
}

/// The part of a sublist that is not in the shared arrays.
#[derive(Default)]
struct Sublist {
    ghosts: [Ghosts; 2],
}

impl Multilist {
    /// Creates a policy for frames `0 .. frames`, with as many sublists as the machine has cores,
    /// at least 4; fewer if each would have fewer than 256 frames.
    pub fn new(kind: MultilistKind, frames: u32) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        // Keeps simulations independent of the machine.
        Self::with_cores(kind, frames, if cfg!(any(loom, shuttle)) { 1 } else { cores })
    }

    /// Creates a policy as [`Multilist::new`] does on a machine with this number of cores.
    pub fn with_cores(kind: MultilistKind, frames: u32, cores: u32) -> Self {
        Self::with_sublists(kind, frames, cores.max(MIN_SUBLISTS).min(frames / MIN_SUBLIST_FRAMES))
    }

    /// Creates a policy for frames `0 .. frames` with this number of sublists, at least one.
    pub fn with_sublists(kind: MultilistKind, frames: u32, sublists: u32) -> Self {
        let sublists = sublists.max(1);
        Self {
            kind,
            frames: i64::from(frames),
            links: Links::new(frames, sublists * ENDS),
            sublists: (0..sublists)
                .map(|_| CachePadded::new(Latch::new(&POLICY, Sublist::default())))
                .collect(),
            pages: (0..frames).map(|_| AtomicU64::new(NO_PAGE)).collect(),
            states: (0..frames).map(|_| AtomicU8::new(MRU)).collect(),
            sizes: Default::default(),
            ghost_sizes: Default::default(),
            p: CachePadded::new(AtomicI64::new(0)),
            draws: CachePadded::new(AtomicU32::new(0)),
        }
    }

    /// Returns the number of the page's sublist, from 0: hits on the page take the latch of that
    /// sublist.
    pub fn sublist_of(&self, page: PageId) -> u32 {
        // The upper half of the hash, scaled: even for any number of sublists.
        let hash = page.hash_bits() >> 32;
        ((hash * self.sublists.len() as u64) >> 32) as u32
    }

    fn list(sublist: u32, state: u8) -> ListId {
        ListId(sublist * ENDS + u32::from(state))
    }

    fn page(&self, frame: u32) -> u64 {
        self.pages[frame as usize].load(Relaxed)
    }

    /// Returns all sublists in turn, with a different start each time (Knuth, The Art of Computer
    /// Programming 3, 6.4).
    fn in_turn(&self) -> impl Iterator<Item = u32> {
        let draw = u64::from(self.draws.fetch_add(1, Relaxed).wrapping_mul(0x9e37_79b9));
        let count = self.sublists.len() as u64;
        (0..count).map(move |next| (((draw * count) >> 32) + next) as u32 % count as u32)
    }

    fn lock(&self, sublist: u32) -> LatchGuard<'_, Sublist> {
        self.sublists[sublist as usize].lock()
    }

    /// Inserts a frame at the head of a state's list. Needs the sublist's latch, as do the methods
    /// below.
    fn enter(&self, sublist: u32, state: u8, frame: u32) {
        self.states[frame as usize].store(state, Relaxed);
        self.links.push_front(Self::list(sublist, state), frame);
        self.sizes[usize::from(state)].fetch_add(1, Relaxed);
    }

    fn leave(&self, frame: u32) -> u8 {
        let state = self.states[frame as usize].load(Relaxed);
        if self.links.remove(frame) {
            self.sizes[usize::from(state)].fetch_sub(1, Relaxed);
        }
        state
    }

    /// Evicts the frame's page.
    fn evict_page(&self, sublist: &mut Sublist, frame: u32) {
        let page = self.pages[frame as usize].swap(NO_PAGE, Relaxed);
        let state = self.leave(frame);
        if self.kind == MultilistKind::Arc {
            sublist.ghosts[usize::from(state)].push(PageId::from_u64(page));
            self.ghost_sizes[usize::from(state)].fetch_add(1, Relaxed);
        }
    }

    /// `arc_adapt`: moves `p`, because a page that was evicted from this state is read again.
    fn adapt(&self, state: u8) {
        let ghosts = self.ghost_sizes.each_ref().map(|size| size.load(Relaxed).max(1));
        let (own, other) = (ghosts[usize::from(state)], ghosts[usize::from(1 - state)]);
        let step = if own >= other { 1 } else { other / own };
        let towards = if state == MRU { step } else { -step };
        let moved = |p: i64| Some((p + towards).clamp(0, self.frames));
        let _always = self.p.fetch_update(Relaxed, Relaxed, moved);
    }

    /// Adapts `p` if the page is a ghost for which `p` was not adapted yet.
    fn learn(&self, page: PageId) {
        let at = self.sublist_of(page);
        let mut sublist = self.lock(at);
        let back =
            [MRU, MFU].into_iter().find(|state| sublist.ghosts[usize::from(*state)].learn(page));
        drop(sublist);
        if let Some(state) = back {
            self.adapt(state);
        }
    }

    /// Proposes the frames of a state from the tails of its sublists.
    fn evict_from(
        &self,
        state: u8,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> ControlFlow<Option<FrameId>> {
        for at in self.in_turn() {
            let mut sublist = self.lock(at);
            let mut next = self.links.back(Self::list(at, state));
            while let Some(frame) = next {
                next = self.links.prev(frame);
                match probe(FrameId(frame)) {
                    Probe::Take => {
                        self.evict_page(&mut sublist, frame);
                        return ControlFlow::Break(Some(FrameId(frame)));
                    }
                    Probe::Skip => {}
                    Probe::Stop => return ControlFlow::Break(None),
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// `arc_adjust` for the ghosts: drops ghosts beyond the limits.
    fn forget(&self) {
        let size =
            |of: &[CachePadded<AtomicI64>; 2], state: u8| of[usize::from(state)].load(Relaxed);
        while size(&self.sizes, MRU) + size(&self.ghost_sizes, MRU) > self.frames {
            if !self.forget_one(MRU) {
                break;
            }
        }
        while size(&self.ghost_sizes, MRU) + size(&self.ghost_sizes, MFU) > self.frames {
            if !self.forget_one(MFU) && !self.forget_one(MRU) {
                break;
            }
        }
    }

    fn forget_one(&self, state: u8) -> bool {
        let popped = self.in_turn().any(|at| self.lock(at).ghosts[usize::from(state)].pop());
        if popped {
            self.ghost_sizes[usize::from(state)].fetch_sub(1, Relaxed);
        }
        popped
    }

    /// Checks the invariants while no other thread uses the policy, for tests.
    pub fn validate(&self) -> Result<(), String> {
        self.links.validate()?;
        let mut sizes = [0; 2];
        for at in 0..self.sublists.len() as u32 {
            for state in [MRU, MFU] {
                let mut next = self.links.front(Self::list(at, state));
                while let Some(frame) = next {
                    let page = self.page(frame);
                    if page == NO_PAGE || self.sublist_of(PageId::from_u64(page)) != at {
                        return Err(format!(
                            "frame {frame} is in sublist {at}, which is not its page's"
                        ));
                    }
                    sizes[usize::from(state)] += 1;
                    next = self.links.next(frame);
                }
            }
        }
        let ghosts = [MRU, MFU].map(|state| {
            let of = |at| self.lock(at).ghosts[usize::from(state)].len() as i64;
            (0..self.sublists.len() as u32).map(of).sum::<i64>()
        });
        let (recorded, recorded_ghosts) = (
            self.sizes.each_ref().map(|n| n.load(Relaxed)),
            self.ghost_sizes.each_ref().map(|n| n.load(Relaxed)),
        );
        if (recorded, recorded_ghosts) != (sizes, ghosts) {
            return Err(format!(
                "sizes are {sizes:?} and {ghosts:?}, not {recorded:?} and {recorded_ghosts:?}"
            ));
        }
        let forgotten = sizes[0] + ghosts[0] <= self.frames && ghosts[0] + ghosts[1] <= self.frames;
        if forgotten { Ok(()) } else { Err(format!("too many ghosts: {ghosts:?}")) }
    }
}

impl Replacement for Multilist {
    fn hit(&self, frame: FrameId, page: PageId) {
        let at = self.sublist_of(page);
        let _sublist = self.lock(at);
        if self.page(frame.0) == page.to_u64() {
            self.leave(frame.0);
            self.enter(at, if self.kind == MultilistKind::Arc { MFU } else { MRU }, frame.0);
        }
    }

    fn miss(&self, frame: FrameId, page: PageId) {
        let at = self.sublist_of(page);
        let mut sublist = self.lock(at);
        let mut back = |state: u8| {
            sublist.ghosts[usize::from(state)].remove(page).map(|learned| (state, learned))
        };
        let ghost = back(MRU).or_else(|| back(MFU));
        self.pages[frame.0 as usize].store(page.to_u64(), Relaxed);
        self.enter(at, if ghost.is_some() { MFU } else { MRU }, frame.0);
        drop(sublist);
        if let Some((state, learned)) = ghost {
            if !learned {
                self.adapt(state);
            }
            self.ghost_sizes[usize::from(state)].fetch_sub(1, Relaxed);
        }
        if self.kind == MultilistKind::Arc {
            self.forget();
        }
    }

    fn evict(
        &self,
        incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        if let (MultilistKind::Arc, Some(page)) = (self.kind, incoming) {
            self.learn(page);
        }
        let first = if self.kind == MultilistKind::Arc
            && self.sizes[0].load(Relaxed) <= self.p.load(Relaxed)
        {
            MFU
        } else {
            MRU
        };
        let mut evict = self.evict_from(first, probe);
        if evict.is_continue() {
            evict = self.evict_from(1 - first, probe);
        }
        let taken = evict.break_value().flatten();
        if self.kind == MultilistKind::Arc {
            self.forget();
        }
        taken
    }

    fn remove(&self, frame: FrameId, take: &mut dyn FnMut() -> bool) {
        let page = self.page(frame.0);
        if page == NO_PAGE {
            take();
            return;
        }
        let mut sublist = self.lock(self.sublist_of(PageId::from_u64(page)));
        // If the frame received another page meanwhile, another thread has evicted this one.
        if self.page(frame.0) == page && take() {
            self.evict_page(&mut sublist, frame.0);
        }
        drop(sublist);
        if self.kind == MultilistKind::Arc {
            self.forget();
        }
    }
}
