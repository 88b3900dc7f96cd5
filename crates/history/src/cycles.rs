//! Finds and classifies cycles of the dependency graph.
//!
//! All cycles are in strongly connected components. Each component is searched several times with
//! increasing sets of edge kinds, as in Elle: with writes alone for G0, with reads of writes for
//! G1c, with anti-dependencies for G-single and G2. The same steps follow with the order of
//! sessions and of real time. For each component and step, one short cycle is reported. The search
//! in a component ends after at most [`TRIES`] edges of each kind, and earlier in a huge one, so
//! that the total time stays linear. As a result, a G-single may be reported as a G2 in a huge
//! component. No component is missed: the first edge tried of each kind is on a cycle, either of
//! this step or of an earlier one.

use crate::components::Components;
use crate::graph::{Edge, Graph, ORDER, RW, RW_TIME, SESSION, VIA, WR, WW, WW_TIME};
use crate::report::{Anomaly, Order};
use std::collections::VecDeque;

/// Maximum searches in each component and step, for each kind of edge.
const TRIES: usize = 24;
/// Maximum nodes that all of these searches together visit: a constant, plus a multiple of the
/// component's size.
const VISITS: (usize, usize) = (100_000, 4);

/// An edge between two transactions.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub from: u32,
    pub to: u32,
    pub kind: u8,
    pub key: u32,
}

/// A cycle and its classification.
#[derive(Clone, Debug)]
pub struct Cycle {
    pub anomaly: Anomaly,
    pub order: Order,
    pub links: Vec<Link>,
}

/// One step: finds cycles of edge kinds in `mask` that no earlier step finds.
struct Level {
    mask: u8,
    /// The kinds of edges through which a cycle is searched.
    through: u8,
    /// A cycle must have an edge of one of these kinds. Others belong to earlier steps.
    shows: u8,
    with_order: bool,
}

/// The kinds of edges that are anti-dependencies.
const ANTI: u8 = RW | RW_TIME;

const LEVELS: [Level; 6] = [
    Level { mask: WW | VIA, through: WW, shows: WW, with_order: false },
    Level { mask: WW | WR | VIA, through: WR, shows: WR, with_order: false },
    Level { mask: WW | WR | RW | VIA, through: RW, shows: ANTI, with_order: false },
    // Sessions and real time alone are acyclic, so each cycle of this step has a write.
    Level {
        mask: WW | VIA | ORDER & !RW_TIME,
        through: WW | ORDER & !RW_TIME,
        shows: WW | WW_TIME,
        with_order: true,
    },
    Level {
        mask: WW | WR | VIA | ORDER & !RW_TIME,
        through: WR | ORDER & !RW_TIME,
        shows: WR,
        with_order: true,
    },
    Level { mask: WW | WR | RW | VIA | ORDER, through: RW | ORDER, shows: ANTI, with_order: true },
];

/// Returns one cycle for each component and step.
pub fn find(graph: &Graph) -> Vec<Cycle> {
    let mut components = Components::new(graph);
    let mut found = Vec::new();
    let mut visits = Visits::default();
    let all: Vec<u32> = (0..graph.nodes() as u32).collect();
    for component in components.find(&all, 0, u8::MAX) {
        for level in &LEVELS {
            let part = components.separate(&component);
            for nodes in components.find(&component, part, level.mask) {
                let part = components.separate(&nodes);
                let mut search =
                    Search { graph, components: &components, part, visits: &mut visits };
                found.extend(search.best(&nodes, level));
            }
        }
    }
    found
}

/// The nodes that path searches have visited. The vectors get the length of the graph on first use.
#[derive(Default)]
struct Visits {
    /// The number of the current search; entries with another number belong to earlier searches.
    search: u32,
    of: Vec<u32>,
    cost: Vec<u32>,
    /// The predecessor of each node on the path, and the index of the edge.
    from: Vec<(u32, usize)>,
    /// The number of visits in all searches.
    count: usize,
}

impl Visits {
    fn start(&mut self, nodes: usize) {
        if self.of.is_empty() {
            self.of = vec![0; nodes];
            self.cost = vec![0; nodes];
            self.from = vec![(0, 0); nodes];
        }
        self.search += 1;
    }

    /// Returns the cost of reaching the node, if it was visited.
    fn cost(&self, node: u32) -> Option<u32> {
        (self.of[node as usize] == self.search).then(|| self.cost[node as usize])
    }

    fn visit(&mut self, node: u32, cost: u32, from: (u32, usize)) {
        self.of[node as usize] = self.search;
        self.cost[node as usize] = cost;
        self.from[node as usize] = from;
        self.count += 1;
    }
}

struct Search<'s, 'g> {
    graph: &'g Graph,
    components: &'s Components<'g>,
    part: u32,
    visits: &'s mut Visits,
}

impl Search<'_, '_> {
    /// Returns the cycle to report for a component, or `None` if all cycles that were tried belong
    /// to an earlier step.
    fn best(&mut self, nodes: &[u32], level: &Level) -> Option<Cycle> {
        let mut best: Option<Cycle> = None;
        let most = self.visits.count + VISITS.0 + VISITS.1 * nodes.len();
        let mut tried = 0;
        for (from, edge) in self.candidates(nodes, level.through) {
            if tried & edge.kind != 0 && self.visits.count > most {
                continue;
            }
            tried |= edge.kind;
            // Prefer a cycle without a second anti-dependency.
            let narrow = if edge.kind & ANTI != 0 { level.mask & !ANTI } else { level.mask };
            let path = self.path(edge.to, from, narrow);
            let path = if path.is_none() && narrow != level.mask {
                self.path(edge.to, from, level.mask)
            } else {
                path
            };
            let Some(path) = path else { continue };
            let cycle = self.cycle(from, edge, &path);
            let is_shown = cycle.links.iter().any(|l| l.kind & level.shows != 0);
            if !is_shown || level.with_order != (cycle.order != Order::Data) {
                continue;
            }
            let rank = |c: &Cycle| (c.anomaly, c.links.len());
            if best.as_ref().is_none_or(|best| rank(&cycle) < rank(best)) {
                best = Some(cycle);
            }
        }
        best
    }

    /// Returns edges within the component, at most [`TRIES`] of each kind.
    fn candidates(&self, nodes: &[u32], kinds: u8) -> Vec<(u32, Edge)> {
        let mut found = Vec::new();
        let mut taken = [0; 8];
        for node in nodes {
            for edge in self.graph.from(*node) {
                let taken = &mut taken[edge.kind.trailing_zeros() as usize];
                if edge.kind & kinds != 0
                    && self.components.part(edge.to) == self.part
                    && *taken < TRIES
                {
                    *taken += 1;
                    found.push((*node, *edge));
                }
            }
        }
        found
    }

    /// Returns the shortest path within the component. Edges between hidden nodes cost nothing.
    fn path(&mut self, from: u32, to: u32, mask: u8) -> Option<Vec<(u32, Edge)>> {
        self.visits.start(self.graph.nodes());
        self.visits.visit(from, 0, (from, 0));
        let mut queue = VecDeque::from([(from, 0)]);
        while let Some((node, cost)) = queue.pop_front() {
            if node == to {
                break;
            }
            if self.visits.cost(node) < Some(cost) {
                continue;
            }
            for at in self.graph.range(node) {
                let edge = self.graph.edge(at);
                if edge.kind & mask == 0 || self.components.part(edge.to) != self.part {
                    continue;
                }
                let is_free = node >= self.graph.txns && edge.to >= self.graph.txns;
                let cost = cost + u32::from(!is_free);
                if self.visits.cost(edge.to).is_none_or(|before| cost < before) {
                    self.visits.visit(edge.to, cost, (node, at));
                    if is_free {
                        queue.push_front((edge.to, cost))
                    } else {
                        queue.push_back((edge.to, cost))
                    }
                }
            }
        }
        self.visits.cost(to)?;
        let (mut path, mut at) = (Vec::new(), to);
        while at != from {
            let (before, edge) = self.visits.from[at as usize];
            path.push((before, self.graph.edge(edge)));
            at = before;
        }
        path.reverse();
        Some(path)
    }

    /// Joins the edge and the path back to its start into one cycle of transactions.
    fn cycle(&self, from: u32, edge: Edge, path: &[(u32, Edge)]) -> Cycle {
        let mut edges: Vec<(u32, Edge)> =
            std::iter::once((from, edge)).chain(path.iter().copied()).collect();
        let start = edges.iter().position(|(node, _)| *node < self.graph.txns).unwrap_or(0);
        edges.rotate_left(start);
        let mut links: Vec<Link> = Vec::new();
        for (node, edge) in edges {
            if node < self.graph.txns {
                links.push(Link { from: node, to: edge.to, kind: edge.kind, key: edge.key });
            } else if let Some(last) = links.last_mut() {
                last.to = edge.to;
            }
        }
        let count = |kinds: u8| links.iter().filter(|l| l.kind & kinds != 0).count();
        let anomaly = match (count(ANTI), count(WR)) {
            (0, 0) => Anomaly::G0,
            (0, _) => Anomaly::G1c,
            (1, _) => Anomaly::GSingle,
            _ => Anomaly::G2,
        };
        let order = match (count(ORDER & !SESSION), count(SESSION)) {
            (0, 0) => Order::Data,
            (0, _) => Order::Session,
            _ => Order::RealTime,
        };
        Cycle { anomaly, order, links }
    }
}
