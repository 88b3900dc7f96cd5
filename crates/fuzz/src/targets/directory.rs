//! A data directory with changed files, with or without corrected checksums. It opens or fails with
//! an error. If it opens, it is walked, written to, and closed, possibly with errors. A walk ends,
//! and visits each key once, in order.

use super::Image;
use crate::input::Input;
use crate::seal;
use clearway_buffer::PAGE_SIZE;
use clearway_env::Disk;
use clearway_storage::wal::WalError;
use clearway_storage::{
    Addend, Addends, Blocked, Node, NodeConfig, StorageError, Store, Trees, TxnLog, TxnMode,
};
use clearway_testkit::MemDisk;
use clearway_types::{TreeId, TxnId};
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Corrects the checksums of pages, and their headers if changed.
pub(crate) const SEAL_PAGES: u8 = 1;
/// Corrects the checksums of log records.
pub(crate) const SEAL_LOG: u8 = 2;
/// Corrects the checksums of the control file and the double-write file.
pub(crate) const SEAL_REST: u8 = 4;

/// Size of a segment in bytes of log.
const SEGMENT: u64 = 16 << 10;
/// The path of the directory.
pub(crate) const LIVE: &str = "db";
/// More keys than all pages can contain.
const MOST_KEYS: usize = 100_000;
/// More attempts than any useful walk needs.
const MOST_ATTEMPTS: usize = 10_000;

fn config() -> NodeConfig {
    NodeConfig {
        partitions: None,
        frames: 64,
        io_threads: 1,
        wal_segment_size: SEGMENT,
        wal_buffer_size: 256 << 10,
        ..NodeConfig::default()
    }
}

/// Returns a small directory that the engine made, after a crash: two partitions, trees of two
/// levels, long values, freed pages, and a log with transactions that ended and two that did not,
/// which have both added to the same rows.
pub(crate) fn base() -> &'static Image {
    static BASE: OnceLock<Image> = OnceLock::new();
    BASE.get_or_init(|| {
        let disk = MemDisk::new();
        let dir = Path::new(LIVE);
        let open = NodeConfig { partitions: Some(2), ..config() };
        let mut node = Node::open(Arc::new(disk.clone()), dir, open).expect("a new directory");
        let mut stores = node.take_stores();
        for store in &mut stores {
            fill(&node, store).expect("a sound directory");
        }
        node.checkpoint().expect("a disk in memory");
        let mut txn = TxnLog::new(TxnId(1000));
        for i in 0..20u32 {
            let key = format!("late {i}");
            attempts(&node, &mut stores[0], |s| {
                s.insert(&mut txn, TxnMode::Logged, TreeId(1), key.as_bytes(), b"v")
            })
            .expect("a sound directory");
        }
        let mut addends = Addends::default();
        assert!(addends.push(Addend { offset: 2, width: 2, delta: -1 }));
        assert!(addends.push(Addend { offset: 8, width: 8, delta: 1 << 40 }));
        let mut other = TxnLog::new(TxnId(1001));
        for log in [&mut txn, &mut other] {
            for (tree, key) in [(TreeId(1), &b"key 00009"[..]), (TreeId(2), &[2])] {
                let compute = &mut |_: &[u8]| Some(addends);
                attempts(&node, &mut stores[0], |s| {
                    s.increment(log, TxnMode::Logged, tree, key, compute)
                })
                .expect("a sound directory");
            }
        }
        // The losers stay active: nothing ends them before the files are copied.
        node.shutdown();
        let end = node.wal().appended().0;
        let names = ["db", "db/data", "db/wal"].map(Path::new);
        let mut image = Image::of(&disk, &names).expect("a disk in memory");
        // The number of segments made ahead is random, but an input must mean the same in every
        // process.
        image.0.retain(|(path, _)| {
            segment_start(path).is_none_or(|start| start < end) && !path.ends_with("next.tmp")
        });
        drop((txn, other, stores, node));
        image
    })
}

/// Returns a segment's start, according to its name.
pub(crate) fn segment_start(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    u64::from_str_radix(name.strip_suffix(".wal")?, 16).ok()
}

fn fill(node: &Node, store: &mut Store) -> Result<(), StorageError> {
    for tree in [TreeId(1), TreeId(2)] {
        attempts(node, store, |s| s.create_tree(tree))?;
    }
    for i in 0..400u32 {
        let (key, value) = (format!("key {i:05}"), vec![i as u8; 40]);
        attempts(node, store, |s| s.insert_autocommit(TreeId(1), key.as_bytes(), &value))?;
    }
    for i in 0..4u8 {
        attempts(node, store, |s| {
            s.insert_autocommit(TreeId(2), &[i], &vec![i; 9_000 * usize::from(i)])
        })?;
    }
    attempts(node, store, |s| s.delete_autocommit(TreeId(2), &[3]))?;
    attempts(node, store, |s| s.update_autocommit(TreeId(1), b"key 00007", b"short"))?;
    Ok(())
}

/// Returns the directory that an input describes: flags, then changes.
fn changed(data: &[u8]) -> Image {
    let mut input = Input::new(data);
    let flags = input.u8();
    let mut image = base().clone();
    change_files(&mut image, &mut input);
    seal_files(&mut image, flags);
    image
}

/// Applies changes, each of which is a file, an offset in it (u24), a count, and that many bytes to
/// write there.
pub(crate) fn change_files(image: &mut Image, input: &mut Input<'_>) {
    while !input.is_empty() {
        let file = usize::from(input.u8()) % image.0.len();
        let [a, b, c, count] = input.array();
        let bytes = input.bytes(usize::from(count));
        let file = &mut image.0[file].1;
        if !file.is_empty() {
            let at = u32::from_le_bytes([a, b, c, 0]) as usize % file.len();
            let n = bytes.len().min(file.len() - at);
            file[at..at + n].copy_from_slice(&bytes[..n]);
        }
    }
}

pub(super) fn run(data: &[u8]) {
    walk(&changed(data));
}

fn seal_files(image: &mut Image, flags: u8) {
    let original = base();
    for ((path, bytes), (_, old)) in image.0.iter_mut().zip(&original.0) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if flags & SEAL_PAGES != 0 && name.starts_with('p') {
            for (page, old) in bytes.chunks_exact_mut(PAGE_SIZE).zip(old.chunks_exact(PAGE_SIZE)) {
                if page != old {
                    seal::page(page);
                }
            }
        } else if flags & SEAL_LOG != 0 && name.ends_with(".wal") {
            if let Some(start) = segment_start(path)
                && bytes != old
            {
                seal::records(&mut bytes[seal::SEGMENT_HEADER..], start, start.max(8));
            }
        } else if flags & SEAL_REST != 0 && name == "control" {
            bytes
                .chunks_mut(4096)
                .filter(|slot| slot.len() >= 64)
                .for_each(|slot| seal::control_slot(&mut slot[..64]));
        } else if flags & SEAL_REST != 0 && name == "double-write.data" && bytes.len() >= PAGE_SIZE
        {
            seal::double_write(&mut bytes[..PAGE_SIZE]);
        }
    }
}

/// Opens the directory, walks it, changes it, closes it, and opens it again.
pub(crate) fn walk(image: &Image) {
    let disk = image.disk();
    if visit(&disk) {
        // After a successful checkpoint, the next start must succeed, too.
        visit(&disk);
    }
}

/// Like [`walk`], once. Returns true if a checkpoint succeeded.
pub(crate) fn visit(disk: &Arc<dyn Disk>) -> bool {
    let Ok(mut node) = Node::open(disk.clone(), Path::new(LIVE), config()) else { return false };
    let mut stores = node.take_stores();
    // A changed directory may claim to have thousands.
    for store in stores.iter_mut().take(4) {
        let mut trees = store.trees();
        trees.sort_unstable();
        for tree in trees {
            for reverse in [false, true] {
                let _ = scan(&node, store, tree, reverse);
            }
            let _ = change(&node, store, tree);
        }
        let _ = attempts(&node, store, |s| s.create_tree(TreeId(77)));
        while let Ok(false) = attempts(&node, store, |s| s.drop_tree(TreeId(1))) {}
    }
    let closed = node.checkpoint().is_ok();
    node.shutdown();
    closed
}

fn change(node: &Node, store: &mut Store, tree: TreeId) -> Result<(), StorageError> {
    let mut txn = TxnLog::new(node.alloc_txn_id());
    for i in 0..3u8 {
        let (key, value) = ([b'k', i], vec![i; 3000 * usize::from(i)]);
        attempts(node, store, |s| s.insert(&mut txn, TxnMode::Logged, tree, &key, &value))?;
        attempts(node, store, |s| s.get(tree, &key, &mut |_| {}))?;
    }
    attempts(node, store, |s| s.update(&mut txn, TxnMode::Logged, tree, b"key 00003", b"other"))?;
    attempts(node, store, |s| s.delete(&mut txn, TxnMode::Logged, tree, b"key 00004"))?;
    attempts(node, store, |s| s.next_rowid(tree))?;
    attempts(node, store, |s| s.rollback(&mut txn, 0, &mut |_, _, _| {}))?;
    store.aborted(txn);
    Ok(())
}

fn scan(node: &Node, store: &mut Store, tree: TreeId, reverse: bool) -> Result<(), StorageError> {
    let mut cursor =
        clearway_storage::Cursor::new(tree, Bound::Unbounded, Bound::Unbounded, reverse);
    let mut seen = 0;
    attempts(node, store, |store| {
        cursor.run(store, &mut |_, _| {
            seen += 1;
            assert!(seen <= MOST_KEYS, "a scan does not end");
            ControlFlow::Continue(())
        })
    })?;
    Ok(())
}

/// Fetches and retries, as the coordinator does.
fn attempts<T>(
    node: &Node,
    store: &mut Store,
    mut attempt: impl FnMut(&mut Store) -> Result<T, Blocked>,
) -> Result<T, StorageError> {
    let mut kept = Vec::new();
    for _ in 0..MOST_ATTEMPTS {
        match attempt(store) {
            Ok(value) => {
                // A record contains the durable LSN from when it was made: the same in every
                // process.
                return node
                    .wal()
                    .wait_durable(node.wal().appended())
                    .map(|()| value)
                    .map_err(|e| WalError::Io(e).into());
            }
            Err(Blocked::Log(read)) => read.run(),
            Err(Blocked::Failed(error)) => return Err(error),
            Err(Blocked::MissingPage(wants)) => {
                let fetched = wants
                    .into_iter()
                    .map(|want| node.pool().fetch_blocking(want))
                    .collect::<Result<Vec<_>, _>>()?;
                drop(std::mem::replace(&mut kept, fetched));
            }
        }
    }
    panic!("an operation needs pages forever");
}
