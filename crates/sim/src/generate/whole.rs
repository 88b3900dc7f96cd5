//! Blocks that arrive whole: their statements are generated before BEGIN.

use super::{Block, Script};
use crate::sql::Stmt;
use clearway_ir::Catalog;

impl Script {
    /// Generates the statements of a block that is about to begin, if it is to arrive whole.
    pub(super) fn make_whole(&mut self, begin: &Stmt, catalog: &Catalog) {
        self.ahead.clear();
        if self.mix.whole == 0
            || matches!(begin, Stmt::BeginReadOnly { .. })
            || !self.rng.percent(self.mix.whole)
        {
            return;
        }
        for _ in 0..std::mem::take(&mut self.left) {
            let next = self.work(catalog);
            self.ahead.push_back(next);
        }
        // Snapshots are neither imported nor exported in such a block.
        (self.imports, self.exports) = (false, false);
    }

    /// Returns the next statement of a whole block, or a savepoint before it.
    pub(super) fn next_of_whole(&mut self, block: Block) -> Option<Stmt> {
        if block != Block::Open || self.ahead.is_empty() {
            return None;
        }
        if self.rng.percent(10) {
            return Some(self.savepoint());
        }
        self.ahead.pop_front()
    }

    /// Returns the statements of the block that begins, if it arrives whole.
    pub fn whole(&self) -> impl Iterator<Item = &Stmt> {
        self.ahead.iter()
    }

    /// Draws which of its partitions a whole block does not announce. Mostly none.
    pub fn unannounced(&mut self, partitions: usize) -> Option<usize> {
        (partitions > 1 && self.rng.percent(15)).then(|| self.rng.below(partitions as u64) as usize)
    }
}
