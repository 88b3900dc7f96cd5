//! 2Q: keeps a page only if it is requested again after it was evicted.
//!
//! A new page passes through a FIFO, `A1in`. A use of a page there changes nothing, since uses
//! close together count once (correlated references). A page evicted from `A1in` is remembered,
//! without its content, in `A1out`. A page that is requested while it is in `A1out` enters `Am`, an
//! LRU list.
//!
//! A use costs O(1). Metadata: 17 bytes per frame, and 25 to 29 for half a ghost.
//!
//! # Invariants
//! 1. A frame with a page is in `A1in` or in `Am`, a ghost is in `A1out`.
//! 2. `A1out` holds at most `Kout` pages. Exception: one more from the eviction for one of its
//!    pages until that page's miss.
//! 3. No page is both in a frame and in `A1out`.
//!
//! # Source
//! Johnson and Shasha: 2Q: A low overhead high performance buffer management replacement algorithm,
//! VLDB 1994, the full version.

use super::directory::Directory;
use super::list::ListId;
use super::queues::Queues;
use super::{Footprint, Policy, Probe, ensure, propose};
use clearway_types::{FrameId, PageId};

const A1IN: ListId = ListId(0);
const AM: ListId = ListId(1);
const A1OUT: ListId = ListId(2);

/// The full version of 2Q.
pub struct TwoQ {
    /// Most recent first.
    queues: Queues,
    pages: Directory,
    kin: u32,
    kout: u32,
}

impl TwoQ {
    /// Creates a policy for frames `0 .. frames` with the paper's parameters: `Kin` a quarter of
    /// the frames, `Kout` half of them.
    pub fn new(frames: u32) -> Self {
        Self::with(frames, frames / 4, (frames / 2).max(1))
    }

    /// Creates a policy that evicts from `A1in` first once that has more than `kin` pages, and
    /// remembers `kout` pages, at least one.
    pub fn with(frames: u32, kin: u32, kout: u32) -> Self {
        assert!(kout > 0, "A1out has at least one place");
        let pages = Directory::new(frames, kout + 1);
        Self { queues: Queues::new(pages.nodes(), 3), pages, kin, kout }
    }

    /// Removes an evicted page from its frame, and remembers it if it was in `A1in`. Keeps the
    /// ghost `incoming`, whose page is about to be read.
    fn leave(&mut self, frame: FrameId, incoming: Option<u32>) {
        if self.queues.remove(frame.0) != Some(A1IN) {
            return;
        }
        while self.queues.len(A1OUT) > self.kout - 1 + u32::from(incoming.is_some()) {
            let oldest = self.queues.iter_back(A1OUT).find(|ghost| Some(*ghost) != incoming);
            self.forget(oldest.expect("there is a ghost besides the incoming page's"));
        }
        let ghost = self.pages.retire(frame.0);
        self.queues.push_front(A1OUT, ghost);
    }

    fn forget(&mut self, ghost: u32) {
        self.queues.remove(ghost);
        self.pages.forget(ghost);
    }
}

impl Policy for TwoQ {
    fn hit(&mut self, frame: FrameId) {
        if self.queues.list_of(frame.0) == Some(AM) {
            self.queues.move_to_front(AM, frame.0);
        }
    }

    fn miss(&mut self, frame: FrameId, page: PageId) {
        self.pages.set(frame.0, page);
        match self.pages.ghost(page) {
            Some(ghost) => {
                self.forget(ghost);
                self.queues.push_front(AM, frame.0);
            }
            None => self.queues.push_front(A1IN, frame.0),
        }
    }

    fn evict(
        &mut self,
        incoming: Option<PageId>,
        probe: &mut dyn FnMut(FrameId) -> Probe,
    ) -> Option<FrameId> {
        let order = if self.queues.len(A1IN) > self.kin { [A1IN, AM] } else { [AM, A1IN] };
        let frames = order.into_iter().flat_map(|list| self.queues.iter_back(list));
        let victim = propose(frames, probe).break_value()??;
        self.leave(victim, incoming.and_then(|page| self.pages.ghost(page)));
        Some(victim)
    }

    fn remove(&mut self, frame: FrameId) {
        self.leave(frame, None);
    }

    fn footprint(&self) -> Footprint {
        self.queues.footprint([AM])
    }

    fn validate(&self) -> Result<(), String> {
        self.queues.validate()?;
        self.pages.validate()?;
        let ghosts = self.queues.len(A1OUT);
        ensure(ghosts == self.pages.ghosts() && ghosts <= self.kout + 1, || {
            format!("{ghosts} ghosts, Kout {}", self.kout)
        })?;
        for frame in [A1IN, AM].into_iter().flat_map(|list| self.queues.iter(list)) {
            ensure(self.pages.ghost(self.pages.page(frame)).is_none(), || {
                format!("the page of frame {frame} is a ghost")
            })?;
        }
        Ok(())
    }
}
