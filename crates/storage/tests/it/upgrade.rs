//! Disks outlive releases: format version 2, with additions in the log, can be read, and
//! directories of older versions become directories of version 3. Version 3 differs in the catalog,
//! which storage does not read.
//!
//! `tests/fixtures/v2.pack` is what a crash left of a node of version 2: a row in a leaf and one in
//! overflow pages, to which three transactions have added in turn. One is committed, one is open,
//! one is half rolled back. `CLEARWAY_MAKE_FIXTURE=1 cargo test -p clearway-storage --test it
//! upgrade` creates it. Create a new one only for a new version, under a new name: the old ones
//! stay.

use std::path::{Path, PathBuf};

use crate::additions::addends;
use crate::check::assert_sound;
use crate::common::{World, config};
use clearway_env::{Disk, Open};
use clearway_storage::{Addends, NodeConfig, Trees, TxnLog, TxnMode};
use clearway_testkit::MemDisk;
use clearway_types::TreeId;

const TREE: TreeId = TreeId(1);
const KEYS: [&[u8]; 2] = [b"short", b"long"];
const SLOTS: [u64; 2] = [0, 4096];

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v2.pack")
}

fn base(key: &[u8]) -> Vec<u8> {
    // Zeros use no space in the fixture.
    let mut value = vec![0; if key == KEYS[0] { 40 } else { 9_000 }];
    value[..20].fill(0xff);
    value
}

fn additions() -> [Addends; 3] {
    [addends(&[(0, 2, 1), (8, 8, 5)]), addends(&[(0, 2, 10), (16, 4, 6)]), addends(&[(0, 2, 100)])]
}

fn open(disk: &MemDisk) -> World {
    let config = NodeConfig { wal_segment_size: 64 << 10, ..config(1, 48) };
    World::open_with(disk, config).unwrap()
}

fn make() -> MemDisk {
    let disk = MemDisk::new();
    let mut world = open(&disk);
    world.run(0, |s| s.create_tree(TREE)).unwrap();
    for key in KEYS {
        world.run(0, |s| s.insert_autocommit(TREE, key, &base(key))).unwrap().unwrap();
    }
    world.node.checkpoint().unwrap();
    let mut logs = [(); 3].map(|()| TxnLog::new(world.node.alloc_txn_id()));
    for (key, _) in KEYS.iter().flat_map(|key| [(key, 1), (key, 2)]) {
        for (log, what) in logs.iter_mut().zip(additions()) {
            let mut compute = |_: &[u8]| Some(what);
            world.run(0, |s| s.increment(log, TxnMode::Logged, TREE, key, &mut compute)).unwrap();
        }
    }
    let [committed, open, mut half_undone] = logs;
    world.run(0, |s| s.rollback(&mut half_undone, 2, &mut |_, _, _| {})).unwrap();
    let lsn = world.stores[0].commit_local(committed);
    world.node.wal().wait_durable(lsn).unwrap();
    assert_eq!((open.mark(), half_undone.mark()), (4, 2));
    disk.crash(7)
}

/// Checks that the rows have exactly the committed transaction's additions.
fn verify(disk: &MemDisk) {
    let mut world = open(disk);
    for key in KEYS {
        let mut expected = base(key);
        assert!((0..2).all(|_| additions()[0].add_to(&mut expected)));
        let mut is_right = false;
        let mut compare = |value: &[u8]| is_right = value == expected;
        assert!(world.run(0, |s| s.get(TREE, key, &mut compare)).unwrap());
        assert!(is_right, "another value of {key:?}");
    }
    world.node.shutdown();
    drop(world);
    assert_sound(disk);
}

fn contents(disk: &MemDisk, path: &Path) -> Vec<u8> {
    let file = disk.open(path, Open::Existing).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Packs a disk. For each file: u16 length of its path, its path, u32 length, u32 number of runs.
/// For each run: u32 offset, u32 length, and its bytes. Everything outside the runs is zeros.
fn pack(disk: &MemDisk) -> Vec<u8> {
    let mut out = Vec::new();
    let names = |dir: &str| disk.list(Path::new(dir)).unwrap();
    let mut paths = vec!["db/control".to_owned()];
    for dir in ["db/wal", "db/data"] {
        paths.extend(names(dir).into_iter().map(|name| format!("{dir}/{name}")));
    }
    for path in paths {
        let bytes = contents(disk, Path::new(&path));
        let runs: Vec<_> =
            bytes.chunks(64).enumerate().filter(|(_, run)| run.iter().any(|b| *b != 0)).collect();
        out.extend_from_slice(&(path.len() as u16).to_le_bytes());
        out.extend_from_slice(path.as_bytes());
        for word in [bytes.len(), runs.len()] {
            out.extend_from_slice(&(word as u32).to_le_bytes());
        }
        for (at, run) in runs {
            for word in [at * 64, run.len()] {
                out.extend_from_slice(&(word as u32).to_le_bytes());
            }
            out.extend_from_slice(run);
        }
    }
    out
}

fn unpack(mut packed: &[u8]) -> MemDisk {
    fn take<'p>(packed: &mut &'p [u8], n: usize) -> &'p [u8] {
        let (front, rest) = packed.split_at(n);
        *packed = rest;
        front
    }
    fn word(packed: &mut &[u8]) -> usize {
        u32::from_le_bytes(take(packed, 4).try_into().unwrap()) as usize
    }
    let disk = MemDisk::new();
    for dir in ["db/wal", "db/data"] {
        disk.create_dir_all(Path::new(dir)).unwrap();
    }
    while !packed.is_empty() {
        let len = u16::from_le_bytes(take(&mut packed, 2).try_into().unwrap());
        let path = String::from_utf8(take(&mut packed, len.into()).to_vec()).unwrap();
        let mut bytes = vec![0; word(&mut packed)];
        for _ in 0..word(&mut packed) {
            let (at, len) = (word(&mut packed), word(&mut packed));
            bytes[at..at + len].copy_from_slice(take(&mut packed, len));
        }
        let file = disk.open(Path::new(&path), Open::OpenOrCreate).unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        file.sync_data().unwrap();
    }
    disk
}

#[test]
fn directory_of_version_2_is_recovered() {
    if std::env::var_os("CLEARWAY_MAKE_FIXTURE").is_some() {
        std::fs::create_dir_all(fixture().parent().unwrap()).unwrap();
        std::fs::write(fixture(), pack(&make())).unwrap();
    }
    verify(&unpack(&std::fs::read(fixture()).unwrap()));
    verify(&make());
}

/// Returns the format versions in the slots of the control file.
fn versions(disk: &MemDisk) -> [u8; 2] {
    let bytes = contents(disk, Path::new("db/control"));
    SLOTS.map(|at| bytes[at as usize + 8])
}

#[test]
fn directories_of_older_versions_are_upgraded() {
    upgrade_from(1);
    upgrade_from(2);
}

fn upgrade_from(version: u8) {
    let disk = MemDisk::new();
    let mut world = open(&disk);
    world.run(0, |s| s.create_tree(TREE)).unwrap();
    world.run(0, |s| s.insert_autocommit(TREE, KEYS[0], b"value")).unwrap().unwrap();
    world.node.shutdown();
    drop(world);
    let file = disk.open(Path::new("db/control"), Open::Existing).unwrap();
    for at in SLOTS {
        let mut slot = [0; 64];
        file.read_exact_at(&mut slot, at).unwrap();
        slot[8] = version;
        let crc = crc32c::crc32c(&slot[..60]);
        slot[60..].copy_from_slice(&crc.to_le_bytes());
        file.write_all_at(&slot, at).unwrap();
    }
    file.sync_data().unwrap();
    assert_eq!(versions(&disk), [version; 2]);
    assert_sound(&disk);
    // Before the start writes anything else, an older release would find version 3 after any crash.
    let mut world = open(&disk);
    assert!(versions(&disk.crash(0)).contains(&3));
    let mut found = Vec::new();
    world.run(0, |s| s.get(TREE, KEYS[0], &mut |value| found = value.to_vec())).unwrap();
    assert_eq!(found, b"value");
    world.node.shutdown();
}
