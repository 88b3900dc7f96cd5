//! Linux's io_uring: asynchronous reads, and batches of parallel writes.
//!
//! One thread owns the ring. It alone submits and reaps, so the kernel completes requests only on
//! that thread's time. A caller puts its request in the inbox, and signals an eventfd if the thread
//! sleeps in the kernel. Requests whose bytes are in registered memory (module `registered`) use
//! it. All others use the plain operations, as do all requests where the kernel registers no
//! memory.
//!
//! # Invariants
//! 1. Memory that the kernel may read or write is neither touched nor freed until the request's
//!    completion has been reaped. The slot keeps the [`ReadTarget`], and [`Ring::write_all`] does
//!    not return earlier. If the thread dies with requests in flight, the process aborts.
//! 2. Each request is answered exactly once, also when the ring is dropped: `drop` returns after
//!    the last answer. If the thread dies, the requests that the kernel does not have, and all
//!    later ones, get an error, and the pool has failed.
//! 3. At most [`DEPTH`] requests are in flight, which the completion queue can hold. Others wait in
//!    the inbox, whose length is bounded by the callers: a page read holds a frame of the pool.
//! 4. A caller that puts a request in the inbox while `asleep` is set signals the eventfd. The
//!    thread sets `asleep` only when the inbox is empty.
//! 5. Completions are reaped at the next turn, even under a constant stream of new requests. With
//!    `DEFER_TASKRUN` the kernel completes requests only when it is entered for completions;
//!    `TASKRUN_FLAG` tells when that is due.
//!
//! # Locking
//! The inbox's latch and the monitor of a batch of writes are leaves, and nothing panics under
//! them. The thread is a standard library thread: a model checker does not run the kernel. The
//! tests' fake kernel ([`Kernel`]) completes requests in any order, in pieces, or late.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use clearway_latch::lockstat::Class;
use clearway_latch::{Latch, Monitor};
use rustix::event::{EventfdFlags, eventfd};

use crate::direct::Progress;
use crate::disk::File;
use crate::io_pool::{Failed, Read, ReadTarget, Write};
use crate::kernel::{Kernel, Operation, OperationKind, make_ring};
use crate::memory::IoMemory;
use crate::registered::{Limits, Table};

/// Maximum number of requests in flight.
pub const DEPTH: usize = 256;
/// User data of the poll on the eventfd.
const BELL: u64 = u64::MAX;

static INBOX: Class = Class::new("env.ring_inbox");
static BATCH: Class = Class::new("env.ring_batch");

/// A request to the ring's thread.
enum Request {
    Read(Read),
    Write { file: Arc<dyn File>, offset: u64, bytes: Bytes, number: usize, batch: Arc<Batch> },
    Register(IoMemory, mpsc::Sender<io::Result<()>>),
}

/// Bytes that [`Ring::write_all`] has borrowed.
struct Bytes(*const u8, usize);

// SAFETY: the bytes are only read, and they live until the batch has ended (invariant 1).
unsafe impl Send for Bytes {}

impl Request {
    /// Answers a request that the ring's thread will not execute.
    fn refuse(self, failed: &Failed) {
        let why = || io::Error::other("the ring's thread has ended");
        match self {
            Self::Read(read) => {
                drop(failed.watch("refusing a read", || read.target.done(Err(why()))))
            }
            Self::Write { number, batch, .. } => batch.end(number, Err(why())),
            // The receiver is waiting.
            Self::Register(_, sender) => drop(sender.send(Err(why()))),
        }
    }
}

/// State of a batch of writes: the number not yet done, and the first failure. The caller of the
/// batch waits until all are done.
struct Batch(Monitor<(usize, Option<(usize, io::Error)>)>);

impl Batch {
    fn end(&self, number: usize, result: io::Result<()>) {
        let mut state = self.0.lock();
        state.0 -= 1;
        if let Err(error) = result {
            state.1.get_or_insert((number, error));
        }
        if state.0 == 0 {
            self.0.notify_all();
        }
    }
}

#[derive(Default)]
struct Inbox {
    requests: VecDeque<Request>,
    asleep: bool,
    closed: bool,
    /// The thread no longer takes requests.
    ended: bool,
}

struct Shared {
    inbox: Latch<Inbox>,
    bell: OwnedFd,
    failed: Failed,
}

impl Shared {
    fn new(failed: Failed) -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { inbox: Latch::new(&INBOX, Inbox::default()), bell, failed })
    }

    fn put(&self, requests: impl IntoIterator<Item = Request>) {
        let mut inbox = self.inbox.lock();
        if inbox.ended {
            drop(inbox);
            return requests.into_iter().for_each(|request| request.refuse(&self.failed));
        }
        inbox.requests.extend(requests);
        let asleep = std::mem::take(&mut inbox.asleep);
        drop(inbox);
        if asleep {
            self.ring();
        }
    }

    fn ring(&self) {
        // Fails only if the counter is full; then the thread has been signalled already.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

/// A ring and its thread.
pub(crate) struct Ring {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Ring {
    /// Creates a ring. The error says why the kernel refuses: too old, or forbidden by a sandbox or
    /// by the administrator.
    pub(crate) fn new(name: &str, limits: Limits, failed: Failed) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(failed)?);
        let (sender, made) = mpsc::channel();
        let threads_shared = Arc::clone(&shared);
        // The ring must be created on the thread that uses it.
        let run = move || match make_ring() {
            Ok(ring) => {
                let _ = sender.send(Ok(()));
                Driver::new(ring, threads_shared, limits).run();
            }
            Err(error) => {
                let _ = sender.send(Err(error));
            }
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run)?;
        let made =
            made.recv().unwrap_or_else(|_| Err(io::Error::other("the ring's thread has ended")));
        match made {
            Ok(()) => Ok(Self { shared, thread: Some(thread) }),
            Err(error) => {
                let _ = thread.join();
                Err(error)
            }
        }
    }

    /// Starts a read and returns at once. The file must have a descriptor.
    pub(crate) fn read(&self, read: Read) {
        self.shared.put([Request::Read(read)]);
    }

    /// Registers memory for the life of the ring. Blocks until that is done or the kernel refuses.
    /// Must not run on the ring's own thread.
    pub(crate) fn register(&self, memory: IoMemory) -> io::Result<()> {
        let (sender, answer) = mpsc::channel();
        self.shared.put([Request::Register(memory, sender)]);
        answer.recv().unwrap_or_else(|_| Err(io::Error::other("the ring's thread has ended")))
    }

    /// Executes all writes in parallel and waits. An error has the number of a failed write. The
    /// files must have descriptors. Must not run on the ring's own thread, which would wait for
    /// itself.
    pub(crate) fn write_all(&self, writes: &[Write<'_>]) -> Result<(), (usize, io::Error)> {
        let batch = Arc::new(Batch(Monitor::new(&BATCH, (writes.len(), None))));
        self.shared.put(writes.iter().enumerate().map(|(number, write)| Request::Write {
            file: Arc::clone(write.file),
            offset: write.offset,
            bytes: Bytes(write.bytes.as_ptr(), write.bytes.len()),
            number,
            batch: Arc::clone(&batch),
        }));
        let mut state = batch.0.wait_while(batch.0.lock(), |state| state.0 > 0);
        state.1.take().map_or(Ok(()), Err)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.shared.inbox.lock().closed = true;
        self.shared.ring();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            // The thread catches its panics.
            let _ = thread.join();
        }
    }
}

/// A request in flight.
struct Flight {
    file: Arc<dyn File>,
    offset: u64,
    memory: *mut u8,
    progress: Progress,
    end: End,
}

enum End {
    Read(Box<dyn ReadTarget>),
    Write(usize, Arc<Batch>),
}

impl Flight {
    /// Returns the kernel operation for the rest of the request, or `None` if the file has no
    /// descriptor.
    fn operation(&self, slot: usize, table: &Table) -> Option<Operation> {
        let fd = self.file.fd()?.as_raw_fd();
        let at = self.progress.at();
        // A request longer than the kernel's limit runs in pieces.
        let len = (self.progress.len() - at).min(1 << 30) as u32;
        let offset = self.offset + at as u64;
        let memory = self.memory.wrapping_add(at);
        let write = matches!(self.end, End::Write(..));
        let buffer = table.find(memory, len as usize);
        Some(Operation {
            number: slot as u64,
            fd,
            kind: OperationKind::Transfer { write, memory, len, offset, buffer },
        })
    }

    /// Records a completion; returns the result if it was the last.
    fn completed(&mut self, result: i32) -> Option<io::Result<usize>> {
        let n = match usize::try_from(result) {
            Ok(n) => n,
            Err(_) => {
                let error = io::Error::from_raw_os_error(-result);
                let again =
                    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock);
                return if again { None } else { Some(Err(error)) };
            }
        };
        match self.end {
            End::Read(_) => self.progress.read(n).map(Ok),
            End::Write(..) => match self.progress.wrote(n) {
                Err(error) => Some(Err(error)),
                Ok(()) => self.progress.is_over().then_some(Ok(n)),
            },
        }
    }

    fn finish(self, result: io::Result<usize>, failed: &Failed) {
        match self.end {
            End::Read(target) => drop(failed.watch("completing a read", || target.done(result))),
            End::Write(number, batch) => batch.end(number, result.map(drop)),
        }
    }
}

/// The state of the ring's thread.
struct Driver<K: Kernel> {
    kernel: K,
    shared: Arc<Shared>,
    slots: Vec<Option<Flight>>,
    free: Vec<usize>,
    /// Requests that wait for space in the ring.
    backlog: VecDeque<Request>,
    table: Table,
}

impl<K: Kernel> Drop for Driver<K> {
    fn drop(&mut self) {
        if self.in_flight() > 0 {
            // Invariant 1: the kernel may still write to memory that would be freed.
            std::process::abort();
        }
        self.kernel.unregister(&mut self.table);
        let mut inbox = self.shared.inbox.lock();
        inbox.ended = true;
        let left = std::mem::take(&mut inbox.requests);
        drop(inbox);
        self.backlog.drain(..).chain(left).for_each(|request| request.refuse(&self.shared.failed));
    }
}

impl<K: Kernel> Driver<K> {
    fn new(kernel: K, shared: Arc<Shared>, limits: Limits) -> Self {
        let (slots, free, backlog) = (Vec::new(), Vec::new(), VecDeque::new());
        Self { kernel, shared, slots, free, backlog, table: Table::new(limits) }
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Runs until the ring is closed. Drops `self` after a panic has been recorded, so that a
    /// refused caller finds the reason.
    fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let ended = shared.failed.watch("driving the ring", || {
            self.arm_bell();
            while self.turn() {}
        });
        drop(ended);
    }

    /// Takes new requests, waits if there are none, and reaps completions. Returns false when the
    /// ring ends.
    fn turn(&mut self) -> bool {
        let mut inbox = self.shared.inbox.lock();
        let news = !inbox.requests.is_empty();
        self.backlog.append(&mut inbox.requests);
        inbox.asleep = !news;
        let closed = inbox.closed;
        drop(inbox);
        if closed && self.backlog.is_empty() && self.in_flight() == 0 {
            return false;
        }
        while self.in_flight() < DEPTH
            && let Some(request) = self.backlog.pop_front()
        {
            self.start(request);
        }
        match self.kernel.enter(usize::from(!news)) {
            Ok(()) => {}
            // Either a signal, or the kernel is short of a resource that reaping below frees.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::Interrupted
                        | io::ErrorKind::WouldBlock
                        | io::ErrorKind::ResourceBusy
                ) => {}
            Err(error) => panic!("io_uring_enter: {error}"),
        }
        self.reap();
        true
    }

    fn start(&mut self, request: Request) {
        let flight = match request {
            Request::Read(Read { file, offset, mut target }) => {
                let buffer = target.buffer();
                let (memory, len) = (buffer.as_mut_ptr(), buffer.len());
                Flight {
                    file,
                    offset,
                    memory,
                    progress: Progress::new(len),
                    end: End::Read(target),
                }
            }
            Request::Write { file, offset, bytes: Bytes(memory, len), number, batch } => {
                let end = End::Write(number, batch);
                Flight {
                    file,
                    offset,
                    memory: memory.cast_mut(),
                    progress: Progress::new(len),
                    end,
                }
            }
            Request::Register(memory, sender) => {
                // The receiver is waiting.
                return drop(sender.send(self.kernel.register(&mut self.table, memory)));
            }
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.submit(slot, flight);
    }

    fn submit(&mut self, slot: usize, flight: Flight) {
        let Some(operation) = flight.operation(slot, &self.table) else {
            self.free.push(slot);
            return flight
                .finish(Err(io::Error::other("a file without a descriptor")), &self.shared.failed);
        };
        self.slots[slot] = Some(flight);
        self.push(&operation);
    }

    fn push(&mut self, operation: &Operation) {
        // SAFETY: the operation's memory belongs to the flight, which stays in its slot until the
        // completion is reaped. Its target keeps the memory in place and exclusive, or `write_all`
        // waits for the end (invariant 1). The flight keeps the file open. The bell's poll uses no
        // memory, and its descriptor lives as long as `shared`.
        let pushed = unsafe { self.kernel.push(operation) };
        // The queue has twice as many entries as there are flights, and each submission empties it.
        assert!(pushed, "the submission queue has room for every flight and the bell");
    }

    fn arm_bell(&mut self) {
        let fd = self.shared.bell.as_raw_fd();
        self.push(&Operation { number: BELL, fd, kind: OperationKind::Poll });
    }

    fn reap(&mut self) {
        for (slot, result) in self.kernel.completions() {
            if slot == BELL {
                // Empty the eventfd before arming it again. It does not matter if it was already
                // empty.
                let _ = rustix::io::read(&self.shared.bell, &mut [0; 8]);
                self.arm_bell();
                continue;
            }
            let slot = slot as usize;
            let Some(mut flight) = self.slots[slot].take() else { continue };
            match flight.completed(result) {
                None => self.submit(slot, flight),
                Some(result) => {
                    self.free.push(slot);
                    flight.finish(result, &self.shared.failed);
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "ring_model_tests.rs"]
mod model_tests;
#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
