//! A set of spans that may overlap. It finds a span that meets a request, in a conflicting mode,
//! with a number below a given one.
//!
//! The set is a treap ordered by the spans' begins. Each node knows the furthest end in its subtree
//! and, for each mode, the smallest and the largest number in it. A search skips every subtree that
//! ends too early, has no conflicting mode, or has no number in the wanted range.
//!
//! Invariants
//! 1. Nodes are ordered by (begin, owner, mode), and no node has a higher priority than its parent:
//!    the expected depth is O(log n).
//! 2. `far`, `least` and `most` of a node describe its subtree.
//!
//! A search costs O(log n) if the spans are keys or are not nested. If long spans enclose short
//! ones, it may visit more nodes.
//!
//! Source: Seidel and Aragon, Algorithmica 1996 (treaps); Cormen and others, chapter 14.3 (interval
//! trees).

use super::spans::{Keys, Span};
use super::work::look;
use super::{Mode, ROW_MODES};
use std::cmp::Ordering;

const NONE: usize = usize::MAX;

/// Identifies a span, together with its begin: its owner and its mode.
type Id = (u64, Mode);

/// One number for each of [`ROW_MODES`].
type ByMode = [u64; ROW_MODES.len()];

#[derive(Debug)]
struct Node {
    span: Span,
    id: Id,
    number: u64,
    priority: u64,
    left: usize,
    right: usize,
    /// The node of this subtree with the furthest end.
    far: usize,
    /// The smallest number by mode; `u64::MAX` if there is none.
    least: ByMode,
    /// The largest number by mode; 0 if there is none.
    most: ByMode,
}

/// The set; see the module.
#[derive(Debug)]
pub(super) struct Intervals {
    nodes: Vec<Node>,
    free: Vec<usize>,
    root: usize,
    /// The state of the priority generator. Any sequence works that is independent of the spans.
    random: u64,
}

impl Default for Intervals {
    fn default() -> Self {
        Self { nodes: Vec::new(), free: Vec::new(), root: NONE, random: 0x9e37_79b9_7f4a_7c15 }
    }
}

/// A search.
pub(super) struct Asked<'a> {
    pub keys: &'a Keys<'a>,
    /// The set of conflicting modes.
    pub modes: u16,
    /// Only spans with a lower number match.
    pub before: u64,
}

impl Asked<'_> {
    fn of<'a>(&self, numbers: &'a ByMode) -> impl Iterator<Item = u64> + 'a {
        let modes = self.modes;
        ROW_MODES
            .into_iter()
            .zip(numbers)
            .filter(move |(mode, _)| modes & mode.bit() != 0)
            .map(|(_, number)| *number)
    }

    fn least(&self, numbers: &ByMode) -> u64 {
        self.of(numbers).min().unwrap_or(u64::MAX)
    }

    fn most(&self, numbers: &ByMode) -> u64 {
        self.of(numbers).max().unwrap_or(0)
    }
}

impl Intervals {
    pub(super) fn is_empty(&self) -> bool {
        self.root == NONE
    }

    /// Inserts a span with a number. The span must not be in the set yet.
    pub(super) fn insert(&mut self, span: Span, id: Id, number: u64) {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let (left, right) = self.split(self.root, &span, id);
        let node = Node {
            span,
            id,
            number,
            priority: self.random,
            left: NONE,
            right: NONE,
            far: NONE,
            least: ByMode::default(),
            most: ByMode::default(),
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.nodes[at] = node;
                at
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        };
        self.pull(at);
        let left = self.merge(left, at);
        self.root = self.merge(left, right);
    }

    /// Removes a span, if it is in the set.
    pub(super) fn remove(&mut self, from: &[u8], id: Id) {
        self.root = self.without(self.root, from, id);
        if self.root == NONE {
            // An empty tree keeps no memory.
            self.nodes.clear();
            self.free.clear();
        }
    }

    /// Returns the owner of the first matching span, by begin, that `accept` accepts.
    pub(super) fn find(
        &self,
        asked: &Asked<'_>,
        mut accept: impl FnMut(u64) -> bool,
    ) -> Option<u64> {
        self.find_in(self.root, asked, &mut accept)
    }

    fn find_in<F: FnMut(u64) -> bool>(
        &self,
        at: usize,
        asked: &Asked<'_>,
        accept: &mut F,
    ) -> Option<u64> {
        let node = self.nodes.get(at)?;
        look();
        if asked.least(&node.least) >= asked.before
            || !asked.keys.begin_before(&self.nodes[node.far].span)
        {
            return None;
        }
        if let Some(found) = self.find_in(node.left, asked, accept) {
            return Some(found);
        }
        if !asked.keys.end_behind(&node.span.from) {
            return None;
        }
        let (owner, mode) = node.id;
        let fits = mode.bit() & asked.modes != 0
            && node.number < asked.before
            && asked.keys.begin_before(&node.span);
        if fits && accept(owner) {
            return Some(owner);
        }
        self.find_in(node.right, asked, accept)
    }

    /// Returns the owner with the largest number among the matching spans that `accept` accepts:
    /// the last accepted one. Ignores [`Asked::before`].
    pub(super) fn newest(
        &self,
        asked: &Asked<'_>,
        mut accept: impl FnMut(u64) -> bool,
    ) -> Option<u64> {
        let mut best = None;
        self.newest_in(self.root, asked, &mut accept, &mut best);
        best.map(|(_, owner)| owner)
    }

    fn newest_in<F: FnMut(u64) -> bool>(
        &self,
        at: usize,
        asked: &Asked<'_>,
        accept: &mut F,
        best: &mut Option<(u64, u64)>,
    ) {
        let Some(node) = self.nodes.get(at) else { return };
        look();
        let most = |at: usize| self.nodes.get(at).map_or(0, |node| asked.most(&node.most));
        let least = best.map_or(0, |(number, _)| number);
        if most(at) <= least || !asked.keys.begin_before(&self.nodes[node.far].span) {
            return;
        }
        let right = if asked.keys.end_behind(&node.span.from) { node.right } else { NONE };
        let (first, second) =
            if most(node.left) > most(right) { (node.left, right) } else { (right, node.left) };
        self.newest_in(first, asked, accept, best);
        let newer = best.is_none_or(|(number, _)| node.number > number);
        let fits = node.id.1.bit() & asked.modes != 0 && asked.keys.end_behind(&node.span.from);
        if newer && fits && asked.keys.begin_before(&node.span) && accept(node.id.0) {
            *best = Some((node.number, node.id.0));
        }
        self.newest_in(second, asked, accept, best);
    }

    fn order(&self, at: usize, from: &[u8], id: Id) -> Ordering {
        look();
        let node = &self.nodes[at];
        let by_id = || (node.id.0, node.id.1.bit()).cmp(&(id.0, id.1.bit()));
        node.span.from.as_slice().cmp(from).then_with(by_id)
    }

    /// Splits the subtree into the spans before `span`, and the others.
    fn split(&mut self, at: usize, span: &Span, id: Id) -> (usize, usize) {
        if at == NONE {
            return (NONE, NONE);
        }
        if self.order(at, &span.from, id) == Ordering::Less {
            let (left, right) = self.split(self.nodes[at].right, span, id);
            self.nodes[at].right = left;
            self.pull(at);
            (at, right)
        } else {
            let (left, right) = self.split(self.nodes[at].left, span, id);
            self.nodes[at].left = right;
            self.pull(at);
            (left, at)
        }
    }

    /// Merges two subtrees; all of `left` is before all of `right`.
    fn merge(&mut self, left: usize, right: usize) -> usize {
        if left == NONE {
            return right;
        }
        if right == NONE {
            return left;
        }
        look();
        if self.nodes[left].priority > self.nodes[right].priority {
            self.nodes[left].right = self.merge(self.nodes[left].right, right);
            self.pull(left);
            left
        } else {
            self.nodes[right].left = self.merge(left, self.nodes[right].left);
            self.pull(right);
            right
        }
    }

    fn without(&mut self, at: usize, from: &[u8], id: Id) -> usize {
        if at == NONE {
            return NONE;
        }
        let (left, right) = (self.nodes[at].left, self.nodes[at].right);
        match self.order(at, from, id) {
            Ordering::Equal => {
                self.free.push(at);
                return self.merge(left, right);
            }
            Ordering::Less => self.nodes[at].right = self.without(right, from, id),
            Ordering::Greater => self.nodes[at].left = self.without(left, from, id),
        }
        self.pull(at);
        at
    }

    /// Restores invariant 2 from the children.
    fn pull(&mut self, at: usize) {
        let node = &self.nodes[at];
        let (mut far, mut least, mut most) = (at, [u64::MAX; ROW_MODES.len()], ByMode::default());
        least[node.id.1.rank()] = node.number;
        most[node.id.1.rank()] = node.number;
        for child in [node.left, node.right] {
            let Some(child) = self.nodes.get(child) else { continue };
            if self.nodes[child.far].span.ends_behind(&self.nodes[far].span) {
                far = child.far;
            }
            for mode in 0..ROW_MODES.len() {
                least[mode] = least[mode].min(child.least[mode]);
                most[mode] = most[mode].max(child.most[mode]);
            }
        }
        let node = &mut self.nodes[at];
        (node.far, node.least, node.most) = (far, least, most);
    }
}

#[cfg(test)]
mod tests {
    use super::super::work::steps;
    use super::*;
    use std::ops::Bound::{Excluded, Included, Unbounded};

    fn span(from: u32, to: u32) -> Span {
        Span::of(Included(&from.to_be_bytes()), Excluded(&to.to_be_bytes())).expect("not empty")
    }

    /// Compares random insertions, removals and searches with a list.
    #[test]
    fn searches_agree_with_a_list() {
        let mut state = 7_u64;
        let mut below = |n: u32| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32 % n
        };
        for _ in 0..50 {
            let (mut set, mut list) = (Intervals::default(), Vec::<(u32, u32, Id, u64)>::new());
            for n in 0..400_u64 {
                if below(3) == 0 && !list.is_empty() {
                    let (from, _, id, _) = list.swap_remove(below(list.len() as u32) as usize);
                    set.remove(&from.to_be_bytes(), id);
                } else {
                    let from = below(60);
                    let to = from + 1 + below(8) * below(8);
                    let mode = ROW_MODES[below(4) as usize];
                    list.push((from, to, (n, mode), 1 + u64::from(below(100))));
                    set.insert(span(from, to), (n, mode), list[list.len() - 1].3);
                }
                let (from, before) = (below(60), 1 + u64::from(below(120)));
                let to = from + 1 + below(20);
                let modes = ROW_MODES[below(4) as usize].conflicts();
                let asked_span = span(from, to);
                let asked = Asked { keys: &Keys::Span(asked_span), modes, before };
                let mut found = Vec::new();
                assert_eq!(
                    set.find(&asked, |id| {
                        found.push(id);
                        false
                    }),
                    None
                );
                found.sort_unstable();
                let fits = |e: &&(u32, u32, Id, u64)| {
                    e.0 < to && from < e.1 && e.2.1.bit() & modes != 0 && e.3 < before
                };
                let mut listed: Vec<u64> = list.iter().filter(fits).map(|e| e.2.0).collect();
                listed.sort_unstable();
                assert_eq!(found, listed);
                let newest = list.iter().filter(|e| fits(&&(e.0, e.1, e.2, 0))).map(|e| e.3).max();
                let found = set.newest(&asked, |_| true);
                let number = |id: u64| list.iter().find(|e| e.2.0 == id).map(|e| e.3);
                assert_eq!(found.and_then(number), newest);
            }
        }
    }

    /// Measures steps, not time: a search for spans older than all of 100,000 keys visits few of
    /// them.
    #[test]
    fn searches_skip_most_of_the_tree() {
        let mut set = Intervals::default();
        for n in 0..100_000_u32 {
            set.insert(span(2 * n, 2 * n + 1), (u64::from(n), Mode::Exclusive), u64::from(n) + 10);
        }
        let all = Keys::Span(Span::of(Unbounded, Unbounded).expect("all"));
        let begin = steps();
        assert_eq!(
            set.find(&Asked { keys: &all, modes: Mode::Exclusive.bit(), before: 10 }, |_| true),
            None
        );
        assert_eq!(
            set.find(&Asked { keys: &all, modes: Mode::Shared.bit(), before: 100 }, |_| true),
            None
        );
        let gap = 1_001_u32.to_be_bytes();
        assert_eq!(
            set.find(
                &Asked {
                    keys: &Keys::One(&gap),
                    modes: Mode::Exclusive.conflicts(),
                    before: u64::MAX
                },
                |_| true
            ),
            None
        );
        assert!(
            set.find(
                &Asked { keys: &all, modes: Mode::Exclusive.conflicts(), before: 5_000 },
                |_| true
            )
            .is_some()
        );
        assert!(steps() - begin < 300, "{} steps", steps() - begin);
    }
}
