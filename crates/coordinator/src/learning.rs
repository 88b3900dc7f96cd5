//! Decides which statements learn locks: see [`crate::learned`].

use crate::core::{Block, Txn};
use crate::engine::Engine;
use clearway_ir::{Access, LearnedLock, LearnedRow, Path, Program, plan_text};
use std::sync::Arc;

/// Returns true if the transaction's statement takes part in learning, as
/// [`clearway_partition::Body::Statement::learns`].
pub(crate) fn learns(engine: &Engine, txn: &Txn, program: &Program) -> bool {
    let access = match program {
        Program::Scan { access, .. } if access.lock.is_none() => access,
        Program::Update { access, adds: Some(_), .. } => access,
        _ => return false,
    };
    let learns = txn.block != Block::None && !txn.characteristics.read_only;
    if learns && access.learned.is_empty() {
        access.learned.fill(engine.learned_of(access, program));
    }
    learns
}

/// Returns true if the path locks single rows. Paths that lock a range or a table do not learn.
fn locks_rows(access: &Access) -> bool {
    !matches!(access.path, Path::Full | Path::Range { index: None, .. })
}

impl Engine {
    #[cold]
    fn learned_of(&self, access: &Access, program: &Program) -> Option<Arc<LearnedLock>> {
        let text = plan_text(program).filter(|_| locks_rows(access))?;
        Some(self.learned().of(text, matches!(program, Program::Update { .. })))
    }

    /// Returns what plans have learned, by text. UPDATEs that only add are included once their
    /// transactions have added, or could have added, to rows concurrently with others. Counts lag
    /// by less than [`clearway_partition::Limits::learn_after`] reads per partition.
    pub fn plans(&self) -> Vec<LearnedRow> {
        self.learned().rows()
    }
}
