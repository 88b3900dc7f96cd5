//! [`Lists`] that also know the list of each node and the length of each list. Takes 9 bytes per
//! node.

use super::ensure;
use super::footprint::Footprint;
use super::list::{ListId, Lists};
use std::ops::Deref;

const NOWHERE: u8 = u8::MAX;

/// Up to 255 lists over one set of nodes. Read-only operations are those of [`Lists`].
pub struct Queues {
    lists: Lists,
    of: Vec<u8>,
    lens: Vec<u32>,
}

impl Deref for Queues {
    type Target = Lists;

    fn deref(&self) -> &Lists {
        &self.lists
    }
}

impl Queues {
    /// Creates `lists` empty lists over the nodes `0 .. nodes`.
    pub fn new(nodes: u32, lists: u32) -> Self {
        assert!(lists <= u32::from(NOWHERE));
        Self {
            lists: Lists::new(nodes, lists),
            of: vec![NOWHERE; nodes as usize],
            lens: vec![0; lists as usize],
        }
    }

    /// Returns the list that the node is in.
    pub fn list_of(&self, node: u32) -> Option<ListId> {
        let list = self.of[node as usize];
        (list != NOWHERE).then_some(ListId(u32::from(list)))
    }

    /// Returns the number of nodes in the list.
    pub fn len(&self, list: ListId) -> u32 {
        self.lens[list.0 as usize]
    }

    /// Inserts a node that is in no list at the front.
    pub fn push_front(&mut self, list: ListId, node: u32) {
        self.lists.push_front(list, node);
        self.entered(list, node);
    }

    /// Inserts a node that is in no list at the back.
    pub fn push_back(&mut self, list: ListId, node: u32) {
        self.lists.push_back(list, node);
        self.entered(list, node);
    }

    /// Removes the node from its list and returns the list.
    pub fn remove(&mut self, node: u32) -> Option<ListId> {
        let list = self.list_of(node)?;
        self.lists.remove(node);
        self.of[node as usize] = NOWHERE;
        self.lens[list.0 as usize] -= 1;
        Some(list)
    }

    /// Moves the node from its list, if it is in one, to the front of this list.
    pub fn move_to_front(&mut self, list: ListId, node: u32) {
        self.remove(node);
        self.push_front(list, node);
    }

    /// Checks that the lists are well-formed, and that lengths and membership match. O(n).
    pub fn validate(&self) -> Result<(), String> {
        self.lists.validate()?;
        for list in (0..self.lens.len() as u32).map(ListId) {
            let len = self.iter(list).count() as u32;
            ensure(len == self.len(list), || {
                format!("list {} has {len} nodes, not {}", list.0, self.len(list))
            })?;
            let stray = self.iter(list).find(|node| self.list_of(*node) != Some(list));
            ensure(stray.is_none(), || {
                format!("{stray:?} is in list {}, but recorded elsewhere", list.0)
            })?;
        }
        let stray = (0..self.of.len() as u32)
            .find(|node| self.list_of(*node).is_some() != self.is_linked(*node));
        ensure(stray.is_none(), || format!("{stray:?} is linked but in no list, or the reverse"))
    }

    /// Returns what a hit touches if it moves a frame to the front of one of the lists `to`. The
    /// frames must be the nodes from 0 on.
    pub fn footprint(&self, to: impl IntoIterator<Item = ListId>) -> Footprint {
        Footprint::default().lists(&self.lists, to).array(&self.of)
    }

    fn entered(&mut self, list: ListId, node: u32) {
        self.of[node as usize] = list.0 as u8;
        self.lens[list.0 as usize] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_membership_match_the_lists() {
        let (a, b) = (ListId(0), ListId(1));
        let mut queues = Queues::new(4, 2);
        (0..3).for_each(|node| queues.push_front(a, node));
        queues.push_back(b, 3);
        queues.move_to_front(b, 1);
        assert_eq!((queues.len(a), queues.len(b)), (2, 2));
        assert_eq!(
            (queues.iter(a).collect::<Vec<_>>(), queues.iter(b).collect::<Vec<_>>()),
            (vec![2, 0], vec![1, 3])
        );
        assert_eq!((queues.remove(3), queues.remove(3), queues.list_of(3)), (Some(b), None, None));
        assert_eq!((queues.len(b), queues.list_of(1), queues.back(b)), (1, Some(b), Some(1)));
        assert_eq!(queues.validate(), Ok(()));
        queues.lens[0] = 3;
        assert_eq!(queues.validate(), Err("list 0 has 2 nodes, not 3".into()));
    }
}
