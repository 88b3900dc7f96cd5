//! `check` finds damage in a directory, says where, and changes nothing.

use std::path::Path;
use std::sync::Arc;

use clearway_buffer::{PAGE_SIZE, seal};
use clearway_env::{Disk, File, Open};
use clearway_storage::check::{CheckOptions, Checker, Report};
use clearway_storage::{OpenError, Trees, TxnLog, TxnMode};
use clearway_testkit::MemDisk;
use clearway_types::{PageId, PartitionId, TreeId};
use proptest::prelude::*;

use crate::common::{Random, World};

const PARTITIONS: u16 = 2;
const TREE: TreeId = TreeId(7);

pub fn scratch() -> Arc<dyn File> {
    MemDisk::new().open("scratch".as_ref(), Open::Create).unwrap()
}

pub fn try_check(disk: &MemDisk) -> Result<Report, OpenError> {
    try_check_with(disk, 64)
}

fn try_check_with(disk: &MemDisk, frames: u32) -> Result<Report, OpenError> {
    let mut options = CheckOptions::new(scratch());
    // So small that nodes are read a second time.
    (options.frames, options.memory) = (frames, 4000);
    let mut checker = Checker::open(Arc::new(disk.clone()), Path::new("db"), options, &mut ())?;
    for partition in (0..checker.partitions()).map(PartitionId) {
        checker.structure(partition, &mut ())?;
        let mut seen = 0;
        checker.scan(partition, &mut (), &mut |_| {
            seen += 1;
            None
        });
        let mut ordered = 0;
        for tree in
            checker.trees(partition).into_iter().filter(|tree| checker.is_whole(partition, *tree))
        {
            let mut found = true;
            checker
                .each(partition, tree, &mut |entry, get| {
                    ordered += 1;
                    found &= get(tree, entry.key).as_deref() == Some(entry.value);
                })
                .unwrap();
            assert!(found, "a key of {tree} is not found");
        }
        assert!(ordered <= seen);
    }
    Ok(checker.finish())
}

/// Checks a directory that no process has open.
pub fn check(disk: &MemDisk) -> Report {
    try_check(disk).unwrap()
}

/// Checks that a directory is sound.
pub fn assert_sound(disk: &MemDisk) -> Report {
    assert_sound_report(check(disk))
}

/// The same for a directory whose recovery may need this many frames.
pub fn assert_sound_with(disk: &MemDisk, frames: u32) -> Report {
    assert_sound_report(try_check_with(disk, frames).unwrap())
}

fn assert_sound_report(report: Report) -> Report {
    let told: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert!(report.is_sound() && report.recovery.is_some(), "{told:#?}");
    report
}

/// A directory with trees of several levels, long values and free pages.
fn filled() -> (MemDisk, World) {
    let disk = MemDisk::new();
    let random = Random::new(3);
    let mut world = World::open(&disk, PARTITIONS, 64).unwrap();
    for partition in 0..PARTITIONS.into() {
        for tree in [TREE, TreeId(8), TreeId(9)] {
            world.run(partition, |s| s.create_tree(tree)).unwrap();
            for i in 0..600u64 {
                let value = random.value(20_000);
                let key = if i % 3 == 0 { i.to_be_bytes().to_vec() } else { random.key(1000) };
                world.run(partition, |s| s.insert_autocommit(tree, &key, &value)).unwrap();
            }
        }
        while !world.run(partition, |s| s.drop_tree(TreeId(9))).unwrap() {}
    }
    (disk, world)
}

fn closed() -> MemDisk {
    let (disk, world) = filled();
    world.node.checkpoint().unwrap();
    world.node.shutdown();
    disk
}

fn data(disk: &MemDisk, partition: u16) -> Arc<dyn File> {
    disk.open(format!("db/data/p{partition:04}.data").as_ref(), Open::Existing).unwrap()
}

fn page(disk: &MemDisk, no: u32) -> [u8; PAGE_SIZE] {
    let mut page = [0; PAGE_SIZE];
    data(disk, 1).read_exact_at(&mut page, u64::from(no) * PAGE_SIZE as u64).unwrap();
    page
}

fn put(disk: &MemDisk, no: u32, page: &[u8; PAGE_SIZE]) {
    data(disk, 1).write_all_at(page, u64::from(no) * PAGE_SIZE as u64).unwrap();
}

/// Changes a page of partition 1 and fixes its checksum.
fn change(disk: &MemDisk, no: u32, change: impl FnOnce(&mut [u8; PAGE_SIZE])) {
    let mut bytes = page(disk, no);
    change(&mut bytes);
    seal(&mut bytes, PageId::new(PartitionId(1), no));
    put(disk, no, &bytes);
}

fn u32_at(page: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(page[at..at + 4].try_into().unwrap())
}

fn u16_at(page: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes(page[at..at + 2].try_into().unwrap()))
}

/// Returns the first page of partition 1 with the given kind that satisfies `which`.
fn find(disk: &MemDisk, kind: u8, which: impl Fn(&[u8]) -> bool) -> u32 {
    let count = (data(disk, 1).len().unwrap() / PAGE_SIZE as u64) as u32;
    (2..count)
        .find(|&no| page(disk, no)[5] == kind && which(&page(disk, no)))
        .expect("there is such a page")
}

/// Returns the findings about page `no` of partition 1.
fn told(disk: &MemDisk, no: u32) -> String {
    let report = check(disk);
    assert!(!report.is_sound());
    let of_page: Vec<String> = report
        .findings
        .iter()
        .filter(|finding| finding.page == Some(no))
        .map(ToString::to_string)
        .collect();
    let all: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert!(!of_page.is_empty(), "nothing is told of page {no}, but {all:#?}");
    let place =
        format!("damage: data/p0001.data page {no} offset {}: ", u64::from(no) * PAGE_SIZE as u64);
    assert!(of_page.iter().all(|line| line.starts_with(&place)), "{of_page:#?}");
    of_page.join("\n")
}

#[track_caller]
fn assert_reported(disk: &MemDisk, no: u32, what: &str) {
    let told = told(disk, no);
    assert!(told.contains(what), "{told}");
}

#[test]
fn check_does_not_change_a_sound_directory() {
    let disk = closed();
    let before = disk.operations();
    let report = assert_sound(&disk);
    assert_eq!((report.findings, report.trees), (Vec::new(), 4));
    assert!(report.entries > 1000 && report.free > 10 && report.pages > 200);
    assert_eq!(report.recovery.unwrap().redone, 0);
    assert_eq!(disk.operations(), before, "the directory was changed");
}

#[test]
fn check_recovers_outside_the_directory() {
    let (disk, world) = filled();
    let lsn = world.node.wal().appended();
    world.node.wal().wait_durable(lsn).unwrap();
    let crashed = disk.crash(11);
    drop(world);
    let before = crashed.operations();
    let report = assert_sound(&crashed);
    assert!(report.recovery.unwrap().redone > 100);
    assert_eq!(crashed.operations(), before, "the directory was changed");
}

#[test]
fn open_or_foreign_directory_is_refused() {
    let (disk, world) = filled();
    assert!(matches!(try_check(&disk), Err(OpenError::InUse(_))));
    world.node.shutdown();
    drop(world);
    check(&disk);
    disk.remove("db/control".as_ref()).unwrap();
    let error = try_check(&disk).err().unwrap().to_string();
    assert!(error.contains("db is not a data directory"), "{error}");
}

#[test]
fn one_damaged_slot_of_the_control_file_is_a_note() {
    let disk = closed();
    let control = disk.open("db/control".as_ref(), Open::Existing).unwrap();
    for offset in [0, 4096] {
        let mut slot = [0; 64];
        control.read_exact_at(&mut slot, offset).unwrap();
        control.write_all_at(&[b'x'; 64], offset).unwrap();
        control.sync_data().unwrap();
        let report = assert_sound(&disk);
        let told: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
        let expected = format!(
            "note: control offset {offset}: a valid or an empty slot expected, neither found; the other slot is used"
        );
        assert!(told.contains(&expected), "{told:?}");
        // The next start uses the other slot.
        let copy = disk.crash(offset);
        World::open(&copy, PARTITIONS, 64).unwrap().node.shutdown();
        control.write_all_at(&slot, offset).unwrap();
    }
    control.write_all_at(&[b'x'; 64], 0).unwrap();
    control.write_all_at(&[b'x'; 64], 4096).unwrap();
    let report = check(&disk);
    assert!(report.damage > 0, "both slots are damaged");
}

#[test]
fn swapped_pages_are_reported() {
    let disk = closed();
    let (a, b) = (find(&disk, 2, |p| p[30] == 0), find(&disk, 3, |_| true));
    let (page_a, page_b) = (page(&disk, a), page(&disk, b));
    put(&disk, a, &page_b);
    put(&disk, b, &page_a);
    assert_reported(
        &disk,
        a,
        &format!(
            "page id {:#x} expected, {:#x} found",
            1u64 << 32 | u64::from(a),
            1u64 << 32 | u64::from(b)
        ),
    );
    assert_reported(&disk, b, "page id");
}

#[test]
fn truncated_file_is_reported() {
    let disk = closed();
    let pages = u32_at(&page(&disk, 0), 36);
    let leaf = find(&disk, 2, |p| p[30] == 0 && p[PAGE_SIZE - 9..].iter().any(|b| *b != 0));
    data(&disk, 1).set_len((u64::from(leaf) + 1) * PAGE_SIZE as u64 - 10).unwrap();
    assert_reported(&disk, 0, &format!("{pages} pages expected in the file, {} found", leaf + 1));
    assert_reported(&disk, leaf, "checksum");
    disk.remove("db/data/p0001.data".as_ref()).unwrap();
    let report = check(&disk);
    let told: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert!(
        told.iter().any(|line| line == "damage: data/p0001.data: the file is missing"),
        "{told:#?}"
    );
}

#[test]
fn lost_and_shared_pages_are_reported() {
    let disk = closed();
    let head = u32_at(&page(&disk, 0), 32);
    change(&disk, 0, |page| page[32..36].fill(0));
    assert_reported(&disk, head, "a use expected, none found");
    change(&disk, 0, |page| page[32..36].copy_from_slice(&head.to_le_bytes()));
    assert_sound(&disk);

    let leaf = find(&disk, 2, |p| p[30] == 0);
    change(&disk, head, |page| page[24..28].copy_from_slice(&leaf.to_le_bytes()));
    let told = told(&disk, leaf);
    assert!(
        told.contains("a free page expected, a node found") && told.contains("two found"),
        "{told}"
    );
}

#[test]
fn unordered_nodes_are_reported() {
    type Change = fn(&mut [u8; PAGE_SIZE]);
    let damages: [(&str, Change); 6] = [
        ("a key above", |p| {
            // Swap the first two keys, with their hints.
            let (a, b): (Vec<u8>, Vec<u8>) = (p[48..54].into(), p[54..60].into());
            p[48..54].copy_from_slice(&b);
            p[54..60].copy_from_slice(&a);
        }),
        ("hint", |p| p[50] ^= 1),
        ("dead bytes", |p| p[28] ^= 1),
        ("lowest cell", |p| p[27] = 0xff),
        ("slot 0: a cell at", |p| p[48..50].fill(0)),
        ("keys from", |p| p[30] = 0),
    ];
    let disk = closed();
    for (what, damage) in damages {
        let inner = what == "keys from";
        let no = find(&disk, 2, |p| (p[30] > 0) == inner && u16_at(p, 24) > 2 && p[31] < 8);
        let sound = page(&disk, no);
        if inner {
            // Swap two children.
            let value = |slot: usize| {
                let at = u16_at(&sound, 48 + 6 * slot);
                at + 4 + u16_at(&sound, at)
            };
            let (a, b) = (value(1), value(2));
            let children = [u32_at(&sound, a), u32_at(&sound, b)];
            change(&disk, no, |p| {
                p[a..a + 4].copy_from_slice(&children[1].to_le_bytes());
                p[b..b + 4].copy_from_slice(&children[0].to_le_bytes());
            });
            assert_reported(&disk, children[0], what);
            assert_reported(&disk, children[1], "keys below");
        } else {
            change(&disk, no, damage);
            assert_reported(&disk, no, what);
        }
        put(&disk, no, &sound);
    }
    assert_sound(&disk);
}

#[test]
fn wrong_levels_versions_and_lsns_are_reported() {
    let disk = closed();
    let leaf = find(&disk, 2, |p| p[30] == 0);
    let sound = page(&disk, leaf);
    change(&disk, leaf, |p| p[8..16].copy_from_slice(&u64::MAX.to_le_bytes()));
    assert_reported(&disk, leaf, "an LSN up to the log's end");
    put(&disk, leaf, &sound);
    change(&disk, leaf, |p| p[5] = 9);
    assert_reported(&disk, leaf, "kind 1 to 4 expected, 9 found");
    let mut newer = sound;
    newer[4] = 2;
    let crc = crc32c::crc32c(&newer[4..]);
    newer[..4].copy_from_slice(&crc.to_le_bytes());
    put(&disk, leaf, &newer);
    assert_reported(&disk, leaf, "format version 0x1 expected, 0x2 found");
    put(&disk, leaf, &sound);
    assert_sound(&disk);
}

#[test]
fn broken_long_values_are_reported() {
    let disk = closed();
    let part = find(&disk, 3, |p| u32_at(p, 24) != 0);
    let sound = page(&disk, part);
    change(&disk, part, |p| p[28] ^= 0x40);
    assert_reported(&disk, part, "bytes of a value of");
    put(&disk, part, &sound);
    let next = u32_at(&sound, 24);
    change(&disk, part, |p| p[24..28].fill(0));
    assert_reported(&disk, part, "more bytes of a value of");
    assert_reported(&disk, next, "a use expected, none found");
}

#[test]
fn directory_entries_are_checked() {
    let disk = closed();
    let root_at = |page: &[u8], slot: usize| {
        let at = u16_at(page, 48 + 6 * slot);
        at + 4 + u16_at(page, at)
    };
    let directory = page(&disk, 1);
    let (first, second) = (u32_at(&directory, root_at(&directory, 0)), root_at(&directory, 1));
    change(&disk, 1, |p| p[second..second + 4].copy_from_slice(&first.to_le_bytes()));
    assert_reported(&disk, first, "tree 7 has it and tree 8 refers to it, from page 1");
}

/// Makes the log end at `from`, as if nothing behind it had been written.
fn cut_log(disk: &MemDisk, from: u64) {
    for name in disk.list("db/wal".as_ref()).unwrap() {
        // The segment maker may have been preparing the next segment under another name.
        let Some(start) = name.strip_suffix(".wal") else { continue };
        let start = u64::from_str_radix(start, 16).unwrap();
        let file = disk.open(&Path::new("db/wal").join(name), Open::Existing).unwrap();
        let size = file.len().unwrap() - 4096;
        let at = from.clamp(start, start + size) - start;
        file.write_all_at(&vec![0; (size - at) as usize], 4096 + at).unwrap();
    }
}

#[track_caller]
fn assert_refused(disk: &MemDisk, what: &str) {
    let error = World::open(disk, PARTITIONS, 64).err().expect("it was opened").to_string();
    let before = disk.operations();
    assert!(error.starts_with("the log is damaged at ") && error.contains(what), "{error}");
    assert!(error.contains(".wal offset ") && error.contains(" expected, "), "{error}");
    let report = check(disk);
    let told: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert!(!report.is_sound() && told[0].starts_with("damage: "), "{told:#?}");
    assert!(told[0].contains(what), "{told:#?}");
    assert_eq!(disk.operations(), before, "the directory was changed");
}

/// A log that has lost its end without a trace in it: the control file, or the double-write file,
/// proves the loss.
#[test]
fn log_that_lost_its_end_is_refused() {
    let (disk, mut world) = filled();
    // An open transaction keeps the log from its first change on.
    let mut log = TxnLog::new(world.node.alloc_txn_id());
    world.run(0, |s| s.insert(&mut log, TxnMode::Logged, TREE, b"open", &[1; 100])).unwrap();
    world.run(0, |s| s.insert_autocommit(TREE, b"one", &[1; 100])).unwrap().unwrap();
    world.node.checkpoint().unwrap();
    let checkpoint = world.node.wal().appended();
    let lost = disk.crash(1);
    cut_log(&lost, checkpoint.0 - 64);
    assert_refused(&lost, "the control file says that");

    world.run(0, |s| s.insert_autocommit(TREE, b"new", &[1; 100])).unwrap().unwrap();
    let lsn = world.node.wal().appended();
    world.node.wal().wait_durable(lsn).unwrap();
    world.node.pool().flush_before(lsn).unwrap();
    let lost = disk.crash(2);
    cut_log(&lost, checkpoint.0);
    assert_refused(&lost, &format!("has a page with changes up to {lsn}"));
    assert_sound(&disk.crash(3));
    world.node.shutdown();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Any flipped bit in a page in use is reported with its place. Exception: pages of which the
    /// double-write file still has a copy; the next start repairs those.
    #[test]
    fn every_flipped_bit_is_reported(bits in prop::collection::vec(any::<prop::sample::Index>(), 12)) {
        thread_local!(static DISK: MemDisk = closed());
        let disk = DISK.with(|disk| disk.crash(0));
        let pages = u32_at(&page(&disk, 0), 36);
        for bit in bits {
            let bit = bit.index(pages as usize * PAGE_SIZE * 8);
            let (no, at, mask) = ((bit / 8 / PAGE_SIZE) as u32, bit / 8 % PAGE_SIZE, 1 << (bit % 8));
            let sound = page(&disk, no);
            let mut bad = sound;
            bad[at] ^= mask;
            put(&disk, no, &bad);
            let report = check(&disk);
            let repaired = report.recovery.as_ref().is_some_and(|recovery| recovery.repaired == 1);
            if repaired {
                prop_assert!(report.is_sound() && report.notes == 1);
            } else {
                let place = report.findings.iter().any(|f| f.page == Some(no) && f.file == "data/p0001.data");
                prop_assert!(!report.is_sound() && place, "page {} byte {}: {:?}", no, at, report.findings);
            }
            put(&disk, no, &sound);
        }
    }
}
