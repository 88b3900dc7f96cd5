//! The ring's thread with a fake kernel that completes requests in any order, in pieces, late, or
//! not at first.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::{Mutex, OnceLock};

use rustix::io::Errno;

use super::*;
use crate::kernel::OperationKind;
use crate::test_files::Scratch;
use crate::{ALIGN, Disk, Open, OsDisk, SeededEntropy, test_files};

/// The memory ranges that the kernel may access: `(start, len)` by operation.
type InKernel = Arc<Mutex<BTreeMap<u64, (usize, usize)>>>;

/// The file's length: it ends within a block.
const LEN: usize = 12 * ALIGN + 100;

fn overlaps(kernel: &InKernel, start: usize, len: usize) -> bool {
    kernel.lock().unwrap().values().any(|&(at, many)| at < start + len && start < at + many)
}

struct FakeKernel {
    random: SeededEntropy,
    /// Pushed, but not submitted.
    queue: Vec<Operation>,
    /// Submitted, but not finished.
    begun: Vec<Operation>,
    /// Finished. With `DEFER_TASKRUN` and without `TASKRUN_FLAG` they can be taken only after
    /// `enter` has waited.
    deferred: Vec<(u64, i32)>,
    ready: Vec<(u64, i32)>,
    defers: bool,
    in_kernel: InKernel,
    /// Runs in each `enter`.
    meanwhile: Box<dyn FnMut() -> io::Result<()>>,
    /// Set if the thread would sleep with nothing to wake it: nothing is in flight, and the eventfd
    /// is not signalled.
    asleep: Arc<Mutex<bool>>,
}

impl FakeKernel {
    fn new(seed: u64, in_kernel: InKernel) -> Self {
        let (random, asleep) = (SeededEntropy::new(seed), Arc::default());
        let (queue, begun, deferred, ready) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self {
            random,
            queue,
            begun,
            deferred,
            ready,
            defers: false,
            in_kernel,
            meanwhile: Box::new(|| Ok(())),
            asleep,
        }
    }

    /// Finishes an operation or a piece of it. Returns `None` if it cannot finish now.
    fn carry_out(&self, operation: &Operation) -> Option<i32> {
        // SAFETY: the descriptor is open while the operation is in flight: its flight, or the
        // ring's, keeps the file.
        let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(operation.fd) };
        let OperationKind::Transfer { write, memory, len, offset, buffer: _ } = operation.kind
        else {
            let mut count = [0; 8];
            // The eventfd is readable, so the poll has ended, if its counter is not zero. The
            // thread reads it again.
            let rung = rustix::io::read(fd, &mut count).is_ok();
            return rung.then(|| {
                let _ = rustix::io::write(fd, &count);
                1
            });
        };
        match self.random.below(8) {
            0 => return Some(-Errno::INTR.raw_os_error()),
            1 => return Some(-Errno::AGAIN.raw_os_error()),
            _ => {}
        }
        // Short transfers end at a block boundary, like the kernel's.
        let piece = (ALIGN * (1 + self.random.below(4) as usize)).min(len as usize);
        // SAFETY: `Kernel::push` requires it of the driver; the tests check exactly that.
        let bytes = unsafe { std::slice::from_raw_parts_mut(memory, piece) };
        let done = if write {
            rustix::io::pwrite(fd, bytes, offset)
        } else {
            rustix::io::pread(fd, bytes, offset)
        };
        Some(done.map_or_else(|error| -error.raw_os_error(), |n| n as i32))
    }

    fn finish_some(&mut self) {
        let mut left = Vec::new();
        for operation in std::mem::take(&mut self.begun) {
            let ends = self.random.below(3) == 0;
            match ends.then(|| self.carry_out(&operation)).flatten() {
                Some(result) => {
                    self.in_kernel.lock().unwrap().remove(&operation.number);
                    let at = self.random.below(self.deferred.len() as u64 + 1) as usize;
                    self.deferred.insert(at, (operation.number, result));
                }
                None => left.push(operation),
            }
        }
        self.begun = left;
    }
}

impl Kernel for FakeKernel {
    unsafe fn push(&mut self, operation: &Operation) -> bool {
        if let OperationKind::Transfer { memory, len, .. } = operation.kind {
            assert!(
                !overlaps(&self.in_kernel, memory.addr(), len as usize),
                "two operations in the same memory"
            );
            let before = self
                .in_kernel
                .lock()
                .unwrap()
                .insert(operation.number, (memory.addr(), len as usize));
            assert!(before.is_none(), "a number is given twice");
        }
        self.queue.push(*operation);
        self.queue.len() <= DEPTH * 2
    }

    fn enter(&mut self, completions: usize) -> io::Result<()> {
        (self.meanwhile)()?;
        self.begun.append(&mut self.queue);
        assert!(
            self.begun.len() + self.deferred.len() + self.ready.len() <= DEPTH + 1,
            "invariant 3"
        );
        self.finish_some();
        while completions > 0 && self.ready.is_empty() && self.deferred.is_empty() {
            let transfers = self
                .begun
                .iter()
                .any(|operation| matches!(operation.kind, OperationKind::Transfer { .. }));
            let rung = self
                .begun
                .iter()
                .any(|o| matches!(o.kind, OperationKind::Poll) && self.carry_out(o).is_some());
            if !transfers && !rung {
                *self.asleep.lock().unwrap() = true;
                return Err(ErrorKind::Interrupted.into());
            }
            self.finish_some();
        }
        if completions > 0 || !self.defers {
            self.ready.append(&mut self.deferred);
        }
        Ok(())
    }

    fn completions(&mut self) -> Vec<(u64, i32)> {
        std::mem::take(&mut self.ready)
    }

    fn register(&mut self, _: &mut Table, _: IoMemory) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn unregister(&mut self, _: &mut Table) {}
}

/// A read of a test. At its end nobody else may have its memory.
struct Part {
    offset: usize,
    memory: Box<[u8]>,
    in_kernel: InKernel,
    ended: mpsc::Sender<Ended>,
}

/// The offset of the read, and its result.
type Ended = (usize, Box<[u8]>, io::Result<usize>);

// SAFETY: the bytes are on the heap, so they stay in place when the target moves, and nothing else
// refers to them.
unsafe impl ReadTarget for Part {
    fn buffer(&mut self) -> &mut [u8] {
        &mut self.memory
    }
    fn done(self: Box<Self>, result: io::Result<usize>) {
        let Self { offset, memory, in_kernel, ended } = *self;
        assert!(!overlaps(&in_kernel, memory.as_ptr().addr(), memory.len()), "invariant 1");
        ended.send((offset, memory, result)).expect("the test waits");
    }
}

fn shared() -> Arc<Shared> {
    Arc::new(Shared::new(Failed::default()).expect("an eventfd"))
}

fn driver(kernel: FakeKernel, shared: &Arc<Shared>) -> Driver<FakeKernel> {
    let mut driver = Driver::new(kernel, Arc::clone(shared), Limits { buffer: 1, buffers: 0 });
    driver.arm_bell();
    driver
}

/// Returns the content of a test's file.
fn file_bytes() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| (0..LEN).map(|at| (at / ALIGN + at % 251) as u8).collect())
}

fn file(scratch: &Scratch) -> Arc<dyn File> {
    let file = OsDisk.open(&scratch.0.join("file"), Open::OpenOrCreate).expect("created");
    file.write_all_at(file_bytes(), 0).expect("written");
    file
}

fn check((offset, bytes, result): &Ended) {
    let n = *result.as_ref().expect("no read fails");
    assert_eq!(n, bytes.len().min(LEN - offset), "less only at the file's end");
    assert!(bytes[..n] == file_bytes()[*offset..offset + n]);
}

/// Invariants 1 to 4: whatever the order and the sizes of the pieces, each read and each write is
/// answered once, with all of its bytes. The thread sleeps only when there is nothing to do, and
/// each request wakes it.
#[test]
fn every_request_is_answered_once() {
    let scratch = Scratch::new("ring-model");
    for seed in 0..40 {
        let (random, in_kernel, shared) = (SeededEntropy::new(seed), InKernel::default(), shared());
        let kernel = FakeKernel::new(seed, in_kernel.clone());
        let asleep = kernel.asleep.clone();
        let mut driver = driver(kernel, &shared);
        let file = file(&scratch);
        let (sender, ended) = mpsc::channel();
        let (mut reads, mut answered, mut writes) = (0, 0, Vec::new());
        for _ in 0..25 {
            // Occasionally a burst of more than fits.
            let burst = if random.below(10) == 0 { DEPTH + 10 } else { random.below(4) as usize };
            for _ in 0..burst {
                let (offset, len) =
                    (random.below(13) as usize * ALIGN, (1 + random.below(8) as usize) * ALIGN);
                let (memory, in_kernel) = (vec![0; len].into(), in_kernel.clone());
                let target = Part { offset, memory, in_kernel, ended: sender.clone() };
                let read = Read {
                    file: Arc::clone(&file),
                    offset: offset as u64,
                    target: Box::new(target),
                };
                shared.put([Request::Read(read)]);
                *asleep.lock().unwrap() = false;
                reads += 1;
            }
            if random.below(4) == 0 {
                // Write the bytes that are already there, so that adjacent reads see the same.
                let bytes: Box<[u8]> = file_bytes().into();
                let batch = Arc::new(Batch(Monitor::new(&BATCH, (1, None))));
                let (number, of) = (0, Bytes(bytes.as_ptr(), bytes.len()));
                let (file, to) = (Arc::clone(&file), Arc::clone(&batch));
                shared.put([Request::Write { file, offset: 0, bytes: of, number, batch: to }]);
                *asleep.lock().unwrap() = false;
                writes.push((bytes, batch));
            }
            for _ in 0..random.below(5) {
                assert!(driver.turn());
                let idle = *asleep.lock().unwrap();
                assert!(
                    !idle || shared.inbox.lock().asleep && driver.in_flight() == 0,
                    "seed {seed}: it sleeps"
                );
            }
            answered += ended.try_iter().inspect(check).count();
        }
        shared.inbox.lock().closed = true;
        shared.ring();
        while driver.turn() {}
        answered += ended.try_iter().inspect(check).count();
        assert_eq!(answered, reads, "seed {seed}");
        for (bytes, batch) in writes {
            assert!(matches!(&*batch.0.lock(), (0, None)), "seed {seed}");
            drop(bytes);
        }
        assert!(test_files::content(&*file) == file_bytes(), "seed {seed}");
    }
}

/// Invariant 5, and what it requires of the kernel.
#[test]
fn reads_are_reaped_under_constant_load() {
    let scratch = Scratch::new("ring-news");
    let file = file(&scratch);
    let answered = |defers: bool| {
        let (in_kernel, shared) = (InKernel::default(), shared());
        let (sender, ended) = mpsc::channel();
        let mut kernel = FakeKernel::new(1, in_kernel.clone());
        kernel.defers = defers;
        let mut driver = driver(kernel, &shared);
        for _ in 0..DEPTH / 2 {
            let (memory, in_kernel) = (vec![0; 1].into(), in_kernel.clone());
            let target = Part { offset: 0, memory, in_kernel, ended: sender.clone() };
            shared.put([Request::Read(Read {
                file: Arc::clone(&file),
                offset: 0,
                target: Box::new(target),
            })]);
            driver.turn();
        }
        let answered = ended.try_iter().count();
        shared.inbox.lock().closed = true;
        shared.ring();
        while driver.turn() {}
        answered
    };
    assert!(answered(false) > 0);
    assert_eq!(answered(true), 0, "so the flag is needed");
}

/// Invariant 2: callers get an answer after a panic of the thread, both pending and later ones.
#[test]
fn requests_fail_after_a_thread_panic() {
    let scratch = Scratch::new("ring-panic");
    let file = file(&scratch);
    let (in_kernel, shared) = (InKernel::default(), shared());
    let (sender, ended) = mpsc::channel();
    let read = move || {
        let (memory, in_kernel) = (vec![0; 1].into(), InKernel::default());
        let target = Part { offset: 0, memory, in_kernel, ended: sender.clone() };
        Request::Read(Read { file: Arc::clone(&file), offset: 0, target: Box::new(target) })
    };
    let mut kernel = FakeKernel::new(1, in_kernel);
    let (batch, bytes) = (Arc::new(Batch(Monitor::new(&BATCH, (1, None)))), [1_u8; 8]);
    let (of, to) = (Bytes(bytes.as_ptr(), bytes.len()), Arc::clone(&batch));
    let written = file_of(&scratch);
    let mut came =
        Some(Request::Write { file: written, offset: 0, bytes: of, number: 7, batch: to });
    let (first, inbox) = (read(), Arc::clone(&shared));
    let mut first = Some(first);
    kernel.meanwhile = Box::new(move || {
        inbox.put(first.take().into_iter().chain(came.take()));
        Err(io::Error::from_raw_os_error(Errno::BADF.raw_os_error()))
    });
    Driver::new(kernel, Arc::clone(&shared), Limits { buffer: 1, buffers: 0 }).run();
    assert!(ended.try_recv().expect("answered").2.is_err());
    assert!(matches!(&*batch.0.lock(), (0, Some((7, _)))), "the writer waits no more");
    shared.put([read()]);
    assert!(ended.try_recv().expect("answered at once").2.is_err());
    let (sender, registered) = mpsc::channel();
    shared.put([Request::Register(IoMemory::new(1, 1), sender)]);
    assert!(registered.recv().expect("answered").is_err());
    assert!(shared.failed.why().is_some_and(|why| why.contains("io_uring_enter")));
}

fn file_of(scratch: &Scratch) -> Arc<dyn File> {
    OsDisk.open(&scratch.0.join("file"), Open::Existing).expect("there")
}
