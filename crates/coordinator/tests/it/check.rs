//! `check` finds mismatches between rows, indexes, global indexes and catalog, and names the entry
//! and its page.

use crate::common::{Bank, Worker, open, plan};
use crate::users::{Users, Who};
use clearway_coordinator::{
    CheckOptions, CheckReport, Engine, EngineConfig, OpenErrorKind, Waker, check,
};
use clearway_env::{Disk, Open};
use clearway_ir::{Distribution, Statement, TableDef};
use clearway_storage::{Blocked, Node, NodeConfig, Store, Trees};
use clearway_testkit::MemDisk;
use clearway_types::{RowView, SqlState, TreeId};
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;

const PARTITIONS: u16 = 3;
const ROWS: i32 = 800;

pub fn checked(disk: &MemDisk) -> CheckReport {
    let mut options =
        CheckOptions::new(MemDisk::new().open("scratch".as_ref(), Open::Create).unwrap());
    options.frames = 256;
    check(Arc::new(disk.clone()), Path::new("/data"), options, &mut ()).unwrap()
}

pub fn findings(report: &CheckReport) -> Vec<String> {
    report.storage.findings.iter().map(ToString::to_string).collect()
}

/// Creates users with two global indexes and an index, and a table without a key, both changed
/// after they were filled.
fn filled() -> (MemDisk, Arc<TableDef>) {
    let disk = MemDisk::new();
    let engine = open(&disk, PARTITIONS, 1);
    let mut worker = Worker::new(&engine, 0);
    let users = Users::create(&mut worker, Distribution::Hash(vec![2]));
    let index = Statement::CreateIndex {
        table: "users".into(),
        name: "users_n".into(),
        columns: vec![2],
        unique: false,
        if_not_exists: false,
        concurrently: false,
    };
    worker.run(&plan(index)).unwrap();
    let users =
        Users { table: worker.client().catalog().table(&users.table.name).unwrap().clone() };
    worker.run(&users.insert_series(0, ROWS, 10_000)).unwrap();
    worker.run(&users.insert(&[(-1, None, 5), (-2, None, 6)], false)).unwrap();
    worker.run(&users.add_to_n(Who::Id(17), 1)).unwrap();
    worker.run(&users.set_email(Who::Id(18), None)).unwrap();
    let bank = Bank::create_without_key(&mut worker, "logbook", 50, 7);
    bank.insert(&mut worker, 1, 2).unwrap();
    worker.close();
    engine.shutdown().unwrap();
    (disk, users.table)
}

/// Changes a directory's trees without updating catalog and indexes.
struct Vandal {
    node: Node,
    stores: Vec<Store>,
}

impl Vandal {
    fn enter(disk: &MemDisk) -> Self {
        let config = NodeConfig { frames: 256, ..NodeConfig::default() };
        let mut node = Node::open(Arc::new(disk.clone()), Path::new("/data"), config).unwrap();
        let stores = node.take_stores();
        Self { node, stores }
    }

    fn run<T>(
        &mut self,
        partition: usize,
        mut attempt: impl FnMut(&mut Store) -> Result<T, Blocked>,
    ) -> T {
        let mut held = Vec::new();
        loop {
            match attempt(&mut self.stores[partition]) {
                Ok(done) => return done,
                Err(Blocked::MissingPage(wants)) => {
                    held = wants
                        .into_iter()
                        .map(|want| self.node.pool().fetch_blocking(want).unwrap())
                        .collect();
                }
                Err(other) => panic!("{other:?}, {} pages held", held.len()),
            }
        }
    }

    /// Returns the first entry of a tree that matches `which`, and its partition.
    fn find(
        &mut self,
        tree: TreeId,
        which: impl Fn(&[u8], &[u8]) -> bool,
    ) -> (usize, Vec<u8>, Vec<u8>) {
        for partition in 0..self.stores.len() {
            let found = self.run(partition, |store| {
                let mut found = None;
                store.scan(
                    tree,
                    Bound::Unbounded,
                    Bound::Unbounded,
                    false,
                    &mut |key, value| {
                        if !which(key, value) {
                            return ControlFlow::Continue(());
                        }
                        found = Some((key.to_vec(), value.to_vec()));
                        ControlFlow::Break(())
                    },
                )?;
                Ok(found)
            });
            if let Some((key, value)) = found {
                return (partition, key, value);
            }
        }
        panic!("no such entry in tree {tree}")
    }

    fn delete(&mut self, partition: usize, tree: TreeId, key: &[u8]) {
        assert!(self.run(partition, |store| store.delete_autocommit(tree, key)).is_some());
    }
    fn insert(&mut self, partition: usize, tree: TreeId, key: &[u8], value: &[u8]) {
        assert!(self.run(partition, |store| store.insert_autocommit(tree, key, value)).is_some());
    }
    fn update(&mut self, partition: usize, tree: TreeId, key: &[u8], value: &[u8]) {
        assert!(self.run(partition, |store| store.update_autocommit(tree, key, value)).is_some());
    }

    fn leave(self) {
        self.node.checkpoint().unwrap();
        self.node.shutdown();
    }
}

/// Returns the report after `damage`. Each line names a page in the file of `damage`'s partition.
fn report_after(damage: impl FnOnce(&mut Vandal, &TableDef) -> usize) -> String {
    let (disk, table) = filled();
    let mut vandal = Vandal::enter(&disk);
    let partition = damage(&mut vandal, &table);
    vandal.leave();
    let report = checked(&disk);
    assert!(!report.storage.is_sound());
    let lines = findings(&report);
    let file = format!("damage: data/p{partition:04}.data page ");
    assert!(lines.iter().any(|line| line.starts_with(&file)), "{lines:#?}");
    lines.join("\n")
}

#[track_caller]
fn assert_reports(what: &[&str], damage: impl FnOnce(&mut Vandal, &TableDef) -> usize) {
    let reported = report_after(damage);
    assert!(what.iter().all(|what| reported.contains(what)), "{what:?}: {reported}");
    assert_eq!(reported.lines().count(), what.len(), "{reported}");
}

fn n_of(row: &[u8]) -> i64 {
    RowView::new(row).get(2).unwrap().to_owned().as_i64().unwrap()
}

#[test]
fn intact_database_has_no_findings() {
    let (disk, _) = filled();
    let report = checked(&disk);
    assert_eq!(findings(&report), Vec::<String>::new());
    assert_eq!((report.tables, report.rows), (2, ROWS as u64 + 2 + 51));
    assert_eq!((report.indexes, report.not_compared), (2 * u64::from(PARTITIONS) + 2, 0));
}

#[test]
fn unfinished_transaction_is_undone_before_the_check() {
    let (disk, table) = filled();
    let engine = open(&disk, PARTITIONS, 1);
    let mut worker = Worker::new(&engine, 0);
    let users = Users { table };
    worker.begin();
    worker.run(&users.insert_series(5000, 300, 50_000)).unwrap();
    let lsn = engine.durable();
    let mut other = Worker::new(&engine, 0);
    other.run(&users.insert(&[(9999, Some(1), 3)], false)).unwrap();
    assert!(engine.durable() > lsn);
    let report = checked(&disk.crash(5));
    assert_eq!(findings(&report), Vec::<String>::new());
    assert!(report.storage.recovery.unwrap().undone > 0);
    assert_eq!(report.rows, ROWS as u64 + 2 + 51 + 1);
    worker.rollback();
    worker.close();
    other.close();
    engine.shutdown().unwrap();
}

#[test]
fn mismatches_of_rows_and_index_entries_are_reported() {
    assert_reports(&["of index \"users_n\" expected for row"], |v, table| {
        let tree = table.indexes[1].tree;
        let (p, key, _) = v.find(tree, |_, _| true);
        v.delete(p, tree, &key);
        p
    });
    assert_reports(&["of index \"users_n\": its row 6e6f expected, none found"], |v, table| {
        v.insert(1, table.indexes[1].tree, b"bogus", b"no");
        1
    });
    // An entry leads to a wrong row: both directions report it.
    let both = ["of index \"users_n\": row ", "index \"users_n\": entry "];
    assert_reports(&both, |v, table| {
        let tree = table.indexes[1].tree;
        let (p, key, value) = v.find(tree, |_, _| true);
        let other = {
            let rows = table.tree;
            let found = v.run(p, |store| {
                let mut found = Vec::new();
                store.scan(rows, Bound::Unbounded, Bound::Unbounded, true, &mut |key, _| {
                    found = key.to_vec();
                    ControlFlow::Break(())
                })?;
                Ok(found)
            });
            assert_ne!(found, value);
            found
        };
        v.update(p, tree, &key, &other);
        p
    });
}

#[test]
fn global_index_mismatches_are_reported() {
    let missing =
        ["of unique key \"users_email_key\" in partition", "index \"users_email_key\" expected"];
    assert_reports(&missing[..1], |v, table| {
        let global_index = table.indexes[0].global_index.unwrap();
        let (p, key, value) = v.find(global_index, |_, _| true);
        v.delete(p, global_index, &key);
        usize::from(u16::from_le_bytes([value[0], value[1]]))
    });
    let both = ["home 1 expected, 0", "of unique key \"users_pkey\": its row expected at home 0"];
    assert_reports(&both, |v, table| {
        let global_index = table.primary_key_global_index.unwrap();
        let (p, key, _) = v.find(global_index, |_, value| value == [1, 0]);
        v.update(p, global_index, &key, &[0, 0]);
        p
    });
    // In the wrong partition, and without a row.
    let bogus = ["expected, 2 found", "its row expected at home 0700, none found"];
    assert_reports(&bogus, |v, table| {
        let key = (0u8..)
            .map(|n| vec![1, n])
            .find(|key| clearway_types::hash::partition_of(key, 3).0 != 2)
            .unwrap();
        v.insert(2, table.indexes[0].global_index.unwrap(), &key, &[7, 0]);
        2
    });
}

#[test]
fn malformed_rows_are_reported() {
    let wrong_place = report_after(|v, table| {
        let (p, key, row) = v.find(table.tree, |_, _| true);
        v.delete(p, table.tree, &key);
        v.insert((p + 1) % 3, table.tree, &key, &row);
        (p + 1) % 3
    });
    assert!(wrong_place.contains("expected by its distribution key"), "{wrong_place}");
    let longer = report_after(|v, table| {
        let (p, key, row) = v.find(table.tree, |_, _| true);
        v.update(p, table.tree, &key, &[&row[..], b"x"].concat());
        p
    });
    assert!(longer.contains("18 bytes expected") || longer.contains("bytes expected"), "{longer}");
    let other_key = report_after(|v, table| {
        let (p, key, row) = v.find(table.tree, |_, row| n_of(row) > 100);
        v.delete(p, table.tree, &key);
        v.insert(p, table.tree, b"k", &row);
        p
    });
    assert!(other_key.contains("row 6b of table \"users\": key 01"), "{other_key}");
    let column = report_after(|v, table| {
        let (p, key, mut row) = v.find(table.tree, |_, _| true);
        // The first column, an int4, becomes NULL.
        row.splice(2..7, [0]);
        v.update(p, table.tree, &key, &row);
        p
    });
    assert!(column.contains("column \"id\": a value expected, NULL found"), "{column}");
}

#[test]
fn malformed_catalog_is_reported() {
    let (disk, table) = filled();
    let mut vandal = Vandal::enter(&disk);
    vandal.update(0, TreeId(1), &table.id.0.to_be_bytes(), b"{}");
    vandal.leave();
    let report = checked(&disk);
    let lines = findings(&report);
    assert!(lines[0].contains("a row of the catalog cannot be read"), "{lines:#?}");
    // No table owns its trees any more.
    assert!(
        lines[1..]
            .iter()
            .all(|line| line.starts_with("note: ") && line.contains("belongs to no table"))
    );
    assert_eq!((report.tables, report.storage.damage), (1, 1));
}

/// The file of partition 0 is one of a directory in which no server has run.
#[test]
fn lost_catalog_is_damage() {
    let (disk, _) = filled();
    let other = MemDisk::new();
    let config = NodeConfig { partitions: Some(PARTITIONS), frames: 256, ..NodeConfig::default() };
    let node = Node::open(Arc::new(other.clone()), Path::new("/data"), config).unwrap();
    node.checkpoint().unwrap();
    node.shutdown();
    drop(node);
    assert_eq!(findings(&checked(&other)), Vec::<String>::new(), "a new directory has no catalog");
    let name = Path::new("/data/data/p0000.data");
    let [from, to] = [&other, &disk].map(|disk| disk.open(name, Open::Existing).unwrap());
    let mut bytes = vec![0; from.len().unwrap() as usize];
    from.read_exact_at(&mut bytes, 0).unwrap();
    to.set_len(0).unwrap();
    to.write_all_at(&bytes, 0).unwrap();
    let lines = findings(&checked(&disk));
    assert_eq!(lines.len(), usize::from(PARTITIONS) - 1, "{lines:#?}");
    for line in lines {
        assert!(
            !line.starts_with("note: ") && line.contains("the catalog's tree in partition 0"),
            "{line}"
        );
    }
    // A start drops nothing.
    for _ in 0..2 {
        let node = NodeConfig { frames: 256, ..NodeConfig::default() };
        let config = EngineConfig { node, ..EngineConfig::default() };
        let wakers = vec![Arc::new(|| {}) as Waker];
        let started = Engine::open(Arc::new(disk.clone()), Path::new("/data"), config, wakers);
        let error = started.err().unwrap();
        assert_eq!(error.kind(), OpenErrorKind::Damaged, "{error}");
        assert!(error.to_string().contains("its tree in partition 0 is missing"), "{error}");
    }
}

/// The trees of DDL that ROLLBACK TO has undone are dropped at COMMIT, not only by the next start.
#[test]
fn trees_undone_by_rollback_to_are_dropped() {
    let disk = MemDisk::new();
    let engine = open(&disk, PARTITIONS, 1);
    let mut worker = Worker::new(&engine, 0);
    Bank::create(&mut worker, 10, 100);
    worker.begin();
    worker.savepoint("s");
    Bank::create_without_key(&mut worker, "undone", 10, 7);
    worker.rollback_to("s");
    worker.commit().unwrap();
    // A statement that fails has changed nothing, but has created its trees.
    let index = Statement::CreateIndex {
        table: "accounts".into(),
        name: "duplicates".into(),
        columns: vec![1],
        unique: true,
        if_not_exists: false,
        concurrently: false,
    };
    worker.begin();
    worker.savepoint("s");
    let duplicate = worker.run(&plan(index)).unwrap_err();
    assert_eq!(duplicate.state(), SqlState::UNIQUE_VIOLATION);
    worker.rollback_to("s");
    worker.commit().unwrap();
    worker.close();
    engine.shutdown().unwrap();
    drop(engine);
    assert_eq!(findings(&checked(&disk)), Vec::<String>::new());
}

/// A tree that a start cannot free keeps its id, and new tables get other ones.
#[test]
fn damaged_trees_without_a_table_block_nothing() {
    let (disk, table) = filled();
    let mut vandal = Vandal::enter(&disk);
    let trees = vandal.stores.iter().flat_map(|s| s.trees());
    let highest = trees.max().unwrap().0.max(table.id.0);
    for tree in (1..=6).map(|more| TreeId(highest + more)) {
        vandal.run(0, |store| store.create_tree(tree));
        (0..40_u32).for_each(|key| vandal.insert(0, tree, &key.to_be_bytes(), &[7; 1000]));
    }
    vandal.leave();
    // Without the copies, the start cannot repair the pages.
    let copies = disk.open("/data/data/double-write.data".as_ref(), Open::Existing).unwrap();
    copies.write_all_at(&[0; 512], 0).unwrap();
    for (partition, no, page) in pages(&disk) {
        if page.windows(900).any(|bytes| bytes == [7; 900]) {
            let path = format!("/data/data/p{partition:04}.data");
            disk.flip_bits(path.as_ref(), no * 8192 + 100..(no + 1) * 8192, 1, no).unwrap();
        }
    }
    let engine = open(&disk, PARTITIONS, 1);
    let mut worker = Worker::new(&engine, 0);
    let bank = Bank::create(&mut worker, 10, 100);
    assert_eq!(bank.total(&mut worker), 1000);
    worker.close();
    engine.shutdown().unwrap();
}

/// Returns the pages of all partitions.
fn pages(disk: &MemDisk) -> Vec<(u16, u64, Vec<u8>)> {
    let mut pages = Vec::new();
    for partition in 0..PARTITIONS {
        let file =
            disk.open(format!("/data/data/p{partition:04}.data").as_ref(), Open::Existing).unwrap();
        for no in 0..file.len().unwrap() / 8192 {
            let mut page = vec![0; 8192];
            file.read_exact_at(&mut page, no * 8192).unwrap();
            pages.push((partition, no, page));
        }
    }
    pages
}

/// Restores, one at a time, the old versions of the leaves that differ between two states. Returns
/// whether `check` reported each.
fn stale(disk: &MemDisk, old: &[(u16, u64, Vec<u8>)]) -> Vec<bool> {
    let changed = old
        .iter()
        .zip(pages(disk))
        .filter(|(old, new)| old.2 != new.2 && old.2[5] == 2 && old.2[30] == 0);
    let put = |partition: u16, no: u64, page: &[u8]| {
        let file =
            disk.open(format!("/data/data/p{partition:04}.data").as_ref(), Open::Existing).unwrap();
        file.write_all_at(page, no * 8192).unwrap();
    };
    let reported = changed.map(|((partition, no, old), (.., new))| {
        put(*partition, *no, old);
        let reported = !checked(disk).storage.is_sound();
        put(*partition, *no, &new);
        reported
    });
    reported.collect()
}

/// A complete older version of a page in its own place has a valid checksum, id and LSN. Only a
/// mismatch with other pages reveals it. If nothing mismatches, because only a column without an
/// index changed, it cannot be detected.
#[test]
fn stale_page_is_reported_by_its_mismatches() {
    let (disk, table) = filled();
    let users = Users { table };
    let engine = open(&disk, PARTITIONS, 1);
    let mut worker = Worker::new(&engine, 0);
    let bank = Bank::create(&mut worker, 10, 100);
    worker.close();
    engine.shutdown().unwrap();
    drop(engine);
    let old = pages(&disk);
    let change = |change: &dyn Fn(&mut Worker)| {
        let engine = open(&disk, PARTITIONS, 1);
        let mut worker = Worker::new(&engine, 0);
        change(&mut worker);
        worker.close();
        engine.shutdown().unwrap();
    };
    change(&|worker| drop(bank.add(worker, 3, 1).unwrap()));
    assert_eq!(stale(&disk, &old), [false]);
    let old = pages(&disk);
    change(&|worker| drop(worker.run(&users.set_email(Who::Id(30), Some(77))).unwrap()));
    let reported = stale(&disk, &old);
    // The row, and its old and new entries in the index and in the global index. The other index's
    // entry was removed and restored, so its leaf is unchanged.
    assert!(reported.iter().filter(|reported| **reported).count() >= 4, "{reported:?}");
}
