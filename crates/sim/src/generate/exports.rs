//! Snapshots that blocks export and import.

use super::Script;
use crate::sql::Stmt;

impl Script {
    /// Sometimes generates an import or an export of a snapshot.
    pub(super) fn share(&mut self, exported: &[String]) -> Option<Stmt> {
        let may_import = std::mem::take(&mut self.imports);
        if self.mix.imports == 0 {
            return None;
        }
        if may_import && !exported.is_empty() && self.rng.percent(self.mix.imports) {
            return Some(Stmt::Import(
                exported[self.rng.below(exported.len() as u64) as usize].clone(),
            ));
        }
        let exports =
            self.exports && self.savepoints.is_empty() && self.rng.percent(self.mix.imports / 2);
        exports.then_some(Stmt::Export)
    }
}
