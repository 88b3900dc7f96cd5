//! What a hit touches, told by a policy so that it can be brought into the cache before the policy's latch is asked for.
//!
//! Addresses only: nothing is read through them, so that it does no harm when what they lead to changes, moves or is gone. Links are read,
//! as the atomics that they are, and only followed to further addresses.
//!
//! Source: the prefetching of BP-Wrapper (Ding, Jiang, Zhang, ICDE 2009), which reads the list neighbours of each queued node and of the end
//! that they move to.

use super::list::{Links, ListId, Lists};
use super::uses::Uses;
use std::sync::Arc;

/// What a hit on a frame touches. The default is nothing.
#[derive(Default)]
pub struct Footprint {
    /// Address and size of the first element of arrays with an element a frame.
    arrays: Vec<(usize, usize)>,
    links: Vec<Arc<Links>>,
}

impl Footprint {
    /// And the frame's element in this array, which has one for each.
    pub fn array<T>(mut self, elements: &[T]) -> Self {
        self.arrays.push((elements.as_ptr().addr(), size_of::<T>()));
        self
    }

    /// And the frame's count.
    pub(super) fn uses(mut self, uses: &dyn Uses) -> Self {
        self.arrays.push(uses.place());
        self
    }

    /// And the links of the frame in these lists, whose nodes from 0 on are the frames; those of its neighbours; those of the ends of the lists.
    pub fn lists(mut self, lists: &Lists) -> Self {
        self.links.push(lists.links());
        self
    }

    /// Asks for the lines of each frame's own elements and links, then for those of its neighbours, by when the former have had time to come.
    pub fn prefetch(&self, frames: impl Iterator<Item = u32> + Clone) {
        for frame in frames.clone() {
            for (first, size) in &self.arrays {
                prefetch(first.wrapping_add(size.wrapping_mul(frame as usize)));
            }
            for links in &self.links {
                links.places(frame).into_iter().for_each(prefetch);
            }
        }
        for links in &self.links {
            for neighbour in frames.clone().flat_map(|frame| links.neighbours(frame)).flatten() {
                links.places(neighbour).into_iter().for_each(prefetch);
            }
            links.places(links.end(ListId(0))).into_iter().for_each(prefetch);
        }
    }
}

/// Asks the processor for the cache line of an address, whatever is there; nothing where we know no instruction for it.
#[inline(always)]
pub(crate) fn prefetch(address: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint, which faults at no address and changes nothing that a program can read.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri))]
    let _ = address;
}
