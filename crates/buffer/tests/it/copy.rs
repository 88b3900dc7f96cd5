//! Copying pages while they are being written (`copy`'s invariant).

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use crate::common::*;
use clearway_buffer::*;
use clearway_env::{Disk, Open};
use clearway_testkit::{Intercept, Intercepted, MemDisk, Opened};
use clearway_types::PartitionId;

/// Synchronises a read with the middle of a write.
struct Meeting {
    write_stops: AtomicBool,
    read_stops: AtomicBool,
    half_written: Barrier,
    read: Barrier,
}

impl Intercept for Meeting {
    fn read_at(&self, to: &Opened, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = to.file.read_at(buf, offset);
        // Relaxed, here and below: the barriers order everything else.
        if to.path.ends_with("p0000.data") && self.read_stops.swap(false, Ordering::Relaxed) {
            self.read.wait();
        }
        read
    }
    fn write_all_at(&self, to: &Opened, buf: &[u8], offset: u64) -> io::Result<()> {
        if !(to.path.ends_with("p0000.data") && self.write_stops.swap(false, Ordering::Relaxed)) {
            return to.file.write_all_at(buf, offset);
        }
        let (first, second) = buf.split_at(buf.len() / 2);
        to.file.write_all_at(first, offset)?;
        self.half_written.wait();
        self.read.wait();
        to.file.write_all_at(second, offset + first.len() as u64)
    }
}

fn sealed(no: u32, stamp: u8) -> [u8; PAGE_SIZE] {
    let mut bytes = [stamp; PAGE_SIZE];
    seal(&mut bytes, page(0, no));
    bytes
}

fn write(files: &Files, count: u32, stamp: u8) {
    let pages: Vec<_> = (0..count).map(|no| (page(0, no), sealed(no, stamp))).collect();
    files.write(&pages.iter().map(|(id, bytes)| (*id, bytes)).collect::<Vec<_>>()).unwrap();
}

fn setup() -> (MemDisk, Arc<Meeting>, Files) {
    let (disk, flag) = (MemDisk::new(), || AtomicBool::new(false));
    let (half_written, read) = (Barrier::new(2), Barrier::new(2));
    let meeting = Arc::new(Meeting { write_stops: flag(), read_stops: flag(), half_written, read });
    disk.create_dir_all(Path::new("data")).unwrap();
    let files = Files::open(&Intercepted::new(disk.clone(), meeting.clone()), Path::new("data"), 1)
        .unwrap();
    (disk, meeting, files)
}

#[test]
fn page_being_written_is_copied_whole() {
    let (_, meeting, files) = setup();
    write(&files, 3, 1);
    assert_eq!(files.page_count(PartitionId(0)).unwrap(), 3);
    meeting.write_stops.store(true, Ordering::Relaxed);
    let mut run = vec![9; 4 * PAGE_SIZE];
    std::thread::scope(|scope| {
        scope.spawn(|| write(&files, 3, 2));
        meeting.half_written.wait();
        meeting.read_stops.store(true, Ordering::Relaxed);
        files.read_run(page(0, 0), &mut run).unwrap();
    });
    let (pages, _) = run.as_chunks::<PAGE_SIZE>();
    // Half of the write's three pages: the first was new, the second torn, the third old.
    assert_eq!(pages.iter().map(|p| p[HEADER]).collect::<Vec<_>>(), [2, 2, 1, 0]);
    assert!(pages[3].iter().all(|byte| *byte == 0), "beyond the end of the file");
}

#[test]
fn damaged_page_is_not_copied() {
    let (disk, _, files) = setup();
    write(&files, 3, 1);
    disk.open(Path::new("data/p0000.data"), Open::Existing)
        .unwrap()
        .write_all_at(&[7], 8192 + 99)
        .unwrap();
    let error = files.read_run(page(0, 0), &mut [0; 3 * PAGE_SIZE]).unwrap_err().to_string();
    assert!(error.contains("partition 0 page 1 in data/p0000.data is damaged"), "{error}");
}
