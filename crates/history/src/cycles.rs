//! Cycles of the dependency graph, and what each of them is.
//!
//! All cycles lie in strongly connected components. Each component is searched again with fewer kinds of edges,
//! as Elle does: with writes alone for G0, with reads of writes for G1c, with anti-dependencies for G-single and
//! G2; then the same with the order of sessions and of real time. One cycle is reported for each component and
//! step, a short one. A cycle with one anti-dependency is looked for through at most [`TRIES`] of them: in a huge
//! component a G-single may be reported as a G2.

use crate::components::Components;
use crate::graph::{Edge, Graph, ORDER, RW, RW_TIME, SESSION, VIA, WR, WW};
use crate::report::{Anomaly, Order};
use hashbrown::HashMap;
use std::collections::VecDeque;

/// Searches in each component and step.
const TRIES: usize = 24;

/// An edge between two transactions.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub from: u32,
    pub to: u32,
    pub kind: u8,
    pub key: u32,
}

/// A cycle, and what it is.
#[derive(Clone, Debug)]
pub struct Cycle {
    pub anomaly: Anomaly,
    pub order: Order,
    pub links: Vec<Link>,
}

/// One step: with these kinds of edges, cycles through one of the second, that are none of the earlier steps'.
struct Level {
    mask: u8,
    through: u8,
    with_order: bool,
}

const LEVELS: [Level; 6] = [
    Level { mask: WW | VIA, through: WW, with_order: false },
    Level { mask: WW | WR | VIA, through: WR, with_order: false },
    Level { mask: WW | WR | RW | VIA, through: RW, with_order: false },
    Level { mask: WW | VIA | ORDER & !RW_TIME, through: WW | ORDER & !RW_TIME, with_order: true },
    Level { mask: WW | WR | VIA | ORDER & !RW_TIME, through: WR | ORDER & !RW_TIME, with_order: true },
    Level { mask: WW | WR | RW | VIA | ORDER, through: RW | ORDER, with_order: true },
];

/// The edges that are anti-dependencies.
const ANTI: u8 = RW | RW_TIME;

/// A cycle for each component and step.
pub fn find(graph: &Graph) -> Vec<Cycle> {
    let mut components = Components::new(graph);
    let mut found = Vec::new();
    let all: Vec<u32> = (0..graph.nodes() as u32).collect();
    for component in components.find(&all, 0, u8::MAX) {
        for (at, level) in LEVELS.iter().enumerate() {
            let part = components.separate(&component);
            for nodes in components.find(&component, part, level.mask) {
                let part = components.separate(&nodes);
                let search = Search { graph, components: &components, part };
                found.extend(search.best(&nodes, level, at % 3 == 2));
                // Back into the step's part: components of one step do not reach each other anyway.
            }
        }
    }
    found
}

struct Search<'s, 'g> {
    graph: &'g Graph,
    components: &'s Components<'g>,
    part: u32,
}

impl Search<'_, '_> {
    /// The cycle to report of a component; `None` if all that were tried belong to an earlier step.
    fn best(&self, nodes: &[u32], level: &Level, anti: bool) -> Option<Cycle> {
        let mut best: Option<Cycle> = None;
        for (from, edge) in self.candidates(nodes, level.through) {
            // Without a second anti-dependency, if that is possible.
            let narrow = if anti && edge.kind & ANTI != 0 { level.mask & !ANTI } else { level.mask };
            let path = self.path(edge.to, from, narrow);
            let path = if path.is_none() && narrow != level.mask { self.path(edge.to, from, level.mask) } else { path };
            let Some(path) = path else { continue };
            let cycle = self.cycle(from, edge, &path);
            let through =
                cycle.links.iter().any(|l| l.kind & level.through & !ORDER != 0 || anti && l.kind & ANTI != 0);
            if !through || level.with_order != (cycle.order != Order::Data) {
                continue;
            }
            let rank = |c: &Cycle| (c.anomaly, c.links.len());
            if best.as_ref().is_none_or(|best| rank(&cycle) < rank(best)) {
                best = Some(cycle);
            }
        }
        best
    }

    /// Edges within the component: some of each kind.
    fn candidates(&self, nodes: &[u32], kinds: u8) -> Vec<(u32, Edge)> {
        let mut found = Vec::new();
        let mut taken = [0; 8];
        for node in nodes {
            for edge in self.graph.from(*node) {
                let taken = &mut taken[edge.kind.trailing_zeros() as usize];
                if edge.kind & kinds != 0 && self.components.part(edge.to) == self.part && *taken < TRIES {
                    *taken += 1;
                    found.push((*node, *edge));
                }
            }
        }
        found
    }

    /// The shortest path within the component. Steps between hidden nodes cost nothing.
    fn path(&self, from: u32, to: u32, mask: u8) -> Option<Vec<(u32, Edge)>> {
        let mut came: HashMap<u32, (u32, Option<(u32, Edge)>)> = HashMap::from([(from, (0, None))]);
        let mut queue = VecDeque::from([(from, 0)]);
        while let Some((node, cost)) = queue.pop_front() {
            if node == to {
                break;
            }
            if came[&node].0 < cost {
                continue;
            }
            for edge in self.graph.from(node) {
                if edge.kind & mask == 0 || self.components.part(edge.to) != self.part {
                    continue;
                }
                let is_free = node >= self.graph.txns && edge.to >= self.graph.txns;
                let cost = cost + u32::from(!is_free);
                if came.get(&edge.to).is_none_or(|(before, _)| cost < *before) {
                    came.insert(edge.to, (cost, Some((node, *edge))));
                    if is_free { queue.push_front((edge.to, cost)) } else { queue.push_back((edge.to, cost)) }
                }
            }
        }
        let mut path = Vec::new();
        let mut at = to;
        while let (_, Some((node, edge))) = came.get(&at)? {
            path.push((*node, *edge));
            at = *node;
        }
        path.reverse();
        Some(path)
    }

    /// The edge and the path back as one cycle of transactions.
    fn cycle(&self, from: u32, edge: Edge, path: &[(u32, Edge)]) -> Cycle {
        let mut edges: Vec<(u32, Edge)> = std::iter::once((from, edge)).chain(path.iter().copied()).collect();
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
