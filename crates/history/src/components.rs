//! Strongly connected components (Tarjan 1972), without recursion: a path may have millions of
//! nodes.

use crate::graph::Graph;

/// Finds the components of parts of one graph.
pub struct Components<'g> {
    graph: &'g Graph,
    /// The part that each node belongs to; a search stays within one part.
    part: Vec<u32>,
    parts: u32,
    /// The position at which the search visited a node, from 1; 0: not visited.
    visited: Vec<u32>,
    low: Vec<u32>,
    open: Vec<bool>,
}

impl<'g> Components<'g> {
    /// Creates a finder with all nodes in part 0.
    pub fn new(graph: &'g Graph) -> Self {
        let n = graph.nodes();
        Self {
            graph,
            part: vec![0; n],
            parts: 0,
            visited: vec![0; n],
            low: vec![0; n],
            open: vec![false; n],
        }
    }

    /// Moves these nodes to a new part and returns it.
    pub fn separate(&mut self, nodes: &[u32]) -> u32 {
        self.parts += 1;
        for node in nodes {
            self.part[*node as usize] = self.parts;
        }
        self.parts
    }

    /// Returns the part that a node belongs to.
    pub fn part(&self, node: u32) -> u32 {
        self.part[node as usize]
    }

    /// Returns the components with at least two nodes of `part`, whose nodes are `nodes`. Follows
    /// only edges of the kinds in `mask`.
    pub fn find(&mut self, nodes: &[u32], part: u32, mask: u8) -> Vec<Vec<u32>> {
        for node in nodes {
            self.visited[*node as usize] = 0;
        }
        let (mut found, mut stack, mut calls) = (Vec::new(), Vec::new(), Vec::new());
        let mut count = 0;
        for root in nodes {
            if self.visited[*root as usize] == 0 {
                calls.push(self.enter(*root, &mut count, &mut stack));
            }
            while let Some((node, at)) = calls.last_mut() {
                let node = *node;
                if *at < self.graph.range(node).end {
                    let edge = self.graph.edge(*at);
                    *at += 1;
                    if edge.kind & mask == 0 || self.part[edge.to as usize] != part {
                        continue;
                    }
                    if self.visited[edge.to as usize] == 0 {
                        calls.push(self.enter(edge.to, &mut count, &mut stack));
                    } else if self.open[edge.to as usize] {
                        self.low[node as usize] =
                            self.low[node as usize].min(self.visited[edge.to as usize]);
                    }
                    continue;
                }
                calls.pop();
                if let Some((parent, _)) = calls.last() {
                    self.low[*parent as usize] =
                        self.low[*parent as usize].min(self.low[node as usize]);
                }
                found.extend(self.close(node, &mut stack));
            }
        }
        found
    }

    fn enter(&mut self, node: u32, count: &mut u32, stack: &mut Vec<u32>) -> (u32, usize) {
        *count += 1;
        self.visited[node as usize] = *count;
        self.low[node as usize] = *count;
        self.open[node as usize] = true;
        stack.push(node);
        (node, self.graph.range(node).start)
    }

    /// Pops the component off the stack if `node` is its root. Returns `None` if it is not, or if
    /// the component has a single node.
    fn close(&mut self, node: u32, stack: &mut Vec<u32>) -> Option<Vec<u32>> {
        if self.low[node as usize] != self.visited[node as usize] {
            return None;
        }
        let start = stack.iter().rposition(|n| *n == node)?;
        for member in &stack[start..] {
            self.open[*member as usize] = false;
        }
        if stack.len() - start == 1 {
            stack.pop();
            return None;
        }
        Some(stack.split_off(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Builder, NO_KEY, RW, WR, WW};

    #[test]
    fn components_follow_only_edges_in_the_mask() {
        let mut builder = Builder::new(5);
        for (from, to, kind) in
            [(0, 1, WW), (1, 0, WR), (2, 3, WW), (3, 2, WW), (1, 2, WW), (4, 0, RW)]
        {
            builder.add(from, to, kind, NO_KEY);
        }
        let graph = builder.build();
        let mut components = Components::new(&graph);
        let sorted = |mut found: Vec<Vec<u32>>| {
            found.iter_mut().for_each(|c| c.sort_unstable());
            found.sort_unstable();
            found
        };
        let all: Vec<u32> = (0..5).collect();
        assert_eq!(sorted(components.find(&all, 0, WW)), [[2, 3]]);
        assert_eq!(sorted(components.find(&all, 0, WW | WR)), [[0, 1], [2, 3]]);
        let part = components.separate(&[0, 1]);
        assert_eq!(sorted(components.find(&[0, 1], part, WW | WR)), [[0, 1]]);
    }

    #[test]
    fn long_cycles_do_not_overflow_the_stack() {
        let n = 1_000_000;
        let mut builder = Builder::new(n);
        for node in 0..n {
            builder.add(node, (node + 1) % n, WW, NO_KEY);
        }
        let graph = builder.build();
        let all: Vec<u32> = (0..n).collect();
        assert_eq!(Components::new(&graph).find(&all, 0, WW)[0].len(), n as usize);
    }
}
