//! What transactions do: each operation on another row, which it reads or updates.

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
    /// Transactions of `operations` on `rows` of each node, skewed by theta. A share of `writes` of
    /// them updates.
    ///
    /// # Panics
    /// Unless theta is from 0 to below 1, and there are at least 2 rows and as many as operations.
    pub fn new(nodes: u32, rows: u32, operations: usize, theta: f64, writes: f64) -> Self {
        assert!(
            u64::from(nodes) * u64::from(rows) >= operations as u64,
            "more operations than rows"
        );
        Self { nodes, operations, writes, zipf: Zipf::new(rows, theta) }
    }

    /// The rows of the next transaction, and whether each is updated.
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
