//! Rows that several transactions hold or want at once, for people who look at them.

use super::wanted::row_mode_name;
use super::{LockTable, Mode};
use crate::lock::table::ScopeId;
use clearway_types::TreeId;
use std::cmp::Reverse;
use std::sync::Arc;

/// A row, or another key, that somebody waits for, that several transactions add to, or whose lock
/// is retired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotRow {
    /// The tree that has the key.
    pub tree: TreeId,
    /// The key.
    pub key: Arc<[u8]>,
    /// The holders' mode, as in `clearway.locks`, or `retired`. `None`: no transaction holds the
    /// key by itself.
    pub locked: Option<&'static str>,
    /// Transactions that hold it.
    pub holders: usize,
    /// Transactions that wait for it.
    pub waiters: usize,
    /// Holders that have changed it after another holder did.
    pub behind: usize,
    /// Its holder only adds to it, and has the exclusive lock because that was learned of its plan.
    pub learned: bool,
}

impl HotRow {
    /// Rows of a partition that are shown.
    pub const MOST: usize = 256;
}

impl LockTable {
    /// The hot rows, those with the most holders and waiters first, and `most` of them at most.
    /// Visits every key that is locked by itself.
    pub(crate) fn hot_rows(&self, most: usize) -> Vec<HotRow> {
        let mut rows = Vec::new();
        for (id, scope) in &self.scopes {
            let ScopeId::Tree(tree) = *id else { continue };
            for (key, holders, lines) in scope.keys() {
                // Who settles holds the key.
                let lines = lines.iter().filter(|line| line.mode != Mode::Settled);
                let waiters = lines.map(|line| self.members(line.id).count()).sum();
                if waiters == 0 && holders.incrementers() < 2 && !holders.has_chain() {
                    continue;
                }
                let locked = match holders.mode() {
                    _ if holders.has_chain() => Some("retired"),
                    mode => mode.map(row_mode_name),
                };
                let behind =
                    if holders.has_chain() { holders.in_order().skip(1).count() } else { 0 };
                let (key, learned, holders) = (key.clone(), holders.is_learned(), holders.len());
                rows.push(HotRow { tree, key, locked, holders, waiters, behind, learned });
            }
        }
        // The order of a hash map is nobody's.
        rows.sort_unstable_by(|a, b| {
            let order = |row: &HotRow| (Reverse(row.holders + row.waiters), row.tree);
            order(a).cmp(&order(b)).then_with(|| a.key.cmp(&b.key))
        });
        rows.truncate(most);
        rows
    }
}
