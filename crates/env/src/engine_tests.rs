//! The guarantees of reads and of batches of writes, with threads and with the kernel's ring, on
//! buffered and direct files and on files without a descriptor.

use std::io::{self, ErrorKind, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use crate::test_files::{Scratch, blocks, content, kind, on_all_files};
use crate::{Aligned, DirectDisk, Disk, File, IoPool, Open, OsDisk, Read, ReadTarget, Write};

type Ended = (Aligned, io::Result<usize>);

struct Target {
    buffer: Aligned,
    ended: mpsc::Sender<Ended>,
}

// SAFETY: the bytes are on the heap, so they stay in place when the target moves, and nothing else
// refers to them.
unsafe impl ReadTarget for Target {
    fn buffer(&mut self) -> &mut [u8] {
        &mut self.buffer
    }
    fn done(self: Box<Self>, result: io::Result<usize>) {
        self.ended.send((self.buffer, result)).expect("the test waits");
    }
}

fn begin(pool: &IoPool, file: &Arc<dyn File>, offset: u64, len: usize) -> mpsc::Receiver<Ended> {
    let (ended, receiver) = mpsc::channel();
    let target = Box::new(Target { buffer: Aligned::new(len), ended });
    pool.read(Read { file: Arc::clone(file), offset, target });
    receiver
}

fn read(pool: &IoPool, file: &Arc<dyn File>, offset: u64, len: usize) -> Ended {
    begin(pool, file, offset, len).recv().expect("it ends")
}

/// Returns the engines that this machine supports. Reports skipped ones on stderr, past the test's
/// capture.
fn engines() -> Vec<IoPool> {
    let mut engines = vec![IoPool::new(2, "test-io").expect("threads")];
    match IoPool::with_ring(1, "test-io") {
        Ok(pool) => engines.push(pool),
        Err(error) => writeln!(io::stderr(), "SKIPPED io_uring: {error}").expect("stderr"),
    }
    engines
}

/// Runs the check with each engine on each kind of file.
fn with_all(test: &str, check: impl Fn(&IoPool, Arc<dyn File>)) {
    engines().iter().for_each(|pool| on_all_files(test, |file| check(pool, file)));
}

#[test]
fn read_stops_at_the_end_of_the_file() {
    with_all("engine-end", |pool, file| {
        file.write_all_at(&blocks(1..4), 0).expect("written");
        let (bytes, result) = read(pool, &file, 4096, 8192);
        assert_eq!((result.expect("read"), &bytes[..]), (8192, &blocks(2..4)[..]));
        let (bytes, result) = read(pool, &file, 8192, 8192);
        assert_eq!((result.expect("read"), &bytes[..4096]), (4096, &blocks(3..4)[..]));
        assert_eq!(read(pool, &file, 1 << 20, 8192).1.expect("beyond the end"), 0);
        // A crash may leave a length that is not a multiple of the block size.
        file.set_len(5000).expect("cut");
        let (bytes, result) = read(pool, &file, 0, 8192);
        assert_eq!((result.expect("read"), bytes[4999]), (5000, 2));
    });
}

#[test]
fn unaligned_reads_and_writes_work() {
    with_all("engine-aligned", |_, file| {
        let odd = vec![7; 8192 + 1];
        file.write_all_at(&odd[1..], 4096).expect("memory that is not aligned");
        let mut buf = [9; 100];
        file.read_exact_at(&mut buf, 4050).expect("read");
        assert!(buf[..46].iter().all(|&byte| byte == 0) && buf[46..].iter().all(|&byte| byte == 7));
        assert_eq!(file.read_at(&mut buf, 3 * 4096 - 30).expect("read"), 30);
        assert_eq!(
            kind(file.read_exact_at(&mut buf, 3 * 4096 - 30)),
            Some(ErrorKind::UnexpectedEof)
        );
        assert_eq!(content(&*file).len(), 3 * 4096);
    });
}

#[test]
fn partial_blocks_are_refused_for_direct_writes() {
    let scratch = Scratch::new("engine-whole");
    let disk = DirectDisk::new(false);
    let file = disk.open_pages(&scratch.0.join("file"), Open::OpenOrCreate).expect("opened");
    if disk.refused() {
        return writeln!(io::stderr(), "SKIPPED direct I/O: the file system does not support it")
            .expect("stderr");
    }
    let error = file.write_all_at(&[1; 100], 0).expect_err("not a block");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("100 bytes at 0: not aligned"), "{error}");
}

#[test]
fn concurrent_reads_return_their_own_data() {
    with_all("engine-many", |pool, file| {
        file.write_all_at(&blocks(0..200), 0).expect("written");
        // More than the limit of requests in flight.
        let reads: Vec<_> =
            (0..1000_u64).map(|n| begin(pool, &file, n % 200 * 4096, 4096)).collect();
        for (n, read) in reads.into_iter().enumerate() {
            let (bytes, result) = read.recv().expect("it ends");
            assert_eq!(
                (result.expect("read"), bytes[0], bytes[4095]),
                (4096, (n % 200) as u8, (n % 200) as u8)
            );
        }
    });
}

#[test]
fn write_all_returns_after_all_writes() {
    with_all("engine-writes", |pool, file| {
        let bytes = blocks(0..200);
        // Every second block, from the last to the first. They exceed the limit of requests in
        // flight, so they need several turns.
        for round in 0..3 {
            let write = |n: usize| Write {
                file: &file,
                offset: n as u64 * 4096,
                bytes: &bytes[n * 4096..][..4096],
            };
            let writes: Vec<_> = (0..200).rev().filter(|n| n % 3 == round).map(write).collect();
            pool.write_all(&writes).expect("written");
        }
        file.sync_data().expect("synced");
        assert!(content(&*file) == bytes[..]);
        pool.write_all(&[]).expect("nothing to do");
    });
}

#[test]
fn write_error_has_number_and_kind() {
    let scratch = Scratch::new("engine-errors");
    for pool in engines() {
        let full = OsDisk.open(Path::new("/dev/full"), Open::Existing).expect("opened");
        let file = OsDisk.open(&scratch.0.join("file"), Open::OpenOrCreate).expect("opened");
        let bytes = blocks(1..2);
        let write = |file| Write { file, offset: 0, bytes: &bytes };
        let (number, error) =
            pool.write_all(&[write(&file), write(&full), write(&file)]).expect_err("no room");
        assert_eq!((number, error.kind()), (1, ErrorKind::StorageFull));
        pool.write_all(&[write(&file)]).expect("the next batch is another");
        // A file that cannot be read at an offset.
        let random = OsDisk.open(Path::new("/proc/self/mem"), Open::Existing).expect("opened");
        assert!(read(&pool, &random, 0, 4096).1.is_err());
    }
}

/// A callback may submit more reads, and may even panic.
#[test]
fn callback_may_read_and_its_panic_is_isolated() {
    struct Chain(Arc<IoPool>, Arc<dyn File>, Aligned, u64, mpsc::Sender<u64>);
    // SAFETY: as for `Target`.
    unsafe impl ReadTarget for Chain {
        fn buffer(&mut self) -> &mut [u8] {
            &mut self.2
        }
        fn done(self: Box<Self>, result: io::Result<usize>) {
            let Self(pool, file, buffer, left, end) = *self;
            let n = result.expect("read");
            if left == 0 {
                end.send(u64::from(buffer[n - 1])).expect("the test waits");
                panic!("on purpose");
            }
            let target =
                Box::new(Self(Arc::clone(&pool), Arc::clone(&file), buffer, left - 1, end));
            pool.read(Read { file, offset: (left - 1) * 4096, target });
        }
    }
    let scratch = Scratch::new("engine-chain");
    let file = OsDisk.open(&scratch.0.join("file"), Open::Create).expect("created");
    file.write_all_at(&blocks(7..57), 0).expect("written");
    for pool in engines() {
        let pool = Arc::new(pool);
        let (end, ended) = mpsc::channel();
        let first =
            Box::new(Chain(Arc::clone(&pool), Arc::clone(&file), Aligned::new(4096), 49, end));
        pool.read(Read { file: Arc::clone(&file), offset: 49 * 4096, target: first });
        assert_eq!(ended.recv().expect("it ends"), 7);
        assert_eq!(read(&pool, &file, 0, 4096).1.expect("it goes on"), 4096);
    }
}

#[test]
fn drop_completes_every_read() {
    struct Counting(Aligned, Arc<AtomicUsize>);
    // SAFETY: as for `Target`.
    unsafe impl ReadTarget for Counting {
        fn buffer(&mut self) -> &mut [u8] {
            &mut self.0
        }
        fn done(self: Box<Self>, result: io::Result<usize>) {
            assert_eq!(result.expect("read"), 4096);
            self.1.fetch_add(1, Ordering::Relaxed); // Relaxed: the join in `drop` orders it.
        }
    }
    let scratch = Scratch::new("engine-drop");
    let disk = DirectDisk::new(false);
    let file = disk.open_pages(&scratch.0.join("file"), Open::Create).expect("created");
    file.write_all_at(&blocks(0..100), 0).expect("written");
    for pool in engines() {
        let ended = Arc::new(AtomicUsize::new(0));
        for n in 0..700 {
            let target = Box::new(Counting(Aligned::new(4096), Arc::clone(&ended)));
            pool.read(Read { file: Arc::clone(&file), offset: n % 100 * 4096, target });
        }
        drop(pool);
        assert_eq!(ended.load(Ordering::Relaxed), 700);
    }
}
