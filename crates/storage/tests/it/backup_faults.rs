//! Backups and disks that fail, fill up, or return damaged data: errors name file and place, and
//! damage is never copied.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::backup::{FRAMES, PARTITIONS, arc, continue_always, copy_dir, filled, take_offline};
use crate::common::{World, as_model, config};
use clearway_env::{Disk, Open};
use clearway_storage::backup::{self, BackupError};
use clearway_storage::{Node, OpenErrorKind, Store, Trees, TxnLog, TxnMode};
use clearway_testkit::{Intercept, Intercepted, MemDisk, Opened};
use clearway_types::{PageId, SqlError, SqlState, TreeId};

const BLOCK: u64 = 1 << 20;
const PAGE: u64 = 8192;
const SEGMENT: u64 = 64 << 10;

fn flip(disk: &MemDisk, path: &Path, at: u64) {
    let file = disk.open(path, Open::Existing).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

fn len(disk: &MemDisk, path: &Path) -> u64 {
    disk.open(path, Open::Existing).unwrap().len().unwrap()
}

/// Returns a disk with a backup in `copy` and nothing else.
fn only_a_backup() -> MemDisk {
    let disk = MemDisk::new();
    let (world, _, _open) = filled(&disk, 3000);
    world.node.backup(Path::new("copy"), "test", &mut continue_always).unwrap();
    world.node.shutdown();
    let alone = MemDisk::new();
    copy_dir(&disk, &alone, Path::new("copy"));
    alone
}

fn check(disk: &MemDisk) -> BackupError {
    let verified = backup::verify(arc(disk), Path::new("copy"), &mut continue_always).unwrap_err();
    let restored =
        backup::restore(arc(disk), Path::new("copy"), Path::new("new"), &mut continue_always)
            .unwrap_err();
    assert_eq!(verified.to_string(), restored.to_string());
    assert!(
        !disk.exists(Path::new("new/control")).unwrap(),
        "a database was made of a damaged backup"
    );
    assert_eq!(verified.kind(), OpenErrorKind::Damaged, "{verified}");
    verified
}

/// Invariant 4.
#[test]
fn flipped_byte_in_a_backup_is_located() {
    let backup = only_a_backup();
    for name in ["data/p0000.data", "data/p0002.data", "log"] {
        let path = Path::new("copy").join(name);
        let size = len(&backup, &path);
        assert!(size >= 2 * PAGE || name == "log", "{name} has {size} bytes");
        for at in [0, 1, size / 3, size / 2 + 5, size - 1] {
            let disk = MemDisk::new();
            copy_dir(&backup, &disk, Path::new("copy"));
            flip(&disk, &path, at);
            let BackupError::Damaged { file, offset, what } = check(&disk) else {
                panic!("{name} at {at}")
            };
            assert_eq!(Path::new(&file), path);
            let unit = if name == "log" { BLOCK } else { PAGE };
            assert_eq!(offset, at / unit * unit, "{name} at {at}: {what}");
        }
    }
}

#[test]
fn truncated_or_incomplete_backup_is_refused() {
    let backup = only_a_backup();
    for name in ["data/p0000.data", "log"] {
        let path = Path::new("copy").join(name);
        for cut in [0, 1, len(&backup, &path) - 1] {
            let disk = MemDisk::new();
            copy_dir(&backup, &disk, Path::new("copy"));
            disk.open(&path, Open::Existing).unwrap().set_len(cut).unwrap();
            let BackupError::Damaged { file, offset, .. } = check(&disk) else {
                panic!("{name} cut at {cut}")
            };
            assert_eq!((PathBuf::from(file), offset), (path.clone(), cut));
        }
        let disk = MemDisk::new();
        copy_dir(&backup, &disk, Path::new("copy"));
        disk.remove(&path).unwrap();
        assert!(check(&disk).to_string().contains("is missing"));
    }
    let manifest = Path::new("copy/manifest");
    for at in (0..len(&backup, manifest)).step_by(7) {
        let disk = MemDisk::new();
        copy_dir(&backup, &disk, Path::new("copy"));
        flip(&disk, manifest, at);
        assert!(matches!(check(&disk), BackupError::Incomplete(_)), "manifest byte {at}");
    }
    backup.remove(manifest).unwrap();
    assert!(matches!(check(&backup), BackupError::Incomplete(_)));
}

/// Invariant 3.
#[test]
fn damaged_database_is_not_backed_up() {
    for log in [false, true] {
        let disk = MemDisk::new();
        let (mut world, _, open) = filled(&disk, 500);
        world.node.checkpoint().unwrap();
        // In a record of the open transaction, for which the log is kept; its padding is at most
        // seven bytes.
        let in_log = world.node.wal().durable().0 - 10;
        let (segment, inside) = (in_log / SEGMENT * SEGMENT, in_log % SEGMENT);
        let (name, at) = match log {
            false => ("db/data/p0000.data".to_owned(), 3 * PAGE + 100),
            true => (format!("db/wal/{segment:016x}.wal"), 4096 + inside),
        };
        flip(&disk, Path::new(&name), at);
        let error = world.node.backup(Path::new("copy"), "test", &mut continue_always).unwrap_err();
        assert!(error.to_string().contains(&name), "{error}");
        assert_eq!(error.kind(), OpenErrorKind::Damaged);
        assert_eq!(SqlError::from(error).state(), SqlState::DATA_CORRUPTED);
        assert!(!disk.exists(Path::new("copy/manifest")).unwrap());
        world.stores[0].commit_local(open);
        world.node.shutdown();
    }
}

/// Invariant 3, for pages that are gone.
#[test]
fn lost_pages_are_not_backed_up() {
    // Each returns the first lost page.
    type Lose = fn(&dyn clearway_env::File) -> u64;
    let ways: [Lose; 4] = [
        |file| file.write_all_at(&[0; PAGE as usize], 3 * PAGE).map(|()| 3).unwrap(),
        |file| file.set_len(5 * PAGE).map(|()| 5).unwrap(),
        |file| file.set_len(0).map(|()| 0).unwrap(),
        // The log that is copied creates this one, but before redo starts.
        |file| {
            let mut pages = [0; 4];
            file.read_exact_at(&mut pages, 36).unwrap();
            let last = u64::from(u32::from_le_bytes(pages)) - 1;
            file.write_all_at(&[0; PAGE as usize], last * PAGE).map(|()| last).unwrap()
        },
    ];
    let path = Path::new("db/data/p0000.data");
    for lose in ways {
        let disk = MemDisk::new();
        let (mut world, _, open) = filled(&disk, 2000);
        let mut txn = TxnLog::new(world.node.alloc_txn_id());
        for key in 2000..2100_u32 {
            let key = key.to_be_bytes();
            let insert =
                |s: &mut Store| s.insert(&mut txn, TxnMode::Logged, TreeId(1), &key, &[7; 500]);
            world.run(0, insert).unwrap();
        }
        world.stores[0].commit_local(txn);
        world.node.checkpoint().unwrap();
        assert!(len(&disk, path) > 6 * PAGE);
        let first = lose(&*disk.open(path, Open::Existing).unwrap());
        let online = world.node.backup(Path::new("online"), "test", &mut continue_always);
        // The last checkpoint was the backup's, which keeps the log of the open transaction.
        world.node.shutdown();
        drop((world, open));
        let offline = take_offline(&disk, "db");
        for error in [online.unwrap_err(), offline.unwrap_err()] {
            let what = format!("page {first} in p0000.data is damaged: it is in use");
            assert!(error.to_string().contains(&what), "{error}");
            assert_eq!(error.kind(), OpenErrorKind::Damaged, "{error}");
        }
        for target in ["online", "copy"] {
            assert!(!disk.exists(&Path::new(target).join("manifest")).unwrap());
        }
    }
}

/// Invariant 3: pages that redo creates may be absent.
#[test]
fn pages_created_since_the_checkpoint_may_be_absent() {
    type Lose = fn(&dyn clearway_env::File);
    let ways: [Lose; 2] = [
        |file| file.set_len(2 * PAGE).unwrap(),
        |file| {
            let rest = file.len().unwrap() - 2 * PAGE;
            file.write_all_at(&vec![0; rest as usize], 2 * PAGE).unwrap();
        },
    ];
    let path = Path::new("db/data/p0000.data");
    for lose in ways {
        let disk = MemDisk::new();
        let (mut world, mut rows, open) = filled(&disk, 2000);
        let end = world.stores[0].commit_local(open);
        rows.insert(b"never committed".to_vec(), b"x".to_vec());
        world.node.wal().wait_durable(end).unwrap();
        let killed = disk.copy();
        // A checkpoint that had written page 0, which counts the pages, and not yet the others.
        world.node.checkpoint().unwrap();
        let mut page_0 = [0; PAGE as usize];
        disk.open(path, Open::Existing).unwrap().read_exact_at(&mut page_0, 0).unwrap();
        assert!(u32::from_le_bytes(page_0[36..40].try_into().unwrap()) > 6, "pages in use");
        let file = killed.open(path, Open::Existing).unwrap();
        file.write_all_at(&page_0, 0).unwrap();
        lose(&*file);
        take_offline(&killed, "db").unwrap();
        let alone = MemDisk::new();
        copy_dir(&killed, &alone, Path::new("copy"));
        backup::restore(arc(&alone), Path::new("copy"), Path::new("db"), &mut continue_always)
            .unwrap();
        let mut found = World::open(&alone, PARTITIONS, FRAMES).unwrap();
        assert!(as_model(found.all(0, TreeId(1), false)) == rows);
        found.node.shutdown();
        world.node.shutdown();
    }
}

/// Returns a directory whose pages, and their copies, have changes beyond the end of the log. It is
/// taken after a checkpoint, when no thread writes pages, and has the control file from before.
fn with_lost_log() -> MemDisk {
    let disk = MemDisk::new();
    let (mut world, _, _open) = filled(&disk, 2000);
    world.node.checkpoint().unwrap();
    let end = world.node.wal().durable();
    let control = Path::new("db/control");
    let mut state = vec![0; len(&disk, control) as usize];
    disk.open(control, Open::Existing).unwrap().read_exact_at(&mut state, 0).unwrap();
    let mut txn = TxnLog::new(world.node.alloc_txn_id());
    for i in 0..2000_u32 {
        let key = (i + 5000).to_be_bytes();
        world.run(0, |s| s.insert(&mut txn, TxnMode::Logged, TreeId(1), &key, &[7; 500])).unwrap();
    }
    world.node.checkpoint().unwrap();
    let after = disk.kill();
    after.open(control, Open::Existing).unwrap().write_all_at(&state, 0).unwrap();
    for name in after.list(Path::new("db/wal")).unwrap() {
        let start = u64::from_str_radix(name.trim_end_matches(".wal"), 16).unwrap_or(u64::MAX);
        if start != u64::MAX && start + SEGMENT > end.0 {
            let from = 4096 + end.0.saturating_sub(start);
            let file = after.open(&Path::new("db/wal").join(name), Open::Existing).unwrap();
            file.write_all_at(&vec![0; (4096 + SEGMENT - from) as usize], from).unwrap();
        }
    }
    world.node.shutdown();
    after
}

const COPIES: &str = "db/data/double-write.data";

/// Invariant 1: a page beyond the log's end proves that the log has lost acknowledged data.
#[test]
fn page_newer_than_the_log_is_an_error() {
    let disk = with_lost_log();
    disk.open(Path::new(COPIES), Open::Existing).unwrap().write_all_at(&[0; 512], 0).unwrap();
    let error = take_offline(&disk, "db").unwrap_err();
    assert!(error.to_string().contains("its LSN is beyond the end of the log"), "{error}");
}

/// Invariant 3: what a start refuses is not backed up either, and nothing is repaired before that
/// is known.
#[test]
fn offline_backup_needs_the_log_that_a_copy_proves() {
    let disk = with_lost_log();
    let mut first = [0; 8];
    let copies = disk.open(Path::new(COPIES), Open::Existing).unwrap();
    copies.read_exact_at(&mut first, 16).unwrap();
    let id = PageId::from_u64(u64::from_le_bytes(first));
    let path = Path::new("db/data").join(format!("p{:04}.data", id.partition().0));
    let file = disk.open(&path, Open::Existing).unwrap();
    flip(&disk, &path, u64::from(id.no()) * PAGE + 100);
    let read = || {
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    let torn = read();
    let opened = World::open(&disk.copy(), PARTITIONS, FRAMES).map(drop).unwrap_err();
    let error = take_offline(&disk, "db").unwrap_err();
    for (kind, text) in [(opened.kind(), opened.to_string()), (error.kind(), error.to_string())] {
        assert_eq!(kind, OpenErrorKind::Damaged, "{text}");
        assert!(text.contains("double-write.data has a page with changes up to"), "{text}");
    }
    assert!(read() == torn, "a page was repaired");
    assert!(!disk.exists(Path::new("copy")).unwrap());
}

/// A disk with little space below one directory.
struct Full {
    below: &'static str,
    room: Arc<AtomicI64>,
}

impl Intercept for Full {
    fn write_all_at(&self, to: &Opened, buf: &[u8], offset: u64) -> io::Result<()> {
        let len = buf.len() as i64;
        // Relaxed: one thread writes.
        if to.path.starts_with(self.below) && self.room.fetch_sub(len, Ordering::Relaxed) < len {
            return Err(io::ErrorKind::StorageFull.into());
        }
        to.file.write_all_at(buf, offset)
    }
}

#[test]
fn full_target_disk_fails_only_the_backup() {
    let inner = MemDisk::new();
    let room = Arc::new(AtomicI64::new(40_000));
    let full =
        Intercepted::new(inner.clone(), Arc::new(Full { below: "copy", room: room.clone() }));
    let mut node = Node::open(Arc::new(full), Path::new("db"), config(PARTITIONS, FRAMES)).unwrap();
    let stores = node.take_stores();
    let mut world = World { node, stores, retries: 0 };
    let tree = TreeId(1);
    world.run(0, |s| s.create_tree(tree)).unwrap();
    let fill = |world: &mut World, key: &[u8]| {
        let mut txn = TxnLog::new(world.node.alloc_txn_id());
        world.run(0, |s| s.insert(&mut txn, TxnMode::Logged, tree, key, &[1; 900])).unwrap();
        let end = world.stores[0].commit_local(txn);
        world.node.wal().wait_durable(end).unwrap();
    };
    for i in 0..100_u8 {
        fill(&mut world, &[i]);
    }
    let error = SqlError::from(
        world.node.backup(Path::new("copy"), "test", &mut continue_always).unwrap_err(),
    );
    assert_eq!(error.state(), SqlState::DISK_FULL, "{error}");
    assert!(error.get_hint().is_some_and(|hint| hint.contains("remove it")));
    assert!(!inner.exists(Path::new("copy/manifest")).unwrap());
    fill(&mut world, b"after it");
    world.node.checkpoint().unwrap();
    room.store(i64::MAX, Ordering::Relaxed);
    world.node.backup(Path::new("copy/second"), "test", &mut continue_always).unwrap();
    backup::verify(arc(&inner), Path::new("copy/second"), &mut continue_always).unwrap();
    world.node.shutdown();
}
