//! Offline check of a data directory: first `clearway_storage::check`, then the contents of the
//! trees. These are the catalog, the form, key and partition of every row, and every index and
//! global index against its table's rows, in both directions.
//!
//! Indexes are compared by sums, in one pass over a partition's pages: each row adds its expected
//! entries, each entry adds itself. Equal sums of 64-bit hashes with equal counts are taken as
//! equal sets; damage goes unnoticed with probability 2^-64. Only where sums differ are rows and
//! entries looked up one by one to report the difference.

mod indexes;
mod rows;

use crate::bootstrap;
use crate::catalog_rows::{self, CATALOG_TREE};
use clearway_env::Disk;
use clearway_ir::TableDef;
use clearway_storage::OpenError;
use clearway_storage::check::{CheckOptions, CheckProgress, Checker, FindingSeverity, Report};
use clearway_types::{PartitionId, TreeId};
use rows::Rows;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Pages, trees, and all findings.
    pub storage: Report,
    /// Tables of the catalog.
    pub tables: u64,
    /// Rows in them.
    pub rows: u64,
    /// Indexes and global indexes that were compared with their table's rows, counted once per
    /// partition.
    pub indexes: u64,
    /// Indexes that damage prevented from being compared.
    pub not_compared: u64,
}

/// Checks a data directory that no server uses, without changing it. Blocking.
///
/// # Errors
/// If the check cannot run: another server uses the directory, it is not a data directory, or the
/// disk fails. Damage is not an error.
pub fn check(
    disk: Arc<dyn Disk>,
    dir: &Path,
    options: CheckOptions,
    progress: &mut dyn CheckProgress,
) -> Result<CheckReport, OpenError> {
    let checker = Checker::open(disk, dir, options, progress)?;
    let mut check = Check { checker, progress, tables: Vec::new(), report: CheckReport::default() };
    check.run()?;
    let Check { checker, mut report, .. } = check;
    report.storage = checker.finish();
    Ok(report)
}

struct Check<'p> {
    checker: Checker,
    progress: &'p mut dyn CheckProgress,
    tables: Vec<Arc<TableDef>>,
    report: CheckReport,
}

impl Check<'_> {
    fn run(&mut self) -> Result<(), OpenError> {
        let partitions = self.checker.partitions();
        let mut rows = None;
        for partition in (0..partitions).map(PartitionId) {
            self.checker.structure(partition, self.progress)?;
            if !self.checker.is_recovered() {
                continue;
            }
            if partition.0 == 0 {
                self.tables = self.catalog()?;
                self.report.tables = self.tables.len() as u64;
            }
            let rows = rows.get_or_insert_with(|| Rows::new(&self.tables, partitions));
            self.trees(partition)?;
            rows.enter(partition);
            self.checker.scan(partition, self.progress, &mut |entry| rows.see(entry));
            self.local_indexes(partition, rows)?;
        }
        if let Some(rows) = rows {
            self.global_indexes(&rows)?;
            self.report.rows = rows.count;
        }
        Ok(())
    }

    fn damage(&mut self, partition: PartitionId, page: Option<u32>, what: String) {
        self.checker.add(FindingSeverity::Damage, partition, page, what, self.progress);
    }

    /// Returns the tables. Reports and omits those whose definition cannot be read.
    fn catalog(&mut self) -> Result<Vec<Arc<TableDef>>, OpenError> {
        let home = PartitionId(0);
        if !self.has_catalog() {
            return Ok(Vec::new());
        }
        if !self.checker.is_whole(home, CATALOG_TREE) {
            self.damage(
                home,
                None,
                "the catalog is damaged: rows and indexes are not compared".to_owned(),
            );
            return Ok(Vec::new());
        }
        let (mut tables, mut bad) = (Vec::new(), Vec::new());
        let each =
            self.checker.each(home, CATALOG_TREE, &mut |entry, _| match catalog_rows::decode(
                entry.value,
            ) {
                Ok(table) if catalog_rows::key(table.id) == entry.key => {
                    tables.push(Arc::new(table))
                }
                Ok(table) => bad.push((
                    entry.page,
                    format!("the catalog has table {} under the key of another", table.name),
                )),
                Err(error) => bad.push((entry.page, error.message().to_owned())),
            });
        each.map_err(bootstrap::cannot_read)?;
        for (page, what) in bad {
            self.damage(home, Some(page), what);
        }
        Ok(tables)
    }

    fn has_catalog(&self) -> bool {
        self.checker.trees(PartitionId(0)).contains(&CATALOG_TREE)
    }

    /// Checks that every table has all its trees in the partition, and that every tree has a table.
    fn trees(&mut self, partition: PartitionId) -> Result<(), OpenError> {
        let existing: HashSet<TreeId> = self.checker.trees(partition).into_iter().collect();
        if !self.has_catalog() {
            // It is created before any other tree.
            if !existing.is_empty() {
                let what = format!(
                    "the catalog's tree in partition 0 expected, none found: the tables of {} trees are unknown",
                    existing.len()
                );
                self.damage(partition, None, what);
            }
            return Ok(());
        }
        let mut owned = HashSet::from([CATALOG_TREE]);
        for table in self.tables.clone() {
            for tree in table.trees() {
                owned.insert(tree);
                if !existing.contains(&tree) {
                    self.damage(
                        partition,
                        None,
                        format!("tree {tree} of table \"{}\" expected, none found", table.name),
                    );
                }
            }
        }
        let mut orphans: Vec<TreeId> = existing.difference(&owned).copied().collect();
        orphans.sort_unstable();
        for tree in orphans {
            let mut keys = 0_u64;
            if self.checker.is_whole(partition, tree) {
                let count = self.checker.each(partition, tree, &mut |_, _| keys += 1);
                count.map_err(bootstrap::cannot_read)?;
            }
            let what =
                format!("tree {tree} of {keys} keys belongs to no table: the next start drops it");
            self.checker.add(FindingSeverity::Note, partition, None, what, self.progress);
        }
        Ok(())
    }
}
