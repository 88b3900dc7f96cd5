//! Threads that block so that workers need not, and reads without even a thread that waits.
//!
//! A worker hands a blocking job here and goes on; the job sends its result wherever the worker
//! will find it. Reads and batches of writes go to the kernel's ring instead (see `ring`) if the
//! pool has one and the files have descriptors: with or without, callers see the same. Memory that
//! is registered with the ring (see `registered`) is kept until the pool is gone.
//!
//! # Invariants
//! 1. A job that was submitted runs once, also when the pool is dropped: `drop` returns after the
//!    last of them.
//! 2. At most so many jobs wait ([`QUEUE_LIMIT`], unless said otherwise). At the bound, `submit`
//!    blocks until one has left the queue; a job that submits another job to its own pool does not
//!    block (its thread may be the only one that empties the queue), so that the bound can be
//!    exceeded by what the running jobs submit. [`IoPool::read`] never blocks: reads come on top,
//!    as many as those who ask have memory for.
//! 3. A job that panics ends alone: its thread takes the next job. [`IoPool::failed`] says so from
//!    then on: whoever waits for the job is not told otherwise, and what it was changing is half
//!    changed.
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

/// The most jobs that wait in one pool, unless said otherwise.
pub const QUEUE_LIMIT: usize = 4096;

/// How much memory is registered with the kernel's ring: see [`IoPool::register`].
#[derive(Clone, Debug, Default)]
pub struct Registered {
    /// So many bytes are.
    pub bytes: usize,
    /// So many were to be.
    pub wanted: usize,
    /// Why the first that are not are not.
    pub refused: Option<Arc<io::Error>>,
}

/// Blocking work.
pub type Job = Box<dyn FnOnce() + Send>;

/// Where a read puts its bytes, and who hears of its end.
///
/// # Safety
/// `buffer` returns the same memory each time. Until the target is dropped or `done` is called,
/// that memory stays in place, wherever the target is moved, and nobody but the borrower of
/// `buffer` and the kernel reads or writes it.
pub unsafe trait ReadTarget: Send {
    /// The memory.
    fn buffer(&mut self) -> &mut [u8];

    /// Takes the end: how many bytes the buffer has, fewer than its length only at the file's end;
    /// or an error, and then the buffer may have anything. On a thread of the pool; must be short.
    fn done(self: Box<Self>, result: io::Result<usize>);
}

/// A read that nobody waits for.
pub struct Read {
    /// From which file.
    pub file: Arc<dyn File>,
    /// From which byte on.
    pub offset: u64,
    /// Where to.
    pub target: Box<dyn ReadTarget>,
}

/// One of several writes.
pub struct Write<'a> {
    /// To which file.
    pub file: &'a Arc<dyn File>,
    /// From which byte on.
    pub offset: u64,
    /// What.
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
    /// Threads of the pool wait until a job has come, or the pool closes.
    queue: Monitor<Queue>,
    /// A job has left a full queue.
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

    /// Runs `work`, and keeps the message of its panic.
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
            // Who waits for the job is told by `failed`, which ends the process.
            drop(self.failed.watch("running an I/O job", job));
        }
    }
}

/// A fixed number of threads that run blocking jobs in the order in which they came.
pub struct IoPool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    ids: Vec<ThreadId>,
    ring: Option<Ring>,
    registered: Latch<Registered>,
    registers: bool,
    /// The most jobs that wait, at least 1.
    limit: usize,
}

impl IoPool {
    /// Starts `threads` threads (at least one), named `name-0`, `name-1` and so on. An error if the
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

    /// As [`IoPool::new`], with a ring of the kernel's for reads and batches of writes; an error if
    /// the kernel refuses that.
    pub fn with_ring(threads: usize, name: &str) -> io::Result<Self> {
        Self::with_ring_of(threads, name, Limits::KERNELS)
    }

    pub(crate) fn with_ring_of(threads: usize, name: &str, limits: Limits) -> io::Result<Self> {
        let mut pool = Self::new(threads, name)?;
        pool.ring = Some(Ring::new(&format!("{name}-ring"), limits, pool.shared.failed.clone())?);
        Ok(pool)
    }

    /// The same pool, in which at most `jobs` wait (at least 1).
    #[must_use]
    pub fn with_queue_limit(mut self, jobs: usize) -> Self {
        self.limit = jobs.max(1);
        self
    }

    /// The same pool, which registers memory that it is given with its ring, if it has one: see
    /// [`IoPool::register`].
    #[must_use]
    pub fn with_registered_buffers(mut self) -> Self {
        self.registers = true;
        self
    }

    /// Whether reads of files that have descriptors go to the kernel's ring.
    pub fn has_ring(&self) -> bool {
        self.ring.is_some()
    }

    /// Whether the kernel lets this process have a ring; the error says why not.
    pub fn try_ring() -> io::Result<()> {
        Ring::new("try-ring", Limits::KERNELS, Failed::default()).map(drop)
    }

    /// Has the kernel's ring, in a pool with registered buffers, know this memory beforehand, as
    /// long as the pool lives: direct reads into it and writes from it then cost less. All of it
    /// becomes resident, and stays so. Where the kernel refuses, they are done as those of other
    /// memory, and [`IoPool::registered`] says so. Blocks for the time that this takes; not in
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

    /// How much memory is registered with the ring.
    pub fn registered(&self) -> Registered {
        self.registered.lock().clone()
    }

    /// Hands over a read, and never blocks.
    pub fn read(&self, mut read: Read) {
        match &self.ring {
            Some(ring) if read.file.fd().is_some() => ring.read(read),
            _ => {
                let failed = self.shared.failed.clone();
                self.push(Box::new(move || {
                    let reading = || read.file.read_up_to(read.target.buffer(), read.offset);
                    // A panic, too, is an answer: others may wait for nothing else, as at a start.
                    let result = failed
                        .watch("reading", reading)
                        .unwrap_or_else(|panic| Err(io::Error::other(panic)));
                    read.target.done(result);
                }));
            }
        }
    }

    /// Does all the writes, in any order, and waits for them; an error names the number of one that
    /// has failed, and then any others may have been done or not. Not in [`ReadTarget::done`].
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

    fn push(&self, job: Job) {
        self.shared.queue.lock().jobs.push_back(job);
        self.shared.queue.notify_one();
    }

    /// Hands over a job. Blocks while as many jobs wait as may, except in a job of this pool.
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

    /// Hands over a job, or gives it back at once if as many jobs wait as may.
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

    /// Why the process must stop, if so: a job, or a callback of a read, has panicked.
    pub fn failed(&self) -> Option<&str> {
        self.shared.failed.why()
    }

    /// How many jobs wait for a thread.
    pub fn waiting(&self) -> usize {
        self.shared.queue.lock().jobs.len()
    }
}

impl Drop for IoPool {
    /// Returns after every job has run. In a job of this pool it does not wait for that job's own
    /// thread, which ends after the job and those that still wait.
    fn drop(&mut self) {
        // First, since its callbacks may submit jobs.
        self.ring = None;
        self.shared.queue.lock().closed = true;
        self.shared.queue.notify_all();
        for thread in self.threads.drain(..) {
            if thread.thread().id() != thread::current().id() {
                // A thread cannot have panicked: it catches its jobs' panics, and runs nothing else
                // that can.
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
#[path = "io_pool_tests.rs"]
mod tests;
