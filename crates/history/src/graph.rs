//! The dependency graph, in compressed rows.
//!
//! Nodes below [`Graph::txns`] are transactions. Nodes above are hidden: they stand for a moment in
//! time or for the end of a version, and replace a product of edges by a sum. A path through hidden
//! nodes is one edge between two transactions, of the kind with which it begins.

/// One transaction replaced the version that the other one wrote.
pub const WW: u8 = 1;
/// One transaction read what the other one wrote.
pub const WR: u8 = 2;
/// One transaction read a version that the other one replaced.
pub const RW: u8 = 4;
/// As [`WW`], where only real time orders the two versions.
pub const WW_TIME: u8 = 8;
/// As [`RW`], where only real time orders the two versions.
pub const RW_TIME: u8 = 16;
/// One session ran one transaction after the other.
pub const SESSION: u8 = 32;
/// One transaction had ended before the other one began.
pub const TIME: u8 = 64;
/// Out of a hidden node.
pub const VIA: u8 = 128;

/// The kinds that come from order rather than from data.
pub const ORDER: u8 = WW_TIME | RW_TIME | SESSION | TIME;

/// No key belongs to the edge.
pub const NO_KEY: u32 = u32::MAX;

/// An edge, seen from where it begins.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    pub to: u32,
    pub key: u32,
    pub kind: u8,
}

/// Collects edges.
pub struct Builder {
    edges: Vec<(u32, Edge)>,
    nodes: u32,
    txns: u32,
}

impl Builder {
    /// A graph of `txns` transactions without edges.
    pub fn new(txns: u32) -> Self {
        Self { edges: Vec::new(), nodes: txns, txns }
    }

    /// A new hidden node.
    pub fn hidden(&mut self) -> u32 {
        self.nodes += 1;
        self.nodes - 1
    }

    /// Adds an edge; one from a node to itself is left out.
    pub fn add(&mut self, from: u32, to: u32, kind: u8, key: u32) {
        if from != to {
            self.edges.push((from, Edge { to, key, kind }));
        }
    }

    /// The graph.
    pub fn build(self) -> Graph {
        let mut starts = vec![0_usize; self.nodes as usize + 1];
        for (from, _) in &self.edges {
            starts[*from as usize + 1] += 1;
        }
        for node in 0..self.nodes as usize {
            starts[node + 1] += starts[node];
        }
        let mut next = starts.clone();
        let mut edges = vec![Edge { to: 0, key: NO_KEY, kind: 0 }; self.edges.len()];
        for (from, edge) in self.edges {
            let at = &mut next[from as usize];
            edges[*at] = edge;
            *at += 1;
        }
        Graph { starts, edges, txns: self.txns }
    }
}

/// A finished graph.
pub struct Graph {
    starts: Vec<usize>,
    edges: Vec<Edge>,
    /// Nodes below this are transactions.
    pub txns: u32,
}

impl Graph {
    /// Number of nodes, hidden ones included.
    pub fn nodes(&self) -> usize {
        self.starts.len() - 1
    }

    /// Number of edges.
    pub fn edge_count(&self) -> usize {
        self.edges.len()
    }

    /// Where the edges of a node lie, for [`Graph::edge`].
    pub fn range(&self, node: u32) -> std::ops::Range<usize> {
        self.starts[node as usize]..self.starts[node as usize + 1]
    }

    /// One edge.
    pub fn edge(&self, at: usize) -> Edge {
        self.edges[at]
    }

    /// The edges of a node.
    pub fn from(&self, node: u32) -> &[Edge] {
        &self.edges[self.range(node)]
    }
}
