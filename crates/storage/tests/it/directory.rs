//! The data directory: created, refused, and recreated after a crash during creation.

use std::path::Path;
use std::sync::Arc;

use clearway_env::{Disk, OsDisk};
use clearway_storage::{Node, NodeConfig, OpenError, SecondLevelConfig, Trees};
use clearway_testkit::MemDisk;
use clearway_types::TreeId;

use crate::common::{World, config};

fn refusal(disk: &MemDisk, partitions: u16) -> String {
    match World::open(disk, partitions, 48) {
        Ok(_) => panic!("the directory was opened"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn directory_has_one_server_and_fixed_partitions() {
    let disk = MemDisk::new();
    let world = World::open(&disk, 2, 48).unwrap();
    assert!(matches!(World::open(&disk, 2, 48), Err(OpenError::InUse(_))));
    world.node.shutdown();
    drop(world);
    assert!(refusal(&disk, 3).contains("2 partitions, not 3"));
    let unset = Node::open(
        Arc::new(disk.clone()),
        Path::new("db"),
        NodeConfig { partitions: None, ..config(1, 48) },
    );
    assert_eq!(unset.unwrap().partitions(), 2);
    disk.remove("db/control".as_ref()).unwrap();
    assert!(refusal(&disk, 2).contains("no control file"));
}

/// Dropping a node without a shutdown also ends it, even if others still hold parts of it. Another
/// process may have the directory then.
#[test]
fn dropped_node_writes_nothing() {
    let disk = MemDisk::new();
    let mut world = World::open(&disk, 1, 48).unwrap();
    world.run(0, |s| s.create_tree(TreeId(1))).unwrap();
    let World { node, mut stores, .. } = world;
    let (wal, before) = (node.wal().clone(), node.wal().appended());
    drop(node);
    assert!(wal.wait_durable(before).is_ok(), "what was appended is on the disk");
    stores[0].insert_autocommit(TreeId(1), b"late", b"").unwrap();
    assert!(wal.appended() > before && wal.wait_durable(wal.appended()).is_err());
    drop((wal, stores));
    let mut world = World::open(&disk, 1, 48).unwrap();
    assert!(world.all(0, TreeId(1), false).is_empty());
    world.node.shutdown();
}

/// Invariant 3 of `node`.
#[test]
fn crash_during_creation_allows_recreation() {
    crashed_creation_allows_recreation(&config(2, 48));
}

/// The second-level cache's file may be in the data directory, and is created before the control
/// file.
#[test]
fn crash_during_creation_with_a_cache_allows_recreation() {
    let cache = SecondLevelConfig { dir: "db".into(), size: 1 << 20 };
    crashed_creation_allows_recreation(&NodeConfig { second_level: Some(cache), ..config(2, 48) });
}

fn crashed_creation_allows_recreation(config: &NodeConfig) {
    for operations in 0.. {
        let disk = MemDisk::new();
        disk.fail_after(operations);
        let opened = World::open_with(&disk, config.clone());
        let after = disk.crash(operations);
        let whole = opened.is_ok();
        drop(opened);
        let mut world = World::open_with(&after, config.clone()).unwrap();
        for partition in 0..2 {
            assert!(world.stores[partition].trees().is_empty());
            world.run(partition, |s| s.create_tree(TreeId(1))).unwrap();
        }
        world.node.shutdown();
        if whole {
            assert!(operations > 10);
            break;
        }
    }
}

#[test]
fn trees_survive_a_restart_on_a_real_disk() {
    let dir = std::env::temp_dir().join(format!("clearway-storage-{}", std::process::id()));
    let open = || {
        let mut node = Node::open(Arc::new(OsDisk), &dir, config(1, 64)).unwrap();
        let stores = node.take_stores();
        World { node, stores, retries: 0 }
    };
    let mut world = open();
    world.run(0, |s| s.create_tree(TreeId(1))).unwrap();
    for i in 0..2000u32 {
        world.run(0, |s| s.insert_autocommit(TreeId(1), &i.to_be_bytes(), &[b'x'; 300])).unwrap();
    }
    let lsn = world.node.wal().appended();
    world.node.wal().wait_durable(lsn).unwrap();
    drop(world);
    let mut world = open();
    assert!(world.node.recovery().log_bytes > 500_000);
    assert_eq!(world.all(0, TreeId(1), true).len(), 2000);
    drop(world);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn missing_log_files_are_reported() {
    let disk = MemDisk::new();
    let mut world = World::open(&disk, 2, 48).unwrap();
    world.run(0, |s| s.create_tree(TreeId(1))).unwrap();
    world.node.checkpoint().unwrap();
    world.node.shutdown();
    drop(world);
    for dir in ["db", "db/wal", "db/log"] {
        for name in disk.list(dir.as_ref()).unwrap_or_default() {
            if name.ends_with(".wal") {
                disk.remove(Path::new(dir).join(name).as_ref()).unwrap();
            }
        }
    }
    let why = refusal(&disk, 2);
    assert!(why.contains("log"), "{why}");
}
