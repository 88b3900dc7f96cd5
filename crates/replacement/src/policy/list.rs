//! Doubly linked lists whose nodes are numbers, in two arrays. Most policies keep their order in
//! them.
//!
//! A node is in at most one list. The policy decides which numbers are frames and which are ghosts;
//! a policy of `n` frames uses `0 .. n` for the frames. Nothing is allocated after construction.
//! Takes 8 bytes per node.
//!
//! # Invariants
//! 1. Every list is a ring of its nodes and its end. The end is a number beyond the nodes. `next`
//!    goes from front to back.
//! 2. A node in no list has `UNLINKED` in `next`.
//!
//! # Locking
//! None: a caller that changes lists has exclusive access. The links are relaxed atomics, so that
//! another thread may read them to prefetch the memory that they lead to ([`crate::Footprint`]). It
//! may see links of different moments. On x86-64 and aarch64 a relaxed access is a plain load or
//! store.

use super::ensure;
use std::sync::Arc;
// Plain std, also under a model checker: the links do not synchronise threads.
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

const UNLINKED: u32 = u32::MAX;

/// The links of several lists over one set of nodes. Two threads must not change the same lists
/// concurrently: links would be lost.
pub(crate) struct Links {
    next: Box<[AtomicU32]>,
    prev: Box<[AtomicU32]>,
    nodes: u32,
}

/// Several lists over one set of nodes.
pub struct Lists(Arc<Links>);

/// Identifies one of the lists by its number, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListId(pub u32);

// Relaxed throughout: see the module header.
impl Links {
    /// Creates `lists` empty lists over the nodes `0 .. nodes`.
    pub fn new(nodes: u32, lists: u32) -> Self {
        let links = || {
            (0..nodes + lists)
                .map(|at| AtomicU32::new(if at < nodes { UNLINKED } else { at }))
                .collect()
        };
        Self { next: links(), prev: links(), nodes }
    }

    #[inline]
    fn next_of(&self, at: u32) -> u32 {
        self.next[at as usize].load(Relaxed)
    }

    #[inline]
    fn prev_of(&self, at: u32) -> u32 {
        self.prev[at as usize].load(Relaxed)
    }

    #[inline]
    fn join(&self, prev: u32, next: u32) {
        self.next[prev as usize].store(next, Relaxed);
        self.prev[next as usize].store(prev, Relaxed);
    }

    #[inline]
    pub fn end(&self, list: ListId) -> u32 {
        self.nodes + list.0
    }

    #[inline]
    fn node(&self, at: u32) -> Option<u32> {
        (at < self.nodes).then_some(at)
    }

    pub fn is_linked(&self, node: u32) -> bool {
        self.next_of(node) != UNLINKED
    }

    pub fn front(&self, list: ListId) -> Option<u32> {
        self.node(self.next_of(self.end(list)))
    }

    pub fn back(&self, list: ListId) -> Option<u32> {
        self.node(self.prev_of(self.end(list)))
    }

    pub fn next(&self, node: u32) -> Option<u32> {
        self.node(self.next_of(node))
    }

    pub fn prev(&self, node: u32) -> Option<u32> {
        self.node(self.prev_of(node))
    }

    pub fn push_front(&self, list: ListId, node: u32) {
        let end = self.end(list);
        self.link(end, node, self.next_of(end));
    }

    pub fn push_back(&self, list: ListId, node: u32) {
        let end = self.end(list);
        self.link(self.prev_of(end), node, end);
    }

    pub fn remove(&self, node: u32) -> bool {
        let (prev, next) = (self.prev_of(node), self.next_of(node));
        if next == UNLINKED {
            return false;
        }
        self.join(prev, next);
        self.next[node as usize].store(UNLINKED, Relaxed);
        true
    }

    fn link(&self, prev: u32, node: u32, next: u32) {
        debug_assert!(!self.is_linked(node) && node < self.nodes);
        self.join(prev, node);
        self.join(node, next);
    }

    /// See [`Lists::validate`].
    pub fn validate(&self) -> Result<(), String> {
        let mut listed = 0;
        for end in self.nodes..self.next.len() as u32 {
            let mut at = end;
            loop {
                let next = self.next_of(at);
                ensure(next != UNLINKED && self.prev_of(next) == at, || {
                    format!("{at} and {next} disagree")
                })?;
                ensure(next < self.nodes || next == end, || {
                    format!("list {} runs into {next}", end - self.nodes)
                })?;
                at = next;
                if at == end {
                    break;
                }
                listed += 1;
            }
        }
        let linked = (0..self.nodes).filter(|node| self.is_linked(*node)).count();
        ensure(linked == listed, || format!("{linked} nodes are linked, {listed} are in lists"))
    }

    /// Returns the addresses of the node's links.
    pub fn places(&self, node: u32) -> [usize; 2] {
        [&self.next, &self.prev].map(|links| links.as_ptr().wrapping_add(node as usize).addr())
    }

    /// Returns the node's current neighbours: nodes, ends, or `UNLINKED`. Returns `None` for a
    /// number that is no node.
    pub fn neighbours(&self, node: u32) -> [Option<u32>; 2] {
        [&self.next, &self.prev]
            .map(|links| links.get(node as usize).map(|link| link.load(Relaxed)))
    }
}

impl Lists {
    /// Creates `lists` empty lists over the nodes `0 .. nodes`.
    pub fn new(nodes: u32, lists: u32) -> Self {
        Self(Arc::new(Links::new(nodes, lists)))
    }

    /// Returns true if the node is in a list.
    pub fn is_linked(&self, node: u32) -> bool {
        self.0.is_linked(node)
    }

    /// Returns the first node of the list.
    pub fn front(&self, list: ListId) -> Option<u32> {
        self.0.front(list)
    }

    /// Returns the last node of the list.
    pub fn back(&self, list: ListId) -> Option<u32> {
        self.0.back(list)
    }

    /// Returns the next node towards the back. `node` must be in a list.
    pub fn next(&self, node: u32) -> Option<u32> {
        self.0.next(node)
    }

    /// Returns the next node towards the front. `node` must be in a list.
    pub fn prev(&self, node: u32) -> Option<u32> {
        self.0.prev(node)
    }

    /// Inserts a node that is in no list at the front.
    pub fn push_front(&mut self, list: ListId, node: u32) {
        self.0.push_front(list, node);
    }

    /// Inserts a node that is in no list at the back.
    pub fn push_back(&mut self, list: ListId, node: u32) {
        self.0.push_back(list, node);
    }

    /// Removes the node from its list. Returns whether it was in one.
    pub fn remove(&mut self, node: u32) -> bool {
        self.0.remove(node)
    }

    /// Replaces `old` in its list by `new`, which is in no list.
    pub fn replace(&mut self, old: u32, new: u32) {
        let (prev, next) = (self.0.prev_of(old), self.0.next_of(old));
        self.0.remove(old);
        self.0.link(prev, new, next);
    }

    /// Returns the nodes of the list from front to back.
    pub fn iter(&self, list: ListId) -> impl Iterator<Item = u32> {
        std::iter::successors(self.front(list), |node| self.next(*node))
    }

    /// Returns the nodes of the list from back to front.
    pub fn iter_back(&self, list: ListId) -> impl Iterator<Item = u32> {
        std::iter::successors(self.back(list), |node| self.prev(*node))
    }

    /// Checks the invariants: every list returns to its end in both directions, and every linked
    /// node is in a list. O(n).
    pub fn validate(&self) -> Result<(), String> {
        self.0.validate()
    }

    pub(crate) fn links(&self) -> Arc<Links> {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_keep_their_order() {
        let (a, b) = (ListId(0), ListId(1));
        let mut lists = Lists::new(6, 2);
        [2, 1, 0].into_iter().for_each(|node| lists.push_front(a, node));
        lists.push_back(a, 3);
        lists.push_back(b, 5);
        let nodes = |lists: &Lists, list| lists.iter(list).collect::<Vec<_>>();
        assert_eq!((nodes(&lists, a), nodes(&lists, b)), (vec![0, 1, 2, 3], vec![5]));
        lists.replace(1, 4);
        assert!(lists.remove(5) && !lists.remove(5) && !lists.is_linked(1));
        assert_eq!((nodes(&lists, a), nodes(&lists, b)), (vec![0, 4, 2, 3], vec![]));
        assert_eq!(
            (lists.front(a), lists.back(a), lists.prev(2), lists.next(3)),
            (Some(0), Some(3), Some(4), None)
        );
        assert_eq!((lists.front(b), lists.back(b)), (None, None));
        assert_eq!(lists.iter_back(a).collect::<Vec<_>>(), [3, 2, 4, 0]);
        assert_eq!(lists.validate(), Ok(()));
        lists.0.prev[2].store(0, Relaxed);
        assert_eq!(lists.validate(), Err("4 and 2 disagree".into()));
    }
}
