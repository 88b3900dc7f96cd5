//! Finds the wrong entries of an index whose sums differ, by looking up rows and entries one by
//! one.

use super::Check;
use super::rows::{Rows, index_key};
use crate::bootstrap;
use clearway_ir::{TableDef, UniqueKey, global_index};
use clearway_storage::OpenError;
use clearway_storage::check::shown_key;
use clearway_types::{PartitionId, RowView};
use std::sync::Arc;

/// Maximum number of findings reported for one index in one partition; the rest are only counted.
const MAX_REPORTED: usize = 20;

/// Wrong entries, with partition and page.
#[derive(Default)]
struct Wrong {
    reported: Vec<(PartitionId, u32, String)>,
    more: u64,
}

impl Wrong {
    fn add(&mut self, partition: PartitionId, page: u32, what: impl FnOnce() -> String) {
        if self.reported.len() < MAX_REPORTED {
            self.reported.push((partition, page, what()));
        } else {
            self.more += 1;
        }
    }
}

impl Check<'_> {
    fn report(&mut self, name: &str, partition: PartitionId, wrong: Wrong) {
        if wrong.reported.is_empty() {
            self.damage(
                partition,
                None,
                format!("index \"{name}\" and its table's rows do not agree"),
            );
        }
        for (partition, page, what) in wrong.reported {
            self.damage(partition, Some(page), what);
        }
        if wrong.more > 0 {
            self.damage(
                partition,
                None,
                format!("{} more entries of index \"{name}\" are wrong or missing", wrong.more),
            );
        }
    }

    /// Compares the indexes of a scanned partition.
    pub(super) fn local_indexes(
        &mut self,
        partition: PartitionId,
        rows: &Rows,
    ) -> Result<(), OpenError> {
        for (t, table) in self.tables.clone().into_iter().enumerate() {
            for (i, index) in table.indexes.iter().enumerate() {
                let whole = |tree| self.checker.is_whole(partition, tree);
                if !whole(table.tree) || !whole(index.tree) {
                    self.report.not_compared += 1;
                    continue;
                }
                self.report.indexes += 1;
                if !rows.indexes[t][i].agrees() {
                    let wrong = self.index(partition, &table, i)?;
                    self.report(&index.name, partition, wrong);
                }
            }
        }
        Ok(())
    }

    fn index(
        &self,
        partition: PartitionId,
        table: &Arc<TableDef>,
        i: usize,
    ) -> Result<Wrong, OpenError> {
        let (mut wrong, index) = (Wrong::default(), &table.indexes[i]);
        let name = &index.name;
        let each = self.checker.each(partition, table.tree, &mut |row, get| {
            // An unreadable row has been reported already.
            let Ok(key) = index_key(table, i, row.value, row.key) else { return };
            match get(index.tree, &key) {
                Some(found) if found == row.key => {}
                Some(found) => wrong.add(partition, row.page, || {
                    let (row, found) = (shown_key(row.key), shown_key(&found));
                    format!(
                        "entry {} of index \"{name}\": row {row} expected, {found} found",
                        shown_key(&key)
                    )
                }),
                None => wrong.add(partition, row.page, || {
                    let (key, row) = (shown_key(&key), shown_key(row.key));
                    format!("entry {key} of index \"{name}\" expected for row {row}, none found")
                }),
            }
        });
        each.map_err(bootstrap::cannot_read)?;
        let each = self.checker.each(partition, index.tree, &mut |entry, get| match get(
            table.tree,
            entry.value,
        ) {
            None => wrong.add(partition, entry.page, || {
                let (key, row) = (shown_key(entry.key), shown_key(entry.value));
                format!("entry {key} of index \"{name}\": its row {row} expected, none found")
            }),
            Some(row) => {
                if let Ok(key) = index_key(table, i, &row, entry.value)
                    && key != entry.key
                {
                    wrong.add(partition, entry.page, || {
                        let (expected, found) = (shown_key(&key), shown_key(entry.key));
                        format!(
                            "index \"{name}\": entry {expected} expected for row {}, {found} found",
                            shown_key(entry.value)
                        )
                    });
                }
            }
        });
        each.map_err(bootstrap::cannot_read)?;
        Ok(wrong)
    }

    /// Compares the global indexes after all partitions have been scanned.
    pub(super) fn global_indexes(&mut self, rows: &Rows) -> Result<(), OpenError> {
        for (t, table) in self.tables.clone().into_iter().enumerate() {
            for (g, global_index) in table.global_indexes().enumerate() {
                let whole = |p| {
                    self.checker.is_whole(p, table.tree)
                        && self.checker.is_whole(p, global_index.tree)
                };
                if !self.all().all(whole) {
                    self.report.not_compared += 1;
                    continue;
                }
                self.report.indexes += 1;
                if !rows.global_indexes[t][g].agrees() {
                    let wrong = self.global_index(&table, g)?;
                    self.report(global_index.name, PartitionId(0), wrong);
                }
            }
        }
        Ok(())
    }

    fn all(&self) -> impl Iterator<Item = PartitionId> + use<> {
        (0..self.checker.partitions()).map(PartitionId)
    }

    fn global_index(&self, table: &Arc<TableDef>, g: usize) -> Result<Wrong, OpenError> {
        let mut wrong = Wrong::default();
        let Some(global_index) = table.global_indexes().nth(g) else { return Ok(wrong) };
        let name = global_index.name;
        for home in self.all() {
            let each = self.checker.each(home, table.tree, &mut |row, _| {
                let (columns, view) = (global_index.columns, RowView::new(row.value));
                let entry = global_index::entry(columns, view, self.checker.partitions());
                let Ok(Some((key, at))) = entry else { return };
                let found = self.checker.get(at, global_index.tree, &key).ok().flatten();
                if found.as_deref() != Some(&home.0.to_le_bytes()) {
                    wrong.add(home, row.page, || {
                        let found = found.map_or("none".to_owned(), |value| shown_key(&value));
                        let key = shown_key(&key);
                        format!("entry {key} of unique key \"{name}\" in partition {at}: home {home} expected, {found} found")
                    });
                }
            });
            each.map_err(bootstrap::cannot_read)?;
        }
        let tree = match global_index.key {
            UniqueKey::Primary => table.tree,
            UniqueKey::Index(i) => table.indexes[i].tree,
        };
        for at in self.all() {
            let each = self.checker.each(at, global_index.tree, &mut |entry, _| {
                let home = entry.value.try_into().map(u16::from_le_bytes).map(PartitionId);
                let row = |home| self.checker.get(home, tree, entry.key).ok().flatten();
                let row = home.ok().and_then(row);
                if row.is_none() {
                    wrong.add(at, entry.page, || {
                        let (key, home) = (shown_key(entry.key), shown_key(entry.value));
                        format!("entry {key} of unique key \"{name}\": its row expected at home {home}, none found")
                    });
                }
            });
            each.map_err(bootstrap::cannot_read)?;
        }
        Ok(wrong)
    }
}
