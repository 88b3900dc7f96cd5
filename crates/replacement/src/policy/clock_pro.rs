//! CLOCK-Pro: an approximation of LIRS that moves nothing on a hit.
//!
//! Pages are hot or cold. They are on one clock, together with the cold pages that were evicted
//! during their test period (ghosts). A hit sets a bit. A cold page that is used in its test period
//! becomes hot. The period ends when the least recently used hot page is examined, so that a page
//! must show the recency of the hot pages. There are three hands:
//!
//! - `HAND_cold` searches for a victim among the resident cold pages.
//! - `HAND_hot` searches for a hot page to make cold, and ends the test periods that it passes.
//! - `HAND_test` ends test periods when there are as many ghosts as frames.
//!
//! The number of frames for cold pages adapts: a page used in its test period adds one, a page that
//! was not used removes one.
//!
//! A hit costs one store, an eviction O(1) amortised: a hand passes a page once for each time that
//! it was used or put on the clock. Metadata: 17 bytes per frame, and 25 to 29 for its ghost.
//!
//! # Invariants
//! 1. The front of the clock is at `HAND_hot`, its back is the list head: a page that `HAND_hot`
//!    passes moves from the front to the back.
//! 2. A frame with a page is on the clock. So is a ghost, which is cold and in its test period.
//!    There are at most as many ghosts as frames.
//! 3. `HAND_cold` and `HAND_test` are at a node of the clock, or unset if it is empty.
//! 4. No page is both in a frame and a ghost.
//!
//! # Source
//! Jiang, Chen and Zhang: CLOCK-Pro: An effective improvement of the CLOCK replacement, USENIX
//! 2005. As in Jiang's program of September 2005, the first pages are hot, as many as there are
//! frames not reserved for cold pages. If all cold pages are pinned, hot ones are proposed.

use super::directory::Directory;
use super::list::{ListId, Lists};
use super::{Footprint, Policy, Probe, ensure, propose};
use clearway_types::{FrameId, PageId};

const CLOCK: ListId = ListId(0);

/// The state of a node. A node that is on the clock and not hot is cold.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Bits(u8);

impl Bits {
    const USED: u8 = 1;
    const HOT: u8 = 2;
    const TEST: u8 = 4;

    fn has(self, bit: u8) -> bool {
        self.0 & bit != 0
    }
}

/// Hot and cold pages on a clock with three hands.
pub struct ClockPro {
    clock: Lists,
    bits: Vec<Bits>,
    pages: Directory,
    /// The node that the hand examines next.
    hand_cold: Option<u32>,
    hand_test: Option<u32>,
    hot: u32,
    cold: u32,
    /// The number of frames for cold pages.
    cold_target: u32,
    min_cold: u32,
    /// True until the first page is evicted.
    filling: bool,
}

impl ClockPro {
    /// Creates a policy for frames `0 .. frames`, at least 1 % of them for cold pages.
    pub fn new(frames: u32) -> Self {
        Self::with(frames, (frames / 100).max(1))
    }

    /// Creates a policy with at least `min_cold` frames for cold pages, which is also the initial
    /// number.
    pub fn with(frames: u32, min_cold: u32) -> Self {
        assert!(
            (1..=frames).contains(&min_cold),
            "the minimum for cold pages is between 1 and the number of frames"
        );
        let pages = Directory::new(frames, frames);
        Self {
            clock: Lists::new(pages.nodes(), 1),
            bits: vec![Bits::default(); pages.nodes() as usize],
            pages,
            hand_cold: None,
            hand_test: None,
            hot: 0,
            cold: 0,
            cold_target: min_cold,
            min_cold,
            filling: true,
        }
    }

    fn frames(&self) -> u32 {
        self.pages.nodes() / 2
    }

    fn is_ghost(&self, node: u32) -> bool {
        node >= self.frames()
    }

    fn has(&self, node: u32, bit: u8) -> bool {
        self.bits[node as usize].has(bit)
    }

    /// Returns the next node on the clock; the node itself if it is the only one.
    fn after(&self, node: u32) -> Option<u32> {
        self.clock.next(node).or(self.clock.front(CLOCK))
    }

    /// Removes a node from the clock. Hands that are at it move to the next node.
    fn unlink(&mut self, node: u32) {
        if !self.clock.is_linked(node) {
            return;
        }
        let next = self.after(node).filter(|next| *next != node);
        for hand in [&mut self.hand_cold, &mut self.hand_test] {
            if *hand == Some(node) {
                *hand = next;
            }
        }
        self.clock.remove(node);
    }

    /// Inserts a node at the list head with the given bits. Unset hands move to it.
    fn put_at_head(&mut self, node: u32, bits: u8) {
        self.unlink(node);
        self.bits[node as usize] = Bits(bits);
        self.clock.push_back(CLOCK, node);
        self.hand_cold.get_or_insert(node);
        self.hand_test.get_or_insert(node);
    }

    /// Moves `HAND_hot` past the front node and sets the node's bits. Other hands at the node stay.
    fn pass_front(&mut self, node: u32, bits: u8) {
        self.bits[node as usize] = Bits(bits);
        self.clock.remove(node);
        self.clock.push_back(CLOCK, node);
    }

    fn forget(&mut self, ghost: u32) {
        self.unlink(ghost);
        self.pages.forget(ghost);
    }

    /// Ends the test period of a cold page, if it is in one. A ghost is forgotten.
    fn end_test(&mut self, node: u32) {
        if !self.has(node, Bits::TEST) {
            return;
        }
        if !self.has(node, Bits::USED) {
            self.cold_target = self.cold_target.saturating_sub(1).max(self.min_cold);
        }
        self.bits[node as usize].0 &= !Bits::TEST;
        if self.is_ghost(node) {
            self.forget(node);
        }
    }

    /// Makes a cold page hot that was used in its test period, and makes hot pages cold while there
    /// are too many. The page is added to the clock, or moves to its list head.
    fn promote(&mut self, frame: u32) {
        self.cold_target = (self.cold_target + 1).min(self.frames());
        self.put_at_head(frame, Bits::HOT);
        self.hot += 1;
        while self.hot > self.frames() - self.cold_target {
            self.run_hand_hot();
        }
    }

    /// Makes a hot page cold that was not used since the hand last passed it, and moves on to the
    /// next hot page. There must be a hot page.
    fn run_hand_hot(&mut self) {
        let hot = self.hot;
        while let Some(node) = self.clock.front(CLOCK)
            && (self.hot == hot || self.hot > 0 && !self.has(node, Bits::HOT))
        {
            if !self.has(node, Bits::HOT) {
                self.end_test(node);
                if self.clock.is_linked(node) {
                    self.pass_front(node, self.bits[node as usize].0);
                }
            } else if self.has(node, Bits::USED) {
                self.pass_front(node, Bits::HOT);
            } else {
                self.pass_front(node, 0);
                self.hot -= 1;
                self.cold += 1;
            }
        }
    }

    /// Ends test periods until that of a ghost has ended. There must be a ghost.
    fn run_hand_test(&mut self) {
        let ghosts = self.pages.ghosts();
        while self.pages.ghosts() == ghosts {
            let node = self.hand_test.expect("a ghost is on the clock");
            self.hand_test = self.after(node);
            self.end_test(node);
        }
    }

    /// Removes an evicted page from its frame. A ghost replaces it if it is in its test period.
    fn leave(&mut self, frame: u32) {
        if !self.clock.is_linked(frame) {
            return;
        }
        self.filling = false;
        if self.has(frame, Bits::HOT) {
            self.hot -= 1;
            return self.unlink(frame);
        }
        self.cold -= 1;
        if self.has(frame, Bits::TEST) && self.pages.is_full() {
            self.run_hand_test();
        }
        // The hand may have ended the test period of this page, too.
        if self.has(frame, Bits::TEST) {
            let ghost = self.pages.retire(frame);
            self.bits[ghost as usize] = Bits(Bits::TEST);
            for hand in [&mut self.hand_cold, &mut self.hand_test] {
                if *hand == Some(frame) {
                    *hand = Some(ghost);
                }
            }
            self.clock.replace(frame, ghost);
        } else {
            self.unlink(frame);
        }
    }

    /// Moves `HAND_cold` past the next resident cold page and returns it. There must be one.
    fn next_cold(&mut self) -> u32 {
        loop {
            let node = self.hand_cold.expect("a cold page is on the clock");
            self.hand_cold = self.after(node);
            if !self.is_ghost(node) && !self.has(node, Bits::HOT) {
                return node;
            }
        }
    }
}

impl Policy for ClockPro {
    fn hit(&mut self, frame: FrameId) {
        self.bits[frame.0 as usize].0 |= Bits::USED;
    }

    fn miss(&mut self, frame: FrameId, page: PageId) {
        self.pages.set(frame.0, page);
        if let Some(ghost) = self.pages.ghost(page) {
            self.forget(ghost);
            self.promote(frame.0);
        } else if self.filling && self.hot < self.frames() - self.cold_target {
            self.put_at_head(frame.0, Bits::HOT);
            self.hot += 1;
        } else {
            self.put_at_head(frame.0, Bits::TEST);
            self.cold += 1;
        }
    }

    fn evict(
        &mut self,
        _incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        let mut skipped = 0;
        while skipped < self.cold || self.cold == 0 && self.hot > 0 && skipped == 0 {
            if self.cold == 0 {
                self.run_hand_hot();
            }
            let frame = self.next_cold();
            if self.has(frame, Bits::USED) {
                skipped = 0;
                if self.has(frame, Bits::TEST) {
                    self.cold -= 1;
                    self.promote(frame);
                } else {
                    self.put_at_head(frame, Bits::TEST);
                }
                continue;
            }
            match probe(FrameId(frame)) {
                Probe::Take => {
                    self.leave(frame);
                    return Some(FrameId(frame));
                }
                Probe::Skip => skipped += 1,
                Probe::Stop => return None,
            }
        }
        let hot = self.clock.iter(CLOCK).filter(|node| self.has(*node, Bits::HOT));
        let victim = propose(hot, probe).break_value()??;
        self.leave(victim.0);
        Some(victim)
    }

    fn remove(&mut self, frame: FrameId) {
        self.leave(frame.0);
    }

    fn footprint(&self) -> Footprint {
        Footprint::default().array(&self.bits)
    }

    fn validate(&self) -> Result<(), String> {
        self.clock.validate()?;
        self.pages.validate()?;
        let (mut hot, mut cold, mut ghosts) = (0, 0, 0);
        for node in self.clock.iter(CLOCK) {
            let is_hot = self.has(node, Bits::HOT);
            if self.is_ghost(node) {
                ghosts += 1;
                let bits = self.bits[node as usize];
                ensure(bits == Bits(Bits::TEST), || {
                    format!("ghost {node} has the bits {}", bits.0)
                })?;
                continue;
            }
            hot += u32::from(is_hot);
            cold += u32::from(!is_hot);
            ensure(!is_hot || !self.has(node, Bits::TEST), || {
                format!("frame {node} is hot and in a test period")
            })?;
            ensure(self.pages.ghost(self.pages.page(node)).is_none(), || {
                format!("the page of frame {node} is a ghost")
            })?;
        }
        let counted = (self.hot, self.cold, self.pages.ghosts());
        ensure((hot, cold, ghosts) == counted, || {
            format!("{hot} hot, {cold} cold, {ghosts} ghosts; not {counted:?}")
        })?;
        let target = self.cold_target;
        ensure((self.min_cold..=self.frames()).contains(&target), || {
            format!("{target} frames for cold pages")
        })?;
        let empty = self.clock.front(CLOCK).is_none();
        let on_clock = |hand: Option<u32>| hand.map_or(empty, |node| self.clock.is_linked(node));
        ensure(on_clock(self.hand_cold) && on_clock(self.hand_test), || {
            "a hand is at a node that is not on the clock".into()
        })
    }
}
