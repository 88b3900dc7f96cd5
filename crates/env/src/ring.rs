//! Linux's io_uring: reads that nobody waits for, and writes that go to the disk side by side.
//!
//! One thread owns the ring: it alone submits and reaps, so that the kernel finishes requests on no
//! other thread's time. Who asks leaves the request in the inbox, and rings an eventfd if the
//! thread sleeps in the kernel. Requests whose bytes lie in registered memory (module `registered`)
//! go by it; for all others, and where the kernel registers none, the operations are the plain
//! ones.
//!
//! # Invariants
//! 1. Memory that the kernel may write to or read from is not touched, and not freed, until the
//!    request's completion has been reaped: the [`ReadTarget`] is kept in the slot, and
//!    [`Ring::write_all`] does not return before. If the thread dies with requests in flight, the
//!    process ends.
//! 2. Each request is answered once, also when the ring is dropped: `drop` returns after the last
//!    of them. If the thread dies, those that the kernel does not have, and all that come later,
//!    get an error, and the pool has failed.
//! 3. At most [`DEPTH`] requests are in flight, no more than the completion queue has places; the
//!    others wait in the inbox, which is bounded by those who ask: a page read holds a frame of the
//!    pool.
//! 4. Whoever puts a request in the inbox while `asleep` is set rings; the thread sets it only with
//!    an empty inbox.
//! 5. What the kernel has finished is reaped at the next turn, also while there is always something
//!    new to submit. With `DEFER_TASKRUN` the kernel finishes requests only when it is entered for
//!    completions: `TASKRUN_FLAG` tells when that is due.
//!
//! # Locking
//! The inbox's latch and the monitor of a batch of writes are leaves, and nothing panics under
//! them. The thread is the standard library's: a model checker does not run the kernel. The tests'
//! fake kernel ([`Kernel`]) finishes requests in any order, in pieces, late.
//!
//! # Source
//! J. Axboe, "Efficient IO with io_uring", 2019.

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
use crate::kernel::{Kernel, Operation, What, make_ring};
use crate::memory::IoMemory;
use crate::registered::{Limits, Table};

/// The most requests in flight.
pub const DEPTH: usize = 256;
/// The slot of the poll on the eventfd.
const BELL: u64 = u64::MAX;

static INBOX: Class = Class::new("env.ring_inbox");
static BATCH: Class = Class::new("env.ring_batch");

/// What is asked of the thread.
enum Request {
    Read(Read),
    Write { file: Arc<dyn File>, offset: u64, bytes: Bytes, number: usize, batch: Arc<Batch> },
    Register(IoMemory, mpsc::Sender<io::Result<()>>),
}

/// Bytes that [`Ring::write_all`] has borrowed.
struct Bytes(*const u8, usize);

// SAFETY: they are only read, and are there until the batch has ended (invariant 1).
unsafe impl Send for Bytes {}

impl Request {
    /// Answers a request that the ring's thread will not carry out.
    fn refuse(self, failed: &Failed) {
        let why = || io::Error::other("the ring's thread has ended");
        match self {
            Self::Read(read) => {
                drop(failed.watch("refusing a read", || read.target.done(Err(why()))))
            }
            Self::Write { number, batch, .. } => batch.end(number, Err(why())),
            // Whoever asked waits.
            Self::Register(_, sender) => drop(sender.send(Err(why()))),
        }
    }
}

/// The end of a batch of writes: how many are not done, and the first that failed. Whose batch it
/// is waits until all are done.
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
    /// Nobody takes requests any more.
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
        // It fails only if the counter is full, and then the thread has been rung.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

/// A ring and its thread.
pub(crate) struct Ring {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Ring {
    /// A ring, or why the kernel refuses one: too old, forbidden by a sandbox or by the
    /// administrator.
    pub(crate) fn new(name: &str, limits: Limits, failed: Failed) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(failed)?);
        let (sender, made) = mpsc::channel();
        let threads_shared = Arc::clone(&shared);
        // The ring belongs to the thread that makes it.
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

    /// Reads without waiting. The file must have a descriptor.
    pub(crate) fn read(&self, read: Read) {
        self.shared.put([Request::Read(read)]);
    }

    /// Registers memory for as long as the ring is there, and waits until that is done or the
    /// kernel refuses. Not on the ring's own thread.
    pub(crate) fn register(&self, memory: IoMemory) -> io::Result<()> {
        let (sender, answer) = mpsc::channel();
        self.shared.put([Request::Register(memory, sender)]);
        answer.recv().unwrap_or_else(|_| Err(io::Error::other("the ring's thread has ended")))
    }

    /// Does all the writes, side by side, and waits; an error names the number of one that has
    /// failed. The files must have descriptors. Not on the ring's own thread, which would wait for
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
            // It catches its panics.
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
    /// The rest of it as the kernel takes it; none if the file has no descriptor.
    fn operation(&self, slot: usize, table: &Table) -> Option<Operation> {
        let fd = self.file.fd()?.as_raw_fd();
        let at = self.progress.at();
        // A request that is longer than the kernel takes at once is read or written in pieces.
        let len = (self.progress.len() - at).min(1 << 30) as u32;
        let offset = self.offset + at as u64;
        let memory = self.memory.wrapping_add(at);
        let write = matches!(self.end, End::Write(..));
        let buffer = table.find(memory, len as usize);
        Some(Operation {
            number: slot as u64,
            fd,
            what: What::Transfer { write, memory, len, offset, buffer },
        })
    }

    /// Takes note of a completion; the result if that was the last.
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
            End::Read(target) => drop(failed.watch("taking a read", || target.done(result))),
            End::Write(number, batch) => batch.end(number, result.map(drop)),
        }
    }
}

/// The thread's own.
struct Driver<K: Kernel> {
    kernel: K,
    shared: Arc<Shared>,
    slots: Vec<Option<Flight>>,
    free: Vec<usize>,
    /// What waits for room in the ring.
    backlog: VecDeque<Request>,
    table: Table,
}

impl<K: Kernel> Drop for Driver<K> {
    fn drop(&mut self) {
        if self.in_flight() > 0 {
            // Invariant 1: the kernel still writes to memory that would be freed.
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

    /// Runs until the ring is closed. Dropped after a panic has been noted, so that whoever is
    /// refused finds the reason.
    fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let ended = shared.failed.watch("driving the ring", || {
            self.arm_bell();
            while self.turn() {}
        });
        drop(ended);
    }

    /// Takes what is new, waits if nothing is, and ends what is finished; false at the ring's end.
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
            // A signal; or the kernel is short of something, and what is reaped below frees it.
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
                // Whoever asked waits.
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
        // SAFETY: the operation's memory is the flight's, which stays in its slot until the
        // completion is reaped: its target keeps the memory in place and to itself, or `write_all`
        // waits for its end (invariant 1). The file is open as long as the flight has it. The
        // bell's poll has no memory, and its descriptor lives as long as `shared`.
        let pushed = unsafe { self.kernel.push(operation) };
        // The queue has twice as many places as there are flights, and each submission empties it.
        assert!(pushed, "the submission queue has room for every flight and the bell");
    }

    fn arm_bell(&mut self) {
        let fd = self.shared.bell.as_raw_fd();
        self.push(&Operation { number: BELL, fd, what: What::Poll });
    }

    fn reap(&mut self) {
        for (slot, result) in self.kernel.completions() {
            if slot == BELL {
                // Emptied before it is armed again; that it was empty already does not matter.
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
