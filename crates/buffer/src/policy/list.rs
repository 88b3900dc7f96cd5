//! Doubly linked lists of nodes that are numbers, through two arrays: what most policies keep their order in.
//!
//! A node is in one list at most. Which numbers stand for frames and which for ghosts is the policy's matter; a policy of `n` frames uses
//! `0 .. n` for the frames. Nothing is allocated after the making; 8 bytes a node.
//!
//! # Invariants
//! 1. Every list is a ring of its nodes and its end, a number beyond the nodes; `next` goes from front to back.
//! 2. A node in no list has `UNLINKED` in `next`.

use super::ensure;

const UNLINKED: u32 = u32::MAX;

/// Several lists over one set of nodes.
pub struct Lists {
    next: Vec<u32>,
    prev: Vec<u32>,
    nodes: u32,
}

/// One of the lists: its number, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListId(pub u32);

impl Lists {
    /// `lists` empty lists over the nodes `0 .. nodes`.
    pub fn new(nodes: u32, lists: u32) -> Self {
        let mut links = vec![UNLINKED; (nodes + lists) as usize];
        (nodes..nodes + lists).for_each(|end| links[end as usize] = end);
        Self { next: links.clone(), prev: links, nodes }
    }

    fn end(&self, list: ListId) -> u32 {
        self.nodes + list.0
    }

    fn node(&self, at: u32) -> Option<u32> {
        (at < self.nodes).then_some(at)
    }

    /// Whether the node is in a list.
    pub fn is_linked(&self, node: u32) -> bool {
        self.next[node as usize] != UNLINKED
    }

    /// The list's first node.
    pub fn front(&self, list: ListId) -> Option<u32> {
        self.node(self.next[self.end(list) as usize])
    }

    /// The list's last node.
    pub fn back(&self, list: ListId) -> Option<u32> {
        self.node(self.prev[self.end(list) as usize])
    }

    /// The node after this one, which is in a list, towards the back.
    pub fn next(&self, node: u32) -> Option<u32> {
        self.node(self.next[node as usize])
    }

    /// The node before this one, which is in a list, towards the front.
    pub fn prev(&self, node: u32) -> Option<u32> {
        self.node(self.prev[node as usize])
    }

    /// Puts a node that is in no list at the front.
    pub fn push_front(&mut self, list: ListId, node: u32) {
        let end = self.end(list);
        self.link(end, node, self.next[end as usize]);
    }

    /// Puts a node that is in no list at the back.
    pub fn push_back(&mut self, list: ListId, node: u32) {
        let end = self.end(list);
        self.link(self.prev[end as usize], node, end);
    }

    /// Takes the node out of its list; whether it was in one.
    pub fn remove(&mut self, node: u32) -> bool {
        let (prev, next) = (self.prev[node as usize], self.next[node as usize]);
        if next == UNLINKED {
            return false;
        }
        self.next[prev as usize] = next;
        self.prev[next as usize] = prev;
        self.next[node as usize] = UNLINKED;
        true
    }

    /// Puts `new`, which is in no list, where `old` is, and takes that out.
    pub fn replace(&mut self, old: u32, new: u32) {
        let (prev, next) = (self.prev[old as usize], self.next[old as usize]);
        self.remove(old);
        self.link(prev, new, next);
    }

    /// The list's nodes from front to back.
    pub fn iter(&self, list: ListId) -> impl Iterator<Item = u32> {
        std::iter::successors(self.front(list), |node| self.next(*node))
    }

    /// The list's nodes from back to front.
    pub fn iter_back(&self, list: ListId) -> impl Iterator<Item = u32> {
        std::iter::successors(self.back(list), |node| self.prev(*node))
    }

    /// Whether the invariants hold: every list comes back to its end in both directions, and no node is linked that is in none. O(n).
    pub fn validate(&self) -> Result<(), String> {
        let mut listed = 0;
        for end in self.nodes..self.next.len() as u32 {
            let mut at = end;
            loop {
                let next = self.next[at as usize];
                ensure(next != UNLINKED && self.prev[next as usize] == at, || format!("{at} and {next} disagree"))?;
                ensure(next < self.nodes || next == end, || format!("list {} runs into {next}", end - self.nodes))?;
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

    fn link(&mut self, prev: u32, node: u32, next: u32) {
        debug_assert!(!self.is_linked(node) && node < self.nodes);
        self.next[prev as usize] = node;
        self.prev[node as usize] = prev;
        self.next[node as usize] = next;
        self.prev[next as usize] = node;
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
        assert_eq!((lists.front(a), lists.back(a), lists.prev(2), lists.next(3)), (Some(0), Some(3), Some(4), None));
        assert_eq!((lists.front(b), lists.back(b)), (None, None));
        assert_eq!(lists.iter_back(a).collect::<Vec<_>>(), [3, 2, 4, 0]);
        assert_eq!(lists.validate(), Ok(()));
        lists.prev[2] = 0;
        assert_eq!(lists.validate(), Err("4 and 2 disagree".into()));
    }
}
