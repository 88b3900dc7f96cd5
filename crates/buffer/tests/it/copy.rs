//! Copying pages while they are being written (`copy`'s invariant).

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use crate::common::*;
use clearway_buffer::*;
use clearway_env::{Disk, DiskLock, File, MemDisk, Open};
use clearway_types::PartitionId;

/// Lets a read meet a write half way.
struct Meeting {
    write_stops: AtomicBool,
    read_stops: AtomicBool,
    half_written: Barrier,
    read: Barrier,
}

struct SlowDisk(MemDisk, Arc<Meeting>);
struct SlowFile(Arc<dyn File>, Arc<Meeting>);

impl Disk for SlowDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        let file = self.0.open(path, how)?;
        let slow = path.ends_with("p0000.data");
        Ok(if slow { Arc::new(SlowFile(file, self.1.clone())) } else { file })
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.0.exists(path)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.create_dir_all(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.sync_dir(dir)
    }
    fn lock(&self, path: &Path) -> io::Result<DiskLock> {
        self.0.lock(path)
    }
}

impl File for SlowFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.0.read_at(buf, offset);
        // Relaxed, here and below: the barriers order all else.
        if self.1.read_stops.swap(false, Ordering::Relaxed) {
            self.1.read.wait();
        }
        read
    }
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        if !self.1.write_stops.swap(false, Ordering::Relaxed) {
            return self.0.write_all_at(buf, offset);
        }
        let (first, second) = buf.split_at(buf.len() / 2);
        self.0.write_all_at(first, offset)?;
        self.1.half_written.wait();
        self.1.read.wait();
        self.0.write_all_at(second, offset + first.len() as u64)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
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
    let files = Files::open(&SlowDisk(disk.clone(), meeting.clone()), Path::new("data"), 1).unwrap();
    (disk, meeting, files)
}

#[test]
fn a_page_that_is_being_written_is_copied_as_a_whole() {
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
    // Half of three pages: the first was new already, the second was torn, the last was still old.
    assert_eq!(pages.iter().map(|p| p[HEADER]).collect::<Vec<_>>(), [2, 2, 1, 0]);
    assert!(pages[3].iter().all(|byte| *byte == 0), "behind the end of the file");
}

#[test]
fn a_damaged_page_is_not_copied() {
    let (disk, _, files) = setup();
    write(&files, 3, 1);
    disk.open(Path::new("data/p0000.data"), Open::Existing).unwrap().write_all_at(&[7], 8192 + 99).unwrap();
    let error = files.read_run(page(0, 0), &mut [0; 3 * PAGE_SIZE]).unwrap_err().to_string();
    assert!(error.contains("partition 0 page 1 in data/p0000.data is damaged"), "{error}");
}
