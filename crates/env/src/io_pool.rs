//! Threads for blocking work, so that workers need not block, and asynchronous reads.
//!
//! A worker submits a blocking job and continues. The job sends its result wherever the worker will
//! find it. Reads and batches of writes go to the kernel's ring (see `ring`) if the pool has one
//! and the files have descriptors. Callers see no difference. Memory registered with the ring (see
//! `registered`) is kept until the pool is dropped.
//!
//! # Invariants
//! 1. A submitted job runs exactly once, also when the pool is dropped: `drop` returns after the
//!    last job.
//! 2. At most [`QUEUE_LIMIT`] jobs wait, unless configured otherwise. At the bound, `submit` blocks
//!    until a job leaves the queue. A job that submits to its own pool does not block, because its
//!    thread may be the only one that empties the queue. The bound can therefore be exceeded by the
//!    jobs that running jobs submit. A callback on the ring's thread must not call `submit`: it
//!    would block all other I/O. [`IoPool::read`] never blocks: reads are bounded only by their
//!    callers' memory.
//! 3. A job that panics does not end its thread, which takes the next job. [`IoPool::failed`]
//!    reports the panic from then on. Waiters for the job get no other notice, and the data that it
//!    was changing is half changed.
//!
//! # Locking
//! One monitor over the queue, never held while a job runs. A panic cannot occur under it.

use clearway_latch::lockstat::Class;
use clearway_latch::{Condition, Latch, Monitor};
use clearway_sync::panics::{Panicked, caught};
use clearway_sync::thread::{self, JoinHandle, ThreadId};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, OnceLock};

use crate::disk::File;
use crate::memory::IoMemory;
use crate::registered::Limits;
use crate::ring::Ring;

/// Maximum number of waiting jobs in a pool, unless configured otherwise.
pub const QUEUE_LIMIT: usize = 4096;

/// How much memory is registered with the kernel's ring: see [`IoPool::register`].
#[derive(Clone, Debug, Default)]
pub struct Registered {
    /// Bytes registered.
    pub bytes: usize,
    /// Bytes for which registration was requested.
    pub wanted: usize,
    /// The first error, if a registration failed.
    pub refused: Option<Arc<io::Error>>,
}

/// Blocking work.
pub type Job = Box<dyn FnOnce() + Send>;

/// The memory of a read, and the receiver of its result.
///
/// # Safety
/// `buffer` returns the same memory each time. Until the target is dropped or `done` is called,
/// that memory stays in place even if the target is moved. Only the borrower of `buffer` and the
/// kernel read or write it.
pub unsafe trait ReadTarget: Send {
    /// Returns the memory.
    fn buffer(&mut self) -> &mut [u8];

    /// Receives the result: the number of bytes read, which is less than the buffer's length only
    /// at the end of the file. After an error the buffer's content is undefined. Runs on a thread
    /// of the pool and must be short.
    fn done(self: Box<Self>, result: io::Result<usize>);
}

/// An asynchronous read.
pub struct Read {
    /// The file to read.
    pub file: Arc<dyn File>,
    /// The offset of the first byte.
    pub offset: u64,
    /// The destination.
    pub target: Box<dyn ReadTarget>,
}

/// One of several writes.
pub struct Write<'a> {
    /// The file to write.
    pub file: &'a Arc<dyn File>,
    /// The offset of the first byte.
    pub offset: u64,
    /// The bytes to write.
    pub bytes: &'a [u8],
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    closed: bool,
}

static IO_QUEUE: Class = Class::new("env.io_queue");
static REGISTERED: Class = Class::new("env.registered");

struct Shared {
    /// The pool's threads wait here until a job arrives or the pool closes.
    queue: Monitor<Queue>,
    /// Signalled when a job has left a full queue.
    room: Condition,
    failed: Failed,
}

/// The first panic of a thread of the pool.
#[derive(Clone, Default)]
pub(crate) struct Failed(Arc<OnceLock<String>>);

impl Failed {
    pub(crate) fn why(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }

    /// Runs `work`, and records the message of a panic.
    pub(crate) fn watch<T>(&self, doing: &str, work: impl FnOnce() -> T) -> Result<T, Panicked> {
        caught(work).map_err(|message| {
            let panicked = Panicked(format!("a thread panicked while {doing}: {message}"));
            self.0.get_or_init(|| panicked.0.clone());
            panicked
        })
    }
}

impl Shared {
    fn serve(&self) {
        loop {
            let mut queue = self.queue.lock();
            let job = loop {
                if let Some(job) = queue.jobs.pop_front() {
                    break job;
                }
                if queue.closed {
                    return;
                }
                queue = self.queue.wait(queue);
            };
            drop(queue);
            self.room.notify_one();
            // Waiters for the job learn of the panic through `failed`, which ends the process.
            drop(self.failed.watch("running an I/O job", job));
        }
    }
}

/// A fixed number of threads that run blocking jobs in FIFO order.
pub struct IoPool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    ids: Vec<ThreadId>,
    ring: Option<Ring>,
    registered: Latch<Registered>,
    registers: bool,
    /// Maximum number of waiting jobs, at least 1.
    limit: usize,
}

impl IoPool {
    /// Starts `threads` threads (at least 1), named `name-0`, `name-1` and so on. Fails if the
    /// operating system refuses a thread.
    pub fn new(threads: usize, name: &str) -> io::Result<Self> {
        let queue = Monitor::new(&IO_QUEUE, Queue::default());
        let shared = Arc::new(Shared { queue, room: Condition::new(), failed: Failed::default() });
        let registered = Latch::new(&REGISTERED, Registered::default());
        let mut pool = Self {
            shared,
            threads: Vec::new(),
            ids: Vec::new(),
            ring: None,
            registered,
            registers: false,
            limit: QUEUE_LIMIT,
        };
        for number in 0..threads.max(1) {
            let shared = Arc::clone(&pool.shared);
            let thread = thread::Builder::new()
                .name(format!("{name}-{number}"))
                .spawn(move || shared.serve())?;
            pool.ids.push(thread.thread().id());
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// Like [`IoPool::new`], with a kernel ring for reads and batches of writes. Fails if the
    /// kernel refuses the ring.
    pub fn with_ring(threads: usize, name: &str) -> io::Result<Self> {
        Self::with_ring_of(threads, name, Limits::KERNELS)
    }

    pub(crate) fn with_ring_of(threads: usize, name: &str, limits: Limits) -> io::Result<Self> {
        let mut pool = Self::new(threads, name)?;
        pool.ring = Some(Ring::new(&format!("{name}-ring"), limits, pool.shared.failed.clone())?);
        Ok(pool)
    }

    /// Sets the maximum number of waiting jobs (at least 1).
    #[must_use]
    pub fn with_queue_limit(mut self, jobs: usize) -> Self {
        self.limit = jobs.max(1);
        self
    }

    /// Makes the pool register memory with its ring, if it has one: see [`IoPool::register`].
    #[must_use]
    pub fn with_registered_buffers(mut self) -> Self {
        self.registers = true;
        self
    }

    /// Returns true if reads of files that have descriptors go to the kernel's ring.
    pub fn has_ring(&self) -> bool {
        self.ring.is_some()
    }

    /// Checks whether the kernel lets this process have a ring; the error says why not.
    pub fn try_ring() -> io::Result<()> {
        Ring::new("try-ring", Limits::KERNELS, Failed::default()).map(drop)
    }

    /// Registers the memory with the kernel's ring for the life of the pool, if the pool has
    /// registered buffers. Direct reads into it and writes from it then cost less. All of it
    /// becomes and stays resident. If the kernel refuses, I/O on it works as on other memory, and
    /// [`IoPool::registered`] reports the error. Blocks until done. Must not be called in
    /// [`ReadTarget::done`].
    pub fn register(&self, memory: &IoMemory) {
        let Some(ring) = self.ring.as_ref().filter(|_| self.registers) else { return };
        let result = ring.register(memory.clone());
        let mut registered = self.registered.lock();
        registered.wanted += memory.len();
        match result {
            Ok(()) => registered.bytes += memory.len(),
            Err(error) => drop(registered.refused.get_or_insert(Arc::new(error))),
        }
    }

    /// Returns how much memory is registered with the ring.
    pub fn registered(&self) -> Registered {
        self.registered.lock().clone()
    }

    /// Submits a read. Never blocks.
    pub fn read(&self, mut read: Read) {
        match &self.ring {
            Some(ring) if read.file.fd().is_some() => ring.read(read),
            _ => {
                let failed = self.shared.failed.clone();
                self.submit_unbounded(Box::new(move || {
                    let reading = || read.file.read_up_to(read.target.buffer(), read.offset);
                    // Report a panic as an error, too: at start-up, for example, nothing else would
                    // wake the waiter.
                    let result = failed
                        .watch("reading", reading)
                        .unwrap_or_else(|panic| Err(io::Error::other(panic)));
                    read.target.done(result);
                }));
            }
        }
    }

    /// Executes all writes, in any order, and waits for them. An error has the number of a failed
    /// write; any other write may or may not have been done. Must not be called in
    /// [`ReadTarget::done`].
    pub fn write_all(&self, writes: &[Write<'_>]) -> Result<(), (usize, io::Error)> {
        if let Some(ring) = &self.ring
            && writes.iter().all(|write| write.file.fd().is_some())
        {
            return ring.write_all(writes);
        }
        let one = |(number, write): (usize, &Write<'_>)| {
            write.file.write_all_at(write.bytes, write.offset).map_err(|error| (number, error))
        };
        writes.iter().enumerate().try_for_each(one)
    }

    /// Submits a job without regard to the queue's limit. Never blocks.
    pub fn submit_unbounded(&self, job: Job) {
        self.shared.queue.lock().jobs.push_back(job);
        self.shared.queue.notify_one();
    }

    /// Submits a job. Blocks while the queue is full, except in a job of this pool. Must not be
    /// called in [`ReadTarget::done`].
    pub fn submit(&self, job: Job) {
        let mut queue = self.shared.queue.lock();
        if queue.jobs.len() >= self.limit && !self.ids.contains(&thread::current().id()) {
            let full = |queue: &mut Queue| queue.jobs.len() >= self.limit;
            queue = self.shared.room.wait_while(queue, full);
        }
        queue.jobs.push_back(job);
        drop(queue);
        self.shared.queue.notify_one();
    }

    /// Submits a job, or returns it at once if the queue is full.
    pub fn try_submit(&self, job: Job) -> Result<(), Job> {
        let mut queue = self.shared.queue.lock();
        if queue.jobs.len() >= self.limit {
            return Err(job);
        }
        queue.jobs.push_back(job);
        drop(queue);
        self.shared.queue.notify_one();
        Ok(())
    }

    /// Returns the reason why the process must stop: a job, or a callback of a read, has panicked.
    pub fn failed(&self) -> Option<&str> {
        self.shared.failed.why()
    }

    /// Returns the number of jobs waiting for a thread.
    pub fn waiting(&self) -> usize {
        self.shared.queue.lock().jobs.len()
    }
}

impl Drop for IoPool {
    /// Returns after every job has run. In a job of this pool, it does not wait for that job's own
    /// thread, which ends after that job and all waiting jobs.
    fn drop(&mut self) {
        // First, because the ring's callbacks may submit jobs.
        self.ring = None;
        self.shared.queue.lock().closed = true;
        self.shared.queue.notify_all();
        for thread in self.threads.drain(..) {
            if thread.thread().id() != thread::current().id() {
                // The thread cannot have panicked: it catches its jobs' panics, and runs nothing
                // else that can panic.
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
#[path = "io_pool_tests.rs"]
mod tests;
