//! Hot rows: rows that several transactions hold or want at once, for the views.

use super::wanted::row_mode_name;
use super::{LockTable, Mode};
use crate::lock::table::ScopeId;
use clearway_types::TreeId;
use std::cmp::Reverse;
use std::sync::Arc;

/// A row, or another key, that has waiters, to which several transactions add, or whose lock is
/// retired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotRow {
    /// The tree of the key.
    pub tree: TreeId,
    /// The key.
    pub key: Arc<[u8]>,
    /// The holders' mode, as in `clearway.locks`, or `retired`. `None` if no transaction holds the
    /// key individually.
    pub locked: Option<&'static str>,
    /// Number of transactions that hold it.
    pub holders: usize,
    /// Number of transactions that wait for it.
    pub waiters: usize,
    /// Number of holders that changed it after another holder did.
    pub behind: usize,
    /// Whether its holder only adds to it, and has the exclusive lock because the plan learned
    /// that.
    pub learned: bool,
}

impl HotRow {
    /// Maximum number of rows shown per partition.
    pub const MOST: usize = 256;
}

impl LockTable {
    /// Returns at most `most` hot rows, ordered by the number of holders and waiters, largest
    /// first. Visits every individually locked key.
    pub(crate) fn hot_rows(&self, most: usize) -> Vec<HotRow> {
        let mut rows = Vec::new();
        for (id, scope) in &self.scopes {
            let ScopeId::Tree(tree) = *id else { continue };
            for (key, holders, lines) in scope.keys() {
                // A transaction that waits to settle already holds the key.
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
                let (key, learned, holders) =
                    (Arc::from(&**key), holders.is_learned(), holders.len());
                rows.push(HotRow { tree, key, locked, holders, waiters, behind, learned });
            }
        }
        // A hash map's order is arbitrary.
        rows.sort_unstable_by(|a, b| {
            let order = |row: &HotRow| (Reverse(row.holders + row.waiters), row.tree);
            order(a).cmp(&order(b)).then_with(|| a.key.cmp(&b.key))
        });
        rows.truncate(most);
        rows
    }
}
