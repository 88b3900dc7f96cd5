//! I/O on registered memory, on other memory, and on memory that the kernel refuses to register.

use std::io::{self, Write as _};
use std::process::Command;
use std::sync::{Arc, mpsc};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::*;
use crate::test_files::{Scratch, blocks, content, on_all_files};
use crate::{ALIGN, Disk, File, IoPool, Open, OsDisk, Read, ReadTarget, Write};

/// Small, so that little memory crosses boundaries.
const LIMITS: Limits = Limits { buffer: 64 << 10, buffers: 4 };
const BLOCK: usize = 4096;

/// A part of a memory.
struct Part {
    memory: IoMemory,
    at: usize,
    len: usize,
    ended: mpsc::Sender<io::Result<usize>>,
}

// SAFETY: the part keeps the memory alive. No test reads into the same bytes twice at once, or
// accesses them meanwhile.
unsafe impl ReadTarget for Part {
    fn buffer(&mut self) -> &mut [u8] {
        assert!(self.at + self.len <= self.memory.len());
        // SAFETY: the range is inside the memory, as just checked, and nobody else uses it (see
        // above).
        unsafe { slice::from_raw_parts_mut(self.memory.start().as_ptr().add(self.at), self.len) }
    }
    fn done(self: Box<Self>, result: io::Result<usize>) {
        self.ended.send(result).expect("the test waits");
    }
}

/// Returns the memory's bytes.
fn bytes(memory: &IoMemory) -> &[u8] {
    // SAFETY: no test has a read into it in flight when it calls this.
    unsafe { slice::from_raw_parts(memory.start().as_ptr(), memory.len()) }
}

fn begin(
    pool: &IoPool,
    file: &Arc<dyn File>,
    offset: usize,
    (memory, at): (&IoMemory, usize),
    len: usize,
) -> Ended {
    let (ended, receiver) = mpsc::channel();
    let target = Box::new(Part { memory: memory.clone(), at, len, ended });
    pool.read(Read { file: Arc::clone(file), offset: offset as u64, target });
    receiver
}

type Ended = mpsc::Receiver<io::Result<usize>>;

fn read(
    pool: &IoPool,
    file: &Arc<dyn File>,
    offset: usize,
    into: (&IoMemory, usize),
    len: usize,
) -> io::Result<usize> {
    begin(pool, file, offset, into, len).recv().expect("it ends")
}

fn skipped(error: impl std::fmt::Display) {
    writeln!(io::stderr(), "SKIPPED registered buffers: {error}").expect("said");
}

/// Returns a ring and `len` bytes of registered memory, if the kernel allows it.
fn registered(len: usize) -> Option<(IoPool, IoMemory)> {
    let pool =
        IoPool::with_ring_of(1, "test-io", LIMITS).map_err(skipped).ok()?.with_registered_buffers();
    let memory = IoMemory::new(len, ALIGN);
    pool.register(&memory);
    let crate::Registered { bytes, wanted, refused } = pool.registered();
    assert_eq!((wanted, bytes), (len, if refused.is_none() { len } else { 0 }));
    refused.map_or(Some((pool, memory)), |error| {
        skipped(error);
        None
    })
}

/// Reads and writes every distinct place: within a buffer of the ring, across a boundary, at the
/// end of the memory, and in other memory.
fn read_and_write(pool: &IoPool, file: &Arc<dyn File>, memory: &IoMemory) {
    let all = blocks(0..60);
    file.write_all_at(&all, 0).expect("written");
    let other = IoMemory::new(2 * BLOCK, ALIGN);
    let end = memory.len() - 2 * BLOCK;
    let mut number = 0;
    let places = [0, LIMITS.buffer - 2 * BLOCK, LIMITS.buffer - BLOCK, LIMITS.buffer, end]
        .map(|at| (memory, at));
    for (into, at) in places.into_iter().chain([(&other, 0)]) {
        number += 1;
        assert_eq!(
            read(pool, file, number * BLOCK, (into, at), 2 * BLOCK).expect("read"),
            2 * BLOCK
        );
        assert_eq!(bytes(into)[at..][..2 * BLOCK], all[number * BLOCK..][..2 * BLOCK], "at {at}");
        // To another place in the file.
        let offset = ((30 + 2 * number) * BLOCK) as u64;
        pool.write_all(&[Write { file, offset, bytes: &bytes(into)[at..][..2 * BLOCK] }])
            .expect("written");
    }
    // All of it at once, across all boundaries; and up to the end of the file.
    assert_eq!(read(pool, file, 0, (memory, 0), memory.len()).expect("read"), memory.len());
    assert_eq!(bytes(memory)[..], content(&**file)[..memory.len()]);
    assert_eq!(read(pool, file, 59 * BLOCK, (memory, 0), 2 * BLOCK).expect("read"), BLOCK);
    let content = content(&**file);
    for n in 1..=number {
        assert_eq!(
            content[(30 + 2 * n) * BLOCK..][..2 * BLOCK],
            all[n * BLOCK..][..2 * BLOCK],
            "the write of {n}"
        );
    }
}

#[test]
fn registered_and_other_memory_behave_alike() {
    // Not a multiple of a buffer.
    let Some((pool, memory)) = registered(2 * LIMITS.buffer + 3 * BLOCK) else { return };
    on_all_files("registered-alike", |file| read_and_write(&pool, &file, &memory));
}

/// Returns true if the limit of locked memory is used up. All processes of a user share it, so this
/// may happen although an earlier registration succeeded.
fn is_used_up(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::OutOfMemory
}

/// Returns `None` if the limit of locked memory is used up.
fn unless_used_up<T>(result: io::Result<T>) -> Option<T> {
    match result {
        Err(error) if is_used_up(&error) => {
            skipped(error);
            None
        }
        result => Some(result.expect("it worked before")),
    }
}

#[test]
fn bytes_in_one_buffer_have_its_number() {
    let Some((_, memory)) = registered(LIMITS.buffer) else { return };
    let Some(ring) = unless_used_up(IoUring::new(1)) else { return };
    let mut table = Table::new(LIMITS);
    let (first, second) = (memory, IoMemory::new(2 * LIMITS.buffer + BLOCK, ALIGN));
    if unless_used_up(table.add(&ring, first.clone())).is_none() {
        return;
    }
    let refused = table.add(&ring, IoMemory::new(4 * LIMITS.buffer, ALIGN)).expect_err("too large");
    assert_eq!(refused.to_string(), "the memory needs more buffers than a ring has");
    // Memory that fits is still registered.
    if unless_used_up(table.add(&ring, second.clone())).is_none() {
        return;
    }
    let find = |memory: &IoMemory, at: usize, len| {
        table.find(memory.start().as_ptr().wrapping_add(at), len)
    };
    let buffer = LIMITS.buffer;
    assert_eq!((find(&first, 0, buffer), find(&first, buffer - 1, 1)), (Some(0), Some(0)));
    assert_eq!((find(&first, 1, buffer), find(&first, 0, usize::MAX)), (None, None));
    assert_eq!((find(&second, 0, buffer), find(&second, buffer, buffer)), (Some(1), Some(2)));
    assert_eq!(
        (find(&second, 2 * buffer, BLOCK), find(&second, 2 * buffer, BLOCK + 1)),
        (Some(3), None)
    );
    assert_eq!((find(&second, buffer - 1, 2), find(&second, buffer - 1, 1)), (None, Some(1)));
    assert_eq!(find(&IoMemory::new(BLOCK, ALIGN), 0, BLOCK), None);
    table.clear(&ring);
    assert_eq!(table.find(first.start().as_ptr(), 1), None);
}

#[test]
fn memory_beyond_the_ring_table_still_works() {
    let Some((pool, memory)) = registered(LIMITS.buffer) else { return };
    let small = IoMemory::new(2 * LIMITS.buffer, ALIGN);
    pool.register(&small);
    if let Some(error) = pool.registered().refused {
        assert!(is_used_up(&error), "{error}");
        return skipped(error);
    }
    let large = IoMemory::new(4 * LIMITS.buffer, ALIGN);
    pool.register(&large);
    let registered = pool.registered();
    assert_eq!((registered.bytes, registered.wanted), (3 * LIMITS.buffer, 7 * LIMITS.buffer));
    assert_eq!(
        registered.refused.expect("refused").to_string(),
        "the memory needs more buffers than a ring has"
    );
    on_all_files("registered-room", |file| {
        read_and_write(&pool, &file, &small);
        let all = blocks(0..64);
        file.write_all_at(&all, 0).expect("written");
        assert_eq!(read(&pool, &file, 0, (&large, 0), large.len()).expect("read"), large.len());
        assert_eq!(read(&pool, &file, 0, (&memory, 0), memory.len()).expect("read"), memory.len());
        assert!(bytes(&large)[..] == all[..] && bytes(&memory)[..] == all[..LIMITS.buffer]);
    });
}

/// Runs the body of a test in its own process, whose limits it may change.
fn in_own_process(test: &str, body: impl FnOnce()) {
    let child = "CLEARWAY_TEST_CHILD";
    if std::env::var_os(child).is_some() {
        return body();
    }
    let mut command = Command::new(std::env::current_exe().expect("a test runs"));
    let output =
        command.args(["--exact", test, "--nocapture"]).env(child, "1").output().expect("started");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    io::stderr().write_all(&output.stderr).expect("said");
}

/// The limit is shared by all processes of a user, so other processes may have used it up. No part
/// of the request fits.
#[test]
fn unlockable_memory_still_works() {
    in_own_process("registered::tests::unlockable_memory_still_works", || {
        let mut capable = capabilities(None).expect("known");
        capable.effective.remove(CapabilitySet::IPC_LOCK);
        set_capabilities(None, capable).expect("one may always have less");
        let Rlimit { maximum, .. } = getrlimit(Resource::Memlock);
        // Space for the first buffer at most, not for all.
        setrlimit(Resource::Memlock, Rlimit { current: Some(LIMITS.buffer as u64), maximum })
            .expect("lowered");
        let pool = match IoPool::with_ring_of(1, "test-io", LIMITS) {
            Ok(pool) => pool.with_registered_buffers(),
            Err(error) => return skipped(error),
        };
        let memory = IoMemory::new(3 * LIMITS.buffer, ALIGN);
        pool.register(&memory);
        let registered = pool.registered();
        assert_eq!((registered.bytes, registered.wanted), (0, memory.len()));
        assert!(registered.refused.is_some());
        on_all_files("registered-refused", |file| read_and_write(&pool, &file, &memory));
    });
}

/// Invariant 2 of the ring.
#[test]
fn drop_completes_reads_into_registered_memory() {
    let Some((pool, memory)) = registered(4 * LIMITS.buffer) else { return };
    let scratch = Scratch::new("registered-drop");
    let file = OsDisk.open_pages(&scratch.0.join("file"), Open::Create).expect("created");
    let all = blocks(0..64);
    file.write_all_at(&all, 0).expect("written");
    let reads: Vec<_> =
        (0..64).map(|n| begin(&pool, &file, n * BLOCK, (&memory, n * BLOCK), BLOCK)).collect();
    drop(pool);
    // All reads have ended, so this does not block.
    assert!(reads.iter().all(|read| matches!(read.try_recv(), Ok(Ok(BLOCK)))));
    assert!(bytes(&memory)[..] == all[..]);
}

#[test]
fn pools_register_only_when_configured() {
    let memory = IoMemory::new(LIMITS.buffer, ALIGN);
    let mut pools = vec![IoPool::new(1, "test-io").expect("threads").with_registered_buffers()];
    pools.extend(IoPool::with_ring(1, "test-io"));
    for pool in pools {
        pool.register(&memory);
        let registered = pool.registered();
        assert!(registered.bytes == 0 && registered.wanted == 0 && registered.refused.is_none());
        on_all_files("registered-nothing", |file| {
            read_and_write(&pool, &file, &IoMemory::new(3 * LIMITS.buffer, ALIGN))
        });
    }
}
