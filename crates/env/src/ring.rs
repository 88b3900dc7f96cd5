//! Linux's io_uring: reads that nobody waits for, and writes that go to the disk side by side.
//!
//! One thread owns the ring: it alone submits and reaps, so that the kernel finishes requests on no other thread's time.
//! Who asks leaves the request in the inbox, and rings an eventfd if the thread sleeps in the kernel. Requests whose bytes lie in
//! registered memory (module `registered`) go by it; for all others, and where the kernel registers none, the operations are the plain ones.
//!
//! # Invariants
//! 1. Memory that the kernel may write to or read from is not touched, and not freed, until the request's completion has
//!    been reaped: the [`ReadTarget`] is kept in the slot, and [`Ring::write_all`] does not return before. If the thread
//!    dies with requests in flight, the process ends.
//! 2. Each request is answered once, also when the ring is dropped: `drop` returns after the last of them.
//! 3. At most [`DEPTH`] requests are in flight, no more than the completion queue has places; the others wait in the inbox,
//!    which is bounded by those who ask: a page read holds a frame of the pool.
//! 4. Whoever puts a request in the inbox while `asleep` is set rings; the thread sets it only with an empty inbox.
//!
//! # Locking
//! The inbox's latch and the monitor of a batch of writes are leaves, and nothing panics under them. The thread is the standard
//! library's: a model checker does not run the kernel.
//!
//! # Source
//! J. Axboe, "Efficient IO with io_uring", 2019.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use clearway_latch::lockstat::Class;
use clearway_latch::{Latch, Monitor};
use io_uring::{IoUring, opcode, squeue, types::Fd};
use rustix::event::{EventfdFlags, eventfd};

use crate::direct::Progress;
use crate::disk::File;
use crate::io_pool::{Read, ReadTarget, Write};
use crate::memory::IoMemory;
use crate::registered::{Limits, Table};

/// The most requests in flight.
pub const DEPTH: usize = 256;
/// The slot of the poll on the eventfd.
const BELL: u64 = u64::MAX;
const POLLIN: u32 = 1;

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

/// The end of a batch of writes: how many are not done, and the first that failed. Whose batch it is waits until all are done.
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
}

struct Shared {
    inbox: Latch<Inbox>,
    bell: OwnedFd,
}

impl Shared {
    fn put(&self, requests: impl IntoIterator<Item = Request>) {
        let mut inbox = self.inbox.lock();
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
    /// A ring, or why the kernel refuses one: too old, forbidden by a sandbox or by the administrator.
    pub(crate) fn new(name: &str, limits: Limits) -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared { inbox: Latch::new(&INBOX, Inbox::default()), bell });
        let (sender, made) = mpsc::channel();
        let threads_shared = Arc::clone(&shared);
        // The ring belongs to the thread that makes it.
        let run = move || match make() {
            Ok(ring) => {
                let _ = sender.send(Ok(()));
                let (slots, free, backlog) = (Vec::new(), Vec::new(), VecDeque::new());
                let table = Table::new(limits);
                Driver { ring, shared: threads_shared, slots, free, backlog, table }.run();
            }
            Err(error) => {
                let _ = sender.send(Err(error));
            }
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run)?;
        let made = made.recv().unwrap_or_else(|_| Err(io::Error::other("the ring's thread has ended")));
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

    /// Registers memory for as long as the ring is there, and waits until that is done or the kernel refuses. Not on the ring's own thread.
    pub(crate) fn register(&self, memory: IoMemory) -> io::Result<()> {
        let (sender, answer) = mpsc::channel();
        self.shared.put([Request::Register(memory, sender)]);
        answer.recv().unwrap_or_else(|_| Err(io::Error::other("the ring's thread has ended")))
    }

    /// Does all the writes, side by side, and waits; an error names the number of one that has failed. The files must have
    /// descriptors. Not on the ring's own thread, which would wait for itself.
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
            // It cannot have panicked: that ends the process (invariant 1), and callbacks' panics are caught.
            let _ = thread.join();
        }
    }
}

fn make() -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.dontfork();
    // Since Linux 6.1; an older kernel refuses them.
    let ring = match builder.clone().setup_single_issuer().setup_defer_taskrun().build(DEPTH as u32 * 2) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => builder.build(DEPTH as u32 * 2)?,
        other => other?,
    };
    let mut probe = io_uring::Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::PollAdd::CODE];
    if !needed.into_iter().all(|code| probe.is_supported(code)) {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel's io_uring cannot read, write and poll"));
    }
    Ok(ring)
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
    fn entry(&self, slot: usize, table: &Table) -> Option<squeue::Entry> {
        let fd = Fd(self.file.fd()?.as_raw_fd());
        let at = self.progress.at();
        // A request that is longer than the kernel takes at once is read or written in pieces.
        let len = (self.progress.len() - at).min(1 << 30) as u32;
        let offset = self.offset + at as u64;
        let memory = self.memory.wrapping_add(at);
        let entry = match (&self.end, table.find(memory, len as usize)) {
            (End::Read(_), None) => opcode::Read::new(fd, memory, len).offset(offset).build(),
            (End::Read(_), Some(buffer)) => opcode::ReadFixed::new(fd, memory, len, buffer).offset(offset).build(),
            (End::Write(..), None) => opcode::Write::new(fd, memory, len).offset(offset).build(),
            (End::Write(..), Some(buffer)) => opcode::WriteFixed::new(fd, memory, len, buffer).offset(offset).build(),
        };
        Some(entry.user_data(slot as u64))
    }

    /// Takes note of a completion; the result if that was the last.
    fn completed(&mut self, result: i32) -> Option<io::Result<usize>> {
        let n = match usize::try_from(result) {
            Ok(n) => n,
            Err(_) => {
                let error = io::Error::from_raw_os_error(-result);
                let again = matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock);
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

    fn finish(self, result: io::Result<usize>) {
        match self.end {
            // Unwind safe: the target is consumed, and what it shares with others guards itself. The hook has reported it.
            End::Read(target) => drop(catch_unwind(AssertUnwindSafe(|| target.done(result)))),
            End::Write(number, batch) => batch.end(number, result.map(drop)),
        }
    }
}

/// The thread's own.
struct Driver {
    ring: IoUring,
    shared: Arc<Shared>,
    slots: Vec<Option<Flight>>,
    free: Vec<usize>,
    /// What waits for room in the ring.
    backlog: VecDeque<Request>,
    table: Table,
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.in_flight() > 0 {
            // Invariant 1: the kernel still writes to memory that would be freed.
            std::process::abort();
        }
        self.table.clear(&self.ring);
    }
}

impl Driver {
    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn run(mut self) {
        self.arm_bell();
        loop {
            let mut inbox = self.shared.inbox.lock();
            let news = !inbox.requests.is_empty();
            self.backlog.append(&mut inbox.requests);
            inbox.asleep = !news;
            let closed = inbox.closed;
            drop(inbox);
            if closed && self.backlog.is_empty() && self.in_flight() == 0 {
                return;
            }
            while self.in_flight() < DEPTH
                && let Some(request) = self.backlog.pop_front()
            {
                self.start(request);
            }
            match self.ring.submit_and_wait(usize::from(!news)) {
                Ok(_) => {}
                // A signal; or the kernel is short of something, and what is reaped below frees it.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy
                    ) => {}
                Err(error) => panic!("io_uring_enter: {error}"),
            }
            self.reap();
        }
    }

    fn start(&mut self, request: Request) {
        let flight = match request {
            Request::Read(Read { file, offset, mut target }) => {
                let buffer = target.buffer();
                let (memory, len) = (buffer.as_mut_ptr(), buffer.len());
                Flight { file, offset, memory, progress: Progress::new(len), end: End::Read(target) }
            }
            Request::Write { file, offset, bytes: Bytes(memory, len), number, batch } => {
                let end = End::Write(number, batch);
                Flight { file, offset, memory: memory.cast_mut(), progress: Progress::new(len), end }
            }
            Request::Register(memory, sender) => {
                // Whoever asked waits.
                return drop(sender.send(self.table.add(&self.ring, memory)));
            }
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.submit(slot, flight);
    }

    fn submit(&mut self, slot: usize, flight: Flight) {
        let Some(entry) = flight.entry(slot, &self.table) else {
            self.free.push(slot);
            return flight.finish(Err(io::Error::other("a file without a descriptor")));
        };
        self.slots[slot] = Some(flight);
        self.push(&entry);
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: the entry's memory is the flight's, which stays in its slot until the completion is reaped: its target
        // keeps the memory in place and to itself, or `write_all` waits for its end (invariant 1). The file is open as
        // long as the flight has it. The bell's poll has no memory, and its descriptor lives as long as `shared`.
        let pushed = unsafe { self.ring.submission().push(entry) };
        // The queue has twice as many places as there are flights, and each submission empties it.
        assert!(pushed.is_ok(), "the submission queue has room for every flight and the bell");
    }

    fn arm_bell(&mut self) {
        let fd = Fd(self.shared.bell.as_raw_fd());
        self.push(&opcode::PollAdd::new(fd, POLLIN).build().user_data(BELL));
    }

    fn reap(&mut self) {
        let done: Vec<(u64, i32)> = self.ring.completion().map(|entry| (entry.user_data(), entry.result())).collect();
        for (slot, result) in done {
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
                    flight.finish(result);
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
