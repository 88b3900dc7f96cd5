//! The memory that a hit touches, so that a wrapper can prefetch it before it takes the policy's
//! latch.
//!
//! A footprint consists of addresses only. Nothing is read through them, so it is harmless if the
//! memory changes, moves or is freed. Links are read as atomics, and only to compute further
//! addresses.
//!
//! # Source
//! The prefetching of BP-Wrapper (Ding, Jiang, Zhang, ICDE 2009), which reads the list neighbours
//! of each queued node and of the end that it moves to.

use super::list::{Links, ListId, Lists};
use super::uses::Uses;
use clearway_latch::prefetch;
use std::sync::Arc;

/// The memory that a hit on a frame touches; empty by default.
#[derive(Default)]
pub struct Footprint {
    /// Address and size of the first element of each array with one element per frame.
    arrays: Vec<(usize, usize)>,
    /// Links, and the ends of the lists that a hit moves frames to.
    links: Vec<(Arc<Links>, Vec<u32>)>,
}

impl Footprint {
    /// Adds the frame's element of this array, which has one element per frame.
    pub fn array<T>(mut self, elements: &[T]) -> Self {
        self.arrays.push((elements.as_ptr().addr(), size_of::<T>()));
        self
    }

    /// Adds the frame's count.
    pub(super) fn uses(mut self, uses: &dyn Uses) -> Self {
        self.arrays.push(uses.place());
        self
    }

    /// Adds the links of the frame and of its neighbours in these lists, whose first nodes are the
    /// frames. Also adds the links of the ends of the lists `to`, which a hit may move the frame
    /// to, and of their front nodes.
    pub fn lists(mut self, lists: &Lists, to: impl IntoIterator<Item = ListId>) -> Self {
        let links = lists.links();
        let ends = to.into_iter().map(|list| links.end(list)).collect();
        self.links.push((links, ends));
        self
    }

    /// Prefetches first the frames' own elements and links, then those of their neighbours, so that
    /// the former have time to arrive.
    pub fn prefetch(&self, frames: impl Iterator<Item = u32> + Clone) {
        self.visit(frames, prefetch);
    }

    fn visit(&self, frames: impl Iterator<Item = u32> + Clone, mut touch: impl FnMut(usize)) {
        for frame in frames.clone() {
            for (first, size) in &self.arrays {
                touch(first.wrapping_add(size.wrapping_mul(frame as usize)));
            }
            for (links, _) in &self.links {
                links.places(frame).into_iter().for_each(&mut touch);
            }
        }
        for (links, ends) in &self.links {
            ends.iter().flat_map(|end| links.places(*end)).for_each(&mut touch);
            let neighbours = frames.clone().flat_map(|frame| links.neighbours(frame)).flatten();
            let fronts = ends.iter().filter_map(|end| links.neighbours(*end)[0]);
            neighbours.chain(fronts).flat_map(|node| links.places(node)).for_each(&mut touch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::queues::Queues;
    use super::*;
    use std::collections::BTreeSet;

    const FROM: ListId = ListId(0);
    const TO: ListId = ListId(1);

    #[test]
    fn footprint_has_all_links_that_a_move_changes() {
        const NODES: u32 = 5;
        for (in_from, in_to) in (0..NODES).flat_map(|n| (0..NODES - n).map(move |m| (n + 1, m))) {
            for moved in 0..in_from {
                let mut queues = Queues::new(NODES + 1, 3);
                (0..in_from).for_each(|node| queues.push_front(FROM, node));
                (in_from..in_from + in_to).for_each(|node| queues.push_front(TO, node));
                let mut touched = BTreeSet::new();
                queues
                    .footprint([TO])
                    .visit(std::iter::once(moved), |address| _ = touched.insert(address));
                let links = queues.links();
                let all = || {
                    (0..NODES + 4)
                        .flat_map(|at| links.places(at).into_iter().zip(links.neighbours(at)))
                };
                let before: Vec<_> = all().collect();
                queues.move_to_front(TO, moved);
                let changed: Vec<_> = before
                    .into_iter()
                    .zip(all())
                    .filter(|(before, after)| before != after)
                    .collect();
                assert!(
                    changed.len() >= 6
                        && changed.iter().all(|((address, _), _)| touched.contains(address))
                );
            }
        }
    }
}
