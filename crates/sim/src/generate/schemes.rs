//! Changes of partitions' schemes.

use super::Script;
use crate::sql::Stmt;
use clearway_coordinator::SchemeKind;

impl Script {
    /// Sometimes generates a change of the scheme of a partition or of all, outside of a block.
    pub(super) fn change_of_scheme(&mut self) -> Option<Stmt> {
        if self.mix.schemes == 0 || !self.rng.percent(self.mix.schemes) {
            return None;
        }
        let partition = self.rng.below(u64::from(self.mix.partitions) + 1) as u16;
        let partition = (partition < self.mix.partitions).then_some(partition);
        Some(Stmt::SetScheme { partition, scheme: self.rng.pick(&SchemeKind::ALL) })
    }
}
