//! The double-write file after a crash. The restore leaves intact pages unchanged, and repairs torn
//! pages that have an intact copy. A second restore has nothing to do.

use super::Image;
use crate::input::Input;
use crate::seal;
use clearway_buffer::{Files, PAGE_SIZE, PageIo, seal as seal_page};
use clearway_env::Open;
use clearway_types::{PageId, PartitionId};
use std::path::Path;

/// Corrects the header's checksum.
pub(crate) const SEAL: u8 = 1;
/// Corrects the copies' checksums in the header.
pub(crate) const SEAL_COPIES: u8 = 2;
/// Number of pages in each of the two partitions' files.
const PLACES: usize = 3;
const MAX_COPIES: usize = 8;
/// Size in bytes of the header before its entries, and of an entry.
const ENTRIES: usize = 16;
const ENTRY: usize = 12;

/// Runs an input: flags, the header's count of copies, a byte for each page of both files, and then
/// for each copy a byte and the header's entry (page and partition of the ID and the rest of its
/// bytes, the checksum).
pub(super) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let (flags, count) = (input.u8(), input.u8());
    let places: Vec<[u8; PLACES]> = (0..2).map(|_| input.array()).collect();
    let mut header = vec![0; PAGE_SIZE];
    header[..8].copy_from_slice(b"clwy-dw1");
    header[12] = count;
    let mut copies = Vec::new();
    while !input.is_empty() && copies.len() < MAX_COPIES * PAGE_SIZE {
        let (content, mut entry) = (input.u8(), input.array::<ENTRY>());
        // The disk is in memory: no files of terabytes.
        entry[1] &= 1;
        entry[2..4].fill(0);
        let id = PageId::from_u64(u64::from_le_bytes([
            entry[0], entry[1], entry[2], entry[3], entry[4], entry[5], entry[6], entry[7],
        ]));
        let page = page(id, content);
        if flags & SEAL_COPIES != 0 {
            entry[8..].copy_from_slice(&page[..4]);
        }
        let at = ENTRIES + copies.len() / PAGE_SIZE * ENTRY;
        header[at..at + ENTRY].copy_from_slice(&entry);
        copies.extend_from_slice(&page);
    }
    if flags & SEAL != 0 {
        seal::double_write(&mut header);
    }
    let file = |partition: usize| {
        let page = |no: usize| {
            page(PageId::new(PartitionId(partition as u16), no as u32), places[partition][no])
        };
        (0..PLACES).flat_map(page).collect::<Vec<u8>>()
    };
    check(&Image(vec![
        ("data/p0000.data".into(), file(0)),
        ("data/p0001.data".into(), file(1)),
        ("data/double-write.data".into(), [header, copies].concat()),
    ]));
}

/// Returns a page filled with a byte; torn if the byte is odd.
fn page(id: PageId, content: u8) -> [u8; PAGE_SIZE] {
    let mut page = [content; PAGE_SIZE];
    seal_page(&mut page, id);
    if content & 1 == 1 {
        page[PAGE_SIZE / 2..].fill(!content);
    }
    page
}

fn check(image: &Image) {
    let disk = image.disk();
    let Ok(files) = Files::open(&*disk, Path::new("data"), 2) else { return };
    let read = |partition: u16, no: u32| {
        let mut page = [0; PAGE_SIZE];
        files.read_run(PageId::new(PartitionId(partition), no), &mut page).ok().map(|()| page)
    };
    let places = || (0..2).flat_map(|p| (0..PLACES as u32).map(move |no| (p, no)));
    let before: Vec<_> = places().map(|(p, no)| read(p, no)).collect();
    let Ok(restored) = files.restore_torn() else { return };
    let mut repaired = 0;
    for ((p, no), before) in places().zip(before) {
        let after = read(p, no);
        match before {
            Some(_) => {
                assert!(before == after, "page {no} of partition {p} was intact, and has changed")
            }
            None => repaired += usize::from(after.is_some()),
        }
    }
    // Copies of pages beyond the files' ends are written, too.
    assert!(repaired <= restored);
    assert_eq!(files.restore_torn().expect("the same files"), 0);
    let file =
        disk.open(Path::new("data/double-write.data"), Open::Existing).expect("it was there");
    assert!(file.len().expect("a length") >= PAGE_SIZE as u64);
}
