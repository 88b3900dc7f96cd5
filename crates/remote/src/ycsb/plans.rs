//! Random transactions: each operation reads or updates a different row.

use super::zipf::Zipf;
use crate::RowId;
use clearway_env::{Entropy, SeededEntropy};

/// YCSB's transactions over the rows of some nodes.
#[derive(Clone, Copy, Debug)]
pub struct Plans {
    nodes: u32,
    operations: usize,
    writes: f64,
    zipf: Zipf,
}

impl Plans {
    /// Creates plans of `operations` on `rows` of each node, skewed by theta. A share of `writes`
    /// of the operations updates.
    ///
    /// # Panics
    /// Panics unless theta is from 0 to below 1 and `rows` is at least 2, and if there are more
    /// operations than rows.
    pub fn new(nodes: u32, rows: u32, operations: usize, theta: f64, writes: f64) -> Self {
        assert!(
            u64::from(nodes) * u64::from(rows) >= operations as u64,
            "more operations than rows"
        );
        Self { nodes, operations, writes, zipf: Zipf::new(rows, theta) }
    }

    /// Draws the rows of the next transaction, each with whether it is updated.
    pub fn draw(&self, rng: &SeededEntropy) -> Vec<(RowId, bool)> {
        let mut plan: Vec<(RowId, bool)> = Vec::new();
        while plan.len() < self.operations {
            let owner = rng.below(self.nodes.into()) as u32;
            let row = RowId { owner, index: self.zipf.draw(rng) };
            if plan.iter().all(|(other, _)| *other != row) {
                let update = ((rng.u64() >> 11) as f64) < self.writes * (1_u64 << 53) as f64;
                plan.push((row, update));
            }
        }
        plan
    }
}
