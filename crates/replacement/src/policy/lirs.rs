//! LIRS: keeps the pages whose last two uses were close together, compared with the other resident
//! pages.
//!
//! Most frames hold pages of low inter-reference recency (LIR), the others hold pages of high
//! recency (HIR). The stack `S` has pages in the order of last use, down to the least recently used
//! LIR page. A HIR page that is used while it is in `S` was used more recently than that LIR page,
//! and replaces it. `S` also remembers evicted HIR pages. Victims are HIR pages, in the order of
//! the queue `Q`.
//!
//! Two consecutive uses of a page count once, as in the authors' program. That program fills its
//! cache only once. Here, frames are freed ahead of need and pages are also removed, so there may
//! be fewer LIR pages than their bound. In that case, a HIR page that is used again becomes LIR
//! without demoting another page. If there is no LIR page at all, `S` keeps its pages.
//!
//! A use costs O(1) amortised: pruning removes each entry of `S` at most once. Metadata: 25 bytes
//! per frame, and 33 to 37 for each of at most five ghosts per frame.
//!
//! # Invariants
//! 1. A LIR page is only in `S`, a resident HIR page in `Q` and possibly in `S`, a ghost in `S` and
//!    in the list of ghosts.
//! 2. The bottom of `S` is a LIR page, if there is one.
//! 3. LIR pages and ghosts do not exceed their bounds. Exception: one more ghost exists from the
//!    eviction for a ghost's page until that page's miss.
//! 4. No page is both in a frame and a ghost.
//!
//! # Source
//! Jiang and Zhang: LIRS: An efficient low inter-reference recency set replacement policy to
//! improve buffer cache performance, SIGMETRICS 2002, and Jiang's program of November 2002.

use super::directory::Directory;
use super::list::{ListId, Lists};
use super::queues::Queues;
use super::{Footprint, Policy, Probe, ensure, propose};
use clearway_types::{FrameId, PageId};

/// The only list of `stack`, most recently used first.
const S: ListId = ListId(0);
/// The resident HIR pages; victims are taken from the back.
const Q: ListId = ListId(0);
/// Evicted HIR pages, the latest first.
const GHOSTS: ListId = ListId(1);

/// The authors' program limits `S` to 2500 times the frames, which is effectively no limit. Their
/// published results need less than this.
const GHOSTS_PER_FRAME: u32 = 5;

/// Low inter-reference recency set.
pub struct Lirs {
    stack: Lists,
    queues: Queues,
    pages: Directory,
    lir: u32,
    max_lir: u32,
    max_ghosts: u32,
    /// True until the first page is evicted: until then, new pages become LIR up to the bound.
    filling: bool,
}

impl Lirs {
    /// Creates a policy for frames `0 .. frames` with the parameters of the authors' program: 1 %
    /// of the frames for HIR pages, at least two. Unlike there, at most half.
    pub fn new(frames: u32) -> Self {
        Self::with(
            frames,
            (frames / 100).max(2).min(frames / 2),
            frames.saturating_mul(GHOSTS_PER_FRAME),
        )
    }

    /// Creates a policy with `hir` frames for HIR pages, fewer than all, that remembers at most
    /// `max_ghosts` evicted pages.
    pub fn with(frames: u32, hir: u32, max_ghosts: u32) -> Self {
        assert!(hir < frames, "LIR pages need frames");
        let pages = Directory::new(frames, max_ghosts + 1);
        Self {
            stack: Lists::new(pages.nodes(), 1),
            queues: Queues::new(pages.nodes(), 2),
            pages,
            lir: 0,
            max_lir: frames - hir,
            max_ghosts,
            filling: true,
        }
    }

    fn is_lir(&self, node: u32) -> bool {
        self.stack.is_linked(node) && self.queues.list_of(node).is_none()
    }

    /// Makes the page at the top of `S` LIR. If there are too many LIR pages, the one at the bottom
    /// becomes HIR.
    fn promote(&mut self) {
        self.lir += 1;
        if self.lir > self.max_lir {
            let bottom = self.stack.back(S).expect("LIR pages are in S");
            self.stack.remove(bottom);
            self.queues.push_front(Q, bottom);
            self.lir -= 1;
        }
        self.prune();
    }

    /// Removes HIR pages from the bottom of `S` until a LIR page is there.
    fn prune(&mut self) {
        while let Some(bottom) = self.stack.back(S)
            && self.lir > 0
            && let Some(list) = self.queues.list_of(bottom)
        {
            if list == GHOSTS {
                self.forget(bottom);
            } else {
                self.stack.remove(bottom);
            }
        }
    }

    fn forget(&mut self, ghost: u32) {
        self.stack.remove(ghost);
        self.queues.remove(ghost);
        self.pages.forget(ghost);
    }

    /// Removes an evicted page from its frame. A ghost replaces it in `S` if it is HIR and in `S`.
    /// Keeps the ghost `incoming`, whose page is about to be read.
    fn leave(&mut self, frame: FrameId, incoming: Option<u32>) {
        self.filling = false;
        if self.is_lir(frame.0) {
            self.stack.remove(frame.0);
            self.lir -= 1;
            return self.prune();
        }
        if self.queues.remove(frame.0).is_none() || !self.stack.is_linked(frame.0) {
            return;
        }
        while self.queues.len(GHOSTS)
            > self.max_ghosts.saturating_sub(1) + u32::from(incoming.is_some())
        {
            let oldest = self.queues.iter_back(GHOSTS).find(|ghost| Some(*ghost) != incoming);
            self.forget(oldest.expect("there is a ghost besides the incoming page's"));
        }
        let ghost = self.pages.retire(frame.0);
        self.stack.replace(frame.0, ghost);
        self.queues.push_front(GHOSTS, ghost);
    }
}

impl Policy for Lirs {
    fn hit(&mut self, frame: FrameId) {
        if self.stack.front(S) == Some(frame.0) {
            return;
        }
        let (hir, stacked) = (self.queues.remove(frame.0).is_some(), self.stack.remove(frame.0));
        if hir || stacked {
            self.stack.push_front(S, frame.0);
        }
        match (hir, stacked) {
            (true, true) => self.promote(),
            (true, false) => self.queues.push_front(Q, frame.0),
            (false, _) => self.prune(),
        }
    }

    fn miss(&mut self, frame: FrameId, page: PageId) {
        self.pages.set(frame.0, page);
        let ghost = self.pages.ghost(page);
        self.stack.push_front(S, frame.0);
        if let Some(ghost) = ghost {
            self.forget(ghost);
        }
        if ghost.is_some() || self.filling && self.lir < self.max_lir {
            self.promote();
        } else {
            self.queues.push_front(Q, frame.0);
        }
    }

    /// Offers LIR pages from the bottom of `S` if no HIR page can be taken.
    fn evict(
        &mut self,
        incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        let lir = self.stack.iter_back(S).filter(|node| self.queues.list_of(*node).is_none());
        let victim = propose(self.queues.iter_back(Q).chain(lir), probe).break_value()??;
        self.leave(victim, incoming.and_then(|page| self.pages.ghost(page)));
        Some(victim)
    }

    fn remove(&mut self, frame: FrameId) {
        self.leave(frame, None);
    }

    fn footprint(&self) -> Footprint {
        self.queues.footprint([Q]).lists(&self.stack, [S])
    }

    fn validate(&self) -> Result<(), String> {
        self.stack.validate()?;
        self.queues.validate()?;
        self.pages.validate()?;
        let lir = self.stack.iter(S).filter(|node| self.is_lir(*node)).count() as u32;
        ensure(lir == self.lir && lir <= self.max_lir, || {
            format!("{lir} LIR pages, {} counted", self.lir)
        })?;
        let bottom = self.stack.back(S);
        ensure(lir == 0 || bottom.is_some_and(|node| self.is_lir(node)), || {
            format!("bottom of S: {bottom:?}")
        })?;
        let ghosts = self.queues.len(GHOSTS);
        ensure(ghosts == self.pages.ghosts() && ghosts <= self.max_ghosts + 1, || {
            format!("{ghosts} ghosts")
        })?;
        ensure(self.queues.iter(GHOSTS).all(|ghost| self.stack.is_linked(ghost)), || {
            "a ghost is not in S".into()
        })?;
        let lir = self.stack.iter(S).filter(|node| self.is_lir(*node));
        for frame in self.queues.iter(Q).chain(lir) {
            ensure(self.pages.ghost(self.pages.page(frame)).is_none(), || {
                format!("the page of frame {frame} is a ghost")
            })?;
        }
        Ok(())
    }
}
