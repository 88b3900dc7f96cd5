//! The dependency graph, in compressed sparse rows.
//!
//! Nodes below [`Graph::txns`] are transactions. The other nodes are hidden: they represent a
//! moment in time or the end of a version, and replace a product of edges by a sum. A path through
//! hidden nodes is one edge between two transactions, of the kind of its first edge.

/// The target replaced the version that the source wrote.
pub const WW: u8 = 1;
/// The target read what the source wrote.
pub const WR: u8 = 2;
/// The source read a version that the target replaced.
pub const RW: u8 = 4;
/// Like [`WW`], but only real time orders the two versions.
pub const WW_TIME: u8 = 8;
/// Like [`RW`], but only real time orders the two versions.
pub const RW_TIME: u8 = 16;
/// One session ran the target after the source.
pub const SESSION: u8 = 32;
/// The source ended before the target started.
pub const TIME: u8 = 64;
/// An edge out of a hidden node.
pub const VIA: u8 = 128;

/// The kinds that come from session order or real time instead of data.
pub const ORDER: u8 = WW_TIME | RW_TIME | SESSION | TIME;

/// The key of an edge that belongs to no key.
pub const NO_KEY: u32 = u32::MAX;

/// An edge, stored with its source.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    pub to: u32,
    pub key: u32,
    pub kind: u8,
}

/// Collects the edges of a graph.
pub struct Builder {
    edges: Vec<(u32, Edge)>,
    nodes: u32,
    txns: u32,
}

impl Builder {
    /// Creates a graph of `txns` transactions without edges.
    pub fn new(txns: u32) -> Self {
        Self { edges: Vec::new(), nodes: txns, txns }
    }

    /// Adds a hidden node.
    pub fn hidden(&mut self) -> u32 {
        self.nodes += 1;
        self.nodes - 1
    }

    /// Adds an edge. Ignores an edge from a node to itself.
    pub fn add(&mut self, from: u32, to: u32, kind: u8, key: u32) {
        if from != to {
            self.edges.push((from, Edge { to, key, kind }));
        }
    }

    /// Builds the graph.
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
    /// Returns the number of nodes, including hidden ones.
    pub fn nodes(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the number of edges.
    pub fn edge_count(&self) -> usize {
        self.edges.len()
    }

    /// Returns the indexes of a node's edges, for [`Graph::edge`].
    pub fn range(&self, node: u32) -> std::ops::Range<usize> {
        self.starts[node as usize]..self.starts[node as usize + 1]
    }

    /// Returns an edge.
    pub fn edge(&self, at: usize) -> Edge {
        self.edges[at]
    }

    /// Returns the edges of a node.
    pub fn from(&self, node: u32) -> &[Edge] {
        &self.edges[self.range(node)]
    }
}
